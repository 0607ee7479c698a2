"""Unrolls loops over tensors into graphs: the kernels and library calls of the body, enqueued once for each iteration.

`plan_objects.py` creates a `DeviceLoop` for a loop with a fixed number of iterations. It is captured like a library
call, so all iterations are one graph without the host in between. The state is double-buffered; a tape is an array with
a row for each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot, Slots
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, check, driver
from livegrad.runtime.cuda.interrupt import interrupt_address
from livegrad.runtime.cuda.libraries.library_call import launch_blocks
from livegrad.runtime.cuda.modules import load_code, load_function
from livegrad.runtime.cuda.nvrtc import load_compiled
from livegrad.runtime.cuda.serialised_launches import SerialisedDevicePlan, SerialisedLaunch, SerialisedLibraryCall

_CLEAN = (1 << 64) - 1
# Reports the first failed check of each launch of the body. The sites of all launches are numbered consecutively:
# `firsts` has the number of the first site of each launch.
_COLLECT = """\
struct Arguments { unsigned long long* words; const long long* firsts; long long count; unsigned long long* status; };
extern "C" __global__ void collect(const __grid_constant__ Arguments a)
{
    for (long long k = threadIdx.x; k < a.count; k += blockDim.x)
    {
        const unsigned long long word = a.words[k];
        if (word != ~0ull) atomicMin(a.status, word + a.firsts[k]);
        a.words[k] = ~0ull;
    }
}
"""


def enqueue_copy(stream: Any, source: int, target: int, size: int) -> None:
    """Enqueues a copy of device memory."""
    if size and source != target:
        check(driver.cuMemcpyDtoDAsync(target, source, size, stream))


class DeviceCopy:
    """A copy within device memory, captured like a library call."""

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    def name(self) -> str:
        return f"copy {self.size}"

    def prepare(self) -> None:
        """Does nothing: a copy needs no handles or memory."""

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the copy."""
        enqueue_copy(stream, operands[0], result, self.size)


@dataclass(frozen=True)
class TapeRow:
    """A buffer of the body that is another row of a tape in each iteration."""

    buffer: int  # of the body's plan
    operand: int | None  # of the loop: the address of row 0; None: the tape is empty, and its rows are zero
    row_bytes: int


@dataclass(frozen=True)
class LoopState:
    """A loop-carried value."""

    argument: int  # buffers of the body's plan
    result: int
    initial: int  # the operand with the initial value
    size: int  # bytes
    rows: int | None = None  # the operand with a row for the value after each iteration; None: it is double-buffered


@dataclass(frozen=True)
class Output:
    """A value that is copied out after the last iteration: a state, or an operand that the loop returns unchanged."""

    state: int | None  # the index of the state; None: the operand `source`
    source: int
    target: int
    size: int  # bytes


def launches_of(body: SerialisedDevicePlan) -> int:
    """The number of launches of one iteration."""
    calls = [launch.call for launch in body.launches if isinstance(launch, SerialisedLibraryCall)]
    return len(body.kernels) + sum(call.launches if isinstance(call, DeviceLoop) else 1 for call in calls)


