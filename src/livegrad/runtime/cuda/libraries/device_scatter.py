"""Scatters on the device: `scatter_add` and `assign` by computed index, captured like library calls.

Integers are added atomically. Floats are added as integers, so that the order does not matter and results are
reproducible: the largest exponent among the updates of an element is found first, then each update is added with a
fixed number of bits below it, more than its own type has. If several values are assigned to one element, the last one
wins; a first pass finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.ir.dimension import round_up
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, f32, f64, i32, i64, scalar_of, u32, u64
from livegrad.ops.assignment import assign
from livegrad.ops.movement import broadcast, iota, permute, sizes
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, driver
from livegrad.runtime.cuda.libraries.library_call import LibraryCall, launch_kernel
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_MAX_AXES = 8
SLOTS = (
    *("to", "updates", "owners", "high", "low", "bits", "count", "elements", "axes", "wide", "status"),
    *(f"{kind}{axis}" for kind in ("index", "extent", "divisor", "modulus") for axis in range(_MAX_AXES)),
)
_TEXT = """\
struct Arguments { element* to; const element* updates; int* owners; unsigned long long* high; unsigned long long* low;
                   long long bits, count, elements, axes, wide; unsigned long long* status;
                   const void* indices[8]; long long extents[8], divisors[8], moduli[8]; };

