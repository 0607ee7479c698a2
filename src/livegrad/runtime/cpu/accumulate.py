"""Runs scalar loops that add to tensors as one kernel with in-place accumulation, for gradients of functions that read
by index.

`compiled_plan.py` creates an `AccumulatingCall` for each such loop of a plan (the plan pass `accumulate_in_place` makes
its kernel).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegrad.ir.types import Tensor, components
from livegrad.passes.flatten_signature import assemble_value
from livegrad.runtime.cpu.branches import RunnablePlan
from livegrad.runtime.cpu.loop_body import Memory, reader
from livegrad.schedule.plan import HostStep, InPlaceLoop, Plan


class AccumulatingCall:
    """One loop of a plan, run in place on copies of the tensors that it adds to."""

    def __init__(
        self, step: HostStep, loop: InPlaceLoop, owner: Memory, make_plan: Callable[[Plan], RunnablePlan]
    ) -> None:
        self._step, self._starts = step, loop.starts
        self._operands = reader(step.operands, owner)
        self._types = components(step.function.results[0].type)
        self._plan = make_plan(loop.plan)

    def run(self, values: dict[Any, Any]) -> None:
        operands = self._operands(values)
        tensors = [np.array(operands[number]) for number in self._starts]
        scalars = iter(self._plan.run([*operands, *tensors]))
        totals = iter(tensors)
        values[self._step.result] = tuple(
            next(totals) if isinstance(type, Tensor) else assemble_value(scalars, type) for type in self._types
        )
