"""Describes what the loop passes decide: each loop nest after each pass, and how the native loops of a plan run."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from livegrad.compiler import LOOP_PASSES, enabled_passes, lower_loops
from livegrad.passes.functions import uses_any
from livegrad.passes.pipeline import Trace
from livegrad.passes.regions import LOOPS
from livegrad.schedule.loops.nest import LoopNest, RowTile, for_cpu, for_device
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.target import Target


def trace_loops(plan: Plan, target: Target, vector_bytes: int, trace: Trace) -> None:
    """Reports the output of each loop pass for the kernels of a plan."""
    nests = [_build_nest(outer, step, target, vector_bytes) for outer, step in _kernel_steps(plan)]
    trace("loops", "".join(f"{nest}\n" for nest in nests))
    enabled = enabled_passes(LOOP_PASSES[target.name], target)
    for loop_pass in LOOP_PASSES[target.name]:
        nests = [loop_pass(nest) for nest in nests] if loop_pass in enabled else nests
        trace(loop_pass.name, "".join(f"{nest}\n" for nest in nests))


def describe_loops(plan: Plan, target: Target, vector_bytes: int) -> list[str]:
    """Describes how the native loops of a plan run: a heading for each step with loops, and a line for each loop."""
    lines: list[str] = []
    for index, step in enumerate(plan.steps):
        if isinstance(step, KernelStep) and uses_any([stage.body for stage in step.kernel.stages], LOOPS):
            notes = lower_loops(_build_nest(plan, step, target, vector_bytes)).loop_notes
            lines += [f"loops of step {index}:", *[f"  {note}" for note in notes]] if notes else []
    return lines


def _build_nest(plan: Plan, step: KernelStep, target: Target, vector_bytes: int) -> LoopNest:
    if target.name == "cuda":
        return for_device(step, target, shares_rows=True)
    chain = next((chain for chain in plan.chains if any(member is step for member in chain.steps)), None)
    return for_cpu(step, target, vector_bytes, None if chain is None else RowTile(prod(chain.rows), chain.tile))


def _kernel_steps(plan: Plan) -> Iterator[tuple[Plan, KernelStep]]:
    """The kernel steps of a plan and of the loop bodies in it, each with the plan that contains it."""
    for step in plan.steps:
        if isinstance(step, KernelStep):
            yield plan, step
        elif step.loop is not None and step.loop.plan is not None:
            yield from _kernel_steps(step.loop.plan)
