"""Scatters on the device: `scatter_add` and `assign` by computed index, captured like library calls.

Integers are added atomically. Floats are added in a fixed order, so that results are reproducible: updates are sorted
by their target element, and each element sums its updates in chunks of a fixed size. If several values are assigned to
one element, the last one wins; a first pass finds it.
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
from livegrad.runtime.cuda.libraries.device_sorting import MergeSort
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, launch_kernel
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_MAX_AXES = 8
SLOTS = (
    *("to", "updates", "owners", "keys", "order", "partial", "count", "axes", "wide", "status"),
    *(f"index{axis}" for axis in range(_MAX_AXES)),
    *(f"extent{axis}" for axis in range(_MAX_AXES)),
)
_TEXT = """\
struct Arguments { element* to; const element* updates; int* owners; long long* keys; const long long* order;
                   element* partial; long long count, axes, wide;
                   unsigned long long* status; const void* indices[8]; long long extents[8]; };

// The element that a point writes. Reports an index that is out of range, and returns -1.
__device__ inline long long target_of(const Arguments& a, long long point)
{
    long long target = 0;
    for (int axis = 0; axis < a.axes; ++axis)
    {
        const void* const indices = a.indices[axis];
        const bool wide = a.wide >> axis & 1;  // 64-bit indices
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
_ADD_IN_ORDER = """\
extern "C" __global__ void find_targets(const __grid_constant__ Arguments a)
{
    EACH_POINT a.keys[e] = target_of(a, e);
}

// The first of the sorted updates with the same target as update `e`.
__device__ inline long long first_of(const Arguments& a, long long e)
{
    long long low = 0, high = e;
    while (low < high)
    {
        const long long middle = low + (high - low) / 2;
        if (a.keys[middle] < a.keys[e]) low = middle + 1; else high = middle;
    }
    return low;
}

// Requires sorted `keys`. The thread of the first update of a chunk sums the chunk.
extern "C" __global__ void add_chunks(const __grid_constant__ Arguments a)
{
    EACH_POINT
    {
        const long long target = a.keys[e];
        if (target < 0 || (e - first_of(a, e)) % CHUNK) continue;
        element sum = a.updates[a.order[e]];
        for (long long k = e + 1; k < e + CHUNK && k < a.count && a.keys[k] == target; ++k)
            sum += a.updates[a.order[k]];
        a.partial[e] = sum;
    }
}

extern "C" __global__ void add_partial_sums(const __grid_constant__ Arguments a)
{
    EACH_POINT
    {
        const long long target = a.keys[e];
        if (target < 0 || (e && a.keys[e - 1] == target)) continue;
        element sum = a.to[target];
        for (long long k = e; k < a.count && a.keys[k] == target; k += CHUNK) sum += a.partial[k];
        a.to[target] = sum;
    }
}
"""
_CHUNK = 128
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
# Integers wrap, so signed ones are added as unsigned ones.
_ATOMIC = {i32: "unsigned", u32: "unsigned", i64: "unsigned long long", u64: "unsigned long long"}


def source_of(element: Scalar, adds: bool) -> str:
    """The CUDA C for an element type."""
    types = f"typedef {memory_type(element)} element;\n"
    if not adds:
        return types + _TEXT + _ASSIGN
    if element in _ATOMIC:
        return f"{types}typedef {_ATOMIC[element]} atomic_type;\n{_TEXT}{_ADD}"
    return f"{types}#define CHUNK {_CHUNK}\n{_TEXT}{_ADD_IN_ORDER}"


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
        self._sort = MergeSort(i64, (count,), 0, False, wants_order=True) if adds and element not in _ATOMIC else None
        # For assignments, the update that each element takes; for sums, the targets, their order, and partial sums.
        self._workspace_bytes = 0 if adds and self._sort is None else 24 * count if adds else 4 * prod(shape)
        self._memory: DeviceMemory | None = None

    @property
    def name(self) -> str:
        return f"{'scatter_add' if self.adds else 'assign'} {self.count}"

    def prepare(self) -> None:
        """Loads the kernels and allocates their workspace."""
        load_function(
            self._text, "scatter", "assign" if not self.adds else "add" if self._sort is None else "add_chunks"
        )
        if self._sort is not None:
            self._sort.prepare()
        if self._workspace_bytes and self._memory is None:
            self._memory = DeviceMemory(self._workspace_bytes)

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues a copy of the tensor and the writes. The last operand is the address of the status word."""
        base, updates, *indices, status = operands
        check(driver.cuMemcpyDtoDAsync(result, base, self._bytes, stream))
        memory = 0 if self._memory is None else self._memory.address
        unused = [0] * (_MAX_AXES - len(self.shape))
        axes = (self.count, len(self.shape), self._wide, status, *indices, *unused, *self.shape, *unused)

        def launch(symbol: str, keys: int = memory) -> None:
            order, partial = (memory + 8 * self.count * part for part in (1, 2))
            slots = (result, updates, memory, keys, order, partial, *axes)
            launch_kernel(load_function(self._text, "scatter", symbol), stream, self.count, slots)

        if not self.adds:
            check(driver.cuMemsetD8Async(memory, 0xFF, self._workspace_bytes, stream))
            launch("find_last")
            launch("assign")
        elif self._sort is None:
            launch("add")
        else:
            launch("find_targets")
            self._sort.enqueue(stream, (memory,), memory + 8 * self.count)
            for symbol in ("add_chunks", "add_partial_sums"):
                launch(symbol, self._sort.sorted_keys)


def scatter_call(step: HostStep) -> LibraryCall | None:
    """The scatter of a step; None for sums of types below four bytes, for indices other than i32 and i64, and for
    empty scatters."""
    node, result = step.function.results[0], step.result
    _, updates, *indices = node.operands
    types = [scalar for index in indices if (scalar := scalar_of(index.type)) in (i32, i64) and scalar is not None]
    if not isinstance(result, Buffer) or len(types) != len(indices) or not 0 < len(indices) <= _MAX_AXES:
        return None
    adds = node.op is not assign
    count = prod(sizes(updates)) if isinstance(updates.type, Tensor) else 1
    if any(operand.op is permute for operand in node.operands) or 0 in (count, *result.shape) or count >= 1 << 31:
        return None
    if adds and result.element not in (f32, f64, *_ATOMIC):
        return None
    return Scatter(result.element, types, result.shape, count, adds)
