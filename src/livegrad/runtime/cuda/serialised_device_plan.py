"""Serialised device executables: everything needed to run a plan on the device, as plain data that can be loaded from a
file.

`serialise_plan` serialises a plan; `function.py` stores the result on disk with the cubins that it names.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from livegrad.codegen.check_sites import Site, decode_sites, encode_sites
from livegrad.codegen.cuda.kernel import KernelText, emit_kernel
from livegrad.codegen.cuda.launch import Bound, Word, bind
from livegrad.ir.types import SCALARS
from livegrad.ops.movement import permute
from livegrad.runtime.cpu.serialised_plan import SerialisedArray, compiler_stamp
from livegrad.runtime.cuda.dependencies import dependencies
from livegrad.runtime.cuda.libraries import LIBRARY_CALLS, LibraryCall
from livegrad.runtime.cuda.nvrtc import compile_with_key, load_compiled
from livegrad.schedule.loops.device import remembers
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Plan


@dataclass(frozen=True)
class SerialisedLaunch:
    """One launch of a kernel: its code by key, its words, how many threads run it, and the memory it takes."""

    number: int  # of the step
    name: str
    code: bytes
    words: tuple[Word, ...]
    grid: int
    threads: int
    workers: int
    scratch: tuple[tuple[int, int], ...]  # (buffer, bytes for all workers)
    partial_bytes: int
    counters: int
    remembers: bool
    polls: bool
    sites: tuple[Site, ...]


@dataclass(frozen=True)
class SerialisedLibraryCall:
    """One call of a library that is captured into the graph, and the slots of its operands and result."""

    number: int
    call: LibraryCall
    operands: tuple[Word, ...]
    result: Word


@dataclass(frozen=True)
class SerialisedHostStep:
    """One step that the host runs."""

    number: int


@dataclass(frozen=True)
class SerialisedGraph:
    """Launches that run as one graph, and for each the places of those before it."""

    launches: tuple[SerialisedLaunch | SerialisedLibraryCall, ...]
    dependencies: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SerialisedDevicePlan:
    """A whole plan: graphs, and steps of the host between them."""

    segments: tuple[SerialisedGraph | SerialisedHostStep, ...]
    arguments: tuple[SerialisedArray | None, ...]  # None: no array, but an object of the host
    results: tuple[SerialisedArray | None, ...]
    arena_bytes: int
    steps: int

    @property
    def launches(self) -> tuple[SerialisedLaunch | SerialisedLibraryCall, ...]:
        return tuple(
            launch for segment in self.segments if isinstance(segment, SerialisedGraph) for launch in segment.launches
        )

    @property
    def kernels(self) -> list[SerialisedLaunch]:
        return [launch for launch in self.launches if isinstance(launch, SerialisedLaunch)]


# --- from plans ------------------------------------------------------------------------------------------------------


def serialise_plan(plan: Plan, architecture: str, ieee: bool = False) -> SerialisedDevicePlan:
    """The plan as a serialised plan, with its kernels compiled."""
    emitted = _emitted_kernels(plan, architecture, ieee)
    segments: list[SerialisedGraph | SerialisedHostStep] = []
    waiting: list[tuple[KernelStep | HostStep, SerialisedLaunch | SerialisedLibraryCall]] = []

    def close() -> None:
        if waiting:
            order = dependencies([step for step, _ in waiting], plan, *_sharing([made for _, made in waiting]))
            segments.append(SerialisedGraph(tuple(made for _, made in waiting), tuple(map(tuple, order))))
            waiting.clear()

    for number, step in enumerate(plan.steps):
        if isinstance(step, KernelStep):
            if all(step.domain):
                waiting.append((step, _serialise_launch(number, step, *emitted[number])))
        elif (library := _serialise_library_call(number, step, plan)) is not None:
            waiting.append((step, library))
        else:
            close()
            segments.append(SerialisedHostStep(number))
    close()
    sides = [
        tuple(SerialisedArray(s.number, s.element, s.shape) if isinstance(s, Buffer) else None for s in slots)
        for slots in (plan.arguments, plan.results)
    ]
    return SerialisedDevicePlan(tuple(segments), sides[0], sides[1], plan.arena_bytes, len(plan.steps))


def _sharing(launches: list[SerialisedLaunch | SerialisedLibraryCall]) -> tuple[list[int], list[int]]:
    """Launches that share memory which is no buffer of the plan: that of tapes, and the libraries' own."""
    remembering = [n for n, made in enumerate(launches) if isinstance(made, SerialisedLaunch) and made.remembers]
    return remembering, [n for n, made in enumerate(launches) if isinstance(made, SerialisedLibraryCall)]


def _emitted_kernels(plan: Plan, architecture: str, ieee: bool) -> dict[int, tuple[Bound, KernelText, bytes]]:
    """The kernels of a plan by the numbers of their steps, with the keys of their code; compiled side by side."""
    found: dict[int, tuple[Bound, KernelText]] = {}
    for number, step in enumerate(plan.steps):
        if isinstance(step, KernelStep) and all(step.domain):
            bound = bind(step, plan, share_rows=True)
            found[number] = bound, emit_kernel(bound.nest, ieee)
    names = {text.text: plan.steps[number].kernel.name for number, (_, text) in found.items()}  # type: ignore[union-attr]

    def compiled(text: str) -> bytes:
        return compile_with_key(text, architecture, names[text])

    if len(names) > 1:
        with ThreadPoolExecutor(min(len(names), os.cpu_count() or 1), thread_name_prefix="livegrad-nvrtc") as pool:
            keys = dict(zip(names, pool.map(compiled, names), strict=True))
    else:
        keys = {text: compiled(text) for text in names}
    return {number: (bound, text, keys[text.text]) for number, (bound, text) in found.items()}


