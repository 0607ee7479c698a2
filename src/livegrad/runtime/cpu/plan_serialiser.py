"""Serialises plans of the CPU: lowers their steps to kernels with argument slots, as data.

In: a plan, whose kernels compile in the background (`kernel_code.py`). Out: a `SerialisedPlan` for `compiled_plan.py`
and the disk cache, or `SerialisedSteps` with symbolic sizes for `plan_template.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from livegrad.codegen.argument_slots import ArgumentSlot, buffer_slot
from livegrad.codegen.llvm.matmul.product import Product
from livegrad.ops.convolution import convolve
from livegrad.runtime.cpu.kernel_code import CompiledStep, KernelCompiler
from livegrad.runtime.cpu.matmul_steps import native_convolution, native_product, product_operands
from livegrad.runtime.cpu.native import fourier, ordering
from livegrad.runtime.cpu.native.convolution import Convolution
from livegrad.runtime.cpu.native.pool_sharing_ir import BRIEF
from livegrad.runtime.cpu.row_chains import row_tile
from livegrad.runtime.cpu.row_steps import native_ordering, native_transforms
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel, SerialisedPlan
from livegrad.runtime.cpu.step_calls import (
    ChainCall,
    OrderingCall,
    ProductCall,
    StepCall,
    TransformCall,
    Workspace,
    whole_lines,
)
from livegrad.runtime.cpu.tiers import Code
from livegrad.runtime.serialised import SerialisedArrays, serialise_signature
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Plan, RowChain, Step

_STATUS, _INTERRUPT = ArgumentSlot("status", 0, 0), ArgumentSlot("interrupt", 0, 0)


@dataclass
class PlanSerialiser:
    """Lowers the steps of a plan to calls. Scratch buffers are numbered in order of use; library kernels share one."""

    plan: Plan
    scratch: dict[Buffer | RowChain | None, int] = field(default_factory=dict)  # None: of library kernels
    current_chain: RowChain | None = None
    steps: dict[int, CompiledStep] = field(default_factory=dict)  # by the id of the plan's step

    def prepare(self, compiler: KernelCompiler) -> None:
        """Starts to compile the kernels of all steps."""
        tiles = {id(step): row_tile(chain) for chain in self.plan.chains for step in chain.steps}
        for step in self.plan.steps:
            if isinstance(step, KernelStep):
                self.steps[id(step)] = compiler.compile_step(step, tiles.get(id(step)))
        compiler.close()

    def calls(self, step: Step) -> tuple[StepCall, ...] | None:
        """The calls of a step; None for a host step."""
        if isinstance(step, KernelStep):
            return (self._kernel(step),)
        transforms = native_transforms(step)
        if transforms is not None:
            return (self._transforms(step, transforms),)
        sort = native_ordering(step)
        if sort is not None:
            return (self._ordering(step, sort),)
        native = native_convolution(step) or native_product(step)
        return None if native is None else (self._product(step, native),)

    def chain(self, chain: RowChain) -> tuple[StepCall, ...]:
        """The call of a chain, which runs tile by tile."""
        self.current_chain, rows = chain, row_tile(chain)
        members: list[SerialisedKernel | ProductCall] = []
        for step in chain.steps:
            if isinstance(step, KernelStep):
                members.append(self._kernel(step))
                continue
            product = native_product(step)
            assert product is not None
            members.append(self._product(step, product))
        self.current_chain = None
        buffers = sorted(chain.private, key=lambda buffer: buffer.number)
        private = tuple([(buffer.number, buffer.bytes // rows.rows * rows.block) for buffer in buffers])
        number = self.scratch.setdefault(chain, len(self.scratch))
        return (ChainCall(tuple(members), private, rows.block, rows.count, number),)

    def _kernel(self, step: KernelStep) -> SerialisedKernel:
        compiled = self.steps[id(step)]
        nest, code = compiled.nest, compiled.code
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

    def _ordering(self, step: HostStep, sort: ordering.Ordering) -> OrderingCall:
        assert isinstance(step.result, Buffer)
        ((operand, _),) = product_operands(step)
        self.scratch.setdefault(None, len(self.scratch))
        return OrderingCall(sort, self._buffer_slot(operand), self._buffer_slot(step.result))

    def _argument_slots(self, nest: LoopNest, sizes_of_code: Sequence[int]) -> dict[str, int | ArgumentSlot]:
        """All slots that a kernel may use, by name."""
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
        for number, buffer in enumerate(step.indexed_buffers):
            slots[f"whole{number}"] = self._buffer_slot(buffer)
            slots |= {f"whole{number}.extent{d}": size for d, size in enumerate(buffer.shape)}
            slots |= {f"whole{number}.stride{d}": stride for d, stride in enumerate(buffer.strides)}
        for number, view in enumerate(step.scalar_arguments):
            slots[f"uniform{number}"] = self._buffer_slot(view.buffer, view.offset)
        return slots

    def _buffer_slot(self, buffer: Buffer, offset: int = 0) -> ArgumentSlot:
        base = buffer.base
        if self.current_chain is not None and base in self.current_chain.private:
            return ArgumentSlot("private", base.number, offset * buffer.element.dtype.itemsize)
        if base.lifetime == "region":
            return ArgumentSlot("scratch", self.scratch.setdefault(base, len(self.scratch)))
        return buffer_slot(buffer, self.plan, offset)


def _scratch_bytes(nest: LoopNest) -> int:
    """The bytes of each scratch buffer of a step for each thread: a row, or a row for each lane."""
    step = nest.step
    sizes = [v.buffer.bytes for p, v in zip(step.kernel.outputs, step.outputs, strict=True) if p.scratch]
    return whole_lines(max(sizes, default=0) * (nest.lanes if nest.across else 1))


@dataclass(frozen=True)
class SerialisedSteps:
    """A plan's steps as calls; None for host steps. The first step of a chain has the call of the whole chain."""

    steps: tuple[tuple[StepCall, ...] | None, ...]
    arguments: SerialisedArrays
    results: SerialisedArrays
    arena_bytes: int
    scratch: tuple[int, ...]  # bytes of each buffer for each thread, without library kernels and chains
    library_scratch: int  # the number of the scratch buffer of library kernels, if there are any
    codes: Mapping[bytes, Code]


