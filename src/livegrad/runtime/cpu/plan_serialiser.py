"""Plans of the CPU as serialised executables: kernels with their argument slots, and host steps as calls.

In: a plan, and the code that is compiled for it meanwhile (`kernel_code.py`). Out: what `compiled_plan.py`,
`plan_template.py` and the disk cache run from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from livegrad.codegen.argument_slots import ArgumentSlot, buffer_slot
from livegrad.codegen.llvm.matmul.product import Product
from livegrad.ops.convolution import convolve
from livegrad.runtime.cpu.kernel_code import Compiling, ReadyStep
from livegrad.runtime.cpu.matmul_steps import native_convolution, native_product, product_operands
from livegrad.runtime.cpu.native import fourier, ordering
from livegrad.runtime.cpu.native.convolution import Convolution
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
from livegrad.runtime.cpu.tiers import (
    Code,
)
from livegrad.runtime.cpu.transform_steps import native_transforms
from livegrad.runtime.serialised import SerialisedArrays, serialise_signature
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Plan, RowChain, Step

_STATUS, _INTERRUPT = ArgumentSlot("status", 0, 0), ArgumentSlot("interrupt", 0, 0)


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
