"""Batch rules of calls, branches and loops.

If the condition is the same for all members, a branch or loop stays as it is. Otherwise every branch runs for the
members that take it, with one of these standing in for each of the others, and each member selects the results of its
own branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from livegrad.diagnostics import UsageError
from livegrad.ir.function import inline
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tape, Tensor, components, i64
from livegrad.ops.aggregate import get, make, member
from livegrad.ops.comparison import bit_not, equal, less
from livegrad.ops.control import call, check, cond, for_loop, parameters_of, switch, while_loop
from livegrad.ops.custom import custom_call, recompute_call
from livegrad.ops.indexing import lookup
from livegrad.ops.members import call_together, members_call
from livegrad.ops.movement import broadcast, concatenate
from livegrad.ops.order import after, kept
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled, zero
from livegrad.ops.tape import tape_new, tape_sum
from livegrad.passes.batch.tapes import holds_tape, written_on
from livegrad.passes.batch.values import choose, stand_in_members
from livegrad.passes.batch.walk import (
    BatchRule,
    Context,
    Known,
    Operand,
    Parts,
    batch_function,
    flags_of,
    nodes_in,
    with_batched_results,
    writes_tapes,
)
from livegrad.passes.differentiate.propagate import union
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.passes.regions import carried_flags


def _results(value: Node, function: Function, flags: Sequence[bool]) -> Known:
    """The results of a call of the batched function."""
    parts = [Operand(node, flag) for node, flag in zip(result_nodes(value, len(flags)), flags, strict=True)]
    return parts[0] if len(parts) == 1 else Parts(function.result_type, tuple(parts))


def _masks(context: Context, *functions: Function) -> list[Node]:
    """The context's mask, for functions that need it."""
    return [context.mask] if context.mask is not None and any(map(writes_tapes, functions)) else []


def _any(mask: Node) -> Node:
    return lookup(reduce(mask, kind="any", axes=(0,)))


# --- calls and branches ----------------------------------------------------------------------------------------------


