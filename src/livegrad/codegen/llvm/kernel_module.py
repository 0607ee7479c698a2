"""Emits a kernel as an LLVM module: its work items, rows and stages, and the enclosing function.

Lanes run over the last domain dimension ("across": outer-loop vectorisation) or the last inner dimension ("along":
inner-loop vectorisation). A work item is a row, or a block of the last domain dimension. Code takes the extents of
loops as arguments: nests of equal `key` have the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from livegrad.codegen.check_sites import Site
from livegrad.codegen.llvm import tapes
from livegrad.codegen.llvm.counted_loops import counted_loop
from livegrad.codegen.llvm.interleaving import suits_interleaving
from livegrad.codegen.llvm.kernel_frame import Tail
from livegrad.codegen.llvm.math_calls import MathRequest, math_declaration
from livegrad.codegen.llvm.registers import Register
from livegrad.codegen.llvm.stages import Stages
from livegrad.codegen.llvm.tape_runtime import RUNTIME, TOO_MUCH
from livegrad.ir.types import i64
from livegrad.schedule.loops.cost_model import FEWEST_LANES, byte_size
from livegrad.schedule.loops.nest import LoopNest


@dataclass(frozen=True)
class KernelText:
    """LLVM text of a kernel, the words it takes, and its checks."""

    declarations: frozenset[str]
    definition: str  # of the function `kernel`, and of those beside it that it calls
    longest: int  # lines of any of them
    attributes: str
    uses_tapes: bool
    words: tuple[str, ...]
    sites: tuple[Site, ...]
    interruptible: bool
    math: tuple[MathRequest, ...]  # functions of the math library that it calls

    @cached_property
    def text(self) -> str:
        """The kernel as an LLVM module."""
        return module_text([self], ["kernel"])


def module_text(kernels: Sequence[KernelText], symbols: Sequence[str]) -> str:
    """Kernels of equal attributes as one module, where they have these names."""
    declarations = frozenset[str]().union(*[kernel.declarations for kernel in kernels])
    pairs = zip(kernels, symbols, strict=True)
    return "\n".join(
        [
            *sorted(declarations),
            RUNTIME if any(kernel.uses_tapes for kernel in kernels) else "",
            *[_under_name(kernel.definition, symbol) for kernel, symbol in pairs],
            kernels[0].attributes,
            "!0 = !{}",
            "!1 = !{i32 1}",
        ]
    )


def _under_name(definition: str, symbol: str) -> str:
    """The function `kernel` and those beside it, `kernel.0` and so on, under another name."""
    return definition.replace("@kernel(", f"@{symbol}(", 1).replace("@kernel.", f"@{symbol}.")


def emit_kernel(nest: LoopNest, quick: bool = False) -> KernelText:
    """The text of a kernel; the symbol is `kernel`.

    With `quick`, a text that takes less time to compile and gives the same bits.
    """
    if quick:
        return _Emitter(_narrow(nest), quick).emit()
    if suits_interleaving(nest):
        nest = nest.change(nest.vector, extent=2 * nest.lanes, streams=2)
    return _Emitter(nest).emit()


def _narrow(nest: LoopNest) -> LoopNest:
    """One register for each value instead of several, where lanes are independent of each other; all stores go through
    the caches."""
    lanes, ports = nest.lanes, (*nest.kernel.reads, *nest.kernel.outputs)
    if nest.across and not nest.unrolled_points and lanes > 1:
        widest = max([byte_size(port.element) for port in ports], default=4)
        lanes = min(lanes, max(FEWEST_LANES, nest.vector_bytes // widest))
    if lanes == nest.lanes and not nest.non_temporal:
        return nest
    outputs = tuple([access._replace(non_temporal=False) for access in nest.outputs])
    return nest.change(nest.vector, extent=lanes).replace(outputs=outputs)


class _Emitter(Stages):
    """The whole function."""

    def emit(self) -> KernelText:
        asm = self.asm
        self.load_arguments()
        begin, end = Register("%begin", i64, 1), Register("%end", i64, 1)
        asm.begin("items")
        sizes = self._item_sizes()
        # Indices are counted on from item to item: dividing takes longer than the work of a short line.
        start = self.decode(begin, sizes) if len(sizes) > 1 else []

        def item(number: Register, indices: list[Register]) -> list[Register]:
            self._item(number, [number] if len(sizes) == 1 else indices)
            return self._following(indices, sizes) if indices else []

        counted_loop(self.asm, begin, end, 1, start, item)
        if asm.uses_tapes:
            asm.line("call void @lg_arena_free(ptr %arena)")
        if self.nest.non_temporal:
            asm.line("fence seq_cst")  # stores past the caches are not in order with others
        asm.line("ret void")
        return self._finish()

    def _finish(self) -> KernelText:
        asm = self.asm
        entry = ["start:"]
        named: list[str] = []
        status, interrupt, rest = asm.entry[:2], asm.entry[2:4], asm.entry[4:]  # two lines load each word
        if asm.sites or asm.uses_tapes or asm.polls:
            entry += status
            named.append(f"  %status = bitcast ptr {self.status} to ptr")
        if asm.polls:
            entry += interrupt
            named.append(f"  %interrupt = bitcast ptr {self.interrupt} to ptr")
        if asm.uses_tapes:
            entry.append("  %arena = alloca [4 x i64], align 8")
            named += self._arena_lines()
        body = "\n".join([*entry, *rest, *named, "  br label %items", *asm.lines])
        definition = f"define void @kernel(i64 %begin, i64 %end, ptr noalias %args, i64 %worker) #0 {{\n{body}\n}}"
        definitions = [definition, *asm.definitions]
        width = self.nest.vector_bytes * 8
        common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
        return KernelText(
            frozenset(asm.declarations | {math_declaration(request) for request in asm.math}),
            "\n".join(definitions),
            max(text.count("\n") for text in definitions),
            f'attributes #0 = {{ {common} "stackrealign" }}',
            asm.uses_tapes,
            tuple(self.words.names),
            tuple(asm.sites),
            asm.polls,
            tuple(sorted(asm.math)),
        )

    def _arena_lines(self) -> list[str]:
        """An empty arena that knows where to complain."""
        self.asm.sites.append(Site(TOO_MUCH, None))
        words = ("ptr null", "i64 0", "ptr %status", f"i64 {len(self.asm.sites) - 1}")
        lines = []
        for index, word in enumerate(words):
            lines.append(f"  %arena.{index} = getelementptr i64, ptr %arena, i64 {index}")
            lines.append(f"  store {word}, ptr %arena.{index}")
        return lines

    def _item_sizes(self) -> list[Register]:
        """How many items there are along each dimension: rows, or lines and the blocks of a line."""
        asm = self.asm
        if not self.across or len(self.extents) < 2:
            return self.extents
        rounded = asm.apply("add", i64, self.extents[-1], asm.apply("sub", i64, self.block_size, asm.constant(1, i64)))
        return [*self.extents[:-1], asm.apply("udiv", i64, rounded, self.block_size)]

    def _item(self, item: Register, indices: list[Register]) -> None:
        if self.across and indices:
            self._block(indices[:-1], indices[-1])
        else:
            self.domain_index = indices
            self._row(item, None)

    def _block(self, outer: list[Register], block: Register) -> None:
        """Lanes across the last domain dimension: an item is a block of it."""
        asm = self.asm
        length = self.extents[-1]
        start = asm.apply("mul", i64, block, self.block_size)
        stop = asm.least(asm.apply("add", i64, start, self.block_size), length)

        def group(position: Register, carried: list[Register]) -> list[Register]:
            self.domain_index = [*outer, position]
            first = self.chunk_rank if self.masked else len(self.extents)  # only checks tell elements by number
            self._row(self.encode(self.domain_index[first:], self.extents[first:]), (position, stop))
            return []

        counted_loop(self.asm, start, stop, self.nest.lanes, [], group)

    def _row(self, element: Register, tail: Tail | None) -> None:
        """All stages at one row (or at a group of rows, one a lane)."""
        asm = self.asm
        asm.element_index = element
        if asm.uses_tapes or self._may_tape():
            asm.uses_tapes = True
            asm.line("call void @lg_arena_empty(ptr %arena)")
        self._begin_group(tail)
        self.tail = tail
        self.row_mask = self._lane_mask(tail) if tail is not None and self.masked and asm.lanes > 1 else None
        for stage in self.kernel.stages:
            if stage.level == "row":
                lanes, asm.lanes = asm.lanes, asm.lanes if self.across else 1
                with asm.under(self.row_mask):
                    self._row_stage(stage)
                asm.lanes = lanes
            elif stage.scan is not None:
                self._scan_stage(stage)
            else:
                self._point_stage(stage)

    def _may_tape(self) -> bool:
        return self.masked and any(tapes.mentions_tapes(stage.body) for stage in self.kernel.stages)
