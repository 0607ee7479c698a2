"""A loop's body as native code: its plan bound to memory for both places that the loop's state may be in.

`loop.py` hands in the form that `row_loop` gives, and runs `sides` in turn. Neighbouring kernels are one call.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from livegrad.backends.cpu.kernels import ALIGNMENT, code_of, make_recipe
from livegrad.backends.cpu.memory_pool import aligned_memory
from livegrad.backends.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.backends.cpu.native.pool import interrupt_flag_address
from livegrad.backends.cpu.native.pool_ir import MAX_THREADS
from livegrad.backends.cpu.recipe import KernelRecipe, Recipe
from livegrad.backends.sites import Site
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.node import Module
from livegrad.passes.pipeline import run_pipeline
from livegrad.schedule.loop_rows import RowLoop
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, Plan, Slot
from livegrad.schedule.schedule import schedule
from livegrad.schedule.signature import leaf_types

_CLEAN = -1

Word = tuple["memoryview[int]", int, int]  # words of an argument block, an index, a byte offset
_Record = tuple[int, int, int, ArgumentBlock]  # kernel, total, grain, arguments


class Call(Protocol):
    """A step of a plan, ready to go: objects and arrays that are not fixed come by their slot's key."""

    def run(self, values: dict[Any, Any]) -> None: ...


class Memory(Protocol):
    """What a host step needs of the plan that it belongs to: arrays for buffers, and a way to run functions."""

    run_nested: Callable[..., Any]

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]: ...

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None: ...


MakeCall = Callable[[HostStep, Memory, Plan], Call]


class LoopBody:
    """A body's code and memory: every kernel has an argument block for each of the two places that state may be in."""

    def __init__(self, loop: RowLoop, is_while: bool, run_nested: Callable[..., Any], make_call: MakeCall) -> None:
        self.loop, self.is_while, self.run_nested = loop, is_while, run_nested
        self.plan = schedule(run_pipeline(Module((loop.body,))).functions[0])
        self._arrange_slots()
        self.index = np.zeros((), np.int64)
        self.goes_on = np.zeros((), np.bool_)
        self.index_word = self.index.reshape(1).data
        self.goes_on_word = self.goes_on.reshape(1).data
        self.state = [[_new_array(slot) for slot in self.state_in] for _ in range(2)]
        recipe, self._counts = make_recipe(self.plan)
        self._arena = aligned_memory(recipe.arena_bytes)
        self._scratch = [aligned_memory((size + ALIGNMENT) * MAX_THREADS) for size in recipe.scratch]
        self._statuses = array("q", [_CLEAN] * max(1, len(recipe.kernels)))
        # Where an address goes that is known at the start of a run, and where one that changes from trip to trip.
        self.fixed_words: dict[int | ObjectSlot, list[Word]] = {}
        self.row_words: list[dict[int | ObjectSlot, list[Word]]] = [{}, {}]
        steps = zip(self.plan.steps, self._counts, strict=True)
        own = [step for step, count in steps if count is None and isinstance(step, HostStep)]
        hosts = {step: make_call(step, self, self.plan) for step in own}
        self.sides = [self._calls(side, recipe, hosts) for side in range(2)]
        self.host_keys = {key_of(slot) for step in hosts for slot in (*step.operands, step.result)}

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
        self._index_key, self._goes_on_key = key_of(self.plan.arguments[0]), key_of(results[-1])

    def _calls(self, side: int, recipe: Recipe, hosts: Mapping[HostStep, Call]) -> list[Call]:
        """The steps for state that is read on one side and written on the other; neighbouring kernels are one call."""
        arrays: dict[Any, Any] = {self._index_key: self.index}
        if self.is_while:
            arrays[self._goes_on_key] = self.goes_on
        for slots, own in ((self.state_in, self.state[side]), (self.state_out, self.state[1 - side])):
            arrays |= {key_of(slot): memory for slot, memory in zip(slots, own, strict=True) if memory is not None}
        addresses = {key: memory.ctypes.data for key, memory in arrays.items()}
        calls: list[Call] = []
        numbered = iter(enumerate(recipe.kernels))
        for step, count in zip(self.plan.steps, self._counts, strict=True):
            if count is None:
                assert isinstance(step, HostStep)
                calls.append(hosts[step])
                continue
            for _ in range(count):
                number, kernel = next(numbered)
                record = self._record(kernel, number, addresses, side)
                if kernel.interruptible:
                    calls.append(_LongKernel(record, number, kernel.sites, self._statuses))
                    continue
                if not calls or not isinstance(calls[-1], _Kernels):
                    calls.append(_Kernels(self._statuses))
                calls[-1].add(record, number, kernel.sites)  # type: ignore[attr-defined]
        return calls

    def _record(self, kernel: KernelRecipe, number: int, addresses: Mapping[Any, int], side: int) -> _Record:
        native = code_of(kernel)
        assert native is not None, "a kernel that was just compiled is in memory"
        block = ArgumentBlock(len(kernel.words))
        status = self._statuses.buffer_info()[0] + 8 * number
        bases = {"number": 0, "arena": self._arena.ctypes.data, "status": status, "interrupt": interrupt_flag_address()}
        moving = {key_of(slot) for reads, writes in self.row_slots for slot in (*reads, *writes)}
        for index, word in enumerate(kernel.words):
            if word.kind == "scratch":
                block.ints[index] = self._scratch[word.slot].ctypes.data
            elif word.kind not in ("external", "cell"):
                block.ints[index] = bases[word.kind] + word.value
            elif word.slot in addresses:
                block.ints[index] = addresses[word.slot] + word.value
            else:
                words = self.row_words[side] if word.slot in moving else self.fixed_words
                words.setdefault(word.slot, []).append((block.ints, index, word.value))
        return native.addresses[kernel.symbol], kernel.total, kernel.grain, block

    # --- memory, as host steps of the body see it ---

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """A buffer's memory as an array."""
        fixed = self.fixed_array(buffer)
        return values[buffer.base.number].reshape(buffer.shape) if fixed is None else fixed

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """A buffer's memory as an array if it is the same in every trip."""
        base = buffer.base
        if base.number == self._index_key:
            return self.index
        if base.lifetime == "external":
            return None
        start = self.plan.places[base]
        return self._arena[start : start + buffer.bytes].view(buffer.element.dtype).reshape(buffer.shape)

    def forget_failures(self) -> None:
        """A check that failed in a run that was interrupted is no business of the next one."""
        for place in range(len(self._statuses)):
            self._statuses[place] = _CLEAN


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


