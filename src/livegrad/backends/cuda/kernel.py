"""A kernel as CUDA C: one thread, or one block of threads, takes a row and runs its stages.

`emit_kernel(kernel, layout)` gives the text, and the names of the words that its arguments are; `plan.py` fills them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from livegrad.backends.cuda import prelude
from livegrad.backends.cuda.bind import Layout, StrideKind
from livegrad.backends.cuda.body import texts_of, write_function
from livegrad.backends.cuda.values import TensorReference, Text, Value, held_type, literal, loaded, memory_type, stored
from livegrad.backends.cuda.writer import Site, Writer
from livegrad.ir.types import Scalar, f16, i64
from livegrad.schedule.kernel import Kernel, Port, Stage, Target


@dataclass(frozen=True)
class KernelText:
    """CUDA C of a kernel, the words it takes, and its checks. The symbol is `kernel`."""

    text: str
    words: tuple[str, ...]
    sites: tuple[Site, ...]
    uses_traces: bool


def emit_kernel(kernel: Kernel, layout: Layout) -> KernelText:
    """The text of `kernel` for one layout."""
    return _Emitter(kernel, layout).emit()


class _Emitter:
    def __init__(self, kernel: Kernel, layout: Layout) -> None:
        self.kernel, self.layout = kernel, layout
        self.writer = Writer()
        self.words: dict[str, str] = {}  # names and C types
        self.rows: list[Text | None] = [None] * len(kernel.rows)
        self.domain = [f"d{d}" for d in range(layout.domain_rank)]
        self.inner = [f"i{d}" for d in range(layout.inner_rank)]
        self.as_block = layout.rows == "block"

    def word(self, name: str, type: str = "long long") -> str:
        """An argument of the kernel."""
        self.words.setdefault(name, type)
        return f"a.{name}"

    def emit(self) -> KernelText:
        writer = self.writer
        self.word("status", "unsigned long long*")
        index, one = self.layout.index, "(row_index)blockIdx.x"
        first = one if self.as_block else f"{one} * blockDim.x + threadIdx.x"
        step = "gridDim.x" if self.as_block else "(row_index)gridDim.x * blockDim.x"
        writer.line(f"const row_index step = {step};")
        with writer.block(f"for (row_index row = {first}; row < {self.word('rows')}; row += step)"):
            start = len(writer.lines)
            self._decode("row", self.domain, [f"domain{d}" for d in range(len(self.domain))])
            for stage in self.kernel.stages:
                self._stage(stage)
            if writer.uses_traces:
                writer.lines.insert(start, "        memory.used = LG_SPARE;")
        parts = [prelude.BASICS, prelude.BLOCK_FOLD] if self.as_block else [prelude.BASICS]
        opening: list[str] = []
        if writer.uses_traces:
            parts += [f"#define LG_SPARE {-(-writer.largest_slot // 16) * 16}", prelude.TRACES]
            opening = self._memory_lines()
        fields = "\n".join(f"    alignas(8) {type} {name};" for name, type in self.words.items())
        head = 'extern "C" __global__ void kernel(const __grid_constant__ Arguments a)'
        text = "\n".join(
            [
                *parts,
                f"typedef {index} row_index;",
                f"struct Arguments\n{{\n{fields}\n}};",
                f'static_assert(sizeof(Arguments) == {8 * len(self.words)}, "a word for each argument");\n',
                f"{head}\n{{",
                *opening,
                *writer.lines,
                "}\n",
            ]
        )
        return KernelText(text, tuple(self.words), tuple(writer.sites), writer.uses_traces)

    def _memory_lines(self) -> list[str]:
        worker = "((long long)blockIdx.x * blockDim.x + threadIdx.x)"
        size = self.word("trace_bytes")
        start = f"{self.word('traces', 'unsigned char*')} + {worker} * {size}"
        return [
            f"    lg_memory memory = {{{start}, {size}, LG_SPARE, {self.word('full', 'unsigned long long*')}, false}};"
        ]

    # --- places ---

    def _decode(self, linear: str, names: list[str], extents: list[str]) -> None:
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

    def _element(self, role: str, number: int, port: Port, kinds: tuple[StrideKind, ...]) -> str:
        """The place in memory that an access touches at the present point."""
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
            worker = "blockIdx.x" if self.as_block else "((long long)blockIdx.x * blockDim.x + threadIdx.x)"
            own = f"((long long){worker} * {self.word('scratch_bytes')})"
            pointer = f"(({memory_type(port.element)}*)((char*){pointer} + {own}))"
        return f"{pointer}[{' + '.join(terms) or '0'}]"

    def _arguments(self, stage: Stage) -> list[Value]:
        writer, kernel = self.writer, self.kernel
        arguments: list[Value] = []
        for source in stage.sources:
            number = source.number
            match source.kind:
                case "index":
                    arguments.append(Text(f"(long long){[*self.domain, *self.inner][number]}", i64))
                case "read":
                    port = kernel.reads[number]
                    place = self._element("read", number, port, self.layout.reads[number])
                    arguments.append(writer.value(loaded(place, port.element), port.element))
                case "whole":
                    arguments.append(self._whole(number))
                case "uniform":
                    arguments.append(self._uniform(number))
                case "row":
                    value = self.rows[number]
                    assert value is not None
                    arguments.append(value)
        return arguments

    def _whole(self, number: int) -> TensorReference:
        whole = self.kernel.wholes[number]
        pointer = self.word(f"whole{number}", f"const {memory_type(whole.element)}*")
        extents = tuple(self.word(f"whole{number}_extent{d}") for d in range(whole.rank))
        strides = tuple(self.word(f"whole{number}_stride{d}") for d in range(whole.rank))
        return TensorReference(pointer, whole.element, extents, strides)

    def _uniform(self, number: int) -> Text:
        type = self.kernel.uniforms[number]
        if self.layout.by_value[number]:
            return Text(loaded(self.word(f"uniform{number}", memory_type(type)), type), type)
        pointer = self.word(f"uniform{number}", f"const {memory_type(type)}*")
        return self.writer.value(loaded(f"*{pointer}", type), type)

    def _store(self, target: Target, value: Text) -> None:
        port = self.kernel.outputs[target.number]
        place = self._element("output", target.number, port, self.layout.outputs[target.number])
        once = "if (threadIdx.x == 0) " if self.as_block and port.level == "row" else ""
        self.writer.line(f"{once}{place} = {stored(value.text, port.element)};")

    # --- stages ---

    def _stage(self, stage: Stage) -> None:
        writer = self.writer
        if stage.level == "row":
            writer.element = "row"
            results = texts_of(write_function(writer, stage.body, self._arguments(stage)))
            for target, value in zip(stage.targets, results, strict=True):
                if target.kind == "row":
                    self.rows[target.number] = value
                else:
                    self._store(target, value)
            return
        writer.element = self._operand_element() if self.kernel.along else "row"
        if stage.scan is not None:
            self._scan_stage(stage)
        else:
            self._point_stage(stage)
        if self.as_block and any(port.scratch for port in self.kernel.outputs):
            writer.line("__syncthreads();")

    def _operand_element(self) -> str:
        """The element of what is folded, counted over rows and inner points: where a failed check lies."""
        outer = len(self.domain) - (1 if self.kernel.split else 0)  # the last domain dimension numbers chunks
        names = [*self.domain[:outer], *self.inner]
        extents = [f"domain{d}" for d in range(outer)] + [f"inner{d}" for d in range(len(self.inner))]
        linear = "0LL"
        for name, extent in zip(names, extents, strict=True):
            linear = f"({linear} * {self.word(extent)} + {name})"
        return linear

    def _sweep(self, body: Callable[[], None], down: bool = False) -> None:
        """The inner points of a row: all of them in order, or this thread's share."""
        writer = self.writer
        start, stop = self._first_range()
        if self.as_block:
            rest = "".join(f" * (row_index){self.word(f'inner{d}')}" for d in range(1, len(self.inner)))
            point = writer.name("p")
            bound = f"({stop} - {start}){rest}"
            with writer.block(f"for (row_index {point} = threadIdx.x; {point} < {bound}; {point} += blockDim.x)"):
                local = ["local0", *self.inner[1:]]
                self._decode(point, local, [f"inner{d}" for d in range(len(self.inner))])
                writer.line(f"const row_index {self.inner[0]} = {start} + local0;")
                body()
            return
        self._nested(0, start, stop, body, down)

    def _nested(self, depth: int, start: str, stop: str, body: Callable[[], None], down: bool) -> None:
        if depth == len(self.inner):
            body()
            return
        name = self.inner[depth]
        head = f"for (row_index {name} = {start}; {name} < {stop}; ++{name})"
        if down:
            head = f"for (row_index {name} = {stop} - 1; {name} >= {start}; --{name})"
        with self.writer.block(head):
            following = f"(row_index){self.word(f'inner{depth + 1}')}" if depth + 1 < len(self.inner) else "0"
            self._nested(depth + 1, "0", following, body, down)

    def _first_range(self) -> tuple[str, str]:
        stop = f"(row_index){self.word('inner0')}" if self.inner else "1"
        if not self.kernel.split:
            return "0", stop
        start, end = self.writer.name("start"), self.writer.name("end")
        chunk = f"(row_index){self.word('chunk')}"
        self.writer.line(f"const row_index {start} = {self.domain[-1]} * {chunk};")
        self.writer.line(f"const row_index {end} = {start} + {chunk} < {stop} ? {start} + {chunk} : {stop};")
        return start, end

    def _point_stage(self, stage: Stage) -> None:
        folds = {
            index: _Fold(self.writer, target, _scalar(stage, index))
            for index, target in enumerate(stage.targets)
            if target.reduce is not None
        }

        def point() -> None:
            results = texts_of(write_function(self.writer, stage.body, self._arguments(stage)))
            for index, (target, value) in enumerate(zip(stage.targets, results, strict=True)):
                if index in folds:
                    folds[index].take(value, self._linear_index())
                else:
                    self._store(target, value)

        self._sweep(point)
        for index, fold in folds.items():
            number = stage.targets[index].number
            self.rows[number] = fold.end(self.as_block, self.kernel.rows[number])

    def _linear_index(self) -> str:
        linear = f"(long long){self.inner[0]}" if self.inner else "0LL"
        for dimension, name in enumerate(self.inner[1:], 1):
            linear = f"({linear} * {self.word(f'inner{dimension}')} + {name})"
        return linear

    def _scan_stage(self, stage: Stage) -> None:
        writer, scan = self.writer, stage.scan
        assert scan is not None
        type = _scalar(stage, 0)
        state = writer.name("s")
        writer.line(f"{held_type(type)} {state} = {literal(scan.initial, type)};")

        def point() -> None:
            (result,) = texts_of(write_function(writer, stage.body, [Text(state, type), *self._arguments(stage)]))
            self._store(stage.targets[0], Text(state, type) if scan.exclusive else result)
            writer.line(f"{state} = {result.text};")

        self._sweep(point, down=scan.reverse)


