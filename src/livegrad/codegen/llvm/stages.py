"""Emits the stages of a kernel: once per row, at each inner point with reductions, or as a scan."""

from __future__ import annotations

from collections.abc import Callable

from livegrad.codegen.llvm import baseline_lanes, lane_reductions
from livegrad.codegen.llvm.counted_loops import counted_loop
from livegrad.codegen.llvm.function_body import emit_function, emit_results
from livegrad.codegen.llvm.fused_multiply_add import add_product
from livegrad.codegen.llvm.interleaving import emit_interleaved
from livegrad.codegen.llvm.kernel_frame import Tail
from livegrad.codegen.llvm.register_tiles import Tiles
from livegrad.codegen.llvm.registers import Product, Register
from livegrad.ir.types import Scalar, f32, i64
from livegrad.schedule.kernel import Sink, Stage


def _width(target: Sink) -> int:
    """The number of registers that a reduction carries: argmin and argmax carry a value and its index."""
    return 2 if target.reduce in ("argmax", "argmin") else 1


class Stages(Tiles):
    """Emits each kind of stage at the current row."""

    row_mask: Register | None

    def _row_stage(self, stage: Stage) -> None:
        across = self.across
        tail = self.tail if across else None
        arguments = self._arguments(stage, [], tail, across)
        emit = emit_interleaved if self.nest.vector.streams > 1 else emit_function
        results = emit(self.builder, stage.body, arguments)
        stores = []
        for target, value in zip(stage.sinks, results, strict=True):
            if target.kind == "row":
                self.rows[target.number] = value
            elif target.kind == "output":
                stores.append((target, value))
        self._store(stores, [], tail, across)

    def _sweep(
        self,
        stage: Stage,
        carried: list[Register],
        body: Callable[[list[Register], list[Register]], list[Register]],
        down: bool = False,
    ) -> list[Register]:
        """Nested loops over all inner dimensions except that of the lanes, with carried registers."""
        dimensions = self.inner if self.across else self.inner[:-1]
        points = self.nest.points
        tiled = len(dimensions) - 1 if points is not None and points.tile else None

        def level(depth: int, indices: list[Register], state: list[Register]) -> list[Register]:
            if depth == len(dimensions):
                return body(indices, state)
            start, stop = self._inner_range(depth)

            def deeper(index: Register, inner: list[Register]) -> list[Register]:
                return level(depth + 1, [*indices, index], inner)

            if depth == tiled:
                return self._tiled_sweep(stage, indices, (start, stop), state, deeper, down)
            return counted_loop(self.builder, start, stop, 1, state, deeper, downward=down)

        return level(0, [], carried)

    def _inner_range(self, depth: int) -> tuple[Register, Register]:
        builder = self.builder
        if depth or self.chunk is None:
            return builder.constant(0, i64), self.inner[depth]
        start = builder.apply("mul", i64, self.domain_index[0], self.chunk)
        return start, builder.least(builder.apply("add", i64, start, self.chunk), self.inner[0])

    def _point_stage(self, stage: Stage) -> None:
        reductions = [target for target in stage.sinks if target.reduce is not None]
        start = [part for target in reductions for part in self._reduction_start(target)]
        if self.nest.unrolled_points:
            ended = self._unroll_row(stage, start)
        elif self.across:
            ended = self._sweep(stage, start, lambda indices, state: self._point(stage, indices, self.tail, state))
        else:
            ended = self._sweep(stage, start, lambda indices, state: self._lane_loop(stage, indices, state))
        self._end_reductions(reductions, ended)

    def _unroll_row(self, stage: Stage, state: list[Register]) -> list[Register]:
        """Unrolls the points of a short row; its columns are loaded and stored as vectors."""
        assert self.tail is not None
        self.columns = self._load_rows(stage, self.tail)
        for column in range(self.nest.unrolled_points):
            state = self._point(stage, [self.builder.constant(column, i64)], self.tail, state)
        self._store_rows(self.tail)
        self.columns = {}
        return state

    def _reduction_start(self, target: Sink) -> list[Register]:
        builder = self.builder
        type = lane_reductions.accumulator_type(target.reduce or "", self._reduction_type(target))
        return [
            builder.widen(register, builder.lanes)
            for register in lane_reductions.initial(builder, target.reduce or "", type)
        ]

    def _reduction_type(self, target: Sink) -> Scalar:
        for stage in self.kernel.stages:
            for sink, result in zip(stage.sinks, stage.body.results, strict=True):
                if sink is target and isinstance(result.type, Scalar):
                    return result.type
        raise AssertionError("a reduction has a scalar result")

    def _end_reductions(self, reductions: list[Sink], registers: list[Register]) -> None:
        remaining = iter(registers)
        for target in reductions:
            kind = target.reduce or ""
            value = tuple(next(remaining) for _ in range(_width(target)))
            if not self.across:
                value = self._across_lanes(kind, value)
            self.rows[target.number] = self._narrow(value[-1], self.kernel.rows[target.number])

    def _across_lanes(self, kind: str, value: lane_reductions.Accumulator) -> lane_reductions.Accumulator:
        if self.is_baseline and len(value) == 1 and value[0].lanes > 1 and baseline_lanes.has_calls(value[0].type):
            return (baseline_lanes.reduce_lanes(self.builder, kind, value[0]),)
        return lane_reductions.across_lanes(self.builder, kind, value)

    def _narrow(self, value: Register, type: Scalar) -> Register:
        if value.type is f32 and type.bits == 16:
            return self.builder.convert("fptrunc", value, type)
        return value

    def _lane_loop(self, stage: Stage, indices: list[Register], state: list[Register]) -> list[Register]:
        """Loops over the last inner dimension by groups of lanes: unrolled while groups are full, then one by one."""
        step = self.nest.lanes
        depth = len(self.inner) - 1
        start, stop = self._inner_range(depth)
        unroll = self.nest.lane_groups(stage)
        if unroll > 1 and (state or not self.is_baseline):
            start, state = self._full_groups(stage, indices, start, stop, unroll, state)

        def group(position: Register, inner: list[Register]) -> list[Register]:
            self._begin_group((position, stop))
            return self._point(stage, [*indices, position], (position, stop), inner)

        return counted_loop(self.builder, start, stop, step, state, group)

    def _full_groups(
        self, stage: Stage, indices: list[Register], start: Register, stop: Register, unroll: int, state: list[Register]
    ) -> tuple[Register, list[Register]]:
        builder, lane_count = self.builder, self.nest.lanes
        step = lane_count * unroll
        count = builder.apply("sub", i64, stop, start)
        whole = builder.apply("and", i64, count, builder.constant(-step, i64))
        end = builder.apply("add", i64, start, whole)

        def rotating_body(position: Register, carried: list[Register]) -> list[Register]:
            """Rotates the accumulators: the baseline tier unrolls nothing, but must sum in the same order."""
            return [*carried[len(state) :], *self._point(stage, [*indices, position], None, carried[: len(state)])]

        def body(position: Register, carried: list[Register]) -> list[Register]:
            groups = []
            for k in range(unroll):
                first = position
                if k:
                    first = builder.apply("add", i64, position, builder.constant(k * lane_count, i64))
                lane_state = carried[k * len(state) : (k + 1) * len(state)]
                groups += self._point(stage, [*indices, first], None, lane_state)
            return groups

        fresh = [part for t in stage.sinks if t.reduce is not None for part in self._reduction_start(t)]
        carried = [*state, *(fresh * (unroll - 1))]
        if self.is_baseline:
            ended = counted_loop(self.builder, start, end, lane_count, carried, rotating_body)
        else:
            ended = counted_loop(self.builder, start, end, step, carried, body)
        reductions = [target for target in stage.sinks if target.reduce is not None]
        return end, self._combine_groups(reductions, ended, unroll)

    def _combine_groups(self, reductions: list[Sink], registers: list[Register], unroll: int) -> list[Register]:
        size = len(registers) // unroll
        groups = [registers[k * size : (k + 1) * size] for k in range(unroll)]
        while len(groups) > 1:
            pairs = zip(groups[::2], groups[1::2], strict=True)
            groups = [self._combine_pair(reductions, first, second) for first, second in pairs]
        return groups[0]

    def _combine_pair(self, reductions: list[Sink], first: list[Register], second: list[Register]) -> list[Register]:
        result: list[Register] = []
        position = 0
        for target in reductions:
            width = _width(target)
            a, b = (tuple(side[position : position + width]) for side in (first, second))
            result.extend(lane_reductions.combine(self.builder, target.reduce or "", a, b))
            position += width
        return result

    def _point(self, stage: Stage, indices: list[Register], tail: Tail | None, state: list[Register]) -> list[Register]:
        """The body at one inner point of each lane. `tail` is None if all lanes are active."""
        builder = self.builder
        along = not self.across
        mask = self._lane_mask(tail) if tail is not None and builder.lanes > 1 and self._needs_mask(stage) else None
        row = builder.element_index
        if self.masked and (along or self._sweeps_rows()):
            builder.element_index = self._operand_element(indices)
            builder.element_step = None if along else self._inner_points()
        with builder.with_mask(mask if self.masked else None):
            arguments = self._arguments(stage, indices, tail, True)
            summed = [number for number, target in enumerate(stage.sinks) if target.reduce == "sum"]
            results = emit_results(builder, stage.body, arguments, summed)
        builder.element_index, builder.element_step = row, None
        following: list[Register] = []
        stores = []
        accumulators = iter(state)
        for target, value in zip(stage.sinks, results, strict=True):
            if target.kind == "output":
                assert not isinstance(value, Product)
                stores.append((target, value))
                continue
            if target.kind == "indexed":
                continue  # changed in place
            assert isinstance(value, Register | Product)
            before = [next(accumulators) for _ in range(_width(target))]
            reduced = self._accumulate(target, value, indices, before)
            if tail is not None and along and builder.lanes > 1:
                reduced = [self._keep_past_end(tail, mask, *pair) for pair in zip(reduced, before, strict=True)]
            following += reduced
        self._store(stores, indices, tail, True)
        return following

    def _operand_element(self, indices: list[Register]) -> Register:
        """The linear index of the reduced element over rows and inner points, for failed checks."""
        first = self.chunk_rank
        return self.encode([*self.domain_index[first:], *indices], [*self.extents[first:], *self.inner])

    def _sweeps_rows(self) -> bool:
        """Whether lanes access short rows. In reductions of columns, a failed check names the column."""
        return any("row" in access.strides for access in (*self.nest.reads, *self.nest.outputs))

    def _inner_points(self) -> Register:
        total, *others = self.inner
        for extent in others:
            total = self.builder.apply("mul", i64, total, extent)
        return total

    def _needs_mask(self, stage: Stage) -> bool:
        """Whether lanes need a mask: for checks, and for reductions along lanes that no function masks."""
        if self.masked or self.across:
            return self.masked
        reductions = [self._reduction_type(target) for target in stage.sinks if target.reduce is not None]
        return not all(self.is_baseline and baseline_lanes.has_calls(type) for type in reductions)

    def _accumulate(
        self, target: Sink, value: Register | Product, indices: list[Register], accumulator: list[Register]
    ) -> list[Register]:
        builder = self.builder
        if isinstance(value, Product):
            return [add_product(builder, value, accumulator[0])]
        type = accumulator[0].type
        value = builder.widen(value if value.type is type else builder.convert("fpext", value, type), builder.lanes)
        term = (value, self._linear_index(indices)) if _width(target) == 2 else (value,)
        return list(lane_reductions.combine(builder, target.reduce or "", tuple(accumulator), term))

    def _keep_past_end(self, tail: Tail, mask: Register | None, new: Register, old: Register) -> Register:
        """An accumulator after a group of lanes: lanes past the end keep their value."""
        if mask is not None:
            return self.builder.select(mask, new, old)
        return baseline_lanes.choose_first(self.builder, new, old, self._remaining(tail))

    def _linear_index(self, indices: list[Register]) -> Register:
        """The linear index among the inner points, one per lane."""
        builder = self.builder
        linear = indices[0]
        for index, extent in zip(indices[1:], self.inner[1:], strict=True):
            linear = builder.apply("add", i64, builder.apply("mul", i64, linear, extent), index)
        if not self.across and builder.lanes > 1:
            return builder.apply("add", i64, builder.widen(linear, builder.lanes), self._lane_numbers())
        return builder.widen(linear, builder.lanes)

    def _scan_stage(self, stage: Stage) -> None:
        """A scan, with lanes across: each lane scans its own row and stores the value at each point."""
        builder, scan = self.builder, stage.scan
        type = stage.body.results[0].type
        assert scan is not None
        assert isinstance(type, Scalar)
        start = builder.widen(builder.constant(scan.initial, type), builder.lanes)

        def body(indices: list[Register], state: list[Register]) -> list[Register]:
            with builder.with_mask(self.row_mask):
                arguments = [state[0], *self._arguments(stage, indices, self.tail, True)]
                result = emit_function(builder, stage.body, arguments)[0]
            assert isinstance(result, Register)
            result = builder.widen(result, builder.lanes)
            self._store([(stage.sinks[0], state[0] if scan.exclusive else result)], indices, self.tail, True)
            return [result]

        self._sweep(stage, [start], body, down=scan.reverse)
