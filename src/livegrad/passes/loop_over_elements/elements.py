"""Builds a scalar expression for the element of a tensor at an index, over reads of tensors in memory.

In: a tensor that a loop body computes by elementwise ops, movement ops, lookups and reductions. Called by `bodies`, for
one loop nest at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, i64
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import equal, greater_equal, less
from livegrad.ops.control import check
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.ops.movement import (
    broadcast,
    concatenate,
    flip,
    iota,
    pad,
    permute,
    reshape,
    sizes,
    slice_,
)
from livegrad.ops.reduction import COMBINE, arg_reduce, fold_start, is_better, reduce
from livegrad.passes.index_maps import (
    Index,
    State,
    build_loop_nest,
    check_index,
    integer,
    map_index,
    merge_index,
    scale_index,
)

_MAX_ELEMENTS = 4000  # of one expression: larger ones recompute shared parts too often
# (least length, lanes) of a reduction of doubles. Narrower elements have more lanes.
_LANES = ((64, 32), (32, 16), (16, 8))
MOVEMENTS = frozenset({broadcast, concatenate, flip, pad, permute, reshape, slice_})


class NotExpanded(Exception):
    """A body computes a value without a rule for its elements, or the expansion does not pay."""


class Read(NamedTuple):
    """A read of a tensor in memory: the reader, the tensor, and the index (None inside the loop of a reduction)."""

    reader: Node
    tensor: Node
    element_index: Index | None


def is_computed_by_element(node: Node) -> bool:
    """Whether each element of a tensor is a scalar expression of elements of its operands."""
    if not isinstance(node.type, Tensor):
        return False
    if node.op in (reduce, arg_reduce):
        return node.operands[0].type.element.name not in ("f16", "bf16")  # type: ignore[union-attr]
    return node.op.elementwise or node.op in MOVEMENTS or node.op in (iota, lookup, lookup_or, check)


def reduces_rows(node: Node) -> bool:
    """Whether a reduction keeps the last dimension, so that whole contiguous rows are combined."""
    if node.op not in (reduce, arg_reduce) or not sizes(node):
        return False
    source = node.operands[0]
    axes = node.attribute("axes") if node.op is reduce else (node.attribute("axis"),)
    if node.op is arg_reduce and source.type.element.kind == "bool":  # type: ignore[union-attr]
        return False
    return bool(axes) and len(sizes(source)) - 1 not in axes


@dataclass
class Elements:
    """Builds scalar expressions over one set of tensors in memory.

    `memory` maps nodes of the body to tensors in memory; `scalars` maps scalars and tensors of rank 0 to their values.
    """

    memory: Mapping[Node, Node]
    scalars: Mapping[Node, Node]
    reads: list[Read] = field(default_factory=list)
    _computed: dict[tuple[Node, Index], Node] = field(default_factory=dict)
    _inside: int = 0  # the number of reduction loops around the current element

    def element(self, node: Node, index: Index) -> Node:
        """The element of a tensor at an index, or the value of a scalar."""
        pending: list[tuple[Node, Index, list[tuple[Node, Index]] | None]] = [(node, index, None)]
        while pending:
            current, current_index, needs = pending.pop()
            if (current, current_index) in self._computed:
                continue
            if needs is not None:
                operands = [self._computed[need] for need in needs]
                with originating_from(current.origins):
                    self._computed[current, current_index] = self._build_element(current, operands, current_index)
                continue
            leaf = self._build_leaf(current, current_index)
            if leaf is not None:
                self._computed[current, current_index] = leaf
                continue
            needs = self._list_needs(current, current_index)
            pending.append((current, current_index, needs))
            pending += [(operand, operand_index, None) for operand, operand_index in needs]
            if len(self._computed) > _MAX_ELEMENTS:
                raise NotExpanded
        return self._computed[node, index]

    def _build_leaf(self, node: Node, index: Index) -> Node | None:
        """An element that depends on no other elements; None if it does."""
        if node in self.scalars:
            return self.scalars[node]
        if node.op is constant_op and not node.operands:
            return node
        if node.op is iota:
            coordinate = index[node.attribute("axis")]
            element = node.type.element  # type: ignore[union-attr]
            return coordinate if element is i64 else cast(coordinate, type=element)
        return None

    def operand_element(self, reader: Node, node: Node, index: Index) -> Node:
        """The element of an operand of `reader`: read from memory, or computed."""
        return self.read(reader, node, index) if node in self.memory else self.element(node, index)

    def read(self, reader: Node, tensor: Node, index: Index) -> Node:
        """Reads the element of a tensor in memory, and records the read."""
        self.reads.append(Read(reader, tensor, None if self._inside else index))
        return lookup(self.memory[tensor], *index)

    # --- one node ---

    def _list_needs(self, node: Node, index: Index) -> list[tuple[Node, Index]]:
        """The elements of operands that a node's element depends on, except those in memory."""
        if not is_computed_by_element(node):
            raise NotExpanded
        if node.op in (reduce, arg_reduce):
            return []
        if node.op.elementwise or node.op is check:
            needs = [(operand, index if isinstance(operand.type, Tensor) else ()) for operand in node.operands]
        elif node.op is lookup or node.op is lookup_or:
            needs = [(operand, index) for operand in node.operands[1:]]
        elif node.op is concatenate:
            needs = list(zip(node.operands, self._part_indices(node, index), strict=True))
        elif node.op is pad:
            needs = [(node.operands[0], self._index_inside_padding(node, index)[1]), (node.operands[1], ())]
        else:
            needs = [(node.operands[0], map_index(node, index))]
        return [(operand, operand_index) for operand, operand_index in needs if operand not in self.memory]

    def _build_element(self, node: Node, computed: list[Node], index: Index) -> Node:
        """Builds an element from the computed elements of its operands and reads of memory."""
        supply = iter(computed)

        def operand(position: int, operand_index: Index) -> Node:
            operand_node = node.operands[position]
            return self.read(node, operand_node, operand_index) if operand_node in self.memory else next(supply)

        if node.op in (reduce, arg_reduce):
            return self._reduce(node, index)
        if node.op.elementwise or node.op is check:
            operands = [operand(position, index) for position in range(len(node.operands))]
            return make_node(node.op, tuple(operands), node.attributes)
        if node.op is lookup:
            return self.lookup_result(node, [operand(position, index) for position in range(1, len(node.operands))])
        if node.op is lookup_or:
            source = node.operands[0]
            if source not in self.memory:
                raise NotExpanded
            self.reads.append(Read(node, source, None))
            arguments = [operand(position, index) for position in range(1, len(node.operands))]
            return lookup_or(self.memory[source], *arguments)
        if node.op is concatenate:
            return self._select_part(
                node, [operand(p, part) for p, part in enumerate(self._part_indices(node, index))], index
            )
        if node.op is pad:
            inside, source_index = self._index_inside_padding(node, index)
            value, fill = operand(0, source_index), operand(1, ())
            return value if inside is None else select(inside, value, fill)
        return operand(0, map_index(node, index))

    def lookup_result(self, node: Node, index: list[Node]) -> Node:
        """The element that a lookup reads, from memory or computed at that index."""
        source = node.operands[0]
        if source in self.memory:
            return self.read(node, source, tuple(index))
        bounds = enumerate(zip(index, sizes(source), strict=True))
        within = [check_index(coordinate, size, axis) for axis, (coordinate, size) in bounds]
        return self.element(source, tuple(within))

    def _index_inside_padding(self, node: Node, index: Index) -> tuple[Node | None, Index]:
        """Maps an index into a padded tensor to its source: whether it is inside (None: always), and a valid index."""
        inside: Node | None = None
        coordinates: list[Node] = []
        for axis, (coordinate, size) in enumerate(zip(index, sizes(node.operands[0]), strict=True)):
            low, high, interior = (node.attribute(name)[axis] for name in ("low", "high", "interior"))
            if not size:
                raise NotExpanded
            source_coordinate = scale_index(coordinate, -low, 1)
            inside_axis: Node | None = None
            if interior:
                inside_axis = equal(source_coordinate % (interior + 1), 0)
                source_coordinate = source_coordinate // (interior + 1)
            bounds = ((low, greater_equal(source_coordinate, 0)), (high, less(source_coordinate, size)))
            for is_padded, bound in bounds:
                if is_padded:
                    inside_axis = bound if inside_axis is None else inside_axis & bound
            if inside_axis is None:
                coordinates.append(source_coordinate)
                continue
            coordinates.append(select(inside_axis, source_coordinate, integer(0)))
            inside = inside_axis if inside is None else inside & inside_axis
        return inside, tuple(coordinates)

    def _part_indices(self, node: Node, index: Index) -> list[Index]:
        """For each concatenated tensor, an index into it: that of the element if it lies in this tensor, else any."""
        axis, start, indices = node.attribute("axis"), 0, list[Index]()
        for part in node.operands:
            size = sizes(part)[axis]
            if not size:
                raise NotExpanded
            coordinate = scale_index(index[axis], -start, 1)
            inside = greater_equal(coordinate, 0) & less(coordinate, size)
            indices.append((*index[:axis], select(inside, coordinate, integer(0)), *index[axis + 1 :]))
            start += size
        return indices

    def _select_part(self, node: Node, values: list[Node], index: Index) -> Node:
        """Selects the value from the concatenated tensor that contains the index."""
        axis, start, result = node.attribute("axis"), 0, values[0]
        for part, previous, value in zip(node.operands[1:], node.operands, values[1:], strict=False):
            start += sizes(previous)[axis]
            result = select(less(index[axis], start), result, value)
            assert sizes(part)[axis]
        return result

    # --- reductions ---

    def _reduce(self, node: Node, index: Index) -> Node:
        """Builds a loop over the reduced axes that carries the partial result."""
        source = node.operands[0]
        axes = node.attribute("axes") if node.op is reduce else (node.attribute("axis"),)
        extents = [sizes(source)[axis] for axis in axes]
        if node.op is arg_reduce:
            return self._find_extremum(node, index, axes[0], extents[0])
        element: Scalar = source.type.element  # type: ignore[union-attr]
        combine = COMBINE[node.attribute("kind")]

        def add_point(inner: Index, total: tuple[Node, ...]) -> tuple[Node, ...]:
            return (combine(total[0], self.operand_element(node, source, merge_index(index, axes, inner))),)

        if not axes:
            return self.operand_element(node, source, index)
        start = constant(fold_start(node.attribute("kind"), element), element)
        if len(axes) == 1:
            return self._build_reduction_loops(extents, add_point, (start,), _choose_lanes(extents[0], element))[0]
        return self._build_reduction_loops(extents, add_point, (start,))[0]

    def _find_extremum(self, node: Node, index: Index, axis: int, extent: int) -> Node:
        """The position of the first largest or smallest element, or of the first NaN if there is one."""
        source, largest = node.operands[0], node.attribute("kind") == "argmax"
        if source.type.element.kind == "bool":  # type: ignore[union-attr]
            raise NotExpanded

        def compare(inner: Index, best: tuple[Node, ...]) -> tuple[Node, ...]:
            value = self.operand_element(node, source, merge_index(index, (axis,), inner))
            better = is_better(value, best[0], largest)
            return select(better, value, best[0]), select(better, inner[0], best[1])

        first = self.operand_element(node, source, merge_index(index, (axis,), (integer(0),)))
        return self._build_reduction_loops([extent], compare, (first, integer(0)))[1]

    def reduce_rows_into(self, node: Node, targets: tuple[Node, ...]) -> tuple[Node, ...]:
        """Reduces leading dimensions row by row, so that memory is read in order; returns the updated targets.

        The first target holds the partial results. For argmax and argmin, a second target holds the positions.
        """
        source, result_shape = node.operands[0], sizes(node)
        axes = node.attribute("axes") if node.op is reduce else (node.attribute("axis"),)
        extents = [sizes(source)[axis] for axis in axes]
        element: Scalar = source.type.element  # type: ignore[union-attr]

        def initialise(index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            if node.op is reduce:
                return (assign(state[0], constant(fold_start(node.attribute("kind"), element), element), *index),)
            first = self.operand_element(node, source, merge_index(index, axes, (integer(0),)))
            return assign(state[0], first, *index), assign(state[1], integer(0), *index)

        def add_point(row_index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            inner, index = row_index[: len(axes)], row_index[len(axes) :]
            value, partial = (
                self.operand_element(node, source, merge_index(index, axes, inner)),
                lookup(state[0], *index),
            )
            if node.op is reduce:
                return (assign(state[0], COMBINE[node.attribute("kind")](partial, value), *index),)
            better = is_better(value, partial, node.attribute("kind") == "argmax")
            position = select(better, inner[0], lookup(state[1], *index))
            return assign(state[0], select(better, value, partial), *index), assign(state[1], position, *index)

        return self._build_reduction_loops(
            [*extents, *result_shape], add_point, self._build_reduction_loops(result_shape, initialise, targets)
        )

    def _build_reduction_loops(
        self, extents: Sequence[int], body: Callable[[Index, State], State], start: State, lanes: int = 1
    ) -> State:
        self._inside += 1
        try:
            return build_loop_nest(extents, body, start, lanes)
        finally:
            self._inside -= 1


def _choose_lanes(extent: int, element: Scalar) -> int:
    """The lanes of a reduction. They depend on sizes only, so that all processors compute the same bits."""
    if element.kind != "float":
        return 1
    doubles = next((lanes for length, lanes in _LANES if extent >= length), 1)
    return doubles if doubles == 1 else min(doubles * 64 // element.bits, 1 << (extent // 2).bit_length() - 1)
