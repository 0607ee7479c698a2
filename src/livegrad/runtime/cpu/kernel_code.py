"""Compiles kernels to native code, once for all loop nests of one key.

In: kernel steps of a plan, or a serialised plan. Out: their loop nests with code, from memory, the disk cache or the
compiler (`tiers.py`). Called by `plan_serialiser.py` and `compiled_plan.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from livegrad.codegen.check_sites import resolve_sites
from livegrad.codegen.llvm.kernel_module import KernelText, emit_kernel
from livegrad.compiler import lower_loops, tile_loops
from livegrad.diagnostics import Mark
from livegrad.ir.line_sites import SourceLocations, check_lines, replace_locations
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
    KernelSource,
    OptimizedModule,
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

_MAX_KERNELS = 2048


@dataclass(frozen=True)
class CompiledKernel:
    """The baseline LLVM module of a kernel, and its native code."""

    text: KernelText
    key: bytes
    native: Code


@dataclass(frozen=True)
class CompiledStep:
    """A kernel step with its loop nest and its code, which may still be compiling."""

    nest: LoopNest
    code: CompiledKernel


class KernelCache:
    """The kernels of a session: by the key of their loop nest, and by the key of their code."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")
        self.compiled: LruCache[tuple[Any, ...], CompiledKernel] = LruCache(_MAX_KERNELS)
        self.loaded: LruCache[bytes, Code] = LruCache(_MAX_KERNELS)


kernel_cache = Owned(KernelCache)


class KernelCompiler:
    """Compiles the kernels of one plan in the background, while the next ones are emitted.

    Kernels may be added as soon as they are scheduled (`start`), before the plan is complete.
    """

    def __init__(self, target: Target = CPU) -> None:
        self._target = target
        self._choice: CodeChoice = code_choice()
        self._baseline = BaselineCompiler(verified=self._choice == "baseline")  # the optimised tier is always verified
        self._new: dict[tuple[Any, ...], CompiledKernel] = {}
        self._codes: dict[bytes, Code] = {}  # of the new kernels
        self._started: dict[int, tuple[KernelStep, CompiledStep]] = {}  # by the id of the step, which is kept alive

    def start(self, step: KernelStep) -> None:
        """Starts to compile a step's kernel for use outside row chains; in a chain, it usually has the same code."""
        if id(step) not in self._started:
            nest = lower_loops(for_cpu(step, self._target, host_target().vector_bytes))
            self._started[id(step)] = step, CompiledStep(nest, self.add(nest))

    def compile_step(self, step: KernelStep, rows: RowTile | None) -> CompiledStep:
        """The code of a step, for use outside chains or in a chain over these rows. It may still be compiling."""
        if rows is None:
            self.start(step)
            return self._started[id(step)][1]
        _, compiled = self._started.get(id(step), (step, None))
        if compiled is not None and not compiled.nest.reordered:
            nest = tile_loops(compiled.nest, rows)
        else:
            nest = lower_loops(for_cpu(step, self._target, host_target().vector_bytes, rows))
        return CompiledStep(nest, self.add(nest))

    def add(self, nest: LoopNest) -> CompiledKernel:
        """The kernel's code, which may still be compiling.

        Kernels that differ only in the source lines of their checks share code; each keeps its own lines.
        """
        marked, locations = _mark_locations(nest)
        key = (marked.key, self._choice)
        code = self._new.get(key) or _cached_kernel(key)
        if code is None:
            code = self._new[key] = self._load_or_compile(marked)
        else:
            self._baseline.compile_if_idle()
        return _resolve_sites(code, locations) if locations else code

    def _load_or_compile(self, nest: LoopNest) -> CompiledKernel:
        """Loads code from disk, or compiles it, with the baseline tier if possible."""
        source = _source(nest, self._choice)
        code = self._codes.get(source.key) or _load(source.key, source.cache)
        if code is None:
            is_baseline = source.fits_the_stack and self._choice != "optimised"
            code = self._baseline.add(source) if is_baseline else compile_optimized(source)
        self._codes[source.key] = code
        return CompiledKernel(source.baseline, source.key, code)

    def close(self) -> None:
        """Caches the new kernels. No more may be added."""
        functions = self._baseline.close()
        if self._choice == "tiered" and functions:
            background_compiler.current.tier_up(functions)
        for function in functions if self._choice == "baseline" else ():
            background_compiler.current.later(function.store_baseline)
        cache = kernel_cache.current
        with cache.lock:
            for key, new in self._new.items():
                cache.compiled.keep(key, new)
                cache.loaded.keep(new.key, new.native)


