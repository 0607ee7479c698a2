"""Builds the scalar expression of a tensor's element at an index, the basis of fusion.

An `Expressions` object collects the buffer accesses of one kernel. Each read, index, scalar argument and row value
becomes a placeholder node, and the stage bodies are functions of these placeholders.
"""

from __future__ import annotations

from collections.abc import Callable
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
from livegrad.ops.conversion import cast
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.ops.maps import component_shape, map_
from livegrad.ops.movement import concatenate, iota, pad
from livegrad.ops.rules import zero
from livegrad.ops.sorting import searchsorted
from livegrad.ops.tape import unwritten
from livegrad.schedule.chosen_elements import (
    pad_source_index,
    part_indices,
    select_padding,
    select_part,
    select_written,
)
from livegrad.schedule.indexed_writes import as_element_select, index_into_update
from livegrad.schedule.kernel import Source
from livegrad.schedule.plan import Buffer
from livegrad.schedule.views import Affine, Index, operand_index


class NotAligned(Exception):
    """A kernel needs one of its values at another point than the one that computes it, so the value must be stored."""


class Memory(Protocol):
    """The values that are stored, with their buffers."""

    def get(self, node: Node, /) -> Buffer | None: ...


class _Point(NamedTuple):
    """An index, and the elements that were built for it."""

    element_index: tuple[Index, ...]
    elements: dict[Node, Node]


