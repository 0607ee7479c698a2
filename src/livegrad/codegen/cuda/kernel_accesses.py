"""Emits the loads and stores of a CUDA C kernel, and declares its argument slots and indices.

`kernel.py` adds the loops and the stages.
"""

from __future__ import annotations

from livegrad.codegen.c.operands import TensorReference, Text, Value
from livegrad.codegen.cuda.kernel_values import KERNELS, memory_type
from livegrad.codegen.cuda.kernel_writer import KernelWriter
from livegrad.ir.types import i32, i64
from livegrad.schedule.kernel import Sink, Stage, StridedAccess
from livegrad.schedule.loops.cost_model import COLUMNS
from livegrad.schedule.loops.device import repeated_reads, scratch_output
from livegrad.schedule.loops.dimensions import StrideKind
from livegrad.schedule.loops.nest import LoopNest


class KernelAccesses:
    """A kernel under construction, with the names of its indices and argument slots."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest, self.kernel = nest, nest.kernel
        self.runner = nest.rows.by  # computes a row: a thread, a warp, a block, …
        self.shares_row = self.runner not in ("thread", "tile")  # several threads share a row
        self.writer = KernelWriter()
        self.slots: dict[str, str] = {}  # C types by name
        self.rows: list[Text | None] = [None] * len(nest.kernel.rows)
        self.domain = [f"d{d}" for d in range(nest.domain_rank)]
        self.inner = [f"i{d}" for d in range(nest.inner_rank)]
        self.preloaded: dict[int, str] = {}  # reads that were loaded before the stage
        self.register_reads = repeated_reads(nest.kernel) if nest.kept_points else []  # reads that stay in registers
        self.loaded_reads: set[int] = set()  # those that an earlier sweep has loaded

    def slot(self, name: str, type: str = "long long") -> str:
        """The expression for an argument slot of the kernel."""
        self.slots.setdefault(name, type)
        return f"a.{name}"

    def decode(self, linear: str, names: list[str], extents: list[str]) -> None:
        """Emits the indices of a point, given its linear index in row-major order."""
        rest = linear
        for position in range(len(names) - 1, -1, -1):
            if position == 0:
                self.writer.line(f"const row_index {names[0]} = {rest};")
                break
            extent = f"(row_index){self.slot(extents[position])}"
            following = self.writer.name("rest")
            quotient = f"{rest} / {extent}"
            if self.nest.index == "int":  # a product instead of some twenty instructions
                quotient = f"lg_quotient({rest}, {self.slot(f'{extents[position]}_reciprocal')})"
            self.writer.line(f"const row_index {following} = {quotient};")
            self.writer.line(f"const row_index {names[position]} = {rest} - {following} * {extent};")
            rest = following

    def declare_registers(self) -> None:
        """Declares registers for the values that later sweeps of the row read again."""
        points, kernel = self.nest.kept_points, self.kernel
        if points:
            ports = [("read", number, kernel.reads[number]) for number in self.register_reads]
            ports += [("output", number, port) for number, port in enumerate(kernel.outputs) if port.scratch]
            for role, number, port in ports:
                self.writer.line(f"{memory_type(port.element)} kept_{role}{number}[{points}];")

    def element(self, role: str, number: int, port: StridedAccess, kinds: tuple[StrideKind, ...]) -> str:
        """The lvalue of an access at the current point: a register or an element in memory."""
        if self.nest.kept_points and port.scratch:
            return f"kept_output{scratch_output(self.nest, number) if role == 'read' else number}[k]"
        if role == "read" and number in self.loaded_reads:
            return f"kept_read{number}[k]"
        pointer = self.slot(f"{role}{number}", f"{'const ' if role == 'read' and not port.scratch else ''}"
                            f"{memory_type(port.element)}*")  # fmt: skip
        indices = [*self.domain, *(self.inner if port.level == "point" else [])]
        terms = []
        for dimension, (index, kind) in enumerate(zip(indices, kinds, strict=False)):
            if kind == "one":
                terms.append(index)
            elif kind == "any":
                terms.append(f"{index} * (row_index){self.slot(f'{role}{number}_stride{dimension}')}")
        if port.scratch:
            worker = {
                "thread": "((long long)blockIdx.x * blockDim.x + threadIdx.x)",
                "warp": "(((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32)",
            }.get(self.runner, "blockIdx.x")
            scratch_offset = f"((long long){worker} * {self.slot('scratch_bytes')})"
            pointer = f"(({memory_type(port.element)}*)((char*){pointer} + {scratch_offset}))"
        return f"{pointer}[{' + '.join(terms) or '0'}]"

    def arguments(self, stage: Stage, reload: bool = False) -> list[Value]:
        """The arguments of a stage's body; with `reload`, loaded from memory once more."""
        writer, kernel = self.writer, self.kernel
        arguments: list[Value] = []
        leading = len(stage.body.parameters) - len(stage.sources)
        for parameter, source in zip(stage.body.parameters[leading:], stage.sources, strict=True):
            number = source.number
            match source.kind:
                case "index":
                    index = [*self.domain, *self.inner][number]
                    arguments.append(Text(index, i32) if parameter.type is i32 else Text(f"(long long){index}", i64))
                case "read":
                    port = kernel.reads[number]
                    strides = self.nest.reads[number].strides
                    lvalue = self.preloaded.get(number) or self.element("read", number, port, strides)
                    lvalue = f"lg_fresh(&{lvalue})" if reload else lvalue
                    is_first = number in self.register_reads and number not in self.loaded_reads
                    if is_first and port.level == "point":
                        lvalue = f"(kept_read{number}[k] = {lvalue})"
                    arguments.append(writer.value(KERNELS.load_expression(lvalue, port.element), port.element))
                case "indexed":
                    arguments.append(self._indexed_buffer(number))
                case "scalar":
                    arguments.append(self._scalar_argument(number))
                case "row":
                    value = self.rows[number]
                    assert value is not None
                    arguments.append(value)
        return arguments

    def _indexed_buffer(self, number: int) -> TensorReference:
        buffer = self.kernel.indexed_buffers[number]
        pointer = self.slot(f"whole{number}", f"const {memory_type(buffer.element)}*")
        short = self.nest.index == "int"
        width = "(row_index)" if short else ""
        extents = tuple(width + self.slot(f"whole{number}_extent{d}") for d in range(buffer.rank))
        strides = [width + self.slot(f"whole{number}_stride{d}") for d in range(buffer.rank)]
        if self.nest.contiguous_buffers[number]:
            strides[-1] = "1"
        return TensorReference(pointer, buffer.element, extents, tuple(strides), short)

    def _scalar_argument(self, number: int) -> Text:
        type = self.kernel.scalar_arguments[number]
        if self.nest.by_value[number]:
            return Text(KERNELS.load_expression(self.slot(f"uniform{number}", memory_type(type)), type), type)
        pointer = self.slot(f"uniform{number}", f"const {memory_type(type)}*")
        return self.writer.value(KERNELS.load_expression(f"*{pointer}", type), type)

    def store(self, target: Sink, value: Text) -> None:
        port = self.kernel.outputs[target.number]
        lvalue = self.element("output", target.number, port, self.nest.outputs[target.number].strides)
        guard = f"if ({self.is_first_lane()}) " if self.shares_row and port.level == "row" else ""
        self.writer.line(f"{guard}{lvalue} = {KERNELS.store_expression(value.text, port.element)};")

    def is_first_lane(self) -> str:
        """The condition that a thread stores the results of its row."""
        lanes = {"block": "threadIdx.x == 0", "warp": "threadIdx.x % 32 == 0"}
        return lanes.get(self.runner, f"threadIdx.x < {COLUMNS}")

    def lanes(self) -> tuple[str, str]:
        """The index of this thread among those of a block that share a row, and their number."""
        if self.runner == "warp":
            return "threadIdx.x % 32", "32"
        if self.runner == "block":
            return "threadIdx.x", str(self.nest.rows.step) if self.nest.kept_points else "blockDim.x"
        return f"threadIdx.x / {COLUMNS}", f"blockDim.x / {COLUMNS}"
