"""The memory that the kernels of a plan share: the arena, scratch buffers of threads, and tables of constants.

In: a serialised plan. Out: the addresses in its argument slots that are the same in every run. Called by
`compiled_plan.py`, `loop_body.py` and `native_loops.py`, which bind the slots of arrays that change from run to run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.runtime.cpu.memory_pool import plan_memory
from livegrad.runtime.cpu.native.fourier import table
from livegrad.runtime.cpu.native.invoke import ArgumentBlock
from livegrad.runtime.cpu.native.pool import interrupt_flag_address, pool_run_address
from livegrad.runtime.cpu.native.pool_ir import MAX_THREADS
from livegrad.runtime.cpu.serialised_plan import SerialisedPlan
from livegrad.schedule.plan import ALIGNMENT, Buffer, Plan

# An argument slot, by block and index, and the byte offset of what it refers to in an array that changes between runs.
Patch = tuple[ArgumentBlock, int, int]


class KernelMemory:
    """The shared memory of a plan. It must outlive the argument blocks that have its addresses."""

    def __init__(self, serialised: SerialisedPlan) -> None:
        self._arena = plan_memory(serialised.arena_bytes)
        # For the maximum number of threads, which may change during a run. Untouched pages take no memory.
        sizes = [(size + ALIGNMENT) * MAX_THREADS if size else 0 for size in serialised.scratch]
        self._scratch = [plan_memory(size) for size in sizes]
        self._tables: list[np.ndarray[Any, Any]] = []
        self.arena_start: int = self._arena.ctypes.data

    def address_of(self, slot: ArgumentSlot, library: str, status: int) -> int:
        """The address for a slot of a kernel in a library. `status` is the address of the kernel's status word."""
        match slot.kind:
            case "arena":
                return self.arena_start + slot.offset
            case "scratch":
                return self._scratch[slot.buffer].ctypes.data
            case "status":
                return status
            case "interrupt":
                return interrupt_flag_address()
            case "run":
                return pool_run_address()
            case "table":
                self._tables.append(table(library, slot.buffer, slot.offset))
                return self._tables[-1].ctypes.data
        raise AssertionError(f"a slot of the kind {slot.kind} has no fixed address")

    def array_of(self, buffer: Buffer, plan: Plan) -> np.ndarray[Any, Any]:
        """A buffer in the arena as an array."""
        start = plan.arena_offsets[buffer.base]
        return self._arena[start : start + buffer.bytes].view(buffer.element.dtype).reshape(buffer.shape)
