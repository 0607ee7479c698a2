"""Reports runs on the device that count, measure or may fail; `program_builder.py` reports all others.

Counts and times are fetched on access. A run with checks, or with loops that store residuals, has a deferred report,
whose readers wait for the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import KernelCheckError, LivegradError
from livegrad.live.compile.live_steps import RegionStep, Step, operand_key
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.ledger import CLEAN, Snapshot
from livegrad.live.cuda.program import Program
from livegrad.live.executor import Failure, RunReport
from livegrad.runtime.cuda.driver import check, device, driver
from livegrad.runtime.cuda.serialised_launches import SerialisedLaunch

if TYPE_CHECKING:
    from livegrad.live.cuda.executable import CudaExecutable


class LazyMapping(Mapping[str, Any]):
    """A mapping that is computed on first access."""

    def __init__(self, make: Callable[[], Mapping[str, Any]], is_ready: Callable[[], bool]) -> None:
        self._make: Callable[[], Mapping[str, Any]] | None = make
        self._mapping: Mapping[str, Any] = {}
        self.ready = is_ready

    def _get(self) -> Mapping[str, Any]:
        make = self._make
        if make is not None:  # concurrent threads compute equal mappings
            self._mapping = make()
            self._make = None
        return self._mapping

    def __getitem__(self, key: str) -> Any:
        return self._get()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())

    def __repr__(self) -> str:
        return repr(dict(self._get()))


def report_of(
    executable: CudaExecutable, program: Program, snapshot: Snapshot | None, failures: Sequence[Failure]
) -> RunReport:
    """The report of a run that was just started."""
    if snapshot is None:
        return _make_report(executable, program, program.calls, failures, None, None)
    run = _Run(executable, program, snapshot, failures)
    seconds = started = None
    if program.timing is not None:
        seconds = LazyMapping(lambda: run.times()[0], run.ready)
        started = LazyMapping(lambda: run.times()[1], run.ready)
        program.last_times = run
    calls: Mapping[str, int] = LazyMapping(run.calls, run.ready) if program.counted else program.calls
    if program.reports_failures:
        return RunReport(
            program.steps, calls, tuple(failures), seconds, started, lambda: run.finish(calls, seconds, started)
        )
    return _make_report(executable, program, calls, failures, seconds, started)


def _make_report(
    executable: CudaExecutable,
    program: Program,
    calls: Mapping[str, int],
    failures: Sequence[Failure],
    seconds: Any,
    started: Any,
) -> RunReport:
    """Makes a report without failed steps and their dependents."""
    lost = _find_lost(executable, program.steps, {failure.step for failure in failures}) if failures else set()
    ran = tuple(key for key in program.steps if key not in lost) if lost else program.steps
    return RunReport(ran, calls, tuple(failures), seconds, started)


def _find_lost(executable: CudaExecutable, steps: Iterable[str], failed: set[str]) -> set[str]:
    lost, plan = set(failed), executable.plan
    for key in steps:
        sources = (plan.producer.get(str(operand_key(operand))) for operand in plan.steps[key].all_operands())
        if key not in lost and any(source in lost for source in sources):
            lost.add(key)
    return lost


class _Run:
    """A run whose ledger is being copied to the host."""

    def __init__(
        self, executable: CudaExecutable, program: Program, snapshot: Snapshot, failures: Sequence[Failure]
    ) -> None:
        self.executable, self.program = executable, program
        self.snapshot, self.failures = snapshot, failures
        self._times: tuple[dict[str, float], dict[str, float]] | None = None
        self._host_calls = dict(executable.host.calls)

    def ready(self) -> bool:
        """Whether the ledger has arrived."""
        return self.snapshot.ready()

    # --- checks ---

    def finish(self, calls: Mapping[str, int], seconds: Any, started: Any) -> RunReport:
        """The report after the run has ended. A run with full tapes is repeated with larger ones."""
        failures = {failure.step: failure for failure in self.failures}
        while full := self._steps_with_full_tapes():
            try:
                self.executable.grow_tapes(full)
            except LivegradError as error:
                owners = {self.program.owners[key] for key in full}
                failures |= {owner: Failure(owner, error) for owner in owners}
                break
            self.executable.reports.ledger.clear()
            for failure in self.program.start(device().stream):
                failures[failure.step] = failure
            self.snapshot = self.executable.reports.ledger.snapshot()
        for bound in self._reporting_steps():
            error = self._failed_check(bound)
            owner = self.program.owners[bound.key]
            if error is not None and owner not in failures:
                failures[owner] = Failure(owner, error)
        return _make_report(self.executable, self.program, calls, tuple(failures.values()), seconds, started)

    def _reporting_steps(self) -> Iterator[BoundStep]:
        bound = self.executable.bound
        return (bound[key] for key in self.program.owners if key in bound and bound[key].reports_failures)

    def _status_words(self, bound: BoundStep) -> Any:
        first = (bound.status - self.executable.reports.ledger.status_address) // 8
        return self.snapshot.status[first : first + bound.status_words]

    def _steps_with_full_tapes(self) -> list[str]:
        return [bound.key for bound in self._reporting_steps() if int(self._status_words(bound)[-1]) != CLEAN]

    def _failed_check(self, bound: BoundStep) -> LivegradError | None:
        for item, status in zip(bound.code.items, self._status_words(bound), strict=False):
            if isinstance(item, SerialisedLaunch) and item.sites and int(status) != CLEAN:
                site = item.sites[int(status) & 0xFFFF]
                return KernelCheckError(f"{site.message}, at element {int(status) >> 16}", where=site.origin)
        return None

    # --- counts and times ---

    def calls(self) -> Mapping[str, int]:
        """The number of calls of each block's function, and of runs of each inner region."""
        counts = {**self.program.calls, **self._host_calls}
        for key in self.program.steps:
            self._count(self.executable.plan.steps[key], counts)
        return counts

    def _count(self, step: Step, counts: dict[str, int]) -> None:
        if not isinstance(step, RegionStep):
            return
        first = self.executable.reports.counts_index(step.key)
        for index, body in enumerate(step.bodies):
            count = int(self.snapshot.counts[first + index])
            for inner in body:
                if count:
                    counts[inner.key] = count
                self._count(inner, counts)

    def times(self) -> tuple[dict[str, float], dict[str, float]]:
        """The duration of each step, and its start. Inside regions, the durations are sums."""
        if self._times is None:
            timing = self.program.timing
            assert timing is not None
            self.snapshot.take()
            seconds, started = {}, {}
            for key, (start, stop) in timing.around.items():
                started[key] = 1e-3 * check(driver.cuEventElapsedTime(timing.first, start))
                seconds[key] = 1e-3 * check(driver.cuEventElapsedTime(start, stop))
            for key in timing.inside:
                seconds[key] = 1e-9 * float(self.snapshot.counts[self.executable.reports.timers[key] + 1])
                started[key] = started[self.program.owners[key]]
            self._times = seconds, started
        return self._times
