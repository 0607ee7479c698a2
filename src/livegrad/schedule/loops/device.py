"""Loop nests for CUDA devices, and the passes that choose how many threads and blocks run a row."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from livegrad.ir.types import Scalar, Tape, f16, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.loops.nest import Loop, LoopNest

RowRunner = Literal["thread", "warp", "block", "columns"]
COLUMNS = 32  # rows that a block takes together when neighbours in memory are neighbouring rows
MOST_THREADS = 256  # of a block
_LEAST_FOR_A_BLOCK = 32  # inner points of a row that are worth a block of threads
_FEW_ROWS = 4096  # with fewer, threads would idle if each took a row
_MANY_ROWS = 1 << 17  # with as many, a thread for each keeps the device busy, whatever lies in a row
_SHORT_ROW = 512  # points of a row up to which a warp takes it alone
# Blocks share rows until there are so many, each with so many points for every thread at least.
_ENOUGH_BLOCKS, _LEAST_POINTS = 2112, 8
# A kernel that does little for each element waits for memory: its threads take some at once, if there are so many.
_FEW_NODES, _AT_ONCE, _MANY_ELEMENTS = 40, 4, 1 << 20
# A kernel of so many nodes needs many registers: fewer threads, of which enough fit on a multiprocessor. Measured for a
# gradient of 1,080 instructions: 4.6 ms in blocks of 256 with 223 registers for each thread, 3.5 ms in three of 128.
_MANY_NODES, HEAVY_THREADS = 500, 128
_MOST_BLOCKS = 1 << 14  # of threads that take rows: sixteen times what the largest devices run at once
# With memory of its own for each thread (or block), only so many run at once and take rows in turn.
_MOST_BLOCKS_WITH_MEMORY, _MOST_THREADS_WITH_MEMORY = 2048, 1 << 15


@dataclass(frozen=True, eq=False)
class DeviceNest(LoopNest):
    """A step of a plan on a device. `shares` says whether there is memory for what blocks that share a row leave.

    A row is run by a thread, by a warp, by a block, or with 31 others by a block in which each of 32 columns of threads
    has one.
    """

    shares: bool = False
    runner: RowRunner = "thread"
    blocks: int = 1  # that share a row
    at_once: int = 1  # rows that a thread reads before it computes any
    index: Literal["int", "long long"] = "long long"
    heavy: bool = False  # long code, which needs many registers
    grid: int = 0
    threads: int = 0
    workers: int = 0  # how many run at once, each with scratch or tapes of its own

    @property
    def rows(self) -> int:
        return prod(self.dimensions.domain)

    @property
    def points(self) -> int:
        """Inner points that one row sweeps."""
        inner = self.dimensions.inner
        return min(self.step.chunk, inner[0]) * prod(inner[1:]) if self.kernel.split else prod(inner)

    @property
    def tiles(self) -> int:
        """Rows, or groups of rows that a block takes together."""
        return -(-self.rows // COLUMNS) if self.runner == "columns" else self.rows

    @property
    def loops(self) -> tuple[Loop, ...]:
        blocks = f"blocks of {self.threads} threads" if self.threads else "blocks"
        loops = [Loop("parallel", self.grid, f"{blocks}, a {self.runner} for a row")]
        if self.blocks > 1:
            loops.append(Loop("parallel", self.blocks, "blocks share a row"))
        if self.at_once > 1:
            loops.append(Loop("unrolled", self.at_once, "rows at once"))
        return (*loops, Loop("serial", self.points, "points of a row")) if self.dimensions.inner else tuple(loops)

    def notes(self) -> list[str]:
        return [f"indices: {self.index}", *(["registers: many, so fewer threads"] if self.heavy else [])]


def assign_rows(nest: DeviceNest) -> DeviceNest:
    """Decides who runs a row."""
    return nest.replace(runner=_who_runs_a_row(nest.kernel, nest.rows, nest.points))


def share_rows(nest: DeviceNest) -> DeviceNest:
    """Has several blocks share a long row; the last one to end stores what all have folded."""
    if not nest.shares:
        return nest
    return nest.replace(blocks=_blocks_for_a_row(nest.kernel, nest.runner, nest.tiles, nest.points))


def batch_rows(nest: DeviceNest) -> DeviceNest:
    """Has a thread read several rows before it computes any, where a single stage does little with each element."""
    return nest.replace(at_once=_rows_at_once(nest.kernel, nest.rows))


def choose_index_width(nest: DeviceNest) -> DeviceNest:
    """Takes short indices where every count and offset fits with room to spare: division is far quicker on them."""
    sizes = (*nest.dimensions.domain, *nest.dimensions.inner)
    strides = (*nest.dimensions.reads, *nest.dimensions.outputs)
    reach = [sum(abs(s) * (n - 1) for s, n in zip(own, sizes, strict=False)) for own in strides]
    counts = (prod(nest.dimensions.domain), prod(nest.dimensions.inner))
    return nest.replace(index="int" if max([*counts, *reach], default=0) < 1 << 30 else "long long")


def choose_launch(nest: DeviceNest) -> DeviceNest:
    """Decides how many blocks there are, and how many threads in each."""
    nest = nest.replace(heavy=_node_count(nest.kernel) > _MANY_NODES)
    grid, threads, workers = _launch(nest, nest.tiles * nest.blocks)
    return nest.replace(grid=grid, threads=threads, workers=workers)


def _node_count(kernel: Kernel) -> int:
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    return sum(len(list(nodes_of(function))) for function in functions)


def _rows_at_once(kernel: Kernel, rows: int) -> int:
    """How many rows a thread takes together: more than one where a single stage does little with each element."""
    if len(kernel.stages) != 1 or kernel.stages[0].level != "row" or rows < _MANY_ELEMENTS or remembers(kernel):
        return 1
    few = _node_count(kernel) <= _FEW_NODES and 1 <= len(kernel.reads) <= 4
    return _AT_ONCE if few and all(port.level == "row" for port in kernel.outputs) else 1


def _who_runs_a_row(kernel: Kernel, rows: int, points: int) -> RowRunner:
    if points <= 1 or any(stage.scan is not None for stage in kernel.stages):
        return "thread"
    if kernel.along and (points >= _LEAST_FOR_A_BLOCK or rows < _FEW_ROWS):
        return "warp" if points <= _SHORT_ROW else "block"
    if kernel.along:
        return "thread"
    worth = rows < _MANY_ROWS and points >= _LEAST_FOR_A_BLOCK
    return "columns" if worth and fold_bytes(kernel) and not remembers(kernel) else "thread"


def fold_bytes(kernel: Kernel) -> list[int]:
    """The bytes of a partial result for each reduction of a kernel."""
    pairs = [(t, r) for stage in kernel.stages for t, r in zip(stage.sinks, stage.body.results, strict=True)]
    return [partial_bytes(t.reduce, r.type) for t, r in pairs if t.reduce is not None and isinstance(r.type, Scalar)]


def _blocks_for_a_row(kernel: Kernel, together: str, tiles: int, points: int) -> int:
    """How many blocks share a row (or 32): more than one only where a single sweep folds it, by its sizes alone."""
    sweeps = [stage for stage in kernel.stages if stage.level == "point"]
    if together in ("thread", "warp") or len(sweeps) != 1 or not fold_bytes(kernel) or remembers(kernel):
        return 1
    lanes = MOST_THREADS if together == "block" else MOST_THREADS // COLUMNS
    return max(1, min(_ENOUGH_BLOCKS // max(1, tiles), points // (lanes * _LEAST_POINTS)))


def remembers(kernel: Kernel) -> bool:
    """Whether a kernel's threads need memory for tapes."""
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    types = {node.type for function in functions for node in nodes_of(function)}
    return any(isinstance(inner, Tape) for type in types for inner in inner_types(type))


