"""What is known of integers in a captured function: the variables of loops over ranges, and arithmetic on them.

Loops note the range of their variable; array accesses need no rule for negative indices where an index is known to be
none. `Context.ranges` holds what was noted, for the nodes of the region that is being compiled.
"""

from __future__ import annotations

from livegrad.ir import types as ir
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.passes.integer_ranges import Range, Ranges, range_of

_ARITHMETIC = ("add", "sub", "mul", "mod", "min", "max", "neg", "select")
_DEEPEST = 8  # nodes of an index expression that are looked at below each other


def integer_range(node: Node, ranges: Ranges, depth: int = _DEEPEST) -> Range | None:
    """The least and the greatest value of an integer; None if it is not known.

    >>> from livegrad.ir.function import trace
    >>> f = trace(lambda i: i * 2 - 1, ir.i64)
    >>> integer_range(f.results[0], {f.parameters[0]: (1, 4)})
    (1, 7)
    """
    bounds = ranges.get(node)
    if bounds is not None or node.op is constant_op:
        return range_of(node, ranges)
    if not depth or node.op.name not in _ARITHMETIC or node.type is not ir.i64:
        return None
    if node.op.name == "mod":
        divisor = integer_range(node.operands[1], ranges, depth - 1)
        return (0, divisor[1] - 1) if divisor is not None and divisor[0] > 0 else None
    operands: dict[Node, Range] = {}
    for operand in node.operands:
        inner = None if operand.type is ir.bool_ else integer_range(operand, ranges, depth - 1)
        if inner is not None:
            operands[operand] = inner
        elif operand.type is not ir.bool_:
            return None
    return range_of(node, operands)


def range_of_loop(start: Node, stop: Node, step: int, ranges: Ranges) -> Range | None:
    """The range of the variable of a loop from `start` to `stop`; None if it is not known."""
    first, last = integer_range(start, ranges), integer_range(stop, ranges)
    if first is None or last is None:
        return None
    low, high = (first[0], last[1] - 1) if step > 0 else (last[0] + 1, first[1])
    return (low, high) if low <= high else None
