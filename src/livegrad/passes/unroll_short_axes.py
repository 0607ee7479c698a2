"""The `unroll_short_axes` pass: arithmetic on the components of points becomes arithmetic on scalars.

Programs on pairs of points have values of shape (n, n, 3). A sum over the components becomes a sum of three slices,
which fuses with its users: no matrix of n × n is stored. A sum over the pairs becomes three sums, one for each
component, in one kernel: what all components share, such as a distance, is computed once for a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from itertools import product
from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, f32, f64
from livegrad.ir.walk import nodes_of, rebuild, substitute, toposort, users_of
from livegrad.ops.elementwise import abs, mul
from livegrad.ops.movement import broadcast, concatenate, permute, reshape, sizes, slice_
from livegrad.ops.reduction import COMBINE, reduce
from livegrad.ops.rules import filled
from livegrad.ops.transcendental import exp

_LONGEST = 4  # of a short axis
_FEWEST_POINTS = 16  # reduced, for each component
_COSTLY = 4.0  # additions for each point that all components share
_MAX_NODES = 200  # of an expression that is sliced, for each component


@propagates_lines
def unroll_short_axes(function: Function) -> Function:
    """Splits sums along short axes, and sums whose terms share work along a short axis."""
    return _expand_short_sums(_split_by_component(function))


# --- sums over points, for each component ----------------------------------------------------------------------------


def _split_by_component(function: Function) -> Function:
    replacements: dict[Node, Node] = {}
    for node in nodes_of(function):
        axis = _find_component_axis(node) if node.op is reduce else None
        if axis is not None:
            replacements[node] = _reduce_components(node, axis)
    return _replace(function, replacements)


def _find_component_axis(node: Node) -> int | None:
    """The short axis that a reduction keeps, along which its terms share costly work."""
    (terms,), reduced = node.operands, node.attribute("axes")
    shape = sizes(terms)
    short = [axis for axis, size in enumerate(shape) if 2 <= size <= _LONGEST and axis not in reduced]
    if not short or prod(shape[axis] for axis in reduced) < _FEWEST_POINTS or not _is_unrolled(terms):
        return None
    return next((axis for axis in short if _shared_cost(terms, axis) >= _COSTLY), None)


def _shared_cost(terms: Node, axis: int) -> float:
    """The cost of the expressions that are broadcast along an axis, for each point."""
    broadcasts = {node for node, at in _expression(terms, axis) if node.op is broadcast and at is None}
    return sum(node.op.cost for node in toposort(broadcasts, lambda n: not _is_fused(n)) if node.op.elementwise)


def _reduce_components(node: Node, axis: int) -> Node:
    (terms,), reduced = node.operands, node.attribute("axes")
    axes = tuple([other - (other > axis) for other in reduced])
    components = _Components()
    with originating_from(node.origins):
        parts = [
            reduce(components.at(terms, axis, position), kind=node.attribute("kind"), axes=axes)
            for position in range(sizes(terms)[axis])
        ]
        kept = axis - sum(other < axis for other in reduced)
        shape = (*sizes(node)[:kept], 1, *sizes(node)[kept + 1 :])
        return concatenate(*[reshape(part, shape=shape) for part in parts], axis=kept)


# --- sums over components --------------------------------------------------------------------------------------------


def _expand_short_sums(function: Function) -> Function:
    users = users_of(nodes_of(function))
    replacements: dict[Node, Node] = {}
    for node in nodes_of(function):
        if node.op is reduce and node not in function.results and all(user.op.elementwise for user in users[node]):
            (terms,), axes = node.operands, node.attribute("axes")
            is_short = 2 <= prod(sizes(terms)[axis] for axis in axes) <= _LONGEST
            if is_short and _is_unrolled(terms) and _repeats(terms):
                replacements[node] = _combine(node, axes)
    return _replace(function, replacements)


def _combine(node: Node, axes: Sequence[int]) -> Node:
    (terms,), components = node.operands, _Components()
    with originating_from(node.origins):
        parts = []
        for positions in product(*(range(sizes(terms)[axis]) for axis in axes)):
            part = terms
            for axis, position in reversed([*zip(axes, positions, strict=True)]):
                part = components.at(part, axis, position)
            parts.append(part)
        if node.attribute("kind") == "sum" and not _is_never_negative(parts[0]):
            parts.insert(0, filled(0.0, node.type))  # the sum of -0.0 is 0.0
        return fold(COMBINE[node.attribute("kind")], parts)


def _is_never_negative(node: Node) -> bool:
    return node.op in (abs, exp) or (node.op is mul and node.operands[0] is node.operands[1])


# --- components ------------------------------------------------------------------------------------------------------


def _is_unrolled(terms: Node) -> bool:
    """Whether the terms of a reduction are computed in its kernel, and few enough to be computed by component."""
    if not terms.op.elementwise or not isinstance(terms.type, Tensor) or terms.type.element not in (f32, f64):
        return False
    return 0 not in sizes(terms) and len(toposort([terms], lambda node: not _is_fused(node))) <= _MAX_NODES


def _repeats(terms: Node) -> bool:
    """Whether an expression repeats tensors, as in pairs; short rows of stored tensors have kernels of their own."""
    inner = toposort([terms], lambda node: not _is_fused(node))
    repeated = [node.operands[0] for node in inner if node.op is broadcast]
    return any(isinstance(source.type, Tensor) and prod(sizes(source)) > 1 for source in repeated)


def _is_fused(node: Node) -> bool:
    return (node.op.elementwise or node.op in (broadcast, permute)) and isinstance(node.type, Tensor)


def _expression(root: Node, axis: int) -> set[tuple[Node, int | None]]:
    """The nodes of an expression, each with its axis that becomes `axis` of the root; None if it has no such axis."""
    visited: set[tuple[Node, int | None]] = set()
    pending: list[tuple[Node, int | None]] = [(root, axis)]
    while pending:
        node, at = pending.pop()
        if (node, at) in visited:
            continue
        visited.add((node, at))
        if at is None or not _is_fused(node):
            continue
        if node.op is broadcast:
            below = _axis_below(node, at)
            visited.add((node, below))
            pending += [] if below is None else [(node.operands[0], below)]
        elif node.op is permute:
            pending.append((node.operands[0], node.attribute("axes")[at]))
        else:
            pending += [(operand, at) for operand in node.operands if isinstance(operand.type, Tensor)]
    return visited


def _axis_below(node: Node, axis: int) -> int | None:
    """The axis of a broadcast's operand that becomes `axis`; None if the operand is repeated along it."""
    axes: tuple[int, ...] = node.attribute("axes")
    below = axes.index(axis) if axis in axes else None
    return None if below is None or sizes(node.operands[0])[below] == 1 else below


