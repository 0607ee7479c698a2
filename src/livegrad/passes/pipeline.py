"""The whole compiler in one screen: the ordered passes, and the runner that verifies and traces after each.

Schedules, tools and tests call `run_pipeline`; a module goes in and the same functions, in simpler ops, come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from livegrad.diagnostics import VerifyError
from livegrad.ir.keeping import keeps_places
from livegrad.ir.node import Module
from livegrad.ir.op import Op
from livegrad.ir.text import print_module
from livegrad.ir.verify import verify_module
from livegrad.ops.control import call
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.passes.differentiate.lower import DERIVATIVE_RULES, differentiate
from livegrad.passes.flatten_calls import flatten_calls, flatten_few_calls
from livegrad.passes.lower_bfloat16 import lower_bfloat16
from livegrad.passes.optimize_outputs import optimize_outputs
from livegrad.passes.simplify import Simplify


@dataclass(frozen=True)
class Pass:
    """One step of the compiler; `removes` names the ops that are gone once it has run, and stay gone."""

    name: str
    run: Callable[[Module], Module]
    removes: frozenset[Op] = frozenset()


PIPELINE = (
    Pass("differentiate", differentiate, removes=DERIVATIVE_RULES | {fwd_diff, bwd_diff}),
    Pass("optimize_outputs", optimize_outputs),
    Pass("flatten_calls", flatten_calls, removes=frozenset({call})),
    Pass("lower_bfloat16", lower_bfloat16),
    Pass("simplify", Simplify()),
)

# For backends that have code for calls: functions that large programs call often stay functions.
NATIVE_PIPELINE = tuple(
    Pass("flatten_calls", flatten_few_calls) if step.name == "flatten_calls" else step for step in PIPELINE
)


@dataclass(frozen=True)
class Stage:
    """A module's text after one pass; the first stage is the input."""

    name: str
    text: str


@dataclass
class PipelineTrace:
    """Records what each pass made of a module: `run_pipeline(module, trace=PipelineTrace())`."""

    stages: list[Stage] = field(default_factory=list)

    def __call__(self, name: str, module: Module) -> None:
        self.stages.append(Stage(name, print_module(module)))

    def __str__(self) -> str:
        return "\n".join(f"# after {stage.name}\n{stage.text}" for stage in self.stages)


@keeps_places
def run_pipeline(
    module: Module, passes: Sequence[Pass] = PIPELINE, trace: Callable[[str, Module], None] | None = None
) -> Module:
    """The module after all passes. `trace` is called with "input", then with each pass's name and what it made."""
    verify_module(module, allow_inputs=True)
    if trace is not None:
        trace("input", module)
    removed: frozenset[Op] = frozenset()
    for step in passes:
        removed |= step.removes
        try:
            result = step.run(module)
        except Exception as error:
            error.add_note(f"in pass `{step.name}`")
            raise
        _verify_after(step, module, result, removed)
        module = result
        if trace is not None:
            trace(step.name, module)
    return module


def _verify_after(step: Pass, before: Module, after: Module, removed: frozenset[Op]) -> None:
    found, expected = ([(f.name, f.parameter_types, f.result_types) for f in m.functions] for m in (after, before))
    if found != expected:
        raise VerifyError(
            f"pass `{step.name}` changed the module's functions", expected=str(expected), found=str(found)
        )
    try:
        verify_module(after, allow_inputs=True, forbidden=removed)
    except VerifyError as error:
        raise VerifyError(
            f"after pass `{step.name}`: {error.what}",
            where=error.where,
            expected=error.expected,
            found=error.found,
            help=error.help,
        ) from error
