"""Checkpointing within a byte budget: splits loops whose gradient would store too much into segments.

The gradient then stores only the carried values at the start of each segment, and the backward pass recomputes the
iterations of the segment.
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
from livegrad.passes.differentiate.linearize import residual_types
from livegrad.passes.differentiate.report import byte_size
from livegrad.passes.differentiate.split_scans import split_scan
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.functions import rewrite_functions


@propagates_lines
def within_budget(function: Function, bytes: int) -> Function:
    """Splits each loop whose gradient would store more than this many bytes into segments.

    The length of a segment minimises memory: a loop of n iterations then stores about √n times as much as one
    iteration. If the number of iterations is known only at run time, the length is chosen then. Residuals of symbolic
    size count as zero bytes. A scan of symbolic length stays as it is.

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
        if any(isinstance(operand.type, Tape) for operand in node.operands):
            return _scan(node, bytes) if node.op is for_loop else None
        if node.op is for_loop:
            return _for_loop(node, bytes)
        return _while_loop(node, bytes) if node.op is while_loop else None

    return rewrite_functions(Module((function,)), lambda inner: map_results(inner, rule)).functions[0]


def _bytes_per_iteration(node: Node, operands: Sequence[Node]) -> tuple[int, int]:
    """The bytes that an iteration stores, and the bytes that it carries; symbolic sizes count as 0."""
    carried = node.attribute("carried")
    active = [is_differentiable(operand.type) for operand in operands]
    stored = residual_types(node.attribute("body"), carried, active)
    return _static_bytes(stored), _static_bytes([operand.type for operand in operands[:carried]])


def _static_bytes(types: Sequence[Type]) -> int:
    return sum(size for size in map(byte_size, types) if isinstance(size, int))


def _for_loop(node: Node, budget: int) -> Node | None:
    iterations, *operands = node.operands
    stored, state = _bytes_per_iteration(node, operands)
    if not stored:
        return None
    if iterations.op is constant_op:
        count = iterations.attribute("value")
        if count * stored <= budget:
            return None
        return _split_into_segments(node, iterations, operands, constant(_choose_length(count, stored, state), i64))
    # The loop is counted at run time, and split only if it exceeds the budget; segments have the best length for
    # about twice as many iterations as fit.
    max_unsplit = budget // stored
    length = constant(_choose_length(2 * max_unsplit + 1, stored, state), i64)
    types = [i64, *(operand.type for operand in operands)]
    inner_iterations, *values = parameters_of(types)
    whole = for_loop(inner_iterations, *values, **dict(node.attributes))
    segmented = _split_into_segments(node, inner_iterations, values, length)
    carried = node.attribute("carried")
    functions = [
        Function(name, (inner_iterations, *values), tuple(get(loop, index=index) for index in range(carried)))
        for name, loop in (("stored", whole), ("segments", segmented))
    ]
    value = cond(iterations <= max_unsplit, iterations, *operands, then=functions[0], otherwise=functions[1])
    return make_tuple(*result_nodes(value, carried))


def _scan(node: Node, budget: int) -> Node | None:
    """Splits a scan: a segment would store a copy of whole tapes, so it has rows of its own."""
    iterations, *operands = node.operands
    if iterations.op is not constant_op:
        return None
    carried, count = node.attribute("carried"), iterations.attribute("value")
    stored, state = _bytes_per_iteration(node, operands)
    if count * stored <= budget:
        return None
    results = split_scan(node, count, _choose_length(count, stored, state))
    return None if results is None else make_tuple(*results[:carried])


def _choose_length(iterations: int, stored: int, state: int) -> int:
    """The segment length that minimises the residuals of one segment plus the carried values of all segments."""
    return max(1, isqrt(max(1, iterations * max(1, state) // stored)))


def _split_into_segments(node: Node, iterations: Node, operands: Sequence[Node], length: Node) -> Node:
    """A loop over segments, each a loop under `recompute_call`."""
    carried, reverse = node.attribute("carried"), node.attribute("reverse")
    segment = _segment(node, [operand.type for operand in operands])
    types = [i64, *(operand.type for operand in operands), i64, i64]
    index, *arguments = parameters_of(types)
    *values, all_iterations, inner_length = arguments
    start = index * inner_length
    value = recompute_call(start, lesser(inner_length, all_iterations - start), *values, function=segment)
    body = Function(segment.name, (index, *arguments), tuple(result_nodes(value, carried)))
    segments = (iterations + length - 1) // length
    return for_loop(segments, *operands, iterations, length, body=body, carried=carried, reverse=reverse)


def _segment(node: Node, types: Sequence[Type]) -> Function:
    """(first iteration, iterations, carried values, captures) → carried values after these iterations."""
    body, carried = node.attribute("body"), node.attribute("carried")
    start, count, *arguments = parameters_of([i64, i64, *types])
    index, *inside = parameters_of([i64, *types, i64])
    *values, first = inside
    shifted = Function(body.name, (index, *inside), inline(body, [first + index, *values]))
    loop = for_loop(count, *arguments, start, body=shifted, carried=carried, reverse=node.attribute("reverse"))
    results = tuple(get(loop, index=position) for position in range(carried))
    return Function("segment", (start, count, *arguments), results)


def _while_loop(node: Node, budget: int) -> Node | None:
    """Splits a while loop into segments. Each ends with the loop, or when its iterations fill half the budget."""
    stored, _ = _bytes_per_iteration(node, node.operands)
    if not stored:
        return None
    carried, limit = node.attribute("carried"), node.attribute("limit")
    length = max(1, budget // (2 * stored))
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
    # The loop of the segment carries the number of its own iterations, and captures where it starts.
    inside = parameters_of([*types[:carried], i64, *types[carried:], i64])
    state, count, captures = inside[:carried], inside[carried], inside[carried + 1 : -1]
    (test,) = inline(node.attribute("condition"), [*state, *captures])
    condition = Function("running", inside, (test & (count < length),))
    index, *arguments = parameters_of([i64, *(node.type for node in inside)])
    body_state, body_count = arguments[:carried], arguments[carried]
    iteration = arguments[-1] + body_count
    if limit is not None:
        iteration = check(iteration, iteration < limit, message=f"the loop ran past its limit of {limit}")
    next_state = inline(node.attribute("body"), [iteration, *body_state, *arguments[carried + 1 : -1]])
    body = Function("iteration", (index, *arguments), (*next_state, body_count + 1))
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
    results = [get(loop, index=position) for position in range(carried)]
    return Function("segment", values, (*results, start + get(loop, index=carried)))
