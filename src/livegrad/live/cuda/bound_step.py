"""Binds a step to memory: creates launches with filled argument slots, ready to become graph nodes.

In: a step, its code, and the addresses of buffers and numbers. Out: launches, and the argument slots of live numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.live.compile.live_steps import BlockStep, BufferOperand, Operand
from livegrad.live.cuda.captured_graphs import CapturedGraph
from livegrad.live.cuda.live_numbers import NumberSlot, make_number_slot
from livegrad.live.cuda.step_code import StepCode
from livegrad.runtime.cuda.cuda_graph import Launch
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError
from livegrad.runtime.cuda.interrupt import interrupt_address
from livegrad.runtime.cuda.libraries.capture import BoundCall
from livegrad.runtime.cuda.serialised_launches import SerialisedLaunch, SerialisedLibraryCall
from livegrad.schedule.plan import Buffer

_FIRST_TAPE_BYTES = 2048
_MAX_TAPE_BYTES = 1 << 34  # of one step, all threads together


class Addresses(Protocol):
    """The buffers and numbers that a step is bound to."""

    def address(self, key: str) -> int:
        """The address of a buffer."""
        ...

    def cell(self, operand: Operand) -> int:
        """The address of a number, for steps that read it from memory."""
        ...

    def number(self, operand: Operand) -> Any:
        """The current value of a number; None if it has none."""
        ...


@dataclass(eq=False)
class BoundStep:
    """The launches of a step, in the order of its items (None: a host call), and its private memory."""

    step: BlockStep
    code: StepCode
    launches: list[Launch | CapturedGraph | None] = field(default_factory=list)
    number_slots: list[tuple[Operand, NumberSlot]] = field(default_factory=list)
    arena: DeviceMemory | None = None
    scratch: dict[int, DeviceMemory] = field(default_factory=dict)
    shared: dict[int, tuple[DeviceMemory, DeviceMemory]] = field(default_factory=dict)  # partials and counters, by item
    tapes: DeviceMemory | None = None
    tape_bytes: int = _FIRST_TAPE_BYTES
    values: dict[Any, Any] = field(default_factory=dict)  # operands and results of host calls, by buffer id
    uses_cells: bool = False  # whether it reads numbers from memory
    status: int = 0  # address of its status words: one for each item, then one for full tapes

    @property
    def key(self) -> str:
        return self.step.key

    @property
    def status_words(self) -> int:
        return len(self.code.items) + 1

    @property
    def reports_failures(self) -> bool:
        """Whether a run may report failed checks or full tapes."""
        return self.code.reports_failures

    @cached_property
    def touched(self) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        """The buffers of the plan that each item reads, and those that it writes."""
        return tuple((self._keys(reads), self._keys(writes)) for reads, writes in self.code.touched)

    @cached_property
    def all_touched(self) -> frozenset[str]:
        """The buffers that any item reads or writes."""
        return frozenset(key for touched in self.touched for keys in touched for key in keys)

    def _keys(self, buffers: tuple[Buffer, ...]) -> tuple[str, ...]:
        step, code = self.step, self.code
        keys: dict[str, None] = {}
        for buffer in buffers:
            buffer_index = buffer.base.number
            if buffer_index in code.results:
                keys[step.results[code.results[buffer_index]]] = None
            elif buffer_index in code.slots:
                operand = step.operands[code.slots[buffer_index]]
                if isinstance(operand, BufferOperand):
                    keys[operand.key] = None
        return tuple(keys)

    def is_same(self, step: BlockStep, code: StepCode | None) -> bool:
        """Whether a step of another plan has the same code and operands; addresses are not compared."""
        if self.code is not code:
            return False
        return self.step is step or (self.step.operands == step.operands and self.step.results == step.results)

    def kernel_launches(self) -> list[Launch]:
        return [launch for launch in self.launches if isinstance(launch, Launch)]

    def library_graphs(self) -> dict[str, CapturedGraph]:
        """The library calls of the step, by the names of their nodes."""
        return {
            self.node_name(index): launch
            for index, launch in enumerate(self.launches)
            if isinstance(launch, CapturedGraph)
        }

    def node_name(self, item: int) -> str:
        return f"{self.key}:{item}"

    def can_replace(self, other: BoundStep) -> bool:
        """Whether its launches can replace those of another step in the same graph nodes."""
        kinds = [launch.__class__ for launch in self.launches]
        if kinds != [launch.__class__ for launch in other.launches] or self.code.before != other.code.before:
            return False
        # A node depends on the writers of what the other step reads. If this step reads more, dependencies are missing.
        pairs = zip(self.touched, other.touched, strict=True)
        return all(
            set(keys) <= set(keys_before)
            for touched, touched_before in pairs
            for keys, keys_before in zip(touched, touched_before, strict=True)
        )

    def close(self) -> None:
        """Destroys the captured graphs of library calls."""
        for graph in self.library_graphs().values():
            graph.close()

    # --- allocation and launches ---

    def make(self, addresses: Addresses) -> None:
        """Allocates memory and creates the launches. Raises if there is not enough memory."""
        if self.code.plan.arena_bytes:
            self.arena = DeviceMemory(self.code.plan.arena_bytes)
        if self.code.takes_memory:
            for item_index, item in enumerate(self.code.items):
                if isinstance(item, SerialisedLaunch):
                    self._make_scratch(item_index, item)
        if self.code.uses_tapes:
            self.tapes = self._make_tapes()
        for item_index, (item, function) in enumerate(zip(self.code.items, self.code.functions, strict=True)):
            if isinstance(item, SerialisedLaunch):
                launch = Launch(function, item.grid, item.threads, len(item.slots), self.code.separate)
                self.launches.append(launch)
                for index, slot in enumerate(item.slots):
                    if isinstance(slot, int):
                        launch.slots[index] = slot
                    else:
                        self._fill_slot(launch, index, slot, item_index, addresses)
            elif isinstance(item, SerialisedLibraryCall):
                operands = [self._slot_address(slot, addresses) for slot in item.operands]
                graph = BoundCall(item.call, operands, self._slot_address(item.result, addresses)).capture()
                self.launches.append(CapturedGraph(graph, ()))
            else:
                self.launches.append(None)

    def _make_scratch(self, item_index: int, kernel: SerialisedLaunch) -> None:
        for buffer, size in kernel.scratch:
            if buffer not in self.scratch or self.scratch[buffer].size < size:
                self.scratch[buffer] = DeviceMemory(size)
        if kernel.counters:
            counters = DeviceMemory(4 * kernel.counters)
            counters.clear()  # each launch resets them to zero
            self.shared[item_index] = DeviceMemory(kernel.partial_bytes), counters

    def _make_tapes(self) -> DeviceMemory:
        workers = max(kernel.workers for kernel in self.code.kernels if kernel.uses_tapes)
        size = workers * self.tape_bytes
        if size > _MAX_TAPE_BYTES:
            raise DeviceError(f"the tapes of loops take more than {_MAX_TAPE_BYTES >> 30} GiB of the device")
        return DeviceMemory(size)

    def _fill_slot(self, launch: Launch, index: int, slot: ArgumentSlot, item_index: int, addresses: Addresses) -> None:
        match slot.kind:
            case "external":
                value = self.external_address(slot.buffer, addresses) + slot.offset
            case "scratch":
                value = self.scratch[slot.buffer].address
            case "status":
                value = self.status + 8 * item_index
            case "full":
                value = self.status + 8 * len(self.code.items)
            case "tapes":
                value = 0 if self.tapes is None else self.tapes.address
            case "tape_bytes":
                value = self.tape_bytes
            case "interrupt":
                value = interrupt_address()
            case "partials" | "counters":
                value = self.shared[item_index][slot.kind == "counters"].address
            case "value":
                self._fill_number(launch, index, self.step.operands[self.code.slots[slot.buffer]], addresses)
                return
            case _:
                value = self._slot_address(slot, addresses)
        launch.slots[index] = value

    def _slot_address(self, slot: ArgumentSlot, addresses: Addresses) -> int:
        if slot.kind == "arena":
            assert self.arena is not None
            return self.arena.address + slot.offset
        return self.external_address(slot.buffer, addresses) + slot.offset

    def _fill_number(self, launch: Launch, index: int, operand: Operand, addresses: Addresses) -> None:
        number_slot = make_number_slot(launch, index, operand.type)
        self.number_slots.append((operand, number_slot))
        value = addresses.number(operand)
        if value is not None:
            number_slot.put(as_scalar(value))

    def external_address(self, buffer: int, addresses: Addresses) -> int:
        """The address of an argument or a result, by the id of its buffer."""
        position = self.code.slots.get(buffer)
        if position is None:
            return addresses.address(self.step.results[self.code.results[buffer]])
        operand = self.step.operands[position]
        if isinstance(operand, BufferOperand):
            return addresses.address(operand.key)
        self.uses_cells = True
        return addresses.cell(operand)

    def buffer_address(self, buffer: Buffer, addresses: Addresses) -> int:
        """The address of a buffer of the step's plan."""
        base = buffer.base
        if base.lifetime == "external":
            return self.external_address(base.number, addresses)
        assert self.arena is not None
        return self.arena.address + self.code.plan.arena_offsets[base]

    # --- status words and tapes ---

    def move_status(self, address: int) -> list[Launch]:
        """Changes the address of the status words. Returns the launches that must be updated."""
        self.status = address
        for item_index, (item, launch) in enumerate(zip(self.code.items, self.launches, strict=True)):
            if isinstance(launch, Launch) and isinstance(item, SerialisedLaunch):
                for index, slot in enumerate(item.slots):
                    if isinstance(slot, int):
                        continue
                    if slot.kind == "status":
                        launch.slots[index] = address + 8 * item_index
                    elif slot.kind == "full":
                        launch.slots[index] = address + 8 * len(self.code.items)
        return self.kernel_launches()

    def grow_tapes(self) -> list[Launch]:
        """Doubles the memory of tapes. Returns the launches that must be updated."""
        previous_bytes = self.tape_bytes
        self.tape_bytes *= 2
        try:
            self.tapes = self._make_tapes()
        except DeviceError:
            self.tape_bytes = previous_bytes
            raise
        changed = []
        for item, launch in zip(self.code.items, self.launches, strict=True):
            if isinstance(launch, Launch) and isinstance(item, SerialisedLaunch) and item.uses_tapes:
                for index, slot in enumerate(item.slots):
                    if not isinstance(slot, int) and slot.kind in ("tapes", "tape_bytes"):
                        launch.slots[index] = self.tapes.address if slot.kind == "tapes" else self.tape_bytes
                changed.append(launch)
        return changed


def as_scalar(value: Any) -> Any:
    """A number as a scalar for an argument slot."""
    return value[()] if isinstance(value, np.ndarray) else value
