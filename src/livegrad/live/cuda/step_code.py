"""Schedules the function of a step, and compiles and loads its kernels.

`CudaExecutor.prepare` creates the code. It does not depend on memory, so all steps with the same function share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan
from livegrad.diagnostics import CompileError
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Function
from livegrad.live.compile.live_steps import BlockStep, BufferOperand
from livegrad.runtime.cuda.driver import DeviceError, device
from livegrad.runtime.cuda.modules import load_code
from livegrad.runtime.cuda.nvrtc import load_compiled
from livegrad.runtime.cuda.serialised_device_plan import serialise_plan
from livegrad.runtime.cuda.serialised_launches import (
    SerialisedDevicePlan,
    SerialisedHostStep,
    SerialisedLaunch,
    SerialisedLibraryCall,
)
from livegrad.schedule.plan import Buffer, Plan
from livegrad.state import renew_lock_after_fork

_MAX_KEPT = 8192

Item = SerialisedLaunch | SerialisedLibraryCall | SerialisedHostStep


@dataclass(frozen=True, eq=False)
class StepCode:
    """The items of a step: kernels, library calls and host calls, in order; `before` has the dependencies of each."""

    plan: Plan
    items: tuple[Item, ...]
    before: tuple[tuple[int, ...], ...]
    functions: tuple[Any, ...]  # the driver's function of each kernel; None for other items
    slots: dict[int, int]  # the id of an argument's buffer → its position among the operands
    results: dict[int, int]  # the id of a result's buffer → its position among the results
    touched: tuple[tuple[tuple[Buffer, ...], tuple[Buffer, ...]], ...]  # what each item reads and writes
    separate: bool = False  # each slot is a kernel parameter; otherwise all slots are one struct

    @cached_property
    def kernels(self) -> list[SerialisedLaunch]:
        return [item for item in self.items if isinstance(item, SerialisedLaunch)]

    @cached_property
    def has_host_steps(self) -> bool:
        return any(isinstance(item, SerialisedHostStep) for item in self.items)

    @cached_property
    def reports_failures(self) -> bool:
        """Whether a run may report failed checks or full tapes."""
        return any(kernel.sites or kernel.uses_tapes for kernel in self.kernels)

    @cached_property
    def uses_tapes(self) -> bool:
        """Whether a loop in it stores residuals for its backward pass."""
        return any(kernel.uses_tapes for kernel in self.kernels)

    @cached_property
    def takes_memory(self) -> bool:
        """Whether kernels need scratch memory or counters."""
        return any(kernel.scratch or kernel.counters for kernel in self.kernels)


class CodeCache:
    """Codes by function, sizes and which operands are in memory."""

    def __init__(self, make: Callable[[BlockStep, Sequence[bool]], StepCode]) -> None:
        self._make = make
        self._lock = Lock()  # a thread may compile edits beside the frames
        renew_lock_after_fork(self, "_lock")
        # The value keeps the function alive, so that its id is not reused.
        self._codes: LruCache[tuple[Any, ...], tuple[Any, StepCode]] = LruCache(_MAX_KEPT)

    def get(self, step: BlockStep) -> StepCode:
        """The code of a step, compiled on first use."""
        in_memory = tuple([operand.__class__ is BufferOperand for operand in step.operands])
        key = (id(step.function), step.sizes, in_memory)
        with self._lock:
            entry = self._codes.use(key)
        if entry is None:
            made = step.function, self._make(step, in_memory)
            with self._lock:
                entry = self._codes.use(key) or self._codes.keep(key, made)
        return entry[1]


def make_code(step: BlockStep, in_memory: Sequence[bool]) -> StepCode:
    """Schedules the function of a step and compiles its kernels. Launches nothing and allocates no memory."""
    assert isinstance(step.function, Function)
    plan = compile_plan(step.function, CUDA, dict(step.sizes))
    slots: dict[int, int] = {}
    for position, slot in enumerate(plan.arguments):
        if not isinstance(slot, Buffer):
            raise CompileError(f"`{step.key}` takes a value that is not an array")
        slots[slot.number] = position
    results = {slot.number: position for position, slot in enumerate(plan.results) if isinstance(slot, Buffer)}
    # Scalars that other blocks compute are in memory; the other scalar arguments are passed by value.
    by_value = tuple(slot for slot, memory in zip(plan.arguments, in_memory, strict=True) if not memory)
    serialised = serialise_plan(replace(plan, arguments=by_value), device().architecture, for_engine=True)
    items, before = _list_items(serialised)
    touched = tuple((plan.steps[item.number].inputs, plan.steps[item.number].results) for item in items)
    for item in items:
        if isinstance(item, SerialisedLibraryCall):
            item.call.prepare()
    return StepCode(plan, items, before, tuple(map(_load_item, items)), slots, results, touched)


def _list_items(serialised: SerialisedDevicePlan) -> tuple[tuple[Item, ...], tuple[tuple[int, ...], ...]]:
    """The items of all segments, and their dependencies, which are within segments because segments run in order."""
    items: list[Item] = []
    before: list[tuple[int, ...]] = []
    for segment in serialised.segments:
        first = len(items)
        if isinstance(segment, SerialisedHostStep):
            items.append(segment)
            before.append(())
        else:
            items += segment.launches
            before += [tuple(first + index for index in indices) for indices in segment.dependencies]
    return tuple(items), tuple(before)


def _load_item(item: Item) -> Any:
    if not isinstance(item, SerialisedLaunch):
        return None
    code = load_compiled(item.code)
    if code is None:
        raise DeviceError(f"the code of `{item.name}` was evicted from the cache", help="run it again")
    return load_code(code, "kernel")
