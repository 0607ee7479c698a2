"""Writes by computed index on the device, captured like library calls: sums and assignments.

Sums are atomic: additions to one element may be rounded in another order from run to run. If several values are
assigned to one element, the last one wins: a first pass finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.ir.types import Scalar, Tensor, f32, f64, i32, i64, scalar_of, u32, u64
from livegrad.ops.assignment import assign
from livegrad.ops.movement import permute, sizes
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, driver
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, launch_kernel
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_MOST_AXES = 8
SLOTS = (
    *("to", "updates", "owners", "count", "axes", "wide", "status"),
    *(f"index{axis}" for axis in range(_MOST_AXES)),
    *(f"extent{axis}" for axis in range(_MOST_AXES)),
)
_TEXT = """\
struct Arguments { element* to; const element* updates; int* owners; long long count, axes, wide;
                   unsigned long long* status; const void* indices[8]; long long extents[8]; };

// The element that a point writes; -1 if an index is out of range, which is reported.
__device__ inline long long target_of(const Arguments& a, long long point)
{
    long long target = 0;
    for (int axis = 0; axis < a.axes; ++axis)
    {
        const void* const indices = a.indices[axis];
        const bool wide = a.wide >> axis & 1;  // of 8 bytes each, not of 4
        const long long index = wide ? ((const long long*)indices)[point] : ((const int*)indices)[point];
        const long long extent = a.extents[axis];
        if (index < 0 || index >= extent)
        {
            if (a.status) atomicMin(a.status, ((unsigned long long)point << 16) | axis);
            return -1;
        }
        target = target * extent + index;
    }
    return target;
}

#define EACH_POINT for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < a.count; \\
                        e += (long long)gridDim.x * blockDim.x)

"""
_ADD = """\
extern "C" __global__ void add(const __grid_constant__ Arguments a)
{
    EACH_POINT
    {
        const long long target = target_of(a, e);
        if (target >= 0) atomicAdd((atomic_type*)&a.to[target], (atomic_type)a.updates[e]);
    }
}
"""
_ASSIGN = """\
extern "C" __global__ void find_last(const __grid_constant__ Arguments a)
{
    EACH_POINT
    {
        const long long target = target_of(a, e);
        if (target >= 0) atomicMax(&a.owners[target], (int)e);
    }
}

extern "C" __global__ void assign(const __grid_constant__ Arguments a)
{
    EACH_POINT
    {
        const long long target = target_of(a, e);
        if (target >= 0 && a.owners[target] == (int)e) a.to[target] = a.updates[e];
    }
}
"""
# Whole numbers wrap: those with a sign are added as those without.
_ATOMIC = {f32: "float", f64: "double", i32: "unsigned", u32: "unsigned", i64: "unsigned long long"}
_ATOMIC |= {u64: "unsigned long long"}


def source_of(element: Scalar, adds: bool) -> str:
    """CUDA C for elements of a type."""
    types = f"typedef {memory_type(element)} element;\n"
    return f"{types}typedef {_ATOMIC[element]} atomic_type;\n{_TEXT}{_ADD}" if adds else types + _TEXT + _ASSIGN


class Scatter:
    """Adds or assigns `count` values to elements of a copy of a tensor."""

    def __init__(
        self, element: Scalar, indices: Sequence[Scalar], shape: tuple[int, ...], count: int, adds: bool
    ) -> None:
        self.shape, self.count, self.adds = shape, count, adds
        self._wide = sum((index is i64) << axis for axis, index in enumerate(indices))
        self.failures: tuple[str, ...] = tuple(f"index out of range for axis {axis}" for axis in range(len(shape)))
        self._bytes = prod(shape) * element.dtype.itemsize
        self._text = source_of(element, adds)
        self._owners: DeviceMemory | None = None

    @property
    def name(self) -> str:
        return f"{'scatter_add' if self.adds else 'assign'} {self.count}"

    def prepare(self) -> None:
        """Loads the kernels, and allocates memory for which value each element takes."""
        load_function(self._text, "scatter", "add" if self.adds else "assign")
        if not self.adds and self._owners is None:
            self._owners = DeviceMemory(4 * prod(self.shape))

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues a copy of the tensor and the writes. The last operand is the address of the status word."""
        base, updates, *indices, status = operands
        check(driver.cuMemcpyDtoDAsync(result, base, self._bytes, stream))
        owners = 0 if self._owners is None else self._owners.address
        unused = [0] * (_MOST_AXES - len(self.shape))
        axes = (len(self.shape), self._wide, status, *indices, *unused, *self.shape, *unused)
        slots = (result, updates, owners, self.count, *axes)
        if self.adds:
            launch_kernel(load_function(self._text, "scatter", "add"), stream, self.count, slots)
            return
        assert self._owners is not None
        check(driver.cuMemsetD8Async(owners, 0xFF, self._owners.size, stream))
        for symbol in ("find_last", "assign"):
            launch_kernel(load_function(self._text, "scatter", symbol), stream, self.count, slots)


def scatter_call(step: HostStep) -> LibraryCall | None:
    """The writes of a step; None for types that are not added atomically, for other indices than i32 and i64, and where
    nothing is written."""
    node, result = step.function.results[0], step.result
    _, updates, *indices = node.operands
    types = [scalar for index in indices if (scalar := scalar_of(index.type)) in (i32, i64) and scalar is not None]
    if not isinstance(result, Buffer) or len(types) != len(indices) or not 0 < len(indices) <= _MOST_AXES:
        return None
    adds = node.op is not assign
    count = prod(sizes(updates)) if isinstance(updates.type, Tensor) else 1
    if any(operand.op is permute for operand in node.operands) or 0 in (count, *result.shape) or count >= 1 << 31:
        return None
    if adds and result.element not in _ATOMIC:
        return None
    return Scatter(result.element, types, result.shape, count, adds)
