"""Binds the steps of a live plan to device memory, for a new plan or an update, while the old plan stays intact.

In: steps and their code. Out: `Fresh`, which an executable adopts as a whole when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import (
    BlockStep,
    BufferOperand,
    BufferSpec,
    CapturedStep,
    FeatureOperand,
    LeafStep,
    LivePlan,
    Operand,
    ParameterOperand,
    renewed_buffers,
)
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.buffers import HeldBuffer, make_buffers, make_shared
from livegrad.live.cuda.captured_graphs import CapturedGraph, DeviceView, capture
from livegrad.live.cuda.step_code import StepCode
from livegrad.live.executor import StepError
from livegrad.runtime.cuda.device_memory import MIN_BYTES, DeviceMemory

if TYPE_CHECKING:
    from livegrad.live.cuda.executable import CudaExecutable


@dataclass(eq=False)
class Fresh:
    """New objects, collected until all of them are complete."""

    buffers: dict[str, HeldBuffer] = field(default_factory=dict)
    bound: dict[str, BoundStep] = field(default_factory=dict)
    captured: dict[str, CapturedGraph] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)  # steps that reuse the launches of the previous plan


@dataclass(eq=False)
class PlanAddresses:
    """The addresses of buffers and numbers of a plan: new memory first, then that of the executable."""

    executable: CudaExecutable
    plan: LivePlan
    fresh: Mapping[str, HeldBuffer] = field(default_factory=dict)

    def address(self, key: str) -> int:
        """The address of a buffer."""
        buffer = self.fresh.get(key)
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


def bind_step(executable: CudaExecutable, leaf: LeafStep, plan: LivePlan, code: StepCode | None, fresh: Fresh) -> None:
    """Binds a step to memory. Errors are `StepError`s."""
    addresses = PlanAddresses(executable, plan, fresh.buffers)
    try:
        if isinstance(leaf, BlockStep):
            assert code is not None
            bound = BoundStep(leaf, code)
            bound.status = executable.status_address(bound)
            bound.make(addresses)
            fresh.bound[leaf.key] = bound
        elif isinstance(leaf, CapturedStep):
            fresh.captured[leaf.key] = _capture_call(leaf, addresses, executable.captured.get(leaf.key))
    except StepError:
        raise
    except LivegradError as error:
        raise StepError(leaf.key, error) from error


def _capture_call(leaf: CapturedStep, addresses: PlanAddresses, previous: CapturedGraph | None) -> CapturedGraph:
    """Captures a call. It reads copies of its inputs, because it might write to them and other steps read them.

    Reuses the copies of the previous capture if they fit, so that the nodes that fill them stay unchanged.
    """
    buffers = addresses.plan.buffers
    read = [buffers[operand.key] for operand in leaf.operands if isinstance(operand, BufferOperand)]
    before = [] if previous is None else previous.copies
    copies = (
        list(before) if [operand.size for operand in before] == [max(spec.bytes, MIN_BYTES) for spec in read] else []
    )
    copies = copies or [DeviceMemory(spec.bytes) for spec in read]
    views = iter([DeviceView(memory.address, spec) for memory, spec in zip(copies, read, strict=True)])
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
    fresh: Fresh,
) -> None:
    """Reuses launches of the previous plan that have the same code and memory.

    Not those of watched steps: status words belong to one plan.
    """
    before = previous.buffers.held
    moved = {key for key, buffer in executable.buffers.held.items() if before.get(key) is not buffer}
    for leaf in leaves:
        bound = previous.bound.get(leaf.key)
        if bound is None or bound.code.is_watched or bound.uses_cells or not moved.isdisjoint(bound.all_touched):
            continue
        is_same = bound.step is leaf
        if not is_same and isinstance(leaf, BlockStep):
            is_same = bound.is_same(leaf, codes.get(leaf.key))
        if is_same:
            fresh.bound[leaf.key] = bound
            fresh.shared.append(leaf.key)


def buffers_for(plan: LivePlan, previous: CudaExecutable | None, in_place: Mapping[str, str]) -> dict[str, HeldBuffer]:
    """Memory for every buffer of a plan: reused if it fits, else new. In-place variables share that of a result."""
    buffers = make_shared(plan)
    unshared = {key: spec for key, spec in plan.buffers.items() if key not in plan.slot_of and key not in in_place}
    buffers |= (
        make_buffers(unshared.values(), plan) if previous is None else _reusable_buffers(plan, previous, unshared)
    )
    return buffers | {carry: buffers[result] for carry, result in in_place.items()}


def _reusable_buffers(
    plan: LivePlan, previous: CudaExecutable, specs: Mapping[str, BufferSpec]
) -> dict[str, HeldBuffer]:
    buffers: dict[str, HeldBuffer] = {}
    before, wanted = previous.plan, []
    renewed = renewed_buffers(before, plan)
    for key, spec in specs.items():
        kept = None if key in previous.in_place else previous.buffers.held.get(key)
        previous_spec = before.buffers.get(key)
        fits = (
            kept is not None
            and (previous_spec is spec or previous_spec == spec)
            and key not in before.slot_of
            and key not in renewed
        )
        if fits and before.bindings.get(key) is plan.bindings.get(key):
            assert kept is not None
            buffers[key] = kept
        else:
            wanted.append(spec)
    return buffers | make_buffers(wanted, plan)