def _new_array(slot: Slot) -> np.ndarray[Any, Any] | None:
    if isinstance(slot, ObjectSlot):
        return None
    return aligned_memory(slot.bytes).view(slot.element.dtype).reshape(slot.shape)


class _Kernels:
    """Kernels that run one after the other in one native call."""

    def __init__(self, statuses: array[int]) -> None:
        self._statuses = statuses
        self._records, self._blocks = array("q"), list[ArgumentBlock]()
        self._checks: list[tuple[int, tuple[Site, ...]]] = []
        self._invoke = invoker().invoke_sequence

    def add(self, record: _Record, number: int, sites: tuple[Site, ...]) -> None:
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
                raise _failure(self._statuses[number], sites)


class _LongKernel:
    """A kernel with loops of its own, which an interrupt must end."""

    def __init__(self, record: _Record, number: int, sites: tuple[Site, ...], statuses: array[int]) -> None:
        kernel, total, grain, self._block = record
        self._arguments = (kernel, total, grain, self._block.address)
        self._number, self._sites, self._statuses = number, sites, statuses
        self._invoke = invoker().invoke_interruptible

    def run(self, values: dict[Any, Any]) -> None:
        if self._invoke(*self._arguments):
            raise KeyboardInterrupt
        if self._sites and self._statuses[self._number] != _CLEAN:
            raise _failure(self._statuses[self._number], self._sites)


def _failure(status: int, sites: Sequence[Site]) -> KernelCheckError:
    site = sites[status & 0xFFFF]
    return KernelCheckError(f"{site.message}, at element {status >> 16}", where=site.origin)
