"""The body of a loop as native code: its plan is bound twice, for the double-buffered state; state that an iteration
changes in place has one buffer.

`tensor_loops.py` passes the `RowLoop` of a step. A body of only kernels runs all iterations in one native call
(`loop_kernel`); a body with host steps runs its two `sides` in turn, with neighbouring kernels as one call.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from livegrad.codegen.check_sites import Site
from livegrad.diagnostics import KernelCheckError
from livegrad.passes.flatten_signature import leaf_types
from livegrad.runtime.cpu.handed_on_state import HANDED_ON_BYTES, HandedOn, Word
from livegrad.runtime.cpu.kernel_code import ALIGNMENT, code_of
from livegrad.runtime.cpu.memory_pool import aligned_memory, plan_memory
from livegrad.runtime.cpu.native.fourier import table
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.loop_kernel import SLOT_INDEX, TABLE_WORDS, iterations_library
from livegrad.runtime.cpu.native.pool import interrupt_flag_address, pool_run_address
from livegrad.runtime.cpu.native.pool_ir import MAX_THREADS
from livegrad.runtime.cpu.plan_serialiser import serialise_plan
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel, SerialisedPlan
from livegrad.schedule.kept_parts import copies_of_kept_parts
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, RowLoop, Slot

_CLEAN = -1

Record = tuple[int, int, int, ArgumentBlock]  # kernel, total, grain, arguments
Move = tuple[
    ArgumentBlock, int, int, int
]  # a word, the address that it holds in iteration 0, and how far an iteration moves it


class Call(Protocol):
    """A step of a plan, ready to go: objects and arrays that are not fixed come by their slot's key."""

    def run(self, values: dict[Any, Any]) -> None: ...


class Memory(Protocol):
    """What a host step needs of the plan that it belongs to: arrays for buffers, and a way to run functions."""

    run_nested: Callable[..., Any]

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]: ...

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None: ...


MakeCall = Callable[[HostStep, Memory], Call]