@dataclass(eq=False)
class DeviceLoop:
    """A loop of `count` iterations. Its states, invariants, tape rows and outputs refer to its operands by index."""

    body: SerialisedDevicePlan
    count: int
    reverse: bool
    index: int  # the body's buffer for the loop index
    states: tuple[LoopState, ...]
    invariants: tuple[tuple[int, int], ...]  # (buffer of the body, operand)
    tape_rows: tuple[TapeRow, ...]
    outputs: tuple[Output, ...]
    previous_values: tuple[tuple[int, int], ...] = ()  # (state with rows, operand with its value before each iteration)
    failures: tuple[str, ...] = ()  # the messages of the body's launches, concatenated
    _launches: list[_BodyLaunch] = field(default_factory=list, init=False)

    @property
    def name(self) -> str:
        return f"loop of {self.count}"

    @property
    def launches(self) -> int:
        """The number of launches of all iterations, including those of inner loops."""
        return self.count * launches_of(self.body)

    def prepare(self) -> None:
        """Loads the kernels of the body and allocates its memory."""
        if self._launches:
            return
        launches = self.body.launches
        self._arena = DeviceMemory(self.body.arena_bytes)
        self._indices = DeviceMemory(8 * max(1, self.count))
        self._indices.upload(np.arange(max(1, self.count), dtype=np.int64))
        self._buffers = [
            [DeviceMemory(state.size)] * 2
            if state.argument == state.result
            else [DeviceMemory(state.size), DeviceMemory(state.size)]
            for state in self.states
        ]
        self._zeros = DeviceMemory(max((row.row_bytes for row in self.tape_rows if row.operand is None), default=0))
        self._zeros.clear()
        scratch: dict[int, int] = {}
        for kernel in self.body.kernels:
            for buffer, size in kernel.scratch:
                scratch[buffer] = max(scratch.get(buffer, 0), size)
        self._scratch = {buffer: DeviceMemory(size) for buffer, size in scratch.items()}
        self._status = DeviceMemory(8 * len(launches))
        self._status.upload(np.full(len(launches), _CLEAN, np.uint64))
        counts = [0, *[len(launch.sites) for launch in launches]]
        self._firsts = DeviceMemory(8 * len(counts))
        self._firsts.upload(np.cumsum(counts).astype(np.int64))
        self._launches = [self._prepare_launch(number, launch) for number, launch in enumerate(launches)]
        if self.failures:
            load_function(_COLLECT, "collect", "collect")

    def _prepare_launch(self, number: int, launch: SerialisedLaunch | SerialisedLibraryCall) -> _BodyLaunch:
        status = self._status.address + 8 * number
        if isinstance(launch, SerialisedLibraryCall):
            launch.call.prepare()
            return _BodyLaunch(launch, None, self._resolve_slots((*launch.operands, launch.result), {"status": status}))
        code = load_compiled(launch.code)
        if code is None:
            raise DeviceError(f"the code of `{launch.name}` was evicted from the cache", help="run it again")
        addresses = {"status": status, "full": 0, "interrupt": interrupt_address()}
        memories: list[DeviceMemory] = []
        if launch.counters:
            memories = [DeviceMemory(launch.partial_bytes), DeviceMemory(4 * launch.counters)]
            memories[1].clear()  # each launch leaves them at zero
            addresses |= {"partials": memories[0].address, "counters": memories[1].address}
        return _BodyLaunch(launch, load_code(code, "kernel"), self._resolve_slots(launch.slots, addresses), memories)

    def _resolve_slots(self, slots: Slots, addresses: dict[str, int]) -> list[int | ArgumentSlot]:
        """Replaces slots that have the same value in all iterations by that value."""
        resolved: list[int | ArgumentSlot] = []
        for slot in slots:
            if isinstance(slot, int) or slot.kind in ("external", "cell", "value"):
                resolved.append(slot)
            elif slot.kind == "arena":
                resolved.append(self._arena.address + slot.offset)
            elif slot.kind == "scratch":
                resolved.append(self._scratch[slot.buffer].address)
            else:
                resolved.append(addresses[slot.kind])
        return resolved

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues all iterations, after copies of the initial state and before copies of the outputs."""
        for state, (first, _) in zip(self.states, self._buffers, strict=True):
            enqueue_copy(stream, operands[state.initial], first.address, state.size)
        invariants = {buffer: operands[position] for buffer, position in self.invariants}
        for done in range(self.count):
            index = self._index_of(done)
            addresses = invariants | {self.index: self._indices.address + 8 * index}
            for number, state in enumerate(self.states):
                addresses[state.argument] = self._address_after(number, done, operands)
                addresses[state.result] = self._address_after(number, done + 1, operands)
            for row in self.tape_rows:
                base = self._zeros.address if row.operand is None else operands[row.operand] + index * row.row_bytes
                addresses[row.buffer] = base
            for launch in self._launches:
                launch.enqueue(stream, addresses, index)
        for output in self.outputs:
            source = operands[output.source]
            if output.state is not None:
                source = self._address_after(output.state, self.count, operands)
            enqueue_copy(stream, source, operands[output.target], output.size)
        for number, operand in self.previous_values:
            self._copy_previous_values(stream, number, operands[operand], operands)
        if self.failures:
            slots = (self._status.address, self._firsts.address, len(self._launches), operands[-1])
            launch_blocks(load_function(_COLLECT, "collect", "collect"), stream, 1, 32, slots)

    def _index_of(self, done: int) -> int:
        """The loop index of the iteration that follows `done` iterations."""
        return self.count - 1 - done if self.reverse else done

    def _address_after(self, number: int, done: int, operands: Sequence[int]) -> int:
        """The address of a state after `done` iterations."""
        state = self.states[number]
        if state.rows is None or done == 0:
            return self._buffers[number][done % 2].address
        return operands[state.rows] + self._index_of(done - 1) * state.size

    def _copy_previous_values(self, stream: Any, number: int, target: int, operands: Sequence[int]) -> None:
        """Copies the value of a state before each iteration to the rows of an operand."""
        state = self.states[number]
        assert state.rows is not None
        size, values = state.size, operands[state.rows]
        enqueue_copy(stream, self._address_after(number, 0, operands), target + self._index_of(0) * size, size)
        source, target = (values + size, target) if self.reverse else (values, target + size)
        enqueue_copy(stream, source, target, (self.count - 1) * size)


@dataclass(eq=False)
class _BodyLaunch:
    """A launch of the body. Slots that are not yet integers have another value in each iteration."""

    launch: SerialisedLaunch | SerialisedLibraryCall
    function: Any
    slots: list[int | ArgumentSlot]
    memories: list[DeviceMemory] = field(default_factory=list)  # kept alive

    def enqueue(self, stream: Any, addresses: dict[int, int], index: int) -> None:
        words = [
            slot if isinstance(slot, int) else index if slot.kind == "value" else addresses[slot.buffer] + slot.offset
            for slot in self.slots
        ]
        if isinstance(self.launch, SerialisedLaunch):
            launch_blocks(self.function, stream, self.launch.grid, self.launch.threads, words)
        else:
            self.launch.call.enqueue(stream, words[:-1], words[-1])
