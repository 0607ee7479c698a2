"""Binds the body of a loop over tensors to memory, once for each side of its double-buffered state.

In: the `RowLoop` of a step, from `tensor_loops.py`. Out: the calls of an iteration. A body that has only kernels runs
all iterations in one native call (`loop_kernel.py`). A body with host steps alternates between its two `sides`, with
adjacent kernels as one call. State that an iteration updates in place has a single buffer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Protocol

import numpy as np

from livegrad.codegen.check_sites import CLEAN, Site, check_failure
from livegrad.passes.flatten_signature import leaf_types
from livegrad.runtime.cpu.kernel_code import code_of
from livegrad.runtime.cpu.kernel_memory import KernelMemory, Patch
from livegrad.runtime.cpu.memory_pool import aligned_memory
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.loop_kernel import SLOT_INDEX, iterations_library
from livegrad.runtime.cpu.native.pool import interrupt_flag_address, pool_run_address
from livegrad.runtime.cpu.plan_serialiser import serialise_plan
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel, SerialisedPlan
from livegrad.runtime.cpu.state_rows import StateRow, find_state_rows
from livegrad.runtime.cpu.zero_copy_state import ZERO_COPY_BYTES, ZeroCopyState
from livegrad.schedule.kept_parts import copies_of_kept_parts
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, RowLoop, Slot

Record = tuple[int, int, int, ArgumentBlock]  # kernel, total, grain, arguments
Move = tuple[ArgumentBlock, int, int, int]  # a slot by block and index, its value in iteration 0, and its increment


class Call(Protocol):
    """A step that is ready to run. `values` has objects and non-fixed arrays by the key of their slot."""

    def run(self, values: dict[Any, Any]) -> None: ...


class StepOwner(Protocol):
    """The plan of a host step, which provides the arrays of its buffers and runs functions among its attributes."""

    run_nested: Callable[..., Any]

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]: ...

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None: ...


MakeCall = Callable[[HostStep, StepOwner], Call]


class LoopBody:
    """The code and memory of a loop body. Each kernel has an argument block for each side of the state."""

    def __init__(
        self, loop: RowLoop, is_while: bool, ascends: bool, run_nested: Callable[..., Any], make_call: MakeCall
    ) -> None:
        """`ascends` tells whether the loop counts up to a number of iterations that is known when it starts."""
        self.loop, self.is_while, self.run_nested = loop, is_while, run_nested
        assert loop.plan is not None
        self.plan = loop.plan
        self._arrange_slots()
        self.row_types = [leaf_types(row.element) for row in loop.rows]
        self.index = np.zeros((), np.int64)
        self.condition = np.zeros((), np.bool_)
        self.index_view = self.index.reshape(1).data
        self.condition_view = self.condition.reshape(1).data
        serialised, self._counts, self._codes = serialise_plan(self.plan)
        is_native = None not in self._counts and not self._carries_objects()
        self.state_rows = self._find_state_rows() if is_native and ascends else []
        self._resident = {key_of(slot) for row in self.state_rows for slot in self.slots_of(row)}
        # None for objects, zero-copy state and state on tapes. What is updated in place has one array for both sides.
        pairs = list(zip(self.state_in, self.state_out, strict=True))
        first = [self._new_array(into, out) for into, out in pairs]
        second = [a if into is out else self._new_array(into, out) for (into, out), a in zip(pairs, first, strict=True)]
        self.state = [first, second]
        self._memory = KernelMemory(serialised)
        self.statuses = array("q", [CLEAN] * max(1, len(serialised.kernels)))
        # Slots by buffer that are set when a run starts, in each iteration of a side, and by zero-copy state.
        self.fixed_patches: dict[int | ObjectSlot, list[Patch]] = {}
        self.row_patches: list[dict[int | ObjectSlot, list[Patch]]] = [{}, {}]
        self._state_patches: list[dict[int, list[Patch]]] = [{}, {}]
        steps = zip(self.plan.steps, self._counts, strict=True)
        host_steps = [step for step, count in steps if count is None and isinstance(step, HostStep)]
        hosts = {step: make_call(step, self) for step in host_steps}
        self.host_keys = {key_of(slot) for step in hosts for slot in (*step.operands, *step.written)}
        records = [self._records(side, serialised) for side in range(2)]
        pairs = zip(self.state_in, self.state_out, strict=True)
        self.zero_copy = [self._zero_copy_state(into, out) for into, out in pairs]
        self._sites = [kernel.sites for kernel in serialised.kernels]
        self.iterations = None
        if is_native:
            self.iterations = NativeIterations(self, records, self._copies_of_kept_parts(), self._dropped_kernels())
        self.sides: list[list[Call]] = []
        if self.iterations is None:
            self.sides = [self._calls(side_records, serialised, hosts) for side_records in records]

    def _arrange_slots(self) -> None:
        """Sorts the arguments and results of the plan into state, invariants, and rows of tapes."""
        loop, (_, *arguments), results = self.loop, self.plan.arguments, list(self.plan.results)
        states, invariants = len(loop.state), len(loop.invariants)
        self.state_in, self.state_out = arguments[:states], results[:states]
        self.invariants = arguments[states : states + invariants]
        reads, writes = iter(arguments[states + invariants :]), iter(results[states:])
        self.row_slots = [
            ([next(reads) for _ in row.reads], [next(writes) for _ in leaf_types(row.element)] if row.writes else [])
            for row in loop.rows
        ]
        self._index_key = key_of(self.plan.arguments[0])
        self._condition_key = key_of(results[-1]) if self.is_while else None  # a `for` may have no results

    def _find_state_rows(self) -> list[StateRow]:
        return find_state_rows(self.plan, self.state_in, self.state_out, self.row_slots)

    def slots_of(self, row: StateRow) -> tuple[Slot, Slot]:
        """The argument and the result that are rows of a tape."""
        return self.state_in[row.leaf], self.state_out[row.leaf]

    def _dropped_kernels(self) -> set[int]:
        """The kernels that would copy state to tapes on which it lives."""
        steps = [number for number, count in enumerate(self._counts) for _ in range(count or 0)]
        dropped = {row.step for row in self.state_rows}
        return {kernel for kernel, step in enumerate(steps) if step in dropped}

    def _new_array(self, slot: Slot, out: Slot) -> np.ndarray[Any, Any] | None:
        if isinstance(slot, ObjectSlot) or key_of(slot) in self._resident or _is_zero_copy(slot, out):
            return None
        return aligned_memory(slot.bytes).view(slot.element.dtype).reshape(slot.shape)

    def _zero_copy_state(self, into: Slot, out: Slot) -> ZeroCopyState | None:
        if key_of(into) in self._resident:
            return None
        if isinstance(into, Buffer) and isinstance(out, Buffer) and _is_zero_copy(into, out):
            return ZeroCopyState(into, out, self._state_patches)
        return None

    def _copies_of_kept_parts(self) -> list[bool]:
        """For each kernel of a body without host steps, whether only the first two iterations need it."""
        pairs = [(into, out) for into, out in zip(self.state_in, self.state_out, strict=True) if into is not out]
        pairs = [pair for pair in pairs if key_of(pair[0]) not in self._resident]  # rows are new in each iteration
        state = {into: out for into, out in pairs if isinstance(into, Buffer) and isinstance(out, Buffer)}
        copies = zip(copies_of_kept_parts(self.plan, state), self._counts, strict=True)
        return [copied for copied, count in copies for _ in range(count or 0)]

    def _carries_objects(self) -> bool:
        """Whether the state or a tape has leaves that are not arrays."""
        rows = (slot for reads, writes in self.row_slots for slot in (*reads, *writes))
        return any(isinstance(slot, ObjectSlot) for slot in (*self.state_in, *self.state_out, *rows))

    def _records(self, side: int, serialised: SerialisedPlan) -> list[Record]:
        """Binds the kernels to read the state of one side and write that of the other."""
        arrays: dict[Any, Any] = {self._index_key: self.index}
        if self.is_while:
            arrays[self._condition_key] = self.condition
        for slots, state in ((self.state_in, self.state[side]), (self.state_out, self.state[1 - side])):
            arrays |= {key_of(slot): memory for slot, memory in zip(slots, state, strict=True) if memory is not None}
        addresses = {key: memory.ctypes.data for key, memory in arrays.items()}
        return [self._record(kernel, number, addresses, side) for number, kernel in enumerate(serialised.kernels)]

    def _calls(
        self, records: Sequence[Record], serialised: SerialisedPlan, hosts: Mapping[HostStep, Call]
    ) -> list[Call]:
        """The calls of one side; adjacent kernels are one call."""
        calls: list[Call] = []
        numbered = iter(enumerate(zip(serialised.kernels, records, strict=True)))
        for step, count in zip(self.plan.steps, self._counts, strict=True):
            if count is None:
                assert isinstance(step, HostStep)
                calls.append(hosts[step])
                continue
            for _ in range(count):
                number, (kernel, record) = next(numbered)
                if kernel.interruptible:
                    calls.append(_InterruptibleKernel(record, number, kernel.sites, self.statuses))
                    continue
                if not calls or not isinstance(calls[-1], _KernelSequence):
                    calls.append(_KernelSequence(self.statuses))
                calls[-1].add(record, number, kernel.sites)  # type: ignore[attr-defined]
        return calls

    def _record(self, kernel: SerialisedKernel, number: int, addresses: Mapping[Any, int], side: int) -> Record:
        native = code_of(kernel, self._codes)
        block = ArgumentBlock.holding([slot if isinstance(slot, int) else 0 for slot in kernel.slots])
        status = self.statuses.buffer_info()[0] + 8 * number
        tape_rows = {key_of(slot) for reads, writes in self.row_slots for slot in (*reads, *writes)} | self._resident
        state = {key_of(slot) for slot in (*self.state_in, *self.state_out)} - self._resident
        for index, slot in enumerate(kernel.slots):
            if isinstance(slot, int):
                continue
            if slot.kind not in ("external", "cell"):
                block.ints[index] = self._memory.address_of(slot, kernel.library, status)
            elif slot.buffer in addresses:
                block.ints[index] = addresses[slot.buffer] + slot.offset
            else:
                patches = self.row_patches[side] if slot.buffer in tape_rows else self.fixed_patches
                patches = self._state_patches[side] if slot.buffer in state else patches
                patches.setdefault(slot.buffer, []).append((block, index, slot.offset))
        native.wait()
        return native.addresses[kernel.symbol], kernel.total, kernel.grain, block

    # --- memory of host steps ---

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """A buffer's memory as an array."""
        fixed = self.fixed_array(buffer)
        return values[buffer.base.number].reshape(buffer.shape) if fixed is None else fixed

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """A buffer's memory as an array if every iteration uses the same."""
        base = buffer.base
        if base.number == self._index_key:
            return self.index.reshape(buffer.shape)
        if base.lifetime == "external":
            return None
        return self._memory.array_of(buffer, self.plan)

    def clear_failures(self) -> None:
        """Clears the status words, which an interrupted run may have set."""
        for index in range(len(self.statuses)):
            self.statuses[index] = CLEAN

    def check(self) -> None:
        """Raises the failure that a kernel reported."""
        for status, sites in zip(self.statuses, self._sites, strict=False):
            if sites and status != CLEAN:
                raise check_failure(status, sites)

    @property
    def has_checks(self) -> bool:
        return any(self._sites)


