"""Batch rules of calls, branches and loops.

Uniform control flow, where all members agree on the condition, stays as it is. Divergent control flow is masked: each
branch runs for the whole batch, with a copy of an active member in place of each inactive one, and each member selects
the results of its own branch.
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
from livegrad.passes.batch.tapes import holds_tape, tapes_in_results
from livegrad.passes.batch.values import choose, stand_in_members
from livegrad.passes.batch.walk import (
    BatchRule,
    Context,
    Operand,
    OperandTree,
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


def _unpack_results(value: Node, function: Function, flags: Sequence[bool]) -> OperandTree:
    """The results of a call of the batched function, each with its flag."""
    parts = [Operand(node, flag) for node, flag in zip(result_nodes(value, len(flags)), flags, strict=True)]
    return parts[0] if len(parts) == 1 else Parts(function.result_type, tuple(parts))


def _required_masks(context: Context, *functions: Function) -> list[Node]:
    """The context's mask, if one of the functions writes to tapes."""
    return [context.mask] if context.mask is not None and any(map(writes_tapes, functions)) else []


def _is_any_set(mask: Node) -> Node:
    return lookup(reduce(mask, kind="any", axes=(0,)))


# --- calls and branches ----------------------------------------------------------------------------------------------


def _call(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    function: Function = node.attribute("function")
    masks = _required_masks(context, function)
    wanted = _must_batch_results(function, context)
    batched, flags = batch_function(function, flags_of(operands), context.size, bool(masks), wanted)
    return _unpack_results(call(*nodes_in(operands), *masks, function=batched), function, flags)


def _must_batch_results(function: Function, context: Context) -> tuple[bool, ...]:
    """A flag for each result: tapes are batched even if they are shared, where the context requires it."""
    return tuple(holds_tape(type) for type in function.result_types) if context.every_tape else ()


def _batch_uniform_branches(
    functions: Sequence[Function], operands: Sequence[Operand], context: Context
) -> tuple[tuple[Function, ...], list[Node], tuple[bool, ...]]:
    """The batched functions of a uniform branch, their arguments, and which results are batched."""
    flags, masks = flags_of(operands), _required_masks(context, *functions)
    required = _must_batch_results(functions[0], context)
    wanted = union(*(batch_function(f, flags, context.size, bool(masks), required)[1] for f in functions))
    batched = tuple(with_batched_results(f, flags, context.size, wanted, bool(masks)) for f in functions)
    return batched, [*nodes_in(operands), *masks], wanted


def _cond(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    predicate, *arguments = operands
    functions: tuple[Function, ...] = (node.attribute("then"), node.attribute("otherwise"))
    if not predicate.batched:
        (then, otherwise), values, wanted = _batch_uniform_branches(functions, arguments, context)
        value = cond(predicate.value, *values, then=then, otherwise=otherwise)
        return _unpack_results(value, functions[0], wanted)
    return _run_divergent_branches((predicate.value, bit_not(predicate.value)), functions, arguments, context)


def _switch(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    selector, *arguments = operands
    functions: tuple[Function, ...] = node.attribute("branches")
    if not selector.batched:
        batched, values, wanted = _batch_uniform_branches(functions, arguments, context)
        return _unpack_results(switch(selector.value, *values, branches=batched), functions[0], wanted)
    index, count = selector.value, len(functions)
    right = reduce((index >= 0) & (index < count), kind="all", axes=(0,))
    message = f"switch on an index that is out of range for {count} branches"
    checked = check(index, lookup(right), message=message)
    return _run_divergent_branches(
        [equal(checked, branch_index) for branch_index in range(count)], functions, arguments, context
    )


def _run_divergent_branches(
    masks: Sequence[Node], functions: Sequence[Function], arguments: Sequence[Operand], context: Context
) -> OperandTree:
    """Runs each branch for the members that take it, and selects the results of each member's branch."""
    branch_results = [_run_masked(mask, f, arguments, context) for mask, f in zip(masks, functions, strict=True)]
    results = branch_results[0]
    for mask, new_results in zip(masks[1:], branch_results[1:], strict=True):
        results = [_select_results(mask, new, old) for new, old in zip(new_results, results, strict=True)]
    operands = [Operand(node, True) for node in results]
    return operands[0] if len(operands) == 1 else Parts(functions[0].result_type, tuple(operands))


def _select_results(mask: Node, new: Node, old: Node) -> Node:
    """The new value where the mask is set. Only active members write to tapes, so the tapes of branches are added."""
    if isinstance(new.type, Tape):
        return tape_sum(new, old)
    if isinstance(new.type, Tensor):
        return choose(mask, new, old)
    indices = range(len(components(new.type)))
    return make(*(_select_results(mask, member(new, index), member(old, index)) for index in indices), type=new.type)


def _run_masked(mask: Node, function: Function, arguments: Sequence[Operand], context: Context) -> list[Node]:
    """Runs the function for the members in the mask. If the mask is empty, returns zeros without running it."""
    _reject_outer_tapes(function)
    flags, values = flags_of(arguments), nodes_in(arguments)
    active = mask if context.mask is None else mask & context.mask
    masked = writes_tapes(function)
    wanted = (True,) * len(function.results)
    batched = with_batched_results(function, flags, context.size, wanted, masked)

    def run(inner_mask: Node, inner_active: Node, *inner_state: Node) -> Sequence[Node]:
        safe = stand_in_members(inner_mask, inner_state, flags)
        return inline(batched, [*safe, *([inner_active] if masked else [])])

    operands = [mask, active, *values]
    parameters = parameters_of([operand.type for operand in operands])
    then = Function(batched.name, parameters, tuple(run(*parameters)))
    otherwise = Function("nothing", parameters, tuple(map(zero, batched.result_types)))
    value = cond(_is_any_set(mask), *operands, then=then, otherwise=otherwise)
    return result_nodes(value, len(batched.results))


def _reject_outer_tapes(function: Function) -> None:
    if any(tapes_in_results(function)):
        raise UsageError(
            f"`{function.name}` adds to an outer tape, in a branch that differs between the members of a batch",
            where=next(result.origin for result in function.results if holds_tape(result.type)),
        )


# --- loops -----------------------------------------------------------------------------------------------------------


def _carried_flags(
    body: Function, state: Sequence[Operand], captured: tuple[bool, ...], context: Context, masked: bool
) -> tuple[bool, ...]:
    """Which carried values are batched in some iteration.

    A tape that starts empty is batched from the start, so that each member can write its own values.
    """
    initial = tuple(
        operand.batched or operand.value.op is tape_new or (context.every_tape and holds_tape(operand.value.type))
        for operand in state
    )
    return carried_flags(
        initial, lambda flags: batch_function(body, (False, *flags, *captured), context.size, masked)[1]
    )


def _loop_results(loop: Node, flags: Sequence[bool], node: Node) -> OperandTree:
    parts = tuple(Operand(get(loop, index=index), flag) for index, flag in enumerate(flags))
    return Parts(node.type, parts)


def _batch_initial_state(state: Sequence[Operand], flags: Sequence[bool], context: Context) -> list[Node]:
    return [context.batch(operand) if flag else operand.value for operand, flag in zip(state, flags, strict=True)]


def _for_loop(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    iterations, *values = operands
    body, carried, reverse = (node.attribute(name) for name in ("body", "carried", "reverse"))
    state, captures = values[:carried], values[carried:]
    if iterations.batched:
        return _divergent_for_loop(node, iterations.value, state, captures, context)
    masks = _required_masks(context, body)
    captured = flags_of(captures)
    flags = _carried_flags(body, state, captured, context, bool(masks))
    batched = with_batched_results(body, (False, *flags, *captured), context.size, flags, bool(masks))
    start = _batch_initial_state(state, flags, context)
    loop = for_loop(
        iterations.value, *start, *nodes_in(captures), *masks, body=batched, carried=carried, reverse=reverse
    )
    return _loop_results(loop, flags, node)


def _divergent_for_loop(
    node: Node, iterations: Node, state: Sequence[Operand], captures: Sequence[Operand], context: Context
) -> OperandTree:
    """Runs as many iterations as any member needs. The others keep the values of their last iteration."""
    body, carried, reverse = (node.attribute(name) for name in ("body", "carried", "reverse"))

    def still_running(index: Node, inner_iterations: Node) -> Node:
        return less(broadcast(index, shape=(context.size,), axes=()), inner_iterations)

    batched, start, more = _build_masked_body(body, state, captures, [iterations], still_running, context)
    none = filled(0, Tensor(i64, (1,)))
    longest = lookup(reduce(concatenate(none, iterations, axis=0), kind="max", axes=(0,)))
    loop = for_loop(longest, *start, *nodes_in(captures), *more, body=batched, carried=carried, reverse=reverse)
    return _loop_results(loop, (True,) * carried, node)


def _build_masked_body(
    body: Function,
    state: Sequence[Operand],
    captures: Sequence[Operand],
    more: Sequence[Node],
    still_running: Callable[..., Node],
    context: Context,
) -> tuple[Function, list[Node], list[Node]]:
    """A loop body in which each member stops by itself; also returns its initial state and its additional captures.

    `still_running` computes the mask of active members: of the index and `more` if there are any, else of the index,
    the state and the captures.
    """
    carried, masked = len(state), writes_tapes(body)
    flags = (False, *[True] * carried, *flags_of(captures))
    batched = with_batched_results(body, flags, context.size, (True,) * carried, masked)
    start = [context.batch(operand) for operand in state]
    extra = [*more, *([context.mask] if context.mask is not None and masked else [])]
    types = [i64, *(node.type for node in (*start, *nodes_in(captures), *extra))]
    parameters = parameters_of(types)
    index, inner_state = parameters[0], parameters[1 : len(flags)]
    captured = parameters[len(flags) :]
    mask = still_running(index, *captured[: len(more)]) if more else still_running(index, *inner_state)
    active = mask & captured[-1] if len(extra) > len(more) else mask
    safe = stand_in_members(mask, inner_state, flags[1:])
    updated = inline(batched, [index, *safe, *([active] if masked else [])])
    results = tuple(choose(mask, new, old) for new, old in zip(updated, inner_state, strict=False))
    return Function(batched.name, parameters, results), start, extra


def _while_loop(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    condition, body, carried, limit = (node.attribute(name) for name in ("condition", "body", "carried", "limit"))
    state, captures = operands[:carried], operands[carried:]
    captured, masks = flags_of(captures), _required_masks(context, body)
    flags = _carried_flags(body, state, captured, context, bool(masks))
    test, (is_divergent,) = batch_function(condition, (*flags, *captured), context.size)
    if is_divergent:
        return _divergent_while_loop(node, state, captures, context)
    batched = with_batched_results(body, (False, *flags, *captured), context.size, flags, bool(masks))
    values = [*_batch_initial_state(state, flags, context), *nodes_in(captures), *masks]
    parameters = parameters_of([value.type for value in values])
    tested = Function(test.name, parameters, inline(test, parameters[: len(operands)]))
    loop = while_loop(*values, condition=tested, body=batched, carried=carried, limit=limit)
    return _loop_results(loop, flags, node)


def _divergent_while_loop(
    node: Node, state: Sequence[Operand], captures: Sequence[Operand], context: Context
) -> OperandTree:
    """Runs until all members have stopped. A stopped member evaluates its condition again, with the same result."""
    condition, body, carried, limit = (node.attribute(name) for name in ("condition", "body", "carried", "limit"))
    flags = (*[True] * carried, *flags_of(captures))
    test = with_batched_results(condition, flags, context.size, (True,))
    batched, start, more = _build_masked_body(
        body, state, captures, [], lambda i, *state_values: inline(test, state_values)[0], context
    )
    values = [*start, *nodes_in(captures), *more]
    parameters = parameters_of([value.type for value in values])
    running = _is_any_set(inline(test, parameters[: len(flags)])[0])
    tested = Function(test.name, parameters, (running,))
    loop = while_loop(*values, condition=tested, body=batched, carried=carried, limit=limit)
    return _loop_results(loop, (True,) * carried, node)


# --- checks and custom derivatives -----------------------------------------------------------------------------------


def _check(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    value, condition = operands
    holds = condition.value
    if condition.batched:
        holds = lookup(reduce(holds, kind="all", axes=(0,)))
    return Operand(check(value.value, holds, message=node.attribute("message")), value.batched)


def _custom_call(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    """Batches all operands and results, so that every differential is batched too."""

    def batched(function: Any) -> Any:
        if not isinstance(function, Function):
            return function
        flags, wanted = (True,) * len(function.parameters), (True,) * len(function.results)
        return with_batched_results(function, flags, context.size, wanted)

    function: Function = node.attribute("function")
    rules = {name: batched(rule) for name, rule in node.attributes}
    value = custom_call(*map(context.batch, operands), **rules)
    return _unpack_results(value, function, (True,) * len(function.results))


def _recompute_call(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    function: Function = node.attribute("function")
    batched, flags = batch_function(function, flags_of(operands), context.size)
    return _unpack_results(recompute_call(*nodes_in(operands), function=batched), function, flags)


def _members_call(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    """A nested batch, as one program. The caller has already tried a loop over the outer members."""
    return _call(call_together(node), operands, context)


def _after(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    value, *predecessors = operands
    return Operand(after(value.value, *nodes_in(predecessors)), value.batched)


def _kept(node: Node, operands: Sequence[Operand], context: Context) -> OperandTree:
    return Operand(kept(operands[0].value), True)


CONTROL_RULES: Mapping[Op, BatchRule] = MappingProxyType(
    {
        call: _call, cond: _cond, switch: _switch, for_loop: _for_loop, while_loop: _while_loop, check: _check,
        custom_call: _custom_call, recompute_call: _recompute_call, members_call: _members_call, after: _after,
        kept: _kept,
    }
)  # fmt: skip
