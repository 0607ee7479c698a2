"""Recognises matrix products and convolutions with native code. In: a step. Out: its sizes and strides, or None.

Called when a plan is serialised. NumPy computes the others.
"""

from __future__ import annotations

from livegrad.codegen.llvm.matmul.product import Product, product_of
from livegrad.ir.leaves import parameter_op
from livegrad.ir.op import Op
from livegrad.ir.types import f32, f64
from livegrad.ops.convolution import convolve
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.runtime.cpu.native.convolution import Column, Convolution, Line, is_native
from livegrad.schedule.plan import Buffer, HostStep

_ELEMENTS = {f32: "float32", f64: "float64"}  # `dtype.name` takes ten microseconds


def native_product(step: HostStep) -> Product | None:
    """The sizes and strides of a matrix product; None for other steps, and for products without native code."""
    native = _native_result(step, matmul)
    if native is None:
        return None
    element, result = native
    out = result.shape
    operands = product_operands(step)
    left, order = operands[0]
    inner = left.shape[order[-1]]
    if not inner:
        return None
    strides = [_broadcast_strides(buffer, order, len(out)) for buffer, order in operands]
    return product_of(element, out, strides[0], strides[1], inner)


def native_convolution(step: HostStep) -> Convolution | None:
    """The sizes and strides of a convolution; None for other steps, and for convolutions without native code."""
    native = _native_result(step, convolve)
    if native is None:
        return None
    element, result = native
    node = step.function.results[0]
    (image, image_order), (kernel, kernel_order) = product_operands(step)
    if any(width for widths in node.attribute("padding") for width in widths) or not image.size:
        return None
    right, left = _ordered_strides(image, image_order), _ordered_strides(kernel, kernel_order)
    outputs, channels, *window = (kernel.shape[axis] for axis in kernel_order)
    groups, strides, dilation = (node.attribute(name) for name in ("groups", "strides", "dilation"))
    reach = [stride * gap for stride, gap in zip(right[2:], dilation, strict=True)]
    lines = [Line(*dimension) for dimension in zip((channels, *window), left[1:], (right[1], *reach), strict=True)]
    counts, steps = result.shape[2:], [a * b for a, b in zip(right[2:], strides, strict=True)]
    convolution = Convolution(
        element, groups, outputs // groups, left[0], outputs // groups * left[0],
        channels * right[1], tuple(lines), Column(result.shape[0], right[0]),
        tuple(Column(*dimension) for dimension in zip(counts, steps, strict=True)),
    )  # fmt: skip
    return convolution if is_native(convolution) else None


def _native_result(step: HostStep, op: Op) -> tuple[str, Buffer] | None:
    """The element type and the buffer of a step's result; None for another op, an empty result, or other types."""
    if step.op is not op or not isinstance(step.result, Buffer) or not step.result.size:
        return None
    element = _ELEMENTS.get(step.result.element)
    return None if element is None else (element, step.result)


def _ordered_strides(buffer: Buffer, order: tuple[int, ...]) -> list[int]:
    return [buffer.strides[axis] * buffer.element.dtype.itemsize for axis in order]


def product_operands(step: HostStep) -> list[tuple[Buffer, tuple[int, ...]]]:
    """The buffer of each operand, and the permutation of its axes that the op sees."""
    operands = []
    for operand in step.function.results[0].operands:
        source = operand.operands[0] if operand.op is permute else operand
        assert source.op is parameter_op
        buffer = step.operands[source.attribute("index")]
        assert isinstance(buffer, Buffer)
        order = operand.attribute("axes") if operand.op is permute else tuple(range(len(buffer.shape)))
        operands.append((buffer, order))
    return operands


def _broadcast_strides(buffer: Buffer, order: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The byte strides of a permuted operand for each axis of the result; 0 where the operand is broadcast."""
    size, batch_rank = buffer.element.dtype.itemsize, len(order) - 2
    strides = [
        0 if dimension < batch_rank and buffer.shape[axis] == 1 else buffer.strides[axis] * size
        for dimension, axis in enumerate(order)
    ]
    return (*[0] * (rank - len(strides)), *strides)
