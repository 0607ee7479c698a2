"""Transposes linear programs: a function from tangents to tangents becomes one from cotangents to cotangents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from livegrad.diagnostics import DifferentiationError
from livegrad.ir.function import inline
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import cached_derivation
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Array, Tuple, components
from livegrad.ir.walk import substitute, toposort
from livegrad.ops.aggregate import get, make
from livegrad.ops.control import call, cond, for_loop, parameters_of, switch
from livegrad.ops.maps import map_
from livegrad.passes.differentiate.accumulate import accumulate, add_to_total
from livegrad.passes.differentiate.guards import can_move_to_operands, guard_of
from livegrad.passes.differentiate.propagate import missing_rule, spread
from livegrad.passes.differentiate.tangents import (
    Tangent,
    add,
    is_zero,
    materialize,
    result_nodes,
    tangent_member,
)
from livegrad.passes.regions import carried_flags

Cotangents = dict[Node, Tangent]
Item = TypeVar("Item")
TransposeControl = Callable[[Node, Tangent, tuple[bool, ...]], list[Tangent]]


def transpose_graph(
    name: str,
    results: Sequence[Node],
    cotangents: Sequence[Tangent],
    inputs: Sequence[Node],
    initial_cotangents: Mapping[Node, Node] = MappingProxyType({}),
) -> list[Tangent]:
    """The cotangents of `inputs`, from those of `results`, which are linear in them; added to `initial` cotangents."""
    order = toposort(results)
    sources = set(inputs)
    linear = set(inputs)
    for node in order:
        if not linear.isdisjoint(node.operands):
            linear.add(node)
    sums = _CotangentSums()
    sums.cotangents |= initial_cotangents
    for result, cotangent in zip(results, cotangents, strict=True):
        if result in linear:
            sums.cotangents[result] = add(sums.of(result), cotangent, result.type)
    for node in reversed(order):
        cotangent = sums.of(node)
        if node in linear and node not in sources and not is_zero(cotangent):
            with originating_from(node.origins):
                if node.op is get:
                    sums.add_member(node, cotangent)
                    continue
                flags = tuple([operand in linear for operand in node.operands])
                for operand, part, flag in zip(
                    node.operands, _transpose_node(name, node, cotangent, flags), flags, strict=True
                ):
                    if flag and not is_zero(part):
                        sums.cotangents[operand] = accumulate(sums.of(operand), part, operand.type)
    return [sums.of(node) for node in inputs]


class _CotangentSums:
    """The sums of cotangents so far. Members of an aggregate are summed separately, not as n whole aggregates."""

    def __init__(self) -> None:
        self.cotangents: Cotangents = {}
        self._members: dict[Node, list[Tangent]] = {}  # for these nodes, instead of in `cotangents`

    def of(self, node: Node) -> Tangent:
        members = self._members.pop(node, None)
        if members is not None:
            self.cotangents[node] = tuple(members)
        return self.cotangents.get(node)

    def add_member(self, node: Node, cotangent: Tangent) -> None:
        """Adds the cotangent of `get(aggregate, index)` to that member of the aggregate's cotangent."""
        (aggregate,), index = node.operands, node.attribute("index")
        members = self._members.get(aggregate)
        if members is None:
            previous, count = self.cotangents.get(aggregate), len(components(aggregate.type))
            members = [tangent_member(previous, aggregate.type, position) for position in range(count)]
            self._members[aggregate] = members
        members[index] = add(members[index], cotangent, node.type)


def _transpose_node(name: str, node: Node, cotangent: Tangent, flags: tuple[bool, ...]) -> Sequence[Tangent]:
    guard = guard_of(cotangent)
    if guard is not None and can_move_to_operands(guard, node, flags):
        return [guard.apply(part) for part in _transpose_node(name, node, guard.value, flags)]
    if node.op is make:
        return [tangent_member(cotangent, node.type, index) for index in range(len(node.operands))]
    if node.op in RULES:
        return RULES[node.op](node, cotangent, flags)
    if node.op.transpose is None:
        raise missing_rule(name, node)
    for index, flag in enumerate(flags):
        if flag and index not in node.op.linear_in:
            raise DifferentiationError(
                f"`{node.op.name}` in `{name}` is not linear in operand {index}", where=node.origin
            )
    return node.op.transpose(node, materialize(cotangent, node.type), *flags)


