"""Runs the loops over tensors that `native_loops.py` does not support, such as loops with tapes or conditions.

All iterations are one native call, or several calls each if the body has host steps. The plan of the body is bound to
memory once, with double-buffered state. Large state is neither copied in nor out (`zero_copy_state.py`). Tapes are
arrays whose rows iterations write and read in place. `compiled_plan.py` creates a `LoopCall` for each such loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.persistent_array import PersistentArray
from livegrad.ir.types import Type
from livegrad.ops.control import for_loop
from livegrad.passes.flatten_signature import assemble_value, flatten_value, leaf_types
from livegrad.runtime.cpu.loop_body import LoopBody, MakeCall, Move, StepOwner, key_of, reader
from livegrad.runtime.cpu.tape_rows import Column, TapeValues, as_rows, extend_column, new_column, pad_column
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, RowLoop, RowTape, Slot

_INITIAL_ROWS = 16  # of the tapes of a `while` loop
_MAX_ITERATIONS = 1 << 62  # iterations of a `while` loop without tapes


class LoopCall:
    """A loop of a plan. Its body is compiled with the plan, and all runs share its memory."""

    def __init__(self, step: HostStep, loop: RowLoop, owner: StepOwner, make_call: MakeCall) -> None:
        self._step, self._owner = step, owner
        self._read_operands = reader(step.operands, owner)
        self._node = step.function.results[0]
        self._targets = _leaf_targets(step)
        is_while = step.op is not for_loop
        ascends = not is_while and not self._node.attribute("reverse")
        self._body = LoopBody(loop, is_while, ascends, owner.run_nested, make_call)

    def run(self, values: dict[Any, Any]) -> None:
        """Runs all iterations, and stores the carried values in the plan's slots."""
        node, body = self._node, self._body
        arguments = self._read_operands(values)
        operands = [arguments[operand.attribute("index")] for operand in node.operands]
        is_for = node.op is for_loop
        carried = operands[1:] if is_for else operands
        types = node.attribute("body").parameter_types[1:]
        leaves = [leaf for value, type in zip(carried, types, strict=True) for leaf in flatten_value(value, type)]
        iterations = max(0, int(operands[0])) if is_for else None
        targets = {leaf: self._owner.array_of(buffer, values) for leaf, buffer in self._targets.items()}
        run = LoopRun(body, leaves, targets, iterations)
        if iterations is not None:
            run.repeat(iterations, node.attribute("reverse"))
        else:
            iterations = self._repeat_while(run, operands)
        supply = iter(run.results(iterations))
        number = node.attribute("carried")
        values[self._step.result] = tuple(assemble_value(supply, type) for type in types[:number])

    def _repeat_while(self, run: LoopRun, operands: Sequence[Any]) -> int:
        limit = self._node.attribute("limit")
        condition = bool(self._owner.run_nested(self._node.attribute("condition"), *operands))
        index = 0
        while condition:
            if index == limit:
                raise KernelCheckError(f"the loop ran past its limit of {limit}", where=self._node.origin)
            index += run.run_some(index, limit)
            condition = self._body.condition_view[0]
        return index


def _leaf_targets(step: HostStep) -> dict[int, Buffer]:
    """The buffers for results of a loop, by the index of their leaf among the carried values."""
    node = step.function.results[0]
    types = node.attribute("body").parameter_types[1:]
    return {sum(len(leaf_types(type)) for type in types[:index]): buffer for index, buffer in step.stored}


# --- a run ------------------------------------------------------------------------------------------------------------


