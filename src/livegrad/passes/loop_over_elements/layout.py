"""Transposes tensors that a nest mostly reads and writes down their columns, before the nest and back after it.

In: a loop over elements. The inner loop then moves along memory, where a step down a column would leave the cache line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor
from livegrad.ir.walk import exchanged_functions, nodes_of
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import UPDATES, indices_of
from livegrad.ops.control import call, parameters_of
from livegrad.ops.indexing import lookup
from livegrad.passes.loop_over_elements.cost import estimate_iterations
from livegrad.passes.loop_over_elements.dependence import index_form
from livegrad.passes.regions import LOOPS, first_argument, region_of

Axes = tuple[int, ...]
_MIN_GAIN = 4.0  # accesses for each element: fewer do not pay for the transposition


class _NotTransposed(Exception):
    """A nest uses a tensor as a whole, not only by index."""


def transposed_operands(loop: Node) -> dict[int, Axes]:
    """The operands of a loop that are better stored with another dimension last, as axes for `permute`."""
    votes: Counter[tuple[int, int]] = Counter()
    first = first_argument(loop)
    body: Function = loop.attribute("body")
    # By position: scratch tensors that begin alike are one operand in several places.
    positions = {body.parameters[1 + position - first]: position for position in range(first, len(loop.operands))}
    _count(body, positions, estimate_iterations(loop), votes)
    axes_of: dict[int, Axes] = {}
    for position, operand in enumerate(loop.operands):
        if position < first or not isinstance(operand.type, Tensor) or operand.type.rank < 2:
            continue
        rank = operand.type.rank
        best = max(range(rank), key=lambda axis: votes[position, axis])
        count = votes[position, best]
        if count > 2.0 * votes[position, rank - 1] and count >= _MIN_GAIN * prod(operand.type.shape):  # type: ignore[arg-type]
            axes_of[position] = (*[axis for axis in range(rank) if axis != best], best)
    return axes_of


def _count(function: Function, positions: Mapping[Node, int], times: float, votes: Counter[tuple[int, int]]) -> None:
    """Counts accesses of innermost loops by the dimension along which they move, for the tensors at each position."""
    values = dict(positions)
    nodes = nodes_of(function)
    is_innermost = not any(node.op in LOOPS for node in nodes)
    for node in nodes:
        if node.op is get and node.operands[0].op in LOOPS:
            loop = node.operands[0]
            base = loop.operands[first_argument(loop) + node.attribute("index")]
            if base in values:
                values[node] = values[base]
        elif node.op in (lookup, *UPDATES) and node.operands[0] in values:
            tensor = values[node] = values[node.operands[0]]
            for axis, index in enumerate(indices_of(node)):
                if is_innermost and function.parameters and _moves(index, function.parameters[0]):
                    votes[tensor, axis] += times  # type: ignore[assignment]
        elif node.op in LOOPS:
            body: Function = node.attribute("body")
            shift = 1 - first_argument(node)
            inner = {body.parameters[p + shift]: values[o] for p, o in enumerate(node.operands) if o in values}
            _count(body, inner, times * estimate_iterations(node), votes)


def _moves(index: Node, variable: Node) -> bool:
    if isinstance(index.type, Tensor):
        return False
    form = index_form(index, [variable])
    return form is not None and variable in form.coefficients


def permute_inside(loop: Node, operands: tuple[Node, ...], axes: Mapping[int, Axes]) -> Node | None:
    """The loop over operands that are transposed already; None if it uses one as a whole."""
    try:
        return _rebuilt(loop, operands, axes)
    except _NotTransposed:
        return None


def _rebuilt(node: Node, operands: tuple[Node, ...], axes: Mapping[int, Axes]) -> Node:
    region = region_of(node)
    assert region is not None
    exchange: dict[Function, Function] = {}
    for function, offset in zip(region.functions, region.offsets, strict=True):
        shift = offset - len(region.leading)
        exchange[function] = _permuted(
            function, {position + shift: permutation for position, permutation in axes.items()}
        )
    return make_node(node.op, operands, exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]


def _permuted(function: Function, axes: Mapping[int, Axes]) -> Function:
    types = [
        Tensor(type.element, tuple([type.shape[axis] for axis in axes[position]])) if position in axes else type  # type: ignore[union-attr]
        for position, type in enumerate(function.parameter_types)
    ]
    parameters = parameters_of(types)
    done = dict(zip(function.parameters, parameters, strict=True))
    moved = {
        function.parameters[position]: permutation for position, permutation in axes.items()
    }  # how the new values are transposed
    for node in nodes_of(function):
        if node in done:
            continue
        operands = tuple([done[operand] for operand in node.operands])
        with originating_from(node.origins):
            done[node] = _node(node, operands, moved)
    return Function(function.name, parameters, tuple([done[result] for result in function.results]))


def _node(node: Node, operands: tuple[Node, ...], moved: dict[Node, Axes]) -> Node:
    permutations = {position: moved[operand] for position, operand in enumerate(node.operands) if operand in moved}
    if not permutations:
        _inherit(node, moved)
        return make_node(node.op, operands, node.attributes) if operands != node.operands else node
    if node.op in (lookup, *UPDATES) and list(permutations) == [0]:
        kept = 1 if node.op is lookup else 2
        indices = operands[kept:]
        if node.op in UPDATES:
            moved[node] = permutations[0]
        return make_node(node.op, (*operands[:kept], *[indices[axis] for axis in permutations[0]]), node.attributes)
    if node.op not in LOOPS:
        raise _NotTransposed
    return _rebuilt(node, operands, permutations)


def _inherit(node: Node, moved: dict[Node, Axes]) -> None:
    """A tensor that a loop returns has the layout of its initial value."""
    if node.op is get and node.operands[0].op in LOOPS:
        loop = node.operands[0]
        base = loop.operands[first_argument(loop) + node.attribute("index")]
        if base in moved:
            moved[node] = moved[base]
    elif node.op is call and any(isinstance(operand.type, Tensor) for operand in node.operands):
        raise _NotTransposed
