"""Converts a kernel step to a launch: the layout that determines its code, its argument slots, and the number of
threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot, SlotKind, buffer_slot, is_cell
from livegrad.compiler import lower_loops
from livegrad.schedule.loops.device import DeviceNest, RowRunner, fold_bytes
from livegrad.schedule.loops.dimensions import Dimensions, StrideKind, stride_kinds
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.target import CUDA


@dataclass(frozen=True)
class Layout:
    """Everything besides the kernel that determines the code: who runs a row, ranks after merging, strides, index
    width.

    A row is run by a thread, a warp or a block, or a block runs 32 rows, one for each column of threads.
    """

    rows: RowRunner
    domain_rank: int
    inner_rank: int
    reads: tuple[tuple[StrideKind, ...], ...]
    outputs: tuple[tuple[StrideKind, ...], ...]
    by_value: tuple[bool, ...]  # of the uniforms: part of the arguments, or read from memory
    index: Literal["int", "long long"]
    shared_rows: bool = False  # several blocks share a row; the last one to end stores what all have folded
    heavy: bool = False  # long code, which needs many registers
    at_once: int = 1  # rows that a thread reads before it computes any


@dataclass(frozen=True)
class Bound:
    """A kernel step ready to compile and launch."""

    layout: Layout
    slots: dict[str, int | ArgumentSlot]
    grid: int
    threads: int
    workers: int  # how many run at once, each with scratch or tapes of its own
    scratch_bytes: int  # for each worker
    partial_bytes: int = 0  # what blocks that share rows leave for the last of them
    counters: int = 0  # of four bytes each, zero before the first launch, by which they find out who is last


def bind(step: KernelStep, plan: Plan, share_rows: bool = False) -> Bound:
    """Returns the layout of a step, its argument slots by name, and its launch.

    Blocks share long rows only if the caller has memory for partial results (`partial_bytes`, `counters`).
    """
    kernel = step.kernel
    nest = lower_loops(DeviceNest(step, share_rows), CUDA)
    dimensions, blocks = nest.dimensions, nest.blocks
    layout = Layout(
        nest.runner,
        len(dimensions.domain),
        len(dimensions.inner),
        stride_kinds(dimensions.reads),
        stride_kinds(dimensions.outputs),
        tuple(is_cell(view.buffer, plan) and view.buffer.element.dtype.itemsize <= 8 for view in step.uniforms),
        nest.index,
        blocks > 1,
        nest.heavy,
        nest.at_once,
    )
    scratch = max((v.buffer.bytes for p, v in zip(kernel.outputs, step.outputs, strict=True) if p.scratch), default=0)
    scratch = -(-scratch // 16) * 16
    slots = _argument_slots(step, plan, layout, dimensions)
    slots |= {"rows": nest.rows, "scratch_bytes": scratch, "blocks": blocks}
    partials = sum(fold_bytes(kernel)) * nest.rows * blocks if blocks > 1 else 0
    counters = nest.tiles if blocks > 1 else 0
    return Bound(layout, slots, nest.grid, nest.threads, nest.workers, scratch, partials, counters)


# --- argument slots --------------------------------------------------------------------------------------------------

_RUN_TIME_SLOTS: tuple[SlotKind, ...] = (
    "status", "full", "tapes", "tape_bytes", "interrupt", "partials", "counters",
)  # fmt: skip


def _argument_slots(
    step: KernelStep, plan: Plan, layout: Layout, dimensions: Dimensions
) -> dict[str, int | ArgumentSlot]:
    """Every slot that the kernel may take, by name."""
    domain, inner = dimensions.domain, dimensions.inner
    strides = (*dimensions.reads, *dimensions.outputs)
    slots: dict[str, int | ArgumentSlot] = {kind: ArgumentSlot(kind) for kind in _RUN_TIME_SLOTS}
    slots["chunk"] = step.chunk
    slots |= {f"domain{d}": size for d, size in enumerate(domain)}
    slots |= {f"inner{d}": size for d, size in enumerate(inner)}
    roles = [f"read{n}" for n in range(len(step.reads))] + [f"output{n}" for n in range(len(step.outputs))]
    for role, view, view_strides in zip(roles, (*step.reads, *step.outputs), strides, strict=True):
        slots[role] = buffer_slot(view.buffer, plan, view.offset)
        slots |= {f"{role}_stride{d}": stride for d, stride in enumerate(view_strides)}
    for number, buffer in enumerate(step.wholes):
        slots[f"whole{number}"] = buffer_slot(buffer, plan)
        slots |= {f"whole{number}_extent{d}": size for d, size in enumerate(buffer.shape)}
        slots |= {f"whole{number}_stride{d}": stride for d, stride in enumerate(buffer.strides)}
    for number, (view, by_value) in enumerate(zip(step.uniforms, layout.by_value, strict=True)):
        slot = buffer_slot(view.buffer, plan, view.offset)
        slots[f"uniform{number}"] = ArgumentSlot("value", slot.buffer) if by_value else slot
    return slots


def slot_value(array: np.ndarray[Any, Any]) -> int:
    """A scalar as it is stored in an argument slot: its own bytes, then zeros.

    >>> slot_value(np.array(1.0, np.float32)) == 0x3F800000
    True
    """
    return int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True)
