"""The data types of a serialised device executable: kernel launches, library calls, and graphs of them.

`serialised_device_plan.py` creates them from plans. `device_plan.py` builds graphs of them; `device_loop.py` enqueues
those of a loop body in each iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.argument_slots import ArgumentSlot, Slots
from livegrad.codegen.check_sites import Site
from livegrad.runtime.cuda.libraries import LibraryCall
from livegrad.runtime.serialised import SerialisedExecutable


@dataclass(frozen=True)
class SerialisedLaunch:
    """One kernel launch: its code by key, its argument slots, its grid, and the memory that it needs."""

    number: int  # of the step
    name: str
    code: bytes
    slots: Slots
    grid: int
    threads: int
    workers: int
    scratch: tuple[tuple[int, int], ...]  # (buffer, bytes for all workers)
    partial_bytes: int
    counters: int
    uses_tapes: bool
    polls: bool  # whether it has an unbounded loop, which polls the interrupt flag
    sites: tuple[Site, ...]


@dataclass(frozen=True)
class SerialisedLibraryCall:
    """A library call that is captured into the graph, and the slots of its operands and result."""

    number: int
    call: LibraryCall
    operands: tuple[ArgumentSlot, ...]  # if the call can fail, the last one is the status word
    result: ArgumentSlot
    sites: tuple[Site, ...] = ()


@dataclass(frozen=True)
class SerialisedHostStep:
    """One step that the host runs."""

    number: int


@dataclass(frozen=True)
class SerialisedGraph:
    """Launches that run as one graph; `dependencies` has the indices of the launches that each one waits for."""

    launches: tuple[SerialisedLaunch | SerialisedLibraryCall, ...]
    dependencies: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SerialisedDevicePlan(SerialisedExecutable):
    """A whole plan: graphs, and host steps between them."""

    segments: tuple[SerialisedGraph | SerialisedHostStep, ...]
    steps: int

    @property
    def launches(self) -> tuple[SerialisedLaunch | SerialisedLibraryCall, ...]:
        return tuple(
            launch for segment in self.segments if isinstance(segment, SerialisedGraph) for launch in segment.launches
        )

    @property
    def kernels(self) -> list[SerialisedLaunch]:
        return [launch for launch in self.launches if isinstance(launch, SerialisedLaunch)]
