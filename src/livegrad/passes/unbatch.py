"""The inverse of `batch`: an interpreter that evaluates a function over tensors of points at one point.

A point is an index into the dimensions of a domain, which are adjacent in the shape of each tensor that has them. Ops
must not combine points; tensors from outside may be read at any index. Called by `interchange_point_loops`.
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
    """A function combines points, or uses an op without a rule."""


@dataclass(frozen=True)
class AtPoint:
    """A value at one point. For values from outside, `whole` is the tensor of all points, for reads by index."""

    at_point: Node
    whole: Node | None = None


PointValue = AtPoint | tuple["PointValue", ...]


class Unbatcher(Interpreter[PointValue]):
    """Evaluates functions at the point with these coordinates."""

    def __init__(self, domain: tuple[int, ...], coordinates: Sequence[Node]) -> None:
        self.domain, self.coordinates = domain, coordinates

    def domain_start(self, type: Type) -> int | None:
        """The first axis of the domain in the shape of a tensor; None if the tensor does not have the domain."""
        shape, rank = shape_of(type), len(self.domain)
        starts = [start for start in range(len(shape) - rank + 1) if shape[start : start + rank] == self.domain]
        if len(starts) > 1:
            raise NotPointwise
        return starts[0] if starts else None

    def remove_domain(self, entries: Sequence[Any], start: int) -> tuple[Any, ...]:
        """Removes the entries for the domain from a sequence with an entry for each axis."""
        return (*entries[:start], *entries[start + len(self.domain) :])

    def inner_axis(self, axis: int, start: int | None) -> int:
        """Converts an axis outside of the domain to the axis at one point."""
        if start is None or axis < start:
            return axis
        if axis < start + len(self.domain):
            raise NotPointwise
        return axis - len(self.domain)

    def type_at_point(self, type: Type) -> Type:
        start = self.domain_start(type) if isinstance(type, Tensor) else None
        return type if start is None else Tensor(type.element, self.remove_domain(type.shape, start))  # type: ignore[union-attr]

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
        blocks = [self.domain_start(x.type) for x in (node, *node.operands) if isinstance(x.type, Tensor)]
        is_pointwise = (
            node.op.elementwise or node.op is constant_op or all(domain_start is None for domain_start in blocks)
        )
        if not is_pointwise or node.functions:
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

Rule = Callable[[Unbatcher, Node, list[AtPoint]], Node]


def _broadcast(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    (value,), (source,) = operands, node.operands
    start, shape, axes = at.domain_start(node.type), node.attribute("shape"), node.attribute("axes")
    before = at.domain_start(source.type) if isinstance(source.type, Tensor) else None
    if start is None:
        if before is not None:
            raise NotPointwise
        return broadcast(value.at_point, shape=shape, axes=axes)
    domain_start = range(start, start + len(at.domain))
    if before is not None:
        if tuple(axes[before : before + len(at.domain)]) != tuple(domain_start):
            raise NotPointwise
        axes, sizes = at.remove_domain(axes, before), at.remove_domain(shape_of(source.type), before)
    else:
        inside = [axis in domain_start for axis in axes]
        sizes = shape_of(source.type)
        if any(mapped and size != 1 for mapped, size in zip(inside, sizes, strict=True)):
            raise NotPointwise
        sizes = tuple([size for mapped, size in zip(inside, sizes, strict=True) if not mapped])
        axes = tuple([axis for mapped, axis in zip(inside, axes, strict=True) if not mapped])
    source_at_point = value.at_point if shape_of(value.at_point.type) == sizes else reshape(value.at_point, shape=sizes)
    inner_axes = tuple([at.inner_axis(axis, start) for axis in axes])
    return broadcast(source_at_point, shape=at.remove_domain(shape, start), axes=inner_axes)


def _reshape(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    before, after = at.domain_start(node.operands[0].type), at.domain_start(node.type)
    source, shape = shape_of(node.operands[0].type), node.attribute("shape")
    if before is None and after is None:
        return reshape(operands[0].at_point, shape=shape)
    if before is None or after is None or prod(source[:before]) != prod(shape[:after]):  # type: ignore[arg-type]
        raise NotPointwise
    return reshape(operands[0].at_point, shape=at.remove_domain(shape, after))


def _permute(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    before, after, axes = at.domain_start(node.operands[0].type), at.domain_start(node.type), node.attribute("axes")
    if before is None and after is None:
        return permute(operands[0].at_point, axes=axes)
    rank = len(at.domain)
    if before is None or after is None or axes[after : after + rank] != tuple(range(before, before + rank)):
        raise NotPointwise
    return permute(
        operands[0].at_point, axes=tuple([at.inner_axis(axis, before) for axis in at.remove_domain(axes, after)])
    )


def _slice(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    before, after = at.domain_start(node.operands[0].type), at.domain_start(node.type)
    if before != after:
        raise NotPointwise
    attributes = dict(node.attributes)
    if before is not None:  # the domain keeps its size, so it is not sliced
        attributes = {name: at.remove_domain(attributes[name], before) for name in ("start", "size", "step")}
    return slice_(operands[0].at_point, **attributes)


def _pad(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    before, after = at.domain_start(node.operands[0].type), at.domain_start(node.type)
    if before != after:
        raise NotPointwise
    attributes = dict(node.attributes)
    if before is not None:
        attributes = {name: at.remove_domain(attributes[name], before) for name in ("low", "high", "interior")}
    return pad(operands[0].at_point, operands[1].at_point, **attributes)


def _flip(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    start = at.domain_start(node.type)
    return flip(operands[0].at_point, axes=tuple([at.inner_axis(axis, start) for axis in node.attribute("axes")]))


def _concatenate(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    start = at.domain_start(node.type)
    if any(at.domain_start(operand.type) != start for operand in node.operands):
        raise NotPointwise
    return concatenate(*[operand.at_point for operand in operands], axis=at.inner_axis(node.attribute("axis"), start))


def _iota(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    start, axis, type = at.domain_start(node.type), node.attribute("axis"), node.attribute("type")
    if start is None:
        return node
    shape = at.remove_domain(node.attribute("shape"), start)
    if not start <= axis < start + len(at.domain):
        return iota(shape=shape, axis=at.inner_axis(axis, start), type=type)
    coordinate = at.coordinates[axis - start]
    return broadcast(coordinate if type is i64 else cast(coordinate, type=type), shape=shape, axes=())


def _reduce(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    before = at.domain_start(node.operands[0].type)
    if before is None and at.domain_start(node.type) is not None:
        raise NotPointwise
    if node.op is arg_reduce:
        axis = at.inner_axis(node.attribute("axis"), before)
        return arg_reduce(operands[0].at_point, kind=node.attribute("kind"), axis=axis)
    axes = tuple([at.inner_axis(axis, before) for axis in node.attribute("axes")])
    return reduce(operands[0].at_point, kind=node.attribute("kind"), axes=axes)


def _lookup(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    """Reads a tensor from outside at the indices of this point."""
    tensor, *arguments = operands
    if not node.operands[0].type.shape:  # type: ignore[attr-defined]
        return node.op(tensor.at_point, *[argument.at_point for argument in arguments], **dict(node.attributes))
    if tensor.whole is None:
        raise NotPointwise
    return node.op(tensor.whole, *[argument.at_point for argument in arguments], **dict(node.attributes))


def _check(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    return check(operands[0].at_point, operands[1].at_point, message=node.attribute("message"))


def _matmul(at: Unbatcher, node: Node, operands: list[AtPoint]) -> Node:
    """A product at each point, or the product of each point's row with a shared matrix."""
    first, second = operands
    blocks = [at.domain_start(tensor.type) for tensor in (*node.operands, node)]
    ranks = [len(shape_of(tensor.type)) for tensor in (*node.operands, node)]
    if blocks == [None, None, None]:
        return matmul(first.at_point, second.at_point)
    ends = {rank - domain_start for rank, domain_start in zip(ranks, blocks, strict=True) if domain_start is not None}
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
