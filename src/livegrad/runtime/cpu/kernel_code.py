"""Native code of kernels, compiled once for all nests of one key, and plans as serialised executables."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from livegrad.codegen.argument_slots import ArgumentSlot, buffer_slot
from livegrad.codegen.check_sites import resolve_sites
from livegrad.codegen.llvm.kernel_module import KernelText, emit_kernel
from livegrad.codegen.llvm.matmul.product import Product
from livegrad.compiler import lower_loops, tile_loops
from livegrad.diagnostics import Mark
from livegrad.ir.line_sites import SourceLocations, lines_to_blame, replace_locations
from livegrad.ir.lru import LruCache
from livegrad.ops.convolution import convolve
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.matmul_steps import native_convolution, native_product, product_operands
from livegrad.runtime.cpu.native import fourier, ordering
from livegrad.runtime.cpu.native.chain_kernel import LIBRARY as CHAIN
from livegrad.runtime.cpu.native.chain_kernel import chain_library
from livegrad.runtime.cpu.native.convolution import Convolution
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import object_key
from livegrad.runtime.cpu.native.llvm_passes import LOOP_SPEED, suitable_speed
from livegrad.runtime.cpu.native.matmul import library as product_library
from livegrad.runtime.cpu.native.pool_ir import BRIEF
from livegrad.runtime.cpu.ordering_steps import native_ordering
from livegrad.runtime.cpu.row_chains import row_tile
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel, SerialisedPlan
from livegrad.runtime.cpu.step_calls import (
    ChainCall,
    Memory,
    OrderingCall,
    ProductCall,
    StepCall,
    TransformCall,
    rounded,
)
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
from livegrad.runtime.cpu.transform_steps import native_transforms
from livegrad.runtime.object_cache import ObjectCache, default_cache
from livegrad.runtime.serialised import SerialisedArrays, emitter_stamp, serialise_signature
from livegrad.schedule.loops.nest import LoopNest, RowTile, for_cpu
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Plan, RowChain, Step
from livegrad.schedule.target import Target
from livegrad.state import Owned, renew_lock_after_fork

ALIGNMENT = 64
_MOST_KERNELS = 2048
_STATUS, _INTERRUPT = ArgumentSlot("status", 0, 0), ArgumentSlot("interrupt", 0, 0)


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


# --- serialised plans -------------------------------------------------------------------------------------------------


@dataclass
class PlanSerialiser:
    """Spells out a plan's kernels; scratch buffers are numbered as they are met, and products share one."""

    plan: Plan
    scratch: dict[Buffer | RowChain | None, int] = field(default_factory=dict)  # None: for products' left operands
    building: RowChain | None = None
    steps: dict[int, ReadyStep] = field(default_factory=dict)  # by the identity of the plan's

    def prepare(self, compiling: Compiling) -> None:
        """Compiles the kernels of all steps: some while others are written."""
        blocks = {id(step): row_tile(chain) for chain in self.plan.chains for step in chain.steps}
        for step in self.plan.steps:
            if isinstance(step, KernelStep):
                self.steps[id(step)] = compiling.ready(step, blocks.get(id(step)))
        compiling.close()

    def calls(self, step: Step) -> tuple[StepCall, ...] | None:
        """The kernel or product of a step; None for one that the host runs."""
        if isinstance(step, KernelStep):
            return (self._kernel(step),)
        transforms = native_transforms(step)
        if transforms is not None:
            return (self._transforms(step, transforms),)
        wanted = native_ordering(step)
        if wanted is not None:
            return (self._ordering(step, wanted),)
        native = native_convolution(step) or native_product(step)
        return None if native is None else (self._product(step, native),)

    def chain(self, chain: RowChain) -> tuple[StepCall, ...]:
        """A chain that runs tile by tile."""
        self.building, rows = chain, row_tile(chain)
        members: list[SerialisedKernel | ProductCall] = []
        for step in chain.steps:
            if isinstance(step, KernelStep):
                members.append(self._kernel(step))
                continue
            product = native_product(step)
            assert product is not None
            members.append(self._product(step, product))
        self.building = None
        buffers = sorted(chain.private, key=lambda buffer: buffer.number)
        private = tuple([(buffer.number, buffer.bytes // rows.rows * rows.block) for buffer in buffers])
        number = self.scratch.setdefault(chain, len(self.scratch))
        return (ChainCall(tuple(members), private, rows.block, rows.count, number),)

    def _kernel(self, step: KernelStep) -> SerialisedKernel:
        ready = self.steps[id(step)]
        nest, code = ready.nest, ready.code
        text = code.text
        values = self._argument_slots(nest, text.sizes)  # type: ignore[arg-type]
        items = nest.rows
        slots = tuple([values[name] for name in text.slots])
        grain = items.grain + items.brief * BRIEF
        return SerialisedKernel(code.key, slots, items.extent, grain, text.interruptible, text.sites)

    def _product(self, step: HostStep, native: Product | Convolution) -> ProductCall:
        self.scratch.setdefault(None, len(self.scratch))
        left, right = (self._buffer_slot(buffer) for buffer, _ in product_operands(step))
        if step.op is convolve:
            left, right = right, left  # the kernels are the left operand
        assert isinstance(step.result, Buffer)
        return ProductCall(native, left, right, self._buffer_slot(step.result))

    def _transforms(self, step: HostStep, transforms: list[fourier.Transform]) -> TransformCall:
        assert isinstance(step.result, Buffer)
        ((operand, _),) = product_operands(step)
        self.scratch.setdefault(None, len(self.scratch))
        source, result = self._buffer_slot(operand), self._buffer_slot(step.result)
        return TransformCall(tuple(transforms), source, result, step.result.bytes)

    def _ordering(self, step: HostStep, wanted: ordering.Ordering) -> OrderingCall:
        assert isinstance(step.result, Buffer)
        ((operand, _),) = product_operands(step)
        self.scratch.setdefault(None, len(self.scratch))
        return OrderingCall(wanted, self._buffer_slot(operand), self._buffer_slot(step.result))

    def _argument_slots(self, nest: LoopNest, sizes_of_code: Sequence[int]) -> dict[str, int | ArgumentSlot]:
        """Every slot that a kernel may take, by name."""
        step, sizes = nest.step, nest.dimensions
        slots: dict[str, int | ArgumentSlot] = {"status": _STATUS, "interrupt": _INTERRUPT, "block": nest.rows.step}
        slots["run"] = ArgumentSlot("run")
        slots |= {f"size{number}": size for number, size in enumerate(sizes_of_code)}
        slots |= {"chunk": step.chunk, "scratch": _scratch_bytes(nest)}
        slots |= {f"domain{d}": size for d, size in enumerate(sizes.domain)}
        slots |= {f"inner{d}": size for d, size in enumerate(sizes.inner)}
        for role, views, strides in (("read", step.reads, sizes.reads), ("output", step.outputs, sizes.outputs)):
            for number, (view, view_strides) in enumerate(zip(views, strides, strict=True)):
                name = f"{role}{number}"
                slots[name] = self._buffer_slot(view.buffer, view.offset)
                for d, stride in enumerate(view_strides):
                    slots[f"{name}.stride{d}"] = stride
        for number, buffer in enumerate(step.wholes):
            slots[f"whole{number}"] = self._buffer_slot(buffer)
            slots |= {f"whole{number}.extent{d}": size for d, size in enumerate(buffer.shape)}
            slots |= {f"whole{number}.stride{d}": stride for d, stride in enumerate(buffer.strides)}
        for number, view in enumerate(step.uniforms):
            slots[f"uniform{number}"] = self._buffer_slot(view.buffer, view.offset)
        return slots

    def _buffer_slot(self, buffer: Buffer, offset: int = 0) -> ArgumentSlot:
        base = buffer.base
        if self.building is not None and base in self.building.private:
            return ArgumentSlot("private", base.number, offset * buffer.element.dtype.itemsize)
        if base.lifetime == "region":
            return ArgumentSlot("scratch", self.scratch.setdefault(base, len(self.scratch)))
        return buffer_slot(buffer, self.plan, offset)


def _scratch_bytes(nest: LoopNest) -> int:
    """What one thread needs of each scratch buffer of a step: room for a row, or for a row of each lane."""
    step = nest.step
    sizes = [v.buffer.bytes for p, v in zip(step.kernel.outputs, step.outputs, strict=True) if p.scratch]
    return rounded(max(sizes, default=0) * (nest.lanes if nest.across else 1))


@dataclass(frozen=True)
class SerialisedSteps:
    """A plan's steps as calls, None for host steps; the steps of a chain count as its first one."""

    steps: tuple[tuple[StepCall, ...] | None, ...]
    arguments: SerialisedArrays
    results: SerialisedArrays
    arena_bytes: int
    scratch: tuple[int, ...]  # bytes for each thread, without those of products and chains
    product_scratch: int  # the number of the scratch buffer of products, if there are any
    codes: Mapping[bytes, Code]


def serialise_steps(plan: Plan, compiling: Compiling | None = None) -> SerialisedSteps:
    """The steps of a plan, with their code; `compiling` may have begun with it."""
    builder = PlanSerialiser(plan)
    builder.prepare(compiling or Compiling())
    step_number = {id(step): number for number, step in enumerate(plan.steps)}
    starts = {step_number[id(chain.steps[0])]: chain for chain in plan.chains}
    inside = {step_number[id(step)] for chain in plan.chains for step in chain.steps[1:]}
    steps: list[tuple[StepCall, ...] | None] = []
    for number, step in enumerate(plan.steps):
        if number in starts:
            steps.append(builder.chain(starts[number]))
        else:
            steps.append(() if number in inside else builder.calls(step))
    scratch = tuple([_largest_scratch(builder, o) if isinstance(o, Buffer) else 0 for o in builder.scratch])
    codes = {compiled.code.key: compiled.code.native for compiled in builder.steps.values()}
    products = builder.scratch.get(None, 0)
    return SerialisedSteps(tuple(steps), *serialise_signature(plan), plan.arena_bytes, scratch, products, codes)


def serialise_plan(
    plan: Plan, compiling: Compiling | None = None
) -> tuple[SerialisedPlan, list[int | None], Mapping[bytes, Code]]:
    """Serialises a plan; also returns the number of kernels of each step (None for host steps), and their code by key.

    `compiling` may have begun with the plan's kernels.
    """
    made = serialise_steps(plan, compiling)
    memory = Memory(rounded(made.arena_bytes), made.product_scratch)
    steps = [None if step is None else spell_out(step, memory) for step in made.steps]
    counts = [None if step is None else len(step) for step in steps]
    kernels = [kernel for step in steps if step is not None for kernel in step]
    whole = finish_plan(made.arguments, made.results, made.arena_bytes, kernels, made.scratch, memory)
    return whole, counts, made.codes


def spell_out(calls: Sequence[StepCall], memory: Memory) -> list[SerialisedKernel]:
    """The kernels of a step's calls."""
    kernels: list[SerialisedKernel] = []
    for call in calls:
        kernels += (call,) if isinstance(call, SerialisedKernel) else call.kernels(memory)
    return kernels


def finish_plan(
    arguments: SerialisedArrays,
    results: SerialisedArrays,
    arena_bytes: int,
    kernels: Sequence[SerialisedKernel],
    scratch: Sequence[int],
    memory: Memory,
) -> SerialisedPlan:
    """A serialised plan with the memory that its kernels turned out to need."""
    arena = rounded(arena_bytes) + memory.workspace if memory.workspace else arena_bytes
    extra = memory.scratch or {}
    sizes = tuple([max(size, extra.get(number, 0)) for number, size in enumerate(scratch)])
    return SerialisedPlan(arguments, results, arena, tuple(kernels), sizes)


def _largest_scratch(builder: PlanSerialiser, buffer: Buffer) -> int:
    """Threads step by the largest scratch buffer of their kernel, so each buffer has room for that."""
    ready = [
        record for record in builder.steps.values() if any(view.buffer is buffer for view in record.nest.step.outputs)
    ]
    return max(_scratch_bytes(record.nest) for record in ready)
