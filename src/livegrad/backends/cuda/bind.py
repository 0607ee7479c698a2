"""From a kernel step to a launch: the layout that decides its code, its words, and how many threads run it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from livegrad.backends.cpu.bind import simplify_dimensions
from livegrad.ir.types import Trace, inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.plan import Buffer, KernelStep, Plan, View

StrideKind = Literal["zero", "one", "any"]
WordKind = Literal["number", "external", "cell", "value", "arena", "scratch", "status", "traces", "trace_bytes", "full"]

_THREADS = 256
_LEAST_FOR_A_BLOCK = 32  # inner points of a row that are worth a block of threads
_FEW_ROWS = 4096  # with fewer, threads would idle if each took a row
# With memory of its own for each thread (or block), only so many run at once and take rows in turn.
_MOST_BLOCKS_WITH_MEMORY, _MOST_THREADS_WITH_MEMORY = 2048, 1 << 15


@dataclass(frozen=True)
class Layout:
    """What the code depends on besides the kernel: who runs a row, ranks after merging, strides, width of indices."""

    rows: Literal["thread", "block"]
    domain_rank: int
    inner_rank: int
    reads: tuple[tuple[StrideKind, ...], ...]
    outputs: tuple[tuple[StrideKind, ...], ...]
    by_value: tuple[bool, ...]  # of the uniforms: part of the arguments, or read from memory
    index: Literal["int", "long long"]


@dataclass(frozen=True)
class Word:
    """One word of a kernel's arguments: a number, or an offset into something that has an address at run time."""

    kind: WordKind
    slot: int = 0
    value: int = 0


@dataclass(frozen=True)
class Bound:
    """A kernel step ready to compile and launch."""

    layout: Layout
    words: dict[str, Word]
    grid: int
    threads: int
    workers: int  # how many run at once, each with scratch or traces of its own
    scratch_bytes: int  # for each worker


def bind(step: KernelStep, plan: Plan) -> Bound:
    """The layout of a step, its words by name, and its launch."""
    kernel = step.kernel
    domain, inner = list(step.domain), list(step.inner)
    strides = [list(view.strides) for view in (*step.reads, *step.outputs)]
    if not kernel.uses_index:
        simplify_dimensions(domain, inner, strides, kernel)
    reads, outputs = strides[: len(step.reads)], strides[len(step.reads) :]
    rows, points = prod(domain), _points(step, inner)
    as_block = kernel.along and points > 1 and (points >= _LEAST_FOR_A_BLOCK or rows < _FEW_ROWS)
    layout = Layout(
        "block" if as_block else "thread",
        len(domain),
        len(inner),
        _kinds(reads),
        _kinds(outputs),
        tuple(_is_cell(view.buffer, plan) and view.buffer.element.dtype.itemsize <= 8 for view in step.uniforms),
        _index_type(domain, inner, strides),
    )
    grid, threads, workers = _launch(kernel, layout, rows, points)
    scratch = max((v.buffer.bytes for p, v in zip(kernel.outputs, step.outputs, strict=True) if p.scratch), default=0)
    scratch = -(-scratch // 16) * 16
    words = _words(step, plan, layout, domain, inner, strides)
    words |= {"rows": Word("number", 0, rows), "scratch_bytes": Word("number", 0, scratch)}
    return Bound(layout, words, grid, threads, workers, scratch)


def _points(step: KernelStep, inner: list[int]) -> int:
    """Inner points that one row sweeps."""
    return min(step.chunk, inner[0]) * prod(inner[1:]) if step.kernel.split else prod(inner)


def _kind(stride: int) -> StrideKind:
    return "zero" if stride == 0 else "one" if stride == 1 else "any"


def _kinds(rows: list[list[int]]) -> tuple[tuple[StrideKind, ...], ...]:
    return tuple(tuple(_kind(stride) for stride in own) for own in rows)


def _index_type(domain: list[int], inner: list[int], strides: list[list[int]]) -> Literal["int", "long long"]:
    """Short indices where every count and every offset fits with room to spare: division is far quicker on them."""
    sizes = (*domain, *inner)
    reach = [sum(abs(s) * (n - 1) for s, n in zip(own, sizes, strict=False)) for own in strides]
    return "int" if max([prod(domain), prod(inner), *reach], default=0) < 1 << 30 else "long long"


def remembers(kernel: Kernel) -> bool:
    """Whether a kernel's threads need memory for traces."""
    functions = [f for stage in kernel.stages for f in reachable_functions([stage.body])]
    types = {node.type for function in functions for node in nodes_of(function)}
    return any(isinstance(inner, Trace) for type in types for inner in inner_types(type))


def _launch(kernel: Kernel, layout: Layout, rows: int, points: int) -> tuple[int, int, int]:
    threads = _THREADS
    if layout.rows == "block":
        while threads > 32 and threads >= 2 * points:
            threads //= 2
        grid = rows
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, _MOST_BLOCKS_WITH_MEMORY)
    else:
        threads = min(_THREADS, max(32, 1 << max(0, rows - 1).bit_length()))
        grid = -(-rows // threads)
        if any(port.scratch for port in kernel.outputs):
            grid = min(grid, _MOST_THREADS_WITH_MEMORY // threads)
    if remembers(kernel):
        grid = min(grid, _MOST_THREADS_WITH_MEMORY // threads)
    grid = min(grid, (1 << 31) - 1)
    return grid, threads, grid * threads


# --- words -----------------------------------------------------------------------------------------------------------


def _words(
    step: KernelStep, plan: Plan, layout: Layout, domain: list[int], inner: list[int], strides: list[list[int]]
) -> dict[str, Word]:
    """What each word that a kernel may take holds."""
    words = {"status": Word("status"), "full": Word("full"), "traces": Word("traces")}
    words |= {"trace_bytes": Word("trace_bytes"), "chunk": Word("number", 0, step.chunk)}
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
    for number, (view, by_value) in enumerate(zip(step.uniforms, layout.by_value, strict=True)):
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
