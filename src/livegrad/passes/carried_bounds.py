"""Induction variable analysis: affine bounds of carried integers that change by a constant step in each iteration.

In: a loop and the forms of its operands. Out: the forms of its carried values where the condition of a `while_loop` is
tested, inside an iteration, and after the loop. Used by the loop pass `eliminate_bounds_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.types import i64
from livegrad.ir.walk import nodes_of
from livegrad.ops.comparison import bit_and, greater, greater_equal, less, less_equal
from livegrad.ops.control import for_loop
from livegrad.ops.elementwise import add, sub
from livegrad.passes.affine_bounds import Form, any_number, between, form_of, greatest, index_below, least

# A variable with a step and a start within these limits overflows only after 2 ** 52 iterations, which is never.
_MAX_STEP, _MAX_START = 1 << 10, 1 << 62
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_OPPOSITE = {less: greater, less_equal: greater_equal, greater: less, greater_equal: less_equal}

Forms = Sequence[Form | None]


class CarriedBounds(NamedTuple):
    """The forms of a loop's carried values: before each test of its condition, in an iteration, and after the loop."""

    before_test: list[Form | None]
    inside: list[Form | None]
    after: list[Form | None]


def bounds_of_carried(loop: Node, operands: Forms) -> CarriedBounds:
    """The forms of the values that a loop carries, from the forms of its operands."""
    body: Function = loop.attribute("body")
    bounds = CarriedBounds([], [], [])
    arguments = operands[1:] if loop.op is for_loop else operands
    for index in range(loop.attribute("carried")):
        parameter, start = body.parameters[1 + index], arguments[index]
        step = _constant_step(body.results[index], parameter)
        unknown = any_number(parameter.type)
        forms = (unknown, unknown, unknown)
        if step is not None and start is not None:
            if loop.op is for_loop:
                forms = _bound_by_iterations(start, step, operands[0], loop.attribute("reverse"))
            else:
                limits = _limits_by_condition(loop.attribute("condition"), index, len(body.results), arguments)
                forms = _bound_by_condition(start, step, limits)
        for forms_at_point, form in zip(bounds, forms, strict=True):
            forms_at_point.append(form)
    return bounds


def _constant_step(result: Node, parameter: Node) -> int | None:
    """The constant step by which each iteration changes a carried integer; None if there is none."""
    offset = _constant_offset(result, parameter)
    return None if parameter.type is not i64 else offset


def _constant_offset(node: Node, origin: Node) -> int | None:
    """The constant that a node adds to `origin`; None if it computes anything else, or the constant is large."""
    if node is origin:
        return 0
    if node.op not in (add, sub):
        return None
    left, right = node.operands
    if node.op is add and right is origin:
        left, right = right, left
    if left is not origin or right.op is not constant_op:
        return None
    value = right.attribute("value")
    if not isinstance(value, int) or abs(value) > _MAX_STEP:
        return None
    return value if node.op is add else -value


def _bound_by_iterations(
    start: Form, step: int, iterations: Form | None, reverse: bool
) -> tuple[Form | None, Form | None, Form | None]:
    """The forms of an induction variable of a `for_loop`: start plus step times index."""
    unknown = any_number(i64)
    if step == 0:
        return start, start, start
    if iterations is None:
        return unknown, unknown, unknown
    last = start.plus(iterations, step)
    low, high = min(least(start), least(last)), max(greatest(start), greatest(last))
    if low < _LEAST or high > _GREATEST:
        return unknown, unknown, unknown
    inside = between(low, high) if reverse else start.plus(index_below(iterations), step)
    return unknown, inside, between(low, high)


def _bound_by_condition(
    start: Form, step: int, limits: tuple[int, int]
) -> tuple[Form | None, Form | None, Form | None]:
    """The forms of an induction variable of a `while_loop`.

    In an iteration, its value satisfies the condition. Before a test, it does so one step earlier, or is the start.
    """
    if step == 0:
        return start, start, start
    low, high = least(start), greatest(start)
    unknown = any_number(i64)
    if low < -_MAX_START or high > _MAX_START:
        return unknown, unknown, unknown
    lowest, highest = limits
    if step > 0:
        beyond = highest + step if highest + step <= _GREATEST else _GREATEST
        before_test, inside = between(low, max(high, beyond)), between(low, max(low, highest))
    else:
        beyond = lowest + step if lowest + step >= _LEAST else _LEAST
        before_test = between(min(low, beyond), high, (start,))
        inside = between(min(high, lowest), high, (start,))
    return before_test, inside, before_test


def _limits_by_condition(condition: Function, index: int, carried: int, arguments: Forms) -> tuple[int, int]:
    """The least and the greatest value of a carried integer for which the condition of its loop may hold."""
    forms: dict[Node, Form | None] = dict(zip(condition.parameters, arguments, strict=True))
    forms.update((parameter, any_number(parameter.type)) for parameter in condition.parameters[:carried])
    for node in nodes_of(condition):
        if node not in forms:
            forms[node] = None if node.functions else form_of(node, [forms[operand] for operand in node.operands])
    low, high = _LEAST, _GREATEST
    for test in _conjuncts(condition.results[0]):
        for relation, left, right in _orient_comparison(test):
            offset, limit = _constant_offset(left, condition.parameters[index]), forms[right]
            if offset is None or limit is None:
                continue
            if relation in (less, less_equal):
                high = min(high, greatest(limit) - offset - (relation is less))
            else:
                low = max(low, least(limit) - offset + (relation is greater))
    return low, high


def _conjuncts(condition: Node) -> Iterator[Node]:
    """The operands of a conjunction, flattened."""
    if condition.op is bit_and:
        for operand in condition.operands:
            yield from _conjuncts(operand)
    else:
        yield condition


def _orient_comparison(test: Node) -> list[tuple[Op, Node, Node]]:
    """An integer comparison in both orientations: `a < b` and `b > a`."""
    if test.op not in _OPPOSITE or test.operands[0].type is not i64:
        return []
    left, right = test.operands
    return [(test.op, left, right), (_OPPOSITE[test.op], right, left)]
