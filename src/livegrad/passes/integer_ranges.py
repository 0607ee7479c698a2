"""The least and the greatest value of integers that are computed from loop indices and constants.

Used by `lower_tapes` for loops whose number of iterations depends on the index of a loop around them.
"""

from __future__ import annotations

from collections.abc import Mapping

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import i32, i64, scalar_of
from livegrad.ir.walk import toposort
from livegrad.ops.control import for_loop

Range = tuple[int, int]  # both ends belong to it
Ranges = Mapping[Node, Range]

_MOST = 1 << 31  # larger values may overflow in further steps


def range_of(value: Node, known: Ranges) -> Range | None:
    """The range of an integer, from the ranges of the parameters it is computed from; None if it has no bounds.

    >>> from livegrad.ir.function import trace
    >>> f = trace(lambda i: 2 * i + 1, i64)
    >>> range_of(f.results[0], {f.parameters[0]: (0, 9)})
    (1, 19)
    """
    ranges: dict[Node, Range | None] = dict(known)
    for node in toposort([value], stop=ranges.__contains__):
        if node not in ranges:
            ranges[node] = _range(node, [ranges[operand] for operand in node.operands])
    return ranges[value]


def _range(node: Node, operands: list[Range | None]) -> Range | None:
    if scalar_of(node.type) not in (i32, i64):
        return None
    if node.op is constant_op:
        return _bounded(node.attribute("value"), node.attribute("value"))
    match node.op.name, operands:
        case "select", [_, (int() as low, int() as high), (int() as other_low, int() as other_high)]:
            return min(low, other_low), max(high, other_high)
        case (("broadcast" | "reshape" | "cast" | "lookup"), [(int() as low, int() as high)]):
            return low, high
        case "neg", [(int() as low, int() as high)]:
            return -high, -low
        case name, [(int() as a, int() as b), (int() as c, int() as d)]:
            return _combined(name, (a, b), (c, d))
    return None


def _combined(name: str, first: Range, second: Range) -> Range | None:
    (a, b), (c, d) = first, second
    match name:
        case "add":
            return _bounded(a + c, b + d)
        case "sub":
            return _bounded(a - d, b - c)
        case "mul":
            products = (a * c, a * d, b * c, b * d)
            return _bounded(min(products), max(products))
        case "max" | "maximum":
            return max(a, c), max(b, d)
        case "min" | "minimum":
            return min(a, c), min(b, d)
    return None


def _bounded(low: int, high: int) -> Range | None:
    return (low, high) if low > -_MOST and high < _MOST else None


def ranges_inside(loop: Node, iterations: Range, around: Ranges) -> Ranges:
    """The ranges of the parameters of a `for_loop`'s body: of its index, and of what it captures."""
    assert loop.op is for_loop
    body: Function = loop.attribute("body")
    carried = loop.attribute("carried")
    inside: dict[Node, Range] = {body.parameters[0]: (0, max(0, iterations[1] - 1))}
    captures = zip(body.parameters[1 + carried :], loop.operands[1 + carried :], strict=True)
    for parameter, operand in captures:
        operand_range = range_of(operand, around)
        if operand_range is not None:
            inside[parameter] = operand_range
    return inside
