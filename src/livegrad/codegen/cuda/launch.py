"""Converts a kernel step to a launch: its loop nest, its argument slots, and the memory it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import lower_loops
from livegrad.schedule.loops.device import blocks_of_a_row, fold_bytes, row_count, tile_count, worker_count
from livegrad.schedule.loops.nest import LoopNest, for_device
from livegrad.schedule.plan import Buffer, KernelStep, Plan, View

WordKind = Literal[
    "number", "external", "cell", "value", "arena", "scratch", "status", "tapes", "tape_bytes", "full", "interrupt",
    "partials", "counters",
]  # fmt: skip


@dataclass(frozen=True)
class Word:
    """One word of a kernel's arguments: a number, or an offset into something that has an address at run time."""

    kind: WordKind
    slot: int = 0
    value: int = 0


@dataclass(frozen=True)
class Bound:
    """A kernel step ready to compile and launch."""

    nest: LoopNest
    words: dict[str, Word]
    scratch_bytes: int  # for each worker
    partial_bytes: int = 0  # what blocks that share rows leave for the last of them
    counters: int = 0  # words of four bytes, zero before the first launch, by which they find out who is last

    @property
    def grid(self) -> int:
        return self.nest.rows.extent

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.nest.rows.step

    @property
    def workers(self) -> int:
        """How many run at once, each with scratch or tapes of its own."""
        return worker_count(self.nest)


def bind(step: KernelStep, plan: Plan, share_rows: bool = False) -> Bound:
    """Returns the loop nest of a step and its argument slots by name.

    Blocks share long rows only if the caller has memory for partial results (`partial_bytes`, `counters`).
    """
    kernel = step.kernel
    by_value = [_is_cell(view.buffer, plan) and view.buffer.element.dtype.itemsize <= 8 for view in step.uniforms]
    nest = lower_loops(for_device(step, CUDA, share_rows, by_value))
    rows, blocks = row_count(nest), blocks_of_a_row(nest)
    scratch = max((v.buffer.bytes for p, v in zip(kernel.outputs, step.outputs, strict=True) if p.scratch), default=0)
    scratch = -(-scratch // 16) * 16
    words = _words(nest, plan)
    words |= {"rows": Word("number", 0, rows), "scratch_bytes": Word("number", 0, scratch)}
    words |= {"blocks": Word("number", 0, blocks)}
    partials = sum(fold_bytes(kernel)) * rows * blocks if blocks > 1 else 0
    return Bound(nest, words, scratch, partials, tile_count(nest) if blocks > 1 else 0)


# --- words -----------------------------------------------------------------------------------------------------------


def _words(nest: LoopNest, plan: Plan) -> dict[str, Word]:
    """What each argument slot of a kernel holds."""
    step, dimensions = nest.step, nest.dimensions
    domain, inner = dimensions.domain, dimensions.inner
    strides = (*dimensions.reads, *dimensions.outputs)
    words = {"status": Word("status"), "full": Word("full"), "tapes": Word("tapes")}
    words |= {"tape_bytes": Word("tape_bytes"), "chunk": Word("number", 0, step.chunk)}
    words |= {"interrupt": Word("interrupt"), "partials": Word("partials"), "counters": Word("counters")}
    words |= {f"domain{d}": Word("number", 0, size) for d, size in enumerate(domain)}
    words |= {f"inner{d}": Word("number", 0, size) for d, size in enumerate(inner)}
    roles = [f"read{n}" for n in range(len(step.reads))] + [f"output{n}" for n in range(len(step.outputs))]
    for role, view, own in zip(roles, (*step.reads, *step.outputs), strides, strict=True):
        words[role] = _place(view, plan)
        words |= {f"{role}_stride{d}": Word("number", 0, stride) for d, stride in enumerate(own)}
    for number, buffer in enumerate(step.wholes):
        words[f"whole{number}"] = _place(View(buffer, 0, ()), plan)
        words |= {f"whole{number}_extent{d}": Word("number", 0, size) for d, size in enumerate(buffer.shape)}
        words |= {f"whole{number}_stride{d}": Word("number", 0, stride) for d, stride in enumerate(buffer.strides)}
    for number, (view, by_value) in enumerate(zip(step.uniforms, nest.by_value, strict=True)):
        place = _place(view, plan)
        words[f"uniform{number}"] = Word("value", place.slot) if by_value else place
    return words


def _is_cell(buffer: Buffer, plan: Plan) -> bool:
    """Whether a buffer is a scalar argument of the plan."""
    base = buffer.base
    return base.lifetime == "external" and base.shape == () and base in plan.arguments


def _place(view: View, plan: Plan) -> Word:
    base = view.buffer.base
    shift = view.offset * view.buffer.element.dtype.itemsize
    if base.lifetime == "region":
        return Word("scratch", base.number, 0)
    if base.lifetime == "graph":
        return Word("arena", 0, plan.places[base] + shift)
    return Word("cell" if _is_cell(base, plan) else "external", base.number, shift)


def word_value(array: np.ndarray[Any, Any]) -> int:
    """A scalar as it stands in a word of the arguments: its own bytes, then zeros.

    >>> word_value(np.array(1.0, np.float32)) == 0x3F800000
    True
    """
    return int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True)
