"""Native entries of compiled plans. In: a plan and what callers pass. Out: a built-in that runs it, or None.

`CompiledPlan.run` and `jit` call entries: one call checks the arguments, makes the results and runs the kernels. A plan
with steps of the host, or with arguments that are no arrays, has none.
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
    """Whether plans have native entries: tests compare both ways."""

    enabled = True


settings = _Settings()


def make_plan_entry(
    plan: CompiledPlan, sources: Sequence[int] | None = None, handles: array[int] | None = None, *, frozen: bool = False
) -> PlanEntry | None:
    """A built-in that takes the arguments of a plan and gives its only result, or a list; None when it declines.

    `sources` says for each argument what is taken (`plan_call.ANY` and the others), `handles` how arrays are found in
    the handles of tensors. `frozen` results are read-only.
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
    """The kernels of one native call; None for a step of the host."""
    if isinstance(call, KernelCall | NativeLoop):
        return Segment([call.record], call.interruptible, call.status_address)
    if isinstance(call, KernelSequence):
        return Segment([member.record for member in call.members], False, call.members[-1].status_address)
    return None