def _serialise_launch(number: int, step: KernelStep, bound: Bound, text: KernelText, code: bytes) -> SerialisedLaunch:
    scratch = {
        view.buffer.base.number: bound.workers * bound.scratch_bytes
        for port, view in zip(step.kernel.outputs, step.outputs, strict=True)
        if port.scratch
    }
    return SerialisedLaunch(
        number,
        step.kernel.name,
        code,
        tuple(bound.words[name] for name in text.words),
        bound.grid,
        bound.threads,
        bound.workers,
        tuple(scratch.items()),
        bound.partial_bytes,
        bound.counters,
        text.uses_tapes or remembers(step.kernel),
        text.polls,
        text.sites,
    )


def _serialise_library_call(number: int, step: HostStep, plan: Plan) -> SerialisedLibraryCall | None:
    """A step of the host as the call of a library on the device; None where none does it."""
    make = LIBRARY_CALLS.get(step.op)
    call = make(step) if make is not None else None
    if call is None or not isinstance(step.result, Buffer):
        return None
    return SerialisedLibraryCall(
        number, call, tuple(_place(s, plan) for s in _operand_slots(step)), _place(step.result, plan)
    )


def _operand_slots(step: HostStep) -> list[Buffer]:
    """Where each operand of the step's op lies: the same slot may be several of them, or be seen transposed."""
    nodes = [node.operands[0] if node.op is permute else node for node in step.function.results[0].operands]
    slots = [step.operands[node.attribute("index")] for node in nodes]
    return [slot for slot in slots if isinstance(slot, Buffer)]


def _place(buffer: Buffer, plan: Plan) -> Word:
    base = buffer.base
    return Word("arena", 0, plan.places[base]) if base.lifetime == "graph" else Word("external", base.number, 0)


# --- on disk ---------------------------------------------------------------------------------------------------------


def serialised_plan_key(digest: bytes, sizes: Mapping[str, int], architecture: str, ieee: bool) -> bytes:
    """What names a serialised plan in the cache: the function, its sizes, the device's kind and this very compiler."""
    parts = ["cuda", digest.hex(), json.dumps(sorted(sizes.items())), architecture, str(ieee), compiler_stamp()]
    return hashlib.sha256("\n".join(parts).encode()).digest()


def encode(serialised: SerialisedDevicePlan) -> bytes | None:
    """The serialised plan as JSON; None for one that the host or a library takes part in."""
    if (
        any(isinstance(segment, SerialisedHostStep) for segment in serialised.segments)
        or None in serialised.arguments + serialised.results
    ):
        return None
    graphs = []
    for segment in serialised.segments:
        assert isinstance(segment, SerialisedGraph)
        launches = []
        for made in segment.launches:
            if isinstance(made, SerialisedLibraryCall):
                return None
            words = [[word.kind, word.slot, word.value] for word in made.words]
            sites = encode_sites(made.sites)
            numbers = [made.grid, made.threads, made.workers, made.partial_bytes, made.counters]
            flags = [made.remembers, made.polls]
            launches.append([made.number, made.name, made.code.hex(), words, numbers, made.scratch, flags, sites])
        graphs.append([launches, segment.dependencies])
    arrays = [
        [[a.number, a.element.name, a.shape] for a in side if a] for side in (serialised.arguments, serialised.results)
    ]
    return json.dumps([graphs, *arrays, serialised.arena_bytes, serialised.steps]).encode()


def decode(data: bytes) -> SerialisedDevicePlan | None:
    """The serialised plan from JSON; None when this is none, or when code that it names is no longer there."""
    try:
        graphs, arguments, results, arena_bytes, steps = json.loads(data)
        segments = tuple(
            SerialisedGraph(tuple(map(_launch, launches)), tuple(map(tuple, before))) for launches, before in graphs
        )
        sides = [tuple(SerialisedArray(n, SCALARS[e], tuple(s)) for n, e, s in side) for side in (arguments, results)]
    except (ValueError, KeyError, TypeError):
        return None
    serialised = SerialisedDevicePlan(segments, sides[0], sides[1], arena_bytes, steps)
    return serialised if all(load_compiled(made.code) is not None for made in serialised.kernels) else None


def _launch(data: list[Any]) -> SerialisedLaunch:
    number, name, code, words, (grid, threads, workers, partial, counters), scratch, (keeps, polls), sites = data
    found = decode_sites(sites)
    return SerialisedLaunch(
        number,
        name,
        bytes.fromhex(code),
        tuple(Word(*word) for word in words),
        grid,
        threads,
        workers,
        tuple((number, size) for number, size in scratch),
        partial,
        counters,
        keeps,
        polls,
        found,
    )