def key_of(slot: Slot) -> int | ObjectSlot:
    return slot.base.number if isinstance(slot, Buffer) else slot


def reader(slots: Sequence[Slot], owner: StepOwner) -> Callable[[Mapping[Any, Any]], list[Any]]:
    """A function that reads the values of slots: arrays of the owner, and objects."""
    # Looks up fixed arrays once, because loops over tensors run their steps thousands of times.
    fixed = [None if isinstance(slot, ObjectSlot) else owner.fixed_array(slot) for slot in slots]

    def read(values: Mapping[Any, Any]) -> list[Any]:
        return [
            array
            if array is not None
            else (values[slot] if isinstance(slot, ObjectSlot) else owner.array_of(slot, values))
            for array, slot in zip(fixed, slots, strict=True)
        ]

    return read


def _is_zero_copy(into: Buffer, out: Slot) -> bool:
    """Whether a leaf of the state is large and not updated in place, which would change the caller's array."""
    return into is not out and into.bytes >= ZERO_COPY_BYTES


class _RowMoves:
    """The moves of one side: for each slot its address, the row of iteration 0, and the distance between rows."""

    def __init__(self, keys: Sequence[int | ObjectSlot], patches: Mapping[int | ObjectSlot, Sequence[Patch]]) -> None:
        """`keys` are those of the columns, in order."""
        moves = [(number, patch) for number, key in enumerate(keys) for patch in patches.get(key, ())]
        self._columns = np.array([number for number, _ in moves], np.int64)
        self._offsets = np.array([offset for _, (_, _, offset) in moves], np.int64)
        self._table = np.zeros((len(moves), 3), np.int64)
        self._table[:, 0] = [block.address + 8 * index for _, (block, index, _) in moves]
        self.location = self._table.ctypes.data, len(moves)

    def set(self, starts: np.ndarray[Any, Any], steps: np.ndarray[Any, Any]) -> None:
        """Sets the address of the first row of each column, and the distance between its rows, in bytes."""
        self._table[:, 1] = starts[self._columns] + self._offsets
        self._table[:, 2] = steps[self._columns]


