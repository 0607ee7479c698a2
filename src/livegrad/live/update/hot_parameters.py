"""Hot parameters: numbers that change often. The effects of a change are looked up once per plan.

The engine tries this first. New parameters, and those with other effects, take the general path (`apply.py`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from livegrad.ir.types import f32, f64, scalar_of
from livegrad.live.compile.live_plan import RegionStep
from livegrad.live.executor import Executable, RunReport
from livegrad.live.graph.block import Pin
from livegrad.live.graph.journal import Entry
from livegrad.live.stale_sets import StaleSet

_SURE = 1e38  # floats up to this fit in f32 and f64


@dataclass(eq=False, slots=True)
class HotParameter:
    """A parameter that is a float: its key, the steps that read it, and what to do when it changes."""

    key: str
    readers: tuple[str, ...]
    parameters: MutableMapping[str, Any]  # of the plan
    put: Callable[[float], None]  # hands it to the executable
    seeds: dict[str, str]  # its readers are stale; the frame's change has the reason
    touched: dict[str, set[object]]  # the regions among them, which may or may not read it
    stale: StaleSet | None = None  # what follows from that, when nothing else is stale
    start: Callable[[], RunReport | None] | None = None  # starts just that


class HotParameters:
    """The hot parameters of the plan that runs. Another plan forgets them: what they hold belongs to one plan."""

    def __init__(self) -> None:
        self._known: dict[Pin, HotParameter] = {}

    def note(self, pin: Pin, key: str, executable: Executable) -> None:
        """Remembers a parameter that was changed on the general path."""
        plan = executable.plan
        if pin not in self._known and all(scalar_of(type) in (f32, f64) for type in plan.types_of_number(key)):
            readers = plan.readers[key]
            seeds = dict.fromkeys(readers, "")
            touched: dict[str, set[object]] = {one: {key} for one in readers if isinstance(plan.steps[one], RegionStep)}
            self._known[pin] = HotParameter(key, readers, plan.parameters, executable.setter(key), seeds, touched)

    def forget(self) -> None:
        """Another plan runs from now on."""
        self._known.clear()

    def find_update(self, entry: Entry) -> tuple[HotParameter, float] | None:
        """The parameter that a frame's only edit sets, and its new value; None if the edit needs more than that."""
        detail = entry.detail
        if detail.__class__ is not tuple:
            return None
        parameter, value = self._known.get(entry.subject), detail[1]
        return (parameter, value) if parameter is not None and -_SURE <= value <= _SURE else None  # type: ignore[return-value,operator]
