"""The protocols of executors, which run live plans. `live.cpu.cpu_executor` implements them for the CPU, `live.cuda`
for CUDA.

An executor compiles steps (`prepare`; if it fails, nothing has changed) and builds executables. An executable owns the
memory of its plan; the engine reports changes by level and selects the steps to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import BlockStep, Operand
from livegrad.live.graph.sources import Numbers
from livegrad.ops.context import FeatureLevel


@dataclass(frozen=True)
class Failure:
    """A step that failed. Its dependents did not run."""

    step: str
    error: LivegradError


class StepError(LivegradError):
    """An error of one step while a plan was installed, such as a failed capture or a module that does not load."""

    code = "step"

    def __init__(self, step: str, error: LivegradError) -> None:
        self.step, self.error = step, error
        super().__init__(str(error))


@dataclass(eq=False, slots=True)  # not frozen, which would triple the cost of creating one in every frame
class RunReport:
    """The result of one run: the steps that ran, the calls of functions and inner regions, failures, and times."""

    ran: tuple[str, ...]
    calls: Mapping[str, int]
    failures: tuple[Failure, ...] = ()
    seconds: Mapping[str, float] | None = None  # by step, when profiling
    started: Mapping[str, float] | None = None  # start times, on the executor's clock
    # Not None: the run may still fail. The final report comes from here, after the run has ended.
    later: Callable[[], RunReport] | None = None
    spared: tuple[str, ...] = ()  # steps that did not run because their operands did not change
    unneeded: tuple[str, ...] = ()  # steps that did not run because no step that ran reads their results


Profile = Literal[False, "block", "step"]


class Reading(Protocol):
    """A requested value, as of the runs before the request."""

    def ready(self) -> bool:
        """Whether `result` returns without waiting."""
        ...

    def result(self) -> Numbers:
        """Waits for the value and returns it."""
        ...


@dataclass(frozen=True, eq=False)
class ImmediateReading:
    """A reading whose value is available already.

    >>> import numpy as np
    >>> ImmediateReading(np.ones(2)).ready()
    True
    """

    value: Numbers

    def ready(self) -> bool:
        """Always true."""
        return True

    def result(self) -> Numbers:
        """The value."""
        return self.value


class Executable(Protocol):
    """A plan that can run. Methods other than `run` and `read` take effect before the next run."""

    plan: LivePlan

    @property
    def waiting(self) -> Collection[str]:
        """Steps without a value, because nothing has needed it. An executor may run all steps instead."""
        ...

    def require(self, is_needed: Callable[[str], bool], wanted: Collection[str] = ()) -> Collection[str]:
        """Declares which steps are needed even if no running step reads them. Returns those that were waiting.

        `wanted` are the steps that became needed since the last call.
        """
        ...

    def catch_up(self, step: str, failed: Mapping[str, LivegradError]) -> RunReport:
        """Runs a waiting step and the waiting steps that it reads, on the values of the last run.

        `failed` has the errors of steps without a value.
        """
        ...

    def defer(self, steps: Iterable[str]) -> None:
        """Makes steps that caught up wait again: their results must not be used."""

    def set_parameter(self, key: str, value: Any) -> None:
        """Hot: sets a number that steps take by value."""

    def setter(self, key: str) -> Callable[[Any], None]:
        """A function that sets one number, valid as long as the plan stays the same."""
        ...

    def set_feature(self, feature: FeatureLevel, value: Any) -> None:
        """Hot: sets a feature that steps take by value. None: it has no value any more, so that its readers fail."""

    def write(self, buffer: str, contents: Numbers) -> None:
        """Writes new contents of the same type and shape to a buffer."""

    def update(self, plan: LivePlan, codes: Mapping[str, Any], steps: Sequence[str]) -> None:
        """Warm and code: the named steps have new sizes, memory or functions in `plan`, which has the same structure.

        If the executor edits in place, also cold: named steps and states may be added, removed, or have other edges.
        `codes` has the results of `prepare` for their block steps. Buffers with an unchanged spec keep their contents.
        Steps with captured calls are captured again. The update is atomic: it raises a `LivegradError` and changes
        nothing, or succeeds. An error of one step is a `StepError`.
        """

    def swap(self, step: BlockStep, code: Any) -> None:
        """Code: replaces the function of a step, on the same memory. Fails like `update`."""

    def make_ready(self, steps: Sequence[str]) -> None:
        """Prepares a run of these steps, so that it cannot fail for lack of resources later. Fails like `update`."""

    def run(
        self,
        steps: Sequence[str],
        profile: Profile = False,
        forced: Collection[str] | None = None,
        touched: Collection[object] = (),
    ) -> RunReport:
        """Runs these steps, in the order of the plan. `profile` measures them, and with "step" also those in regions.

        If `forced` is passed, the other steps may be skipped if their operands did not change. Regions among them also
        depend on `touched` (keys of numbers, features and buffers). An executor may run all steps nevertheless.
        """
        ...

    def operands_read(self, step: str) -> Iterable[Operand]:
        """The operands that a step read in its last run if that is known, otherwise all that it may read."""
        ...

    def starter(
        self, steps: Sequence[str], forced: Collection[str] | None, touched: Collection[object]
    ) -> Callable[[], RunReport | None] | None:
        """A function that starts these steps like `run`, without checking what cannot have changed since.

        None if only `run` can do so. The function itself may return None later; then it has started nothing.
        """
        ...

    def stage(self) -> Collection[str] | None:
        """Prepares all states to take their next values at once: the value of one may be the next of another.

        Returns the keys of the states whose value will change; None if that is not known.
        """
        ...

    def advance(self) -> None:
        """Gives all states their staged values. Calling it again before the next run changes nothing."""

    def read(self, buffer: str) -> Numbers:
        """A copy of the contents of a buffer, after all runs so far."""
        ...

    def read_operand(self, buffer: str) -> Numbers:
        """The contents of a buffer as the last run read them: states may have advanced since."""
        ...

    def read_later(self, buffer: str) -> Reading:
        """Like `read`, without waiting. Later runs do not change its result."""
        ...

    def close(self) -> None:
        """Releases all memory. Nothing may be called afterwards."""


class Executor(Protocol):
    """Compiles steps and builds executables."""

    @property
    def name(self) -> str: ...

    @property
    def edits_in_place(self) -> bool:
        """Whether `update` accepts other steps, edges and states; otherwise they need a new executable."""
        ...

    def prepare(self, step: BlockStep) -> Any:
        """Compiles a step. Raises a `LivegradError` with the user's line; has no other effect."""

    def build(
        self, plan: LivePlan, codes: Mapping[str, Any], features: Mapping[FeatureLevel, Any], previous: Any
    ) -> Executable:
        """Cold: builds an executable of the plan. Buffers of `previous` with the same spec are reused with their
        contents. `previous` remains usable until this returns; the engine closes it afterwards. `codes` has the results
        of `prepare` for each block step that differs from the plan of `previous`. Fails like `update`."""
        ...
