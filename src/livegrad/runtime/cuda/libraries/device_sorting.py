"""Stable sorting and binary search on the device, captured like library calls.

A merge sort with one thread for each element: each pass merges pairs of sorted runs, and the destination of an element
is its position in its run plus its rank in the other run, found by binary search. Blocks sort tiles of long rows in
shared memory first. Equal elements keep their order; NaN is larger than every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.ir.dimension import round_up
from livegrad.ir.types import Scalar, Tensor
from livegrad.ops.movement import permute
from livegrad.ops.sorting import argsort, searchsorted
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.libraries.library_call import MAX_BLOCKS, THREADS, LibraryCall, launch_blocks, launch_kernel
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

SLOTS = ("from", "to", "order_from", "order_to", "count", "length", "inner", "run")

# `order_from` is null in the first pass, where the order is 0, 1, 2 …; `order_to` is null if no order is requested.
_TEXT = """\
struct Arguments { const key_type* from; key_type* to; const long long* order_from; long long* order_to;
                   long long count; long long length; long long inner; long long run; };

__device__ inline bool comes_first(key_type a, key_type b)
{
    if (IS_NAN(a) || IS_NAN(b)) return DESCENDING ? IS_NAN(a) && !IS_NAN(b) : !IS_NAN(a) && IS_NAN(b);
    return DESCENDING ? VALUE(b) < VALUE(a) : VALUE(a) < VALUE(b);
}

// The number of sorted elements before a key, including those equal to it if `through` is set.
template<class position>
__device__ inline position rank(const key_type* rising, position count, position stride, key_type key, bool through)
{
    position low = 0, high = count;
    while (low < high)
    {
        const position middle = low + (high - low) / 2;
        const key_type other = rising[middle * stride];
        if (through ? !comes_first(key, other) : comes_first(other, key)) low = middle + 1; else high = middle;
    }
    return low;
}

extern "C" __global__ void merge(const __grid_constant__ Arguments a)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < a.count; e += step)
    {
        const long long index = e / a.inner % a.length;
        const long long row = e - index * a.inner;
        const long long start = index - index % (2 * a.run);
        const long long middle = start + a.run < a.length ? start + a.run : a.length;
        const long long end = middle + a.run < a.length ? middle + a.run : a.length;
        const bool is_first = index < middle;
        const long long other = is_first ? middle : start;
        const key_type key = a.from[e];
        const long long before = rank<long long>(
            a.from + row + other * a.inner, (is_first ? end : middle) - other, a.inner, key, !is_first);
        const long long target = row + ((is_first ? index : start + index - middle) + before) * a.inner;
        a.to[target] = key;
        if (a.order_to) a.order_to[target] = a.order_from ? a.order_from[e] : index;
    }
}

