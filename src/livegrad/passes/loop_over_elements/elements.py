"""The element of a tensor at an index, as a scalar expression that reads tensors in memory.

In: a tensor that a loop body computes by elementwise ops, movements of elements, lookups and reductions. Called by
`bodies`, for one nest of loops over elements at a time.
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

_MAX_ELEMENTS = 4000  # of one expression: beyond that, shared parts are computed too often
_LANES = (
    (64, 32),
    (32, 16),
    (16, 8),
)  # of a sum of doubles from a length on; of narrower numbers more fit into a vector
MOVEMENTS = frozenset({broadcast, concatenate, flip, pad, permute, reshape, slice_})


class NotExpanded(Exception):
    """A body computes a value that has no rule for its elements, or is not worth the expansion."""


class Read(NamedTuple):
    """A read of a tensor in memory: the reader, the tensor, and the index; None if an inner loop reads it."""

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
    """Whether a reduction keeps the last dimension, along which elements lie side by side."""
    if node.op not in (reduce, arg_reduce) or not sizes(node):
        return False
    source = node.operands[0]
    axes = node.attribute("axes") if node.op is reduce else (node.attribute("axis"),)
    if node.op is arg_reduce and source.type.element.kind == "bool":  # type: ignore[union-attr]
        return False
    return bool(axes) and len(sizes(source)) - 1 not in axes


@dataclass
class Elements:
    """Scalar expressions over one set of tensors in memory.

    `memory` has the tensors that lie in memory and `numbers` the values of rank 0 and scalars, by the node of the body
    that they stand for.
    """

    memory: Mapping[Node, Node]
    numbers: Mapping[Node, Node]
    reads: list[Read] = field(default_factory=list)
    _computed: dict[tuple[Node, Index], Node] = field(default_factory=dict)
    _inside: int = 0  # how many loops of reductions are open

    def element(self, node: Node, index: Index) -> Node:
        """The scalar that a node has at an index; of a scalar, itself."""
        pending: list[tuple[Node, Index, list[tuple[Node, Index]] | None]] = [(node, index, None)]
        while pending:
            current, at, needs = pending.pop()
            if (current, at) in self._computed:
                continue
            if needs is not None:
                operands = [self._computed[need] for need in needs]
                with originating_from(current.origins):
                    self._computed[current, at] = self._build(current, operands, at)
                continue
            leaf = self._leaf(current, at)
            if leaf is not None:
                self._computed[current, at] = leaf
                continue
            needs = self._needs(current, at)
            pending.append((current, at, needs))
            pending += [(operand, below, None) for operand, below in needs]
            if len(self._computed) > _MAX_ELEMENTS:
                raise NotExpanded
        return self._computed[node, index]

    def _leaf(self, node: Node, index: Index) -> Node | None:
        """What needs nothing below it."""
        if node in self.numbers:
            return self.numbers[node]
        if node.op is constant_op and not node.operands:
            return node
        if node.op is iota:
            along = index[node.attribute("axis")]
            element = node.type.element  # type: ignore[union-attr]
            return along if element is i64 else cast(along, type=element)
        return None

    def at(self, reader: Node, node: Node, index: Index) -> Node:
        """The element of an operand of a reader: read from memory, or computed."""
        return self.read(reader, node, index) if node in self.memory else self.element(node, index)

    def read(self, reader: Node, tensor: Node, index: Index) -> Node:
        """The element of a tensor in memory."""
        self.reads.append(Read(reader, tensor, None if self._inside else index))
        return lookup(self.memory[tensor], *index)

    # --- one node ---

    def _needs(self, node: Node, index: Index) -> list[tuple[Node, Index]]:
        """The elements below it, without those that lie in memory."""
        if not is_computed_by_element(node):
            raise NotExpanded
        if node.op in (reduce, arg_reduce):
            return []
        if node.op.elementwise or node.op is check:
            needs = [(operand, index if isinstance(operand.type, Tensor) else ()) for operand in node.operands]
        elif node.op is lookup or node.op is lookup_or:
            needs = [(operand, index) for operand in node.operands[1:]]
        elif node.op is concatenate:
            needs = list(zip(node.operands, self._parts(node, index), strict=True))
        elif node.op is pad:
            needs = [(node.operands[0], self._behind_border(node, index)[1]), (node.operands[1], ())]
        else:
            needs = [(node.operands[0], map_index(node, index))]
        return [(operand, at) for operand, at in needs if operand not in self.memory]

    def _build(self, node: Node, below: list[Node], index: Index) -> Node:
        supply = iter(below)

        def operand(position: int, at: Index) -> Node:
            operand_node = node.operands[position]
            return self.read(node, operand_node, at) if operand_node in self.memory else next(supply)

        if node.op in (reduce, arg_reduce):
            return self._reduced(node, index)
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
            others = [operand(position, index) for position in range(1, len(node.operands))]
            return lookup_or(self.memory[source], *others)
        if node.op is concatenate:
            return self._joined(node, [operand(p, at) for p, at in enumerate(self._parts(node, index))], index)
        if node.op is pad:
            inside, behind = self._behind_border(node, index)
            value, fill = operand(0, behind), operand(1, ())
            return value if inside is None else select(inside, value, fill)
        return operand(0, map_index(node, index))

    def lookup_result(self, node: Node, index: list[Node]) -> Node:
        """The element that a lookup finds: in memory, or computed for the index that is looked up."""
        source = node.operands[0]
        if source in self.memory:
            return self.read(node, source, tuple(index))
        bounds = enumerate(zip(index, sizes(source), strict=True))
        within = [check_index(coordinate, size, axis) for axis, (coordinate, size) in bounds]
        return self.element(source, tuple(within))

    def _behind_border(self, node: Node, index: Index) -> tuple[Node | None, Index]:
        """Whether an index is inside what a pad surrounds, None for always; and the index there, or any valid one."""
        inside: Node | None = None
        coordinates: list[Node] = []
        for axis, (coordinate, size) in enumerate(zip(index, sizes(node.operands[0]), strict=True)):
            low, high, interior = (node.attribute(name)[axis] for name in ("low", "high", "interior"))
            if not size:
                raise NotExpanded
            behind = scale_index(coordinate, -low, 1)
            here: Node | None = None
            if interior:
                here = equal(behind % (interior + 1), 0)
                behind = behind // (interior + 1)
            for needed, bound in ((low, greater_equal(behind, 0)), (high, less(behind, size))):
                if needed:
                    here = bound if here is None else here & bound
            if here is None:
                coordinates.append(behind)
                continue
            coordinates.append(select(here, behind, integer(0)))
            inside = here if inside is None else inside & here
        return inside, tuple(coordinates)

    def _parts(self, node: Node, index: Index) -> list[Index]:
        """For each concatenated tensor the index into it, which is valid if the element is in that tensor."""
        axis, start, indices = node.attribute("axis"), 0, list[Index]()
        for part in node.operands:
            size = sizes(part)[axis]
            if not size:
                raise NotExpanded
            behind = scale_index(index[axis], -start, 1)
            here = greater_equal(behind, 0) & less(behind, size)
            indices.append((*index[:axis], select(here, behind, integer(0)), *index[axis + 1 :]))
            start += size
        return indices

    def _joined(self, node: Node, values: list[Node], index: Index) -> Node:
        axis, start, result = node.attribute("axis"), 0, values[0]
        for part, before, value in zip(node.operands[1:], node.operands, values[1:], strict=False):
            start += sizes(before)[axis]
            result = select(less(index[axis], start), result, value)
            assert sizes(part)[axis]
        return result

    # --- reductions ---

    def _reduced(self, node: Node, index: Index) -> Node:
        """A loop over the reduced axes, with the partial result in a register."""
        source = node.operands[0]
        axes = node.attribute("axes") if node.op is reduce else (node.attribute("axis"),)
        extents = [sizes(source)[axis] for axis in axes]
        if node.op is arg_reduce:
            return self._best(node, index, axes[0], extents[0])
        element: Scalar = source.type.element  # type: ignore[union-attr]
        combine = COMBINE[node.attribute("kind")]

        def add_point(inner: Index, total: tuple[Node, ...]) -> tuple[Node, ...]:
            return (combine(total[0], self.at(node, source, merge_index(index, axes, inner))),)

        if not axes:
            return self.at(node, source, index)
        start = constant(fold_start(node.attribute("kind"), element), element)
        if len(axes) == 1:
            return self._loops(extents, add_point, (start,), _lanes_of(extents[0], element))[0]
        return self._loops(extents, add_point, (start,))[0]

    def _best(self, node: Node, index: Index, axis: int, extent: int) -> Node:
        """The first position of the greatest or least element; the first NaN if there is one."""
        source, largest = node.operands[0], node.attribute("kind") == "argmax"
        if source.type.element.kind == "bool":  # type: ignore[union-attr]
            raise NotExpanded

        def compare(inner: Index, best: tuple[Node, ...]) -> tuple[Node, ...]:
            value = self.at(node, source, merge_index(index, (axis,), inner))
            better = is_better(value, best[0], largest)
            return select(better, value, best[0]), select(better, inner[0], best[1])

        first = self.at(node, source, merge_index(index, (axis,), (integer(0),)))
        return self._loops([extent], compare, (first, integer(0)))[1]

    def reduced_rows(self, node: Node, targets: tuple[Node, ...]) -> tuple[Node, ...]:
        """The tensors in memory after a reduction of leading dimensions: row by row, so that memory is read in order.

        The first target gets the results so far; for the place of the greatest or least element, the second gets it.
        """
        source, kept = node.operands[0], sizes(node)
        axes = node.attribute("axes") if node.op is reduce else (node.attribute("axis"),)
        extents = [sizes(source)[axis] for axis in axes]
        element: Scalar = source.type.element  # type: ignore[union-attr]

        def begin(index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            if node.op is reduce:
                return (assign(state[0], constant(fold_start(node.attribute("kind"), element), element), *index),)
            first = self.at(node, source, merge_index(index, axes, (integer(0),)))
            return assign(state[0], first, *index), assign(state[1], integer(0), *index)

        def add_point(row_index: Index, state: tuple[Node, ...]) -> tuple[Node, ...]:
            inner, index = row_index[: len(axes)], row_index[len(axes) :]
            value, before = self.at(node, source, merge_index(index, axes, inner)), lookup(state[0], *index)
            if node.op is reduce:
                return (assign(state[0], COMBINE[node.attribute("kind")](before, value), *index),)
            better = is_better(value, before, node.attribute("kind") == "argmax")
            where = select(better, inner[0], lookup(state[1], *index))
            return assign(state[0], select(better, value, before), *index), assign(state[1], where, *index)

        return self._loops([*extents, *kept], add_point, self._loops(kept, begin, targets))

    def _loops(
        self, extents: Sequence[int], body: Callable[[Index, State], State], start: State, lanes: int = 1
    ) -> State:
        self._inside += 1
        try:
            return build_loop_nest(extents, body, start, lanes)
        finally:
            self._inside -= 1


def _lanes_of(extent: int, element: Scalar) -> int:
    """How many terms of a reduction are taken at once. Sizes alone decide, so that the bits are the same everywhere."""
    if element.kind != "float":
        return 1
    doubles = next((lanes for length, lanes in _LANES if extent >= length), 1)
    return doubles if doubles == 1 else min(doubles * 64 // element.bits, 1 << (extent // 2).bit_length() - 1)
