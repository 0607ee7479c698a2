"""Loops over tensors on the device: the kernels and library calls of the body, enqueued once for each iteration.

`plan_objects.py` makes a `DeviceLoop` for a loop with a fixed number of iterations; captured like a library call, all
iterations are one graph, and nothing waits for the host. The state is double-buffered, tapes are rows of memory.
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
# Passes the first failed check of each launch of the body on, numbered behind those of the launches before it.
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
    """A copy from one place of device memory to another, captured like a library call."""

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    def name(self) -> str:
        return f"copy {self.size}"

    def prepare(self) -> None:
        """Nothing has to be created."""

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the copy."""
        enqueue_copy(stream, operands[0], result, self.size)


@dataclass(frozen=True)
class Moving:
    """Memory that the body sees in another place in each iteration: a row of a tape."""

    buffer: int  # of the body's plan
    operand: int | None  # of the loop: the first row; None: the tape is empty, and its rows are zero
    row_bytes: int


@dataclass(frozen=True)
class State:
    """A value that an iteration takes from the one before: the body's buffers, and the operand that it starts from."""

    taken: int
    given: int
    start: int
    size: int
    rows: int | None = None  # the operand with a row for the value after each iteration; None: it is double-buffered


@dataclass(frozen=True)
class Output:
    """Where a value goes after the last iteration: a state by its number, or an operand as it is."""

    state: int | None
    source: int
    target: int
    size: int


def launches_of(body: SerialisedDevicePlan) -> int:
    """The launches of one iteration."""
    calls = [launch.call for launch in body.launches if isinstance(launch, SerialisedLibraryCall)]
    return len(body.kernels) + sum(call.launches if isinstance(call, DeviceLoop) else 1 for call in calls)


@dataclass(eq=False)
class DeviceLoop:
    """A loop of `count` iterations. Its operands are the addresses that `states`, `fixed`, `moving` and `outputs` name
    by their position."""

    body: SerialisedDevicePlan
    count: int
    reverse: bool
    index: int  # the buffer of the index
    states: tuple[State, ...]
    fixed: tuple[tuple[int, int], ...]  # buffers of the body, and operands
    moving: tuple[Moving, ...]
    outputs: tuple[Output, ...]
    kept: tuple[tuple[int, int], ...] = ()  # states with rows, and operands with a row for each value before
    failures: tuple[str, ...] = ()  # those of the body's launches, one behind the other
    _launches: list[_BodyLaunch] = field(default_factory=list, init=False)

    @property
    def name(self) -> str:
        return f"loop of {self.count}"

    @property
    def launches(self) -> int:
        """How many launches all iterations have, those of loops in the body among them."""
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
            if state.taken == state.given
            else [DeviceMemory(state.size), DeviceMemory(state.size)]
            for state in self.states
        ]
        self._zeros = DeviceMemory(max((row.row_bytes for row in self.moving if row.operand is None), default=0))
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
            return _BodyLaunch(launch, None, self._resolved((*launch.operands, launch.result), {"status": status}))
        code = load_compiled(launch.code)
        if code is None:
            raise DeviceError(f"the code of `{launch.name}` was evicted from the cache", help="run it again")
        addresses = {"status": status, "full": 0, "interrupt": interrupt_address()}
        memories: list[DeviceMemory] = []
        if launch.counters:
            memories = [DeviceMemory(launch.partial_bytes), DeviceMemory(4 * launch.counters)]
            memories[1].clear()  # each launch leaves them at zero
            addresses |= {"partials": memories[0].address, "counters": memories[1].address}
        return _BodyLaunch(launch, load_code(code, "kernel"), self._resolved(launch.slots, addresses), memories)

    def _resolved(self, slots: Slots, addresses: dict[str, int]) -> list[int | ArgumentSlot]:
        """The slots with numbers in place of what is the same in all iterations."""
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
        """Enqueues all iterations, and copies of what they start from and of what they end with."""
        for state, (first, _) in zip(self.states, self._buffers, strict=True):
            enqueue_copy(stream, operands[state.start], first.address, state.size)
        fixed = {buffer: operands[position] for buffer, position in self.fixed}
        for done in range(self.count):
            index = self._index_of(done)
            here = fixed | {self.index: self._indices.address + 8 * index}
            for number, state in enumerate(self.states):
                here[state.taken] = self._address_after(number, done, operands)
                here[state.given] = self._address_after(number, done + 1, operands)
            for row in self.moving:
                first = self._zeros.address if row.operand is None else operands[row.operand] + index * row.row_bytes
                here[row.buffer] = first
            for launch in self._launches:
                launch.enqueue(stream, here, index)
        for output in self.outputs:
            own = operands[output.source]
            if output.state is not None:
                own = self._address_after(output.state, self.count, operands)
            enqueue_copy(stream, own, operands[output.target], output.size)
        for number, operand in self.kept:
            self._keep_values_before(stream, number, operands[operand], operands)
        if self.failures:
            slots = (self._status.address, self._firsts.address, len(self._launches), operands[-1])
            launch_blocks(load_function(_COLLECT, "collect", "collect"), stream, 1, 32, slots)

    def _index_of(self, done: int) -> int:
        """The index of the iteration that follows so many."""
        return self.count - 1 - done if self.reverse else done

    def _address_after(self, number: int, done: int, operands: Sequence[int]) -> int:
        """Where a state lies after so many iterations."""
        state = self.states[number]
        if state.rows is None or done == 0:
            return self._buffers[number][done % 2].address
        return operands[state.rows] + self._index_of(done - 1) * state.size

    def _keep_values_before(self, stream: Any, number: int, target: int, operands: Sequence[int]) -> None:
        """Copies a state before each iteration to rows: the start, and the values after all iterations but the last."""
        state = self.states[number]
        assert state.rows is not None
        size, values = state.size, operands[state.rows]
        enqueue_copy(stream, self._address_after(number, 0, operands), target + self._index_of(0) * size, size)
        source, target = (values + size, target) if self.reverse else (values, target + size)
        enqueue_copy(stream, source, target, (self.count - 1) * size)


@dataclass(eq=False)
class _BodyLaunch:
    """A launch of the body with its slots; those that are no numbers yet differ from iteration to iteration."""

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
