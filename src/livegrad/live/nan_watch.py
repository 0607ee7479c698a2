"""`debug_nans` for live engines: the first step whose results contain a NaN fails, and its operation is reported.

In: an executable, and the report of a run. Out: the report with these steps as failures. Called by `Runtime`
while `debug_nans` is active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError, LivegradError
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, scalar_of
from livegrad.ir.walk import nodes_of
from livegrad.lazy.devices import run_by_node
from livegrad.lazy.nan_checks import has_wrong_numbers, require_numbers
from livegrad.live.compile.live_steps import BlockStep, BufferOperand, FeatureOperand, LeafStep, Step, operand_key
from livegrad.live.executor import Executable, Failure, RunReport
from livegrad.ops.context import FeatureLevel


def find_nans(executable: Executable, report: RunReport, features: Mapping[FeatureLevel, Any]) -> RunReport:
    """Returns the report without steps that produced a NaN, which become failures, and without their dependents."""
    plan, ran, lost, failures = executable.plan, set(report.ran), set[str](), list(report.failures)
    # Spared steps are lost too if they depend on a NaN.
    for key in sorted((*report.ran, *report.spared), key=plan.position.__getitem__):
        if _depends_on(executable, key, lost):
            lost.add(key)
        elif key in ran and (error := _first_error(executable, plan.steps[key], report, features)) is not None:
            lost.add(key)
            failures.append(Failure(key, error))
    return replace(
        report,
        ran=tuple(key for key in report.ran if key not in lost),
        spared=tuple(key for key in report.spared if key not in lost),
        failures=tuple(failures),
    )


def _depends_on(executable: Executable, step: str, lost: set[str]) -> bool:
    """Whether a step read a lost result. A region reads only what its taken bodies read."""
    if not lost:
        return False
    producer = executable.plan.producer
    return any(producer.get(str(operand_key(operand))) in lost for operand in executable.operands_read(step))


def _first_error(
    executable: Executable, step: Step, report: RunReport, features: Mapping[FeatureLevel, Any]
) -> LivegradError | None:
    for leaf in step.leaf_steps():
        # Steps inside a region that were not called have old values.
        if report.calls.get(leaf.key, 0) and any(has_wrong_numbers(executable.read(key)) for key in leaf.results):
            return _explain_nan(executable, leaf, features)
    if any(has_wrong_numbers(executable.read(key)) for key in step.results):
        return KernelCheckError(f"`{step.key}` produced a NaN or an infinity")
    return None


def _explain_nan(executable: Executable, leaf: LeafStep, features: Mapping[FeatureLevel, Any]) -> LivegradError:
    """Evaluates a function again, operation by operation, to find the one that produced the first NaN."""
    unexplained = KernelCheckError(f"`{leaf.key}` produced a NaN or an infinity")
    if not isinstance(leaf, BlockStep) or not isinstance(leaf.function, Function) or leaf.sizes:
        return unexplained
    parameters = leaf.function.parameters
    if not all(isinstance(parameter.type, Tensor | Scalar) for parameter in parameters):
        return unexplained
    values: dict[Node, Any] = {}
    for parameter, operand in zip(parameters, leaf.operands, strict=True):
        if isinstance(operand, BufferOperand):
            value = executable.read_operand(operand.key)
        else:
            feature_value = features[operand.feature] if isinstance(operand, FeatureOperand) else None
            number = executable.plan.parameters[operand.key] if feature_value is None else feature_value  # type: ignore[union-attr]
            element = scalar_of(parameter.type)
            value = np.asarray(number, dtype=None if element is None else element.dtype)
        if has_wrong_numbers(value):
            return KernelCheckError(
                f"`{operand_key(operand)}`, which `{leaf.key}` reads, contains a NaN or an infinity"
            )
        values[parameter] = value[()] if isinstance(parameter.type, Scalar) else value
    try:
        function = leaf.function
        run_by_node(_inner_nodes(function), values, function.results, require_numbers, function.origins_of)
    except KernelCheckError as error:
        return error
    return unexplained


def _inner_nodes(function: Function) -> Sequence[Node]:
    parameters = set(function.parameters)
    return [node for node in nodes_of(function) if node not in parameters]
