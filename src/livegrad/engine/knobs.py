"""Numbers that are turned again and again: what a change of one leads to is looked up once for each plan.

The engine asks here first. A knob that is not known yet, or not as simple as it was, takes the long way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from livegrad.engine.graph import Pin
from livegrad.engine.journal import Entry
from livegrad.engine.live_plan import LivePlan
from livegrad.engine.sources import Setting, same_value
from livegrad.ir.types import f32, f64, scalar_of

_SURE = 1e38  # floats up to this fit in f32 and f64


class Knob(NamedTuple):
    """A parameter that is a float: its key, and the steps that read it."""

    key: str
    readers: tuple[str, ...]
    sources: Mapping[Pin, Any]  # of the graph that the pin is in


class Knobs:
    """The knobs of one plan. Another plan forgets them: a plan must not outlive its time, for it holds memory."""

    def __init__(self) -> None:
        self._plan: LivePlan | None = None
        self._known: dict[Pin, Knob] = {}

    def note(self, pin: Pin, key: str, plan: LivePlan, sources: Mapping[Pin, Any]) -> None:
        """Remembers a parameter that was changed the long way."""
        if all(scalar_of(type) in (f32, f64) for type in plan.types_of_number(key)):
            if plan is not self._plan:
                self._known.clear()
                self._plan = plan
            self._known[pin] = Knob(key, plan.readers[key], sources)

    def turned(self, entry: Entry, plan: LivePlan) -> tuple[Knob, float] | None:
        """The knob that an edit turns, and its new value; None if it takes more than that."""
        knob = self._known.get(entry.subject) if entry.kind == "value" else None
        if knob is None or self._plan is not plan:
            return None
        source = knob.sources.get(entry.subject)
        value: Any = source.value if isinstance(source, Setting) else None
        if value.__class__ is not float or not -_SURE <= value <= _SURE or same_value(plan.parameters[knob.key], value):
            return None
        return knob, value