class LoopRun:
    """One run of a loop: the values on both sides of the state, and the columns of tapes."""

    def __init__(
        self,
        body: LoopBody,
        leaves: Sequence[Any],
        targets: Mapping[int, np.ndarray[Any, Any]],
        iterations: int | None,
    ) -> None:
        """`targets` are arrays for results, by leaf; `iterations` is None for a `while` loop."""
        self._body, self._leaves, self._targets, self._side = body, leaves, targets, 0
        self._values: list[dict[Any, Any]] = [{}, {}]
        body.clear_failures()
        self._load_state(iterations)
        self._load_invariants()
        longer: list[set[int]] = [
            {s.column for s in body.state_rows if s.tape == t} for t in range(len(body.row_types))
        ]
        self._tapes = [
            _LoopTape(row, types, leaves[row.leaf], *slots, state)
            for row, types, slots, state in zip(body.loop.rows, body.row_types, body.row_slots, longer, strict=True)
        ]
        self._capacity = self._done = 0

    def _load_state(self, iterations: int | None) -> None:
        body, leaves = self._body, self._leaves
        self._is_first = False  # whether the next iteration reads zero-copy state from arrays of the caller
        for number, (leaf, slot) in enumerate(zip(body.loop.state, body.state_in, strict=True)):
            array_of_slot, zero_copy = body.state[0][number], body.zero_copy[number]
            if zero_copy is not None:
                zero_copy.begin(leaves[leaf], self._targets.get(leaf), iterations, self._values)
                self._is_first = True
            elif array_of_slot is None:
                self._values[0][slot] = leaves[leaf]
            else:
                np.copyto(array_of_slot, leaves[leaf])
        for side, values in enumerate(self._values):
            for slots, arrays in ((body.state_in, body.state[side]), (body.state_out, body.state[1 - side])):
                for slot, array_of_slot in zip(slots, arrays, strict=True):
                    if array_of_slot is not None:
                        values[key_of(slot)] = array_of_slot
        pairs = zip(body.state_in, body.state_out, strict=True)
        self._objects = [(into, out) for into, out in pairs if isinstance(into, ObjectSlot)]

    def _end_first_iteration(self) -> None:
        """Rebinds zero-copy state: later iterations do not read arrays of the caller."""
        for state in self._body.zero_copy:
            if state is not None:
                state.end_first_iteration(self._values)
        self._is_first = False

    def _load_invariants(self) -> None:
        for operand, slot in zip(self._body.loop.invariants, self._body.invariants, strict=True):
            value = self._leaves[operand]
            if isinstance(slot, Buffer):
                value = np.asarray(value, slot.element.dtype, order="C")
                start = value.ctypes.data
                for block, index, offset in self._body.fixed_patches.get(slot.number, ()):
                    block.ints[index] = start + offset
            for values in self._values:
                values[key_of(slot)] = value

    def repeat(self, iterations: int, reverse: bool) -> None:
        """Runs the iterations of a counted loop, with an ascending or descending index."""
        if not iterations:
            return
        self._reserve_rows(iterations)
        for row in self._body.state_rows:
            np.copyto(self._tapes[row.tape].state(row.column)[0], self._leaves[self._body.loop.state[row.leaf]])
        if self._body.iterations is not None:
            first, step = (iterations - 1, -1) if reverse else (0, 1)
            done = self._run_native(1, first, step) if self._is_first else 0
            if done < iterations:
                self._run_native(iterations - done, first + done * step, step)
            return
        for index in reversed(range(iterations)) if reverse else range(iterations):
            self._iteration(index)

    def run_some(self, index: int, limit: int | None) -> int:
        """Runs iterations until the loop ends, reaches its limit, or fills its tapes; returns how many ran."""
        if index >= self._capacity:
            self._reserve_rows(max(_INITIAL_ROWS, 2 * index))
        if self._body.iterations is None:
            self._iteration(index)
            return 1
        if self._is_first:
            return self._run_native(1, index, 1)
        last = _MAX_ITERATIONS if not self._tapes else self._capacity
        return self._run_native((last if limit is None else min(last, limit)) - index, index, 1)

    def _run_native(self, iterations: int, first: int, step: int) -> int:
        assert self._body.iterations is not None
        done = self._body.iterations.run(iterations, first, step, self._side, self._done)
        self._done += done
        self._side = (self._side + done) % 2
        if self._is_first:
            self._end_first_iteration()
        return done

    def _iteration(self, index: int) -> None:
        """Runs one iteration of a body with host steps."""
        body, side = self._body, self._side
        body.index_view[0] = index
        for block, slot, start, step in self._moves[side]:
            block.ints[slot] = start + index * step
        values = self._values[side]
        for key, column in self._rows_of_host_steps:
            values[key] = column[index] if isinstance(column, list) else column[index, ...]
        for call in body.sides[side]:
            call.run(values)
        for key, column in self._object_columns:
            column[index] = values[key]
        self._side = 1 - side
        for into, out in self._objects:
            self._values[1 - side][into] = values[out]
        if self._is_first:
            self._end_first_iteration()

    def _reserve_rows(self, capacity: int) -> None:
        """Reserves rows of each tape, and collects the addresses that change between iterations."""
        self._capacity = capacity
        for tape in self._tapes:
            tape.reserve(capacity)
        if self._body.iterations is None:
            self._arrange_rows()
        else:
            columns = [column for tape in self._tapes for column in tape.arrays()]
            states = [self._tapes[row.tape].state(row.column) for row in self._body.state_rows]
            self._body.iterations.set_rows([*columns, *[rows for state in states for rows in (state, state[1:])]])

    def _arrange_rows(self) -> None:
        """Collects the rows of a body with host steps."""
        self._moves: list[list[Move]] = [[], []]
        self._rows_of_host_steps: list[tuple[Any, Column]] = []
        self._object_columns: list[tuple[Any, list[Any]]] = []
        for tape in self._tapes:
            for tape_slot, column in tape.columns():
                key = key_of(tape_slot)
                if key in self._body.host_keys or isinstance(tape_slot, ObjectSlot):
                    self._rows_of_host_steps.append((key, column))
                if isinstance(column, list):
                    continue
                start, step = column.ctypes.data, column.strides[0]
                for moves, patches in zip(self._moves, self._body.row_patches, strict=True):
                    moves += [(block, slot, start + offset, step) for block, slot, offset in patches.get(key, ())]
            self._object_columns += [(s, c) for s, c in tape.written_columns() if isinstance(c, list)]

    def results(self, iterations: int) -> list[Any]:
        """The carried leaves after the run, in their targets or in new memory."""
        body, loop = self._body, self._body.loop
        after: dict[int, Any] = dict(enumerate(self._leaves[: loop.carried]))
        for leaf, slot, array in zip(loop.state, body.state_in, body.state[self._side], strict=True):
            after[leaf] = self._values[self._side].get(slot) if array is None else array
        if iterations:
            for row in body.state_rows:
                after[loop.state[row.leaf]] = self._tapes[row.tape].state(row.column)[iterations]
        for tape in self._tapes:
            if tape.row.leaf < loop.carried and tape.row.writes:
                after[tape.row.leaf] = tape.result(iterations)
        zero_copy = dict(zip(loop.state, body.zero_copy, strict=True))
        return [
            self._copy_out(leaf, value) if (state := zero_copy.get(leaf)) is None else state.end(self._side, iterations)
            for leaf, value in after.items()
        ]

    def _copy_out(self, leaf: int, value: Any) -> Any:
        """Copies a value to its target, or to memory that the next run does not overwrite."""
        target = self._targets.get(leaf)
        if target is None:
            return value.copy() if isinstance(value, np.ndarray) else value
        np.copyto(target, value)
        return target


