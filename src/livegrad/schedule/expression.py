"""The scalar expression of a tensor's element at an index: what fusion is made of.

An `Expressions` object collects, for one kernel, which buffers are read where; each read, index, uniform and row value
becomes a placeholder node, and stage bodies are functions of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from livegrad.diagnostics import CompileError
from livegrad.ir.function import inline, make_function
from livegrad.ir.leaves import constant, constant_op, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.origins import originating_from
from livegrad.ir.types import Array, Scalar, Struct, Tensor, Tuple, Type, components, i64, shape_of
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import component_shape, map_
from livegrad.ops.conversion import cast
from livegrad.ops.indexing import lookup
from livegrad.schedule.kernel import Source
from livegrad.schedule.plan import Buffer
from livegrad.schedule.views import Affine, Index, operand_index


class NotAligned(Exception):
    """A value of this kernel is needed at another point than where it is computed: it must be stored first."""


@dataclass
class Expressions:
    """Scalar expressions for one kernel.

    `stored` holds what other steps have computed; `rows` what this kernel keeps for a row, by node, with the index at
    which it is available.
    """

    stored: Mapping[Node, Buffer]
    rank: int
    rows: dict[Node, tuple[tuple[Index, ...], int]] = field(default_factory=dict)
    reads: dict[tuple[Buffer, int, tuple[int, ...]], int] = field(default_factory=dict)
    wholes: dict[Buffer, int] = field(default_factory=dict)
    uniforms: dict[tuple[Buffer, int], int] = field(default_factory=dict)
    placeholders: dict[Node, Source] = field(default_factory=dict)
    kept: dict[tuple[Node, tuple[Index, ...]], Node] = field(
        default_factory=dict
    )  # what a stage before left in scratch
    _known: dict[tuple[Node, tuple[Index, ...]], Node] = field(default_factory=dict)
    _maps: dict[tuple[Node, tuple[Index, ...]], tuple[Node, ...]] = field(default_factory=dict)
    _scalars: dict[Node, Node] = field(default_factory=dict)
    _sources: dict[Source, Node] = field(default_factory=dict)

    # --- placeholders ---

    def placeholder(self, source: Source, type: Type) -> Node:
        if source not in self._sources:
            with originating_from(()):
                node = input_node(Key(f"{source.kind}{source.number}"), type)
            self._sources[source] = node
            self.placeholders[node] = source
        return self._sources[source]

    def index(self, axis: int) -> Node:
        return self.placeholder(Source("index", axis), i64)

    def read(self, buffer: Buffer, index: tuple[Index, ...]) -> Node:
        """The buffer's element at an index: by stride where the index is affine, by lookup where it is computed."""
        if all(isinstance(item, Affine) for item in index):
            offset, strides = 0, [0] * self.rank
            for item, stride in zip(index, buffer.strides, strict=True):
                assert isinstance(item, Affine)
                offset += item.start * stride
                if item.axis is not None:
                    strides[item.axis] += item.step * stride
            if not any(strides):
                number = self.uniforms.setdefault((buffer, offset), len(self.uniforms))
                return self.placeholder(Source("uniform", number), buffer.element)
            number = self.reads.setdefault((buffer, offset, tuple(strides)), len(self.reads))
            return self.placeholder(Source("read", number), buffer.element)
        return lookup(self.whole(buffer), *(self.position(item) for item in index))

    def whole(self, buffer: Buffer) -> Node:
        number = self.wholes.setdefault(buffer, len(self.wholes))
        return self.placeholder(Source("whole", number), Tensor(buffer.element, buffer.shape))

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

    # --- elements ---

    def element(self, node: Node, index: tuple[Index, ...]) -> Node:
        """The scalar that a tensor node has at an index."""
        pending: list[tuple[Node, tuple[Index, ...]]] = [(node, index)]
        while pending:
            current = pending[-1]
            if current in self._known:
                pending.pop()
                continue
            found = self._leaf(*current)
            if found is not None:
                self._known[current] = found
                pending.pop()
                continue
            needed = self._needs(*current)
            waiting = [item for item in needed if item not in self._known]
            if waiting:
                pending.extend(waiting)
                continue
            with originating_from(current[0].origins):
                self._known[current] = self._build(*current, [self._known[item] for item in needed])
            pending.pop()
        return self._known[node, index]

    def _leaf(self, node: Node, index: tuple[Index, ...]) -> Node | None:
        """What needs nothing below it: stored tensors, row values, scalars, counts."""
        if not isinstance(node.type, Tensor):
            return self.scalar(node)
        if node in self.rows:
            available, slot = self.rows[node]
            # Along a dimension of one there is only one place, however it is written.
            places = zip(index, available, shape_of(node.type), strict=True)
            if any(at != own and size != 1 for at, own, size in places):
                raise NotAligned
            return self.placeholder(Source("row", slot), node.type.element)
        if node in self.stored:
            return self.read(self.stored[node], index)
        if node.op.name == "iota":
            along = self.position(index[node.attribute("axis")])
            return along if node.type.element is i64 else cast(along, type=node.type.element)
        if node.op is map_ or (node.op.name == "get" and node.operands[0].op is map_):
            return self._mapped(node, index)
        return None

    def _needs(self, node: Node, index: tuple[Index, ...]) -> list[tuple[Node, tuple[Index, ...]]]:
        moved = operand_index(node, index)
        if moved is not None:
            return [(node.operands[0], moved)]
        if node.op.elementwise:
            return [(operand, index if isinstance(operand.type, Tensor) else ()) for operand in node.operands]
        if node.op is lookup:
            return [(operand, index) for operand in node.operands[1:]]
        raise CompileError(f"`{node.op.name}` cannot be part of a kernel", where=node.origin)

    def _build(self, node: Node, index: tuple[Index, ...], operands: list[Node]) -> Node:
        if operand_index(node, index) is not None:
            return operands[0]
        if node.op is lookup:
            return self.lookup_in(node.operands[0], operands)
        return make_node(node.op, tuple(operands), node.attributes)

    def lookup_in(self, tensor: Node, indices: list[Node]) -> Node:
        if tensor not in self.stored:
            raise NotAligned
        buffer = self.stored[tensor]
        if all(index.op is constant_op for index in indices):
            fixed = tuple(Affine(None, index.attribute("value"), 0) for index in indices)
            if all(0 <= i.start < size for i, size in zip(fixed, buffer.shape, strict=True)):
                return self.read(buffer, fixed)
        return lookup(self.whole(buffer), *indices)

    # --- scalars of the function itself ---

    def scalar(self, root: Node) -> Node:
        """A value that is no tensor: its own expression over uniforms."""
        known = self._scalars
        for node in toposort([root], stop=lambda n: n in known or n in self.stored or isinstance(n.type, Tensor)):
            if node in known:
                continue
            if isinstance(node.type, Tensor):
                known[node] = self._tensor_argument(node)
            elif node in self.stored:
                known[node] = self._stored_value(node)
            elif node.op is lookup:
                with originating_from(node.origins):
                    indices = [known[operand] for operand in node.operands[1:]]
                    known[node] = self._scalar_lookup(node.operands[0], indices)
            else:
                with originating_from(node.origins):
                    operands = tuple(known[operand] for operand in node.operands)
                    known[node] = make_node(node.op, operands, node.attributes)
        return known[root]

    def keep_scalar(self, node: Node, slots: list[int], types: list[Scalar]) -> None:
        """A scalar, vector or matrix that the kernel has for the row."""
        parts = [self.placeholder(Source("row", slot), type) for slot, type in zip(slots, types, strict=True)]
        self._scalars[node] = parts[0] if isinstance(node.type, Scalar) else make(*parts, type=node.type)

    def _stored_value(self, node: Node) -> Node:
        """A scalar, vector or matrix that lies in memory."""
        buffer = self.stored[node]
        if isinstance(node.type, Scalar):
            return self.read(buffer, ())
        places = product(*map(range, buffer.shape))
        parts = [self.read(buffer, tuple(Affine(None, i, 0) for i in place)) for place in places]
        return make(*parts, type=node.type)

    def _scalar_lookup(self, tensor: Node, indices: list[Node]) -> Node:
        """A tensor's single element is read where it stands; any other by index."""
        if not indices and tensor in self.rows:
            available, slot = self.rows[tensor]
            if available != ():
                raise NotAligned
            assert isinstance(tensor.type, Tensor)
            return self.placeholder(Source("row", slot), tensor.type.element)
        return self.lookup_in(tensor, indices)

    def _tensor_argument(self, node: Node) -> Node:
        if node not in self.stored:
            # Only its elements are used, by lookups that fetch them on their own.
            return node
        return self.whole(self.stored[node])

    # --- maps ---

    def _mapped(self, node: Node, index: tuple[Index, ...]) -> Node:
        """An element of a map's result: the function's value at that point, or the component that is asked for."""
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
            if not isinstance(item, Affine) or item.axis is not None:
                raise NotAligned
            position = position * size + item.start
        return member(value, position)

    def map_results(self, node: Node, index: tuple[Index, ...]) -> tuple[Node, ...]:
        """All results of a map's function at one point; worked out once, for each result is asked for by itself."""
        if (node, index) in self._maps:
            return self._maps[node, index]
        function: Function = node.attribute("function")
        arguments = [
            self.point_value(operand, own, index) if flag else self.shared_value(operand)
            for operand, own, flag in zip(
                node.operands, function.parameter_types, node.attribute("lifted"), strict=True
            )
        ]
        results = self._maps[node, index] = inline(function, arguments)
        return results

    def shared_value(self, operand: Node) -> Node:
        """What all points have in common; a tensor must lie in memory, for the points read it where they like."""
        if isinstance(operand.type, Tensor) and operand not in self.stored:
            raise NotAligned
        return self.scalar(operand)

    def point_value(self, operand: Node, type: Type, index: tuple[Index, ...]) -> Node:
        """The value of `type` that an operand with one value a point has at a point."""
        if isinstance(type, Scalar):
            return self.element(operand, index)
        shape = component_shape(type)
        if shape is None:
            assert isinstance(type, Struct | Tuple | Array)
            parts = [self.point_value(member(operand, i), own, index) for i, own in enumerate(components(type))]
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
        """A stage's body and where its arguments come from; `first` are parameters that come before those."""
        used = [node for node in toposort(results) if node in self.placeholders]
        sources = tuple(self.placeholders[node] for node in used)
        return make_function(name, [*first, *used], results), sources


def _unravel(position: int, sizes: tuple[object, ...]) -> tuple[int, ...]:
    result = []
    for size in reversed(sizes):
        position, rest = divmod(position, int(size))  # type: ignore[call-overload]
        result.append(rest)
    return tuple(reversed(result))
