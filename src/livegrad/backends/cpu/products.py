"""Matrix products of a plan as native code: a step comes in; its sizes and strides go out, if our own code computes it.

Called when a plan's recipe is made. What is not for native code (complex numbers, integers) NumPy multiplies.
"""

from __future__ import annotations

from livegrad.backends.cpu.native.gemm_product import Product, product_of
from livegrad.ir.leaves import parameter_op
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.schedule.plan import Buffer, HostStep

ELEMENTS = ("float32", "float64")


def native_product(step: HostStep) -> Product | None:
    """The sizes and strides of a product of matrices; None for any other step, and for one that has no native code."""
    if step.op is not matmul or not isinstance(step.result, Buffer) or step.result.element.dtype.name not in ELEMENTS:
        return None
    out = step.result.shape
    left, order = product_operands(step)[0]
    inner = left.shape[order[-1]]
    if not step.result.size or not inner:
        return None
    strides = [_spread(buffer, order, len(out)) for buffer, order in product_operands(step)]
    return product_of(step.result.element.dtype.name, out, strides[0], strides[1], inner)


def product_operands(step: HostStep) -> list[tuple[Buffer, tuple[int, ...]]]:
    """The memory of both operands, and the order of its dimensions in which a product sees them."""
    found = []
    for operand in step.function.results[0].operands:
        seen = operand.operands[0] if operand.op is permute else operand
        assert seen.op is parameter_op
        buffer = step.operands[seen.attribute("index")]
        assert isinstance(buffer, Buffer)
        order = operand.attribute("axes") if operand.op is permute else tuple(range(len(buffer.shape)))
        found.append((buffer, order))
    return found


def _spread(buffer: Buffer, order: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Strides in bytes, in the order seen, over the dimensions of the result; 0 where the operand is repeated."""
    size, last = buffer.element.dtype.itemsize, len(order) - 2
    own = [
        0 if place < last and buffer.shape[axis] == 1 else buffer.strides[axis] * size
        for place, axis in enumerate(order)
    ]
    return (*[0] * (rank - len(own)), *own)
