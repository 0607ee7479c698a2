"""A kernel as LLVM text: the loops over its domain and rows, loads and stores, and its stages inside.

Lanes run along the last domain dimension ("across") or along the last inner one ("along"). Work is handed out in items:
a row, or a block of the last domain dimension. See `Layout` for what decides the code besides the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from livegrad.backends.cpu.emit import memory, reduce, traces
from livegrad.backends.cpu.emit.assembler import Assembler, Site
from livegrad.backends.cpu.emit.body import emit_function, has_divergence
from livegrad.backends.cpu.emit.control import branch_cost
from livegrad.backends.cpu.emit.values import (
    Register,
    TensorReference,
    Value,
    byte_size,
    llvm_type,
)
from livegrad.backends.cpu.math_library import MathRequest, math_declaration
from livegrad.ir.types import Scalar, bool_, f32, i64
from livegrad.schedule.kernel import Kernel, Port, Stage, Target

StrideKind = Literal["zero", "one", "any"]
_UNROLL = 4
_UNROLL_BELOW = 60.0


@dataclass(frozen=True)
class Layout:
    """What the code depends on besides the kernel: lanes, where they run, ranks after merging, kinds of strides."""

    lanes: int
    direction: Literal["across", "along"]
    domain_rank: int
    inner_rank: int
    reads: tuple[tuple[StrideKind, ...], ...]
    outputs: tuple[tuple[StrideKind, ...], ...]
    vector_bytes: int


@dataclass
class Words:
    """Hands out the words of the argument block; `names` records what each holds, for whoever fills it in."""

    names: list[str] = field(default_factory=list)

    def take(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1


@dataclass(frozen=True)
class KernelText:
    """LLVM text of a kernel, the words it takes, and its checks."""

    text: str
    words: tuple[str, ...]
    sites: tuple[Site, ...]
    interruptible: bool
    math: tuple[MathRequest, ...]  # functions of the math library that it calls


def emit_kernel(kernel: Kernel, layout: Layout) -> KernelText:
    """The text of `kernel` for one layout; the symbol is `kernel`."""
    return _Emitter(kernel, layout).emit()


class _Emitter:
    def __init__(self, kernel: Kernel, layout: Layout) -> None:
        self.kernel, self.layout = kernel, layout
        self.asm = Assembler(layout.lanes)
        self.words = Words()
        self.rows: list[Value | None] = [None] * len(kernel.rows)
        self.masked = any(has_divergence(stage.body) for stage in kernel.stages)
        self.domain_index: list[Register] = []
        self.inner_index: list[Register] = []

    # --- the argument block ---

    def word(self, name: str, type: str = "i64") -> str:
        """A word of the argument block, loaded before the loops."""
        index = self.words.take(name)
        asm = self.asm
        place, loaded = asm.name("p"), asm.name("w")
        asm.entry.append(f"  {place} = getelementptr i64, ptr %args, i64 {index}")
        asm.entry.append(f"  {loaded} = load {type}, ptr {place}, align 8, !invariant.load !0")
        return loaded

    def number(self, name: str) -> Register:
        return Register(self.word(name), i64, 1)

    def uniform(self, name: str, type: Scalar) -> Register:
        """A scalar argument, by the address of its value, and spread over the lanes once if it is needed so."""
        pointer = self.word(name, "ptr")
        held, lines = self.asm.entry, self.asm.lines
        self.asm.lines = held
        value = memory.load_uniform(self.asm, pointer, type)
        self.asm.lines = lines
        return value

    def load_arguments(self) -> None:
        kernel, layout = self.kernel, self.layout
        self.status = self.word("status", "ptr")
        self.interrupt = self.word("interrupt", "ptr")
        self.extents = [self.number(f"domain{d}") for d in range(layout.domain_rank)]
        self.inner = [self.number(f"inner{d}") for d in range(layout.inner_rank)]
        self.block_size = self.number("block")
        self.read_bases, self.read_strides = self._ports("read", kernel.reads, layout.reads)
        self.output_bases, self.output_strides = self._ports("output", kernel.outputs, layout.outputs)
        self.wholes = [self._whole(index) for index in range(len(kernel.wholes))]
        self.uniforms = [self.uniform(f"uniform{i}", type) for i, type in enumerate(kernel.uniforms)]

    def _ports(
        self, role: str, ports: tuple[Port, ...], kinds: tuple[tuple[StrideKind, ...], ...]
    ) -> tuple[list[str], list[list[Register]]]:
        bases = [self.word(f"{role}{k}", "ptr") for k in range(len(ports))]
        strides = [
            [self._stride(f"{role}{k}.stride{d}", kind) for d, kind in enumerate(own)] for k, own in enumerate(kinds)
        ]
        return bases, strides

    def _stride(self, name: str, kind: StrideKind) -> Register:
        if kind == "any":
            return self.number(name)
        return self.asm.constant(1 if kind == "one" else 0, i64)

    def _whole(self, index: int) -> TensorReference:
        whole = self.kernel.wholes[index]
        pointer = self.word(f"whole{index}", "ptr")
        extents = tuple(self.number(f"whole{index}.extent{d}") for d in range(whole.rank))
        strides = tuple(self.number(f"whole{index}.stride{d}") for d in range(whole.rank))
        return TensorReference(pointer, whole.element, extents, strides)

    # --- loops ---

    def counted(
        self,
        start: Register,
        stop: Register,
        step: int,
        carried: list[Register],
        body: Callable[[Register, list[Register]], list[Register]],
        downward: bool = False,
    ) -> list[Register]:
        """for (i = start; i < stop; i += step) carried = body(i, carried); gives the last carried registers."""
        asm = self.asm
        head, inside, done = (asm.label(hint) for hint in ("head", "inside", "after"))
        before = asm.block
        asm.jump(head)
        asm.begin(head)
        place = len(asm.lines)
        index = Register(asm.name("i"), i64, 1)
        phis = [Register(asm.name("c"), register.type, register.lanes) for register in carried]
        asm.lines.extend([""] * (1 + len(phis)))
        asm.branch(asm.apply("icmp slt", bool_, index, stop), inside, done)
        asm.begin(inside)
        position = index
        if downward:
            position = asm.apply(
                "sub", i64, asm.apply("sub", i64, asm.apply("add", i64, start, stop), index), asm.constant(1, i64)
            )
        finals = body(position, phis)
        following = asm.apply("add", i64, index, asm.constant(step, i64))
        last = asm.block
        asm.jump(head)
        for offset, (phi, first, final) in enumerate(
            zip([index, *phis], [start, *carried], [following, *finals], strict=True)
        ):
            vector = llvm_type(phi.type, phi.lanes)
            asm.lines[place + offset] = (
                f"  {phi.text} = phi {vector} [ {first.text}, %{before} ], [ {final.text}, %{last} ]"
            )
        asm.begin(done)
        return phis

    def offset_of(self, strides: list[Register], indices: list[Register], start: Register | None) -> Register:
        """The element offset of a point: a sum of index times stride, without the terms that are known to be zero."""
        total = start
        for stride, index in zip(strides, indices, strict=True):
            if stride.text == "0":
                continue
            term = index if stride.text == "1" else self.asm.apply("mul", i64, index, stride)
            total = term if total is None else self.asm.apply("add", i64, total, term)
        return self.asm.constant(0, i64) if total is None else total

    def decode(self, linear: Register, extents: list[Register]) -> list[Register]:
        """The indices of a point from its number in row-major order."""
        indices: list[Register] = []
        for extent in reversed(extents[1:]):
            indices.append(self.asm.apply("urem", i64, linear, extent))
            linear = self.asm.apply("udiv", i64, linear, extent)
        if extents:
            indices.append(linear)
        return indices[::-1]

    # --- the whole function ---

    def emit(self) -> KernelText:
        asm = self.asm
        self.load_arguments()
        begin, end = Register("%begin", i64, 1), Register("%end", i64, 1)
        asm.begin("items")
        self.counted(begin, end, 1, [], self._item)
        if asm.uses_traces:
            asm.line("call void @lg_arena_free(ptr %arena)")
        asm.line("ret void")
        return self._finish()

    def _finish(self) -> KernelText:
        asm = self.asm
        entry = ["start:"]
        if asm.uses_traces:
            entry += ["  %arena = alloca ptr, align 8", "  store ptr null, ptr %arena"]
        named = [f"  %status = bitcast ptr {self.status} to ptr", f"  %interrupt = bitcast ptr {self.interrupt} to ptr"]
        body = "\n".join([*entry, *asm.entry, *named, "  br label %items", *asm.lines])
        width = self.layout.vector_bytes * 8
        common = f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
        text = "\n".join(
            [
                *sorted(asm.declarations | {math_declaration(request) for request in asm.math}),
                traces.RUNTIME if asm.uses_traces else "",
                "define void @kernel(i64 %begin, i64 %end, ptr noalias %args, i64 %worker) #0 {",
                body,
                "}",
                f'attributes #0 = {{ {common} "stackrealign" }}',
                "!0 = !{}",
            ]
        )
        return KernelText(text, tuple(self.words.names), tuple(asm.sites), asm.polls, tuple(sorted(asm.math)))

    def _item(self, item: Register, carried: list[Register]) -> list[Register]:
        if self.layout.direction == "along":
            self.domain_index = self.decode(item, self.extents)
            self._row(item, None)
        else:
            self._lines(item)
        return []

    def _lines(self, item: Register) -> None:
        """Lanes across the last domain dimension: an item is a block of it."""
        asm = self.asm
        if not self.extents:
            self.domain_index = []
            self._row(asm.constant(0, i64), None)
            return
        length = self.extents[-1]
        rounded = asm.apply("add", i64, length, asm.apply("sub", i64, self.block_size, asm.constant(1, i64)))
        blocks = asm.apply("udiv", i64, rounded, self.block_size)
        line = item if len(self.extents) == 1 else asm.apply("udiv", i64, item, blocks)
        block = item if len(self.extents) == 1 else asm.apply("urem", i64, item, blocks)
        outer = self.decode(line, self.extents[:-1])
        start = asm.apply("mul", i64, block, self.block_size)
        stop = asm.intrinsic("smin", i64, asm.apply("add", i64, start, self.block_size), length)

        def group(position: Register, carried: list[Register]) -> list[Register]:
            self.domain_index = [*outer, position]
            element = asm.apply("add", i64, asm.apply("mul", i64, line, length), position)
            self._row(element, (position, stop))
            return []

        self.counted(start, stop, self.layout.lanes, [], group)

    def _row(self, element: Register, tail: tuple[Register, Register] | None) -> None:
        """All stages at one row (or at a group of rows, one a lane)."""
        asm = self.asm
        asm.element_index = element
        if asm.uses_traces or self._may_trace():
            asm.uses_traces = True
            asm.line("call void @lg_arena_empty(ptr %arena)")
        self.tail = tail
        self.row_mask = self._lane_mask(tail) if tail is not None and self.masked and asm.lanes > 1 else None
        across = self.layout.direction == "across"
        for stage in self.kernel.stages:
            if stage.level == "row":
                lanes, asm.lanes = asm.lanes, asm.lanes if across else 1
                with asm.under(self.row_mask):
                    self._row_stage(stage)
                asm.lanes = lanes
            elif stage.scan is not None:
                self._scan_stage(stage)
            else:
                self._point_stage(stage)

    def _may_trace(self) -> bool:
        return self.masked and any(traces.mentions_traces(stage.body) for stage in self.kernel.stages)

    def _lane_mask(self, tail: tuple[Register, Register]) -> Register:
        """The lanes that stand for elements below the end."""
        asm = self.asm
        position, stop = tail
        left = asm.widen(asm.apply("sub", i64, stop, position), asm.lanes)
        return asm.apply("icmp slt", bool_, self._lane_numbers(), left)

    def _lane_numbers(self) -> Register:
        lanes = ", ".join(f"i64 {lane}" for lane in range(self.asm.lanes))
        return Register(f"<{lanes}>", i64, self.asm.lanes, literal=True)

    # --- stages ---

    def _row_stage(self, stage: Stage) -> None:
        across = self.layout.direction == "across"
        tail = self.tail if across else None
        arguments = self._arguments(stage, [], tail, across)
        results = emit_function(self.asm, stage.body, arguments)
        stores = []
        for target, value in zip(stage.targets, results, strict=True):
            if target.kind == "row":
                self.rows[target.number] = value
            else:
                stores.append((target, value))
        self._store(stores, [], tail, across)

    def _sweep(
        self,
        carried: list[Register],
        body: Callable[[list[Register], list[Register]], list[Register]],
        down: bool = False,
    ) -> list[Register]:
        """Nested loops over all inner dimensions but the lanes' own, carrying registers through."""
        dimensions = self.inner if self.layout.direction == "across" else self.inner[:-1]

        def level(depth: int, indices: list[Register], state: list[Register]) -> list[Register]:
            if depth == len(dimensions):
                return body(indices, state)
            start, stop = self._inner_range(depth)
            return self.counted(
                start, stop, 1, state, lambda index, inner: level(depth + 1, [*indices, index], inner), downward=down
            )

        return level(0, [], carried)

    def _inner_range(self, depth: int) -> tuple[Register, Register]:
        asm = self.asm
        if depth or not self.kernel.split:
            return asm.constant(0, i64), self.inner[depth]
        start = asm.apply("mul", i64, self.domain_index[-1], self.block_size)
        return start, asm.intrinsic("smin", i64, asm.apply("add", i64, start, self.block_size), self.inner[0])

    def _point_stage(self, stage: Stage) -> None:
        folds = [target for target in stage.targets if target.reduce is not None]
        start = [part for target in folds for part in self._fold_start(target)]
        if self.layout.direction == "across":
            ended = self._sweep(start, lambda indices, state: self._point(stage, indices, self.tail, state))
        else:
            ended = self._sweep(start, lambda indices, state: self._lane_loop(stage, indices, state))
        self._end_folds(folds, ended)

    def _fold_start(self, target: Target) -> list[Register]:
        asm = self.asm
        type = reduce.accumulator_type(target.reduce or "", self._fold_type(target))
        return [asm.widen(register, asm.lanes) for register in reduce.initial(asm, target.reduce or "", type)]

    def _fold_type(self, target: Target) -> Scalar:
        for stage in self.kernel.stages:
            for own, result in zip(stage.targets, stage.body.results, strict=True):
                if own is target and isinstance(result.type, Scalar):
                    return result.type
        raise AssertionError("a fold has a scalar result")

    def _end_folds(self, folds: list[Target], registers: list[Register]) -> None:
        supply = iter(registers)
        for target in folds:
            kind = target.reduce or ""
            value = tuple(next(supply) for _ in range(2 if kind.startswith("arg") else 1))
            if self.layout.direction == "along":
                value = reduce.across_lanes(self.asm, kind, value)
            wanted = self.kernel.rows[target.number]
            self.rows[target.number] = self._narrowed(value[-1], wanted)

    def _narrowed(self, value: Register, wanted: Scalar) -> Register:
        if value.type is f32 and wanted.bits == 16:
            return self.asm.convert("fptrunc", value, wanted)
        return value

    def _lane_loop(self, stage: Stage, indices: list[Register], state: list[Register]) -> list[Register]:
        """The last inner dimension by groups of lanes: several at once while they are full, then one by one."""
        lanes = self.layout.lanes
        depth = len(self.inner) - 1
        start, stop = self._inner_range(depth)
        unroll = _UNROLL if branch_cost(stage.body) < _UNROLL_BELOW and not self.masked and lanes > 1 else 1
        if unroll > 1:
            start, state = self._full_groups(stage, indices, start, stop, unroll, state)

        def group(position: Register, inner: list[Register]) -> list[Register]:
            return self._point(stage, [*indices, position], (position, stop), inner)

        return self.counted(start, stop, lanes, state, group)

    def _full_groups(
        self, stage: Stage, indices: list[Register], start: Register, stop: Register, unroll: int, state: list[Register]
    ) -> tuple[Register, list[Register]]:
        asm, lanes = self.asm, self.layout.lanes
        step = lanes * unroll
        count = asm.apply("sub", i64, stop, start)
        whole = asm.apply("and", i64, count, asm.constant(-step, i64))
        end = asm.apply("add", i64, start, whole)

        def body(position: Register, carried: list[Register]) -> list[Register]:
            groups = []
            for k in range(unroll):
                at = position if not k else asm.apply("add", i64, position, asm.constant(k * lanes, i64))
                own = carried[k * len(state) : (k + 1) * len(state)]
                groups += self._point(stage, [*indices, at], None, own)
            return groups

        fresh = [part for t in stage.targets if t.reduce is not None for part in self._fold_start(t)]
        ended = self.counted(start, end, step, [*state, *(fresh * (unroll - 1))], body)
        folds = [target for target in stage.targets if target.reduce is not None]
        return end, self._fold_groups(folds, ended, unroll)

    def _fold_groups(self, folds: list[Target], registers: list[Register], unroll: int) -> list[Register]:
        size = len(registers) // unroll
        groups = [registers[k * size : (k + 1) * size] for k in range(unroll)]
        while len(groups) > 1:
            pairs = zip(groups[::2], groups[1::2], strict=True)
            groups = [self._fold_pair(folds, first, second) for first, second in pairs]
        return groups[0]

    def _fold_pair(self, folds: list[Target], first: list[Register], second: list[Register]) -> list[Register]:
        result: list[Register] = []
        position = 0
        for target in folds:
            width = 2 if (target.reduce or "").startswith("arg") else 1
            a, b = (tuple(side[position : position + width]) for side in (first, second))
            result.extend(reduce.combine(self.asm, target.reduce or "", a, b))
            position += width
        return result

    def _point(
        self, stage: Stage, indices: list[Register], tail: tuple[Register, Register] | None, state: list[Register]
    ) -> list[Register]:
        """The body at one inner point of each lane; `tail` says where the lanes end, None that they are all there."""
        asm = self.asm
        along = self.layout.direction == "along"
        mask = self._lane_mask(tail) if tail is not None and asm.lanes > 1 and self._needs_mask(stage) else None
        with asm.under(mask if self.masked else None):
            arguments = self._arguments(stage, indices, tail, True)
            results = emit_function(asm, stage.body, arguments)
        following: list[Register] = []
        stores = []
        supply = iter(state)
        for target, value in zip(stage.targets, results, strict=True):
            if target.kind == "output":
                stores.append((target, value))
                continue
            assert isinstance(value, Register)
            following += self._folded(target, value, indices, mask if along else None, supply)
        self._store(stores, indices, tail, True)
        return following

    def _needs_mask(self, stage: Stage) -> bool:
        folds = any(target.reduce is not None for target in stage.targets)
        return self.masked or (folds and self.layout.direction == "along")

    def _folded(
        self,
        target: Target,
        value: Register,
        indices: list[Register],
        mask: Register | None,
        supply: Iterator[Register],
    ) -> list[Register]:
        asm = self.asm
        kind = target.reduce or ""
        held = [next(supply) for _ in range(2 if kind.startswith("arg") else 1)]
        type = held[0].type
        value = asm.widen(value if value.type is type else asm.convert("fpext", value, type), asm.lanes)
        fresh: tuple[Register, ...] = (value,)
        if kind.startswith("arg"):
            fresh = (value, self._linear_index(indices))
        combined = reduce.combine(asm, kind, tuple(held), fresh)
        if mask is None:
            return list(combined)
        return [asm.select(mask, new, old) for new, old in zip(combined, held, strict=True)]

    def _linear_index(self, indices: list[Register]) -> Register:
        """The position among the inner points, lane by lane."""
        asm = self.asm
        linear = indices[0]
        for index, extent in zip(indices[1:], self.inner[1:], strict=True):
            linear = asm.apply("add", i64, asm.apply("mul", i64, linear, extent), index)
        if self.layout.direction == "along" and asm.lanes > 1:
            return asm.apply("add", i64, asm.widen(linear, asm.lanes), self._lane_numbers())
        return asm.widen(linear, asm.lanes)

    def _scan_stage(self, stage: Stage) -> None:
        """Lanes across only: each lane folds along its own row, storing as it goes."""
        asm, scan = self.asm, stage.scan
        type = stage.body.results[0].type
        assert scan is not None
        assert isinstance(type, Scalar)
        start = asm.widen(asm.constant(scan.initial, type), asm.lanes)

        def body(indices: list[Register], state: list[Register]) -> list[Register]:
            with asm.under(self.row_mask):
                arguments = [state[0], *self._arguments(stage, indices, self.tail, True)]
                result = emit_function(asm, stage.body, arguments)[0]
            assert isinstance(result, Register)
            result = asm.widen(result, asm.lanes)
            self._store([(stage.targets[0], state[0] if scan.exclusive else result)], indices, self.tail, True)
            return [result]

        self._sweep([start], body, down=scan.reverse)

    # --- loads and stores ---

    def _arguments(
        self, stage: Stage, indices: list[Register], tail: tuple[Register, Register] | None, vector: bool
    ) -> list[Value]:
        reads = sorted({source.number for source in stage.sources if source.kind == "read"})
        loaded = self._load_all(reads, indices, tail, vector)
        arguments: list[Value] = []
        for source in stage.sources:
            match source.kind:
                case "index":
                    arguments.append(self._index(source.number, indices, vector))
                case "read":
                    arguments.append(loaded[source.number])
                case "whole":
                    arguments.append(self.wholes[source.number])
                case "uniform":
                    arguments.append(self.uniforms[source.number])
                case "row":
                    value = self.rows[source.number]
                    assert value is not None
                    arguments.append(value)
        return arguments

    def _index(self, dimension: int, indices: list[Register], vector: bool) -> Register:
        position = [*self.domain_index, *indices][dimension]
        ranks = len(self.domain_index)
        last = ranks - 1 if self.layout.direction == "across" else ranks + len(self.inner) - 1
        if dimension != last or not vector or self.asm.lanes == 1:
            return position
        return self.asm.apply("add", i64, self.asm.widen(position, self.asm.lanes), self._lane_numbers())

    def _place(self, kind: str, number: int, indices: list[Register]) -> tuple[str, Scalar, Register, Register | None]:
        """Where lane 0 of an access lies, its element, and the stride from lane to lane (None: not along the lanes)."""
        reading = kind == "read"
        port = (self.kernel.reads if reading else self.kernel.outputs)[number]
        strides = (self.read_strides if reading else self.output_strides)[number]
        base = (self.read_bases if reading else self.output_bases)[number]
        here = [*self.domain_index, *(indices if port.level == "point" else [])]
        own = strides[: len(here)]
        offset = self.offset_of(own, here, None)
        ranks = len(self.domain_index)
        lane = ranks - 1 if self.layout.direction == "across" else (len(here) - 1 if len(here) > ranks else None)
        step = own[lane] if lane is not None and lane >= 0 and own else None
        if port.scratch:
            base = self._scratch_base(base, port)
        return base, port.element, offset, step

    def _scratch_base(self, base: str, port: Port) -> str:
        bytes_each = self.asm.apply("mul", i64, Register("%worker", i64, 1), self.block_size)
        return self.asm.raw(f"getelementptr i8, ptr {base}, i64 {bytes_each.text}")

    def _load_all(
        self, reads: list[int], indices: list[Register], tail: tuple[Register, Register] | None, vector: bool
    ) -> dict[int, Register]:
        """Loads by group: consecutive lanes are loaded whole where all are there, under a mask at the end."""
        asm = self.asm
        loaded: dict[int, Register] = {}
        whole: list[tuple[int, str, Scalar]] = []
        for number in reads:
            base, type, offset, step = self._place("read", number, indices)
            pointer = memory.element_pointer(asm, base, type, offset)
            if not vector or asm.lanes == 1 or step is None or step.text == "0":
                loaded[number] = memory.load_uniform(asm, pointer, type)
            elif step.text == "1":
                whole.append((number, pointer, type))
            else:
                mask = None if tail is None else self._lane_mask(tail)
                offsets = asm.apply("mul", i64, self._lane_numbers(), asm.widen(step, asm.lanes))
                loaded[number] = memory.gather(asm, pointer, type, offsets, mask)
        if whole:
            loaded |= self._load_whole(whole, tail)
        return loaded

    def _load_whole(
        self, whole: list[tuple[int, str, Scalar]], tail: tuple[Register, Register] | None
    ) -> dict[int, Register]:
        asm = self.asm
        if tail is None:
            return {number: memory.load_vector(asm, pointer, type, None) for number, pointer, type in whole}
        full, part, ready = (asm.label(hint) for hint in ("full", "part", "ready"))
        asm.branch(self._is_full(tail), full, part)
        asm.begin(full)
        complete = [memory.load_vector(asm, pointer, type, None) for _, pointer, type in whole]
        asm.jump(ready)
        asm.begin(part)
        mask = self._lane_mask(tail)
        masked = [memory.load_vector(asm, pointer, type, mask) for _, pointer, type in whole]
        asm.jump(ready)
        asm.begin(ready)
        pairs = zip(complete, masked, strict=True)
        merged = [asm.phi(a.type, a.lanes, [(a, full), (b, part)]) for a, b in pairs]
        return {number: value for (number, _, _), value in zip(whole, merged, strict=True)}

    def _is_full(self, tail: tuple[Register, Register]) -> Register:
        position, stop = tail
        left = self.asm.apply("sub", i64, stop, position)
        return self.asm.apply("icmp sge", bool_, left, self.asm.constant(self.asm.lanes, i64))

    def _store(
        self,
        stores: list[tuple[Target, Value]],
        indices: list[Register],
        tail: tuple[Register, Register] | None,
        vector: bool,
    ) -> None:
        asm = self.asm
        whole: list[tuple[str, Register]] = []
        for target, value in stores:
            assert isinstance(value, Register)
            base, type, offset, step = self._place("output", target.number, indices)
            pointer = memory.element_pointer(asm, base, type, offset)
            if not vector or asm.lanes == 1 or step is None:
                held = memory.to_memory(asm, value)
                asm.line(f"store {held.typed}, ptr {pointer}, align {byte_size(type)}")
            elif step.text == "1":
                whole.append((pointer, asm.widen(value, asm.lanes)))
            else:
                mask = None if tail is None else self._lane_mask(tail)
                offsets = asm.apply("mul", i64, self._lane_numbers(), asm.widen(step, asm.lanes))
                memory.scatter(asm, pointer, value, offsets, mask)
        if whole:
            self._store_whole(whole, tail)

    def _store_whole(self, whole: list[tuple[str, Register]], tail: tuple[Register, Register] | None) -> None:
        asm = self.asm
        if tail is None:
            for pointer, value in whole:
                memory.store_vector(asm, pointer, value, None)
            return
        full, part, ready = (asm.label(hint) for hint in ("full", "part", "stored"))
        asm.branch(self._is_full(tail), full, part)
        for label, masked in ((full, False), (part, True)):
            asm.begin(label)
            mask = self._lane_mask(tail) if masked else None
            for pointer, value in whole:
                memory.store_vector(asm, pointer, value, mask)
            asm.jump(ready)
        asm.begin(ready)
