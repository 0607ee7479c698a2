"""Excludes steps that read features without a value, and their dependents, from a run.

`CudaExecutable.run` checks this before it looks for a program; if every feature has a value, nothing here is called. A
call inside a region fails only if the region takes its body, so the host runs such regions itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from livegrad.diagnostics import CompileError, LivegradError
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import BufferOperand, FeatureOperand, LeafStep, RegionStep, operand_key
from livegrad.live.cuda.buffers import DeviceBuffer
from livegrad.live.executor import Failure, RunReport
from livegrad.live.graph.sources import ForeignArray
from livegrad.ops.context import FeatureLevel


class MissingFeature(CompileError):
    """The error of a step that reads a feature without a value."""

    def __init__(self, step: str, feature: FeatureLevel) -> None:
        super().__init__(f"`{step}` reads the feature `{feature}`", help="give it a value with engine.set_feature")
        self.step = step


class MovedMemory(CompileError):
    """The error of a step that reads external memory which has moved or was resized."""

    def __init__(self, step: str, key: str) -> None:
        super().__init__(f"the array bound to `{key}` was resized or moved", help="bind it again")
        self.step = step


def steps_that_cannot_run(
    plan: LivePlan, features: Mapping[FeatureLevel, Any], buffers: Mapping[str, DeviceBuffer], steps: Sequence[str]
) -> dict[str, LivegradError]:
    """The steps that read a feature without a value or memory that has moved, and their dependents, in order."""
    moved = {key for key, external in plan.bindings.items() if _has_moved(buffers[key], external.array)}
    lost: dict[str, LivegradError] = {}
    for key in steps:
        step = plan.steps[key]
        for operand in step.all_operands():
            if isinstance(operand, BufferOperand) and operand.key in moved:
                lost[key] = MovedMemory(key, operand.key)
            source = plan.producer.get(str(operand_key(operand)))
            if source in lost and key not in lost:
                lost[key] = lost[source]
        if not isinstance(step, RegionStep) and (feature := _missing_feature(step, features)) is not None:
            lost[key] = MissingFeature(key, feature)
    return lost


def calls_that_cannot_run(
    plan: LivePlan, features: Mapping[FeatureLevel, Any], steps: Sequence[str]
) -> dict[str, LivegradError]:
    """The calls inside regions that read a feature without a value."""
    regions = (step for step in map(plan.steps.__getitem__, steps) if isinstance(step, RegionStep))
    leaves = ((leaf.key, _missing_feature(leaf, features)) for region in regions for leaf in region.leaf_steps())
    return {key: MissingFeature(key, feature) for key, feature in leaves if feature is not None}


def _missing_feature(step: LeafStep, features: Mapping[FeatureLevel, Any]) -> FeatureLevel | None:
    read_features = (operand.feature for operand in step.all_operands() if isinstance(operand, FeatureOperand))
    return next((feature for feature in read_features if features.get(feature) is None), None)


def _has_moved(buffer: DeviceBuffer, array: Any) -> bool:
    return array.address != buffer.address if isinstance(array, ForeignArray) else array.nbytes != buffer.bytes


def run_without(start: Callable[[], RunReport], missing: Mapping[str, LivegradError]) -> RunReport:
    """Starts the other steps, and adds the failures of the missing steps to the report."""
    report = start()
    if report.later is not None:
        report = report.later()
    failures = [Failure(key, error) for key, error in missing.items() if getattr(error, "step", None) == key]
    return replace(report, failures=(*report.failures, *failures))
