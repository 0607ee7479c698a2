"""Threads an effect token through a captured function, so that its result depends on its checks and prints.

Statements extend the token; branches and loops carry it; `function_compiler` makes the result depend on it. Derivatives
of the result therefore depend on the checks too: a check also fails if only the gradient is computed.
"""

from __future__ import annotations

from functools import cache

from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import runtime, static
from livegrad.ir import types as ir
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.comparison import equal
from livegrad.ops.control import call, check
from livegrad.ops.custom import make_custom_call
from livegrad.ops.host import make_print
from livegrad.ops.order import after, each_after

_CHECKED_ORDERS = 3  # derivatives up to this order are checked like the value


def _token(context: Context) -> Node:
    token = context.environment.get("$effects", static(0))
    return constant(0, ir.i32) if token.node is None else token.node


def _set_token(context: Context, token: Node) -> None:
    context.has_effects = True
    context.environment["$effects"] = runtime(ir.i32, token)


def add_check(context: Context, condition: Node, message: str) -> None:
    """Adds a run-time check, which ends the run with a message if the condition is false."""
    _set_token(context, check(_token(context), condition, message=message))


def add_print(context: Context, template: str, values: list[Node]) -> None:
    """Adds a print of values, in program order."""
    before = _token(context)
    context.prints = True
    _set_token(context, after(before, make_print(template, *values, follows=(before,))))


def add_effects_of_call(context: Context, result: Node | None, prints: bool) -> None:
    """Adds the effects of a call to the caller's. A result already depends on them; a function without a result returns
    its token, which is passed as `result`.
    """
    context.has_effects = True
    context.prints |= prints
    if result is not None:
        before = context.environment.get("$effects", static(0)).node
        _set_token(context, result if before is None else before | result)


def tie_to_effects(context: Context, node: Node) -> Node:
    """Makes a result depend on the function's checks and prints."""
    token = context.environment.get("$effects", static(0)).node
    if token is None:
        return node
    ordered = each_after(node, token) if context.prints else node
    return _tie_to_checks(ordered, equal(token, 0))


def _tie_to_checks(node: Node, holds: Node) -> Node:
    if isinstance(node.type, ir.Struct | ir.Tuple | ir.Array):
        count = len(ir.components(node.type))
        return make(*[_tie_to_checks(member(node, index), holds) for index in range(count)], type=node.type)
    if not ir.is_differentiable(node.type):
        return check(node, holds, message="assertion failed")
    return call(node, holds, function=_checked_identity(node.type, _CHECKED_ORDERS))


@cache
def _checked_identity(type: ir.Type, orders: int) -> Function:
    """A function (value, whether the checks hold) → value, whose derivatives are checked up to `orders`."""
    plain = trace(lambda value, holds: check(value, holds, message="assertion failed"), type, ir.bool_)
    if orders == 0:
        return plain
    inner = _checked_identity(type, orders - 1)
    differential = ir.differential_of(type)
    rule = trace(lambda value, holds, d: call(d, holds, function=inner), type, ir.bool_, differential)
    return trace(
        lambda value, holds: make_custom_call(plain, value, holds, forward=rule, backward=rule), type, ir.bool_
    )
