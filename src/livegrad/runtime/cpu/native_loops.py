"""Counted loops over tensors as kernels of the enclosing plan, which run all iterations without Python.

In: a loop step whose body has only kernels, and a `Binder` for the memory of the enclosing plan. Out: a `NativeLoop`.
Iterations cycle through tables of kernels, each bound to the memory that its iteration reads and writes
(`loop_memory.py`), so nothing is copied or patched between iterations. `compiled_plan.py` calls this. Other loops, with
tapes, conditions or host steps in the body, run in `tensor_loops.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from livegrad.codegen.check_sites import CLEAN, check_failure
from livegrad.ir.leaves import constant_op
from livegrad.ir.types import i32, i64
from livegrad.ops.control import for_loop
from livegrad.passes.flatten_signature import leaf_types
from livegrad.runtime.cpu.kernel_code import code_of
from livegrad.runtime.cpu.kernel_memory import KernelMemory
from livegrad.runtime.cpu.loop_body import Record, flatten_records, key_of
from livegrad.runtime.cpu.loop_memory import Copy, Location, arrange_memory, has_buffers
from livegrad.runtime.cpu.matmul_steps import native_convolution, native_product
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.loop_kernel import SLOT_INDEX, iterations_library
from livegrad.runtime.cpu.native.pool import interrupt_flag_address, pool_run_address
from livegrad.runtime.cpu.plan_serialiser import serialise_plan
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel
from livegrad.schedule.kept_parts import copies_of_kept_parts
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, ObjectSlot, Plan, Step, reads_of


class _Settings:
    """Whether loops become kernels of the enclosing plan. Tests switch it off to compare with `tensor_loops.py`."""

    enabled = True


settings = _Settings()


class Binder(Protocol):
    """The enclosing plan of a loop, which provides the addresses of its buffers."""

    def bind_slot(self, block: ArgumentBlock, index: int, buffer: Buffer, offset: int) -> None:
        """Sets a slot to the address of a buffer plus a byte offset, in every run."""
        ...


def native_loop(step: HostStep, plan: Plan, binder: Binder) -> NativeLoop | None:
    """A loop step of a plan as a kernel; None if it has to run from Python."""
    if not settings.enabled or not _is_native(step, plan):
        return None
    status = array("q", [CLEAN])
    return NativeLoop(_LoopCode(step, plan, status.buffer_info()[0], status), binder)


def _constant_iterations(step: HostStep, plan: Plan) -> int | None:
    """The number of iterations of a `for` loop if it is a constant of the plan, else None."""
    if step.op is not for_loop:
        return None
    slot = step.operands[step.function.results[0].operands[0].attribute("index")]
    writers = [other for other in plan.steps if isinstance(slot, Buffer) and slot.base in other.results]
    if len(writers) != 1 or not isinstance(writers[0], KernelStep) or len(writers[0].kernel.stages) != 1:
        return None
    (stage,) = writers[0].kernel.stages
    is_constant = [node.op is constant_op and node.type in (i32, i64) for node in stage.body.results]
    return max(0, int(stage.body.results[0].attribute("value"))) if is_constant == [True] else None


def _is_native(step: Step, plan: Plan) -> bool:
    """Whether iterations consist of kernels over arrays, and no step reads the results as a tuple."""
    loop = step.loop if isinstance(step, HostStep) else None
    if not isinstance(step, HostStep) or loop is None or loop.plan is None or loop.rows or loop.plan.chains:
        return False
    read_slots = [slot for other in plan.steps for slot in reads_of(other)]
    slots = (*step.operands, *loop.plan.arguments, *loop.plan.results)
    if step.result in (*read_slots, *plan.results) or any(isinstance(slot, ObjectSlot) for slot in slots):
        return False
    types = step.function.results[0].attribute("body").parameter_types
    if _constant_iterations(step, plan) is None or any(len(leaf_types(type)) != 1 for type in types):
        return False
    body = loop.plan
    return has_buffers(step, loop) and all(_is_kernel(inner) or _is_native(inner, body) for inner in body.steps)


def _is_kernel(step: Step) -> bool:
    return isinstance(step, KernelStep) or native_convolution(step) is not None or native_product(step) is not None


class _LoopCode:
    """The kernels of a loop, its memory and status words, and the loops inside it."""

    def __init__(self, step: HostStep, plan: Plan, failed: int, keep: Any = None) -> None:
        """`failed` is the address of a word that becomes 0 if a check fails, in the memory of `keep`."""
        loop, iterations = step.loop, _constant_iterations(step, plan)
        assert loop is not None
        assert loop.plan is not None
        assert iterations is not None
        self.plan, self.iterations, self.failed, self._kept_alive = loop.plan, iterations, failed, keep
        self.reverse = step.function.results[0].attribute("reverse")
        self.memory = arrange_memory(step, loop, iterations)
        serialised, counts, self.codes = serialise_plan(loop.plan)
        self.kernel_memory = KernelMemory(serialised)
        self.index = np.zeros((), np.int64)
        self.kernels = serialised.kernels
        inner = [step for step, count in zip(loop.plan.steps, counts, strict=True) if count is None]
        self.statuses = array("q", [CLEAN] * (len(self.kernels) + len(inner)))
        self.loops = [
            _LoopCode(inner_loop, loop.plan, self.status_address(len(self.kernels) + number))
            for number, inner_loop in enumerate(inner)
            if isinstance(inner_loop, HostStep)
        ]
        self._arrange_calls(counts)

    def _arrange_calls(self, counts: Sequence[int | None]) -> None:
        """Numbers the kernels and inner loops of an iteration, with copies of unchanging parts of the state first."""
        kernels, loops = iter(range(len(self.kernels))), iter(range(len(self.kernels), len(self.statuses)))
        copied = copies_of_kept_parts(self.plan, self.memory.double_buffered)
        calls: list[tuple[bool, int]] = []
        for number, count in enumerate(counts):
            numbers = [next(loops)] if count is None else [next(kernels) for _ in range(count)]
            if number not in self.memory.dropped:
                calls += [(copied[number], call) for call in numbers]
        self.calls = [call for _, call in sorted(calls, key=lambda numbers: not numbers[0])]
        self.initial_records = sum(is_copy for is_copy, _ in calls)

    def status_address(self, number: int) -> int:
        return self.statuses.buffer_info()[0] + 8 * number

    @property
    def has_checks(self) -> bool:
        return any(kernel.sites for kernel in self.kernels) or any(loop.has_checks for loop in self.loops)

    def clear_failures(self) -> None:
        self.statuses[:] = array("q", [CLEAN] * len(self.statuses))
        for loop in self.loops:
            loop.clear_failures()

    def check(self) -> None:
        """Raises the failure that a kernel reported."""
        for status, kernel in zip(self.statuses, self.kernels, strict=False):
            if kernel.sites and status != CLEAN:
                raise check_failure(status, kernel.sites)
        for loop in self.loops:
            loop.check()

    def wait(self) -> None:
        """Returns when all code is compiled."""
        for kernel in self.kernels:
            code_of(kernel, self.codes).wait()
        for loop in self.loops:
            loop.wait()


class NativeLoop:
    """A loop bound to memory. `record` is the call that runs it."""

    interruptible = True

    def __init__(self, code: _LoopCode, binder: Binder) -> None:
        self.code, self._binder = code, binder
        self._inner_loops: list[NativeLoop] = []  # kept alive: records have the addresses of their blocks
        memory, self.block = code.memory, ArgumentBlock(len(SLOT_INDEX))
        tables = [self._table(iteration) for iteration in range(min(code.iterations, memory.lead + memory.period))]
        self._kept_alive, self._records = tables, [array("q", flatten_records(records)) for records in tables]
        self._tables = array("q", [word for records in self._records for word in (records.buffer_info()[0], 0, 0)])
        self._bind_copies((*memory.copies_before, *memory.copies_after))
        self._set_slots(
            run=pool_run_address(),
            iterations=code.iterations,
            first=code.iterations - 1 if code.reverse else 0,
            step=-1 if code.reverse else 1,
            index=code.index.ctypes.data,
            statuses=code.status_address(0),
            checks=len(code.statuses) if code.has_checks else 0,
            failed=code.failed,
            interrupt=interrupt_flag_address(),
            count=len(code.calls),
            initial_records=code.initial_records,
            initial_iterations=memory.copies_per_part,
            tables=self._tables.buffer_info()[0],
            lead=memory.lead,
            period=memory.period,
            copies=self._copies.address,
            copies_before=len(memory.copies_before),
            copies_after=len(memory.copies_after),
        )
        self.record = (iterations_library().addresses["run_iterations"], 1, 1, self.block.address)
        self._invoke = invoker().invoke_interruptible

    def _set_slots(self, **values: int) -> None:
        for name, value in values.items():
            self.block.ints[SLOT_INDEX[name]] = value

    def _table(self, iteration: int) -> list[Record]:
        """The calls of an iteration, bound to its memory."""
        code = self.code
        locations = code.memory.locations(iteration) | {key_of(code.plan.arguments[0]): code.index.ctypes.data}
        return [
            self._bind(code.kernels[call], call, locations)
            if call < len(code.kernels)
            else self._bind_loop(code.loops[call - len(code.kernels)], locations)
            for call in code.calls
        ]

    def _bind(self, kernel: SerialisedKernel, number: int, locations: Mapping[Any, Location]) -> Record:
        code, native = self.code, code_of(kernel, self.code.codes)
        block = ArgumentBlock.holding([slot if isinstance(slot, int) else 0 for slot in kernel.slots])
        status = code.status_address(number)
        for index, slot in enumerate(kernel.slots):
            if isinstance(slot, int):
                continue
            if slot.kind in ("external", "cell"):
                self.bind_location(block, index, locations[slot.buffer], slot.offset)
            else:
                block.ints[index] = code.kernel_memory.address_of(slot, kernel.library, status)
        return native.addresses[kernel.symbol], kernel.total, kernel.grain, block

    def _bind_loop(self, code: _LoopCode, locations: Mapping[Any, Location]) -> Record:
        loop = NativeLoop(code, _IterationBinder(self, locations))
        self._inner_loops.append(loop)
        return *loop.record[:3], loop.block

    def _bind_copies(self, copies: Sequence[Copy]) -> None:
        self._copies = ArgumentBlock(3 * len(copies))
        for number, (target, source, size) in enumerate(copies):
            self.bind_location(self._copies, 3 * number, target, 0)
            self.bind_location(self._copies, 3 * number + 1, source, 0)
            self._copies.ints[3 * number + 2] = size

    def bind_location(self, block: ArgumentBlock, index: int, location: Location, offset: int) -> None:
        if isinstance(location, Buffer):
            self._binder.bind_slot(block, index, location, offset)
        else:
            block.ints[index] = location + offset

    def wait(self) -> None:
        self.code.wait()

    @property
    def status_address(self) -> int:
        """The address of the word that becomes 0 if a check fails; 0 without checks."""
        return self.code.failed if self.code.has_checks else 0

    def run(self, values: dict[Any, Any]) -> None:
        # Failures remain after an interrupt, and after a native entry whose run is repeated here to raise its error.
        self.code.clear_failures()
        if self._invoke(*self.record):
            raise KeyboardInterrupt
        self.code.check()


class _IterationBinder:
    """Binds an inner loop to the buffers of its enclosing loop in one iteration."""

    def __init__(self, loop: NativeLoop, locations: Mapping[Any, Location]) -> None:
        self._loop, self._locations = loop, locations

    def bind_slot(self, block: ArgumentBlock, index: int, buffer: Buffer, offset: int) -> None:
        code = self._loop.code
        if buffer.base.lifetime == "graph":
            block.ints[index] = code.kernel_memory.arena_start + code.plan.arena_offsets[buffer.base] + offset
        else:
            self._loop.bind_location(block, index, self._locations[key_of(buffer)], offset)
