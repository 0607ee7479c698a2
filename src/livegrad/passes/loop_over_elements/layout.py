"""Layout selection: stores tensors transposed that a loop nest mostly accesses by column.

In: a loop over elements. The tensors are transposed before the nest and back after it, so that inner loops access
contiguous memory instead of another cache line in each iteration.
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
_MIN_ACCESSES = 4.0  # of each element, on average: fewer do not pay for the transposition


class _UsedAsWhole(Exception):
    """A loop nest uses a tensor other than by index."""


def choose_permutations(loop: Node) -> dict[int, Axes]:
    """The operands of a loop that are better stored with another dimension last: position → axes for `permute`."""
    votes: Counter[tuple[int, int]] = Counter()
    first = first_argument(loop)
    body: Function = loop.attribute("body")
    # By position, because scratch tensors with equal initial values are the same node.
    positions = {body.parameters[1 + position - first]: position for position in range(first, len(loop.operands))}
    _count_accesses(body, positions, estimate_iterations(loop), votes)
    axes_of: dict[int, Axes] = {}
    for position, operand in enumerate(loop.operands):
        if position < first or not isinstance(operand.type, Tensor) or operand.type.rank < 2:
            continue
        rank = operand.type.rank
        best = max(range(rank), key=lambda axis: votes[position, axis])
        count = votes[position, best]
        if count > 2.0 * votes[position, rank - 1] and count >= _MIN_ACCESSES * prod(operand.type.shape):  # type: ignore[arg-type]
            axes_of[position] = (*[axis for axis in range(rank) if axis != best], best)
    return axes_of


def _count_accesses(
    function: Function, positions: Mapping[Node, int], iterations: float, votes: Counter[tuple[int, int]]
) -> None:
    """Counts the accesses of innermost loops by tensor and by the axis along which consecutive iterations move."""
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
                if is_innermost and function.parameters and _varies_with(index, function.parameters[0]):
                    votes[tensor, axis] += iterations  # type: ignore[assignment]
        elif node.op in LOOPS:
            body: Function = node.attribute("body")
            shift = 1 - first_argument(node)
            inner = {body.parameters[p + shift]: values[o] for p, o in enumerate(node.operands) if o in values}
            _count_accesses(body, inner, iterations * estimate_iterations(node), votes)


def _varies_with(index: Node, variable: Node) -> bool:
    if isinstance(index.type, Tensor):
        return False
    form = index_form(index, [variable])
    return form is not None and variable in form.coefficients


def rewrite_for_layout(loop: Node, operands: tuple[Node, ...], axes: Mapping[int, Axes]) -> Node | None:
    """The loop over operands that are already transposed; None if it uses one other than by index."""
    try:
        return _rewrite_region(loop, operands, axes)
    except _UsedAsWhole:
        return None


def _rewrite_region(node: Node, operands: tuple[Node, ...], axes: Mapping[int, Axes]) -> Node:
    region = region_of(node)
    assert region is not None
    exchange: dict[Function, Function] = {}
    for function, offset in zip(region.functions, region.offsets, strict=True):
        shift = offset - len(region.leading)
        exchange[function] = _rewrite_function(
            function, {position + shift: permutation for position, permutation in axes.items()}
        )
    return make_node(node.op, operands, exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]


def _rewrite_function(function: Function, axes: Mapping[int, Axes]) -> Function:
    types = [
        Tensor(type.element, tuple([type.shape[axis] for axis in axes[position]])) if position in axes else type  # type: ignore[union-attr]
        for position, type in enumerate(function.parameter_types)
    ]
    parameters = parameters_of(types)
    rewritten = dict(zip(function.parameters, parameters, strict=True))
    axes_of = {function.parameters[position]: permutation for position, permutation in axes.items()}
    for node in nodes_of(function):
        if node in rewritten:
            continue
        operands = tuple([rewritten[operand] for operand in node.operands])
        with originating_from(node.origins):
            rewritten[node] = _rewrite_node(node, operands, axes_of)
    return Function(function.name, parameters, tuple([rewritten[result] for result in function.results]))


def _rewrite_node(node: Node, operands: tuple[Node, ...], axes_of: dict[Node, Axes]) -> Node:
    """Rewrites a node over operands of which some are transposed; records in `axes_of` whether its result is."""
    permutations = {position: axes_of[operand] for position, operand in enumerate(node.operands) if operand in axes_of}
    if not permutations:
        _inherit_layout(node, axes_of)
        return make_node(node.op, operands, node.attributes) if operands != node.operands else node
    if node.op in (lookup, *UPDATES) and list(permutations) == [0]:
        first_index = 1 if node.op is lookup else 2
        indices = [operands[first_index + axis] for axis in permutations[0]]
        if node.op in UPDATES:
            axes_of[node] = permutations[0]
        return make_node(node.op, (*operands[:first_index], *indices), node.attributes)
    if node.op not in LOOPS:
        raise _UsedAsWhole
    return _rewrite_region(node, operands, permutations)


def _inherit_layout(node: Node, axes_of: dict[Node, Axes]) -> None:
    """A tensor that a loop returns has the layout of its initial value."""
    if node.op is get and node.operands[0].op in LOOPS:
        loop = node.operands[0]
        base = loop.operands[first_argument(loop) + node.attribute("index")]
        if base in axes_of:
            axes_of[node] = axes_of[base]
    elif node.op is call and any(isinstance(operand.type, Tensor) for operand in node.operands):
        raise _UsedAsWhole
