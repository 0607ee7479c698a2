"""Linearisation: splits a program into its values and a part that is linear in the tangents, ready for transposition.

Loops store the residuals of their linear part on a tape; maps recompute them, so they use no memory.
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
from livegrad.ops.control import call, cond, for_loop, map_, parameters_of, promise_of, switch, while_loop
from livegrad.ops.order import kept
from livegrad.ops.rules import filled, zero
from livegrad.ops.tape import tape_get, tape_new, tape_set
from livegrad.passes.differentiate.choose_residuals import choose_residuals
from livegrad.passes.differentiate.forward import carried_activity
from livegrad.passes.differentiate.propagate import (
    ControlRule,
    active_flags,
    active_nodes,
    derivable,
    propagate,
    spread,
    union,
    with_tangent_parameters,
)
from livegrad.passes.differentiate.sink_broadcasts import sink_broadcasts
from livegrad.passes.differentiate.tangents import Tangent, pack_results, result_nodes, result_tangent


@dataclass(frozen=True)
class Linearized:
    """A function's values and its tangents as nodes over the same parameters.

    `tangent_parameters` stand for the active parameters' tangents, after the function's own (and as many others as were
    asked for); `tangents` has an entry for each result, None where it is identically zero.
    """

    function: Function
    tangent_parameters: tuple[Node, ...]
    primals: tuple[Node, ...]
    tangents: tuple[Tangent, ...]

    @property
    def flags(self) -> tuple[bool, ...]:
        return active_flags(self.tangents)


@cached_derivation(1024)
def linearize(function: Function, active: tuple[bool, ...], behind: int = 0) -> Linearized:
    """Values and tangents of a function with active parameters; leaves `behind` parameters before the tangents."""
    function = sink_broadcasts(derivable(function))
    parameters, tangent_of = with_tangent_parameters(function, active, behind)
    duals = propagate(function.name, function.results, tangent_of, RULES)
    return Linearized(function, parameters, tuple(p for p, _ in duals), tuple(t for _, t in duals))


@dataclass(frozen=True)
class Split:
    """The linear part of a program: its residuals and the resulting tangents."""

    residuals: tuple[Node, ...]
    tangents: tuple[Node, ...]


def _split(linear: Linearized, wanted: Sequence[bool]) -> Split:
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
    """Each branch gives its residuals beside its results; the linear branches take them, and the operands they need."""
    active = active_flags(tangents)
    linear = [linearize(function, active) for function in functions]
    wanted = union(*(branch.flags for branch in linear))
    splits = [_split(branch, wanted) for branch in linear]
    needed = _operands_needed(linear, splits)
    branch_residuals = [tuple(node for node in split.residuals if node.op is not parameter_op) for split in splits]
    slots, slots_of_branches = _shared_slots(branch_residuals)
    number = len(functions[0].results)
    forward = tuple(
        Function(b.function.name, b.function.parameters, (*b.primals, *_fill(slots, residuals, branch_slots)))
        for b, residuals, branch_slots in zip(linear, branch_residuals, slots_of_branches, strict=True)
    )
    nodes = result_nodes(rebuild(primals, forward), number + len(slots))
    if not any(wanted):
        return pack_results(nodes[:number]), None
    linear_branches = []
    for branch, split, residuals, branch_slots in zip(linear, splits, branch_residuals, slots_of_branches, strict=True):
        parameters = [branch.function.parameters[index] for index in needed]
        at = {
            **dict(zip(residuals, branch_slots, strict=True)),
            **{node: len(slots) + i for i, node in enumerate(parameters)},
        }
        types = [*slots, *(node.type for node in parameters)]
        linear_branches.append(_linear_branch(branch, split.tangents, at, types))
    operands = [*(primals[index] for index in needed), *active_nodes(tangents, primals, active)]
    value = rebuild([*nodes[number:], *operands], tuple(linear_branches))
    parts = spread(result_nodes(value, sum(wanted)), wanted)
    return pack_results(nodes[:number]), result_tangent(parts)


def _operands_needed(linear: Sequence[Linearized], splits: Sequence[Split]) -> list[int]:
    """Which parameters are residuals of some branch: they need not go through it."""
    return [
        index
        for index in range(len(linear[0].function.parameters))
        if any(b.function.parameters[index] in split.residuals for b, split in zip(linear, splits, strict=True))
    ]


def _shared_slots(residuals: list[tuple[Node, ...]]) -> tuple[list[Type], list[list[int]]]:
    """Slots for the residuals of branches: only one branch runs, so residuals of one type share a slot."""
    slots: list[Type] = []
    slots_of_branches: list[list[int]] = []
    for nodes in residuals:
        free = list(range(len(slots)))
        branch_slots = []
        for node in nodes:
            index = next((i for i in free if slots[i] is node.type), None)
            if index is None:
                index = len(slots)
                slots.append(node.type)
            else:
                free.remove(index)
            branch_slots.append(index)
        slots_of_branches.append(branch_slots)
    return slots, slots_of_branches


def _fill(slots: list[Type], residuals: Sequence[Node], positions: list[int]) -> list[Node]:
    by_slot = dict(zip(positions, residuals, strict=True))
    return [by_slot[index] if index in by_slot else zero(type) for index, type in enumerate(slots)]


def _linear_branch(
    branch: Linearized, tangents: Sequence[Node], at: Mapping[Node, int], types: Sequence[Type]
) -> Function:
    """The tangents of a branch as a function of values of these types, with each node at its slot, and of tangents."""
    fresh = parameters_of([*types, *(node.type for node in branch.tangent_parameters)])
    replacements = {node: fresh[index] for node, index in at.items()}
    replacements |= dict(zip(branch.tangent_parameters, fresh[len(types) :], strict=True))
    return Function(f"{branch.function.name}.linear", fresh, substitute(tangents, replacements))


# --- loops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LoopPlan:
    """A loop body's linear part with its residuals sorted by where they come from."""

    linear: Linearized
    split: Split
    carried: int
    flags: tuple[bool, ...]
    traced: tuple[Node, ...]  # depend on carried values, or are to be kept: remembered at each iteration
    repeated: tuple[Node, ...]  # depend on the index, captures and what is traced: computed again at each iteration
    hoisted: tuple[Node, ...]  # depend on captures alone: computed once, if there is an iteration

    @property
    def tape_type(self) -> Type:
        return Tape(Tuple(tuple(node.type for node in self.traced)))


