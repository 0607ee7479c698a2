"""Binds the steps of a live plan to device memory, for a new plan or an update, while the old plan stays intact.

In: steps and their code. Out: `NewBindings`, which an executable installs at once when they are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import BufferSpec, LivePlan, renewed_buffers
from livegrad.live.compile.live_steps import (
    BlockStep,
    BufferOperand,
    CapturedStep,
    FeatureOperand,
    LeafStep,
    Operand,
    ParameterOperand,
)
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.buffers import DeviceBuffer, make_buffers, make_shared
from livegrad.live.cuda.captured_graphs import CapturedGraph, DeviceView, capture
from livegrad.live.cuda.step_code import StepCode
from livegrad.live.executor import StepError
from livegrad.runtime.cuda.device_memory import MIN_BYTES, DeviceMemory

if TYPE_CHECKING:
    from livegrad.live.cuda.executable import CudaExecutable


@dataclass(eq=False)
class NewBindings:
    """New buffers, bound steps and captured calls, collected until all of them are complete."""

    buffers: dict[str, DeviceBuffer] = field(default_factory=dict)
    bound: dict[str, BoundStep] = field(default_factory=dict)
    captured: dict[str, CapturedGraph] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)  # steps that reuse the launches of the previous plan


@dataclass(eq=False)
class PlanAddresses:
    """The addresses of buffers and numbers of a plan. New memory takes precedence over that of the executable."""

    executable: CudaExecutable
    plan: LivePlan
    new_buffers: Mapping[str, DeviceBuffer] = field(default_factory=dict)

    def address(self, key: str) -> int:
        """The address of a buffer."""
        buffer = self.new_buffers.get(key)
        return self.executable.buffers.address(key) if buffer is None else buffer.address

    def number(self, operand: Operand) -> Any:
        """The current value of a number; None if it has none."""
        if isinstance(operand, ParameterOperand):
            return self.plan.parameters[operand.key]
        assert isinstance(operand, FeatureOperand)
        return self.executable.features.get(operand.feature)

    def cell(self, operand: Operand) -> int:
        """The address of a number, for steps that read it from memory."""
        return self.executable.numbers.of(operand).cell(operand.type, self.number(operand)).address

    def operand(self, operand: Operand) -> int:
        """The address of an operand."""
        return self.address(operand.key) if isinstance(operand, BufferOperand) else self.cell(operand)


def bind_step(
    executable: CudaExecutable, leaf: LeafStep, plan: LivePlan, code: StepCode | None, bindings: NewBindings
) -> None:
    """Binds a step to memory. Raises errors as a `StepError`."""
    addresses = PlanAddresses(executable, plan, bindings.buffers)
    try:
        if isinstance(leaf, BlockStep):
            assert code is not None
            bound = BoundStep(leaf, code)
            bound.status = executable.status_address(bound)
            bound.make(addresses)
            bindings.bound[leaf.key] = bound
        elif isinstance(leaf, CapturedStep):
            bindings.captured[leaf.key] = _capture_call(leaf, addresses, executable.captured.get(leaf.key))
    except StepError:
        raise
    except LivegradError as error:
        raise StepError(leaf.key, error) from error


def _capture_call(leaf: CapturedStep, addresses: PlanAddresses, previous: CapturedGraph | None) -> CapturedGraph:
    """Captures a call. It reads copies of its inputs, because it might write to them.

    Reuses the copies of the previous capture if they fit, so that the copy nodes stay unchanged.
    """
    buffers = addresses.plan.buffers
    inputs = [buffers[operand.key] for operand in leaf.operands if isinstance(operand, BufferOperand)]
    copies = [] if previous is None else list(previous.copies)
    if [memory.size for memory in copies] != [max(spec.bytes, MIN_BYTES) for spec in inputs]:
        copies = [DeviceMemory(spec.bytes) for spec in inputs]
    views = iter([DeviceView(memory.address, spec) for memory, spec in zip(copies, inputs, strict=True)])
    arguments = [
        next(views) if isinstance(operand, BufferOperand) else addresses.number(operand) for operand in leaf.operands
    ]
    arguments += [DeviceView(addresses.address(key), buffers[key]) for key in leaf.results]
    return capture(leaf.key, leaf.call.name, leaf.call.call, arguments, copies)


def share_steps(
    executable: CudaExecutable,
    previous: CudaExecutable,
    codes: Mapping[str, StepCode],
    leaves: Iterable[LeafStep],
    bindings: NewBindings,
) -> None:
    """Reuses launches of the previous plan that have the same code and memory.

    Excludes steps with status words, which belong to one plan.
    """
    old_buffers = previous.buffers.by_key
    moved = {key for key, buffer in executable.buffers.by_key.items() if old_buffers.get(key) is not buffer}
    for leaf in leaves:
        bound = previous.bound.get(leaf.key)
        if bound is None or bound.code.reports_failures or bound.uses_cells or not moved.isdisjoint(bound.all_touched):
            continue
        is_same = bound.step is leaf
        if not is_same and isinstance(leaf, BlockStep):
            is_same = bound.is_same(leaf, codes.get(leaf.key))
        if is_same:
            bindings.bound[leaf.key] = bound
            bindings.shared.append(leaf.key)


def buffers_for(
    plan: LivePlan, previous: CudaExecutable | None, in_place: Mapping[str, str]
) -> dict[str, DeviceBuffer]:
    """Memory for every buffer of a plan: reused if it fits, otherwise new. In-place variables share that of results."""
    buffers = make_shared(plan)
    unshared = {key: spec for key, spec in plan.buffers.items() if key not in plan.slot_of and key not in in_place}
    buffers |= (
        make_buffers(unshared.values(), plan) if previous is None else _reusable_buffers(plan, previous, unshared)
    )
    return buffers | {carry: buffers[result] for carry, result in in_place.items()}


def _reusable_buffers(
    plan: LivePlan, previous: CudaExecutable, specs: Mapping[str, BufferSpec]
) -> dict[str, DeviceBuffer]:
    buffers: dict[str, DeviceBuffer] = {}
    old_plan, missing = previous.plan, []
    renewed = renewed_buffers(old_plan, plan)
    for key, spec in specs.items():
        buffer = None if key in previous.in_place else previous.buffers.by_key.get(key)
        old_spec = old_plan.buffers.get(key)
        fits = (
            buffer is not None
            and (old_spec is spec or old_spec == spec)
            and key not in old_plan.slot_of
            and key not in renewed
        )
        if fits and old_plan.bindings.get(key) is plan.bindings.get(key):
            assert buffer is not None
            buffers[key] = buffer
        else:
            missing.append(spec)
    return buffers | make_buffers(missing, plan)