def _scalar(stage: Stage, index: int) -> Scalar:
    type = stage.body.results[index].type
    assert isinstance(type, Scalar)
    return type


class _Fold:
    """A running fold of a row: a variable, how it takes a value in, and how a block's threads become one value."""

    def __init__(self, writer: Writer, target: Target, type: Scalar) -> None:
        self.writer, self.type = writer, type
        self.kind = target.reduce or ""
        self.indexed = self.kind.startswith("arg")
        held = held_type(type)
        self.c_type = f"lg_indexed<{held}>" if self.indexed else held
        self.name = writer.name("fold")
        start = literal(_initial(self.kind, type), type)
        writer.line(f"{self.c_type} {self.name} = {f'{{{start}, 1LL << 62}}' if self.indexed else start};")

    def take(self, value: Text, index: str) -> None:
        fresh = f"{self.c_type}{{{value.text}, {index}}}" if self.indexed else value.text
        self.writer.line(f"{self.name} = {self._combined(self.name, fresh)};")

    def _combined(self, first: str, second: str) -> str:
        match self.kind:
            case "sum" | "prod":
                symbol = "+" if self.kind == "sum" else "*"
                if self.type.kind == "float":
                    return f"{first} {symbol} {second}"
                wide = "unsigned long long" if self.type.bits == 64 else "unsigned int"
                return f"({self.c_type})(({wide}){first} {symbol} ({wide}){second})"
            case "any" | "all":
                return f"{first} {'||' if self.kind == 'any' else '&&'} {second}"
            case "max" | "min":
                return f"lg_{self.kind}imum<{self.c_type}>({first}, {second})"
        return f"lg_better<{'true' if self.kind == 'argmax' else 'false'}>({first}, {second})"

    def end(self, as_block: bool, wanted: Scalar) -> Text:
        if as_block:
            combine = f"[](const {self.c_type} x, const {self.c_type} y) {{ return {self._combined('x', 'y')}; }}"
            self.writer.line(f"{self.name} = lg_block_fold({self.name}, {combine});")
        text = f"{self.name}.index" if self.indexed else self.name
        return self.writer.value(f"lg_round_half({text})" if wanted is f16 else text, wanted)


def _initial(kind: str, type: Scalar) -> bool | int | float:
    """What a fold starts from: nothing changes by combining with it."""
    if kind in ("sum", "prod", "any", "all"):
        return {"sum": 0, "prod": 1, "any": False, "all": True}[kind]
    highest = kind in ("min", "argmin")
    if type.kind == "float":
        return float("inf") if highest else float("-inf")
    if type.kind == "bool":
        return highest
    if type.kind == "unsigned":
        return (1 << type.bits) - 1 if highest else 0
    return (1 << (type.bits - 1)) - 1 if highest else -(1 << (type.bits - 1))
