"""Matrix products with cuBLAS, for batches of any layout. Workspaces are preallocated, so a capture allocates nothing.

Evenly spaced matrices take one strided call. Other batches, such as interleaved attention heads or batches that one
operand broadcasts, take a call with arrays of pointers, which a small kernel fills.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, bf16, c64, c128, f16, f32, f64
from livegrad.ops.movement import permute
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, PerContext
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, launch_kernel, shared_library
from livegrad.runtime.cuda.libraries.tiled_product import Left, TiledProduct
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_WORKSPACE_BYTES = 32 << 20  # what cuBLAS recommends for Hopper and later; 4 MiB suffice before


class _Kind(NamedTuple):
    """cuBLAS's constants for an element type, and the type of its scale factors."""

    data: int  # cudaDataType
    compute: int  # cublasComputeType_t; halves are summed in single precision
    scale: np.dtype[Any]


_KINDS = {
    f16: _Kind(2, 68, np.dtype(np.float32)),
    bf16: _Kind(14, 68, np.dtype(np.float32)),
    f32: _Kind(0, 68, np.dtype(np.float32)),
    f64: _Kind(1, 70, np.dtype(np.float64)),
    c64: _Kind(4, 68, np.dtype(np.complex64)),
    c128: _Kind(5, 70, np.dtype(np.complex128)),
}
_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_DEFAULT_ALGORITHM = -1
_MAX_BATCH_AXES = 6
# Fills the addresses of all matrices of a batch: the multi-index of a matrix times the steps, in bytes, is its offset
# in each of the three operands.
_POINTERS = """\
struct Arguments { long long count, axes, sizes[6], steps[3][6], bases[3], to; };
extern "C" __global__ void pointers(const __grid_constant__ Arguments a)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long number = (long long)blockIdx.x * blockDim.x + threadIdx.x; number < a.count; number += step)
    {
        long long rest = number, addresses[3] = {a.bases[0], a.bases[1], a.bases[2]};
        for (long long axis = a.axes - 1; axis >= 0; --axis)
        {
            const long long digit = rest % a.sizes[axis];
            rest /= a.sizes[axis];
            for (int k = 0; k < 3; ++k) addresses[k] += digit * a.steps[k][axis];
        }
        for (int k = 0; k < 3; ++k) ((long long*)a.to)[k * a.count + number] = addresses[k];
    }
}
"""


@dataclass(frozen=True)
class Matrices:
    """The layout of a batch: `lead` is the stride of rows (of columns, if transposed), `steps` those of batch axes."""

    transposed: bool
    lead: int
    steps: tuple[int, ...]