@cached_derivation(1024)
def transpose_function(
    function: Function, linear: tuple[bool, ...], has_cotangent: tuple[bool, ...], totals: tuple[int, ...] = ()
) -> tuple[Function, tuple[bool, ...]]:
    """(nonlinear arguments, cotangents of the flagged results) → cotangents of the active linear arguments.

    Also returns which linear arguments are active. The cotangents of linear arguments at the indices `totals` are added
    to further arguments.
    """
    inputs = [p for p, flag in zip(function.parameters, linear, strict=True) if flag]
    nonlinear = [p for p, flag in zip(function.parameters, linear, strict=True) if not flag]
    types = [
        *(p.type for p in nonlinear),
        *(r.type for r, on in zip(function.results, has_cotangent, strict=True) if on),
    ]
    fresh = parameters_of([*types, *(inputs[index].type for index in totals)])
    # Parameters are interned, so new ones can equal old ones: placeholders stand for the new until the end.
    supply = iter(_make_placeholders(fresh[len(nonlinear) :]))
    placeholders = [next(supply) if on else None for on in has_cotangent]
    initial_cotangents = {inputs[index]: next(supply) for index in totals}
    cotangents = transpose_graph(function.name, function.results, placeholders, inputs, initial_cotangents)
    flags = tuple(not is_zero(c) for c in cotangents)
    nodes = [materialize(c, p.type) for c, p, on in zip(cotangents, inputs, flags, strict=True) if on]
    exchange = dict(zip(nonlinear, fresh[: len(nonlinear)], strict=True))
    exchange |= dict(
        zip(
            [*(m for m in placeholders if m is not None), *initial_cotangents.values()],
            fresh[len(nonlinear) :],
            strict=True,
        )
    )
    return Function(f"{function.name}.transposed", fresh, substitute(nodes, exchange)), flags


def _make_placeholders(nodes: Sequence[Node]) -> list[Node]:
    return [input_node(Key("cotangent"), node.type) for node in nodes]


def _split_cotangent(function: Function, cotangent: Tangent) -> list[Tangent]:
    """The cotangent of each result, from the cotangent of a call."""
    count = len(function.results)
    if count == 1:
        return [cotangent]
    return [tangent_member(cotangent, function.result_type, index) for index in range(count)]


def _filter_by_flag(items: Sequence[Item], flags: Sequence[bool], on: bool) -> list[Item]:
    return [item for item, flag in zip(items, flags, strict=True) if flag is on]


def _transpose_branches(
    functions: tuple[Function, ...],
    operands: Sequence[Node],
    linear: tuple[bool, ...],
    cotangent: Tangent,
    rebuild: Callable[[Sequence[Node], tuple[Function, ...]], Node],
) -> list[Tangent]:
    parts = _split_cotangent(functions[0], cotangent)
    has_cotangent = tuple(not is_zero(part) for part in parts)
    transposed = [transpose_function(function, linear, has_cotangent) for function in functions]
    wanted = tuple(any(column) for column in zip(*(flags for _, flags in transposed), strict=True))
    if not any(wanted):
        return [None] * len(operands)
    completed = tuple(
        _add_zero_results(function, flags, wanted, f, linear)
        for (function, flags), f in zip(transposed, functions, strict=True)
    )
    results = zip(parts, functions[0].results, has_cotangent, strict=True)
    nodes = [materialize(part, result.type) for part, result, on in results if on]
    value = rebuild([*_filter_by_flag(operands, linear, False), *nodes], completed)
    return spread(spread(result_nodes(value, sum(wanted)), wanted), linear)


def _add_zero_results(
    transposed: Function,
    flags: tuple[bool, ...],
    wanted: tuple[bool, ...],
    function: Function,
    linear: tuple[bool, ...],
) -> Function:
    inputs = _filter_by_flag(function.parameters, linear, True)
    parts = spread(transposed.results, flags)
    nodes = [materialize(part, p.type) for part, p, on in zip(parts, inputs, wanted, strict=True) if on]
    return Function(transposed.name, transposed.parameters, tuple(nodes))


