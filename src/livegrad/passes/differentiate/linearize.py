"""Linearisation: splits a program into its values and a part that is linear in the tangents, ready for transposition.

Loops store the residuals of their linear part on a tape. Maps recompute theirs, and use no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from livegrad.ir.function import captured_values, make_function
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.types import Tape, Tuple, Type, differential_of, i64
from livegrad.ir.walk import substitute, toposort
from livegrad.ops.aggregate import get, make_tuple, member
from livegrad.ops.closing import compute_if, runs_at_least_once
from livegrad.ops.control import call, cond, for_loop, parameters_of, promise_of, switch, while_loop
from livegrad.ops.maps import map_
from livegrad.ops.order import kept
from livegrad.ops.rules import filled, zero
from livegrad.ops.tape import tape_get, tape_new, tape_set
from livegrad.passes.differentiate.branch_residuals import assign_shared_slots, fill_slots
from livegrad.passes.differentiate.choose_residuals import choose_residuals
from livegrad.passes.differentiate.forward import carried_activity
from livegrad.passes.differentiate.propagate import (
    ControlRule,
    active_flags,
    active_nodes,
    expand_underivable,
    propagate,
    spread,
    union,
    with_tangent_parameters,
)
from livegrad.passes.differentiate.sink_broadcasts import sink_broadcasts
from livegrad.passes.differentiate.tangents import Tangent, pack_results, result_nodes, result_tangent
from livegrad.passes.functions import insert_unused_parameters


@dataclass(frozen=True)
class Linearized:
    """The values and tangents of a function, as nodes over the same parameters.

    `tangent_parameters` are the tangents of the active parameters; their indices follow those of the function's own and
    of reserved parameters. `tangents` has an entry for each result, None where it is identically zero.
    """

    function: Function
    tangent_parameters: tuple[Node, ...]
    primals: tuple[Node, ...]
    tangents: tuple[Tangent, ...]

    @property
    def flags(self) -> tuple[bool, ...]:
        return active_flags(self.tangents)


@cached_derivation(1024)
def linearize(function: Function, active: tuple[bool, ...], reserved: int = 0) -> Linearized:
    """Linearises a function in its active parameters; `reserved` parameter indices stay free before the tangents."""
    function = sink_broadcasts(expand_underivable(function))
    parameters, tangent_of = with_tangent_parameters(function, active, reserved)
    duals = propagate(function.name, function.results, tangent_of, RULES)
    return Linearized(function, parameters, tuple(p for p, _ in duals), tuple(t for _, t in duals))


@dataclass(frozen=True)
class Split:
    """The linear part of a program: its residuals and the resulting tangents."""

    residuals: tuple[Node, ...]
    tangents: tuple[Node, ...]


def _split_linear_part(linear: Linearized, wanted: Sequence[bool]) -> Split:
    tangents = tuple(active_nodes(linear.tangents, linear.function.results, wanted))
    return Split(captured_values(linear.tangent_parameters, tangents), tangents)


# --- calls and branches ----------------------------------------------------------------------------------------------


def _call(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    return _linearize_branches((node.attribute("function"),), primals, tangents, _rebuild_call)


def _rebuild_call(operands: Sequence[Node], functions: tuple[Function, ...]) -> Node:
    return call(*operands, function=functions[0])


def call_tangent(function: Function, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> Tangent:
    """The tangent of a call; the caller already has the value."""
    return _linearize_branches((function,), primals, tangents, _rebuild_call)[1]


def _cond(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    functions = (node.attribute("then"), node.attribute("otherwise"))

    def rebuild(operands: Sequence[Node], branches: tuple[Function, ...]) -> Node:
        return cond(primals[0], *operands, then=branches[0], otherwise=branches[1])

    return _linearize_branches(functions, primals[1:], tangents[1:], rebuild)


def _switch(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    def rebuild(operands: Sequence[Node], branches: tuple[Function, ...]) -> Node:
        return switch(primals[0], *operands, branches=branches)

    return _linearize_branches(node.attribute("branches"), primals[1:], tangents[1:], rebuild)


def _linearize_branches(
    functions: tuple[Function, ...],
    primals: tuple[Node, ...],
    tangents: tuple[Tangent, ...],
    rebuild: Callable[[Sequence[Node], tuple[Function, ...]], Node],
) -> tuple[Node, Tangent]:
    """Branches return residuals after their results. Linear branches take these and the operands that they need."""
    active = active_flags(tangents)
    linear = [linearize(function, active) for function in functions]
    wanted = union(*(branch.flags for branch in linear))
    splits = [_split_linear_part(branch, wanted) for branch in linear]
    needed = _find_needed_operands(linear, splits)
    branch_residuals = [tuple(node for node in split.residuals if node.op is not parameter_op) for split in splits]
    slots, slots_of_branches = assign_shared_slots(branch_residuals)
    count = len(functions[0].results)
    forward = tuple(
        Function(b.function.name, b.function.parameters, (*b.primals, *fill_slots(slots, residuals, branch_slots)))
        for b, residuals, branch_slots in zip(linear, branch_residuals, slots_of_branches, strict=True)
    )
    nodes = result_nodes(rebuild(primals, forward), count + len(slots))
    if not any(wanted):
        return pack_results(nodes[:count]), None
    linear_branches = []
    for branch, split, residuals, branch_slots in zip(linear, splits, branch_residuals, slots_of_branches, strict=True):
        parameters = [branch.function.parameters[index] for index in needed]
        slot_of = {
            **dict(zip(residuals, branch_slots, strict=True)),
            **{node: len(slots) + i for i, node in enumerate(parameters)},
        }
        types = [*slots, *(node.type for node in parameters)]
        linear_branches.append(_build_linear_branch(branch, split.tangents, slot_of, types))
    operands = [*(primals[index] for index in needed), *active_nodes(tangents, primals, active)]
    value = rebuild([*nodes[count:], *operands], tuple(linear_branches))
    parts = spread(result_nodes(value, sum(wanted)), wanted)
    return pack_results(nodes[:count]), result_tangent(parts)


def _find_needed_operands(linear: Sequence[Linearized], splits: Sequence[Split]) -> list[int]:
    """The parameters that are residuals of some branch: linear branches take the operands instead."""
    return [
        index
        for index in range(len(linear[0].function.parameters))
        if any(b.function.parameters[index] in split.residuals for b, split in zip(linear, splits, strict=True))
    ]


def _build_linear_branch(
    branch: Linearized, tangents: Sequence[Node], slot_of: Mapping[Node, int], types: Sequence[Type]
) -> Function:
    """The tangents of a branch as a function of slots of these types and of tangents; `slot_of` maps nodes to slots."""
    fresh = parameters_of([*types, *(node.type for node in branch.tangent_parameters)])
    replacements = {node: fresh[index] for node, index in slot_of.items()}
    replacements |= dict(zip(branch.tangent_parameters, fresh[len(types) :], strict=True))
    return Function(f"{branch.function.name}.linear", fresh, substitute(tangents, replacements))


# --- loops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LoopPlan:
    """The linear part of a loop body, with its residuals classified by what they depend on."""

    linear: Linearized
    split: Split
    carried: int
    flags: tuple[bool, ...]
    taped: tuple[Node, ...]  # depend on carried values, or are marked as kept: stored in each iteration
    recomputed: tuple[Node, ...]  # depend on the index, captures and taped values: recomputed in each iteration
    hoisted: tuple[Node, ...]  # depend on captures only: computed once, if there is an iteration

    @property
    def tape_type(self) -> Type:
        return Tape(Tuple(tuple(node.type for node in self.taped)))


def _plan_loop(body: Function, carried: int, tangents: Sequence[Tangent]) -> _LoopPlan:
    captured = active_flags(tangents[carried:])
    flags = carried_activity(body, active_flags(tangents[:carried]), captured, lambda f, a: linearize(f, a).flags)
    linear = linearize(body, (False, *flags, *captured))
    split = _split_linear_part(linear, flags)
    parameters = linear.function.parameters
    from_carried = _find_dependents(split.residuals, parameters[1 : 1 + carried])
    from_index = _find_dependents(split.residuals, parameters[:1])
    recomputed = tuple(node for node in split.residuals if node not in from_carried and node in from_index)
    taped = tuple(node for node in split.residuals if node in from_carried)
    # Values marked as kept are residuals, and others are recomputed from them.
    marked = _find_kept_values(linear)
    if taped and not marked:
        needed, taped = taped, choose_residuals(taped, parameters[1 : 1 + carried])
        recomputed += tuple(node for node in needed if node not in taped)
    taped += tuple(node for node in toposort(recomputed) if node in marked and node in from_index)
    recomputed = tuple(node for node in recomputed if node not in taped)
    hoisted = tuple(node for node in split.residuals if node not in from_carried and node not in from_index)
    return _LoopPlan(linear, split, carried, flags, taped, recomputed, hoisted)


def residual_types(body: Function, carried: int, active: Sequence[bool]) -> list[Type]:
    """The types of the residuals of an iteration, if the flagged operands have tangents."""
    tangents = [
        zero(differential_of(node.type)) if flag else None
        for node, flag in zip(body.parameters[1:], active, strict=True)
    ]
    return [node.type for node in _plan_loop(body, carried, tangents).taped]


def _find_kept_values(linear: Linearized) -> set[Node]:
    """The operands of `kept` marks (not the marks: derivatives may use a value without its mark)."""
    return {node.operands[0] for node in toposort(linear.primals) if node.op is kept}


def _find_dependents(roots: Sequence[Node], sources: Sequence[Node]) -> set[Node]:
    reached = set(sources)
    for node in toposort(roots):
        if not reached.isdisjoint(node.operands):
            reached.add(node)
    return reached


def _for_loop(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    carried = node.attribute("carried")
    iterations, *values = primals
    plan = _plan_loop(node.attribute("body"), carried, tangents[1:])
    if plan.taped:
        body = _build_taping_body(plan, counter=False)
        loop = for_loop(
            iterations,
            *values[:carried],
            tape_new(type=plan.tape_type, residuals=True),
            *values[carried:],
            body=body,
            carried=carried + 1,
            reverse=node.attribute("reverse"),
            **promise_of(node),
        )
        results = [get(loop, index=index) for index in range(carried)]
        tape = [get(loop, index=carried)]
    else:
        results = [get(for_loop(*primals, **dict(node.attributes)), index=index) for index in range(carried)]
        tape = []
    tangent = _build_linear_loop(plan, iterations, tape, values, tangents[1:], node.attribute("reverse"))
    return make_tuple(*results), tangent


def _while_loop(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    """The loop also counts its iterations, and its linear part is a `for_loop` with that count."""
    carried = node.attribute("carried")
    plan = _plan_loop(node.attribute("body"), carried, tangents)
    extra = [filled(0, i64), *([tape_new(type=plan.tape_type, residuals=True)] if plan.taped else [])]
    operands = [*primals[:carried], *extra, *primals[carried:]]
    loop = while_loop(
        *operands,
        condition=insert_unused_parameters(node.attribute("condition"), carried, [n.type for n in extra]),
        body=_build_taping_body(plan, counter=True),
        carried=carried + len(extra),
        limit=node.attribute("limit"),
    )
    nodes = [get(loop, index=index) for index in range(carried + len(extra))]
    tangent = _build_linear_loop(plan, nodes[carried], nodes[carried + 1 :], primals, tangents, reverse=False)
    return make_tuple(*nodes[:carried]), tangent


def _build_taping_body(plan: _LoopPlan, counter: bool) -> Function:
    """The body that also counts its iterations (for `while`) and writes residuals to the tape."""
    body = plan.linear.function
    extra: list[Type] = [*([i64] if counter else []), *([plan.tape_type] if plan.taped else [])]
    position = 1 + plan.carried
    results = Function(body.name, body.parameters, (*plan.linear.primals, *plan.taped))
    widened = insert_unused_parameters(results, position, extra)
    index = widened.parameters[0]
    values, stored = widened.results[: plan.carried], widened.results[plan.carried :]
    more: list[Node] = [index + 1] if counter else []
    if plan.taped:
        more.append(tape_set(widened.parameters[position + len(extra) - 1], index, make_tuple(*stored)))
    return Function(body.name, widened.parameters, (*values, *more))


def _build_linear_loop(
    plan: _LoopPlan,
    iterations: Node,
    tape: list[Node],
    primals: Sequence[Node],
    tangents: Sequence[Tangent],
    reverse: bool,
) -> Tangent:
    """The loop over tangents: carries the active ones, and reads residuals from the tape or recomputes them."""
    if not any(plan.flags):
        return None
    carried, parameters = plan.carried, plan.linear.function.parameters
    captures = parameters[1 + carried :]
    hoisted = substitute(plan.hoisted, dict(zip(captures, primals[carried:], strict=True)))
    if not runs_at_least_once(iterations):
        hoisted = compute_if(lambda: iterations > 0, hoisted, set(primals[carried:]).__contains__)
    used = _find_needed_captures(plan.recomputed, plan.taped, captures)
    captured = active_flags(tangents[carried:])
    start = active_nodes(tangents[:carried], primals[:carried], plan.flags)
    operands = [
        *start,
        *tape,
        *hoisted,
        *(primals[carried + index] for index in used),
        *active_nodes(tangents[carried:], primals[carried:], captured),
    ]
    body = _build_linear_body(plan, [node.type for node in operands], len(tape), [captures[index] for index in used])
    loop = for_loop(iterations, *operands, body=body, carried=len(start), reverse=reverse)
    return tuple(spread([get(loop, index=index) for index in range(len(start))], plan.flags))


def _find_needed_captures(roots: Sequence[Node], stop_nodes: Sequence[Node], captures: Sequence[Node]) -> list[int]:
    needed = set(toposort(roots, stop=set(stop_nodes).__contains__))
    return [index for index, node in enumerate(captures) if node in needed]


def _build_linear_body(plan: _LoopPlan, types: list[Type], tapes: int, used: list[Node]) -> Function:
    fresh = parameters_of([i64, *types])
    index, remaining = fresh[0], list(fresh[1:])
    active = sum(plan.flags)
    tangents, remaining = remaining[:active], remaining[active:]
    tape, remaining = remaining[:tapes], remaining[tapes:]
    hoisted, remaining = remaining[: len(plan.hoisted)], remaining[len(plan.hoisted) :]
    captures, captured_tangents = remaining[: len(used)], remaining[len(used) :]
    replacements = dict(zip(plan.linear.tangent_parameters, [*tangents, *captured_tangents], strict=True))
    replacements |= dict(zip(plan.hoisted, hoisted, strict=True))
    if plan.taped:
        entry = tape_get(tape[0], index)
        replacements |= {node: member(entry, position) for position, node in enumerate(plan.taped)}
    inner = {plan.linear.function.parameters[0]: index, **dict(zip(used, captures, strict=True))}
    inner |= {node: replacements[node] for node in plan.taped}
    replacements |= dict(zip(plan.recomputed, substitute(plan.recomputed, inner), strict=True))
    return Function(f"{plan.linear.function.name}.linear", fresh, substitute(plan.split.tangents, replacements))


# --- maps ------------------------------------------------------------------------------------------------------------


def _map(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    """The linear part of a map is a map that recomputes the values of each point, except those marked as kept."""
    function, lifted, summed = (node.attribute(name) for name in ("function", "lifted", "summed"))
    active = active_flags(tangents)
    linear = linearize(function, active)
    flags = linear.flags
    results = active_nodes(linear.tangents, linear.function.results, flags)
    kept_values = _find_kept_in_map(linear, results) if any(flags) else []
    primal, stored = _build_storing_map(node, primals, linear, kept_values)
    if not any(flags):
        return primal, None
    inputs = [*kept_values, *linear.function.parameters, *linear.tangent_parameters]
    value = map_(
        *stored,
        *primals,
        *active_nodes(tangents, primals, active),
        function=make_function(f"{function.name}.linear", inputs, results),
        lifted=(*[True] * len(stored), *lifted, *(flag for flag, on in zip(lifted, active, strict=True) if on)),
        summed=tuple(flag for flag, on in zip(summed, flags, strict=True) if on),
    )
    return primal, result_tangent(spread(result_nodes(value, sum(flags)), flags))


def _find_kept_in_map(linear: Linearized, results: Sequence[Node]) -> list[Node]:
    """The values marked as kept on which the linear part depends."""
    marked = _find_kept_values(linear)
    from_point = _find_dependents(results, linear.function.parameters)
    return [node for node in toposort(results) if node in marked and node in from_point and node.operands]


def _build_storing_map(
    node: Node, primals: tuple[Node, ...], linear: Linearized, stored: Sequence[Node]
) -> tuple[Node, list[Node]]:
    """The map, and the stored values of each point as further results."""
    if not stored:
        return map_(*primals, **dict(node.attributes)), []
    function, count = linear.function, len(linear.function.results)
    more = Function(function.name, function.parameters, (*linear.primals, *stored))
    flags = (*node.attribute("summed"), *[False] * len(stored))
    nodes = result_nodes(map_(*primals, function=more, lifted=node.attribute("lifted"), summed=flags), len(flags))
    return pack_results(nodes[:count]), nodes[count:]


RULES: dict[Op, ControlRule] = {
    call: _call,
    cond: _cond,
    switch: _switch,
    for_loop: _for_loop,
    while_loop: _while_loop,
    map_: _map,
}
