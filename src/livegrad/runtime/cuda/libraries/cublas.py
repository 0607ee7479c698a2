"""Matrix products with cuBLAS: strided batches in full precision, in preallocated memory, so that capturing allocates
none."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, c64, c128, f32, f64
from livegrad.ops.movement import permute
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, PerContext
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, shared_library
from livegrad.schedule.plan import Buffer, HostStep

_WORKSPACE_BYTES = 32 << 20  # what cuBLAS recommends for Hopper and later; 4 MiB suffice before
_FUNCTIONS = {
    f32: "cublasSgemmStridedBatched_64",
    f64: "cublasDgemmStridedBatched_64",
    c64: "cublasCgemmStridedBatched_64",
    c128: "cublasZgemmStridedBatched_64",
}
_NO_TRANSPOSE, _TRANSPOSE = 0, 1


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices: `lead` is the stride of rows (of columns, if transposed), `step` that of matrices."""

    transposed: bool
    lead: int
    step: int


@dataclass(frozen=True)
class MatrixProduct:
    """C = A B for `count` pairs of matrices, in row-major order."""

    element: Scalar
    rows: int
    columns: int
    inner: int
    count: int
    first: Matrices
    second: Matrices

    @property
    def name(self) -> str:
        return f"matmul {self.rows}x{self.inner}x{self.columns}"

    def prepare(self) -> None:
        """Creates the handle and the workspace that all products share."""
        _ = _handle.current, _workspace.current

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        # cuBLAS is column-major: its C is our Cᵀ = Bᵀ Aᵀ, in the same memory.
        a, b = self.first, self.second
        one, zero = (np.array([value], self.element.dtype) for value in (1, 0))
        library, handle = _handle.current
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(int(stream))), "cublasSetStream")
        # Setting the stream resets the workspace.
        workspace = _workspace.current
        _check(
            library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(workspace.address), ctypes.c_size_t(workspace.size)),
            "cublasSetWorkspace",
        )
        status = getattr(library, _FUNCTIONS[self.element])(
            handle,
            *[_TRANSPOSE if m.transposed else _NO_TRANSPOSE for m in (b, a)],
            *[ctypes.c_int64(size) for size in (self.columns, self.rows, self.inner)],
            ctypes.c_void_p(one.ctypes.data),
            *[ctypes.c_void_p(operands[1]), ctypes.c_int64(b.lead), ctypes.c_longlong(b.step)],
            *[ctypes.c_void_p(operands[0]), ctypes.c_int64(a.lead), ctypes.c_longlong(a.step)],
            ctypes.c_void_p(zero.ctypes.data),
            *[ctypes.c_void_p(result), ctypes.c_int64(self.columns), ctypes.c_longlong(self.rows * self.columns)],
            ctypes.c_int64(self.count),
        )
        _check(status, self.name)


def matmul_call(step: HostStep) -> LibraryCall | None:
    """The cuBLAS call of a step; None if cuBLAS is missing or does not support the product."""
    node, result = step.function.results[0], step.result
    if not isinstance(result, Buffer) or result.element not in _FUNCTIONS or 0 in result.shape or library() is None:
        return None
    batch = result.shape[:-2]
    operands = [_matrices(operand, batch) for operand in node.operands]
    first, second = operands
    shape = node.operands[0].type
    assert isinstance(shape, Tensor)
    inner = shape.shape[-1]
    if first is None or second is None or not isinstance(inner, int) or inner == 0:
        return None
    return MatrixProduct(result.element, result.shape[-2], result.shape[-1], inner, prod(batch), first, second)


def _matrices(operand: Node, batch: tuple[int, ...]) -> Matrices | None:
    """The memory layout of an operand: dense, possibly with permuted dimensions."""
    base, order = operand, None
    if operand.op is permute:
        (base,) = operand.operands
        order = operand.attribute("axes")
    assert isinstance(base.type, Tensor)
    shape: tuple[int, ...] = base.type.shape  # type: ignore[assignment]
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if order is not None:
        shape, strides = tuple(shape[axis] for axis in order), [strides[axis] for axis in order]
    step = _batch_step(shape[:-2], strides[:-2], batch)
    if step is None:
        return None
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return Matrices(False, max(down, columns), step)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return Matrices(True, max(across, rows), step)
    return None


def _batch_step(shape: Sequence[int], strides: Sequence[int], batch: tuple[int, ...]) -> int | None:
    """The stride between matrices of a batch: 0 if all products share one; None if no single stride visits them all."""
    if prod(shape) == 1:
        return 0
    if tuple(shape) != batch[-len(shape) :] or prod(shape) != prod(batch):
        return None
    pairs = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    step = pairs[-1][1]
    expected = step
    for size, stride in reversed(pairs):
        if stride != expected:
            return None
        expected = stride * size
    return step


@cache
def library() -> ctypes.CDLL | None:
    """cuBLAS, or None if it is not installed."""
    return shared_library("cublas", ("libcublas.so.13", "libcublas.so.12"))


def _make_handle() -> tuple[Any, Any]:
    cublas = library()
    if cublas is None:
        raise DeviceError("cuBLAS is not installed", help="install nvidia-cublas")
    handle = ctypes.c_void_p()
    _check(cublas.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
    return cublas, handle


_handle = PerContext(_make_handle)
# Only one call uses the workspace at a time: dependencies order the calls of a graph, the stream orders the graphs.
_workspace = PerContext(lambda: DeviceMemory(_WORKSPACE_BYTES))


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"cuBLAS rejects `{what}`: status {status}")
