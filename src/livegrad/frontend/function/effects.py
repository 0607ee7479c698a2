"""Effects of a captured function: a token that carries checks and prints through branches and loops to the result.

Statements extend the token, and `function_compiler` makes the result depend on it. Everything computed from the result,
including its derivatives, therefore depends on the checks: they also fail if only the gradient is computed.
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

_CHECKED_ORDERS = 3  # up to which derivatives of a result are checked each for itself


def _token(context: Context) -> Node:
    token = context.environment.get("$effects", static(0))
    return constant(0, ir.i32) if token.node is None else token.node


def _set_token(context: Context, token: Node) -> None:
    context.has_effects = True
    context.environment["$effects"] = runtime(ir.i32, token)


def add_check(context: Context, condition: Node, message: str) -> None:
    """Ends the run with a message unless the condition holds where the program comes to this."""
    _set_token(context, check(_token(context), condition, message=message))


def add_print(context: Context, template: str, values: list[Node]) -> None:
    """Prints values where the program comes to this."""
    before = _token(context)
    context.prints = True
    _set_token(context, after(before, make_print(template, *values, follows=(before,))))


def add_effects_of_call(context: Context, result: Node | None, prints: bool) -> None:
    """The checks and prints of a called function are those of its caller. A result carries them itself; a function
    without one gives its token."""
    context.has_effects = True
    context.prints |= prints
    if result is not None:
        before = context.environment.get("$effects", static(0)).node
        _set_token(context, result if before is None else before | result)


def tie_to_effects(context: Context, node: Node) -> Node:
    """A result that is there only if the function's checks hold, after everything has been printed."""
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
    """(value, whether the checks hold) → the value; its derivatives are checked like the value itself."""
    plain = trace(lambda value, holds: check(value, holds, message="assertion failed"), type, ir.bool_)
    if orders == 0:
        return plain
    inner = _checked_identity(type, orders - 1)
    differential = ir.differential_of(type)
    rule = trace(lambda value, holds, d: call(d, holds, function=inner), type, ir.bool_, differential)
    return trace(
        lambda value, holds: make_custom_call(plain, value, holds, forward=rule, backward=rule), type, ir.bool_
    )
