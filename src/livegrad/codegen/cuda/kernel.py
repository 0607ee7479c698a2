"""Emits a loop nest as a CUDA C kernel: a thread, a warp, a block or several blocks compute each row.

`emit_kernel` returns the text and the names of the argument slots; `launch.py` fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from livegrad.codegen.c.helpers import helper_functions
from livegrad.codegen.c.operands import Text
from livegrad.codegen.check_sites import Site
from livegrad.codegen.cuda.kernel_accesses import KernelAccesses
from livegrad.codegen.cuda.kernel_values import KERNELS, memory_type
from livegrad.codegen.cuda.prelude import library
from livegrad.codegen.cuda.reductions import Reduction, combine_block, combine_columns, combine_warp
from livegrad.codegen.cuda.shared_scans import write_shared_scan
from livegrad.codegen.cuda.speculative_minmax import may_speculate, write_speculated
from livegrad.codegen.cuda.tiles import write_tiles
from livegrad.ir.types import Scalar
from livegrad.schedule.kernel import Stage
from livegrad.schedule.loops.cost_model import COLUMNS, HEAVY_THREADS, MOST_THREADS, READS_IN_FLIGHT
from livegrad.schedule.loops.device import rows_at_once
from livegrad.schedule.loops.nest import LoopNest


@dataclass(frozen=True)
class KernelText:
    """CUDA C of a kernel, its argument slots, and its checks. The symbol is `kernel`."""

    text: str
    slots: tuple[str, ...]
    sites: tuple[Site, ...]
    uses_tapes: bool
    polls: bool  # whether its loops end when the interrupt flag is set


def emit_kernel(nest: LoopNest, ieee: bool = False) -> KernelText:
    """The CUDA C of a loop nest. With `ieee`, float32 division and square root are rounded correctly."""
    return _Emitter(nest, ieee).emit()


class _Emitter(KernelAccesses):
    def __init__(self, nest: LoopNest, ieee: bool) -> None:
        super().__init__(nest)
        self.ieee = ieee
        self.rows_per_thread = rows_at_once(nest)
        self.shared_rows = nest.loop("parallel", "inner", "block") is not None

    def emit(self) -> KernelText:
        writer = self.writer
        self.slot("status", "unsigned long long*")
        if self.rows_per_thread > 1:
            self._emit_row_batch(self.kernel.stages[0])
            return self._assemble()
        if self.runner == "tile":
            write_tiles(self, self._run_stages)
            return self._assemble()
        self._open_rows()
        start = len(writer.lines)
        with writer.nested():
            self._decode_row()
            self.declare_registers()
            self._run_stages()
            if writer.uses_tapes:
                writer.lines.insert(start, "        memory.used = LG_SPARE;")
        writer.line("}")
        return self._assemble()

    def _run_stages(self) -> None:
        for stage in self.kernel.stages:
            self._stage(stage)

    def _emit_row_batch(self, stage: Stage) -> None:
        """Each thread loads the operands of several rows before it computes any, to hide memory latency."""
        writer, count, rows = self.writer, self.rows_per_thread, f"(row_index){self.slot('rows')}"
        first = f"((row_index)blockIdx.x * {count}) * blockDim.x + threadIdx.x"
        writer.line(f"const row_index step = (row_index)gridDim.x * blockDim.x * {count};")
        reads = [source.number for source in stage.sources if source.kind == "read"]
        with writer.block(f"for (row_index first = {first}; first < {rows}; first += step)"):
            for read in reads:
                writer.line(f"{memory_type(self.kernel.reads[read].element)} ahead{read}[{count}];")
            for loading in (True, False):
                writer.line("#pragma unroll")
                with writer.block(f"for (int k = 0; k < {count}; ++k)"):
                    writer.line("const row_index row = first + k * (row_index)blockDim.x;")
                    writer.line(f"if (row >= {rows}) break;")
                    self._decode_row()
                    if not loading:
                        self.preloaded = {read: f"ahead{read}[k]" for read in reads}
                        self._stage(stage)
                        continue
                    for read in reads:
                        lvalue = self.element("read", read, self.kernel.reads[read], self.nest.reads[read].strides)
                        writer.line(f"ahead{read}[k] = {lvalue};")

    def _decode_row(self) -> None:
        """Emits the indices of the current row."""
        self.decode("row", list(self.domain), [f"domain{d}" for d in range(len(self.domain))])

    def _open_rows(self) -> None:
        """Emits the loop over rows: of a thread, a warp, or a block, or of a block that computes a tile of 32 rows."""
        writer, rows = self.writer, f"(row_index){self.slot('rows')}"
        if self.runner in ("thread", "warp"):
            width = "" if self.runner == "thread" else " / 32"
            writer.line(f"const row_index step = (row_index)gridDim.x * blockDim.x{width};")
            first = f"((row_index)blockIdx.x * blockDim.x + threadIdx.x){width}"
            if self.runner == "warp":
                writer.line("const row_index share = 0, blocks = 1;")
            writer.line(f"for (row_index row = {first}; row < {rows}; row += step) {{")
            return
        blocks = f"(row_index){self.slot('blocks')}" if self.shared_rows else "1"
        tiles = rows if self.runner == "block" else f"({rows} + {COLUMNS - 1}) / {COLUMNS}"
        writer.line(f"const row_index share = blockIdx.x % {blocks}, blocks = {blocks};")
        head = f"for (row_index tile = blockIdx.x / {blocks}; tile < {tiles}; tile += gridDim.x / {blocks})"
        writer.line(f"{head} {{")
        with writer.nested():
            if self.runner == "block":
                writer.line("const row_index row = tile;")
            else:
                # Lanes past the last row compute it as well, and store the same values.
                row_of_thread = f"tile * {COLUMNS} + threadIdx.x % {COLUMNS}"
                writer.line(f"const row_index row = {row_of_thread} < {rows} ? {row_of_thread} : {rows} - 1;")

    def _assemble(self) -> KernelText:
        writer = self.writer
        opening = self._memory_lines() if writer.uses_tapes else []
        if writer.sites:
            opening.append("    unsigned long long failed = ~0ull;")
            writer.line("lg_report(a.status, failed);")
        if writer.polls:
            self.slot("interrupt", "const volatile int*")
        functors = [f"struct {name} {{ {member} }};" for member, name in writer.functors.items()]
        body = "\n".join([*functors, *opening, *writer.lines])
        parts = [*library(body, self.ieee, writer.largest_slot), *helper_functions(body, KERNELS), *functors]
        fields = "\n".join(f"    alignas(8) {type} {name};" for name, type in self.slots.items())
        bounds = f"{max(MOST_THREADS, self.nest.rows.step)}"
        if self.nest.heavy:
            bounds = f"{HEAVY_THREADS}, {3 if self.runner == 'thread' else 4}"
        head = f'extern "C" __global__ void __launch_bounds__({bounds}) kernel(const __grid_constant__ Arguments a)'
        text = "\n".join(
            [
                *parts,
                f"typedef {self.nest.index} row_index;",
                f"struct Arguments\n{{\n{fields}\n}};",
                f'static_assert(sizeof(Arguments) == {8 * len(self.slots)}, "a word for each argument");\n',
                f"{head}\n{{",
                *opening,
                *writer.lines,
                "}\n",
            ]
        )
        return KernelText(text, tuple(self.slots), tuple(writer.sites), writer.uses_tapes, writer.polls)

    def _memory_lines(self) -> list[str]:
        worker = "((long long)blockIdx.x * blockDim.x + threadIdx.x)"
        size = self.slot("tape_bytes")
        start = f"{self.slot('tapes', 'unsigned char*')} + {worker} * {size}"
        return [
            f"    lg_memory memory = {{{start}, {size}, LG_SPARE, {self.slot('full', 'unsigned long long*')}, false}};"
        ]

    # --- stages ---

    def _stage(self, stage: Stage) -> None:
        writer = self.writer
        if stage.level == "row":
            writer.element = "row"
            arguments = self.arguments(stage)
            if not self.shares_row and not self.preloaded and may_speculate(stage.body):
                reload = partial(self.arguments, stage, reload=True)
                results = write_speculated(writer, stage.body, arguments, reload)
            else:
                results = writer.scalars(stage.body, arguments)
            for target, value in zip(stage.sinks, results, strict=True):
                if target.kind == "row":
                    self.rows[target.number] = value
                else:
                    self.store(target, value)
            return
        writer.element = self._operand_element() if self.nest.step.vector_axis == "inner" else "row"
        if stage.scan is not None:
            self._scan_stage(stage)
        else:
            self._point_stage(stage)
        reads = {source.number for source in stage.sources if source.kind == "read"}
        self.loaded_reads |= reads.intersection(self.register_reads)
        if self.shares_row and any(port.scratch for port in self.kernel.outputs) and not self.nest.kept_points:
            writer.line("__syncwarp();" if self.runner == "warp" else "__syncthreads();")

    def _operand_element(self) -> str:
        """The linear index of the reduced element over rows and inner points, for failed checks."""
        chunks = 1 if self.nest.is_split else 0  # leading dimensions that count chunks of a split reduction
        names = [*self.domain[chunks:], *self.inner]
        extents = [f"domain{d}" for d in range(chunks, len(self.domain))]
        extents += [f"inner{d}" for d in range(len(self.inner))]
        linear = "0LL"
        for name, extent in zip(names, extents, strict=True):
            linear = f"({linear} * {self.slot(extent)} + {name})"
        return linear

    @contextmanager
    def _shared_points(self, point: str, first: str, step: str, bound: str, only_reduces: bool) -> Iterator[None]:
        """Code emitted inside runs for each of this thread's points of a row that several threads share."""
        writer, kept = self.writer, self.nest.kept_points
        if kept:
            writer.line("#pragma unroll")  # registers cannot be indexed
            with writer.block(f"for (int k = 0; k < {kept}; ++k)"):
                writer.line(f"const row_index {point} = {first} + k * {step};")
                with nullcontext() if self.nest.whole_rows else writer.block(f"if ({point} < {bound})"):
                    yield
            return
        if self.nest.heavy:
            writer.line("#pragma unroll 1")  # unrolling long code doubles the compile time
        elif only_reduces:
            writer.line(f"#pragma unroll {READS_IN_FLIGHT}")
        with writer.block(f"for (row_index {point} = {first}; {point} < {bound}; {point} += {step})"):
            yield

    def _sweep(self, body: Callable[[], None], down: bool = False, only_reduces: bool = False) -> None:
        """Runs `body` at the inner points of a row: all of them in order, or this thread's share."""
        writer = self.writer
        start, stop = self._first_range()
        if self.shares_row:
            rest = "".join(f" * (row_index){self.slot(f'inner{d}')}" for d in range(1, len(self.inner)))
            point = writer.name("p")
            bound = f"({stop} - {start}){rest}"
            lane, lanes = self.lanes()
            first, step = f"share * ({lanes}) + {lane}", f"(row_index)({lanes}) * blocks"
            with self._shared_points(point, first, step, bound, only_reduces):
                local = ["local0", *self.inner[1:]]
                self.decode(point, local, [f"inner{d}" for d in range(len(self.inner))])
                writer.line(f"const row_index {self.inner[0]} = {start} + local0;")
                body()
            return
        self._emit_inner_loops(0, start, stop, body, down)

    def _emit_inner_loops(self, depth: int, start: str, stop: str, body: Callable[[], None], down: bool) -> None:
        if depth == len(self.inner):
            body()
            return
        name = self.inner[depth]
        head = f"for (row_index {name} = {start}; {name} < {stop}; ++{name})"
        if down:
            head = f"for (row_index {name} = {stop} - 1; {name} >= {start}; --{name})"
        with self.writer.block(head):
            following = f"(row_index){self.slot(f'inner{depth + 1}')}" if depth + 1 < len(self.inner) else "0"
            self._emit_inner_loops(depth + 1, "0", following, body, down)

    def _first_range(self) -> tuple[str, str]:
        stop = f"(row_index){self.slot('inner0')}" if self.inner else "1"
        if not self.nest.is_split:
            return "0", stop
        start, end = self.writer.name("start"), self.writer.name("end")
        chunk = f"(row_index){self.slot('chunk')}"
        self.writer.line(f"const row_index {start} = {self.domain[0]} * {chunk};")
        self.writer.line(f"const row_index {end} = {start} + {chunk} < {stop} ? {start} + {chunk} : {stop};")
        return start, end

    def _point_stage(self, stage: Stage) -> None:
        reductions = {
            index: Reduction(self.writer, target, _scalar(stage, index))
            for index, target in enumerate(stage.sinks)
            if target.reduce is not None
        }

        def point() -> None:
            results = self.writer.scalars(stage.body, self.arguments(stage))
            for index, (target, value) in enumerate(zip(stage.sinks, results, strict=True)):
                if index in reductions:
                    reductions[index].add(value, self._linear_index())
                else:
                    self.store(target, value)

        self._sweep(point, only_reduces=len(reductions) == len(stage.sinks))
        if self.shares_row and reductions:
            self._combine(list(reductions.values()))
        for index, reduction in reductions.items():
            number = stage.sinks[index].number
            self.rows[number] = reduction.result(self.kernel.rows[number])

    def _combine(self, reductions: list[Reduction]) -> None:
        """Combines the values of all threads; if blocks share a row, only the last block of the row continues."""
        writer = self.writer
        combine = {"warp": combine_warp, "block": combine_block}.get(self.runner, combine_columns)
        combine(writer, reductions)
        if not self.shared_rows:
            return
        partials, offset = [], "0"
        for reduction in reductions:
            pointer = writer.name("partial")
            base = f"{self.slot('partials', 'unsigned char*')} + {offset}"
            writer.line(f"{reduction.c_type}* const {pointer} = ({reduction.c_type}*)({base});")
            partials.append(pointer)
            offset = f"{offset} + {reduction.bytes}LL * blocks * {self.slot('rows')}"
        with writer.block(f"if ({self.is_first_lane()})"):
            for reduction, pointer in zip(reductions, partials, strict=True):
                writer.line(f"{pointer}[(long long)share * {self.slot('rows')} + row] = {reduction.name};")
        counter = f"{self.slot('counters', 'unsigned int*')} + tile"
        writer.line(f"if (!lg_is_last({counter}, blocks)) continue;")
        for reduction in reductions:
            reduction.reset()
        lane, lanes = self.lanes()
        block = writer.name("b")
        with writer.block(f"for (row_index {block} = {lane}; {block} < blocks; {block} += {lanes})"):
            for reduction, pointer in zip(reductions, partials, strict=True):
                # A volatile load bypasses the cache of this multiprocessor: other blocks have written the value.
                reduction.add_partial(f"lg_fresh({pointer} + (long long){block} * {self.slot('rows')} + row)")
        combine(writer, reductions)

    def _linear_index(self) -> str:
        linear = f"(long long){self.inner[0]}" if self.inner else "0LL"
        for dimension, name in enumerate(self.inner[1:], 1):
            linear = f"({linear} * {self.slot(f'inner{dimension}')} + {name})"
        return linear

    def _scan_stage(self, stage: Stage) -> None:
        writer, scan = self.writer, stage.scan
        assert scan is not None
        if self.shares_row:
            write_shared_scan(self, stage, scan)
            return
        type = _scalar(stage, 0)
        state = writer.name("s")
        writer.line(f"{KERNELS.scalar(type)} {state} = {KERNELS.literal(scan.initial, type)};")

        def point() -> None:
            (result,) = writer.scalars(stage.body, [Text(state, type), *self.arguments(stage)])
            self.store(stage.sinks[0], Text(state, type) if scan.exclusive else result)
            writer.line(f"{state} = {result.text};")

        self._sweep(point, down=scan.reverse)


def _scalar(stage: Stage, index: int) -> Scalar:
    type = stage.body.results[index].type
    assert isinstance(type, Scalar)
    return type