def _plan_loop(body: Function, carried: int, tangents: Sequence[Tangent]) -> _LoopPlan:
    captured = active_flags(tangents[carried:])
    flags = carried_activity(body, active_flags(tangents[:carried]), captured, lambda f, a: linearize(f, a).flags)
    linear = linearize(body, (False, *flags, *captured))
    split = _split(linear, flags)
    parameters = linear.function.parameters
    from_carried = _depending(split.residuals, parameters[1 : 1 + carried])
    from_index = _depending(split.residuals, parameters[:1])
    repeated = tuple(node for node in split.residuals if node not in from_carried and node in from_index)
    traced = tuple(node for node in split.residuals if node in from_carried)
    # Values marked as kept are residuals; repeated values are recomputed from them.
    marked = _marked_as_kept(linear)
    if traced and not marked:
        needed, traced = traced, choose_residuals(traced, parameters[1 : 1 + carried])
        repeated += tuple(node for node in needed if node not in traced)
    traced += tuple(node for node in toposort(repeated) if node in marked and node in from_index)
    repeated = tuple(node for node in repeated if node not in traced)
    hoisted = tuple(node for node in split.residuals if node not in from_carried and node not in from_index)
    return _LoopPlan(linear, split, carried, flags, traced, repeated, hoisted)


def traced_types(body: Function, carried: int, active: Sequence[bool]) -> list[Type]:
    """The types of the residuals of an iteration, if the flagged operands have tangents."""
    tangents = [
        zero(differential_of(node.type)) if flag else None
        for node, flag in zip(body.parameters[1:], active, strict=True)
    ]
    return [node.type for node in _plan_loop(body, carried, tangents).traced]


