"""A fit that pages start, pause, continue and stop: moves sliders frame by frame, and is one entry of the history.

`tuner.py` runs batches of its steps on a worker, and takes their values on the engine thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from livegrad.live.engine import Engine
from livegrad.tools.studio.edits import MessageError
from livegrad.tools.studio.tuning.measures import Measure, value_of
from livegrad.tools.studio.tuning.solving import Descent, Sliders, Values, set_slider
from livegrad.tools.studio.values import Json, plain

_MAX_POINTS = 400  # of the curve; a longer one is thinned
_GOALS = {"minimise": 1.0, "maximise": -1.0}


class Fitting:
    """The fit of a session. Its values are not recorded one by one: when it ends, they are one entry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.state: Literal["none", "running", "paused", "done"] = "none"
        self._descent: Descent | None = None
        self._before: Values = {}  # when it began
        self._label = ""
        self._sign = 1.0
        self._curve: list[float] = []
        self._stride = 1  # steps between two points of the curve
        self._skipped = self._steps = 0

    @property
    def is_running(self) -> bool:
        """Whether steps are to be made."""
        return self.state == "running"

    def start(self, measure: Measure, sliders: Sliders, label: str, goal: Any = None) -> None:
        """Begins a fit."""
        sign = _GOALS.get("minimise" if goal is None else goal) if isinstance(goal, str | None) else None
        if sign is None:
            raise MessageError("not a goal", expected="minimise or maximise", found=repr(goal)[:60])
        self.stop()
        self._descent = Descent(measure, sliders, sign)
        self._before, self._label, self._sign = dict(sliders.values), label, sign
        self._curve, self._stride, self._skipped, self._steps = [], 1, 0, 0
        self.state = "running"

    def pause(self) -> None:
        """Makes no steps until it continues."""
        if self.state == "running":
            self.state = "paused"

    def resume(self, measure: Callable[[], Measure], sliders: Callable[[], Sliders]) -> None:
        """Continues from where the sliders are now, which may have been moved."""
        if self.state not in ("paused", "done"):
            raise MessageError("no fit is paused")
        free = sliders()
        if self.state == "done":  # its entry is written: a new one begins
            self._before = dict(free.values)
        else:
            self._before = dict(free.values) | self._before
        self._descent = Descent(measure(), free, self._sign)
        self.state = "running"

    def run_batch(self) -> tuple[Descent, Values]:
        """Makes a few steps, on the worker."""
        descent = self._descent
        assert descent is not None
        return descent, descent.run_batch()

    def take(self, descent: Descent, values: Values) -> None:
        """Sets the values of a batch, unless the fit was paused or stopped meanwhile, or another one began."""
        if descent is not self._descent or self.state != "running":
            return
        for loss in descent.losses:
            self._note(loss)
        with self._engine.history.paused():
            self._set(values)
        if descent.is_done:
            self._record()
            self.state = "done"

    def _note(self, loss: float) -> None:
        self._steps += 1
        self._skipped += 1
        if self._skipped >= self._stride:
            self._curve.append(loss)
            self._skipped = 0
        if len(self._curve) > _MAX_POINTS:
            self._curve, self._stride = self._curve[::2], 2 * self._stride

    def stop(self) -> None:
        """Ends the fit. What it did is one entry of the history."""
        if self.state in ("running", "paused"):
            self._record()
            self.state = "done"

    def cancel(self) -> None:
        """Ends the fit as if it had not begun."""
        if self.state in ("running", "paused"):
            with self._engine.history.paused():
                self._set(self._before)
        self.forget()

    def forget(self) -> None:
        """Shows no fit."""
        self.stop()
        self.state, self._descent, self._before, self._curve = "none", None, {}, []

    def _record(self) -> None:
        """Writes the whole movement into the history."""
        history = self._engine.history
        after = {pin: value for pin in self._before if (value := value_of(self._engine, pin)) is not None}
        with self._engine.graph.editing():  # no frame sees the values before
            with history.paused():
                self._set(self._before)
                self._engine.graph.journal.deliver()
            with history.gesture(f"fit {self._label}"[:100]):
                self._set(after)

    def _set(self, values: Values) -> None:
        for pin, value in values.items():
            if value_of(self._engine, pin) is not None:  # it may be connected now, or gone
                set_slider(pin, value)

    def describe(self) -> Json | None:
        """The fit as pages show it; None if there is none."""
        if self.state == "none":
            return None
        return {"state": self.state, "steps": self._steps, "stride": self._stride, "losses": plain(self._curve)}
