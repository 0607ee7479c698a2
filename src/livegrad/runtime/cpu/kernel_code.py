"""Native code of kernels, compiled once for all nests of one key."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from livegrad.codegen.check_sites import resolve_sites
from livegrad.codegen.llvm.kernel_module import KernelText, emit_kernel
from livegrad.compiler import lower_loops, tile_loops
from livegrad.diagnostics import Mark
from livegrad.ir.line_sites import SourceLocations, lines_to_blame, replace_locations
from livegrad.ir.lru import LruCache
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.native import fourier, ordering
from livegrad.runtime.cpu.native.chain_kernel import LIBRARY as CHAIN
from livegrad.runtime.cpu.native.chain_kernel import chain_library
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import object_key
from livegrad.runtime.cpu.native.llvm_passes import LOOP_SPEED, suitable_speed
from livegrad.runtime.cpu.native.matmul import library as product_library
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel, SerialisedPlan
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.cpu.tiers import (
    BaselineCompiler,
    Code,
    CodeChoice,
    OptimizedModule,
    Source,
    TieredFunction,
    code_choice,
    compile_optimized,
    load_code,
)
from livegrad.runtime.object_cache import ObjectCache, default_cache
from livegrad.runtime.serialised import emitter_stamp
from livegrad.schedule.loops.nest import LoopNest, RowTile, for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from livegrad.state import Owned, renew_lock_after_fork

ALIGNMENT = 64
_MOST_KERNELS = 2048


@dataclass(frozen=True)
class CompiledKernel:
    """The text of a kernel, and its native code."""

    text: KernelText
    key: bytes
    native: Code


@dataclass(frozen=True)
class ReadyStep:
    """A kernel step as the CPU runs it, with every number that it needs, and its code, which may be on its way."""

    nest: LoopNest
    code: CompiledKernel


class KernelCache:
    """The kernels of a session: by the key of their loop nest, and by the key of their code."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")
        self.compiled: LruCache[tuple[Any, ...], CompiledKernel] = LruCache(_MOST_KERNELS)
        self.loaded: LruCache[bytes, Code] = LruCache(_MOST_KERNELS)


kernel_cache = Owned(KernelCache)


class Compiling:
    """The code of a plan's kernels, which come one by one: what is new is compiled while the next ones are written.

    They may come as soon as they are scheduled (`begin`), long before there is a plan.
    """

    def __init__(self, target: Target = CPU) -> None:
        self._target = target
        self._choice: CodeChoice = code_choice()
        self._baseline = BaselineCompiler(verified=self._choice == "quick")  # no other tier follows
        self._new: dict[tuple[Any, ...], CompiledKernel] = {}
        self._codes: dict[bytes, Code] = {}  # of the new ones
        self._begun: dict[int, tuple[KernelStep, ReadyStep]] = {}  # by the identity of the step, which stays alive

    def begin(self, step: KernelStep) -> None:
        """Has a step's kernel compiled, in the form in which it runs by itself: nearly always, a chain has the same."""
        if id(step) not in self._begun:
            nest = lower_loops(for_cpu(step, self._target, host_target().vector_bytes))
            self._begun[id(step)] = step, ReadyStep(nest, self.add(nest))

    def ready(self, step: KernelStep, rows: RowTile | None) -> ReadyStep:
        """A step of the plan, by itself or in a chain over these rows."""
        if rows is None:
            self.begin(step)
            return self._begun[id(step)][1]
        _, begun = self._begun.get(id(step), (step, None))
        if begun is not None and not begun.nest.reordered:
            nest = tile_loops(begun.nest, rows)
        else:
            nest = lower_loops(for_cpu(step, self._target, host_target().vector_bytes, rows))
        return ReadyStep(nest, self.add(nest))

    def add(self, nest: LoopNest) -> CompiledKernel:
        """The kernel's code, made when it is asked for first; it may be on its way.

        Kernels that differ in nothing but the lines that their checks name share it; each has its own lines beside it.
        """
        plain, locations = _with_marks(nest)
        key = (plain.key, self._choice)
        code = self._new.get(key) or _cached_kernel(key)
        if code is None:
            code = self._new[key] = self._load_or_compile(plain)
        else:
            self._baseline.go_on()
        return _resolve_sites(code, locations) if locations else code

    def _load_or_compile(self, nest: LoopNest) -> CompiledKernel:
        """Code for a kernel that is not in memory: what the disk has, or else compiled, quickly where that will do."""
        source = _source(nest, self._choice)
        code = self._codes.get(source.key) or _load(source.key, source.cache)
        if code is None:
            is_baseline = source.fits_the_stack and self._choice != "good"
            code = self._baseline.add(source) if is_baseline else compile_optimized(source)
        self._codes[source.key] = code
        return CompiledKernel(source.baseline, source.key, code)

    def close(self) -> None:
        """Keeps what is new; no more kernels come."""
        images = self._baseline.close()
        if self._choice == "both" and images:
            background_compiler.current.tier_up(images)
        for code in images if self._choice == "quick" else ():
            background_compiler.current.later(code.leave_behind)
        cache = kernel_cache.current
        with cache.lock:
            for key, new in self._new.items():
                cache.compiled.keep(key, new)
                cache.loaded.keep(new.key, new.native)