class LoopBody:
    """A body's code and memory: every kernel has an argument block for each of the two places that state may be in."""

    def __init__(self, loop: RowLoop, is_while: bool, run_nested: Callable[..., Any], make_call: MakeCall) -> None:
        self.loop, self.is_while, self.run_nested = loop, is_while, run_nested
        assert loop.plan is not None
        self.plan = loop.plan
        self._arrange_slots()
        self.index = np.zeros((), np.int64)
        self.goes_on = np.zeros((), np.bool_)
        self.index_word = self.index.reshape(1).data
        self.goes_on_word = self.goes_on.reshape(1).data
        # None: an object, or an array that is handed on. What an iteration changes in place lies at one place on both
        # sides.
        pairs = list(zip(self.state_in, self.state_out, strict=True))
        first = [_new_array(into, out) for into, out in pairs]
        second = [a if into is out else _new_array(into, out) for (into, out), a in zip(pairs, first, strict=True)]
        self.state = [first, second]
        serialised, self._counts, self._codes = serialise_plan(self.plan)
        self._arena = plan_memory(serialised.arena_bytes)
        self._tables: list[np.ndarray[Any, Any]] = []  # kept alive: argument blocks hold their addresses
        self._scratch = [plan_memory((size + ALIGNMENT) * MAX_THREADS) for size in serialised.scratch]
        self.statuses = array("q", [_CLEAN] * max(1, len(serialised.kernels)))
        # The slots of addresses that are known at the start of a run, and of those that change between iterations.
        self.fixed_words: dict[int | ObjectSlot, list[Word]] = {}
        self.row_words: list[dict[int | ObjectSlot, list[Word]]] = [{}, {}]
        self._state_words: list[dict[int, list[Word]]] = [{}, {}]
        steps = zip(self.plan.steps, self._counts, strict=True)
        host_steps = [step for step, count in steps if count is None and isinstance(step, HostStep)]
        hosts = {step: make_call(step, self) for step in host_steps}
        self.host_keys = {key_of(slot) for step in hosts for slot in (*step.operands, *step.written)}
        records = [self._records(side, serialised) for side in range(2)]
        pairs = zip(self.state_in, self.state_out, strict=True)
        self.handed_on = [self._handed_on(into, out) for into, out in pairs]
        self._sites = [kernel.sites for kernel in serialised.kernels]
        self.iterations = None
        if not hosts and not self._hands_on_objects():
            self.iterations = NativeIterations(self, records, self._copies_of_kept_parts())
        self.sides: list[list[Call]] = []
        if self.iterations is None:
            self.sides = [self._calls(side_records, serialised, hosts) for side_records in records]

    def _arrange_slots(self) -> None:
        """Which argument and result of the plan is what."""
        loop, (_, *arguments), results = self.loop, self.plan.arguments, list(self.plan.results)
        states, fixed = len(loop.state), len(loop.fixed)
        self.state_in, self.state_out = arguments[:states], results[:states]
        self.fixed = arguments[states : states + fixed]
        reads, writes = iter(arguments[states + fixed :]), iter(results[states:])
        self.row_slots = [
            ([next(reads) for _ in row.reads], [next(writes) for _ in leaf_types(row.element)] if row.writes else [])
            for row in loop.rows
        ]
        self._index_key = key_of(self.plan.arguments[0])
        self._goes_on_key = key_of(results[-1]) if self.is_while else None  # a `for` may have no result at all

    def _handed_on(self, into: Slot, out: Slot) -> HandedOn | None:
        """How a leaf of the state is handed on from the caller and to it, if it is."""
        if isinstance(into, Buffer) and isinstance(out, Buffer) and _is_handed_on(into, out):
            return HandedOn(into, out, self._state_words)
        return None

    def _copies_of_kept_parts(self) -> list[bool]:
        """For each kernel of a body without host steps, whether only the first two iterations need it."""
        pairs = [(into, out) for into, out in zip(self.state_in, self.state_out, strict=True) if into is not out]
        state = {into: out for into, out in pairs if isinstance(into, Buffer) and isinstance(out, Buffer)}
        copies = zip(copies_of_kept_parts(self.plan, state), self._counts, strict=True)
        return [copied for copied, count in copies for _ in range(count or 0)]

    def _hands_on_objects(self) -> bool:
        """Whether an iteration gives the next one more than arrays."""
        rows = (slot for reads, writes in self.row_slots for slot in (*reads, *writes))
        return any(isinstance(slot, ObjectSlot) for slot in (*self.state_in, *self.state_out, *rows))

    def _records(self, side: int, serialised: SerialisedPlan) -> list[Record]:
        """The kernels for state that is read on one side and written on the other."""
        arrays: dict[Any, Any] = {self._index_key: self.index}
        if self.is_while:
            arrays[self._goes_on_key] = self.goes_on
        for slots, state in ((self.state_in, self.state[side]), (self.state_out, self.state[1 - side])):
            arrays |= {key_of(slot): memory for slot, memory in zip(slots, state, strict=True) if memory is not None}
        addresses = {key: memory.ctypes.data for key, memory in arrays.items()}
        return [self._record(kernel, number, addresses, side) for number, kernel in enumerate(serialised.kernels)]

    def _calls(
        self, records: Sequence[Record], serialised: SerialisedPlan, hosts: Mapping[HostStep, Call]
    ) -> list[Call]:
        """The steps of one side; neighbouring kernels are one call."""
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
                    calls.append(_LongKernel(record, number, kernel.sites, self.statuses))
                    continue
                if not calls or not isinstance(calls[-1], _Kernels):
                    calls.append(_Kernels(self.statuses))
                calls[-1].add(record, number, kernel.sites)  # type: ignore[attr-defined]
        return calls

    def _record(self, kernel: SerialisedKernel, number: int, addresses: Mapping[Any, int], side: int) -> Record:
        native = code_of(kernel, self._codes)
        block = ArgumentBlock.holding([slot if isinstance(slot, int) else 0 for slot in kernel.slots])
        status = self.statuses.buffer_info()[0] + 8 * number
        bases = {"arena": self._arena.ctypes.data, "status": status, "interrupt": interrupt_flag_address()}
        bases["run"] = pool_run_address()
        moving = {key_of(slot) for reads, writes in self.row_slots for slot in (*reads, *writes)}
        handed_on = {key_of(slot) for slot in (*self.state_in, *self.state_out)}
        for index, slot in enumerate(kernel.slots):
            if isinstance(slot, int):
                continue
            if slot.kind == "scratch":
                block.ints[index] = self._scratch[slot.buffer].ctypes.data
            elif slot.kind == "table":
                self._tables.append(table(kernel.library, slot.buffer, slot.offset))
                block.ints[index] = self._tables[-1].ctypes.data
            elif slot.kind not in ("external", "cell"):
                block.ints[index] = bases[slot.kind] + slot.offset
            elif slot.buffer in addresses:
                block.ints[index] = addresses[slot.buffer] + slot.offset
            else:
                patches = self.row_words[side] if slot.buffer in moving else self.fixed_words
                patches = self._state_words[side] if slot.buffer in handed_on else patches
                patches.setdefault(slot.buffer, []).append((block, index, slot.offset))
        native.wait()
        return native.addresses[kernel.symbol], kernel.total, kernel.grain, block

    # --- memory, as host steps of the body see it ---

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """A buffer's memory as an array."""
        fixed = self.fixed_array(buffer)
        return values[buffer.base.number].reshape(buffer.shape) if fixed is None else fixed

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """A buffer's memory as an array if it is the same in every iteration."""
        base = buffer.base
        if base.number == self._index_key:
            return self.index.reshape(buffer.shape)
        if base.lifetime == "external":
            return None
        start = self.plan.arena_offsets[base]
        return self._arena[start : start + buffer.bytes].view(buffer.element.dtype).reshape(buffer.shape)

    def forget_failures(self) -> None:
        """A check that failed in a run that was interrupted is no business of the next one."""
        for index in range(len(self.statuses)):
            self.statuses[index] = _CLEAN

    def check(self) -> None:
        """Raises what a kernel found wrong."""
        for status, sites in zip(self.statuses, self._sites, strict=False):
            if sites and status != _CLEAN:
                raise kernel_failure(status, sites)

    @property
    def has_checks(self) -> bool:
        return any(self._sites)


