"""Checkpointing within a byte budget: rewrites a function so that its gradient stores less.

A loop whose gradient would store too much is split into segments: only the carried values of each segment are stored,
and the backward pass recomputes the iterations of the segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import inline, map_results
from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tape, Type, i64, is_differentiable
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import check, cond, for_loop, parameters_of, while_loop
from livegrad.ops.custom import recompute_call
from livegrad.ops.elementwise import min as lesser
from livegrad.passes.differentiate.linearize import traced_types
from livegrad.passes.differentiate.report import byte_size
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.functions import rewrite_functions


@propagates_lines
def within_budget(function: Function, bytes: int) -> Function:
    """Splits each loop whose gradient would store more than this many bytes into segments.

    The length of a segment minimises memory: a loop of n iterations then stores about √n times as much as one
    iteration. If the number of iterations is known only at run time, the length is chosen then. Residuals of symbolic
    size count as zero bytes. A scan that returns a value for each iteration stays as it is.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f64
    >>> from livegrad.ops.control import make_for_loop
    >>> power = trace(lambda n, x: make_for_loop(n, lambda i, a: a * x, x)[0], i64, f64)
    >>> within_budget(power, 1 << 20)
    <function <lambda>(i64, f64) -> f64>
    """
    if bytes < 1:
        raise UsageError("a byte budget must be positive", where=caller_origin(), found=str(bytes))

    def rule(node: Node) -> Node | None:
        # The outputs of a scan are on a tape, of which each segment would store a copy.
        if any(isinstance(operand.type, Tape) for operand in node.operands):
            return None
        if node.op is for_loop:
            return _for_loop(node, bytes)
        return _while_loop(node, bytes) if node.op is while_loop else None

    return rewrite_functions(Module((function,)), lambda inner: map_results(inner, rule)).functions[0]


def _sizes(node: Node, operands: Sequence[Node]) -> tuple[int, int]:
    """The bytes that an iteration stores and carries; 0 if unknown."""
    carried = node.attribute("carried")
    active = [is_differentiable(operand.type) for operand in operands]
    remembered = traced_types(node.attribute("body"), carried, active)
    return _static_bytes(remembered), _static_bytes([operand.type for operand in operands[:carried]])


def _static_bytes(types: Sequence[Type]) -> int:
    return sum(size for size in map(byte_size, types) if isinstance(size, int))


def _for_loop(node: Node, budget: int) -> Node | None:
    iterations, *operands = node.operands
    remembered, state = _sizes(node, operands)
    if not remembered:
        return None
    if iterations.op is constant_op:
        number = iterations.attribute("value")
        if number * remembered <= budget:
            return None
        return _segments(node, iterations, operands, constant(_best_length(number, remembered, state), i64))
    # Segments of the best length for as many iterations as the budget allows, if the loop has more.
    fitting = budget // remembered
    length = constant(_best_length(2 * fitting + 1, remembered, state), i64)
    types = [i64, *(operand.type for operand in operands)]
    own_iterations, *values = parameters_of(types)
    whole = for_loop(own_iterations, *values, **dict(node.attributes))
    parted = _segments(node, own_iterations, values, length)
    number = node.attribute("carried")
    functions = [
        Function(name, (own_iterations, *values), tuple(get(loop, index=index) for index in range(number)))
        for name, loop in (("stored", whole), ("segments", parted))
    ]
    value = cond(iterations <= fitting, iterations, *operands, then=functions[0], otherwise=functions[1])
    return make_tuple(*result_nodes(value, number))


def _best_length(iterations: int, remembered: int, state: int) -> int:
    """The segment length that minimises the residuals of one segment plus the carried values of all segments."""
    return max(1, isqrt(max(1, iterations * max(1, state) // remembered)))


def _segments(node: Node, iterations: Node, operands: Sequence[Node], length: Node) -> Node:
    """A loop over segments, each a loop that is computed again."""
    carried, reverse = node.attribute("carried"), node.attribute("reverse")
    segment = _segment(node, [operand.type for operand in operands])
    types = [i64, *(operand.type for operand in operands), i64, i64]
    index, *own = parameters_of(types)
    *values, all_iterations, own_length = own
    start = index * own_length
    value = recompute_call(start, lesser(own_length, all_iterations - start), *values, function=segment)
    body = Function(segment.name, (index, *own), tuple(result_nodes(value, carried)))
    number = (iterations + length - 1) // length
    return for_loop(number, *operands, iterations, length, body=body, carried=carried, reverse=reverse)


def _segment(node: Node, types: Sequence[Type]) -> Function:
    """(first iteration, iterations, carried values, captures) → carried values after these iterations."""
    body, carried = node.attribute("body"), node.attribute("carried")
    start, count, *own = parameters_of([i64, i64, *types])
    index, *inside = parameters_of([i64, *types, i64])
    *values, first = inside
    moved = Function(body.name, (index, *inside), inline(body, [first + index, *values]))
    loop = for_loop(count, *own, start, body=moved, carried=carried, reverse=node.attribute("reverse"))
    return Function("segment", (start, count, *own), tuple(get(loop, index=place) for place in range(carried)))


def _while_loop(node: Node, budget: int) -> Node | None:
    """Splits a while loop into segments that end with the loop, or after as many iterations as fit into half the
    budget."""
    remembered, _ = _sizes(node, node.operands)
    if not remembered:
        return None
    carried, limit = node.attribute("carried"), node.attribute("limit")
    length = max(1, budget // (2 * remembered))
    if limit is not None and limit <= length:
        return None
    types = [operand.type for operand in node.operands]
    segment = _while_segment(node, types, length)
    index, *values = parameters_of([i64, *types[:carried], i64, *types[carried:]])
    state, iterations, captures = values[:carried], values[carried], values[carried + 1 :]
    value = recompute_call(*state, iterations, *captures, function=segment)
    body = Function("segment", (index, *values), tuple(result_nodes(value, carried + 1)))
    fresh = parameters_of([value.type for value in values])
    tested = inline(node.attribute("condition"), [*fresh[:carried], *fresh[carried + 1 :]])
    condition = Function("running", fresh, tested)
    start = [*node.operands[:carried], constant(0, i64), *node.operands[carried:]]
    loop = while_loop(*start, condition=condition, body=body, carried=carried + 1, limit=None)
    return make_tuple(*(get(loop, index=position) for position in range(carried)))


def _while_segment(node: Node, types: Sequence[Type], length: int) -> Function:
    """(carried values, iterations so far, captures) → carried values and iterations after the segment."""
    carried, limit = node.attribute("carried"), node.attribute("limit")
    values = parameters_of([*types[:carried], i64, *types[carried:]])
    start = values[carried]
    # The loop inside carries the number of its own iterations; where it began is captured.
    inside = parameters_of([*types[:carried], i64, *types[carried:], i64])
    state, count, captures = inside[:carried], inside[carried], inside[carried + 1 : -1]
    (test,) = inline(node.attribute("condition"), [*state, *captures])
    condition = Function("running", inside, (test & (count < length),))
    index, *shifted = parameters_of([i64, *(node.type for node in inside)])
    moved_state, moved_count = shifted[:carried], shifted[carried]
    iteration = shifted[-1] + moved_count
    if limit is not None:
        iteration = check(iteration, iteration < limit, message=f"the loop ran past its limit of {limit}")
    moved = inline(node.attribute("body"), [iteration, *moved_state, *shifted[carried + 1 : -1]])
    body = Function("iteration", (index, *shifted), (*moved, moved_count + 1))
    loop = while_loop(
        *values[:carried],
        constant(0, i64),
        *values[carried + 1 :],
        start,
        condition=condition,
        body=body,
        carried=carried + 1,
        limit=None,
    )
    results = [get(loop, index=place) for place in range(carried)]
    return Function("segment", values, (*results, start + get(loop, index=carried)))
