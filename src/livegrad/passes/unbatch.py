"""The inverse of `batch`: what a function over tensors of points computes at one point.

A point is an index into the dimensions of a domain, which follow each other in the shape of each tensor that has them.
Ops must not combine points; tensors from outside may be read at any index. Called by `interchange_point_loops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Tuple, Type, i64, inner_types, shape_of
from livegrad.ops.aggregate import get, make
from livegrad.ops.control import check
from livegrad.ops.conversion import cast
from livegrad.ops.indexing import lookup, lookup_or
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, concatenate, flip, iota, pad, permute, reshape, slice_
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.passes.interpreter import Interpreter

Shape = tuple[Any, ...]


class NotPointwise(Exception):
    """A function combines points, or computes something for which there is no rule."""


@dataclass(frozen=True)
class AtPoint:
    """A value at one point. `whole` is the tensor of all points, of a value from outside; it may be read by index."""

    at_point: Node
    whole: Node | None = None


PointValue = AtPoint | tuple["PointValue", ...]


class Unbatching(Interpreter[PointValue]):
    """Evaluates functions at the point that has these coordinates."""

    def __init__(self, domain: tuple[int, ...], coordinates: Sequence[Node]) -> None:
        self.domain, self.coordinates = domain, coordinates

    def block(self, type: Type) -> int | None:
        """Where the dimensions of the domain begin in the shape of a tensor; None if it has none."""
        shape, rank = shape_of(type), len(self.domain)
        starts = [start for start in range(len(shape) - rank + 1) if shape[start : start + rank] == self.domain]
        if len(starts) > 1:
            raise NotPointwise
        return starts[0] if starts else None

    def without(self, entries: Sequence[Any], start: int) -> tuple[Any, ...]:
        """The entries of the dimensions of a tensor, without those of the domain."""
        return (*entries[:start], *entries[start + len(self.domain) :])

    def inner_axis(self, axis: int, start: int | None) -> int:
        """The axis at one point of a tensor's axis outside of the domain."""
        if start is None or axis < start:
            return axis
        if axis < start + len(self.domain):
            raise NotPointwise
        return axis - len(self.domain)

    def type_at_point(self, type: Type) -> Type:
        start = self.block(type) if isinstance(type, Tensor) else None
        return type if start is None else Tensor(type.element, self.without(type.shape, start))  # type: ignore[union-attr]

    # --- hooks of the interpreter ---

    def rewrite_node(self, node: Node, operands: list[PointValue]) -> PointValue:
        if node.op is get and isinstance(operands[0], tuple):
            return operands[0][node.attribute("index")]
        if node.op is make and isinstance(node.type, Tuple):
            return tuple(operands)
        if not all(isinstance(operand, AtPoint) for operand in operands):
            raise NotPointwise
        values: list[AtPoint] = operands  # type: ignore[assignment]
        rule = RULES.get(node.op)
        if rule is not None:
            return AtPoint(rule(self, node, values))
        blocks = [self.block(x.type) for x in (node, *node.operands) if isinstance(x.type, Tensor)]
        same = node.op.elementwise or node.op is constant_op or all(block is None for block in blocks)
        if not same or node.functions:
            raise NotPointwise
        return AtPoint(make_node(node.op, tuple(value.at_point for value in values), node.attributes))

    def scalar(self, value: PointValue) -> Node:
        if not isinstance(value, AtPoint):
            raise NotPointwise
        return value.at_point

    def flatten(self, value: PointValue, type: Type) -> Iterator[Node]:
        scalar_node = self.scalar(value)
        if scalar_node.type is not self.type_at_point(type) or any(isinstance(t, Tuple) for t in inner_types(type)):
            raise NotPointwise
        yield scalar_node

    def rebuild(self, nodes: Iterator[Node], type: Type) -> PointValue:
        node = next(nodes)
        return AtPoint(node, node if self.type_at_point(type) is type else None)

    def join(self, values: list[PointValue]) -> PointValue:
        return tuple(values)


# --- rules -----------------------------------------------------------------------------------------------------------

Rule = Callable[[Unbatching, Node, list[AtPoint]], Node]