def _cached_kernel(key: tuple[Any, ...]) -> CompiledKernel | None:
    cache = kernel_cache.current
    with cache.lock:
        return cache.compiled.use(key)


def _with_marks(nest: LoopNest) -> tuple[LoopNest, SourceLocations]:
    """The nest with a mark for each line that a check of its kernel may blame, and those lines by number."""
    stages = nest.kernel.stages
    lines = dict.fromkeys(line for stage in stages for line in lines_to_blame(stage.body))
    if not lines:
        return nest, ()
    marks = {line: Mark(number) for number, line in enumerate(lines)}
    marked = tuple([replace(stage, body=replace_locations(stage.body, marks)) for stage in stages])
    return nest.with_stages(marked), tuple(marks)


def _resolve_sites(code: CompiledKernel, locations: SourceLocations) -> CompiledKernel:
    return replace(code, text=replace(code.text, sites=resolve_sites(code.text.sites, locations)))


def _source(nest: LoopNest, choice: CodeChoice) -> Source:
    """The baseline module of a kernel, and the key of its code: that text, the lanes and the emitter decide it."""
    baseline = emit_kernel(nest, quick=True)
    stays = "quick" if choice == "quick" else "better"  # soon, if not at once
    left_out = (nest.lanes, nest.vector.streams, nest.non_temporal, nest.memories)  # by the baseline
    key = object_key("\n".join([emitter_stamp(), stays, repr(left_out), baseline.text]), 0)
    return Source(key, baseline, lambda: _optimized_module(nest), default_cache(), nest.lanes * 4)


def _optimized_module(nest: LoopNest) -> OptimizedModule:
    written = emit_kernel(nest)
    speed = LOOP_SPEED if written.has_scalar_loops else suitable_speed(written.text)
    return OptimizedModule(written.text, written.math, speed)


def _load(key: bytes, cache: ObjectCache) -> Code | None:
    """Code by its key: from memory, or else the best that is on disk."""
    memory = kernel_cache.current
    with memory.lock:
        loaded = memory.loaded.use(key)
    if loaded is not None:
        return loaded
    code = load_code(key, cache)
    if isinstance(code, TieredFunction) and code_choice() == "both":
        background_compiler.current.tier_up([code])
    return code


def loaded(key: bytes) -> Code | None:
    """Native code by its key: from memory, or from the disk cache if it is there."""
    native = _load(key, default_cache())
    if native is not None:
        memory = kernel_cache.current
        with memory.lock:
            memory.loaded.keep(key, native)
    return native


def codes_of(serialised: SerialisedPlan) -> dict[bytes, Code] | None:
    """The native code of a serialised plan's kernels by key; None when some of it is no longer in the cache.

    It may be on its way: `wait` for it before it is called.
    """
    every = [single for kernel in serialised.kernels for single in (kernel.members or (kernel,))]
    codes: dict[bytes, Code] = {}
    for key in {kernel.object_key for kernel in every if not kernel.library}:
        native = loaded(key)
        if native is None:
            return None
        codes[key] = native
    return codes


def code_of(kernel: SerialisedKernel, codes: Mapping[bytes, Code]) -> Code:
    """What a serialised plan's kernel is a function of: a library, or its own code."""
    if kernel.library == CHAIN:
        return chain_library()
    for other in (fourier, ordering):
        if kernel.library.startswith(other.PREFIX):
            return other.library(kernel.library, kernel.symbol)
    return product_library(kernel.library, kernel.symbol) if kernel.library else codes[kernel.object_key]


def kernels_in_memory() -> int:
    """How many kernels are loaded: it grows with every kernel that is new, whether compiled or read from disk."""
    memory = kernel_cache.current
    with memory.lock:
        return len(memory.loaded)


def forget_kernels() -> None:
    """Drops all compiled kernels from memory; those on disk stay."""
    memory = kernel_cache.current
    with memory.lock:
        memory.compiled.clear()
        memory.loaded.clear()
