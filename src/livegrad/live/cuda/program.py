"""The program of a frame: graphs in order, with host calls between them where a block needs one.

`ProgramBuilder` builds programs from stale steps. Without host calls, a program is one graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.live_graph import LiveGraph
from livegrad.live.executor import Failure, Profile, RunReport
from livegrad.runtime.cuda.driver import check, device, driver, is_current


@dataclass(eq=False)
class HostCallPart:
    """A host call. It waits for the device, from which it copies its operands."""

    owner: str  # the step of the plan that contains it
    call: Callable[[], None]


class Timing:
    """Events before and after the steps of a plan, and the timed inner steps.

    The events live as long as this object. A frame with unread times keeps it alive after the program is closed.
    """

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._finalizer = weakref.finalize(self, _destroy, self._events, device().context_number)
        self._finalizer.atexit = False
        self.first = self.event()
        self.around: dict[str, tuple[Any, Any]] = {}
        self.inside: list[str] = []  # steps inside regions, which kernels time

    def event(self) -> Any:
        """A new event."""
        self._events.append(check(driver.cuEventCreate(0)))
        return self._events[-1]


def _destroy(events: list[Any], context_number: int) -> None:
    if is_current(context_number):
        for event in events:
            driver.cuEventDestroy(event)


@dataclass(eq=False)
class Program:
    """Graphs and host calls, in order."""

    steps: tuple[str, ...]
    parts: list[LiveGraph | HostCallPart] = field(default_factory=list)
    profile: Profile = False
    reports_failures: bool = False  # a run may report failed checks or full tapes
    counted: bool = False  # a run counts the runs of region bodies
    timing: Timing | None = None
    externals: tuple[str, ...] = ()  # external buffers that it reads
    calls: dict[str, int] = field(default_factory=dict)  # the functions that every run calls once
    members: frozenset[str] = frozenset()  # all its steps, including those inside regions
    owners: dict[str, str] = field(default_factory=dict)  # each call, also inside regions → the step of the plan
    generation: int = 0  # of the buffers whose addresses its nodes hold
    plain: bool = False  # nothing has to be checked after a run
    report: RunReport = field(default_factory=lambda: RunReport((), {}))  # the report of a plain run
    last_times: Any = None  # of the last run, whose events the next run reuses
    nested: list[Program] = field(default_factory=list)  # programs of regions that the host runs

    @property
    def graphs(self) -> Iterator[LiveGraph]:
        return (part for part in self.parts if isinstance(part, LiveGraph))

    def update_checks(self, bound: Mapping[str, BoundStep]) -> None:
        """Updates whether runs must be checked for failures, after building and after edits."""
        self.reports_failures = any(key in bound and bound[key].reports_failures for key in self.owners)
        self.plain = not (self.reports_failures or self.counted or self.timing)

    def start(self, stream: Any) -> list[Failure]:
        """Starts all parts. An error of a host call is a failure of its step; the other steps continue."""
        parts = self.parts
        if len(parts) == 1 and self.timing is None and parts[0].__class__ is LiveGraph:
            parts[0].start(stream)  # type: ignore[union-attr]
            return []
        failures: list[Failure] = []
        if self.timing is not None:
            check(driver.cuEventRecord(self.timing.first, stream))
        for part in parts:
            if isinstance(part, LiveGraph):
                part.start(stream)
            elif all(failure.step != part.owner for failure in failures):
                try:
                    part.call()
                except LivegradError as error:
                    failures.append(Failure(part.owner, error))
        return failures

    def close(self) -> None:
        self.generation = -1  # keeps starters from starting it
        for part in self.graphs:
            part.close()
        for program in self.nested:
            program.close()
        self.last_times = None  # readers of the times keep their events alive


def externals_of(program: Program, plan: LivePlan) -> tuple[str, ...]:
    """The external buffers that a program reads."""
    return tuple(key for key in plan.bindings if not program.members.isdisjoint(plan.readers.get(key, ())))