def _cached_kernel(key: tuple[Any, ...]) -> CompiledKernel | None:
    cache = kernel_cache.current
    with cache.lock:
        return cache.compiled.use(key)


def _mark_locations(nest: LoopNest) -> tuple[LoopNest, SourceLocations]:
    """Replaces the source locations in the checks of a nest by numbered marks; also returns the locations."""
    stages = nest.kernel.stages
    lines = dict.fromkeys(line for stage in stages for line in check_lines(stage.body))
    if not lines:
        return nest, ()
    marks = {line: Mark(number) for number, line in enumerate(lines)}
    marked = tuple([replace(stage, body=replace_locations(stage.body, marks)) for stage in stages])
    return nest.with_stages(marked), tuple(marks)


def _resolve_sites(code: CompiledKernel, locations: SourceLocations) -> CompiledKernel:
    return replace(code, text=replace(code.text, sites=resolve_sites(code.text.sites, locations)))


def _source(nest: LoopNest, choice: CodeChoice) -> KernelSource:
    """The baseline module of a kernel, and the key of its code.

    The key is a hash of the baseline module, of decisions that only affect the optimised module, and of the emitter's
    version, so that a lookup need not emit the optimised module.
    """
    baseline = emit_kernel(nest, is_baseline=True)
    final_tier = "baseline" if choice == "baseline" else "optimised"
    ignored_by_baseline = (nest.lanes, nest.vector.streams, nest.non_temporal, nest.memories)
    key = object_key("\n".join([emitter_stamp(), final_tier, repr(ignored_by_baseline), baseline.text]), 0)
    return KernelSource(key, baseline, lambda: _optimized_module(nest), default_cache(), nest.lanes * 4)


def _optimized_module(nest: LoopNest) -> OptimizedModule:
    kernel = emit_kernel(nest)
    speed = LOOP_SPEED if kernel.has_scalar_loops else suitable_speed(kernel.text)
    return OptimizedModule(kernel.text, kernel.math, speed)


def _load(key: bytes, cache: ObjectCache) -> Code | None:
    """Code by its key, from memory or disk. Baseline code from disk is recompiled in the background."""
    memory = kernel_cache.current
    with memory.lock:
        loaded = memory.loaded.use(key)
    if loaded is not None:
        return loaded
    code = load_code(key, cache)
    if isinstance(code, TieredFunction) and code_choice() == "tiered":
        background_compiler.current.tier_up([code])
    return code


def _load_and_cache(key: bytes) -> Code | None:
    """Code by its key, from memory or from the disk cache; keeps it in memory."""
    native = _load(key, default_cache())
    if native is not None:
        memory = kernel_cache.current
        with memory.lock:
            memory.loaded.keep(key, native)
    return native


def codes_of(serialised: SerialisedPlan) -> dict[bytes, Code] | None:
    """The native code of a serialised plan's kernels by key; None if some of it is no longer in the cache.

    The code may still be compiling: `wait` for it before calling it.
    """
    kernels = [member for kernel in serialised.kernels for member in (kernel.members or (kernel,))]
    codes: dict[bytes, Code] = {}
    for key in {kernel.object_key for kernel in kernels if not kernel.library}:
        native = _load_and_cache(key)
        if native is None:
            return None
        codes[key] = native
    return codes


def code_of(kernel: SerialisedKernel, codes: Mapping[bytes, Code]) -> Code:
    """The code of a serialised kernel: a function of a library, or code compiled for it."""
    if kernel.library == CHAIN:
        return chain_library()
    for module in (fourier, ordering):
        if kernel.library.startswith(module.PREFIX):
            return module.library(kernel.library, kernel.symbol)
    return product_library(kernel.library, kernel.symbol) if kernel.library else codes[kernel.object_key]


def kernels_in_memory() -> int:
    """The number of kernels in memory, compiled or read from disk."""
    memory = kernel_cache.current
    with memory.lock:
        return len(memory.loaded)


def forget_kernels() -> None:
    """Drops all compiled kernels from memory. The disk cache keeps them."""
    memory = kernel_cache.current
    with memory.lock:
        memory.compiled.clear()
        memory.loaded.clear()
