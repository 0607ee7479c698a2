"""Data-movement ops: broadcast, reshape, permute, slice, pad, flip, concatenate, iota."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Dimension, Size, size_product
from livegrad.ir.node import Node
from livegrad.ir.op import ALL_OPERANDS, Op
from livegrad.ir.types import Scalar, Tensor, Type, i64, shape_of
from livegrad.ops.rules import or_zero, zero, zero_tangent


def require_tensor(type: Type) -> Tensor:
    if not isinstance(type, Tensor):
        raise TypeRuleError("operand must be a tensor", found=str(type))
    return type


def are_axes_in_order(axes: Sequence[int], rank: int) -> bool:
    """Whether axes are distinct dimensions of a shape of `rank`, in ascending order."""
    last = -1
    for axis in axes:
        if not last < axis < rank:
            return False
        last = axis
    return True


def _broadcast_type(source: Type, *, shape: tuple[Size, ...], axes: tuple[int, ...]) -> Type:
    element = source.element if isinstance(source, Tensor) else source
    sizes = shape_of(source)
    if not isinstance(element, Scalar):
        raise TypeRuleError("broadcast takes a scalar or a tensor")
    if len(axes) != len(sizes) or not are_axes_in_order(axes, len(shape)):
        raise TypeRuleError("each dimension needs an axis of the result, in order", found=f"axes {axes} for {sizes}")
    for size, axis in zip(sizes, axes, strict=True):
        if size not in (1, shape[axis]):
            raise TypeRuleError(
                f"a dimension of {size} cannot broadcast over {shape[axis]}", found=f"{sizes} to {shape}"
            )
    return Tensor(element, shape)


def _evaluate_broadcast(value: Any, *, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    value = np.asarray(value)
    aligned = [1] * len(shape)
    for size, axis in zip(value.shape, axes, strict=True):
        aligned[axis] = size
    return np.broadcast_to(value.reshape(aligned), shape)


def _broadcast_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    (x,) = y.operands
    axes, sizes = y.attribute("axes"), shape_of(x.type)
    preserved = [axis for axis, size in zip(axes, sizes, strict=True) if size == shape_of(y.type)[axis]]
    broadcast_axes = tuple(axis for axis in range(len(shape_of(y.type))) if axis not in preserved)
    total = Op.named("reduce")(ct, kind="sum", axes=broadcast_axes) if broadcast_axes else ct
    if not isinstance(x.type, Tensor):
        return (Op.named("lookup")(total),)
    return (reshape(total, shape=x.type.shape),)


broadcast = Op(
    "broadcast",
    type_of=_broadcast_type,
    evaluate=_evaluate_broadcast,
    jvp=lambda y, dx: None if dx is None else broadcast(dx, shape=y.attribute("shape"), axes=y.attribute("axes")),
    transpose=_broadcast_transpose,
    linear_in=(0,),
    cost=0.0,
)


def _reshape_type(source: Type, *, shape: tuple[Size, ...]) -> Type:
    tensor = require_tensor(source)
    if size_product(tensor.shape) != size_product(shape):
        raise TypeRuleError("the number of elements must stay the same", found=f"{tensor.shape} to {shape}")
    return Tensor(tensor.element, shape)


reshape = Op(
    "reshape",
    type_of=_reshape_type,
    evaluate=lambda value, *, shape: np.reshape(value, shape),
    jvp=lambda y, dx: None if dx is None else reshape(dx, shape=y.attribute("shape")),
    transpose=lambda y, ct, linear: (reshape(ct, shape=shape_of(y.operands[0].type)),),
    linear_in=(0,),
    cost=0.0,
)


def _permute_type(source: Type, *, axes: tuple[int, ...]) -> Type:
    tensor = require_tensor(source)
    if sorted(axes) != list(range(tensor.rank)):
        raise TypeRuleError("axes must name each dimension once", found=f"{axes} for {tensor}")
    return Tensor(tensor.element, tuple([tensor.shape[axis] for axis in axes]))


def inverse_permutation(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


permute = Op(
    "permute",
    type_of=_permute_type,
    evaluate=lambda value, *, axes: np.transpose(value, axes),
    jvp=lambda y, dx: None if dx is None else permute(dx, axes=y.attribute("axes")),
    transpose=lambda y, ct, linear: (permute(ct, axes=inverse_permutation(y.attribute("axes"))),),
    linear_in=(0,),
    cost=0.0,
)


def _slice_type(source: Type, *, start: tuple[Size, ...], size: tuple[Size, ...], step: tuple[int, ...]) -> Type:
    tensor = require_tensor(source)
    if not len(start) == len(size) == len(step) == tensor.rank:
        raise TypeRuleError(
            "a slice needs a start, a size and a step for each dimension", found=f"{start}, {size}, {step}"
        )
    for axis, (first, count, stride, extent) in enumerate(zip(start, size, step, tensor.shape, strict=True)):
        static = not any(isinstance(value, Dimension) for value in (first, count, extent))
        last = first + (count - 1) * stride
        if stride < 1 or (static and (first < 0 or count < 0 or first > extent or (count > 0 and not last < extent))):  # type: ignore[operator]
            raise TypeRuleError(f"axis {axis} has no such slice", found=f"{first}:+{count}:{stride} of {extent}")
    return Tensor(tensor.element, size)


def _evaluate_slice(value: Any, *, start: Any, size: Any, step: Any) -> Any:
    return value[tuple(slice(a, a + n * s, s) for a, n, s in zip(start, size, step, strict=True))]


def _slice_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    (x,) = y.operands
    start, size, step = (y.attribute(name) for name in ("start", "size", "step"))
    spans = [0 if n == 0 else (n - 1) * s + 1 for n, s in zip(size, step, strict=True)]
    high = tuple(extent - a - span for extent, a, span in zip(shape_of(x.type), start, spans, strict=True))
    padding = zero(y.type.element) if isinstance(y.type, Tensor) else None
    return (pad(ct, padding, low=start, high=high, interior=tuple(s - 1 for s in step)),)


# Steps are positive; a negative step is a `flip` followed by a slice.
slice_ = Op(
    "slice",
    type_of=_slice_type,
    evaluate=_evaluate_slice,
    jvp=lambda y, dx: None if dx is None else slice_(dx, **dict(y.attributes)),
    transpose=_slice_transpose,
    linear_in=(0,),
    cost=0.0,
)


def _pad_type(
    source: Type, value: Type, *, low: tuple[Size, ...], high: tuple[Size, ...], interior: tuple[int, ...]
) -> Type:
    tensor = require_tensor(source)
    if not len(low) == len(high) == len(interior) == tensor.rank or value is not tensor.element:
        raise TypeRuleError("padding needs a scalar of the element type, and widths for each dimension")
    for width in (*low, *high, *interior):
        if isinstance(width, int) and width < 0:
            raise TypeRuleError("padding cannot be negative", help="use slice to crop")
    shape = tuple(
        before + (n if n == 0 else n + (n - 1) * between) + after
        for n, before, after, between in zip(tensor.shape, low, high, interior, strict=True)
    )
    return Tensor(tensor.element, shape)


def _evaluate_pad(value: Any, padding: Any, *, low: Any, high: Any, interior: Any) -> Any:
    spans = [n if n == 0 else n + (n - 1) * i for n, i in zip(value.shape, interior, strict=True)]
    shape = [a + n + b for n, a, b in zip(spans, low, high, strict=True)]
    padded = np.full(shape, padding, value.dtype)
    interior_slices = tuple(slice(a, a + n, i + 1) for n, a, i in zip(spans, low, interior, strict=True))
    padded[interior_slices] = value
    return padded


def _pad_jvp(y: Node, dx: Node | None, dv: Node | None) -> Node | None:
    if dx is None and dv is None:
        return None
    x, value = y.operands
    return pad(or_zero(dx, x.type), or_zero(dv, value.type), **dict(y.attributes))


def _pad_transpose(y: Node, ct: Node, x: bool, v: bool) -> tuple[Node | None, ...]:
    source = require_tensor(y.operands[0].type)
    step = tuple(i + 1 for i in y.attribute("interior"))
    inner = slice_(ct, start=y.attribute("low"), size=source.shape, step=step)
    if not v:
        return inner, None
    axes = tuple(range(source.rank))
    total, inner_total = (Op.named("reduce")(part, kind="sum", axes=axes) for part in (ct, inner))
    return (inner if x else None), Op.named("lookup")(total - inner_total)


pad = Op(
    "pad",
    type_of=_pad_type,
    evaluate=_evaluate_pad,
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    linear_in=(0, 1),
    cost=2.0,
)


def _flip_type(source: Type, *, axes: tuple[int, ...]) -> Type:
    tensor = require_tensor(source)
    if len(set(axes)) != len(axes) or any(not 0 <= axis < tensor.rank for axis in axes):
        raise TypeRuleError("axes to flip must be different dimensions", found=f"{axes} for {tensor}")
    return tensor


flip = Op(
    "flip",
    type_of=_flip_type,
    evaluate=lambda value, *, axes: np.flip(value, axes),
    jvp=lambda y, dx: None if dx is None else flip(dx, axes=y.attribute("axes")),
    transpose=lambda y, ct, linear: (flip(ct, axes=y.attribute("axes")),),
    linear_in=(0,),
    cost=0.0,
)


def _concatenate_type(*sources: Type, axis: int) -> Type:
    if not sources:
        raise TypeRuleError("nothing to concatenate")
    tensors = [require_tensor(source) for source in sources]
    first = tensors[0]
    if not 0 <= axis < first.rank:
        raise TypeRuleError(f"no axis {axis} in {first}")
    for tensor in tensors:
        same = tensor.element is first.element and tensor.rank == first.rank
        if not same or any(a != b for i, (a, b) in enumerate(zip(tensor.shape, first.shape, strict=True)) if i != axis):
            raise TypeRuleError(f"tensors must agree in all but axis {axis}")
    total: Size = 0
    for tensor in tensors:
        total = tensor.shape[axis] + total
    return Tensor(first.element, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _concatenate_jvp(y: Node, *tangents: Node | None) -> Node | None:
    if all(tangent is None for tangent in tangents):
        return None
    parts = [or_zero(t, operand.type) for t, operand in zip(tangents, y.operands, strict=True)]
    return concatenate(*parts, axis=y.attribute("axis"))


def _concatenate_transpose(y: Node, ct: Node, *linear: bool) -> tuple[Node | None, ...]:
    axis = y.attribute("axis")
    parts: list[Node | None] = []
    offset: Size = 0
    for operand, flag in zip(y.operands, linear, strict=True):
        shape = shape_of(operand.type)
        start = tuple(offset if i == axis else 0 for i in range(len(shape)))
        parts.append(slice_(ct, start=start, size=shape, step=(1,) * len(shape)) if flag else None)
        offset = shape[axis] + offset
    return tuple(parts)


concatenate = Op(
    "concatenate",
    type_of=_concatenate_type,
    evaluate=lambda *values, axis: np.concatenate(values, axis),
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    linear_in=ALL_OPERANDS,
    cost=2.0,
)


def _iota_type(*, shape: tuple[Size, ...], axis: int, type: Type) -> Type:
    if not isinstance(type, Scalar) or type.kind in ("bool", "complex"):
        raise TypeRuleError("iota cannot count in complex numbers", found=str(type))
    if not 0 <= axis < len(shape):
        raise TypeRuleError(f"no axis {axis} in {shape}")
    return Tensor(type, shape)


def _evaluate_iota(*, shape: tuple[int, ...], axis: int, type: Scalar) -> Any:
    count = np.arange(shape[axis]).astype(type.dtype)
    return np.broadcast_to(count.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


iota = Op("iota", type_of=_iota_type, evaluate=_evaluate_iota, jvp=zero_tangent, cost=1.0)


def index_along(shape: tuple[Size, ...], axis: int) -> Node:
    """The coordinate of each element along one axis.

    >>> index_along((2, 3), 1)
    <iota: tensor<i64, [2, 3]>>
    """
    return iota(shape=shape, axis=axis, type=i64)


def broadcast_to(value: Node, shape: tuple[Size, ...]) -> Node:
    """Broadcasts like NumPy: dimensions are aligned at the last one.

    >>> import livegrad as lg
    >>> row = lg.ir.types.Tensor(lg.f32, (3,))
    >>> lg.ir.trace(lambda x: broadcast_to(x, (2, 3)), row).result_type
    tensor<f32, [2, 3]>
    """
    rank = len(shape_of(value.type))
    if isinstance(value.type, Tensor) and value.type.shape == shape:
        return value
    return broadcast(value, shape=shape, axes=tuple(range(len(shape) - rank, len(shape))))


def sum_to(value: Node, shape: tuple[Size, ...]) -> Node:
    """Sums a broadcast tensor back to `shape`; the transpose of `broadcast_to`.

    >>> import livegrad as lg
    >>> lg.ir.trace(lambda x: sum_to(x, (3,)), lg.ir.types.Tensor(lg.f32, (2, 3))).result_type
    tensor<f32, [3]>
    """
    full = shape_of(value.type)
    if full == shape:
        return value
    extra = len(full) - len(shape)
    axes = tuple(i for i, n in enumerate(full) if i < extra or (shape[i - extra] == 1 and n != 1))
    return reshape(Op.named("reduce")(value, kind="sum", axes=axes), shape=shape)


def sizes(node: Node) -> tuple[int, ...]:
    """The shape of a node in a function without symbolic sizes."""
    return shape_of(node.type)  # type: ignore[return-value]


def squeezed_axes(source: tuple[int, ...], target: tuple[int, ...]) -> list[int | None] | None:
    """Maps the dimensions of a reshape that only adds or drops dimensions of 1; None for other reshapes.

    The result has the target axis of each source dimension, or None for a dimension of 1.
    """
    source_sizes = [size for size in source if size != 1]
    target_axes = [axis for axis, size in enumerate(target) if size != 1]
    if source_sizes != [target[axis] for axis in target_axes]:
        return None
    remaining = iter(target_axes)
    return [None if size == 1 else next(remaining) for size in source]