class _LoopTape:
    """One tape of a loop: the columns that iterations read, and those that they write."""

    def __init__(
        self,
        row: RowTape,
        types: Sequence[Type],
        before: Mapping[int, Any],
        reads: list[Slot],
        writes: list[Slot],
        state: Set[int],
    ) -> None:
        """`types` are those of the leaves of a row. Columns in `state` have one row more, for the last state."""
        self._has_state = state
        self.row, self._before, self._read_slots, self._write_slots = row, before, reads, writes
        self._types = types
        self._count = 0
        self._read: list[Column] = []
        if reads:
            rows = as_rows(before, row.element)
            self._read, self._count = [rows.columns[number] for number in row.reads], rows.count
        self._written: list[Column] = []  # none before the first rows are reserved
        self._states: list[Column | None] = []

    def reserve(self, capacity: int) -> None:
        """Reserves rows for this many iterations; rows that were never written read as zero."""
        if self._read and self._count < capacity:
            types = [self._types[number] for number in self.row.reads]
            self._read = [pad_column(c, t, self._count, capacity) for c, t in zip(self._read, types, strict=True)]
            self._count = capacity
        if self._written:
            self._written = [extend_column(c, t, capacity) for c, t in zip(self._written, self._types, strict=True)]
        elif self.row.writes:
            self._states = [
                new_column(type, capacity + 1) if number in self._has_state else None
                for number, type in enumerate(self._types)
            ]
            columns = zip(self._states, self._types, strict=True)
            self._written = [new_column(t, capacity) if state is None else state[:-1] for state, t in columns]

    def state(self, column: int) -> np.ndarray[Any, Any]:
        """The rows before each iteration, and after the last."""
        rows = self._states[column]
        assert isinstance(rows, np.ndarray)
        return rows

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The columns, in the order of the slots, for a body that has no objects."""
        return [*self._read, *self._written]  # type: ignore[list-item]

    def columns(self) -> list[tuple[Slot, Column]]:
        return [*zip(self._read_slots, self._read, strict=True), *self.written_columns()]

    def written_columns(self) -> list[tuple[Slot, Column]]:
        return list(zip(self._write_slots, self._written, strict=True))

    def result(self, iterations: int) -> Mapping[int, Any]:
        """The tape after this many iterations: their rows, and earlier entries beyond them."""
        if not iterations:
            return self._before
        rows = TapeValues(self.row.element, self._written, iterations)
        beyond = (
            {index: value for index, value in self._before.items() if index >= iterations} if len(self._before) else {}
        )
        return PersistentArray({**rows, **beyond}) if beyond else rows
