"""How a kernel of CUDA C accesses memory: its argument slots, the point it is at, and the arguments of a stage.

`kernel.py` adds the loops and the stages.
"""

from __future__ import annotations

from livegrad.codegen.c.operands import TensorReference, Text, Value
from livegrad.codegen.cuda.kernel_values import KERNELS, memory_type
from livegrad.codegen.cuda.kernel_writer import KernelWriter
from livegrad.ir.types import i64
from livegrad.schedule.kernel import Sink, Stage, StridedAccess
from livegrad.schedule.loops.cost_model import COLUMNS
from livegrad.schedule.loops.device import repeated_reads, scratch_output
from livegrad.schedule.loops.dimensions import StrideKind
from livegrad.schedule.loops.nest import LoopNest


class KernelAccesses:
    """The text of a kernel as it is written, with the names of its indices and argument slots."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest, self.kernel = nest, nest.kernel
        self.runner = nest.rows.by  # of a row
        self.together = self.runner not in ("thread", "tile")  # several threads share a row
        self.writer = KernelWriter()
        self.words: dict[str, str] = {}  # names and C types
        self.rows: list[Text | None] = [None] * len(nest.kernel.rows)
        self.domain = [f"d{d}" for d in range(nest.domain_rank)]
        self.inner = [f"i{d}" for d in range(nest.inner_rank)]
        self.ahead: dict[int, str] = {}  # reads that were done before the stage
        self.kept = repeated_reads(nest.kernel) if nest.kept_points else []  # reads that registers hold
        self.held: set[int] = set()  # those of them that an earlier sweep has read

    def word(self, name: str, type: str = "long long") -> str:
        """An argument of the kernel."""
        self.words.setdefault(name, type)
        return f"a.{name}"

    def decode(self, linear: str, names: list[str], extents: list[str]) -> None:
        """The indices of a point from its number in row-major order."""
        rest = linear
        for position in range(len(names) - 1, -1, -1):
            if position == 0:
                self.writer.line(f"const row_index {names[0]} = {rest};")
                break
            extent = f"(row_index){self.word(extents[position])}"
            self.writer.line(f"const row_index {names[position]} = {rest} % {extent};")
            following = self.writer.name("rest")
            self.writer.line(f"const row_index {following} = {rest} / {extent};")
            rest = following

    def declare_kept(self) -> None:
        """Registers for what later sweeps of the row read again."""
        points, kernel = self.nest.kept_points, self.kernel
        if points:
            ports = [("read", number, kernel.reads[number]) for number in self.kept]
            ports += [("output", number, port) for number, port in enumerate(kernel.outputs) if port.scratch]
            for role, number, port in ports:
                self.writer.line(f"{memory_type(port.element)} kept_{role}{number}[{points}];")

    def element(self, role: str, number: int, port: StridedAccess, kinds: tuple[StrideKind, ...]) -> str:
        """The register or the place in memory that an access touches at the present point."""
        if self.nest.kept_points and port.scratch:
            return f"kept_output{scratch_output(self.nest, number) if role == 'read' else number}[k]"
        if role == "read" and number in self.held:
            return f"kept_read{number}[k]"
        pointer = self.word(f"{role}{number}", f"{'const ' if role == 'read' and not port.scratch else ''}"
                            f"{memory_type(port.element)}*")  # fmt: skip
        here = [*self.domain, *(self.inner if port.level == "point" else [])]
        terms = []
        for dimension, (index, kind) in enumerate(zip(here, kinds, strict=False)):
            if kind == "one":
                terms.append(index)
            elif kind == "any":
                terms.append(f"{index} * (row_index){self.word(f'{role}{number}_stride{dimension}')}")
        if port.scratch:
            worker = {
                "thread": "((long long)blockIdx.x * blockDim.x + threadIdx.x)",
                "warp": "(((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32)",
            }.get(self.runner, "blockIdx.x")
            scratch_offset = f"((long long){worker} * {self.word('scratch_bytes')})"
            pointer = f"(({memory_type(port.element)}*)((char*){pointer} + {scratch_offset}))"
        return f"{pointer}[{' + '.join(terms) or '0'}]"

    def arguments(self, stage: Stage, again: bool = False) -> list[Value]:
        """The arguments of a stage's body; `again` reads memory again."""
        writer, kernel = self.writer, self.kernel
        arguments: list[Value] = []
        for source in stage.sources:
            number = source.number
            match source.kind:
                case "index":
                    arguments.append(Text(f"(long long){[*self.domain, *self.inner][number]}", i64))
                case "read":
                    port = kernel.reads[number]
                    strides = self.nest.reads[number].strides
                    lvalue = self.ahead.get(number) or self.element("read", number, port, strides)
                    lvalue = f"lg_fresh(&{lvalue})" if again else lvalue
                    if number in self.kept and number not in self.held and port.level == "point":
                        lvalue = f"(kept_read{number}[k] = {lvalue})"
                    arguments.append(writer.value(KERNELS.loaded(lvalue, port.element), port.element))
                case "indexed":
                    arguments.append(self._whole(number))
                case "scalar":
                    arguments.append(self._uniform(number))
                case "row":
                    value = self.rows[number]
                    assert value is not None
                    arguments.append(value)
        return arguments

    def _whole(self, number: int) -> TensorReference:
        whole = self.kernel.indexed_buffers[number]
        pointer = self.word(f"whole{number}", f"const {memory_type(whole.element)}*")
        extents = tuple(self.word(f"whole{number}_extent{d}") for d in range(whole.rank))
        strides = tuple(self.word(f"whole{number}_stride{d}") for d in range(whole.rank))
        return TensorReference(pointer, whole.element, extents, strides)

    def _uniform(self, number: int) -> Text:
        type = self.kernel.scalar_arguments[number]
        if self.nest.by_value[number]:
            return Text(KERNELS.loaded(self.word(f"uniform{number}", memory_type(type)), type), type)
        pointer = self.word(f"uniform{number}", f"const {memory_type(type)}*")
        return self.writer.value(KERNELS.loaded(f"*{pointer}", type), type)

    def store(self, target: Sink, value: Text) -> None:
        port = self.kernel.outputs[target.number]
        lvalue = self.element("output", target.number, port, self.nest.outputs[target.number].strides)
        once = f"if ({self.first_lane()}) " if self.together and port.level == "row" else ""
        self.writer.line(f"{once}{lvalue} = {KERNELS.stored(value.text, port.element)};")

    def first_lane(self) -> str:
        """Whether a thread stores the results of its row."""
        lanes = {"block": "threadIdx.x == 0", "warp": "threadIdx.x % 32 == 0"}
        return lanes.get(self.runner, f"threadIdx.x < {COLUMNS}")

    def lanes(self) -> tuple[str, str]:
        """Of the threads of a block that share a row, which one this is, and how many there are."""
        if self.runner == "warp":
            return "threadIdx.x % 32", "32"
        if self.runner == "block":
            return "threadIdx.x", str(self.nest.rows.step) if self.nest.kept_points else "blockDim.x"
        return f"threadIdx.x / {COLUMNS}", f"blockDim.x / {COLUMNS}"