class NativeIterations:
    """All iterations of a loop in one native call, for a body that has only kernels."""

    def __init__(
        self, body: LoopBody, records: Sequence[Sequence[Record]], copies: Sequence[bool], dropped: Set[int]
    ) -> None:
        """`copies` tells for each kernel whether only the first two iterations need it. Such kernels run first. Those
        in `dropped` do not run."""
        self._body = body
        order = sorted(set(range(len(copies))) - dropped, key=lambda number: (not copies[number], number))
        self._kept_alive = records  # their argument blocks, whose addresses are in the table
        self._records = [array("q", flatten_records([side[number] for number in order])) for side in records]
        keys = [key_of(slot) for reads, writes in body.row_slots for slot in (*reads, *writes)]
        keys += [key_of(slot) for row in body.state_rows for slot in body.slots_of(row)]
        self._moves = [_RowMoves(keys, patches) for patches in body.row_patches]
        tables = zip(self._records, self._moves, strict=True)
        self._tables = array(
            "q", [word for table, moves in tables for word in (table.buffer_info()[0], *moves.location)]
        )
        self._block = ArgumentBlock(len(SLOT_INDEX))
        self._invoke = invoker().invoke_interruptible
        self._set_slots(
            run=pool_run_address(),
            index=body.index.ctypes.data,
            condition=body.condition.ctypes.data if body.is_while else 0,
            statuses=body.statuses.buffer_info()[0],
            checks=len(body.statuses) if body.has_checks else 0,
            interrupt=interrupt_flag_address(),
            count=len(order),
            initial_records=sum(copies),
            tables=self._tables.buffer_info()[0],
            period=2,
        )

    def _set_slots(self, **values: int) -> None:
        for name, value in values.items():
            self._block.ints[SLOT_INDEX[name]] = value

    def set_rows(self, columns: Sequence[np.ndarray[Any, Any]]) -> None:
        """Sets the rows that iterations read and write, in the order of the body's `row_slots` and `state_rows`."""
        starts = np.array([column.ctypes.data for column in columns], np.int64)
        steps = np.array([column.strides[0] for column in columns], np.int64)
        for moves in self._moves:
            moves.set(starts, steps)

    def run(self, iterations: int, first: int, step: int, side: int, before: int) -> int:
        """Runs iterations from index `first` on while the loop's condition holds; returns how many ran.

        `before` is the number of earlier iterations of the same run.
        """
        initial_iterations = max(0, 2 - before)
        self._set_slots(
            iterations=iterations, first=first, step=step, position=side, initial_iterations=initial_iterations
        )
        if self._invoke(iterations_library().addresses["run_iterations"], 1, 1, self._block.address):
            raise KeyboardInterrupt
        self._body.check()
        return self._block.ints[SLOT_INDEX["done"]]