class _Components:
    """Values at one position along an axis, without that axis."""

    def __init__(self) -> None:
        self._known: dict[tuple[Node, int, int], Node] = {}

    def at(self, node: Node, axis: int, position: int) -> Node:
        key = node, axis, position
        if key not in self._known:
            with originating_from(node.origins):
                self._known[key] = self._build(node, axis, position)
        return self._known[key]

    def _build(self, node: Node, axis: int, position: int) -> Node:
        shape = sizes(node)[:axis] + sizes(node)[axis + 1 :]
        if node.op.elementwise:
            operands = [self.at(o, axis, position) if isinstance(o.type, Tensor) else o for o in node.operands]
            return rebuild(node, tuple(operands))
        if node.op is broadcast:
            return self._broadcast(node, axis, position, shape)
        if node.op is permute:
            axes: tuple[int, ...] = node.attribute("axes")
            removed = axes[axis]
            kept = tuple([other - (other > removed) for other in axes if other != removed])
            return permute(self.at(node.operands[0], removed, position), axes=kept)
        start = tuple([position if other == axis else 0 for other in range(len(sizes(node)))])
        size = tuple([1 if other == axis else extent for other, extent in enumerate(sizes(node))])
        return reshape(slice_(node, start=start, size=size, step=(1,) * len(size)), shape=shape)

    def _broadcast(self, node: Node, axis: int, position: int, shape: tuple[int, ...]) -> Node:
        (source,), axes = node.operands, node.attribute("axes")
        if axis in axes:
            below = axes.index(axis)
            source = self.at(source, below, position if sizes(source)[below] > 1 else 0)
            axes = (*axes[:below], *axes[below + 1 :])
        axes = tuple([other - (other > axis) for other in axes])
        if isinstance(source.type, Tensor) and sizes(source) == shape and axes == tuple(range(len(shape))):
            return source
        return broadcast(source, shape=shape, axes=axes)


def _replace(function: Function, replacements: dict[Node, Node]) -> Function:
    """The function with other nodes for some; these may use nodes that are replaced themselves."""
    if not replacements:
        return function
    done: dict[Node, Node] = {}
    for node, replacement in replacements.items():
        done[node] = substitute([replacement], done)[0]
    return Function(function.name, function.parameters, substitute(function.results, done))
