"""Recognises sorts with native code. In: a step. Out: the order to compute for its rows, or None.

Called when a plan is serialised. NumPy computes the others.
"""

from __future__ import annotations

from livegrad.ops.sorting import argsort, sort, top_positions
from livegrad.runtime.cpu.matmul_steps import product_operands
from livegrad.runtime.cpu.native.ordering import ELEMENTS, Ordering, kernel_for
from livegrad.runtime.cpu.transform_steps import batch_of_rows
from livegrad.schedule.plan import Buffer, HostStep


def native_ordering(step: HostStep) -> Ordering | None:
    """The order to compute for the rows of a step; None for other steps, and for sorts without native code."""
    if step.op not in (sort, argsort, top_positions) or not isinstance(step.result, Buffer) or not step.result.size:
        return None
    node, result = step.function.results[0], step.result
    ((buffer, order),) = product_operands(step)
    element, axis = ELEMENTS.get(buffer.element), node.attribute("axis")
    shape, strides = (tuple(values[a] for a in order) for values in (buffer.shape, buffer.strides))
    batch = batch_of_rows(shape, strides, result.strides, axis)
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
