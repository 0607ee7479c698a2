"""The cost model of the CPU loop passes.

Costs are in units of one addition. The measurement is next to each number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from livegrad.ir.node import Function
from livegrad.ir.types import Scalar
from livegrad.ir.walk import nodes_of
from livegrad.ops.elementwise import div
from livegrad.ops.transcendental import sqrt

# An item of work should take some tens of microseconds: long enough to hide handing it out, short enough to share.
ITEM_COST = 4_000_000.0
LEAST_BLOCK, MOST_BLOCK = 1024, 1 << 16
# What costs more than this is cut into so many items at least, for as many threads.
SHARED_COST, FEWEST_ITEMS = 400_000.0, 8
LONG_KERNEL, LARGE_KERNEL = 800, 2000  # nodes
MANY_MATH_CALLS = 8
MANY_REGISTERS = 64  # bytes: processors with vectors of this size have 32 of them
DIVISIONS = frozenset({div, sqrt})  # what the divider computes, one after the other
SHORT_LOOP, MEDIUM_LOOP, LONG_LOOP = 48, 100, 300  # nodes of a loop's body
FEW_CARRIED = 3  # numbers that a loop carries, each of which takes several registers
MANY_PORTS = 64
SHORT_ROW = 8  # inner points that code names one by one
# Numbers of a row that are read together: a matrix of four rows. 200,000 products of 3 × 3 take 3.0 ms gathered and 1.4
# packed, of 4 × 4 5.8 and 4.7.
LONGEST_PACK = 16
# Numbers that are shuffled into columns together: rows of 5 bytes compile in 1.1 s by 128 lanes, in 0.3 by 32.
MOST_PACKED = 256
SHORT_COST = 20.0  # of a body that has registers to spare
MOST_LANES = 128
MOST_TRANSPOSED = 16  # accesses of a kernel that have tiles
# A result of this size is written past the caches, which spares reading it first. A kernel from 16 MB to 16 MB takes
# 1.0 ms and 0.8, from 32 to 32 2.9 and 1.9; but what reads 8 MB next finds them in a cache, if they went there.
STREAMED_BYTES = 1 << 24
# Where there is more to compute, such stores hold up the rest. From 64 MB to 64 MB, streamed and not: 4.2 and 5.9 ms at
# a cost of 6, 5.2 and 5.8 at 12, 6.4 and 5.8 at 18, 12.6 and 7.3 at 48; a distance of 310 operations 42 and 38 ms.
STREAMED_COST = 12.0
# Measured at 1M × 3 single numbers, two threads: x * s, with a number for each row, takes 4.2 ms in rows of lanes and
# 1.2 across them; the length of each row 6.2 and 1.0; x divided by it 15 and 2.5.
MANY_ROWS = 64
# Longer rows, up to this many numbers, are turned in tiles. A softmax of 1M numbers takes 6.5 ms along rows of 10 and
# 0.8 across them, 2.1 and 0.8 with rows of 32, 0.9 and 1.1 with 50; sums 0.47 and 0.23, 0.22 and 0.24, 0.21 and 0.25.
TILED_ROW = 32
# Points of the swept dimension in one item of work. 2048 × 2048 single numbers are turned in 4.1 ms with 16, in 3.4
# with 64 and in 2.7 with 1024: what is read should go on in memory. Gathered, they took 17 ms.
SWEPT_CHUNK = 1024
FEW_LANES = 16  # a dimension so short leaves lanes idle
LONGEST_KEPT = 512  # numbers of a row that each lane may keep in a thread's own memory
LONGEST_FOLD = 4096  # numbers that are added one after the other: more would lose digits


def byte_size(type: Scalar) -> int:
    return 1 if type.kind == "bool" else type.bits // 8


@lru_cache(maxsize=4096)
def branch_cost(function: Function) -> float:
    """A rough cost of a function in additions; loops and tapes count as expensive."""
    total = 0.0
    for node in nodes_of(function):
        total += node.op.cost + sum(map(branch_cost, node.functions))
        if node.op.name in ("for_loop", "while_loop") or node.op.name.startswith("tape"):
            total += 1000.0
    return total


def kernel_cost(functions: Sequence[Function]) -> float:
    return sum(map(branch_cost, functions))