@dataclass(eq=False)
class MatrixProduct:
    """C = A B for each pair of matrices of a batch, in row-major order."""

    element: Scalar
    rows: int
    columns: int
    inner: int
    batch: tuple[int, ...]
    first: Matrices
    second: Matrices
    result: Matrices
    _pointers: DeviceMemory | None = field(default=None, init=False)  # to all matrices, if they are not evenly spaced

    @property
    def name(self) -> str:
        return f"matmul {self.rows}x{self.inner}x{self.columns}"

    def prepare(self) -> None:
        """Creates the handle, the workspace that all products share, and memory for pointers."""
        _ = handle.current, _workspace.current
        if len(self.batch) > 1 and self._pointers is None:
            load_function(_POINTERS, "pointers", "pointers")
            self._pointers = DeviceMemory(3 * 8 * prod(self.batch))

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        use(stream)
        if len(self.batch) > 1:
            self._enqueue_pointers(stream, [*operands, result])
        else:
            self._enqueue_strided([*operands, result])

    def _enqueue_strided(self, addresses: Sequence[int]) -> None:
        steps = [matrices.steps[0] if self.batch else 0 for matrices in (self.first, self.second, self.result)]
        a, b, c = [
            [ctypes.c_void_p(address), data, lead, ctypes.c_longlong(step)]
            for address, (data, lead), step in zip(addresses, self._layouts, steps, strict=True)
        ]
        self._call("cublasGemmStridedBatchedEx_64", a, b, c)

    def _enqueue_pointers(self, stream: Any, addresses: Sequence[int]) -> None:
        memory, count, axes = self._pointers, prod(self.batch), len(self.batch)
        assert memory is not None
        unused = [0] * (_MAX_BATCH_AXES - axes)
        itemsize = self.element.dtype.itemsize
        steps = [[itemsize * step for step in m.steps] + unused for m in (self.first, self.second, self.result)]
        slots = [count, axes, *self.batch, *unused, *steps[0], *steps[1], *steps[2], *addresses, memory.address]
        launch_kernel(load_function(_POINTERS, "pointers", "pointers"), stream, count, slots)
        a, b, c = [
            [ctypes.c_void_p(memory.address + 8 * count * number), data, lead]
            for number, (data, lead) in enumerate(self._layouts)
        ]
        self._call("cublasGemmBatchedEx_64", a, b, c)

    def _call(self, name: str, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> None:
        # cuBLAS is column-major: its C is our Cᵀ = Bᵀ Aᵀ, in the same memory.
        library, blas = handle.current
        kind = _KINDS[self.element]
        one, zero = (np.array([value], kind.scale) for value in (1, 0))
        status = getattr(library, name)(
            blas,
            *[_TRANSPOSE if matrices.transposed else _NO_TRANSPOSE for matrices in (self.second, self.first)],
            *[ctypes.c_int64(size) for size in (self.columns, self.rows, self.inner)],
            ctypes.c_void_p(one.ctypes.data),
            *b,
            *a,
            ctypes.c_void_p(zero.ctypes.data),
            *c,
            ctypes.c_int64(prod(self.batch)),
            kind.compute,
            _DEFAULT_ALGORITHM,
        )
        _check(status, self.name)

    @property
    def _layouts(self) -> list[tuple[int, ctypes.c_int64]]:
        data = _KINDS[self.element].data
        return [(data, ctypes.c_int64(matrices.lead)) for matrices in (self.first, self.second, self.result)]


def matmul_call(step: HostStep) -> LibraryCall | None:
    """The call of a step: of cuBLAS, or of `TiledProduct` if cuBLAS is missing; None if neither supports it."""
    node, result = step.function.results[0], step.result
    if not isinstance(result, Buffer) or result.element not in _KINDS or 0 in result.shape:
        return None
    batch = result.shape[:-2]
    first, second = [_matrices(operand, batch) for operand in node.operands]
    shape = node.operands[0].type
    assert isinstance(shape, Tensor)
    inner = shape.shape[-1]
    if first is None or second is None or not isinstance(inner, int) or inner == 0:
        return None
    rows, columns = result.shape[-2:]
    target = Matrices(False, columns, result.strides[:-2])
    product = _simplify(MatrixProduct(result.element, rows, columns, inner, batch, first, second, target))
    return _tiled_product(product) if product is not None and library() is None else product


def _tiled_product(product: MatrixProduct) -> TiledProduct | None:
    """A product without cuBLAS; None for types and batches that `TiledProduct` does not support."""
    if product.element not in (f32, f64) or len(product.batch) > 1:
        return None
    first, second = product.first, product.second
    left, left_inner = (1, first.lead) if first.transposed else (first.lead, 1)
    row, column = (1, second.lead) if second.transposed else (second.lead, 1)
    return TiledProduct(
        product.element,
        product.rows,
        product.columns,
        product.batch[0] if product.batch else 1,
        Left(left, left_inner, first.steps[0] if product.batch else 0),
        np.arange(product.inner) * row,
        np.arange(product.columns) * column,
        second.steps[0] if product.batch else 0,
        along_inner=second.transposed,
    )


def _simplify(product: MatrixProduct) -> MatrixProduct | None:
    """Merges batch axes; None if too many are left.

    Axes that are evenly spaced in all operands merge. If all products share the second operand, the innermost batch
    axis merges with the rows.
    """
    operands = (product.first, product.second, product.result)
    axes: list[tuple[int, tuple[int, ...]]] = []  # sizes, and the steps of the three operands
    for size, *steps in zip(product.batch, *[matrices.steps for matrices in operands], strict=True):
        if size == 1:
            continue
        if axes and all(outer == size * step for outer, step in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = axes[-1][0] * size, tuple(steps)
        else:
            axes.append((size, tuple(steps)))
    rows, leads = product.rows, (product.first.lead, 0, product.result.lead)
    if axes and not product.first.transposed and axes[-1][1] == tuple(rows * lead for lead in leads):
        rows *= axes.pop()[0]
    if len(axes) > _MAX_BATCH_AXES:
        return None
    first, second, result = [
        replace(matrices, steps=tuple(steps[number] for _, steps in axes)) for number, matrices in enumerate(operands)
    ]
    batch = tuple(size for size, _ in axes)
    return replace(product, rows=rows, batch=batch, first=first, second=second, result=result)


def _matrices(operand: Node, batch: tuple[int, ...]) -> Matrices | None:
    """The layout of a dense or permuted operand; None if neither its rows nor its columns are contiguous."""
    base, order = operand, None
    if operand.op is permute:
        (base,) = operand.operands
        order = operand.attribute("axes")
    assert isinstance(base.type, Tensor)
    shape: tuple[int, ...] = base.type.shape  # type: ignore[assignment]
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if order is not None:
        shape, strides = tuple(shape[axis] for axis in order), [strides[axis] for axis in order]
    missing = len(batch) - len(shape[:-2])
    steps = [0] * missing + [0 if size == 1 else step for size, step in zip(shape[:-2], strides[:-2], strict=True)]
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return Matrices(False, max(down, columns), tuple(steps))
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return Matrices(True, max(across, rows), tuple(steps))
    return None


@cache
def library() -> ctypes.CDLL | None:
    """cuBLAS, or None if it is not installed."""
    return shared_library("cublas", ("libcublas.so.13", "libcublas.so.12"))


def _make_handle() -> tuple[Any, Any]:
    cublas = library()
    if cublas is None:
        raise DeviceError("cuBLAS is not installed", help="install nvidia-cublas")
    blas = ctypes.c_void_p()
    _check(cublas.cublasCreate_v2(ctypes.byref(blas)), "cublasCreate")
    return cublas, blas


handle = PerContext(_make_handle)
# One call uses the workspace at a time: dependencies order the calls of a graph, and the stream orders graphs.
_workspace = PerContext(lambda: DeviceMemory(_WORKSPACE_BYTES))


def use(stream: Any) -> None:
    """Enqueues the next calls on a stream, with the workspace of the context."""
    cublas, blas = handle.current
    _check(cublas.cublasSetStream_v2(blas, ctypes.c_void_p(int(stream))), "cublasSetStream")
    # cublasSetStream resets the workspace.
    workspace = _workspace.current
    size = ctypes.c_size_t(workspace.size)
    _check(cublas.cublasSetWorkspace_v2(blas, ctypes.c_void_p(workspace.address), size), "cublasSetWorkspace")


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"cuBLAS rejects `{what}`: status {status}")
