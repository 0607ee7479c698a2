"""Hot parameters: caches the effects of changing a number, which many programs do in every frame.

The engine tries this path first. New parameters, and those with other effects, take the general path (`apply.py`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from livegrad.ir.types import f32, f64, scalar_of
from livegrad.live.compile.live_steps import RegionStep
from livegrad.live.executor import Executable, RunReport
from livegrad.live.graph.block import Pin
from livegrad.live.graph.journal import Entry
from livegrad.live.stale_sets import StaleSet

_LARGEST_SAFE = 1e38  # floats up to this fit in f32 and f64


@dataclass(eq=False, slots=True)
class HotParameter:
    """A float parameter: its key, its readers, and the effects of a change."""

    key: str
    readers: tuple[str, ...]
    parameters: MutableMapping[str, Any]  # of the plan
    put: Callable[[float], None]  # passes it to the executable
    seeds: dict[str, str]  # its readers, which become stale; the change of the frame has the reason
    touched: dict[str, set[object]]  # regions among the readers, which run only if a taken body reads it
    stale: StaleSet | None = None  # the steps to run if nothing else is stale
    start: Callable[[], RunReport | None] | None = None  # starts those steps


class HotParameters:
    """The hot parameters of the running plan. They are dropped when another plan runs."""

    def __init__(self) -> None:
        self._parameters: dict[Pin, HotParameter] = {}

    def add(self, pin: Pin, key: str, executable: Executable) -> None:
        """Adds a parameter after the general path has changed it."""
        plan = executable.plan
        if pin not in self._parameters and all(scalar_of(type) in (f32, f64) for type in plan.types_of_number(key)):
            readers = plan.readers[key]
            seeds = dict.fromkeys(readers, "")
            touched: dict[str, set[object]] = {
                reader: {key} for reader in readers if isinstance(plan.steps[reader], RegionStep)
            }
            self._parameters[pin] = HotParameter(key, readers, plan.parameters, executable.setter(key), seeds, touched)

    def forget(self) -> None:
        """Drops all parameters, because another plan runs from now on."""
        self._parameters.clear()

    def find_update(self, entry: Entry) -> tuple[HotParameter, float] | None:
        """The parameter that an entry sets, and its value; None if the edit takes the general path."""
        detail = entry.detail
        if detail.__class__ is not tuple:
            return None
        parameter, value = self._parameters.get(entry.subject), detail[1]
        return (parameter, value) if parameter is not None and -_LARGEST_SAFE <= value <= _LARGEST_SAFE else None  # type: ignore[return-value,operator]