// Searches `length` sorted elements in `from` for the keys in `to`; writes positions to `order_to`, after equal
// elements if `run` is set.
extern "C" __global__ void search(const __grid_constant__ Arguments a)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < a.count; e += step)
        a.order_to[e] = rank<long long>(a.from, a.length, 1, a.to[e], a.run != 0);
}
"""


_TILES = """\
// Sorts the tiles of `count` rows of `length` elements.
extern "C" __global__ void __launch_bounds__(256) sort_tiles(const __grid_constant__ Arguments a)
{
    __shared__ key_type keys[2][TILE];
    __shared__ int order[2][ORDERED ? TILE : 1];
    const long long tiles = (a.length + TILE - 1) / TILE;
    for (long long tile = blockIdx.x; tile < a.count * tiles; tile += gridDim.x)
    {
        const long long first = tile % tiles * TILE, base = tile / tiles * a.length + first;
        const int count = a.length - first < TILE ? (int)(a.length - first) : TILE;
        for (int k = threadIdx.x; k < count; k += blockDim.x)
        {
            keys[0][k] = a.from[base + k];
            if (ORDERED) order[0][k] = (int)first + k;
        }
        __syncthreads();
        int source = 0;
        for (int run = 1; run < count; run *= 2, source = 1 - source)
        {
            for (int k = threadIdx.x; k < count; k += blockDim.x)
            {
                const int start = k - k % (2 * run);
                const int middle = start + run < count ? start + run : count;
                const int end = middle + run < count ? middle + run : count;
                const bool is_first = k < middle;
                const int other = is_first ? middle : start;
                const key_type key = keys[source][k];
                const int others = (is_first ? end : middle) - other;
                const int target = (is_first ? k : start + k - middle)
                                 + rank<int>(&keys[source][other], others, 1, key, !is_first);
                keys[1 - source][target] = key;
                if (ORDERED) order[1 - source][target] = order[source][k];
            }
            __syncthreads();
        }
        for (int k = threadIdx.x; k < count; k += blockDim.x)
        {
            a.to[base + k] = keys[source][k];
            if (ORDERED) a.order_to[base + k] = order[source][k];
        }
        __syncthreads();
    }
}
"""
_SHARED_BYTES = 32768  # for the keys and the order of a tile, twice
_FEWEST_TILED = 128  # elements of a row: shorter rows would leave threads of a block idle


def tile_of(element: Scalar) -> int:
    """The number of elements that a block sorts in shared memory."""
    return min(2048, _SHARED_BYTES // (2 * (element.dtype.itemsize + 4)))


def source_of(element: Scalar, descending: bool) -> str:
    """The CUDA C that merges and searches sorted elements of a type."""
    value, is_nan = "(v)", "(false)"
    if element.name in ("f16", "bf16"):  # bits: a sign, then a magnitude
        value = "((v) & 0x8000 ? -(int)((v) & 0x7fff) : (int)((v) & 0x7fff))"
        is_nan = f"(((v) & 0x7fff) > {'0x7c00' if element.name == 'f16' else '0x7f80'})"
    elif element.kind == "float":
        is_nan = "((v) != (v))"
    macros = f"#define VALUE(v) {value}\n#define IS_NAN(v) {is_nan}\n#define DESCENDING {int(descending)}\n"
    return f"typedef {memory_type(element)} key_type;\n{macros}{_TEXT}"


def tile_source_of(element: Scalar, descending: bool, ordered: bool) -> str:
    """The CUDA C that sorts tiles, and their order too if it is wanted."""
    macros = f"#define TILE {tile_of(element)}\n#define ORDERED {int(ordered)}\n"
    return source_of(element, descending) + macros + _TILES


class MergeSort:
    """Sorts rows along one axis, of `length` elements with stride `inner`, or computes the order that sorts them."""

    def __init__(self, element: Scalar, shape: tuple[int, ...], axis: int, descending: bool, wants_order: bool) -> None:
        self.count, self.length, self.inner = prod(shape), shape[axis], prod(shape[axis + 1 :])
        self.element, self.wants_order = element, wants_order
        self._text = source_of(element, descending)
        self._tiles = tile_source_of(element, descending, wants_order)
        self._memory: DeviceMemory | None = None

    @property
    def name(self) -> str:
        return f"{'argsort' if self.wants_order else 'sort'} {self.length}"

    @property
    def sorts_tiles(self) -> bool:
        """Whether the first pass sorts tiles of contiguous rows."""
        return self.inner == 1 and _FEWEST_TILED <= self.length < 1 << 31

    @property
    def runs(self) -> list[int]:
        """The length of the sorted runs that each pass merges; rows of one element need one pass, which copies them."""
        first = tile_of(self.element) if self.sorts_tiles else 1
        runs = [first << doubling for doubling in range((-(-self.length // first) - 1).bit_length())]
        return runs if self.sorts_tiles or runs else [1]

    @property
    def sorted_keys(self) -> int:
        """The address of the sorted keys after a sort with `wants_order`."""
        assert self._memory is not None
        return self._memory.address + round_up(self.count * self.element.dtype.itemsize, 16)

    def prepare(self) -> None:
        """Allocates the buffers between passes, and loads the kernel."""
        load_function(self._text, "sort", "merge")
        if self.sorts_tiles:
            load_function(self._tiles, "sort", "sort_tiles")
        if self._memory is None:
            keys = round_up(self.count * self.element.dtype.itemsize, 16)
            self._memory = DeviceMemory(2 * keys + 8 * self.count)

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues a launch for each pass; the last one writes the result."""
        assert self._memory is not None
        keys = round_up(self.count * self.element.dtype.itemsize, 16)
        first = self._memory.address
        spare_order = first + 2 * keys
        passes = [0] * self.sorts_tiles + self.runs  # 0: sorts tiles
        source, order = operands[0], 0
        for pass_index, run in enumerate(passes):
            writes_result = (len(passes) - 1 - pass_index) % 2 == 0
            target = first + keys * writes_result if self.wants_order else result if writes_result else first
            order_to = (result if writes_result else spare_order) if self.wants_order else 0
            slots = (source, target, order, order_to, self.count, self.length, self.inner, run)
            if run:
                launch_kernel(load_function(self._text, "sort", "merge"), stream, self.count, slots)
            else:
                rows, tile = self.count // self.length, tile_of(self.element)
                blocks = min(MAX_BLOCKS, rows * -(-self.length // tile))
                slots = (*slots[:4], rows, *slots[5:])
                launch_blocks(load_function(self._tiles, "sort", "sort_tiles"), stream, blocks, THREADS, slots)
            source, order = target, order_to


class Search:
    """Finds the insertion points of values in a sorted row."""

    def __init__(self, element: Scalar, length: int, count: int, after_equals: bool) -> None:
        self.length, self.count, self.after_equals = length, count, after_equals
        self._text = source_of(element, descending=False)

    @property
    def name(self) -> str:
        return f"searchsorted {self.length}"

    def prepare(self) -> None:
        """Loads the kernel."""
        load_function(self._text, "sort", "search")

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues one launch with a thread for each value."""
        slots = (operands[0], operands[-1], 0, result, self.count, self.length, 1, int(self.after_equals))
        launch_kernel(load_function(self._text, "sort", "search"), stream, self.count, slots)


def sort_call(step: HostStep) -> LibraryCall | None:
    """The sort of a step; None if there is nothing to sort."""
    node = step.function.results[0]
    source = node.operands[0].type
    if not isinstance(source, Tensor) or node.operands[0].op is permute or not isinstance(step.result, Buffer):
        return None
    shape: tuple[int, ...] = source.shape  # type: ignore[assignment]
    if 0 in shape:
        return None
    assert isinstance(source.element, Scalar)
    return MergeSort(
        source.element, shape, node.attribute("axis"), node.attribute("descending"), wants_order=node.op is argsort
    )


def search_call(step: HostStep) -> LibraryCall | None:
    """The search of a step; None if there are no values or no sorted elements."""
    node = step.function.results[0]
    ordered, values = (operand.type for operand in node.operands)
    if not isinstance(ordered, Tensor) or not isinstance(values, Tensor) or node.op is not searchsorted:
        return None
    sizes: tuple[int, ...] = (*ordered.shape, *values.shape)  # type: ignore[assignment]
    if 0 in sizes or any(operand.op is permute for operand in node.operands):
        return None
    assert isinstance(ordered.element, Scalar)
    return Search(ordered.element, sizes[0], prod(sizes[1:]), node.attribute("side") == "right")
