"""Transposes linear programs: a map of tangents becomes a map of cotangents in the opposite direction."""

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
from livegrad.ops.control import call, cond, for_loop, map_, parameters_of, switch
from livegrad.ops.rules import add_values
from livegrad.passes.differentiate.guards import add_guarded, can_stay_outside, guard_of
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
    before: Mapping[Node, Node] = MappingProxyType({}),
) -> list[Tangent]:
    """The cotangents of `inputs`, in which `results` are linear, from those of the results; added to what some inputs
    have `before`."""
    order = toposort(results)
    sources = set(inputs)
    linear = set(inputs)
    for node in order:
        if not linear.isdisjoint(node.operands):
            linear.add(node)
    sums = _Sums()
    sums.cotangents |= before
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
                        sums.cotangents[operand] = add_guarded(sums.of(operand), part, operand.type)
    return [sums.of(node) for node in inputs]


class _Sums:
    """The cotangents so far. Those of an aggregate's members are added one by one: a list of n is not added n times."""

    def __init__(self) -> None:
        self.cotangents: Cotangents = {}
        self._members: dict[Node, list[Tangent]] = {}  # for these nodes, instead of in `cotangents`

    def of(self, node: Node) -> Tangent:
        members = self._members.pop(node, None)
        if members is not None:
            self.cotangents[node] = tuple(members)
        return self.cotangents.get(node)

    def add_member(self, node: Node, cotangent: Tangent) -> None:
        """The cotangent of `get(aggregate, index)` is one of the aggregate, whose other members are zero."""
        (aggregate,), index = node.operands, node.attribute("index")
        members = self._members.get(aggregate)
        if members is None:
            before, count = self.cotangents.get(aggregate), len(components(aggregate.type))
            members = [tangent_member(before, aggregate.type, position) for position in range(count)]
            self._members[aggregate] = members
        members[index] = add(members[index], cotangent, node.type)


def _transpose_node(name: str, node: Node, cotangent: Tangent, flags: tuple[bool, ...]) -> Sequence[Tangent]:
    guard = guard_of(cotangent)
    if guard is not None and can_stay_outside(guard, node, flags):
        return [guard.around(part) for part in _transpose_node(name, node, guard.value, flags)]
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
    """(other arguments, cotangents of the given results) → cotangents of the active linear arguments.

    The second value says which of the linear arguments those are. The cotangents of those with the numbers `totals` are
    added to further arguments.
    """
    inputs = [p for p, flag in zip(function.parameters, linear, strict=True) if flag]
    others = [p for p, flag in zip(function.parameters, linear, strict=True) if not flag]
    types = [*(p.type for p in others), *(r.type for r, on in zip(function.results, has_cotangent, strict=True) if on)]
    fresh = parameters_of([*types, *(inputs[number].type for number in totals)])
    # The function's own parameters may not be confused with the new ones: the old are exchanged last.
    supply = iter(_placeholders(fresh[len(others) :]))
    marks = [next(supply) if on else None for on in has_cotangent]
    before = {inputs[number]: next(supply) for number in totals}
    cotangents = transpose_graph(function.name, function.results, marks, inputs, before)
    flags = tuple(not is_zero(c) for c in cotangents)
    nodes = [materialize(c, p.type) for c, p, on in zip(cotangents, inputs, flags, strict=True) if on]
    exchange = dict(zip(others, fresh[: len(others)], strict=True))
    exchange |= dict(zip([*(m for m in marks if m is not None), *before.values()], fresh[len(others) :], strict=True))
    return Function(f"{function.name}.transposed", fresh, substitute(nodes, exchange)), flags


def _placeholders(nodes: Sequence[Node]) -> list[Node]:
    return [input_node(Key("cotangent"), node.type) for node in nodes]


def _result_cotangents(function: Function, cotangent: Tangent) -> list[Tangent]:
    """A call's cotangent result by result."""
    number = len(function.results)
    if number == 1:
        return [cotangent]
    return [tangent_member(cotangent, function.result_type, index) for index in range(number)]


def _select(items: Sequence[Item], flags: Sequence[bool], on: bool) -> list[Item]:
    return [item for item, flag in zip(items, flags, strict=True) if flag is on]


def _transpose_branches(
    functions: tuple[Function, ...],
    operands: Sequence[Node],
    linear: tuple[bool, ...],
    cotangent: Tangent,
    rebuild: Callable[[Sequence[Node], tuple[Function, ...]], Node],
) -> list[Tangent]:
    parts = _result_cotangents(functions[0], cotangent)
    has_cotangent = tuple(not is_zero(part) for part in parts)
    transposed = [transpose_function(function, linear, has_cotangent) for function in functions]
    wanted = tuple(any(column) for column in zip(*(flags for _, flags in transposed), strict=True))
    if not any(wanted):
        return [None] * len(operands)
    completed = tuple(
        _with_zeros(function, flags, wanted, f, linear)
        for (function, flags), f in zip(transposed, functions, strict=True)
    )
    results = zip(parts, functions[0].results, has_cotangent, strict=True)
    nodes = [materialize(part, result.type) for part, result, on in results if on]
    value = rebuild([*_select(operands, linear, False), *nodes], completed)
    return spread(spread(result_nodes(value, sum(wanted)), wanted), linear)