def serialise_steps(plan: Plan, compiler: KernelCompiler | None = None) -> SerialisedSteps:
    """Serialises the steps of a plan. `compiler` may have started to compile some of its kernels."""
    serialiser = PlanSerialiser(plan)
    serialiser.prepare(compiler or KernelCompiler())
    step_number = {id(step): number for number, step in enumerate(plan.steps)}
    starts = {step_number[id(chain.steps[0])]: chain for chain in plan.chains}
    inside = {step_number[id(step)] for chain in plan.chains for step in chain.steps[1:]}
    steps: list[tuple[StepCall, ...] | None] = []
    for number, step in enumerate(plan.steps):
        if number in starts:
            steps.append(serialiser.chain(starts[number]))
        else:
            steps.append(() if number in inside else serialiser.calls(step))
    users = serialiser.scratch
    scratch = tuple([_largest_scratch(serialiser, user) if isinstance(user, Buffer) else 0 for user in users])
    codes = {compiled.code.key: compiled.code.native for compiled in serialiser.steps.values()}
    library_scratch = users.get(None, 0)
    return SerialisedSteps(tuple(steps), *serialise_signature(plan), plan.arena_bytes, scratch, library_scratch, codes)


def serialise_plan(
    plan: Plan, compiler: KernelCompiler | None = None
) -> tuple[SerialisedPlan, list[int | None], Mapping[bytes, Code]]:
    """Serialises a plan; also returns the number of kernels of each step (None for host steps), and their code by key.

    `compiler` may have started to compile some of the plan's kernels.
    """
    serialised = serialise_steps(plan, compiler)
    workspace = Workspace(whole_lines(serialised.arena_bytes), serialised.library_scratch)
    steps = [None if step is None else _kernels_of(step, workspace) for step in serialised.steps]
    counts = [None if step is None else len(step) for step in steps]
    kernels = [kernel for step in steps if step is not None for kernel in step]
    signature = serialised.arguments, serialised.results
    serialised_plan = finish_plan(*signature, serialised.arena_bytes, kernels, serialised.scratch, workspace)
    return serialised_plan, counts, serialised.codes


def _kernels_of(calls: Sequence[StepCall], workspace: Workspace) -> list[SerialisedKernel]:
    kernels: list[SerialisedKernel] = []
    for call in calls:
        kernels += (call,) if isinstance(call, SerialisedKernel) else call.kernels(workspace)
    return kernels


def finish_plan(
    arguments: SerialisedArrays,
    results: SerialisedArrays,
    arena_bytes: int,
    kernels: Sequence[SerialisedKernel],
    scratch: Sequence[int],
    workspace: Workspace,
) -> SerialisedPlan:
    """A serialised plan whose memory includes the workspace of its kernels."""
    arena = whole_lines(arena_bytes) + workspace.bytes if workspace.bytes else arena_bytes
    workspace_scratch = workspace.scratch or {}
    sizes = tuple([max(size, workspace_scratch.get(number, 0)) for number, size in enumerate(scratch)])
    return SerialisedPlan(arguments, results, arena, tuple(kernels), sizes)


def _largest_scratch(serialiser: PlanSerialiser, buffer: Buffer) -> int:
    """The bytes of a scratch buffer for each thread: all scratch buffers of a kernel have the stride of its largest."""
    nests = [compiled.nest for compiled in serialiser.steps.values()]
    return max(_scratch_bytes(nest) for nest in nests if any(view.buffer is buffer for view in nest.step.outputs))
