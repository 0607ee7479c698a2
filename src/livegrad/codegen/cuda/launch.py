"""Converts a kernel step of a plan to a launch: its loop nest, its argument slots, and the memory that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot, SlotKind, buffer_slot, is_cell
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import lower_loops
from livegrad.ir.dimension import round_up
from livegrad.schedule.loops.device import blocks_of_a_row, fold_bytes, row_count, tile_count, worker_count
from livegrad.schedule.loops.nest import LoopNest, for_device
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.target import Target


@dataclass(frozen=True)
class BoundKernel:
    """A kernel step ready to compile and launch."""

    nest: LoopNest
    slots: dict[str, int | ArgumentSlot]
    scratch_bytes: int  # per worker
    partial_bytes: int = 0  # partial results of blocks that share rows, for the last block of each row
    counters: int = 0  # four-byte counters of finished blocks, zero before the first launch

    @property
    def grid(self) -> int:
        return self.nest.rows.extent

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return self.nest.rows.step

    @property
    def workers(self) -> int:
        """The number of concurrent workers, each with scratch memory or tapes of its own."""
        return worker_count(self.nest)


def bind(step: KernelStep, plan: Plan, share_rows: bool = False, target: Target = CUDA) -> BoundKernel:
    """Lowers a step to its loop nest and argument slots.

    With `share_rows`, blocks may share long rows; the caller then allocates `partial_bytes` and `counters`.
    """
    kernel = step.kernel
    by_value = [
        is_cell(view.buffer, plan) and view.buffer.element.dtype.itemsize <= 8 for view in step.scalar_arguments
    ]
    nest = lower_loops(for_device(step, target, share_rows, by_value))
    rows, blocks = row_count(nest), blocks_of_a_row(nest)
    scratch = 0
    if not nest.kept_points:  # otherwise scratch is in registers
        ports = zip(kernel.outputs, step.outputs, strict=True)
        scratch = max((view.buffer.bytes for port, view in ports if port.scratch), default=0)
        scratch = round_up(scratch, 16)
    slots = _argument_slots(nest, plan)
    slots |= {"rows": rows, "scratch_bytes": scratch, "blocks": blocks}
    partials = sum(fold_bytes(kernel)) * rows * blocks if blocks > 1 else 0
    return BoundKernel(nest, slots, scratch, partials, tile_count(nest) if blocks > 1 else 0)


# --- argument slots --------------------------------------------------------------------------------------------------

_RUN_TIME_SLOTS: tuple[SlotKind, ...] = (
    "status", "full", "tapes", "tape_bytes", "interrupt", "partials", "counters",
)  # fmt: skip


def _argument_slots(nest: LoopNest, plan: Plan) -> dict[str, int | ArgumentSlot]:
    """All slots that the kernel may have, by name."""
    step, dimensions = nest.step, nest.dimensions
    domain, inner = dimensions.domain, dimensions.inner
    strides = (*dimensions.reads, *dimensions.outputs)
    slots: dict[str, int | ArgumentSlot] = {kind: ArgumentSlot(kind) for kind in _RUN_TIME_SLOTS}
    slots["chunk"] = step.chunk
    slots |= {f"domain{d}": size for d, size in enumerate(domain)}
    slots |= {f"inner{d}": size for d, size in enumerate(inner)}
    slots |= {f"domain{d}_reciprocal": reciprocal_of(size) for d, size in enumerate(domain)}
    slots |= {f"inner{d}_reciprocal": reciprocal_of(size) for d, size in enumerate(inner)}
    roles = [f"read{n}" for n in range(len(step.reads))] + [f"output{n}" for n in range(len(step.outputs))]
    for role, view, view_strides in zip(roles, (*step.reads, *step.outputs), strides, strict=True):
        slots[role] = buffer_slot(view.buffer, plan, view.offset)
        slots |= {f"{role}_stride{d}": stride for d, stride in enumerate(view_strides)}
    for number, buffer in enumerate(step.indexed_buffers):
        slots[f"whole{number}"] = buffer_slot(buffer, plan)
        slots |= {f"whole{number}_extent{d}": size for d, size in enumerate(buffer.shape)}
        slots |= {f"whole{number}_stride{d}": stride for d, stride in enumerate(buffer.strides)}
    for number, (view, by_value) in enumerate(zip(step.scalar_arguments, nest.by_value, strict=True)):
        slot = buffer_slot(view.buffer, plan, view.offset)
        slots[f"uniform{number}"] = ArgumentSlot("value", slot.buffer) if by_value else slot
    return slots


def reciprocal_of(divisor: int) -> int:
    """A factor of 32 bits and, above it, the shift by which their products are quotients of numbers below 2³¹.

    >>> reciprocal = reciprocal_of(7)
    >>> (1_000_000 * (reciprocal & 0xFFFFFFFF) >> 32) >> ((reciprocal >> 32) - 1), 1_000_000 // 7
    (142857, 142857)
    """
    if not 2 <= divisor < 1 << 31:
        return 0  # the quotient by one is the number itself; longer extents are divided with 64 bits
    shift = (divisor - 1).bit_length()
    return shift << 32 | -(-(1 << (31 + shift)) // divisor)


def slot_value(array: np.ndarray[Any, Any]) -> int:
    """The integer that represents a scalar in an argument slot: its bytes, then zeros.

    >>> slot_value(np.array(1.0, np.float32)) == 0x3F800000
    True
    """
    return int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True)
