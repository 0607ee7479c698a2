"""Native entries of compiled plans. In: a plan and the kinds of its arguments. Out: a Python built-in, or None.

One call of an entry checks the arguments, allocates the results and runs the kernels. `CompiledPlan.run` and `jit` call
entries. Plans with host steps, or with arguments that are not arrays, have none.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from livegrad.runtime.cpu.kernel_calls import KernelCall, KernelSequence
from livegrad.runtime.cpu.memory_pool import comes_from_pool
from livegrad.runtime.cpu.native.plan_call import ANY, Argument, Result, Segment, make_plan_call
from livegrad.runtime.cpu.native_loops import NativeLoop

if TYPE_CHECKING:
    from livegrad.runtime.cpu.compiled_plan import CompiledPlan

PlanEntry = Callable[..., Any]


class _Settings:
    """Whether plans have native entries. Tests switch it off to compare with `run_step_by_step`."""

    enabled = True


settings = _Settings()


def make_plan_entry(
    plan: CompiledPlan, sources: Sequence[int] | None = None, handles: array[int] | None = None, *, frozen: bool = False
) -> PlanEntry | None:
    """Makes a built-in that maps the arguments of a plan to its only result, or to a list; None if it cannot.

    The built-in returns None for arguments that it does not support. `sources` has the accepted kind of each argument
    (`plan_call.ANY` …), and `handles` the memory layout of tensor handles. `frozen` results are read-only.
    """
    serialised = plan.serialised
    if not settings.enabled or None in (*serialised.arguments, *serialised.results):
        return None
    segments = [_segment(call) for call in plan.calls]
    if None in segments:
        return None
    arguments = []
    for form, source in zip(serialised.arguments, sources or [ANY] * len(serialised.arguments), strict=True):
        assert form is not None
        patches, cell = plan.patches_of(form.number), plan.cell_of(form.number)
        if cell and patches:
            return None
        arguments.append(Argument(form.element.dtype, form.shape, patches, cell, source))
    results = [
        Result(
            form.element.dtype, form.shape, plan.patches_of(form.number), make if comes_from_pool(form.bytes) else None
        )
        for form, make in plan.result_makers
    ]
    return make_plan_call(arguments, results, segments, plan.lock, plan.memory, handles=handles, frozen=frozen)  # type: ignore[arg-type]


def _segment(call: Any) -> Segment | None:
    """The kernels of one native call; None for a host step."""
    if isinstance(call, KernelCall | NativeLoop):
        return Segment([call.record], call.interruptible, call.status_address)
    if isinstance(call, KernelSequence):
        return Segment([member.record for member in call.members], False, call.members[-1].status_address)
    return None
