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
from livegrad.live.compile.live_plan import BlockStep, LivePlan, Operand
from livegrad.live.graph.sources import Numbers
from livegrad.ops.context import FeatureLevel


@dataclass(frozen=True)
class Failure:
    """A step that could not finish. What depends on it was not run."""

    step: str
    error: LivegradError


class StepError(LivegradError):
    """What went wrong with one step while a plan was put in place: a capture, a module that does not load."""

    code = "step"

    def __init__(self, step: str, error: LivegradError) -> None:
        self.step, self.error = step, error
        super().__init__(str(error))


@dataclass(eq=False, slots=True)  # not frozen: one is made in every frame, and that takes three times as long
class RunReport:
    """What one run did: the steps that ran, how often each block's function was called, what failed, and times."""

    ran: tuple[str, ...]
    calls: Mapping[str, int]
    failures: tuple[Failure, ...] = ()
    seconds: Mapping[str, float] | None = None  # by step, when asked for
    started: Mapping[str, float] | None = None  # when, on a clock of the executor's own
    # Not None: the run may still fail. The report that counts comes from here, when all of it has ended.
    later: Callable[[], RunReport] | None = None
    spared: tuple[str, ...] = ()  # steps that did not run because nothing that they read has changed
    unneeded: tuple[str, ...] = ()  # steps that did not run because nothing that ran needs their results


Profile = Literal[False, "block", "step"]


class Reading(Protocol):
    """A value that was asked for: whether it is there, and itself. It is that of the runs before it was asked for."""

    def ready(self) -> bool:
        """Whether `result` would return at once."""
        ...

    def result(self) -> Numbers:
        """The value, once it is there."""
        ...


@dataclass(frozen=True, eq=False)
class Known:
    """A value that is there already.

    >>> import numpy as np
    >>> Known(np.ones(2)).ready()
    True
    """

    value: Numbers

    def ready(self) -> bool:
        """Always."""
        return True

    def result(self) -> Numbers:
        """The value."""
        return self.value


class Executable(Protocol):
    """A plan that can run. Methods other than `run` and `read` take effect before the next run."""

    plan: LivePlan

    @property
    def waiting(self) -> Collection[str]:
        """Steps that have no value yet, because nobody has needed it; an executor may run all of them instead."""
        ...

    def require(self, is_needed: Callable[[str], bool], wanted: Collection[str] = ()) -> Collection[str]:
        """Says which steps are needed even if no step reads them that runs; gives those that have waited so far.

        `wanted` are those that were not needed when this was last called.
        """
        ...

    def catch_up(self, step: str, failed: Mapping[str, LivegradError]) -> RunReport:
        """Runs a step that waits, and what it waits for, with what the last run would have read.

        `failed` has the errors of steps that have no value.
        """
        ...

    def put_off(self, steps: Iterable[str]) -> None:
        """Has steps that caught up wait again: their results are not to be used."""

    def set_parameter(self, key: str, value: Any) -> None:
        """Hot: a number that steps take by value."""

    def setter(self, key: str) -> Callable[[Any], None]:
        """What `set_parameter` does for one number, for as long as the plan is the same."""
        ...

    def set_feature(self, feature: FeatureLevel, value: Any) -> None:
        """Hot: a feature that steps take by value."""

    def write(self, buffer: str, contents: Numbers) -> None:
        """New contents for a buffer, of the same type and shape."""

    def update(self, plan: LivePlan, codes: Mapping[str, Any], steps: Sequence[str]) -> None:
        """Warm and code: the steps named have new sizes, memory or functions in `plan`, which has the same structure.

        Where the executor edits in place, also cold: steps and states named may have come, gone, or have other edges.
        `codes` has what `prepare` made for each of their block steps. Buffers whose spec is unchanged keep their
        contents. Steps with captured calls are captured anew. Fails as a whole or not at all, with a `LivegradError`;
        one that is about a step is a `StepError`.
        """

    def swap(self, step: BlockStep, code: Any) -> None:
        """Code: a step of the plan has another function, on the same memory. Fails like `update`."""

    def make_ready(self, steps: Sequence[str]) -> None:
        """Makes what a run of these steps needs, so that nothing of it can fail later. Fails like `update`."""

    def run(
        self,
        steps: Sequence[str],
        profile: Profile = False,
        forced: Collection[str] | None = None,
        touched: Collection[object] = (),
    ) -> RunReport:
        """Runs these steps, which are given in the plan's order. `profile` measures them, or those in regions too.

        Where `forced` is given, the other steps need not run if what they read came out as it was; regions among them
        read what is `touched` (keys of numbers, features and buffers) besides. An executor may run them all the same.
        """
        ...

    def operands_read(self, step: str) -> Iterable[Operand]:
        """What a step read in its last run, as far as that is known; else all that it may read."""
        ...

    def starter(self, steps: Sequence[str]) -> Callable[[], RunReport | None] | None:
        """Starts these steps as `run` does, without a look at what cannot have changed since they last ran.

        None: only `run` can. The starter may say so later too, by giving None, and then has started nothing.
        """
        ...

    def stage(self) -> Collection[str] | None:
        """Makes sure that all states can take their next values at once: one may be another's next.

        Gives the keys of the states whose value will be another one; None where that is not known.
        """
        ...

    def advance(self) -> None:
        """All states take their next values, which were staged. A second time, before the next run, changes nothing."""

    def read(self, buffer: str) -> Numbers:
        """A copy of a buffer's contents, after all runs so far."""
        ...

    def read_operand(self, buffer: str) -> Numbers:
        """The contents of a buffer as steps of the last run read them: states may have another value since."""
        ...

    def read_later(self, buffer: str) -> Reading:
        """The same, without waiting; later runs do not change what it gives."""
        ...

    def close(self) -> None:
        """Gives back memory; nothing may be called after."""


class Executor(Protocol):
    """Makes executables."""

    @property
    def name(self) -> str: ...

    @property
    def edits_in_place(self) -> bool:
        """Whether `update` also takes other steps, edges and states; else they need another executable."""
        ...

    def prepare(self, step: BlockStep) -> Any:
        """Compiles a step. Raises a `LivegradError` that names the user's line; has no other effect."""

    def build(
        self, plan: LivePlan, codes: Mapping[str, Any], features: Mapping[FeatureLevel, Any], previous: Any
    ) -> Executable:
        """Cold: an executable of the plan. Buffers that `previous` has under the same spec are taken over with their
        contents; `previous` can run on until this returns, and is closed by the engine afterwards. `codes` has what
        `prepare` made for each block step that is not in the plan of `previous` as it is. Fails like `update`, and has
        then changed nothing."""
        ...
