"""The `split_at_concatenations` pass: index-set splitting of arithmetic on concatenations, such as stencils.

For the CPU. The result is computed region by region. Within a region, each operand is part of one tensor, which is read
in place: rolled grids are never written to memory, and the result is assembled in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tensor, shape_of
from livegrad.ir.walk import nodes_of, ops_in, substitute, users_of
from livegrad.ops.movement import broadcast, concatenate, slice_
from livegrad.ops.reduction import reduce

_MAX_REGIONS = 27  # a grid of three dimensions with a border on all sides
_MAX_NODES = 600  # of all regions together: each has separate code
_MAX_DEEP = 150  # nodes of one expression
_INSIDE = 0.8  # the least share of each dimension in its largest region: small regions leave lanes empty

Offsets = tuple[int, ...]
Line = list[tuple[int, int]]  # starts and sizes of regions along one dimension
Cuts = tuple[frozenset[int], ...]  # the boundaries between regions, for each dimension


def split_at_concatenations(function: Function) -> Function:
    """Turns arithmetic on concatenations into concatenations of arithmetic."""
    return _split_arithmetic(function) if concatenate in ops_in(function) else function


@propagates_lines
def _split_arithmetic(function: Function) -> Function:
    nodes = nodes_of(function)
    users = users_of(nodes)
    results = set(function.results)
    transparent = _find_transparent_nodes(nodes, users, results)
    if not any(node.op is concatenate for node in transparent):
        return function
    regions = _Regions(transparent)
    for node in nodes:
        split = None
        if _is_arithmetic(node) and (node in results or not all(map(_is_arithmetic, users[node]))):
            # Splitting forces the operand of a fused reduction into memory, so it must save several concatenations.
            is_reduced = node not in results and all(_is_arithmetic(user) or user.op is reduce for user in users[node])
            split = regions.split_node(node, 2 if is_reduced else 1)
        if split is not None:
            regions.split.add(node)
        regions.rewritten[node] = substitute([node], regions.rewritten)[0] if split is None else split
    if not regions.split:
        return function
    return Function(function.name, function.parameters, tuple(regions.rewritten[node] for node in function.results))


def _is_arithmetic(node: Node) -> bool:
    return node.op.elementwise and isinstance(node.type, Tensor) and node.type.rank > 0


def _find_transparent_nodes(nodes: Sequence[Node], users: dict[Node, list[Node]], results: set[Node]) -> set[Node]:
    """Concatenations, slices and broadcasts that only arithmetic uses, directly or through each other.

    They need no memory.
    """
    transparent: set[Node] = set()
    for node in reversed(nodes):
        moves = node.op in (concatenate, broadcast) or (node.op is slice_ and set(node.attribute("step")) <= {1})
        if moves and node not in results and all(_is_arithmetic(user) or user in transparent for user in users[node]):
            transparent.add(node)
    return transparent


@dataclass
class _Regions:
    """Splits arithmetic into regions at the boundaries of all concatenations that it reads."""

    transparent: set[Node]
    split: set[Node] = field(default_factory=set)
    rewritten: dict[Node, Node] = field(default_factory=dict)
    cuts: dict[tuple[Node, Offsets, Offsets], Cuts] = field(default_factory=dict)  # of the current node
    parts: dict[tuple[Node, Offsets, Offsets], Node] = field(default_factory=dict)

    def split_node(self, node: Node, fewest: int) -> Node | None:
        """Computes a node as a concatenation of regions; returns None if splitting does not pay."""
        inner_nodes = self._expression(node)
        if sum(inner.op is concatenate for inner in inner_nodes) < fewest or 0 in shape_of(node.type):
            return None
        self.cuts.clear()
        shape: Offsets = shape_of(node.type)  # type: ignore[assignment]
        cuts = self._find_cuts(node, (0,) * len(shape), shape)
        ends = [sorted(cuts_of_axis | {0, size}) for cuts_of_axis, size in zip(cuts, shape, strict=True)]
        lines = [[(low, high - low) for low, high in pairwise(cuts_of_axis)] for cuts_of_axis in ends]
        inside = all(max(size for _, size in line) >= _INSIDE * n for line, n in zip(lines, shape, strict=True))
        count = prod(map(len, lines))
        work = count * sum(map(_is_arithmetic, inner_nodes))
        if count == 1 or count > _MAX_REGIONS or not inside or work > _MAX_NODES:
            return None
        self.parts.clear()
        return self._concatenate_parts(node, lines, ())

    def _expression(self, node: Node) -> set[Node]:
        """The nodes of an expression, without its inputs in memory; empty if there are too many."""
        pending, visited = [node], {node}
        while pending:
            fresh = {
                operand for operand in pending.pop().operands if operand not in visited and self._is_inner(operand)
            }
            visited |= fresh
            pending += fresh
            if len(visited) > _MAX_DEEP:
                return set()
        return visited

    def _is_inner(self, node: Node) -> bool:
        """Whether a node is part of an expression, and not one of its inputs in memory."""
        return node in self.transparent or (_is_arithmetic(node) and node not in self.split)

    def _concatenate_parts(self, node: Node, lines: list[Line], chosen: tuple[tuple[int, int], ...]) -> Node:
        axis = len(chosen)
        if axis == len(lines):
            return self._region(node, tuple(start for start, _ in chosen), tuple(size for _, size in chosen))
        parts = [self._concatenate_parts(node, lines, (*chosen, line)) for line in lines[axis]]
        return parts[0] if len(parts) == 1 else concatenate(*parts, axis=axis)

    # --- boundaries ---

    def _find_cuts(self, node: Node, start: Offsets, size: Offsets) -> Cuts:
        """The boundaries of concatenations inside a part of a node."""
        key = (node, start, size)
        if key not in self.cuts:
            cuts: list[set[int]] = [set() for _ in start]
            if self._is_inner(node):
                for operand, offsets, operand_start, operand_size in _map_to_operands(node, start, size):
                    inner = self._find_cuts(operand, operand_start, operand_size)
                    for axis, (dimension, offset) in offsets.items():
                        cuts[axis] |= {cut + offset for cut in inner[dimension]}
                        cuts[axis] |= {
                            operand_start[dimension] + offset,
                            operand_start[dimension] + operand_size[dimension] + offset,
                        }
            inside = zip(cuts, start, size, strict=True)
            self.cuts[key] = tuple(
                frozenset(cut for cut in axis_cuts if low < cut < low + n) for axis_cuts, low, n in inside
            )
        return self.cuts[key]

    # --- regions ---

    def _region(self, node: Node, start: Offsets, size: Offsets) -> Node:
        """A part of a node without boundaries inside, computed from the parts of its operands."""
        key = (node, start, size)
        if key not in self.parts:
            self.parts[key] = self._compute_region(node, start, size)
        return self.parts[key]

    def _compute_region(self, node: Node, start: Offsets, size: Offsets) -> Node:
        if not self._is_inner(node):
            whole = self.rewritten[node]
            if size == shape_of(node.type):
                return whole
            return slice_(whole, start=start, size=size, step=(1,) * len(size))
        parts = {operand: self._region(operand, *region) for operand, _, *region in _map_to_operands(node, start, size)}
        if node.op is concatenate or node.op is slice_:
            (part,) = parts.values()
            return part
        operands = [parts[operand] if operand in parts else self.rewritten[operand] for operand in node.operands]
        if node.op is broadcast:
            return broadcast(*operands, shape=size, axes=node.attribute("axes"))
        return node.op(*operands, **dict(node.attributes))


def _map_to_operands(
    node: Node, start: Offsets, size: Offsets
) -> Iterator[tuple[Node, dict[int, tuple[int, int]], Offsets, Offsets]]:
    """The parts of its operands that a part of a node depends on: (operand, offsets, start, size).

    `offsets` maps an axis of the node to the corresponding dimension of the operand and its offset.
    """
    axes = range(len(start))
    if node.op is concatenate:
        axis, end = node.attribute("axis"), 0
        for operand in node.operands:
            begin, end = end, end + shape_of(operand.type)[axis]  # type: ignore[operator]
            low, high = max(start[axis], begin), min(start[axis] + size[axis], end)
            if low < high:
                offset, extent = list(start), list(size)
                offset[axis], extent[axis] = low - begin, high - low
                yield operand, {a: (a, begin if a == axis else 0) for a in axes}, tuple(offset), tuple(extent)
    elif node.op is slice_:
        shifts: Offsets = node.attribute("start")
        source_start = tuple(low + shift for low, shift in zip(start, shifts, strict=True))
        yield node.operands[0], {a: (a, -shifts[a]) for a in axes}, source_start, size
    elif node.op is broadcast:
        (operand,) = node.operands
        if isinstance(operand.type, Tensor) and operand.type.rank:
            numbered_axes = list(enumerate(zip(node.attribute("axes"), shape_of(operand.type), strict=True)))
            whole = shape_of(node.type)
            is_repeated = [extent == 1 and whole[axis] != 1 for _, (axis, extent) in numbered_axes]
            offset = tuple(0 if is_repeated[d] else start[axis] for d, (axis, _) in numbered_axes)
            extent = tuple(1 if is_repeated[d] else size[axis] for d, (axis, _) in numbered_axes)
            yield operand, {axis: (d, 0) for d, (axis, _) in numbered_axes if not is_repeated[d]}, offset, extent
    else:
        for operand in node.operands:
            if isinstance(operand.type, Tensor) and operand.type.rank:
                yield operand, {a: (a, 0) for a in axes}, start, size
