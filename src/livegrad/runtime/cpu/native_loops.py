"""Counted loops over tensors as kernels of the plan around them: a run returns to Python only at its end.

In: a loop step whose body has only kernels, and what binds argument slots to the memory of the plan around it. Out: a
`NativeLoop`. Iterations use tables of kernels in turn, each bound to the memory that its iteration reads and writes
(`loop_memory.py`), so nothing is copied or patched between them. `compiled_plan.py` makes them; what this module
declines (tapes, conditions, host steps in the body) is run by `tensor_loops.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from livegrad.ir.leaves import constant_op
from livegrad.ir.types import i32, i64
from livegrad.ops.control import for_loop
from livegrad.passes.flatten_signature import leaf_types
from livegrad.runtime.cpu.kernel_code import ALIGNMENT, code_of, serialise_plan
from livegrad.runtime.cpu.loop_body import Record, kernel_failure, key_of, words_of
from livegrad.runtime.cpu.loop_memory import LoopMemory, arrange_memory
from livegrad.runtime.cpu.matmul_steps import native_convolution, native_product
from livegrad.runtime.cpu.memory_pool import plan_memory
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.loop_kernel import SLOT_INDEX, iterations_library
from livegrad.runtime.cpu.native.pool import interrupt_flag_address, pool_run_address
from livegrad.runtime.cpu.native.pool_ir import MAX_THREADS
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel
from livegrad.schedule.kept_parts import copies_of_kept_parts
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, ObjectSlot, Plan, Step, reads_of

_CLEAN = -1


class _Settings:
    """Whether loops are kernels of the plan around them: tests compare both ways."""

    enabled = True


settings = _Settings()


class Binder(Protocol):
    """What knows where the buffers of the plan around a loop are."""

    def bind_slot(self, block: ArgumentBlock, index: int, buffer: Buffer, offset: int) -> None:
        """Makes a slot hold the address of a buffer, so many bytes behind its start, in every run."""
        ...


def native_loop(step: HostStep, plan: Plan, binder: Binder) -> NativeLoop | None:
    """A loop step of a plan as a kernel; None if it has to be run from Python."""
    iterations = _constant_iterations(step, plan)
    if iterations is None or not _is_native(step, plan):
        return None
    assert step.loop is not None
    memory = arrange_memory(step, step.loop, iterations)
    return None if memory is None else NativeLoop(step, memory, iterations, binder)


def _constant_iterations(step: HostStep, plan: Plan) -> int | None:
    """How many iterations a loop takes, if the plan says so."""
    if step.op is not for_loop:
        return None
    slot = step.operands[step.function.results[0].operands[0].attribute("index")]
    writers = [other for other in plan.steps if isinstance(slot, Buffer) and slot.base in other.results]
    if len(writers) != 1 or not isinstance(writers[0], KernelStep) or len(writers[0].kernel.stages) != 1:
        return None
    (stage,) = writers[0].kernel.stages
    is_constant = [node.op is constant_op and node.type in (i32, i64) for node in stage.body.results]
    return max(0, int(stage.body.results[0].attribute("value"))) if is_constant == [True] else None


def _is_native(step: HostStep, plan: Plan) -> bool:
    """Whether kernels do everything in an iteration, on arrays alone, and nothing takes results as a tuple."""
    loop, body = step.loop, step.function.results[0].attribute("body")
    if loop is None or loop.plan is None or loop.rows or loop.plan.chains:
        return False
    taken = [slot for other in plan.steps for slot in reads_of(other)]
    slots = (*step.operands, *loop.plan.arguments, *loop.plan.results)
    if step.result in (*taken, *plan.results) or any(isinstance(slot, ObjectSlot) for slot in slots):
        return False
    are_leaves = all(len(leaf_types(type)) == 1 for type in body.parameter_types)
    return are_leaves and all(map(_is_kernel, loop.plan.steps))


def _is_kernel(step: Step) -> bool:
    return isinstance(step, KernelStep) or native_convolution(step) is not None or native_product(step) is not None


class NativeLoop:
    """A loop that is bound to memory: `record` is the call that runs it."""

    interruptible = True

    def __init__(self, step: HostStep, memory: LoopMemory, iterations: int, binder: Binder) -> None:
        loop = step.loop
        assert loop is not None
        assert loop.plan is not None
        self._plan, self._memory, self._binder = loop.plan, memory, binder
        serialised, counts, self._codes = serialise_plan(loop.plan)
        self._arena = plan_memory(serialised.arena_bytes)
        self._scratch = [plan_memory((size + ALIGNMENT) * MAX_THREADS) for size in serialised.scratch]
        self._index = np.zeros((), np.int64)
        self._kernels = serialised.kernels
        self._statuses = array("q", [_CLEAN] * max(1, len(self._kernels)))
        self._status = array("q", [_CLEAN])
        steps = [number for number, count in enumerate(counts) for _ in range(count or 0)]
        copied = copies_of_kept_parts(loop.plan, memory.double_buffered)
        used = [number for number, owner in enumerate(steps) if owner not in memory.dropped]
        order = sorted(used, key=lambda number: not copied[steps[number]])
        self._fill(order, sum(copied[steps[number]] for number in used), iterations)
        if step.function.results[0].attribute("reverse"):
            self._set(first=iterations - 1, step=-1)
        library = iterations_library()
        self.record = (library.addresses["run_iterations"], 1, 1, self._block.address)
        self._invoke = invoker().invoke_interruptible

    def _fill(self, order: Sequence[int], kept: int, iterations: int) -> None:
        memory, self._block = self._memory, ArgumentBlock(len(SLOT_INDEX))
        tables = range(min(iterations, memory.lead + memory.period))
        self._bound = [[self._bind(self._kernels[n], n, table) for n in order] for table in tables]
        self._records = [array("q", words_of(records)) for records in self._bound]
        self._tables = array("q", [word for own in self._records for word in (own.buffer_info()[0], 0, 0)])
        copies = (*memory.copies_before, *memory.copies_after)
        self._copies = ArgumentBlock(3 * len(copies))
        for number, (target, source, size) in enumerate(copies):
            self._bind_location(self._copies, 3 * number, target, 0)
            self._bind_location(self._copies, 3 * number + 1, source, 0)
            self._copies.ints[3 * number + 2] = size
        self._set(
            run=pool_run_address(),
            iterations=iterations,
            step=1,
            index=self._index.ctypes.data,
            statuses=self._statuses.buffer_info()[0],
            checks=len(self._kernels) if self._has_checks else 0,
            failed=self._status.buffer_info()[0],
            interrupt=interrupt_flag_address(),
            count=len(order),
            kept=kept,
            full=memory.copies_per_part,
            tables=self._tables.buffer_info()[0],
            lead=memory.lead,
            period=memory.period,
            copies=self._copies.address,
            copies_before=len(memory.copies_before),
            copies_after=len(memory.copies_after),
        )

    def _set(self, **words: int) -> None:
        for name, value in words.items():
            self._block.ints[SLOT_INDEX[name]] = value

    def _bind(self, kernel: SerialisedKernel, number: int, iteration: int) -> Record:
        """A kernel with the memory of an iteration."""
        native = code_of(kernel, self._codes)
        block = ArgumentBlock.holding([slot if isinstance(slot, int) else 0 for slot in kernel.slots])
        bases = {"arena": self._arena.ctypes.data, "interrupt": interrupt_flag_address(), "run": pool_run_address()}
        bases["status"] = self._statuses.buffer_info()[0] + 8 * number
        located = self._memory.locations(iteration) | {key_of(self._plan.arguments[0]): self._index.ctypes.data}
        for index, slot in enumerate(kernel.slots):
            if isinstance(slot, int):
                continue
            if slot.kind == "scratch":
                block.ints[index] = self._scratch[slot.buffer].ctypes.data
            elif slot.kind in ("external", "cell"):
                self._bind_location(block, index, located[slot.buffer], slot.offset)
            else:
                block.ints[index] = bases[slot.kind] + slot.offset
        return native.addresses[kernel.symbol], kernel.total, kernel.grain, block

    def _bind_location(self, block: ArgumentBlock, index: int, location: Buffer | int, offset: int) -> None:
        if isinstance(location, Buffer):
            self._binder.bind_slot(block, index, location, offset)
        else:
            block.ints[index] = location + offset

    def wait(self) -> None:
        """Returns when there is code to call."""
        for kernel in self._kernels:
            code_of(kernel, self._codes).wait()

    @property
    def _has_checks(self) -> bool:
        return any(kernel.sites for kernel in self._kernels)

    @property
    def status_address(self) -> int:
        """Where the word is that says whether a check failed; 0 if nothing is checked."""
        return self._status.buffer_info()[0] if self._has_checks else 0

    def run(self, values: dict[Any, Any]) -> None:
        for words in (self._statuses, self._status):  # what a run that was interrupted found wrong
            words[:] = array("q", [_CLEAN] * len(words))
        if self._invoke(*self.record):
            raise KeyboardInterrupt
        self._status[0] = _CLEAN
        for status, kernel in zip(self._statuses, self._kernels, strict=False):
            if kernel.sites and status != _CLEAN:
                raise kernel_failure(status, kernel.sites)