// The element that a point writes. Reports an index that is out of range, and returns -1.
__device__ inline long long target_of(const Arguments& a, unsigned int point)
{
    long long target = 0;
    for (int axis = 0; axis < a.axes; ++axis)
    {
        const void* const indices = a.indices[axis];
        const unsigned int position = point / (unsigned int)a.divisors[axis] % (unsigned int)a.moduli[axis];
        const bool wide = a.wide >> axis & 1;  // 64-bit indices
        const long long index = !indices ? position
                              : wide ? ((const long long*)indices)[position] : ((const int*)indices)[position];
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

#define EACH(count) for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < (count); \\
                         e += (long long)gridDim.x * blockDim.x)

"""
_ADD = """\
extern "C" __global__ void add(const __grid_constant__ Arguments a)
{
    EACH(a.count)
    {
        const long long target = target_of(a, e);
        if (target >= 0) atomicAdd((atomic_type*)&a.to[target], (atomic_type)a.updates[e]);
    }
}
"""
# `owners` has the largest biased exponent of each element, or flags; 0 if nothing is added to it.
_ADD_FLOATS = """\
#define UP (1 << 28)
#define DOWN (1 << 29)
#define NOT_A_NUMBER (1 << 30)

extern "C" __global__ void find_exponents(const __grid_constant__ Arguments a)
{
    EACH(a.count)
    {
        const long long target = target_of(a, e);
        if (target < 0) continue;
        element_bits bits;
        memcpy(&bits, &a.updates[e], sizeof bits);
        const int exponent = (int)(bits >> MANTISSA) & EXPONENTS;
        int found = exponent ? exponent : 1;  // a denormal number, or zero
        if (exponent == EXPONENTS)
            found = bits << (8 * sizeof bits - MANTISSA) ? NOT_A_NUMBER : bits >> (8 * sizeof bits - 1) ? DOWN : UP;
        // Flags are kept: they are larger than exponents.
        if (found >= UP) atomicOr(&a.owners[target], found);
        else if (a.owners[target] < found) atomicMax(&a.owners[target], found);
    }
}

extern "C" __global__ void add_scaled(const __grid_constant__ Arguments a)
{
    EACH(a.count)
    {
        const long long target = target_of(a, e);
        if (target < 0 || a.owners[target] >= UP) continue;
        const double scaled = ldexp((double)a.updates[e], (int)a.bits + BIAS - 1 - a.owners[target]);
        const long long high = llrint(scaled);
        if (high) atomicAdd(&a.high[target], (unsigned long long)high);
        if (sizeof(element) == 4) continue;
        const long long low = llrint(ldexp(scaled - (double)high, (int)a.bits));
        if (low) atomicAdd(&a.low[target], (unsigned long long)low);
    }
}

extern "C" __global__ void add_sums(const __grid_constant__ Arguments a)
{
    EACH(a.elements)
    {
        const int exponent = a.owners[e];
        if (!exponent) continue;
        const double infinity = __longlong_as_double(0x7ff0000000000000LL);
        double sum;
        if (exponent >= UP)
        {
            const bool is_nan = exponent & NOT_A_NUMBER || (exponent & UP && exponent & DOWN);
            sum = is_nan ? infinity - infinity : exponent & UP ? infinity : -infinity;
        }
        else
        {
            const long long high = (long long)a.high[e];
            sum = (double)high;
            if (sizeof(element) == 8)  // `high` has more bits than a double
                sum = (double)(high >> 32) * 4294967296.0
                    + ((double)(high & 0xffffffffLL) + ldexp((double)(long long)a.low[e], -(int)a.bits));
            sum = ldexp(sum, exponent - (int)a.bits - BIAS + 1);
        }
        a.to[e] = (element)((double)a.to[e] + sum);
    }
}
"""
_ASSIGN = """\
extern "C" __global__ void find_last(const __grid_constant__ Arguments a)
{
    EACH(a.count)
    {
        const long long target = target_of(a, e);
        if (target >= 0) atomicMax(&a.owners[target], (int)e);
    }
}

extern "C" __global__ void assign(const __grid_constant__ Arguments a)
{
    EACH(a.count)
    {
        const long long target = target_of(a, e);
        if (target >= 0 && a.owners[target] == (int)e) a.to[target] = a.updates[e];
    }
}
"""
# Integers wrap, so signed ones are added as unsigned ones.
_ATOMIC = {i32: "unsigned", u32: "unsigned", i64: "unsigned long long", u64: "unsigned long long"}
_FLOATS = {
    f32: "typedef unsigned int element_bits;\n#define MANTISSA 23\n#define EXPONENTS 255\n#define BIAS 127\n",
    f64: "typedef unsigned long long element_bits;\n#define MANTISSA 52\n#define EXPONENTS 2047\n#define BIAS 1023\n",
}
_SUM_BITS = 61  # of a 64-bit sum: less than half of its range, for rounded updates


def source_of(element: Scalar, adds: bool) -> str:
    """The CUDA C for an element type."""
    types = f"typedef {memory_type(element)} element;\n"
    if not adds:
        return types + _TEXT + _ASSIGN
    if element in _ATOMIC:
        return f"{types}typedef {_ATOMIC[element]} atomic_type;\n{_TEXT}{_ADD}"
    return types + _FLOATS[element] + _TEXT + _ADD_FLOATS


@dataclass(frozen=True)
class Index:
    """The index of each update along an axis: `values[update // divisor % modulus]`, or the position itself."""

    element: Scalar
    divisor: int
    modulus: int
    in_memory: bool = True


class Scatter:
    """Adds or assigns `count` values to elements of a copy of a tensor."""

    def __init__(
        self, element: Scalar, indices: Sequence[Index], shape: tuple[int, ...], count: int, adds: bool
    ) -> None:
        self.shape, self.count, self.adds, self.indices = shape, count, adds, indices
        self.failures: tuple[str, ...] = tuple(f"index out of range for axis {axis}" for axis in range(len(shape)))
        self._elements = prod(shape)
        self._bytes = self._elements * element.dtype.itemsize
        self._text = source_of(element, adds)
        self._steps = ("find_last", "assign") if not adds else ("add",)
        self._words = 0  # 64-bit sums for each element
        if adds and element in _FLOATS:
            self._steps = ("find_exponents", "add_scaled")
            self._words = 1 if element is f32 else 2
        self._owner_bytes = round_up(4 * self._elements, 16)
        self._memory: DeviceMemory | None = None

    @property
    def name(self) -> str:
        return f"{'scatter_add' if self.adds else 'assign'} {self.count}"

    @property
    def _workspace_bytes(self) -> int:
        return 0 if self._steps == ("add",) else self._owner_bytes + 8 * self._words * self._elements

    def prepare(self) -> None:
        """Loads the kernels and allocates their workspace."""
        load_function(self._text, "scatter", self._steps[0])
        if self._workspace_bytes and self._memory is None:
            self._memory = DeviceMemory(self._workspace_bytes)

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues a copy of the tensor and the writes. The last operand is the address of the status word."""
        base, updates, *addresses, status = operands
        check(driver.cuMemcpyDtoDAsync(result, base, self._bytes, stream))
        memory = 0 if self._memory is None else self._memory.address
        if memory:
            check(driver.cuMemsetD8Async(memory, 0 if self.adds else 0xFF, self._workspace_bytes, stream))
        high = memory + self._owner_bytes
        low = high + 8 * self._elements
        wide = sum((index.element is i64) << axis for axis, index in enumerate(self.indices))
        in_memory = iter(addresses)
        values = [next(in_memory) if index.in_memory else 0 for index in self.indices]
        unused = [0] * (_MAX_AXES - len(self.shape))
        axes = [values, self.shape, [i.divisor for i in self.indices], [i.modulus for i in self.indices]]
        slots = (result, updates, memory, high, low, _SUM_BITS - self.count.bit_length(), self.count, self._elements,
                 len(self.shape), wide, status, *[slot for group in axes for slot in (*group, *unused)])  # fmt: skip
        for symbol in self._steps:
            launch_kernel(load_function(self._text, "scatter", symbol), stream, self.count, slots)
        if self._words:
            launch_kernel(load_function(self._text, "scatter", "add_sums"), stream, self._elements, slots)


def scatter_call(step: HostStep) -> LibraryCall | None:
    """The scatter of a step; None if there is none on the device: for sums of types below four bytes, and for empty
    scatters."""
    node, result = step.function.results[0], step.result
    base, updates, *indices = node.operands
    if not isinstance(result, Buffer) or not 0 < len(indices) <= _MAX_AXES:
        return None
    adds = node.op is not assign
    count = prod(sizes(updates)) if isinstance(updates.type, Tensor) else 1
    if any(operand.op is permute for operand in (base, updates, *indices)) or 0 in (count, *result.shape):
        return None
    if count >= 1 << 31 or (adds and result.element not in (*_FLOATS, *_ATOMIC)):
        return None
    return Scatter(result.element, [_index(index, count) for index in indices], result.shape, count, adds)


def _index(node: Node, count: int) -> Index:
    """How the index along an axis is found: in memory, in a row that others share, or as the position of an update."""
    element = scalar_of(node.type)
    assert element is not None
    if node.op is iota:
        axis = node.attribute("axis")
        return Index(i64, prod(sizes(node)[axis + 1 :]), sizes(node)[axis], in_memory=False)
    if node.op is broadcast:
        return Index(element, prod(sizes(node)[node.attribute("axes")[-1] + 1 :]), prod(sizes(node.operands[0])))
    return Index(element, 1, count)