def flatten_records(records: Sequence[Record]) -> list[int]:
    """The words of records, with the addresses of their argument blocks."""
    return [word for *record, block in records for word in (*record, block.address)]


class _KernelSequence:
    """Kernels that run in sequence in one native call."""

    def __init__(self, statuses: array[int]) -> None:
        self._statuses = statuses
        self._records, self._blocks = array("q"), list[ArgumentBlock]()
        self._checks: list[tuple[int, tuple[Site, ...]]] = []
        self._invoke = invoker().invoke_sequence

    def add(self, record: Record, number: int, sites: tuple[Site, ...]) -> None:
        kernel, total, grain, block = record
        self._records.extend((kernel, total, grain, block.address))
        self._blocks.append(block)
        if sites:
            self._checks.append((number, sites))
        self._arguments = (self._records.buffer_info()[0], len(self._blocks))

    def run(self, values: dict[Any, Any]) -> None:
        self._invoke(*self._arguments)
        for number, sites in self._checks:
            if self._statuses[number] != CLEAN:
                raise check_failure(self._statuses[number], sites)


class _InterruptibleKernel:
    """A kernel with unbounded loops, which poll the interrupt flag."""

    def __init__(self, record: Record, number: int, sites: tuple[Site, ...], statuses: array[int]) -> None:
        kernel, total, grain, self._block = record
        self._arguments = (kernel, total, grain, self._block.address)
        self._number, self._sites, self._statuses = number, sites, statuses
        self._invoke = invoker().invoke_interruptible

    def run(self, values: dict[Any, Any]) -> None:
        if self._invoke(*self._arguments):
            raise KeyboardInterrupt
        if self._sites and self._statuses[self._number] != CLEAN:
            raise check_failure(self._statuses[self._number], self._sites)