def _with_zeros(
    transposed: Function,
    flags: tuple[bool, ...],
    wanted: tuple[bool, ...],
    function: Function,
    linear: tuple[bool, ...],
) -> Function:
    inputs = _select(function.parameters, linear, True)
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
    """Transposes a loop: the same iterations in reverse, accumulating the cotangents of captured tangents.

    A carried value that never gets a cotangent is left out: zero times an overflowed value would be NaN.
    """
    iterations, *operands = node.operands
    body, carried = node.attribute("body"), node.attribute("carried")
    state, captures = operands[:carried], operands[carried:]
    initial, captured = linear[1 : 1 + carried], linear[1 + carried :]
    inside = (False, *[True] * carried, *captured)
    parts = [tangent_member(cotangent, node.type, index) for index in range(carried)]
    active = _reached_by_cotangents(body, inside, tuple(not is_zero(part) for part in parts))
    flags = transpose_function(body, inside, active)[1]
    start = [materialize(part, value.type) for part, value, on in zip(parts, state, active, strict=True) if on]
    totals = [
        materialize(None, value.type) for value in _select(_select(captures, captured, True), flags[carried:], True)
    ]
    loop = for_loop(
        iterations,
        *start,
        *totals,
        *_select(captures, captured, False),
        body=_transposed_body(body, inside, active, flags),
        carried=len(start) + len(totals),
        reverse=not node.attribute("reverse"),
    )
    nodes = [get(loop, index=index) for index in range(len(start) + len(totals))]
    first = spread(nodes[: len(start)], active)
    gained = spread(nodes[len(start) :], flags[carried:])
    return [None, *(p if on else None for p, on in zip(first, initial, strict=True)), *spread(gained, captured)]


def _reached_by_cotangents(
    body: Function, linear: tuple[bool, ...], has_cotangent: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Which carried values have a cotangent in some iteration, starting from the last one."""
    return carried_flags(has_cotangent, lambda flags: transpose_function(body, linear, flags)[1][: len(has_cotangent)])


def _transposed_body(
    body: Function, linear: tuple[bool, ...], active: tuple[bool, ...], flags: tuple[bool, ...]
) -> Function:
    """(index, active cotangents, totals, captures) → active cotangents of the previous iteration, updated totals."""
    inputs = _select(body.parameters, linear, True)
    gaining = [number for number in range(len(active), len(flags)) if flags[number]]
    # A list is changed where it was read: adding all its elements in each iteration would be quadratic.
    lists = tuple([number for number in gaining if isinstance(inputs[number].type, Array)])
    transposed, _ = transpose_function(body, linear, active, lists)
    kept, state_types = sum(flags[: len(active)]), [n.type for n in _select(inputs[: len(active)], active, True)]
    residual_types = [n.type for n in transposed.parameters[: len(body.parameters) - len(inputs)]]
    total_types = [node.type for node in transposed.results[kept:]]
    fresh = parameters_of([residual_types[0], *state_types, *total_types, *residual_types[1:]])
    state, rest = fresh[1 : 1 + len(state_types)], fresh[1 + len(state_types) :]
    totals = dict(zip(gaining, rest, strict=False))
    residuals = [fresh[0], *rest[len(gaining) :]]
    results = inline(transposed, [*residuals, *state, *(totals[number] for number in lists)])
    earlier = _select(spread(results[:kept], flags[: len(active)]), active, True)
    moved = [materialize(part, node.type) for part, node in zip(earlier, state, strict=True)]
    gained = zip(gaining, results[kept:], strict=True)
    return Function(
        transposed.name,
        fresh,
        (*moved, *(part if number in lists else add_values(totals[number], part) for number, part in gained)),
    )


def _map(node: Node, cotangent: Tangent, linear: tuple[bool, ...]) -> list[Tangent]:
    """The transpose of a map is a map; the cotangents of shared arguments are summed over the points."""
    function, lifted, summed = (node.attribute(name) for name in ("function", "lifted", "summed"))
    number = len(function.results)
    parts = [cotangent] if number == 1 else [tangent_member(cotangent, node.type, i) for i in range(number)]
    has_cotangent = tuple(not is_zero(part) for part in parts)
    transposed, flags = transpose_function(function, linear, has_cotangent)
    if not any(flags):
        return [None] * len(node.operands)
    types = node.type.elements if number > 1 and isinstance(node.type, Tuple) else (node.type,)
    cotangents = [materialize(part, type) for part, type, on in zip(parts, types, has_cotangent, strict=True) if on]
    shared = [not flag for flag, on in zip(lifted, linear, strict=True) if on]
    value = map_(
        *_select(node.operands, linear, False),
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