def key_of(slot: Slot) -> int | ObjectSlot:
    return slot.base.number if isinstance(slot, Buffer) else slot


def reader(slots: Sequence[Slot], owner: Memory) -> Callable[[Mapping[Any, Any]], list[Any]]:
    """What gives the values of slots: arrays of the owner's memory, and objects."""
    # Memory that stays where it is, is looked up once: loops over tensors run their steps thousands of times.
    fixed = [None if isinstance(slot, ObjectSlot) else owner.fixed_array(slot) for slot in slots]

    def read(values: Mapping[Any, Any]) -> list[Any]:
        return [
            array
            if array is not None
            else (values[slot] if isinstance(slot, ObjectSlot) else owner.array_of(slot, values))
            for array, slot in zip(fixed, slots, strict=True)
        ]

    return read


def _is_handed_on(into: Buffer, out: Slot) -> bool:
    """Whether a leaf of the state is read where the caller has it, which nobody may change, and is worth it."""
    return into is not out and into.bytes >= HANDED_ON_BYTES


def _new_array(slot: Slot, out: Slot) -> np.ndarray[Any, Any] | None:
    if isinstance(slot, ObjectSlot) or _is_handed_on(slot, out):
        return None
    return aligned_memory(slot.bytes).view(slot.element.dtype).reshape(slot.shape)


class NativeIterations:
    """All iterations of a loop in one native call, for a body of kernels alone."""

    def __init__(self, body: LoopBody, records: Sequence[Sequence[Record]], copies: Sequence[bool]) -> None:
        """`copies` says of each kernel whether only the first two iterations need it; those come first."""
        self._body = body
        order = sorted(range(len(copies)), key=lambda number: not copies[number])
        self._kept = records  # the argument blocks, whose addresses are in the table
        self._records = [array("q", words_of([side_records[number] for number in order])) for side_records in records]
        self._moves = [array("q"), array("q")]
        self._tables = array("q", [word for table in self._records for word in (table.buffer_info()[0], 0, 0)])
        self._block = ArgumentBlock(len(SLOT_INDEX))
        self._invoke = invoker().invoke_interruptible
        self._set(
            run=pool_run_address(),
            index=body.index.ctypes.data,
            goes_on=body.goes_on.ctypes.data if body.is_while else 0,
            statuses=body.statuses.buffer_info()[0],
            checks=len(body.statuses) if body.has_checks else 0,
            interrupt=interrupt_flag_address(),
            count=len(records[0]),
            kept=sum(copies),
            tables=self._tables.buffer_info()[0],
            period=2,
        )

    def _set(self, **words: int) -> None:
        for name, value in words.items():
            self._block.ints[SLOT_INDEX[name]] = value

    def move(self, sides: Sequence[Sequence[Move]]) -> None:
        """Takes the addresses that change from iteration to iteration."""
        for side, moves in enumerate(sides):
            table = self._moves[side] = array("q")
            for block, index, start, step in moves:
                table.extend((block.address + 8 * index, start, step))
            self._tables[TABLE_WORDS * side + 1 : TABLE_WORDS * (side + 1)] = array(
                "q", [table.buffer_info()[0], len(moves)]
            )

    def run(self, iterations: int, first: int, step: int, side: int, before: int) -> int:
        """So many iterations from an index on, or fewer where the loop's condition ends it; how many there were.

        `before` counts the iterations of the same run that are over.
        """
        self._set(iterations=iterations, first=first, step=step, position=side, full=max(0, 2 - before))
        if self._invoke(iterations_library().addresses["run_iterations"], 1, 1, self._block.address):
            raise KeyboardInterrupt
        self._body.check()
        return self._block.ints[SLOT_INDEX["done"]]


def words_of(records: Sequence[Record]) -> list[int]:
    return [word for *record, block in records for word in (*record, block.address)]


class _Kernels:
    """Kernels that run one after the other in one native call."""

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
            if self._statuses[number] != _CLEAN:
                raise kernel_failure(self._statuses[number], sites)


class _LongKernel:
    """A kernel with loops of its own, which an interrupt must end."""

    def __init__(self, record: Record, number: int, sites: tuple[Site, ...], statuses: array[int]) -> None:
        kernel, total, grain, self._block = record
        self._arguments = (kernel, total, grain, self._block.address)
        self._number, self._sites, self._statuses = number, sites, statuses
        self._invoke = invoker().invoke_interruptible

    def run(self, values: dict[Any, Any]) -> None:
        if self._invoke(*self._arguments):
            raise KeyboardInterrupt
        if self._sites and self._statuses[self._number] != _CLEAN:
            raise kernel_failure(self._statuses[self._number], self._sites)


def kernel_failure(status: int, sites: Sequence[Site]) -> KernelCheckError:
    site = sites[status & 0xFFFF]
    return KernelCheckError(f"{site.message}, at element {status >> 16}", where=site.origin)
