"""Compares two settings of all parameters, A and B, between which pages switch."""

from __future__ import annotations

from typing import Any

from livegrad.live.engine import Engine
from livegrad.live.graph.block import Pin
from livegrad.tools.studio.edits import MessageError

SLOTS = ("A", "B")


class Comparison:
    """The values of two slots. What is edited while a slot is active belongs to it.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> comparison = Comparison(engine)
    >>> comparison.choose("B")      # A has the values so far, and B begins with them
    >>> engine.set(double["x"], 5.0)
    >>> comparison.choose("A")
    >>> engine.parameters()[double["x"]]["value"], comparison.active
    (4.0, 'A')
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._values: dict[str, dict[Pin, Any]] = {}
        self.active: str | None = None  # None: nothing is compared

    def choose(self, slot: Any) -> None:
        """Shows a slot; None ends the comparison, with the values of the slot that is shown."""
        if slot is None:
            self.active, self._values = None, {}
            return
        if slot not in SLOTS:
            raise MessageError("there is no such setting", expected="A or B", found=repr(slot)[:60])
        current = self._engine.presets.current()
        self._values[self.active or ("B" if slot == "A" else "A")] = current
        if slot != self.active and slot in self._values:
            self._engine.presets.set_values(self._values[slot], f"compare {slot}")
        self.active = slot