@dataclass
class Expressions:
    """Scalar expressions for one kernel.

    `stored` has the values that other steps computed. `rows` has the row values of this kernel: by node, the index at
    which the value is available, and its slot.
    """

    stored: Memory
    rank: int
    rows: dict[Node, tuple[tuple[Index, ...], int]] = field(default_factory=dict)
    reads: dict[tuple[Buffer, int, tuple[int, ...]], int] = field(default_factory=dict)
    indexed_buffers: dict[Buffer, int] = field(default_factory=dict)
    scalar_arguments: dict[tuple[Buffer, int], int] = field(default_factory=dict)
    contiguous_lookups: dict[tuple[Buffer, int], None] = field(default_factory=dict)  # (buffer, contiguous axis)
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
        """Reads an element of a buffer: a strided access if the index is affine, else a lookup."""
        if _may_exceed(index):
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
            argument = self.scalar_arguments.setdefault((buffer, offset), len(self.scalar_arguments))
            return self.placeholder(Source("scalar", argument), buffer.element)
        read = self.reads.setdefault((buffer, offset, tuple(strides)), len(self.reads))
        return self.placeholder(Source("read", read), buffer.element)

    def indexed_buffer(self, buffer: Buffer) -> Node:
        number = self.indexed_buffers.setdefault(buffer, len(self.indexed_buffers))
        return self.placeholder(Source("indexed", number), Tensor(buffer.element, buffer.shape))

    def position(self, item: Index) -> Node:
        """The value of an index as an i64 node."""
        if isinstance(item, Node):
            return item
        start = constant(item.start, i64)
        if item.axis is None:
            return start
        index = self.index(item.axis)
        if item.step != 1:
            index = index * item.step
        return index if item.start == 0 else index + item.start

    def replace_buffers(self, replace: Callable[[Buffer], Buffer]) -> bool:
        """Replaces buffers by others of the same shape; False if two distinct buffers become one."""
        before = len(self.reads), len(self.scalar_arguments), len(self.indexed_buffers)
        self.reads = {(replace(b), offset, strides): read for (b, offset, strides), read in self.reads.items()}
        self.scalar_arguments = {(replace(b), offset): index for (b, offset), index in self.scalar_arguments.items()}
        self.indexed_buffers = {replace(b): index for b, index in self.indexed_buffers.items()}
        return before == (len(self.reads), len(self.scalar_arguments), len(self.indexed_buffers))

    # --- elements ---

    def element(self, node: Node, index: tuple[Index, ...]) -> Node:
        """The scalar expression of a tensor's element at an index."""
        at = self._point(index)
        pending: list[tuple[Node, _Point, list[tuple[Node, _Point]] | None]] = [(node, at, None)]
        while pending:
            current, point, needed = pending.pop()
            if needed is not None:  # all dependencies have been built
                operands = [below.elements[operand] for operand, below in needed]
                point.elements[current] = self._build(current, operands, point.element_index)
            elif current not in point.elements:
                leaf = self._leaf(current, point.element_index)
                if leaf is None:
                    if current.op.checked and _may_exceed(point.element_index):
                        raise NotAligned  # the op could fail out of bounds, where its value is not used
                    needed = self._dependencies(current, point)
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
        """The expression of a node without dependencies: stored tensors, row values, scalars, iota; None for others."""
        if not isinstance(node.type, Tensor):
            return self.scalar(node)
        if node in self.rows:
            available, slot = self.rows[node]
            if len(index) != len(available):
                raise NotAligned  # a point uses several elements of the row
            # Indices into a dimension of 1 are always equal.
            compared = zip(index, available, shape_of(node.type), strict=True)
            if any(at != stored and size != 1 for at, stored, size in compared):
                raise NotAligned
            return self.placeholder(Source("row", slot), node.type.element)
        buffer = self.stored.get(node)
        if buffer is not None:
            return self.read(buffer, index)
        if node.op is iota:
            coordinate = self.position(index[node.attribute("axis")])
            return coordinate if node.type.element is i64 else cast(coordinate, type=node.type.element)
        if node.op is unwritten:
            return zero(node.type.element)
        if node.op is map_ or (node.op is get and node.operands[0].op is map_):
            return self._map_element(node, index)
        return None

    def _dependencies(self, node: Node, point: _Point) -> list[tuple[Node, _Point]]:
        """The operands that an element depends on, each with the point at which it is needed."""
        if node.op.elementwise:
            scalar_point = self._point(())
            return [(operand, point if isinstance(operand.type, Tensor) else scalar_point) for operand in node.operands]
        if node.op in (lookup, lookup_or, searchsorted):
            return [(operand, point) for operand in node.operands[1:]]
        choice = as_element_select(node)
        if choice is not None:
            base, updates, *indices = node.operands
            update_index = index_into_update(node, choice, point.element_index)
            if update_index is None:
                raise NotAligned
            at = self._point(update_index)
            return [(base, point), (updates, at), *((indices[d], at) for d in choice.indexed_dimensions)]
        if node.op is pad:
            source, fill = node.operands
            source_index, scalar_point = pad_source_index(node, point.element_index), self._point(())
            from_source = [] if source_index is None else [(source, self._point(source_index))]
            return [*from_source, (fill, scalar_point)]
        if node.op is concatenate:
            parts = zip(node.operands, part_indices(node, point.element_index), strict=True)
            return [(part, self._point(at)) for part, at in parts if at is not None]
        index = operand_index(node, point.element_index)
        if index is None:
            raise CompileError(f"`{node.op.name}` cannot be part of a kernel", where=node.origin)
        return [(node.operands[0], self._point(index))]

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
        choice = as_element_select(node)
        if choice is not None:
            with originating_from(node.origins):
                return select_written(node, choice, operands, index, self.position)
        if node.op is pad:
            return select_padding(node, operands, index, self.position)
        if node.op is concatenate:
            return select_part(node, operands, index, self.position)
        return operands[0]

    def lookup_in(self, tensor: Node, indices: list[Node]) -> Node:
        """Reads a stored tensor by index; constant indices in bounds become a strided read."""
        buffer = self.stored.get(tensor)
        if buffer is None:
            raise NotAligned
        if all(index.op is constant_op for index in indices):
            constant_index = tuple(Affine(None, index.attribute("value"), 0) for index in indices)
            if all(0 <= i.start < size for i, size in zip(constant_index, buffer.shape, strict=True)):
                return self.read(buffer, constant_index)
        last = self.placeholders.get(indices[-1]) if indices else None
        if last is not None and last.kind == "index":
            self.contiguous_lookups.setdefault((buffer, last.number))
        return lookup(self.indexed_buffer(buffer), *indices)

    # --- scalars of the function itself ---

    def scalar(self, root: Node) -> Node:
        """The expression of a value that is not a tensor, over scalar arguments."""
        scalars = self._scalars
        if root in scalars:
            return scalars[root]
        for node in toposort([root], stop=self._stops_scalars):
            if node in scalars:
                continue
            buffer = self.stored.get(node)
            if isinstance(node.type, Tensor):
                # A tensor that is not stored is used only by lookups, which build the elements they need.
                scalars[node] = node if buffer is None else self.indexed_buffer(buffer)
            elif buffer is not None:
                scalars[node] = self._read_stored(node.type, buffer)
            elif not node.operands:
                scalars[node] = node
            else:
                with originating_from(node.origins):
                    operands = [scalars[operand] for operand in node.operands]
                    if node.op is lookup:
                        scalars[node] = self._scalar_lookup(node.operands[0], operands[1:])
                    elif any(isinstance(o.type, Tensor) and self.stored.get(o) is None for o in node.operands):
                        raise NotAligned  # a branch or loop would read memory that this kernel has not written yet
                    else:
                        scalars[node] = make_node(node.op, tuple(operands), node.attributes)
        return scalars[root]

    def _stops_scalars(self, node: Node) -> bool:
        return node in self._scalars or isinstance(node.type, Tensor) or self.stored.get(node) is not None

    def keep_scalar(self, node: Node, slots: list[int], types: list[Scalar]) -> None:
        """Makes a scalar, vector or matrix available to the rest of the row."""
        parts = [self.placeholder(Source("row", slot), type) for slot, type in zip(slots, types, strict=True)]
        self._scalars[node] = parts[0] if isinstance(node.type, Scalar) else make(*parts, type=node.type)

    def _read_stored(self, type: Type, buffer: Buffer) -> Node:
        """Reads a scalar, vector or matrix from memory."""
        if isinstance(type, Scalar):
            return self.read(buffer, ())
        multi_indices = product(*map(range, buffer.shape))
        parts = [self.read(buffer, tuple(Affine(None, i, 0) for i in multi_index)) for multi_index in multi_indices]
        return make(*parts, type=type)

    def _scalar_lookup(self, tensor: Node, indices: list[Node]) -> Node:
        """Reads an element of a tensor. The element of a tensor of rank 0 may be a row value."""
        if not indices and tensor in self.rows:
            available, slot = self.rows[tensor]
            if available != ():
                raise NotAligned
            assert isinstance(tensor.type, Tensor)
            return self.placeholder(Source("row", slot), tensor.type.element)
        return self.lookup_in(tensor, indices)

    # --- maps ---

    def _map_element(self, node: Node, index: tuple[Index, ...]) -> Node:
        """An element of a map's result: the function's value at that point, or the requested component."""
        source, result_index = (node, 0) if node.op is map_ else (node.operands[0], node.attribute("index"))
        function: Function = source.attribute("function")
        shape = component_shape(function.result_types[result_index])
        if shape is None or source.attribute("summed")[result_index]:
            raise NotAligned
        depth = len(index) - len(shape)
        value = self.map_results(source, index[:depth])[result_index]
        trailing = index[depth:]
        if not shape:
            return value
        position = 0
        for item, size in zip(trailing, shape, strict=True):
            if not isinstance(item, Affine) or item.axis is not None or item.may_exceed:
                raise NotAligned
            position = position * size + item.start
        return member(value, position)

    def map_results(self, node: Node, index: tuple[Index, ...]) -> tuple[Node, ...]:
        """All results of a map's function at one point; cached, because each result is requested separately."""
        if (node, index) in self._maps:
            return self._maps[node, index]
        if _may_exceed(index):
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
        """The value of an operand that all points share. A tensor must be stored: points may read any element."""
        if isinstance(operand.type, Tensor) and self.stored.get(operand) is None:
            raise NotAligned
        return self.scalar(operand)

    def point_value(self, operand: Node, type: Type, index: tuple[Index, ...]) -> Node:
        """The value of `type` at a point, from an operand with one value per point."""
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
        """Builds a stage's body and the sources of its arguments, which follow the parameters in `first`."""
        placeholders = [node for node in toposort(results) if node in self.placeholders]
        sources = tuple(self.placeholders[node] for node in placeholders)
        return make_function(name, [*first, *placeholders], results), sources


def _may_exceed(index: tuple[Index, ...]) -> bool:
    """Whether an index may be out of bounds."""
    return any(isinstance(item, Affine) and item.may_exceed for item in index)


def _unravel(position: int, sizes: tuple[object, ...]) -> tuple[int, ...]:
    result = []
    for size in reversed(sizes):
        position, rest = divmod(position, size)  # type: ignore[operator]
        result.append(rest)
    return tuple(reversed(result))
