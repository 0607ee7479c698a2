"""Recognises Fourier transforms and sorts with native code. In: a step. Out: its sizes and strides, or None.

Both work on all rows of a tensor along an axis. Called when a plan is serialised. NumPy computes the others: transforms
of lengths with large prime factors, and sorts of long rows.
"""

from __future__ import annotations

import math

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, c64, c128, f32, f64
from livegrad.ops.fourier import fft, irfft, rfft
from livegrad.ops.sorting import argsort, sort, top_positions
from livegrad.runtime.cpu.matmul_steps import product_operands
from livegrad.runtime.cpu.native.fourier import Side, Transform, is_native
from livegrad.runtime.cpu.native.ordering import ELEMENTS, Ordering, kernel_for
from livegrad.schedule.plan import Buffer, HostStep

_REAL_PARTS = {c64: "float32", c128: "float64", f32: "float32", f64: "float64"}
_KERNELS = {fft: "transform", rfft: "transform_real", irfft: "invert_real"}


def native_transforms(step: HostStep) -> list[Transform] | None:
    """The transforms of a step, one for each axis; each reads the result of the previous one.

    None for other steps, and for transforms without native code.
    """
    if step.op not in _KERNELS or not isinstance(step.result, Buffer) or not step.result.size:
        return None
    node = step.function.results[0]
    ((buffer, order),) = product_operands(step)
    result = step.result
    axes = reversed(node.attribute("axes")) if step.op is fft else (node.attribute("axis"),)
    shape, strides = tuple(buffer.shape[axis] for axis in order), tuple(buffer.strides[axis] for axis in order)
    source, transforms = (shape, strides, buffer.element), []
    for axis in axes:
        transform = _axis_transform(node, axis, source, result)
        if transform is None:
            return None
        transforms.append(transform)
        source = (result.shape, result.strides, result.element)
    return transforms or None


def _axis_transform(
    node: Node, axis: int, source: tuple[tuple[int, ...], tuple[int, ...], Scalar], result: Buffer
) -> Transform | None:
    shape, strides, element = source
    length = shape[axis] if node.op is not irfft else result.shape[axis]
    batch = _merge_batch_axes(shape, strides, result.strides, axis)
    if batch is None:
        return None
    (outer, source_outer, target_outer), (inner, source_row, target_row) = batch
    bytes_in, bytes_out = element.dtype.itemsize, result.element.dtype.itemsize
    inverse = node.op is irfft or (node.op is fft and node.attribute("inverse"))
    transform = Transform(
        _REAL_PARTS[element], _KERNELS[node.op], length, outer, inner,
        Side(source_outer * bytes_in, source_row * bytes_in, strides[axis] * bytes_in, bytes_in),
        Side(target_outer * bytes_out, target_row * bytes_out, result.strides[axis] * bytes_out, bytes_out),
        inverse, _scale(node.attribute("norm"), inverse, length),
    )  # fmt: skip
    return transform if is_native(transform) else None


def _scale(norm: str, inverse: bool, length: int) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(length)
    return 1 / length if (norm == "backward") == inverse else 1.0


def native_ordering(step: HostStep) -> Ordering | None:
    """The order to compute for the rows of a step; None for other steps, and for sorts without native code."""
    if step.op not in (sort, argsort, top_positions) or not isinstance(step.result, Buffer) or not step.result.size:
        return None
    node, result = step.function.results[0], step.result
    ((buffer, order),) = product_operands(step)
    element, axis = ELEMENTS.get(buffer.element), node.attribute("axis")
    shape, strides = (tuple(values[a] for a in order) for values in (buffer.shape, buffer.strides))
    batch = _merge_batch_axes(shape, strides, result.strides, axis)
    if element is None or batch is None:
        return None
    is_contiguous = strides[axis] == 1
    kernel = kernel_for(shape[axis], result.shape[axis], wants_values=step.op is sort, is_contiguous=is_contiguous)
    if kernel is None:
        return None
    (outer, source_outer, target_outer), (inner, source_row, target_row) = batch
    bytes_in, bytes_out = buffer.element.dtype.itemsize, result.element.dtype.itemsize
    return Ordering(
        element, kernel, shape[axis], result.shape[axis], outer, inner,
        (source_outer * bytes_in, source_row * bytes_in, strides[axis] * bytes_in),
        (target_outer * bytes_out, target_row * bytes_out, result.strides[axis] * bytes_out),
        node.attribute("largest" if step.op is top_positions else "descending"),
    )  # fmt: skip


def _merge_batch_axes(
    shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], axis: int
) -> list[tuple[int, int, int]] | None:
    """Merges all axes but one into two, with their extents and strides in elements; None if they do not merge."""
    merged: list[tuple[int, int, int]] = []  # inner dimensions first
    for dimension in reversed(range(len(shape))):
        if dimension == axis or shape[dimension] == 1:
            continue
        extent, first, second = shape[dimension], source[dimension], target[dimension]
        if merged and first == merged[-1][0] * merged[-1][1] and second == merged[-1][0] * merged[-1][2]:
            merged[-1] = (merged[-1][0] * extent, *merged[-1][1:])
        else:
            merged.append((extent, first, second))
    if len(merged) > 2:
        return None
    if len(merged) == 1 and merged[0][1] != 1:  # rows far apart are an outer dimension
        merged.insert(0, (1, 0, 0))
    padded = [*merged, (1, 0, 0), (1, 0, 0)][:2]
    return [padded[1], padded[0]]