def _call(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    functions = (node.attribute("function"),)
    return _transpose_branches(
        functions, node.operands, linear, cotangent, lambda operands, fs: call(*operands, function=fs[0])
    )


def _cond(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    predicate, *operands = node.operands
    parts = _transpose_branches(
        (node.attribute("then"), node.attribute("otherwise")),
        operands,
        linear[1:],
        cotangent,
        lambda values, fs: cond(predicate, *values, then=fs[0], otherwise=fs[1]),
    )
    return [None, *parts]


def _switch(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    index, *operands = node.operands
    parts = _transpose_branches(
        node.attribute("branches"),
        operands,
        linear[1:],
        cotangent,
        lambda values, fs: switch(index, *values, branches=fs),
    )
    return [None, *parts]


def _for_loop(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    """Transposes a loop: runs its iterations in reverse, and accumulates the cotangents of captured tangents.

    Omits carried values that never get a cotangent: zero times an overflowed value would be NaN.
    """
    iterations, *operands = node.operands
    body, carried = node.attribute("body"), node.attribute("carried")
    state, captures = operands[:carried], operands[carried:]
    initial, captured = linear[1 : 1 + carried], linear[1 + carried :]
    inside = (False, *[True] * carried, *captured)
    parts = [tangent_member(cotangent, node.type, index) for index in range(carried)]
    active = _find_active_state(body, inside, tuple(not is_zero(part) for part in parts))
    flags = transpose_function(body, inside, active)[1]
    start = [materialize(part, value.type) for part, value, on in zip(parts, state, active, strict=True) if on]
    totals = [
        materialize(None, value.type)
        for value in _filter_by_flag(_filter_by_flag(captures, captured, True), flags[carried:], True)
    ]
    loop = for_loop(
        iterations,
        *start,
        *totals,
        *_filter_by_flag(captures, captured, False),
        body=_transpose_body(body, inside, active, flags),
        carried=len(start) + len(totals),
        reverse=not node.attribute("reverse"),
    )
    nodes = [get(loop, index=index) for index in range(len(start) + len(totals))]
    first = spread(nodes[: len(start)], active)
    sums = spread(nodes[len(start) :], flags[carried:])
    return [None, *(p if on else None for p, on in zip(first, initial, strict=True)), *spread(sums, captured)]


def _find_active_state(body: Function, linear: tuple[bool, ...], has_cotangent: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which carried values have a cotangent in some iteration, starting from the last one."""
    return carried_flags(has_cotangent, lambda flags: transpose_function(body, linear, flags)[1][: len(has_cotangent)])


def _transpose_body(
    body: Function, linear: tuple[bool, ...], active: tuple[bool, ...], flags: tuple[bool, ...]
) -> Function:
    """(index, active cotangents, totals, captures) → active cotangents of the previous iteration, updated totals."""
    inputs = _filter_by_flag(body.parameters, linear, True)
    accumulated = [index for index in range(len(active), len(flags)) if flags[index]]
    # The cotangents of lists are updated member by member: adding whole lists in each iteration would be quadratic.
    lists = tuple([index for index in accumulated if isinstance(inputs[index].type, Array)])
    transposed, _ = transpose_function(body, linear, active, lists)
    state_count, state_types = (
        sum(flags[: len(active)]),
        [n.type for n in _filter_by_flag(inputs[: len(active)], active, True)],
    )
    residual_types = [n.type for n in transposed.parameters[: len(body.parameters) - len(inputs)]]
    total_types = [node.type for node in transposed.results[state_count:]]
    fresh = parameters_of([residual_types[0], *state_types, *total_types, *residual_types[1:]])
    state, remaining = fresh[1 : 1 + len(state_types)], fresh[1 + len(state_types) :]
    totals = dict(zip(accumulated, remaining, strict=False))
    residuals = [fresh[0], *remaining[len(accumulated) :]]
    results = inline(transposed, [*residuals, *state, *(totals[index] for index in lists)])
    previous = _filter_by_flag(spread(results[:state_count], flags[: len(active)]), active, True)
    next_state = [materialize(part, node.type) for part, node in zip(previous, state, strict=True)]
    additions = zip(accumulated, results[state_count:], strict=True)
    return Function(
        transposed.name,
        fresh,
        (*next_state, *(part if index in lists else add_to_total(totals[index], part) for index, part in additions)),
    )


def _map(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    """The transpose of a map is a map; the cotangents of shared arguments are summed over the points."""
    function, lifted, summed = (node.attribute(name) for name in ("function", "lifted", "summed"))
    parts = _split_cotangent(function, cotangent)
    has_cotangent = tuple(not is_zero(part) for part in parts)
    transposed, flags = transpose_function(function, linear, has_cotangent)
    if not any(flags):
        return [None] * len(node.operands)
    types = node.type.elements if len(function.results) > 1 and isinstance(node.type, Tuple) else (node.type,)
    cotangents = [materialize(part, type) for part, type, on in zip(parts, types, has_cotangent, strict=True) if on]
    shared = [not flag for flag, on in zip(lifted, linear, strict=True) if on]
    value = map_(
        *_filter_by_flag(node.operands, linear, False),
        *cotangents,
        function=transposed,
        lifted=(
            *(flag for flag, on in zip(lifted, linear, strict=True) if not on),
            *(not flag for flag, on in zip(summed, has_cotangent, strict=True) if on),
        ),
        summed=tuple(flag for flag, on in zip(shared, flags, strict=True) if on),
    )
    return spread(spread(result_nodes(value, sum(flags)), flags), linear)


RULES: dict[Op, TransposeControl] = {call: _call, cond: _cond, switch: _switch, for_loop: _for_loop, map_: _map}
