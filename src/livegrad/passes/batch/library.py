"""Batch rules of library ops: sorting, decompositions, linear systems, transforms, windows.

Most of them accept any number of leading dimensions, so the batch axis only has to come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from livegrad.diagnostics import UsageError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, bool_, i64, shape_of, u8
from livegrad.ops import (
    arg_reduce_window,
    argsort,
    cholesky,
    cofactors,
    convolve,
    det,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    fft,
    inv,
    irfft,
    pinv,
    put_window,
    qr,
    reduce_window,
    rfft,
    searchsorted,
    slogdet,
    solve,
    sort,
    svd,
    svdvals,
    take_window,
    top_positions,
    transfer,
    triangular_solve,
    undefined_tangent,
)
from livegrad.ops.comparison import bit_not, is_nan, less, less_equal
from livegrad.ops.conversion import cast, complex_parts, from_parts
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, permute, reshape
from livegrad.ops.reduction import reduce
from livegrad.passes.batch.tensors import shift_axis
from livegrad.passes.batch.values import batched_type
from livegrad.passes.batch.walk import BatchRule, Context, Operand


def keep_attributes(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    """The same op with all operands batched, for ops that take any number of leading dimensions."""
    return node.op(*map(context.batch, operands), **dict(node.attributes))


def broadcast_leading(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    """The same op, for ops on matrices that broadcast leading dimensions; shared operands get no batch axis."""
    rank = max(len(shape_of(operand.type)) for operand in node.operands)
    values = [_expand_rank(operand, rank + 1) if operand.batched else operand.value for operand in operands]
    return node.op(*values, **dict(node.attributes))


def _expand_rank(operand: Operand, rank: int) -> Node:
    shape = shape_of(operand.value.type)
    missing = rank - len(shape)
    return operand.value if not missing else reshape(operand.value, shape=(shape[0], *(1,) * missing, *shape[1:]))


def _undefined_tangent(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    type, reason = batched_type(node.attribute("type"), context.size), node.attribute("reason")
    return undefined_tangent(*map(context.batch, operands), type=type, reason=reason)


def _fft(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    axes = tuple(axis + 1 for axis in node.attribute("axes"))
    return fft(operands[0].value, axes=axes, inverse=node.attribute("inverse"), norm=node.attribute("norm"))


# --- binary search ---------------------------------------------------------------------------------------------------


def _searchsorted(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    """If each member has its own sequence, counts the elements before each value instead of searching."""
    ordered, values = operands
    if not ordered.batched:
        return searchsorted(ordered.value, values.value, side=node.attribute("side"))
    value, sequence = context.batch(values), ordered.value
    if isinstance(sequence.type, Tensor) and sequence.type.element is bool_:
        value, sequence = cast(value, type=u8), cast(sequence, type=u8)
    shape, length = shape_of(value.type), shape_of(sequence.type)[1]
    full = (*shape, length)
    elements = broadcast(sequence, shape=full, axes=(0, len(shape)))
    against = broadcast(value, shape=full, axes=tuple(range(len(shape))))
    before = less(elements, against) if node.attribute("side") == "left" else less_equal(elements, against)
    assert isinstance(value.type, Tensor)
    if value.type.element.kind == "float":
        # NaN sorts last and compares equal to NaN.
        sorts_last = is_nan(against)
        before = before | (sorts_last & bit_not(is_nan(elements)) if node.attribute("side") == "left" else sorts_last)
    return reduce(cast(before, type=i64), kind="sum", axes=(len(shape),))


# --- windows ---------------------------------------------------------------------------------------------------------


def _windows(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    """Adds a batch dimension to the window, of size 1."""
    window, strides, dilation = ((1, *node.attribute(name)) for name in ("window", "strides", "dilation"))
    padding = ((0, 0), *node.attribute("padding"))
    window_attributes = {"window": window, "strides": strides, "padding": padding, "dilation": dilation}
    attributes = dict(node.attributes) | window_attributes
    if "shape" in attributes:
        attributes["shape"] = (context.size, *attributes["shape"])
    return node.op(*map(context.batch, operands), **attributes)


def _convolve(node: Node, operands: Sequence[Operand], context: Context) -> Node:
    image, kernel = operands
    attributes = dict(node.attributes)
    if not kernel.batched:
        # The members' images are more images for the same kernels.
        size, count, *image_shape = shape_of(image.value.type)
        merged = convolve(reshape(image.value, shape=(size * count, *image_shape)), kernel.value, **attributes)
        return reshape(merged, shape=(size, count, *shape_of(merged.type)[1:]))
    # Members become groups of channels, so each member's images meet its own kernels.
    if not isinstance(context.size, int):
        raise UsageError("`convolve` with a kernel for each member needs a batch of known size", where=node.origin)
    images = context.batch(image)
    size, count, channels, *space = shape_of(images.type)
    _, outputs, *window = shape_of(kernel.value.type)
    side_by_side = permute(images, axes=(1, 0, *range(2, len(space) + 3)))
    merged_channels = reshape(side_by_side, shape=(count, size * channels, *space))
    kernels = reshape(kernel.value, shape=(size * outputs, *window))
    grouped = convolve(merged_channels, kernels, **{**attributes, "groups": attributes["groups"] * context.size})
    by_member = reshape(grouped, shape=(count, size, outputs, *shape_of(grouped.type)[2:]))
    return permute(by_member, axes=(1, 0, *range(2, len(shape_of(by_member.type)))))


_KEEP_ATTRIBUTES = (
    pinv, cholesky, qr, eigh, eigvalsh, eig, eigvals, svd, svdvals, inv, det, cofactors, slogdet, transfer,
    complex_parts, from_parts,
)  # fmt: skip
LIBRARY_RULES: Mapping[Op, BatchRule] = MappingProxyType(
    {
        **dict.fromkeys(_KEEP_ATTRIBUTES, keep_attributes),
        **dict.fromkeys((matmul, solve, triangular_solve), broadcast_leading),
        **dict.fromkeys((sort, argsort, top_positions, rfft, irfft), shift_axis),
        **dict.fromkeys((reduce_window, arg_reduce_window, take_window, put_window), _windows),
        undefined_tangent: _undefined_tangent,
        fft: _fft,
        searchsorted: _searchsorted,
        convolve: _convolve,
    }
)
