"""The cost model: all numbers by which loops are decided.

Costs are in units of one addition. Each number has its reason or the measurement that chose it. Numbers of the machine
come first, and others are derived from them where that is what they mean. What changes the order of additions (chunks
of reductions) is fixed, so that results have the same bits on every machine.
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

CACHE_LINE = 64  # bytes, on all processors that we run on
SINGLE = 4  # bytes of the most common number
# What a core may expect to find in the caches later: its share of the last level.
CACHED_BYTES = 1 << 24
WIDEST_VECTOR = 64  # bytes


def register_count(vector_bytes: int) -> int:
    """Vector registers of a processor with vectors of this size: AVX-512 has twice as many.

    >>> register_count(32), register_count(64)
    (16, 32)
    """
    return 32 if vector_bytes == WIDEST_VECTOR else 16


# --- items of work ----------------------------------------------------------------------------------------------------

# An item of work should take some tens of microseconds: long enough to hide handing it out, short enough to share.
ITEM_COST = 4_000_000.0
LEAST_BLOCK, MOST_BLOCK = 1024, 1 << 16  # points of an item
# A chunk of work that a thread should take takes two microseconds at least: threads that look for work join in half a
# one. What costs more is cut into so many chunks, for as many threads. 20 sweeps over 200 × 200 points, of 313,000
# each, take 139 µs in one chunk, 77 in two and 79 in four.
CHUNK_COST, FEWEST_ITEMS = 100_000.0, 8
BRIEF_COST = 2_000_000.0  # less is done before a thread has woken up, which takes some tens of microseconds
POINT_COST = 4.0  # of a point besides its body: to load and store a number is work, too

# --- loops on threads -------------------------------------------------------------------------------------------------

# A loop of a kernel that does less than this is not worth threads: starting them takes two to five microseconds if they
# look for work. A thread does two to four additions in a nanosecond one by one, and so many times more in vectors of
# numbers of eight bytes.
PARALLEL_LOOP_COST, VECTOR_GAIN = 60_000.0, 8.0
SHARE_AT_ONCE = 0.25  # of it, which a thread takes at once: a few microseconds, so that uneven work is shared
FEWEST_ITERATIONS = 4  # with fewer, a loop inside has more to share
UNKNOWN_ITERATIONS = 32.0  # of a loop about which nothing is known
PRIVATE_BYTES = 1 << 17  # of local arrays, which are on the stack of each thread

# --- unrolled loops ---------------------------------------------------------------------------------------------------

# Iterations of an outer loop that change an element before it is written, by how many there are at least: 128 products
# of a row with 128 × 128 numbers take 187 µs one by one, 80 with four and 73 with eight. In longer bodies than so many
# nodes, reading and writing matter less.
JAMMED_ITERATIONS, JAMMED_NODES = ((64, 8), (4, 4)), 24

# Rows of a table that are filled at once, each cell of which waits for the one before it; of at least so many columns,
# by at most so many nodes, with each row at most so many columns behind the one above.
SKEWED_ROWS, SKEWED_COLUMNS, SKEWED_NODES, MOST_SKEW = 4, 16, 40, 3

# --- lanes ------------------------------------------------------------------------------------------------------------

FEWEST_LANES = 4  # with fewer, vectors do not pay
MOST_LANES = 2 * WIDEST_VECTOR  # of bytes: two registers
LONG_KERNEL, LARGE_KERNEL = 800, 2000  # nodes: with more, values spill in any case, and fewer lanes compile faster
MATH_SHARE = 0.5  # of the cost, from which on calls of math functions decide how many registers are worthwhile
MANY_MATH_CALLS = 8
MANY_PORTS = 64  # accesses of one kernel, each of which takes code for every register
SHORT_LOOP, MEDIUM_LOOP, LONG_LOOP = 48, 100, 300  # nodes of a loop's body
FEW_CARRIED = 3  # numbers that a loop carries, each of which takes several registers
SHORT_COST = 20.0  # of a body that has registers to spare
FEW_LANES = 16  # a dimension so short leaves lanes idle
# Groups of lanes that are written one after the other where a point costs less than this: the body of a long row is
# short, and each group has its own reductions, which do not wait for each other.
LANE_GROUPS, CHEAP_POINT = 4, 60.0
PEELED_NODES = 200  # of bodies that are written twice, for full groups of lanes and for the remainder of a row

# --- short rows -------------------------------------------------------------------------------------------------------

SHORT_ROW = 8  # inner points that code names one by one
# Numbers of a row that are read together: a matrix of four rows. 200,000 products of 3 × 3 take 3.0 ms gathered and 1.4
# packed, of 4 × 4 5.8 and 4.7.
LONGEST_PACK = 16
# Numbers that are shuffled into columns together: rows of 5 bytes compile in 1.1 s by 128 lanes, in 0.3 by 32.
MOST_PACKED = 256
# Measured at 1M × 3 single numbers, two threads: x * s, with a number for each row, takes 4.2 ms in rows of lanes and
# 1.2 across them; the length of each row 6.2 and 1.0; x divided by it 15 and 2.5.
MANY_ROWS = 64
# Longer rows, up to this many numbers, are transposed in tiles. A softmax of 1M numbers takes 6.5 ms along rows of 10
# and 0.8 across them, 2.1 and 0.8 with rows of 32, 0.9 and 1.1 with 50; sums 0.47 and 0.23, 0.22 and 0.24, 0.21 and
# 0.25.
TILED_ROW = 32

# --- transposed accesses ----------------------------------------------------------------------------------------------

TILE = CACHE_LINE // SINGLE  # inner points that are transposed in registers together
MOST_TRANSPOSED = 16  # accesses of a kernel that have tiles, which are on the stack
# Points of the swept dimension in one item of work. 2048 × 2048 single numbers are transposed in 4.1 ms with 16, in 3.4
# with 64 and in 2.7 with 1024: reads should continue in memory. Gathered, they took 17 ms.
SWEPT_CHUNK = 1024
LONGEST_KEPT = 512  # numbers of a row that each lane may keep in a thread's own memory
LONGEST_FOLD = 4096  # numbers that are added one after the other: more would lose digits

# --- stores -----------------------------------------------------------------------------------------------------------

# A result that the caches cannot hold is stored past them, which avoids reading it first. A kernel from 16 MB to 16 MB
# takes 1.0 ms and 0.8, from 32 to 32 2.9 and 1.9; but what reads 8 MB next finds them in a cache, if they went there.
NON_TEMPORAL_BYTES = CACHED_BYTES
# Where there is more to compute, such stores hold up the rest. From 64 MB to 64 MB, non-temporal and not: 4.2 and 5.9
# ms at a cost of 6, 5.2 and 5.8 at 12, 6.4 and 5.8 at 18, 12.6 and 7.3 at 48; a distance of 310 operations 42 and 38.
NON_TEMPORAL_COST = 12.0

# --- split reductions (fixed: they decide the order of additions) -----------------------------------------------------

# A reduction to fewer rows than this, each longer than that, is split over threads in chunks of fixed length.
FEW_ROWS, LONG_ROW = 64, 1 << 16
# Elements that one thread reduces before partial results are combined, along and across rows (half a megabyte of single
# numbers: cache lines that one group of lanes loads are there for the next).
CHUNK, CHUNK_ACROSS = 1 << 14, 1 << 17
# A row of dear points is split where it has so many chunks of this cost: the sum of 196 × 196 sums of 50 products takes
# 160 µs on one thread.
DEAR_CHUNK_COST, FEWEST_CHUNKS = 400_000.0, 4
# A reduction across so many rows at least, to a result of so many at most, is split too. Fewer than that share no
# lines.
LEAST_CHUNK, WIDEST_CHUNK, LEAST_ACROSS = 64, 1 << 15, 8
# Numbers that a group of lanes reduces down columns, in cache lines that are far apart. exp(x - logsumexp(x)) down
# 2048 × 2048 takes 6.7 ms in three sweeps of one kernel and 3.2 in three kernels, down 256 × 10,000 2.6 and 2.2.
FOLDED_LANES, LONG_COLUMNS = 64, 1 << 13
# Additions to a small tensor are done in chunks with private tensors if there are this many more of them.
MANY_ADDITIONS, ADDITIONS_EACH, MOST_ADDED_CHUNKS = 1 << 16, 4, 16

# --- memory of a thread -----------------------------------------------------------------------------------------------

# Values that several sweeps of a row need are kept in the thread's own memory if they cost this much, up to so many
# bytes: a part of the second-level cache.
SCRATCH_BYTES, SCRATCH_COST = 1 << 18, 8.0
# Rows that go through the steps of a chain together: all that they write takes about half of the second-level cache.
TILE_SHARE = 2
LEAST_TILE_ROWS, MOST_TILE_ROWS = 16, 96
PRODUCT_ROWS = 6  # rows of the highest register tiles of most matrix products
FEWEST_TILES, TILES_A_THREAD = 4, 2  # so that threads which are late find less to do

# --- interleaving -----------------------------------------------------------------------------------------------------

INTERLEAVE_DELAY = 24  # operations by which the second half of the lanes lags; 12 are as good
INTERLEAVE_LIVE = 7  # live values of a half; 5 and 6 are nearly as good, 8 are not
DIVISIONS = frozenset({div, sqrt})  # what the divider computes, one after the other
# Fewer of them do not matter; with more, the divider is the bottleneck in any order.
FEWEST_DIVISIONS, DIVISION_IN = 4, 12
# Operations: below, iterations overlap by themselves; above, nothing was measured.
SHORTEST_INTERLEAVED, LONGEST_INTERLEAVED = 100, 450
MOST_INTERLEAVED_LIVE = register_count(WIDEST_VECTOR) // 4  # values of four registers each; more would be spilled

# --- CUDA devices -----------------------------------------------------------------------------------------------------

WARP = 32  # threads that run together
COLUMNS = WARP  # rows that a block takes together when neighbours in memory are neighbouring rows
MOST_THREADS = 256  # of a block
WORTH_A_BLOCK = 32  # inner points of a row that are worth a block of threads
FEW_DEVICE_ROWS = 4096  # with fewer, threads would idle if each took a row
MANY_DEVICE_ROWS = 1 << 17  # with this many rows, one thread for each keeps the device busy, however short they are
WARP_ROW = 512  # points of a row up to which a warp takes it alone
# Blocks share rows until there are so many (16 for each of the 132 multiprocessors of an H100 or H200), each with so
# many points for every thread at least.
ENOUGH_BLOCKS, LEAST_POINTS = 16 * 132, 8
# A kernel that does little for each element waits for memory: its threads take some at once, if there are so many.
FEW_NODES, ROWS_AT_ONCE, MANY_ELEMENTS = 40, 4, 1 << 20
# Registers of a thread that hold a row between sweeps, and points of it: the code of a sweep is written once for each.
KEPT_REGISTERS, KEPT_POINTS, KEPT_NODES = 64, 16, 2000
DEVICE_REGISTERS = 1 << 16  # of 32 bits, of a multiprocessor
LARGEST_BLOCK = 1024  # threads, the most that devices allow
# Points that a thread reads before it uses the first, in a sweep that only reduces: memory answers late, but many at
# once. With 2048 threads on a multiprocessor, four numbers each are the 20 kB in flight that 4.3 TB/s take.
READS_IN_FLIGHT = 4
SCANNED_POINTS = 4  # neighbouring points that a thread takes of a row that several scan
# Rows on a side of the tiles that transpose reads through shared memory, rows that are worth it, and the most reads.
TILE_SIDE, LEAST_TILED, MOST_TILED_READS = 32, 1 << 16, 4
# A kernel of so many nodes needs many registers: fewer threads, of which enough fit on a multiprocessor. Measured for a
# gradient of 1,080 instructions: 4.6 ms in blocks of 256 with 223 registers for each thread, 3.5 ms in three of 128.
MANY_NODES, HEAVY_THREADS = 500, 128
MOST_BLOCKS = 1 << 14  # of threads that take rows: sixteen times what the largest devices run at once
# With memory of its own for each thread (or block), only so many run at once and take rows in turn.
MOST_BLOCKS_WITH_MEMORY, MOST_THREADS_WITH_MEMORY = 2048, 1 << 15
SHORT_INDEX = 1 << 30  # counts and offsets below this fit 32-bit indices, with room to spare for sums of two

# --- costs ------------------------------------------------------------------------------------------------------------

LOOP_COST = 1000.0  # of a loop or tape inside a body: many iterations, or memory


def byte_size(type: Scalar) -> int:
    return 1 if type.kind == "bool" else type.bits // 8


def dense_bytes(type: Type) -> int:
    """The bytes of a tensor whose sizes are numbers."""
    assert isinstance(type, Tensor)
    return byte_size(type.element) * prod([size for size in type.shape if isinstance(size, int)])


@lru_cache(maxsize=4096)
def branch_cost(function: Function) -> float:
    """A rough cost of a function in additions; loops and tapes count as expensive."""
    total = 0.0
    for node in nodes_of(function):
        total += node.op.cost + sum(map(branch_cost, node.functions))
        if node.op.name in ("for_loop", "while_loop") or node.op.name.startswith("tape"):
            total += LOOP_COST
    return total


def kernel_cost(functions: Sequence[Function]) -> float:
    return sum(map(branch_cost, functions))
