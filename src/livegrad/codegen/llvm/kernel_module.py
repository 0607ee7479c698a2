"""Emits a loop nest as an LLVM module: the function `kernel`, which runs work items, their rows, and their stages.

Lanes run over the last domain dimension ("across": outer-loop vectorisation) or the last inner dimension ("along":
inner-loop vectorisation). A work item is a row, or a block of the last domain dimension. The extents of loops are
arguments, so nests of equal `key` have the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.codegen.check_sites import Site
from livegrad.codegen.llvm import tapes
from livegrad.codegen.llvm.baseline_lanes import is_lane_function, lane_declaration
from livegrad.codegen.llvm.counted_loops import counted_loop
from livegrad.codegen.llvm.interleaving import suits_interleaving
from livegrad.codegen.llvm.kernel_builder import MathRequest
from livegrad.codegen.llvm.kernel_frame import Tail
from livegrad.codegen.llvm.metadata import COMMON
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.codegen.llvm.stages import Stages
from livegrad.codegen.llvm.tape_runtime import TOO_MUCH, runtime_module
from livegrad.codegen.llvm.vector_math import MATH_FUNCTIONS, math_function_name
from livegrad.ir.cached_property import cached_property
from livegrad.ir.recursion import deep_recursion
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import i64
from livegrad.ir.types.scalars import SCALARS
from livegrad.schedule.loops.cost_model import FEWEST_LANES, byte_size
from livegrad.schedule.loops.nest import LoopNest


@dataclass(frozen=True)
class KernelText:
    """LLVM IR of a kernel, its argument slots, and its checks."""

    declarations: frozenset[str]
    definition: str  # of the function `kernel`, and of its subroutines
    longest: int  # lines of the longest of these functions
    attributes: str
    uses_tapes: bool
    largest_slot: int  # of its tapes, in bytes
    slots: tuple[str, ...]  # of the argument block, by name
    sites: tuple[Site, ...]
    interruptible: bool
    math: tuple[MathRequest, ...]  # functions of the math library that it calls
    metadata: tuple[str, ...] = ()
    has_scalar_loops: bool = False  # that LLVM optimises
    sizes: tuple[SymbolicSize, ...] = ()  # in the slots `size0`, `size1`, …

    @cached_property
    def text(self) -> str:
        """The kernel as an LLVM module."""
        return module_text([self], ["kernel"])


def module_text(kernels: Sequence[KernelText], symbols: Sequence[str]) -> str:
    """Kernels of equal attributes as one module, under the given symbols."""
    declarations = frozenset[str]().union(*[kernel.declarations for kernel in kernels])
    pairs = zip(kernels, symbols, strict=True)
    largest_slot = max(kernel.largest_slot for kernel in kernels)
    return "\n".join(
        [
            *sorted(declarations),
            runtime_module(largest_slot) if any(kernel.uses_tapes for kernel in kernels) else "",
            *[_rename_kernel(kernel.definition, symbol) for kernel, symbol in pairs],
            kernels[0].attributes,
            *COMMON,
            *kernels[0].metadata,
        ]
    )


def _rename_kernel(definition: str, symbol: str) -> str:
    """The function `kernel` and its subroutines `kernel.0`, `kernel.1`, … under another name."""
    return definition.replace("@kernel(", f"@{symbol}(", 1).replace("@kernel.", f"@{symbol}.")


def _math_declaration(request: MathRequest) -> str:
    """The declaration of a math function: pure, so that LLVM can share calls and move them out of loops."""
    function, element, lanes = request
    if is_lane_function(function):
        return lane_declaration(*request)
    vector = llvm_type(SCALARS[element], lanes)
    arguments = ", ".join([vector] * MATH_FUNCTIONS[function])
    return f"declare fastcc {vector} @{math_function_name(*request)}({arguments}) nounwind willreturn memory(none)"


@deep_recursion()
def emit_kernel(nest: LoopNest, is_baseline: bool = False) -> KernelText:
    """The LLVM module of a loop nest; the symbol is `kernel`.

    With `is_baseline`, the baseline tier: it compiles in less time and computes the same bits.
    """
    if is_baseline:
        return _Emitter(_baseline_form(nest), is_baseline).emit()
    if nest.vector.streams > 1:
        suits = suits_interleaving(nest.kernel)
        nest = nest.change(nest.vector, extent=2 * nest.lanes) if suits else nest.change(nest.vector, streams=1)
        nest = nest.replace(peels_remainder=False) if suits else nest  # interleaved code is long already
    return _Emitter(nest).emit()


def _baseline_form(nest: LoopNest) -> LoopNest:
    """The nest with one register per value instead of several, if lanes are independent, and with ordinary stores."""
    lanes, ports = nest.lanes, (*nest.kernel.reads, *nest.kernel.outputs)
    if nest.across and not nest.unrolled_points and lanes > 1:
        widest = max([byte_size(port.element) for port in ports], default=4)
        lanes = min(lanes, max(FEWEST_LANES, nest.vector_bytes // widest))
    if lanes == nest.lanes and nest.vector.streams == 1 and not nest.non_temporal:
        return nest
    outputs = tuple([access._replace(non_temporal=False) for access in nest.outputs])
    return nest.change(nest.vector, extent=lanes, streams=1).replace(outputs=outputs)


class _Emitter(Stages):
    """Emits the function of a kernel."""

    def emit(self) -> KernelText:
        builder = self.builder
        self.load_arguments()
        begin, end = Register("%begin", i64, 1), Register("%end", i64, 1)
        builder.begin("items")
        sizes = self._item_sizes()
        # Indices are incremented from item to item, because a division takes longer than the work of a short row.
        start = self.decode(begin, sizes) if len(sizes) > 1 else []

        def item(number: Register, indices: list[Register]) -> list[Register]:
            self._item(number, [number] if len(sizes) == 1 else indices)
            return self._next_indices(indices, sizes) if indices else []

        builder.runs_once = not self.extents
        counted_loop(self.builder, begin, end, 1, start, item)
        if builder.uses_tapes:
            builder.line("call void @lg_arena_free(ptr %arena)")
        if self.nest.non_temporal:
            builder.line("fence seq_cst")  # non-temporal stores are not ordered with others
        builder.line("ret void")
        return self._finish()

    def _finish(self) -> KernelText:
        builder = self.builder
        entry = ["start:"]
        named: list[str] = []
        status, interrupt, rest = builder.entry[:2], builder.entry[2:4], builder.entry[4:]  # two lines load each slot
        if builder.sites or builder.uses_tapes or builder.polls:
            entry += status
            named.append(f"  %status = bitcast ptr {self.status.text} to ptr")
        if builder.polls:
            entry += interrupt
            named.append(f"  %interrupt = bitcast ptr {self.interrupt.text} to ptr")
        if builder.uses_tapes:
            entry.append("  %arena = alloca [4 x i64], align 8")
            named += self._arena_lines()
        body = "\n".join([*entry, *rest, *named, "  br label %items", *builder.lines])
        definition = f"define void @kernel(i64 %begin, i64 %end, ptr noalias %args, i64 %worker) #0 {{\n{body}\n}}"
        definitions = [definition, *builder.definitions]
        width = self.nest.vector_bytes * 8
        common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
        return KernelText(
            frozenset(builder.declarations | {_math_declaration(request) for request in builder.math}),
            "\n".join(definitions),
            max(text.count("\n") for text in definitions),
            f'attributes #0 = {{ {common} "stackrealign" }}',
            builder.uses_tapes,
            builder.largest_slot,
            tuple(self.slots.names),
            tuple(builder.sites),
            builder.polls,
            tuple(sorted(builder.math)),
            tuple(builder.metadata.definitions()),
            self.nest.memories is not None,
            self.sizes,
        )

    def _arena_lines(self) -> list[str]:
        """Initialises an empty arena, with the status word and the check site that it reports to."""
        self.builder.sites.append(Site(TOO_MUCH, None))
        fields = ("ptr null", "i64 0", "ptr %status", f"i64 {len(self.builder.sites) - 1}")
        lines = []
        for index, field in enumerate(fields):
            lines.append(f"  %arena.{index} = getelementptr i64, ptr %arena, i64 {index}")
            lines.append(f"  store {field}, ptr %arena.{index}")
        return lines

    def _item_sizes(self) -> list[Register]:
        """The number of items along each dimension; across, the last dimension is divided into blocks."""
        builder = self.builder
        if not self.across or len(self.extents) < 2:
            return self.extents
        rounded = builder.apply(
            "add", i64, self.extents[-1], builder.apply("sub", i64, self.block_size, builder.constant(1, i64))
        )
        return [*self.extents[:-1], builder.apply("udiv", i64, rounded, self.block_size)]

    def _item(self, item: Register, indices: list[Register]) -> None:
        if self.across and indices:
            self._block(indices[:-1], indices[-1])
        else:
            self.domain_index = indices
            self._row(item, None)

    def _block(self, outer: list[Register], block: Register) -> None:
        """One block of the last domain dimension, with lanes across it."""
        builder = self.builder
        length = self.extents[-1]
        start = builder.apply("mul", i64, block, self.block_size)
        stop = builder.least(builder.apply("add", i64, start, self.block_size), length)

        def group(position: Register, carried: list[Register]) -> list[Register]:
            self.domain_index = [*outer, position]
            first = self.chunk_rank if self.masked else len(self.extents)  # only checks need the linear index
            tail = None if self.groups == "full" else (position, stop)
            self._row(self.encode(self.domain_index[first:], self.extents[first:]), tail)
            return []

        if self.nest.peels_remainder and not self.is_baseline:
            count = builder.apply("sub", i64, stop, start)
            whole = builder.apply("and", i64, count, builder.constant(-self.nest.lanes, i64))
            end = builder.apply("add", i64, start, whole)
            self.groups = "full"
            counted_loop(builder, start, end, self.nest.lanes, [], group)
            start, self.groups = end, "remainder"
        self.groups = "full" if self.nest.whole_groups else self.groups
        counted_loop(builder, start, stop, self.nest.lanes, [], group)
        self.groups = "any"

    def _row(self, element: Register, tail: Tail | None) -> None:
        """All stages at one row, or at a group of rows, one per lane."""
        builder = self.builder
        builder.element_index = element
        if builder.uses_tapes or self._may_tape():
            builder.uses_tapes = True
            builder.line("call void @lg_arena_empty(ptr %arena)")
        self._begin_group(tail)
        self.tail = tail
        self.row_mask = self._lane_mask(tail) if tail is not None and self.masked and builder.lanes > 1 else None
        across = self.across
        for stage in self.kernel.stages:
            if stage.level == "row":
                lanes, builder.lanes = builder.lanes, builder.lanes if across else 1
                with builder.with_mask(self.row_mask):
                    self._row_stage(stage)
                builder.lanes = lanes
            elif stage.scan is not None:
                self._scan_stage(stage)
            else:
                self._point_stage(stage)

    def _may_tape(self) -> bool:
        return self.masked and any(tapes.mentions_tapes(stage.body) for stage in self.kernel.stages)