def _marked_as_kept(linear: Linearized) -> set[Node]:
    """The values that are marked: not the marks themselves, for a slope may use a value without its mark."""
    return {node.operands[0] for node in toposort(linear.primals) if node.op is kept}


def _depending(roots: Sequence[Node], sources: Sequence[Node]) -> set[Node]:
    reached = set(sources)
    for node in toposort(roots):
        if not reached.isdisjoint(node.operands):
            reached.add(node)
    return reached


def _for_loop(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    carried = node.attribute("carried")
    iterations, *values = primals
    plan = _plan_loop(node.attribute("body"), carried, tangents[1:])
    if plan.traced:
        body = _remembering_body(plan, counter=False)
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
    return make_tuple(*results), _linear_loop(plan, iterations, tape, values, tangents[1:], node.attribute("reverse"))


def _while_loop(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    """Counts the iterations of the loop; its linear part is a loop with that count."""
    carried = node.attribute("carried")
    plan = _plan_loop(node.attribute("body"), carried, tangents)
    extra = [filled(0, i64), *([tape_new(type=plan.tape_type, residuals=True)] if plan.traced else [])]
    operands = [*primals[:carried], *extra, *primals[carried:]]
    loop = while_loop(
        *operands,
        condition=_with_extra(node.attribute("condition"), carried, [n.type for n in extra]),
        body=_remembering_body(plan, counter=True),
        carried=carried + len(extra),
        limit=node.attribute("limit"),
    )
    nodes = [get(loop, index=index) for index in range(carried + len(extra))]
    tangent = _linear_loop(plan, nodes[carried], nodes[carried + 1 :], primals, tangents, reverse=False)
    return make_tuple(*nodes[:carried]), tangent


def _with_extra(function: Function, start: int, types: Sequence[Type]) -> Function:
    """The function with unused parameters inserted at `start`."""
    existing = list(function.parameter_types)
    fresh = parameters_of([*existing[:start], *types, *existing[start:]])
    kept = [*fresh[:start], *fresh[start + len(types) :]]
    replacements = dict(zip(function.parameters, kept, strict=True))
    return Function(function.name, fresh, substitute(function.results, replacements))


def _remembering_body(plan: _LoopPlan, counter: bool) -> Function:
    """The body that also counts its iterations (for `while`) and writes residuals to the tape."""
    body = plan.linear.function
    extra: list[Type] = [*([i64] if counter else []), *([plan.tape_type] if plan.traced else [])]
    position = 1 + plan.carried
    results = Function(body.name, body.parameters, (*plan.linear.primals, *plan.traced))
    widened = _with_extra(results, position, extra)
    index = widened.parameters[0]
    values, remembered = widened.results[: plan.carried], widened.results[plan.carried :]
    more: list[Node] = [index + 1] if counter else []
    if plan.traced:
        more.append(tape_set(widened.parameters[position + len(extra) - 1], index, make_tuple(*remembered)))
    return Function(body.name, widened.parameters, (*values, *more))


def _linear_loop(
    plan: _LoopPlan,
    iterations: Node,
    tape: list[Node],
    primals: Sequence[Node],
    tangents: Sequence[Tangent],
    reverse: bool,
) -> Tangent:
    """The loop over tangents: carries the active ones, reads residuals from the tape or computes them again."""
    if not any(plan.flags):
        return None
    carried, parameters = plan.carried, plan.linear.function.parameters
    captures = parameters[1 + carried :]
    hoisted = substitute(plan.hoisted, dict(zip(captures, primals[carried:], strict=True)))
    if not runs_at_least_once(iterations):
        hoisted = compute_if(lambda: iterations > 0, hoisted, set(primals[carried:]).__contains__)
    used = _depending_captures(plan.repeated, plan.traced, captures)
    captured = active_flags(tangents[carried:])
    start = active_nodes(tangents[:carried], primals[:carried], plan.flags)
    operands = [
        *start,
        *tape,
        *hoisted,
        *(primals[carried + index] for index in used),
        *active_nodes(tangents[carried:], primals[carried:], captured),
    ]
    body = _linear_body(plan, [node.type for node in operands], len(tape), [captures[index] for index in used])
    loop = for_loop(iterations, *operands, body=body, carried=len(start), reverse=reverse)
    return tuple(spread([get(loop, index=index) for index in range(len(start))], plan.flags))


def _depending_captures(roots: Sequence[Node], ends: Sequence[Node], captures: Sequence[Node]) -> list[int]:
    needed = set(toposort(roots, stop=set(ends).__contains__))
    return [index for index, node in enumerate(captures) if node in needed]


def _linear_body(plan: _LoopPlan, types: list[Type], tapes: int, used: list[Node]) -> Function:
    fresh = parameters_of([i64, *types])
    index, rest = fresh[0], list(fresh[1:])
    active = sum(plan.flags)
    tangents, rest = rest[:active], rest[active:]
    tape, rest = rest[:tapes], rest[tapes:]
    hoisted, rest = rest[: len(plan.hoisted)], rest[len(plan.hoisted) :]
    captures, captured_tangents = rest[: len(used)], rest[len(used) :]
    replacements = dict(zip(plan.linear.tangent_parameters, [*tangents, *captured_tangents], strict=True))
    replacements |= dict(zip(plan.hoisted, hoisted, strict=True))
    if plan.traced:
        entry = tape_get(tape[0], index)
        replacements |= {node: member(entry, position) for position, node in enumerate(plan.traced)}
    inner = {plan.linear.function.parameters[0]: index, **dict(zip(used, captures, strict=True))}
    inner |= {node: replacements[node] for node in plan.traced}
    replacements |= dict(zip(plan.repeated, substitute(plan.repeated, inner), strict=True))
    return Function(f"{plan.linear.function.name}.linear", fresh, substitute(plan.split.tangents, replacements))


# --- maps ------------------------------------------------------------------------------------------------------------


def _map(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    """The linear part of a map is a map that recomputes the values of each point, except for those marked as kept."""
    function, lifted, summed = (node.attribute(name) for name in ("function", "lifted", "summed"))
    active = active_flags(tangents)
    linear = linearize(function, active)
    flags = linear.flags
    results = active_nodes(linear.tangents, linear.function.results, flags)
    remembered = _kept_in_map(linear, results) if any(flags) else []
    primal, stored = _remembering_map(node, primals, linear, remembered)
    if not any(flags):
        return primal, None
    inputs = [*remembered, *linear.function.parameters, *linear.tangent_parameters]
    value = map_(
        *stored,
        *primals,
        *active_nodes(tangents, primals, active),
        function=make_function(f"{function.name}.linear", inputs, results),
        lifted=(*[True] * len(stored), *lifted, *(flag for flag, on in zip(lifted, active, strict=True) if on)),
        summed=tuple(flag for flag, on in zip(summed, flags, strict=True) if on),
    )
    return primal, result_tangent(spread(result_nodes(value, sum(flags)), flags))


def _kept_in_map(linear: Linearized, results: Sequence[Node]) -> list[Node]:
    """The values marked as kept that the linear part uses: they depend on the point, not on tangents."""
    marked = _marked_as_kept(linear)
    from_point = _depending(results, linear.function.parameters)
    return [node for node in toposort(results) if node in marked and node in from_point and node.operands]


def _remembering_map(
    node: Node, primals: tuple[Node, ...], linear: Linearized, remembered: Sequence[Node]
) -> tuple[Node, list[Node]]:
    """The map, which also returns the residuals of each point."""
    if not remembered:
        return map_(*primals, **dict(node.attributes)), []
    function, number = linear.function, len(linear.function.results)
    more = Function(function.name, function.parameters, (*linear.primals, *remembered))
    flags = (*node.attribute("summed"), *[False] * len(remembered))
    nodes = result_nodes(map_(*primals, function=more, lifted=node.attribute("lifted"), summed=flags), len(flags))
    return pack_results(nodes[:number]), nodes[number:]


RULES: dict[Op, ControlRule] = {
    call: _call,
    cond: _cond,
    switch: _switch,
    for_loop: _for_loop,
    while_loop: _while_loop,
    map_: _map,
}
