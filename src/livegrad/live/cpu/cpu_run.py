"""Runs the stale steps of a live plan on the CPU, except dependents of unchanged results and steps that nothing needs.

`CpuExecutable.run` creates a `Run`. A step that only bodies of regions read waits until a region takes such a body, in
this run or a later one, or until a user reads its result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_steps import RegionStep
from livegrad.live.cpu.cut_off import NONE, find_equal
from livegrad.live.cpu.on_demand import producers, unconditional_operands
from livegrad.live.executor import Failure, Profile, RunReport

if TYPE_CHECKING:
    from livegrad.live.cpu.cpu_executor import CpuExecutable


class LostResult(Exception):
    """Raised if a region body reads the results of a failed step."""


class _TooDeep(Exception):
    """Raised if nested requests for results are too deep. `steps` are those of the last request."""

    def __init__(self, steps: Sequence[str]) -> None:
        super().__init__()
        self.steps = steps


_MAX_NESTED = 32  # nested runs of steps: Python's stack has room for about a hundred


class Run:
    """The state of one run."""

    __slots__ = (
        "_changed", "_cut_off", "_depth", "_executable", "_failures", "_forced", "_lost", "_plan", "_profile", "_ran",
        "_spared", "_times", "_unneeded", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        executable: CpuExecutable,
        profile: Profile = False,
        forced: Collection[str] | None = None,
        touched: Collection[object] = (),
        lost: Iterable[str] = (),
    ) -> None:
        self._executable, self._plan = executable, executable.plan
        self._cut_off, self._waiting = executable.cut_off, executable.waiting
        self._profile, self._forced = profile, forced
        self._depth = 0  # the number of nested steps, each requested by the enclosing step
        self._ran: list[str] = []
        self._spared: list[str] = []
        self._unneeded: dict[str, None] = {}
        self._failures: list[Failure] = []
        self._lost = set(lost)  # steps without values: failed ones and their dependents
        self._times: dict[str, tuple[float, float]] = {}  # if measured: when each step started, and its seconds
        # The changed operands; None: all results of the steps that ran.
        self._changed: set[object] | None = set(touched) if touched else None

    def run_steps(self, steps: Sequence[str]) -> None:
        """Runs these steps, without the dependents of failed ones."""
        on_demand = self._executable.on_demand if self._forced is not None else ()
        regions = self._cut_off.begin_run()
        for key in steps:
            if key in on_demand:
                self._waiting[key] = self._must_run(key) or self._waiting.get(key, False)
                self._unneeded[key] = None
            elif self._lost and self._has_lost_source(key):
                self._lost.add(key)
            elif (self._forced is None or key in self._forced) or (self._changed is None and key not in regions):
                self._execute(key)
            else:
                self._run_if_changed(key)

    def pull(self, steps: Iterable[str]) -> None:
        """Runs those of the steps that wait, and their waiting sources. Raises `LostResult` if one has no value."""
        if self._waiting:
            if self._depth > _MAX_NESTED and not self._waiting.keys().isdisjoint(steps):
                raise _TooDeep(tuple(steps))
            for key in sorted(self._waiting_for(steps), key=self._plan.position.__getitem__):
                must_run = self._waiting.get(key)
                if must_run is None:
                    continue  # another region has already pulled it
                if self._lost and self._has_lost_source(key):
                    self._lost.add(key)
                elif must_run:
                    self._execute(key)
                else:
                    self._run_if_changed(key)
                self._unneeded.pop(key, None)
                if key not in self._lost:
                    del self._waiting[key]
        if self._lost and not self._lost.isdisjoint(steps):
            raise LostResult

    def record_failure(self, step: str, failed: Mapping[str, LivegradError]) -> None:
        """Records that a step has no value because one of its sources failed in an earlier run."""
        if self._failures:
            return
        waiting = [self._plan.steps[key] for key in self._waiting_for((step,))]
        sources = [key for waiting_step in waiting for key in producers(self._plan, waiting_step.all_operands())]
        errors = [failed[key] for key in sources if key in failed] or list(failed.values())
        self._failures.append(Failure(step, errors[0]))

    def report(self) -> RunReport:
        """The report of the run."""
        inside = self._executable.call_factory
        report = RunReport(tuple(self._ran), inside.counts)
        if self._profile:
            report.started = {key: start for key, (start, _) in self._times.items()} | inside.started
            report.seconds = {key: seconds for key, (_, seconds) in self._times.items()} | inside.seconds
        if self._failures:
            report.failures = tuple(self._failures)
        if self._spared:
            report.spared = tuple(self._spared)
        if self._unneeded:
            report.unneeded = tuple(self._unneeded)
        return report

    def _waiting_for(self, steps: Iterable[str]) -> set[str]:
        """Those of the steps that wait, and the waiting steps that they read."""
        needed: set[str] = set()
        worklist = list(steps)
        while worklist:
            key = worklist.pop()
            if key in self._waiting and key not in needed:
                needed.add(key)
                worklist += producers(self._plan, unconditional_operands(self._plan.steps[key]))
        return needed

    def _has_lost_source(self, key: str) -> bool:
        """Whether a step always reads a lost result."""
        return not self._lost.isdisjoint(producers(self._plan, unconditional_operands(self._plan.steps[key])))

    def _must_run(self, key: str) -> bool:
        """Whether a step is forced, or one of its operands has changed in this run so far."""
        if self._forced is None or key in self._forced:
            return True
        if self._changed is None:
            self._changed = self._cut_off.changed_by(self._ran)
        return self._cut_off.must_run(key, self._changed)

    def _run_if_changed(self, key: str) -> None:
        """Runs a step if one of its operands has changed. A region depends on what it read in its last run."""
        step, taken = self._plan.steps[key], self._cut_off.taken.get(key)
        if isinstance(step, RegionStep) and taken is not None and not self._must_run(key):
            sources = producers(self._plan, step.operands_of_bodies(taken))
            sources.pop(key, None)  # a body may read a result of its own region
            try:
                self.pull(sources)
            except LostResult:
                self._lost.add(key)
                return
        if self._must_run(key):
            self._execute(key)
        else:
            self._spared.append(key)

    def _execute(self, key: str) -> None:
        start = perf_counter() if self._profile else 0.0
        try:
            if self._waiting:
                self._call(key)
            else:
                self._executable.calls[key]()
        except LostResult:
            return self._mark_lost(key)
        except LivegradError as error:
            self._failures.append(Failure(key, error))
            return self._mark_lost(key)
        if self._profile:
            self._times[key] = start, perf_counter() - start
        self._ran.append(key)
        results = self._cut_off.results[key]
        equal = find_equal(results) if results else NONE
        if equal or self._changed is not None:
            self._record_changes(key, equal)
        if self._waiting:
            self._force_waiting_readers(key, equal)
        return None

    def _call(self, key: str) -> None:
        """Calls a step. If its requests nest too deeply, runs the requested steps first and then restarts the step."""
        if self._depth:
            self._depth += 1
            try:
                self._executable.calls[key]()
            finally:
                self._depth -= 1
            return
        requested: list[Sequence[str]] = []
        self._depth = 1
        try:
            while True:
                try:
                    if not requested:
                        return self._executable.calls[key]()
                    self.pull(requested[-1])
                    requested.pop()
                except _TooDeep as deeper:
                    requested.append(deeper.steps)
        finally:
            self._depth = 0

    def _mark_lost(self, key: str) -> None:
        self._lost.add(key)
        self._cut_off.forget_results(key)

    def _record_changes(self, key: str, equal: frozenset[str]) -> None:
        """Records which results of a step have changed."""
        if self._changed is None:
            self._changed = self._cut_off.changed_by(self._ran)
        else:
            self._changed.update(self._cut_off.changed_by((key,)))
        self._changed -= equal

    def _force_waiting_readers(self, key: str, equal: frozenset[str]) -> None:
        """Forces waiting steps that read a changed result of a step."""
        changed = self._cut_off.changed_by((key,)) - equal
        for reader in self._plan.consumers[key] if changed else ():
            if reader in self._waiting and self._cut_off.must_run(reader, changed):
                self._waiting[reader] = True
