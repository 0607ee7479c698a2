"""The cost model: the constants behind all decisions about loops.

Costs are in units of one addition. Each constant has a reason, or the measurement that chose it. Properties of the
machine come first; others are derived from them where possible. Constants that determine the order of additions (chunks
of reductions) are fixed, so that results have the same bits on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, Tensor, Type
from livegrad.ir.walk import nodes_of
from livegrad.ops.elementwise import div
from livegrad.ops.transcendental import sqrt

# --- the machine ------------------------------------------------------------------------------------------------------

CACHE_LINE = 64  # bytes, on all supported processors
SINGLE = 4  # bytes of the most common element type
# The data that a core can expect to stay in the caches: its share of the last level.
CACHED_BYTES = 1 << 24
WIDEST_VECTOR = 64  # bytes


def register_count(vector_bytes: int) -> int:
    """The number of vector registers for a vector size: AVX-512 has twice as many.

    >>> register_count(32), register_count(64)
    (16, 32)
    """
    return 32 if vector_bytes == WIDEST_VECTOR else 16


# --- items of work ----------------------------------------------------------------------------------------------------

# An item of work should take tens of microseconds: long enough to hide dispatch, short enough to balance load.
ITEM_COST = 4_000_000.0
LEAST_BLOCK, MOST_BLOCK = 1024, 1 << 16  # points of an item
# A chunk of work for a thread takes at least two microseconds: polling threads join within half a microsecond. More
# expensive work is split into up to this many chunks. 20 sweeps over 200 × 200 points, with a cost of 313,000 each,
# take 139 µs in one chunk, 77 in two and 79 in four.
CHUNK_COST, FEWEST_ITEMS = 100_000.0, 8
# Cheaper work ends before a sleeping thread wakes up, which takes tens of microseconds. It begins on one thread, and
# is shared if that turns out to be faster.
BRIEF_COST = 2_000_000.0
POINT_COST = 4.0  # the cost of a point in addition to its body: loads and stores

# --- loops on threads -------------------------------------------------------------------------------------------------

# A cheaper loop of a kernel is not worth threads: starting polling threads takes two to five microseconds. A thread
# does two to four scalar additions per nanosecond, and VECTOR_GAIN times as many in vectors of 8-byte elements.
PARALLEL_LOOP_COST, VECTOR_GAIN = 60_000.0, 8.0
SHARE_AT_ONCE = 0.25  # the part of that cost that a thread takes at once: a few microseconds, to balance uneven work
FEWEST_ITERATIONS = 4  # with fewer, an inner loop is a better choice
UNKNOWN_ITERATIONS = 32.0  # the assumed number for loops with unknown bounds
PRIVATE_BYTES = 1 << 17  # the limit for local arrays on the stack of each thread

# --- unrolled loops ---------------------------------------------------------------------------------------------------

# Unroll-and-jam factors, as (least iterations, factor): 128 products of a row with 128 × 128 numbers take 187 µs
# without, 80 with a factor of four and 73 with eight. In bodies with more nodes, loads and stores matter less.
JAMMED_ITERATIONS, JAMMED_NODES = ((64, 8), (4, 4)), 24

# Rows of a table that skewing fills at once, if it has at least this many columns, the body at most this many nodes,
# and each row lags at most this many columns behind the row above.
SKEWED_ROWS, SKEWED_COLUMNS, SKEWED_NODES, MOST_SKEW = 4, 16, 40, 3

# --- lanes ------------------------------------------------------------------------------------------------------------

FEWEST_LANES = 4  # with fewer, vectors do not pay off
MOST_LANES = 2 * WIDEST_VECTOR  # for one-byte elements: two registers
LONG_KERNEL, LARGE_KERNEL = 800, 2000  # nodes: larger kernels spill anyway, and compile faster with fewer lanes
MATH_SHARE = 0.5  # the share of the cost above which math functions decide the number of registers
MANY_MATH_CALLS = 8
MANY_PORTS = 64  # accesses of a kernel, each of which needs code for every register
SHORT_LOOP, MEDIUM_LOOP, LONG_LOOP = 48, 100, 300  # nodes of a loop's body
FEW_CARRIED = 3  # scalars that a loop carries, each of which takes several registers
SHORT_COST = 20.0  # the cost of a body that leaves registers unused
FEW_LANES = 16  # a dimension this short leaves lanes idle
# The unroll factor over groups of lanes if a point costs less than this: bodies are short, and each group has
# independent reductions.
LANE_GROUPS, CHEAP_POINT = 4, 60.0
PEELED_NODES = 200  # the limit for bodies that are duplicated for full groups of lanes and the remainder of a row

# --- short rows -------------------------------------------------------------------------------------------------------

SHORT_ROW = 8  # inner points that are fully unrolled
# Elements of a row that are loaded together and de-interleaved: a 4 × 4 matrix. 200,000 products of 3 × 3 take 3.0 ms
# with gathers and 1.4 with de-interleaving, of 4 × 4 5.8 and 4.7.
LONGEST_PACK = 16
# Elements that are de-interleaved together: rows of 5 bytes compile in 1.1 s with 128 lanes, in 0.3 s with 32.
MOST_PACKED = 256
# Rows for outer-loop vectorisation. For 1M × 3 floats with two threads, x * s with a scale per row takes 4.2 ms with
# lanes along rows and 1.2 across them; the length of each row 6.2 and 1.0; x divided by it 15 and 2.5.
MANY_ROWS = 64
# Longer rows, up to this many elements, are transposed in tiles. A softmax of 1M elements takes 6.5 ms along rows of 10
# and 0.8 across them, 2.1 and 0.8 with rows of 32, 0.9 and 1.1 with 50; sums 0.47 and 0.23, 0.22 and 0.24, 0.21 and
# 0.25.
TILED_ROW = 32

# --- transposed accesses ----------------------------------------------------------------------------------------------

TILE = CACHE_LINE // SINGLE  # inner points that are transposed in registers together
MOST_TRANSPOSED = 16  # accesses of a kernel with tiles, which are on the stack
# Points of the swept dimension in one item of work. Transposing 2048 × 2048 floats takes 4.1 ms with 16 points, 3.4
# with 64 and 2.7 with 1024, because reads continue in memory. With gathers it took 17 ms.
SWEPT_CHUNK = 1024
LONGEST_KEPT = 512  # elements of a row that each lane may keep in thread-local memory
LONGEST_FOLD = 4096  # elements that are added serially: longer sums would lose digits

# --- stores -----------------------------------------------------------------------------------------------------------

# Results of at least this size use non-temporal stores, which avoid reading the cache line first. A kernel from 16 MB
# to 16 MB takes 0.8 ms instead of 1.0, from 32 to 32 MB 1.9 instead of 2.9. Smaller results stay in a cache for the
# next reader.
NON_TEMPORAL_BYTES = CACHED_BYTES
# In more expensive kernels, non-temporal stores stall computation. From 64 MB to 64 MB, with and without: 4.2 and 5.9
# ms at a cost of 6, 5.2 and 5.8 at 12, 6.4 and 5.8 at 18, 12.6 and 7.3 at 48; a distance of 310 operations 42 and 38.
NON_TEMPORAL_COST = 12.0

# --- split reductions (fixed: they decide the order of additions) -----------------------------------------------------

# A reduction to fewer than FEW_ROWS rows of at least LONG_ROW elements is split over threads in chunks of fixed length.
FEW_ROWS, LONG_ROW = 64, 1 << 16
# Elements that one thread reduces before partial results are combined, along and across rows (half a megabyte of
# floats: the cache lines that one group of lanes loads are still cached for the next).
CHUNK, CHUNK_ACROSS = 1 << 14, 1 << 17
# A row of expensive points is split if it has at least this many chunks of this cost: the sum of 196 × 196 sums of 50
# products takes 160 µs on one thread.
DEAR_CHUNK_COST, FEWEST_CHUNKS = 400_000.0, 4
# A reduction over at least LEAST_CHUNK rows, to a result of at most WIDEST_CHUNK elements, is split too. With fewer
# than LEAST_ACROSS columns, rows do not share cache lines.
LEAST_CHUNK, WIDEST_CHUNK, LEAST_ACROSS = 64, 1 << 15, 8
# Elements that a group of lanes reduces down columns, in cache lines that are far apart. exp(x - logsumexp(x)) down
# 2048 × 2048 takes 6.7 ms in three sweeps of one kernel and 3.2 in three kernels, down 256 × 10,000 2.6 and 2.2.
FOLDED_LANES, LONG_COLUMNS = 64, 1 << 13
# Additions to a small tensor are done in chunks with private tensors if there are this many, and this many per element.
MANY_ADDITIONS, ADDITIONS_EACH, MOST_ADDED_CHUNKS = 1 << 16, 4, 16

# --- memory of a thread -----------------------------------------------------------------------------------------------

# Values that several sweeps of a row need are kept in thread-local memory if they have at least this cost, up to this
# many bytes: a part of the second-level cache.
SCRATCH_BYTES, SCRATCH_COST = 1 << 18, 8.0
# A tile of rows in a chain: everything that its steps write takes about half of the second-level cache.
TILE_SHARE = 2
LEAST_TILE_ROWS, MOST_TILE_ROWS = 16, 96
PRODUCT_ROWS = 6  # rows of the highest register tiles of most matrix products
FEWEST_TILES, TILES_A_THREAD = 4, 2  # so that late threads have less to do

# --- interleaving -----------------------------------------------------------------------------------------------------

INTERLEAVE_DELAY = 24  # operations by which the second half of the lanes lags; 12 perform equally
INTERLEAVE_LIVE = 7  # live values of a half; 5 and 6 perform nearly as well, 8 do not
DIVISIONS = frozenset({div, sqrt})  # ops that occupy the divider
# Fewer do not matter; with more, the divider is the bottleneck in any order.
FEWEST_DIVISIONS, DIVISION_IN = 4, 12
# Operations: in shorter code, iterations overlap anyway; longer code was not measured.
SHORTEST_INTERLEAVED, LONGEST_INTERLEAVED = 100, 450
MOST_INTERLEAVED_LIVE = register_count(WIDEST_VECTOR) // 4  # values of four registers each; more would spill

# --- CUDA devices -----------------------------------------------------------------------------------------------------

WARP = 32  # threads that run in lockstep
COLUMNS = WARP  # rows that a block takes together if adjacent rows are adjacent in memory
MOST_THREADS = 256  # threads of a block
WORTH_A_BLOCK = 32  # inner points of a row that are worth a block of threads
FEW_DEVICE_ROWS = 4096  # with fewer rows, one thread per row leaves threads idle
MANY_DEVICE_ROWS = 1 << 17  # with this many rows, one thread per row keeps the device busy
WARP_ROW = 512  # points of the longest row that a single warp takes
# Blocks share rows up to this many blocks (16 for each of the 132 multiprocessors of an H100 or H200), each with at
# least this many points per thread.
ENOUGH_BLOCKS, LEAST_POINTS = 16 * 132, 8
# A kernel with few nodes per element waits for memory: its threads take several rows at once if there are this many.
FEW_NODES, ROWS_AT_ONCE, MANY_ELEMENTS = 40, 4, 1 << 20
# Limits for keeping a row in registers between sweeps: registers and points per thread, and nodes of the unrolled code.
KEPT_REGISTERS, KEPT_POINTS, KEPT_NODES = 64, 16, 2000
DEVICE_REGISTERS = 1 << 16  # 32-bit registers of a multiprocessor
LARGEST_BLOCK = 1024  # threads, the limit of devices
# Points that a thread reads before it uses the first, in a sweep that only reduces: more reads in flight hide latency.
# With 2048 threads on a multiprocessor, four floats each are the 20 kB in flight that 4.3 TB/s need.
READS_IN_FLIGHT = 4
SCANNED_POINTS = 4  # adjacent points per thread in a row that several threads scan
# Tiles that transpose reads through shared memory: the length of a side, the least number of rows, and the most reads.
TILE_SIDE, LEAST_TILED, MOST_TILED_READS = 32, 1 << 16, 4
# A kernel with more nodes needs many registers, and gets smaller blocks, so that enough fit on a multiprocessor. A
# gradient of 1,080 instructions takes 4.6 ms in blocks of 256 threads with 223 registers each, 3.5 ms in blocks of 128.
MANY_NODES, HEAVY_THREADS = 500, 128
MOST_BLOCKS = 1 << 14  # sixteen times the number that the largest devices run at once; threads take several rows
# If each thread or block has private memory, at most this many run at once and take several rows.
MOST_BLOCKS_WITH_MEMORY, MOST_THREADS_WITH_MEMORY = 2048, 1 << 15
SHORT_INDEX = 1 << 30  # counts and offsets below this fit 32-bit indices, and so do sums of two

# --- costs ------------------------------------------------------------------------------------------------------------

LOOP_COST = 1000.0  # the cost of a loop or tape in a body: many iterations, or memory


def byte_size(type: Scalar) -> int:
    return 1 if type.kind == "bool" else type.bits // 8


def dense_bytes(type: Type) -> int:
    """The bytes of a tensor without symbolic sizes."""
    assert isinstance(type, Tensor)
    return byte_size(type.element) * prod([size for size in type.shape if isinstance(size, int)])


@lru_cache(maxsize=4096)
def branch_cost(function: Function) -> float:
    """Estimates the cost of a function in additions; loops and tapes are expensive."""
    total = 0.0
    for node in nodes_of(function):
        total += node.op.cost + sum(map(branch_cost, node.functions))
        if node.op.name in ("for_loop", "while_loop") or node.op.name.startswith("tape"):
            total += LOOP_COST
    return total


def kernel_cost(functions: Sequence[Function]) -> float:
    return sum(map(branch_cost, functions))
