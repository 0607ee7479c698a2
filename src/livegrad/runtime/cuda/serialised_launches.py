"""The parts of a serialised device executable: launches of kernels, calls of libraries, and the graphs they form.

`serialised_device_plan.py` makes them from plans; `device_loop.py` runs those of a loop's body many times.
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
    operands: tuple[ArgumentSlot, ...]  # the status word behind them, where the call can fail
    result: ArgumentSlot
    sites: tuple[Site, ...] = ()


@dataclass(frozen=True)
class SerialisedHostStep:
    """One step that the host runs."""

    number: int


@dataclass(frozen=True)
class SerialisedGraph:
    """Launches that run as one graph, and for each the indices of those that must end before it starts."""

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