def _launch(nest: DeviceNest, rows: int) -> tuple[int, int, int]:
    """Blocks, threads of a block, and workers, for so many rows (or tiles of them, or shares of those)."""
    kernel = nest.kernel
    threads = most = HEAVY_THREADS if nest.heavy else MOST_THREADS
    if nest.runner != "thread":
        grid = -(-rows * 32 // threads) if nest.runner == "warp" else rows
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, _MOST_BLOCKS_WITH_MEMORY)
    else:
        threads = min(most, max(32, 1 << max(0, rows - 1).bit_length()))
        grid = -(-rows // (threads * nest.at_once))
        # Beyond that, threads take several rows: what they prepare once, such as numbers of the arguments, pays more.
        grid = min(grid, _MOST_BLOCKS)
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, _MOST_THREADS_WITH_MEMORY // threads)
    if remembers(kernel):
        grid = min(grid, _MOST_THREADS_WITH_MEMORY // threads)
    grid = min(grid, (1 << 31) - 1)
    workers = {"thread": grid * threads, "warp": grid * threads // 32}.get(nest.runner, grid)
    return grid, threads, grid * threads if remembers(kernel) else workers


def partial_bytes(kind: str, type: Scalar) -> int:
    """The bytes of a partial result of a reduction; argmin and argmax also store the index.

    >>> from livegrad.ir.types import f32
    >>> partial_bytes("sum", f32), partial_bytes("argmax", f32)
    (4, 16)
    """
    return 16 if kind.startswith("arg") else 4 if type is f16 else type.dtype.itemsize
