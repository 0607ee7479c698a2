"""The scalar expression of a tensor's element at an index, the basis of fusion.

An `Expressions` object collects the buffer accesses of one kernel. Each read, index, scalar argument and row value
becomes a placeholder node, and stage bodies are functions of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, Protocol

from livegrad.diagnostics import CompileError
from livegrad.ir.function import inline, make_function
from livegrad.ir.leaves import constant, constant_op, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Array, Scalar, Struct, Tensor, Tuple, Type, components, i64, shape_of
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import get, make, member
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import equal, greater_equal, less
from livegrad.ops.control import check, component_shape, map_
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import mod, select
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.ops.movement import iota, pad, sizes
from livegrad.ops.rules import zero
from livegrad.ops.sorting import searchsorted
from livegrad.ops.tape import unwritten
from livegrad.schedule.indexed_writes import Choice, choice_of, index_into_update
from livegrad.schedule.kernel import Source
from livegrad.schedule.plan import Buffer
from livegrad.schedule.views import Affine, Index, bounded, operand_index, shifted


class NotAligned(Exception):
    """A value of this kernel is needed at another point than where it is computed: it must be stored first."""


class Memory(Protocol):
    """Which values lie in memory, and where."""

    def get(self, node: Node, /) -> Buffer | None: ...


class _Point(NamedTuple):
    """An index, and the elements that are known there."""

    element_index: tuple[Index, ...]
    elements: dict[Node, Node]


@dataclass
class Expressions:
    """Scalar expressions for one kernel.

    `stored` holds what other steps have computed; `rows` what this kernel keeps for a row, by node, with the index at
    which it is available.
    """

    stored: Memory
    rank: int
    rows: dict[Node, tuple[tuple[Index, ...], int]] = field(default_factory=dict)
    reads: dict[tuple[Buffer, int, tuple[int, ...]], int] = field(default_factory=dict)
    indexed_buffers: dict[Buffer, int] = field(default_factory=dict)
    scalar_arguments: dict[tuple[Buffer, int], int] = field(default_factory=dict)
    neighbours: dict[tuple[Buffer, int], None] = field(default_factory=dict)  # by index, one behind another along
    placeholders: dict[Node, Source] = field(default_factory=dict)
    _points: dict[tuple[Index, ...], _Point] = field(default_factory=dict)
    _maps: dict[tuple[Node, tuple[Index, ...]], tuple[Node, ...]] = field(default_factory=dict)
    _scalars: dict[Node, Node] = field(default_factory=dict)
    _sources: dict[Source, Node] = field(default_factory=dict)

    # --- placeholders ---

    def placeholder(self, source: Source, type: Type) -> Node:
        node = self._sources.get(source)
        if node is None:
            with originating_from(()):
                node = input_node(Key(f"{source.kind}{source.number}"), type)
            self._sources[source] = node
            self.placeholders[node] = source
        return node

    def index(self, axis: int) -> Node:
        return self.placeholder(Source("index", axis), i64)

    def read(self, buffer: Buffer, index: tuple[Index, ...]) -> Node:
        """The buffer's element at an index: by stride where the index is affine, by lookup where it is computed."""
        if _is_loose(index):
            return lookup_or(
                self.indexed_buffer(buffer), zero(buffer.element), *(self.position(item) for item in index)
            )
        offset, strides = 0, [0] * self.rank
        for item, stride in zip(index, buffer.strides, strict=True):
            if not isinstance(item, Affine):
                return lookup(self.indexed_buffer(buffer), *map(self.position, index))
            offset += item.start * stride
            if item.axis is not None:
                strides[item.axis] += item.step * stride
        if not any(strides):
            number = self.scalar_arguments.setdefault((buffer, offset), len(self.scalar_arguments))
            return self.placeholder(Source("scalar", number), buffer.element)
        number = self.reads.setdefault((buffer, offset, tuple(strides)), len(self.reads))
        return self.placeholder(Source("read", number), buffer.element)

    def indexed_buffer(self, buffer: Buffer) -> Node:
        number = self.indexed_buffers.setdefault(buffer, len(self.indexed_buffers))
        return self.placeholder(Source("indexed", number), Tensor(buffer.element, buffer.shape))

    def position(self, item: Index) -> Node:
        """An index as a value."""
        if isinstance(item, Node):
            return item
        start = constant(item.start, i64)
        if item.axis is None:
            return start
        along = self.index(item.axis)
        if item.step != 1:
            along = along * item.step
        return along if item.start == 0 else along + item.start

    def exchange_buffers(self, other: Callable[[Buffer], Buffer]) -> bool:
        """Reads other memory of the same shapes; False if two buffers that were distinct would become one."""
        before = len(self.reads), len(self.scalar_arguments), len(self.indexed_buffers)
        self.reads = {(other(b), offset, strides): number for (b, offset, strides), number in self.reads.items()}
        self.scalar_arguments = {(other(b), offset): number for (b, offset), number in self.scalar_arguments.items()}
        self.indexed_buffers = {other(b): number for b, number in self.indexed_buffers.items()}
        return before == (len(self.reads), len(self.scalar_arguments), len(self.indexed_buffers))

    # --- elements ---

    def element(self, node: Node, index: tuple[Index, ...]) -> Node:
        """The scalar that a tensor node has at an index."""
        at = self._point(index)
        pending: list[tuple[Node, _Point, list[tuple[Node, _Point]] | None]] = [(node, at, None)]
        while pending:
            current, point, needed = pending.pop()
            if needed is not None:  # all of it is known by now
                operands = [below.elements[operand] for operand, below in needed]
                point.elements[current] = self._build(current, operands, point.element_index)
            elif current not in point.elements:
                leaf = self._leaf(current, point.element_index)
                if leaf is None:
                    if current.op.checked and _is_loose(point.element_index):
                        raise NotAligned  # outside of the border it may fail although its value is not used
                    needed = self._needs(current, point)
                    pending.append((current, point, needed))
                    pending += [(operand, below, None) for operand, below in needed]
                else:
                    point.elements[current] = leaf
        return at.elements[node]

    def _point(self, index: tuple[Index, ...]) -> _Point:
        point = self._points.get(index)
        if point is None:
            point = self._points[index] = _Point(index, {})
        return point

    def _leaf(self, node: Node, index: tuple[Index, ...]) -> Node | None:
        """What needs nothing below it: stored tensors, row values, scalars, counts."""
        if not isinstance(node.type, Tensor):
            return self.scalar(node)
        if node in self.rows:
            available, slot = self.rows[node]
            if len(index) != len(available):
                raise NotAligned  # a point takes several elements of the row
            # A dimension of one has only one index, however it is written.
            compared = zip(index, available, shape_of(node.type), strict=True)
            if any(at != stored and size != 1 for at, stored, size in compared):
                raise NotAligned
            return self.placeholder(Source("row", slot), node.type.element)
        buffer = self.stored.get(node)
        if buffer is not None:
            return self.read(buffer, index)
        if node.op is iota:
            along = self.position(index[node.attribute("axis")])
            return along if node.type.element is i64 else cast(along, type=node.type.element)
        if node.op is unwritten:
            return zero(node.type.element)
        if node.op is map_ or (node.op is get and node.operands[0].op is map_):
            return self._mapped(node, index)
        return None

    def _needs(self, node: Node, point: _Point) -> list[tuple[Node, _Point]]:
        if node.op.elementwise:
            nowhere = self._point(())
            return [(operand, point if isinstance(operand.type, Tensor) else nowhere) for operand in node.operands]
        if node.op in (lookup, lookup_or, searchsorted):
            return [(operand, point) for operand in node.operands[1:]]
        choice = choice_of(node)
        if choice is not None:
            base, updates, *indices = node.operands
            update_index = index_into_update(node, choice, point.element_index)
            if update_index is None:
                raise NotAligned
            at = self._point(update_index)
            return [(base, point), (updates, at), *((indices[d], at) for d in choice.chosen)]
        if node.op is pad:
            source, fill = node.operands
            behind, nowhere = self._behind_border(node, point.element_index), self._point(())
            return [(fill, nowhere)] if behind is None else [(source, self._point(behind)), (fill, nowhere)]
        moved = operand_index(node, point.element_index)
        if moved is None:
            raise CompileError(f"`{node.op.name}` cannot be part of a kernel", where=node.origin)
        return [(node.operands[0], self._point(moved))]

    def _build(self, node: Node, operands: list[Node], index: tuple[Index, ...]) -> Node:
        if node.op.elementwise:
            with originating_from(node.origins):
                return make_node(node.op, tuple(operands), node.attributes)
        if node.op is lookup:
            with originating_from(node.origins):
                return self.lookup_in(node.operands[0], operands)
        if node.op in (lookup_or, searchsorted):
            with originating_from(node.origins):
                return make_node(node.op, (self.shared_value(node.operands[0]), *operands), node.attributes)
        choice = choice_of(node)
        if choice is not None:
            with originating_from(node.origins):
                return self._chosen(node, choice, operands, index)
        if node.op is pad:
            return self._padded(node, operands, index)
        return operands[0]

    def _behind_border(self, node: Node, index: tuple[Index, ...]) -> tuple[Index, ...] | None:
        """The index into what a pad surrounds, loose where it may lie in the border; None where it surely does."""
        behind: list[Index] = []
        lows, highs = node.attribute("low"), node.attribute("high")
        for item, low, high, size in zip(index, lows, highs, sizes(node.operands[0]), strict=True):
            moved = shifted(item, -low, 1)
            if isinstance(moved, Affine) and (low or high):
                moved = bounded(moved, size)
                if moved is None:
                    return None
            behind.append(moved)
        return tuple(behind)

    def _padded(self, node: Node, operands: list[Node], index: tuple[Index, ...]) -> Node:
        """The padded tensor inside, or the padding value in the border."""
        behind = self._behind_border(node, index)
        if behind is None:
            return operands[0]
        (source, _), (value, fill) = node.operands, operands
        positions = [self.position(item) for item in behind]
        if value.op is lookup_or and value.operands[2:] == tuple(positions):
            # The read checks the bounds of its buffer, which are the source's only where the source is all of it.
            memory = value.operands[0]
            if shape_of(memory.type) == shape_of(source.type):
                return lookup_or(memory, fill, *positions)
        inside: Node | None = None
        for position, size, low, high in zip(
            positions, shape_of(source.type), node.attribute("low"), node.attribute("high"), strict=True
        ):
            if low or high:
                here = greater_equal(position, 0) & less(position, size)
                inside = here if inside is None else inside & here
        return value if inside is None else select(inside, value, fill)

    def _chosen(self, node: Node, choice: Choice, operands: list[Node], index: tuple[Index, ...]) -> Node:
        """An element after a write: the written value if all indices match, else the old value."""
        before, value, *chosen_indices = operands
        meant: Node | None = None
        for dimension, chosen_index in zip(choice.chosen, chosen_indices, strict=True):
            wide = chosen_index if chosen_index.type is i64 else cast(chosen_index, type=i64)
            if constant_integer(wide) is None:
                size = constant(shape_of(node.type)[dimension], i64)
                inside = greater_equal(wide, 0) & less(wide, size)
                wide = check(wide, inside, message=f"index out of range for axis {dimension}")
            here = equal(wide, self.position(index[dimension]))
            meant = here if meant is None else meant & here
        for here in self._inside(node, choice, index):
            meant = here if meant is None else meant & here
        after = value if node.op is assign else before + value
        return after if meant is None else select(meant, after, before)

    def _inside(self, node: Node, choice: Choice, index: tuple[Index, ...]) -> Iterator[Node]:
        """The conditions for an element to be in the region that a write covers."""
        moves = zip(choice.moved_by, choice.starts, choice.steps, shape_of(node.operands[1].type), strict=True)
        for dimension, start, step, extent in moves:
            if dimension is not None and extent != shape_of(node.type)[dimension]:
                along = self.position(index[dimension])
                yield greater_equal(along, start) & less(along, start + (extent - 1) * step + 1)
                if step != 1:
                    yield equal(mod(along - start, step), 0)

    def lookup_in(self, tensor: Node, indices: list[Node]) -> Node:
        buffer = self.stored.get(tensor)
        if buffer is None:
            raise NotAligned
        if all(index.op is constant_op for index in indices):
            fixed = tuple(Affine(None, index.attribute("value"), 0) for index in indices)
            if all(0 <= i.start < size for i, size in zip(fixed, buffer.shape, strict=True)):
                return self.read(buffer, fixed)
        last = self.placeholders.get(indices[-1]) if indices else None
        if last is not None and last.kind == "index":
            self.neighbours.setdefault((buffer, last.number))
        return lookup(self.indexed_buffer(buffer), *indices)

    # --- scalars of the function itself ---

    def scalar(self, root: Node) -> Node:
        """A value that is not a tensor, as an expression over scalar arguments."""
        scalars = self._scalars
        if root in scalars:
            return scalars[root]
        for node in toposort([root], stop=self._ends_scalars):
            if node in scalars:
                continue
            buffer = self.stored.get(node)
            if isinstance(node.type, Tensor):
                # Only its elements are used where it is not stored, by lookups that fetch them on their own.
                scalars[node] = node if buffer is None else self.indexed_buffer(buffer)
            elif buffer is not None:
                scalars[node] = self._stored_value(node.type, buffer)
            elif not node.operands:
                scalars[node] = node
            else:
                with originating_from(node.origins):
                    operands = [scalars[operand] for operand in node.operands]
                    if node.op is lookup:
                        scalars[node] = self._scalar_lookup(node.operands[0], operands[1:])
                    elif any(isinstance(o.type, Tensor) and self.stored.get(o) is None for o in node.operands):
                        raise NotAligned  # a branch or loop reads memory that this kernel has not written yet
                    else:
                        scalars[node] = make_node(node.op, tuple(operands), node.attributes)
        return scalars[root]

    def _ends_scalars(self, node: Node) -> bool:
        return node in self._scalars or isinstance(node.type, Tensor) or self.stored.get(node) is not None

    def keep_scalar(self, node: Node, slots: list[int], types: list[Scalar]) -> None:
        """A scalar, vector or matrix that the kernel has for the row."""
        parts = [self.placeholder(Source("row", slot), type) for slot, type in zip(slots, types, strict=True)]
        self._scalars[node] = parts[0] if isinstance(node.type, Scalar) else make(*parts, type=node.type)

    def _stored_value(self, type: Type, buffer: Buffer) -> Node:
        """A scalar, vector or matrix that lies in memory."""
        if isinstance(type, Scalar):
            return self.read(buffer, ())
        multi_indices = product(*map(range, buffer.shape))
        parts = [self.read(buffer, tuple(Affine(None, i, 0) for i in multi_index)) for multi_index in multi_indices]
        return make(*parts, type=type)

    def _scalar_lookup(self, tensor: Node, indices: list[Node]) -> Node:
        """The only element of a tensor is a plain read; other elements are reads by index."""
        if not indices and tensor in self.rows:
            available, slot = self.rows[tensor]
            if available != ():
                raise NotAligned
            assert isinstance(tensor.type, Tensor)
            return self.placeholder(Source("row", slot), tensor.type.element)
        return self.lookup_in(tensor, indices)

    # --- maps ---

    def _mapped(self, node: Node, index: tuple[Index, ...]) -> Node:
        """An element of a map's result: the function's value at that point, or the requested component."""
        source, number = (node, 0) if node.op is map_ else (node.operands[0], node.attribute("index"))
        function: Function = source.attribute("function")
        shape = component_shape(function.result_types[number])
        if shape is None or source.attribute("summed")[number]:
            raise NotAligned
        depth = len(index) - len(shape)
        value = self.map_results(source, index[:depth])[number]
        trailing = index[depth:]
        if not shape:
            return value
        position = 0
        for item, size in zip(trailing, shape, strict=True):
            if not isinstance(item, Affine) or item.axis is not None or item.loose:
                raise NotAligned
            position = position * size + item.start
        return member(value, position)

    def map_results(self, node: Node, index: tuple[Index, ...]) -> tuple[Node, ...]:
        """All results of a map's function at one point, cached because each result is requested separately."""
        if (node, index) in self._maps:
            return self._maps[node, index]
        if _is_loose(index):
            raise NotAligned
        function: Function = node.attribute("function")
        arguments = [
            self.point_value(operand, parameter_type, index) if flag else self.shared_value(operand)
            for operand, parameter_type, flag in zip(
                node.operands, function.parameter_types, node.attribute("lifted"), strict=True
            )
        ]
        results = self._maps[node, index] = inline(function, arguments)
        return results

    def shared_value(self, operand: Node) -> Node:
        """What all points have in common; a tensor must lie in memory, for the points read it where they like."""
        if isinstance(operand.type, Tensor) and self.stored.get(operand) is None:
            raise NotAligned
        return self.scalar(operand)

    def point_value(self, operand: Node, type: Type, index: tuple[Index, ...]) -> Node:
        """The value of `type` that an operand with one value a point has at a point."""
        if isinstance(type, Scalar):
            return self.element(operand, index)
        shape = component_shape(type)
        if shape is None:
            assert isinstance(type, Struct | Tuple | Array)
            parts = [
                self.point_value(member(operand, i), part_type, index) for i, part_type in enumerate(components(type))
            ]
            return make(*parts, type=type)
        sizes = shape_of(operand.type)[len(index) :]
        parts = [
            self.element(operand, (*index, *(Affine(None, i, 0) for i in _unravel(position, sizes))))
            for position in range(len(components(type)))
        ]
        return make(*parts, type=type)

    # --- stages ---

    def stage_function(
        self, name: str, results: list[Node], first: tuple[Node, ...] = ()
    ) -> tuple[Function, tuple[Source, ...]]:
        """A stage's body and the sources of its arguments; the parameters in `first` precede these."""
        used = [node for node in toposort(results) if node in self.placeholders]
        sources = tuple(self.placeholders[node] for node in used)
        return make_function(name, [*first, *used], results), sources


def _is_loose(index: tuple[Index, ...]) -> bool:
    """Whether an index may be out of bounds."""
    return any(isinstance(item, Affine) and item.loose for item in index)


def _unravel(position: int, sizes: tuple[object, ...]) -> tuple[int, ...]:
    result = []
    for size in reversed(sizes):
        position, rest = divmod(position, size)  # type: ignore[operator]
        result.append(rest)
    return tuple(reversed(result))