def _broadcast(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    (value,), (source,) = operands, node.operands
    start, shape, axes = at.block(node.type), node.attribute("shape"), node.attribute("axes")
    before = at.block(source.type) if isinstance(source.type, Tensor) else None
    if start is None:
        if before is not None:
            raise NotPointwise
        return broadcast(value.at_point, shape=shape, axes=axes)
    block = range(start, start + len(at.domain))
    if before is not None:
        if tuple(axes[before : before + len(at.domain)]) != tuple(block):
            raise NotPointwise
        axes, sizes = at.without(axes, before), at.without(shape_of(source.type), before)
    else:
        inside = [axis in block for axis in axes]
        sizes = shape_of(source.type)
        if any(mapped and size != 1 for mapped, size in zip(inside, sizes, strict=True)):
            raise NotPointwise
        sizes = tuple([size for mapped, size in zip(inside, sizes, strict=True) if not mapped])
        axes = tuple([axis for mapped, axis in zip(inside, axes, strict=True) if not mapped])
    source_at_point = value.at_point if shape_of(value.at_point.type) == sizes else reshape(value.at_point, shape=sizes)
    kept = tuple([at.inner_axis(axis, start) for axis in axes])
    return broadcast(source_at_point, shape=at.without(shape, start), axes=kept)


def _reshape(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    before, after = at.block(node.operands[0].type), at.block(node.type)
    source, shape = shape_of(node.operands[0].type), node.attribute("shape")
    if before is None and after is None:
        return reshape(operands[0].at_point, shape=shape)
    if before is None or after is None or prod(source[:before]) != prod(shape[:after]):  # type: ignore[arg-type]
        raise NotPointwise
    return reshape(operands[0].at_point, shape=at.without(shape, after))


def _permute(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    before, after, axes = at.block(node.operands[0].type), at.block(node.type), node.attribute("axes")
    if before is None and after is None:
        return permute(operands[0].at_point, axes=axes)
    number = len(at.domain)
    if before is None or after is None or axes[after : after + number] != tuple(range(before, before + number)):
        raise NotPointwise
    return permute(operands[0].at_point, axes=tuple([at.inner_axis(axis, before) for axis in at.without(axes, after)]))


def _slice(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    before, after = at.block(node.operands[0].type), at.block(node.type)
    if before != after:
        raise NotPointwise
    named = dict(node.attributes)
    if before is not None:  # of a dimension that stays whole, the start is zero and the step one
        named = {name: at.without(named[name], before) for name in ("start", "size", "step")}
    return slice_(operands[0].at_point, **named)


def _pad(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    before, after = at.block(node.operands[0].type), at.block(node.type)
    if before != after:
        raise NotPointwise
    named = dict(node.attributes)
    if before is not None:
        named = {name: at.without(named[name], before) for name in ("low", "high", "interior")}
    return pad(operands[0].at_point, operands[1].at_point, **named)


def _flip(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    start = at.block(node.type)
    return flip(operands[0].at_point, axes=tuple([at.inner_axis(axis, start) for axis in node.attribute("axes")]))


def _concatenate(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    start = at.block(node.type)
    if any(at.block(operand.type) != start for operand in node.operands):
        raise NotPointwise
    return concatenate(*[operand.at_point for operand in operands], axis=at.inner_axis(node.attribute("axis"), start))


def _iota(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    start, axis, type = at.block(node.type), node.attribute("axis"), node.attribute("type")
    if start is None:
        return node
    shape = at.without(node.attribute("shape"), start)
    if not start <= axis < start + len(at.domain):
        return iota(shape=shape, axis=at.inner_axis(axis, start), type=type)
    along = at.coordinates[axis - start]
    return broadcast(along if type is i64 else cast(along, type=type), shape=shape, axes=())


def _reduce(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    before = at.block(node.operands[0].type)
    if before is None and at.block(node.type) is not None:
        raise NotPointwise
    if node.op is arg_reduce:
        axis = at.inner_axis(node.attribute("axis"), before)
        return arg_reduce(operands[0].at_point, kind=node.attribute("kind"), axis=axis)
    axes = tuple([at.inner_axis(axis, before) for axis in node.attribute("axes")])
    return reduce(operands[0].at_point, kind=node.attribute("kind"), axes=axes)


def _lookup(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    """A read of a tensor that does not change, at indices of the point's own."""
    tensor, *others = operands
    if not node.operands[0].type.shape:  # type: ignore[attr-defined]
        return node.op(tensor.at_point, *[other.at_point for other in others], **dict(node.attributes))
    if tensor.whole is None:
        raise NotPointwise
    return node.op(tensor.whole, *[other.at_point for other in others], **dict(node.attributes))


def _check(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    return check(operands[0].at_point, operands[1].at_point, message=node.attribute("message"))


def _matmul(at: Unbatching, node: Node, operands: list[AtPoint]) -> Node:
    """A product for each point, or the product of each point's row with one matrix."""
    first, second = operands
    blocks = [at.block(tensor.type) for tensor in (*node.operands, node)]
    ranks = [len(shape_of(tensor.type)) for tensor in (*node.operands, node)]
    if blocks == [None, None, None]:
        return matmul(first.at_point, second.at_point)
    ends = {rank - block for rank, block in zip(ranks, blocks, strict=True) if block is not None}
    if blocks[2] is not None and len(ends) == 1 and min(ends) >= len(at.domain) + 2:
        return matmul(first.at_point, second.at_point)
    inner = shape_of(node.operands[1].type)[0]
    if len(at.domain) == 1 and ranks == [2, 2, 2] and blocks == [0, None, 0]:
        return reshape(
            matmul(reshape(first.at_point, shape=(1, inner)), second.at_point), shape=shape_of(node.type)[1:]
        )
    raise NotPointwise


RULES: Mapping[Op, Rule] = MappingProxyType(
    {
        broadcast: _broadcast, reshape: _reshape, permute: _permute, slice_: _slice, pad: _pad, flip: _flip,
        concatenate: _concatenate, iota: _iota, reduce: _reduce, arg_reduce: _reduce, lookup: _lookup,
        lookup_or: _lookup, check: _check, matmul: _matmul,
    }
)  # fmt: skip
