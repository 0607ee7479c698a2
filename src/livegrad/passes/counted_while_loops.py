"""Recognises counted while loops, such as `while k < n: k += 1; ...`, and converts them to `for_loop`.

The number of iterations is then available before the loop: its gradient stores nothing for the condition and needs no
tape of unknown length, and more passes apply. Called where loops are traced.
"""

from __future__ import annotations

from livegrad.ir.leaves import constant, constant_op, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, i64, scalar_of, shape_of
from livegrad.ops.comparison import greater, greater_equal, less, less_equal
from livegrad.ops.control import for_loop, while_loop
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast

_MAX_CONSTANT = 1 << 31  # of steps and bounds: the sum of two does not overflow


def as_for_loop(loop: Node) -> Node | None:
    """The `for_loop` equivalent to a while loop; None if the condition does not compare a counter with a bound.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ops.control import make_while_loop
    >>> def power(x):
    ...     return make_while_loop(lambda k, y: k < 5, lambda i, k, y: (k + 1, y * x), constant(0, i64), x)[1]
    >>> as_for_loop(trace(power, i64).results[0].operands[0]).operands[0].attribute("value")
    5
    """
    if loop.op is not while_loop or loop.attribute("limit") is not None:
        return None
    condition, body, carried = (loop.attribute(name) for name in ("condition", "body", "carried"))
    comparison = _strip_shape(condition.results[0])
    if comparison.op in (less, less_equal):
        counter, bound = map(_strip_shape, comparison.operands)
    elif comparison.op in (greater, greater_equal):
        bound, counter = map(_strip_shape, comparison.operands)
    else:
        return None
    index = _parameter_index(counter, condition)
    if index is None or index >= carried:
        return None
    step = _positive_step(body.results[index], body.parameters[1 + index])
    start, stop = _as_integer(loop.operands[index]), _invariant_bound(bound, condition, loop)
    if step is None or start is None or stop is None:
        return None
    offset = step if comparison.op in (less_equal, greater_equal) else step - 1
    distance = _count_steps(stop, start, offset)
    iterations = distance if step == 1 else distance // constant(step, i64)
    return for_loop(iterations, *loop.operands, body=body, carried=carried, reverse=False)


def _count_steps(stop: Node, start: Node, offset: int) -> Node:
    if stop.op is constant_op and start.op is constant_op:
        return constant(stop.attribute("value") - start.attribute("value") + offset, i64)
    return stop - start + constant(offset, i64) if offset else stop - start


def _strip_shape(node: Node) -> Node:
    """The scalar that a chain of rank-0 broadcasts and lookups wraps."""
    while node.op in (lookup, broadcast) and len(node.operands) == 1 and scalar_of(node.type) is not None:
        if node.op is broadcast and shape_of(node.type) != ():
            break
        node = node.operands[0]
    return node


def _parameter_index(node: Node, function: Function) -> int | None:
    return function.parameters.index(node) if node.op is parameter_op and node in function.parameters else None


def _as_integer(node: Node) -> Node | None:
    """The value as a scalar node; None if it is not a 64-bit integer."""
    value = _strip_shape(node)
    if isinstance(value.type, Tensor) and value.type.shape == () and value.type.element is i64:
        return lookup(value)
    return value if value.type is i64 else None


def _positive_step(after: Node, before: Node) -> int | None:
    """The positive constant that an iteration adds to the counter; None if there is none."""
    node = _strip_shape(after)
    if node.op is not add:
        return None
    parts = [_strip_shape(operand) for operand in node.operands]
    steps = [part.attribute("value") for part in parts if part.op is constant_op and part.type is i64]
    if len(steps) != 1 or before not in (*parts, *node.operands) or not 0 < steps[0] < _MAX_CONSTANT:
        return None
    return steps[0]


def _invariant_bound(node: Node, condition: Function, loop: Node) -> Node | None:
    """The bound that the counter is compared with, as a node outside the loop; None if it is not loop-invariant."""
    if node.op is constant_op:
        return node if node.type is i64 and abs(node.attribute("value")) < _MAX_CONSTANT else None
    index = _parameter_index(node, condition)
    if index is None:
        return None
    body: Function = loop.attribute("body")
    if index < loop.attribute("carried") and body.results[index] is not body.parameters[1 + index]:
        return None
    return _as_integer(loop.operands[index])
