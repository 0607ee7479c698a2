"""Deferred results of frames: step times, call counts and append counters, which some executors deliver later.

`Runtime` pairs each reading with a receiver from here, and calls the receiver once the reading is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from livegrad.live.executor import Reading
from livegrad.live.frame import Frame
from livegrad.live.graph.block import Debug
from livegrad.live.graph.sources import Numbers


class MappingReading:
    """A mapping from a run report, such as times or call counts by step, as a reading."""

    def __init__(self, mapping: Mapping[str, float]) -> None:
        self._mapping = mapping

    def ready(self) -> bool:
        """Whether the mapping is available without waiting."""
        return getattr(self._mapping, "ready", lambda: True)()

    def result(self) -> Any:
        """The mapping."""
        return self._mapping


class CombinedReading:
    """Several readings combined into one."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = readings

    def ready(self) -> bool:
        """Whether all values are available."""
        return all(reading.ready() for reading in self._readings)

    def result(self) -> Any:
        """The values."""
        return [reading.result() for reading in self._readings]


def notify_times(frame: Frame, debugs: Mapping[str, Debug]) -> Callable[[Any], None]:
    """Returns a receiver that passes the times of a run to the frame and to blocks."""

    def notify(seconds: Mapping[str, float]) -> None:
        frame.seconds = seconds
        for key, debug in debugs.items():
            debug.seconds = seconds.get(key, debug.seconds)

    return notify


def notify_calls(debugs: Mapping[str, Debug]) -> Callable[[Any], None]:
    """Returns a receiver that adds the calls of a run to the run counts of blocks inside regions."""

    def notify(calls: Mapping[str, int]) -> None:
        for key, count in calls.items():
            if key in debugs:
                debugs[key].untallied_runs += count

    return notify


def notify_limits(frame: Frame, blocks: Sequence[tuple[str, Debug, int]]) -> Callable[[Any], None]:
    """Returns a receiver that warns of counters above their limits. `blocks` has the step, block and limit of each."""

    def notify(values: Sequence[Numbers]) -> None:
        for (key, debug, limit), value in zip(blocks, values, strict=True):
            debug.warnings = [f"{key}: {int(value)} elements, room for {limit}"] if int(value) > limit else []
        frame.warnings = tuple(warning for _, debug, _ in blocks for warning in debug.warnings)

    return notify
