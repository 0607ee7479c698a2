"""The program of a frame: graphs in order, with host calls between them where a block needs one.

`ProgramBuilder` builds programs from the stale steps. Without host calls, a program is one graph.
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
from livegrad.runtime.cuda.driver import checked, device, driver, is_current


@dataclass(eq=False)
class HostPart:
    """A call of the host; what it reads is fetched from the device, so it waits."""

    owner: str  # the step of the plan that it is part of
    call: Callable[[], None]


class Timing:
    """Events around the steps of a plan, and which steps inside of them are timed too.

    Events live as long as this: a frame whose times nobody has looked at yet keeps it, when the program is gone.
    """

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._cleaning = weakref.finalize(self, _destroy, self._events, device().context_number)
        self._cleaning.atexit = False
        self.first = self.event()
        self.around: dict[str, tuple[Any, Any]] = {}
        self.inside: list[str] = []  # steps in regions, which are timed by kernels

    def event(self) -> Any:
        """A new event."""
        self._events.append(checked(driver.cuEventCreate(0)))
        return self._events[-1]


def _destroy(events: list[Any], context_number: int) -> None:
    if is_current(context_number):
        for event in events:
            driver.cuEventDestroy(event)


@dataclass(eq=False)
class Program:
    """Graphs and calls of the host, in order."""

    steps: tuple[str, ...]
    parts: list[LiveGraph | HostPart] = field(default_factory=list)
    profile: Profile = False
    watched: bool = False
    counted: bool = False
    timing: Timing | None = None
    externals: tuple[str, ...] = ()  # buffers that it reads and that belong to others
    calls: dict[str, int] = field(default_factory=dict)  # what every run calls once
    members: frozenset[str] = frozenset()  # all steps in it, inside regions too
    owners: dict[str, str] = field(default_factory=dict)  # calls inside regions too → the step of the plan
    generation: int = 0  # of the buffers whose addresses its nodes have
    plain: bool = False  # nothing is to be looked at after a run
    report: RunReport = field(default_factory=lambda: RunReport((), {}))  # what there is to say of such a run
    last_times: Any = None  # of the last run, whose events the next one records anew
    nested: list[Program] = field(default_factory=list)  # of regions that the host runs

    @property
    def graphs(self) -> Iterator[LiveGraph]:
        return (part for part in self.parts if isinstance(part, LiveGraph))

    def look_for_watched(self, bound: Mapping[str, BoundStep]) -> None:
        """Finds whether a run may end with something to tell; after an edit, it is found anew."""
        self.watched = any(key in bound and bound[key].watched for key in self.owners)
        self.plain = not (self.watched or self.counted or self.timing)

    def start(self, stream: Any) -> list[Failure]:
        """Starts everything; what a call of the host raises is the failure of its step, and the rest goes on."""
        parts = self.parts
        if len(parts) == 1 and self.timing is None and parts[0].__class__ is LiveGraph:
            parts[0].start(stream)  # type: ignore[union-attr]
            return []
        failures: list[Failure] = []
        if self.timing is not None:
            checked(driver.cuEventRecord(self.timing.first, stream))
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
        self.generation = -1  # a holder of the old one does not start it
        for part in self.graphs:
            part.close()
        for program in self.nested:
            program.close()
        self.last_times = None  # its readers hold them, and with them the events


def externals_of(program: Program, plan: LivePlan) -> tuple[str, ...]:
    """The buffers of others that a program reads."""
    return tuple(key for key in plan.bindings if not program.members.isdisjoint(plan.readers.get(key, ())))