def _call(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    function: Function = node.attribute("function")
    masks = _masks(context, function)
    wanted = _results_to_batch(function, context)
    batched, flags = batch_function(function, flags_of(operands), context.size, bool(masks), wanted)
    return _results(call(*nodes_in(operands), *masks, function=batched), function, flags)


def _results_to_batch(function: Function, context: Context) -> tuple[bool, ...]:
    """The results that are to be batched anyway."""
    return tuple(holds_tape(type) for type in function.result_types) if context.every_tape else ()


def _together(
    functions: Sequence[Function], operands: Sequence[Operand], context: Context
) -> tuple[tuple[Function, ...], list[Node], tuple[bool, ...]]:
    """Branches that all members take together: the functions, what they take, and which results are batched."""
    flags, masks = flags_of(operands), _masks(context, *functions)
    alike = _results_to_batch(functions[0], context)
    wanted = union(*(batch_function(f, flags, context.size, bool(masks), alike)[1] for f in functions))
    batched = tuple(with_batched_results(f, flags, context.size, wanted, bool(masks)) for f in functions)
    return batched, [*nodes_in(operands), *masks], wanted


def _cond(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    predicate, *arguments = operands
    functions: tuple[Function, ...] = (node.attribute("then"), node.attribute("otherwise"))
    if not predicate.batched:
        (then, otherwise), values, wanted = _together(functions, arguments, context)
        value = cond(predicate.value, *values, then=then, otherwise=otherwise)
        return _results(value, functions[0], wanted)
    return _apart((predicate.value, bit_not(predicate.value)), functions, arguments, context)


def _switch(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    selector, *arguments = operands
    functions: tuple[Function, ...] = node.attribute("branches")
    if not selector.batched:
        batched, values, wanted = _together(functions, arguments, context)
        return _results(switch(selector.value, *values, branches=batched), functions[0], wanted)
    index, number = selector.value, len(functions)
    right = reduce((index >= 0) & (index < number), kind="all", axes=(0,))
    message = f"switch on an index that is out of range for {number} branches"
    checked = check(index, lookup(right), message=message)
    return _apart([equal(checked, branch_index) for branch_index in range(number)], functions, arguments, context)


def _apart(
    masks: Sequence[Node], functions: Sequence[Function], arguments: Sequence[Operand], context: Context
) -> Known:
    """Each branch for the members that take it."""
    sides = [_run_where(mask, f, arguments, context) for mask, f in zip(masks, functions, strict=True)]
    results = sides[0]
    for mask, side in zip(masks[1:], sides[1:], strict=True):
        results = [_merge(mask, new, old) for new, old in zip(side, results, strict=True)]
    operands = [Operand(node, True) for node in results]
    return operands[0] if len(operands) == 1 else Parts(functions[0].result_type, tuple(operands))


def _merge(mask: Node, new: Node, old: Node) -> Node:
    """The new value where the mask holds. Tapes were written by the members that count alone, and add up."""
    if isinstance(new.type, Tape):
        return tape_sum(new, old)
    if isinstance(new.type, Tensor):
        return choose(mask, new, old)
    indices = range(len(components(new.type)))
    return make(*(_merge(mask, member(new, index), member(old, index)) for index in indices), type=new.type)


def _run_where(mask: Node, function: Function, arguments: Sequence[Operand], context: Context) -> list[Node]:
    """Runs the function for the members in the mask; gives zeros without running it if the mask is empty."""
    _require_inner_tapes(function)
    flags, values = flags_of(arguments), nodes_in(arguments)
    counting = mask if context.mask is None else mask & context.mask
    masked = writes_tapes(function)
    wanted = (True,) * len(function.results)
    batched = with_batched_results(function, flags, context.size, wanted, masked)

    def run(own_mask: Node, own_counting: Node, *own_state: Node) -> Sequence[Node]:
        safe = stand_in_members(own_mask, own_state, flags)
        return inline(batched, [*safe, *([own_counting] if masked else [])])

    operands = [mask, counting, *values]
    parameters = parameters_of([operand.type for operand in operands])
    then = Function(batched.name, parameters, tuple(run(*parameters)))
    otherwise = Function("nothing", parameters, tuple(map(zero, batched.result_types)))
    value = cond(_any(mask), *operands, then=then, otherwise=otherwise)
    return result_nodes(value, len(batched.results))


def _require_inner_tapes(function: Function) -> None:
    if any(written_on(function)):
        raise UsageError(
            f"`{function.name}` adds to an outer tape, in a branch that differs between the members of a batch",
            where=next(result.origin for result in function.results if holds_tape(result.type)),
        )


# --- loops -----------------------------------------------------------------------------------------------------------


def _carried_flags(
    body: Function, state: Sequence[Operand], captured: tuple[bool, ...], context: Context, masked: bool
) -> tuple[bool, ...]:
    """Which carried values are batched in some iteration.

    A tape that starts empty is batched from the start: only then can one member's values be written into it.
    """
    initial = tuple(
        operand.batched or operand.value.op is tape_new or (context.every_tape and holds_tape(operand.value.type))
        for operand in state
    )
    return carried_flags(
        initial, lambda flags: batch_function(body, (False, *flags, *captured), context.size, masked)[1]
    )


def _loop_results(loop: Node, flags: Sequence[bool], node: Node) -> Known:
    parts = tuple(Operand(get(loop, index=index), flag) for index, flag in enumerate(flags))
    return Parts(node.type, parts)


def _start(state: Sequence[Operand], flags: Sequence[bool], context: Context) -> list[Node]:
    return [context.batch(operand) if flag else operand.value for operand, flag in zip(state, flags, strict=True)]


def _for_loop(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    iterations, *values = operands
    body, carried, reverse = (node.attribute(name) for name in ("body", "carried", "reverse"))
    state, captures = values[:carried], values[carried:]
    if iterations.batched:
        return _for_loop_apart(node, iterations.value, state, captures, context)
    masks = _masks(context, body)
    captured = flags_of(captures)
    flags = _carried_flags(body, state, captured, context, bool(masks))
    batched = with_batched_results(body, (False, *flags, *captured), context.size, flags, bool(masks))
    start = _start(state, flags, context)
    loop = for_loop(
        iterations.value, *start, *nodes_in(captures), *masks, body=batched, carried=carried, reverse=reverse
    )
    return _loop_results(loop, flags, node)


def _for_loop_apart(
    node: Node, iterations: Node, state: Sequence[Operand], captures: Sequence[Operand], context: Context
) -> Known:
    """Runs as many iterations as the longest member needs; the others keep their values after their last one."""
    body, carried, reverse = (node.attribute(name) for name in ("body", "carried", "reverse"))

    def still_running(index: Node, own_iterations: Node) -> Node:
        return less(broadcast(index, shape=(context.size,), axes=()), own_iterations)

    batched, start, more = _masked_body(body, state, captures, [iterations], still_running, context)
    none = filled(0, Tensor(i64, (1,)))
    longest = lookup(reduce(concatenate(none, iterations, axis=0), kind="max", axes=(0,)))
    loop = for_loop(longest, *start, *nodes_in(captures), *more, body=batched, carried=carried, reverse=reverse)
    return _loop_results(loop, (True,) * carried, node)


def _masked_body(
    body: Function,
    state: Sequence[Operand],
    captures: Sequence[Operand],
    more: Sequence[Node],
    still_running: Callable[..., Node],
    context: Context,
) -> tuple[Function, list[Node], list[Node]]:
    """A body in which each member stops on its own, with its initial values and its additional captures.

    `still_running(index, *more)` or, where nothing more is given, `still_running(index, *state, *captures)` says which
    members take part in an iteration.
    """
    carried, masked = len(state), writes_tapes(body)
    flags = (False, *[True] * carried, *flags_of(captures))
    batched = with_batched_results(body, flags, context.size, (True,) * carried, masked)
    start = [context.batch(operand) for operand in state]
    extra = [*more, *([context.mask] if context.mask is not None and masked else [])]
    types = [i64, *(node.type for node in (*start, *nodes_in(captures), *extra))]
    parameters = parameters_of(types)
    index, own_state = parameters[0], parameters[1 : len(flags)]
    captured = parameters[len(flags) :]
    mask = still_running(index, *captured[: len(more)]) if more else still_running(index, *own_state)
    counting = mask & captured[-1] if len(extra) > len(more) else mask
    safe = stand_in_members(mask, own_state, flags[1:])
    moved = inline(batched, [index, *safe, *([counting] if masked else [])])
    results = tuple(choose(mask, new, old) for new, old in zip(moved, own_state, strict=False))
    return Function(batched.name, parameters, results), start, extra


def _while_loop(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    condition, body, carried, limit = (node.attribute(name) for name in ("condition", "body", "carried", "limit"))
    state, captures = operands[:carried], operands[carried:]
    captured, masks = flags_of(captures), _masks(context, body)
    flags = _carried_flags(body, state, captured, context, bool(masks))
    test, (apart,) = batch_function(condition, (*flags, *captured), context.size)
    if apart:
        return _while_loop_apart(node, state, captures, context)
    batched = with_batched_results(body, (False, *flags, *captured), context.size, flags, bool(masks))
    values = [*_start(state, flags, context), *nodes_in(captures), *masks]
    parameters = parameters_of([value.type for value in values])
    tested = Function(test.name, parameters, inline(test, parameters[: len(operands)]))
    loop = while_loop(*values, condition=tested, body=batched, carried=carried, limit=limit)
    return _loop_results(loop, flags, node)


def _while_loop_apart(node: Node, state: Sequence[Operand], captures: Sequence[Operand], context: Context) -> Known:
    """Runs until all members have stopped. The condition of a stopped member is evaluated again, with the same
    result."""
    condition, body, carried, limit = (node.attribute(name) for name in ("condition", "body", "carried", "limit"))
    flags = (*[True] * carried, *flags_of(captures))
    test = with_batched_results(condition, flags, context.size, (True,))
    batched, start, more = _masked_body(
        body, state, captures, [], lambda i, *state_values: inline(test, state_values)[0], context
    )
    values = [*start, *nodes_in(captures), *more]
    parameters = parameters_of([value.type for value in values])
    running = _any(inline(test, parameters[: len(flags)])[0])
    tested = Function(test.name, parameters, (running,))
    loop = while_loop(*values, condition=tested, body=batched, carried=carried, limit=limit)
    return _loop_results(loop, (True,) * carried, node)


# --- checks, and derivatives of the user's ---------------------------------------------------------------------------


def _check(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    value, condition = operands
    holds = condition.value
    if condition.batched:
        holds = lookup(reduce(holds, kind="all", axes=(0,)))
    return Operand(check(value.value, holds, message=node.attribute("message")), value.batched)


def _custom_call(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    """All operands and results have the batch, so that every differential has it too."""

    def batched(function: Any) -> Any:
        if not isinstance(function, Function):
            return function
        flags, wanted = (True,) * len(function.parameters), (True,) * len(function.results)
        return with_batched_results(function, flags, context.size, wanted)

    function: Function = node.attribute("function")
    rules = {name: batched(rule) for name, rule in node.attributes}
    value = custom_call(*map(context.batch, operands), **rules)
    return _results(value, function, (True,) * len(function.results))


def _recompute_call(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    function: Function = node.attribute("function")
    batched, flags = batch_function(function, flags_of(operands), context.size)
    return _results(recompute_call(*nodes_in(operands), function=batched), function, flags)


def _members_call(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    """A batch inside of another one: the outer members run in turn, which the caller has tried, or all together."""
    return _call(call_together(node), operands, context)


def _after(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    value, *others = operands
    return Operand(after(value.value, *nodes_in(others)), value.batched)


def _kept(node: Node, operands: Sequence[Operand], context: Context) -> Known:
    return Operand(kept(operands[0].value), True)


CONTROL_RULES: Mapping[Op, BatchRule] = MappingProxyType(
    {
        call: _call, cond: _cond, switch: _switch, for_loop: _for_loop, while_loop: _while_loop, check: _check,
        custom_call: _custom_call, recompute_call: _recompute_call, members_call: _members_call, after: _after,
        kept: _kept,
    }
)  # fmt: skip
