"""Presets: named values of the inputs of an engine, which documents save. `Engine.presets` has them."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.live.compile.flatten import find_keys
from livegrad.live.graph.block import Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.sources import Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from livegrad.live.engine import Engine

_MAX_NAME = 100  # characters


class Presets:
    """Named values of the inputs of an engine. Saving, applying and removing a preset can be undone.

    A preset follows renames. It has the inputs that had a value when it was saved: applying it leaves all others, and
    those that are connected now, as they are.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> engine.presets.save("start")
    >>> engine.set(double["x"], 5.0)
    >>> engine.presets.apply("start")
    >>> engine.parameters()[double["x"]]["value"], list(engine.presets), engine.history.next_undo
    (4.0, ['start'], 'preset start')
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.saved: dict[str, dict[Pin, Any]] = {}  # values are never changed in place

    def __repr__(self) -> str:
        return f"<presets {', '.join(self.saved) or 'none'}>"

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.saved))

    def __len__(self) -> int:
        return len(self.saved)

    def __contains__(self, name: object) -> bool:
        return name in self.saved

    def __getitem__(self, name: str) -> Mapping[Pin, Any]:
        """The values of a preset by input."""
        if name not in self.saved:
            expected = "one of " + ", ".join(self.saved) if self.saved else "a saved preset"
            what = "there is no such preset"
            raise UsageError(what, where=caller_origin(), expected=expected, found=shown(name))
        return MappingProxyType(self.saved[name])

    def save(self, name: str) -> None:
        """Saves the values that all inputs have now. A preset with this name is replaced."""
        if not isinstance(name, str) or not 0 < len(name.strip()) <= _MAX_NAME:
            expected = f"a text of at most {_MAX_NAME} characters"
            raise UsageError("a preset needs a name", where=caller_origin(), expected=expected, found=shown(name))
        with self._engine.graph.editing():
            self._replace(name.strip(), self.current())

    def current(self) -> dict[Pin, Any]:
        """The values that the inputs have now."""
        with self._engine.graph.editing():
            sources = {pin: _source_of(pin) for pin in self._engine.parameters()}
        return {pin: source.value for pin, source in sources.items() if isinstance(source, Setting)}

    def apply(self, name: str) -> None:
        """Sets the inputs to the values of a preset, as one entry of the history."""
        self.set_values(dict(self[name]), f"preset {name}")

    def set_values(self, values: Mapping[Pin, Any], label: str) -> None:
        """Sets those of these inputs that have another value, as one entry of the history."""
        graph = self._engine.graph
        with self._engine.history.gesture(label), graph.editing():
            for pin, value in values.items():
                source = _source_of(pin) if is_in_graph(graph, pin) else None
                if isinstance(source, Setting) and pin.block.home is not None and not _is_same(source.value, value):
                    pin.block.home.set(pin, value)

    def remove(self, name: str) -> None:
        """Removes a preset."""
        with self._engine.graph.editing():
            self[name]
            self._replace(name, None)

    def _replace(self, name: str, values: dict[Pin, Any] | None) -> None:
        with self._engine.graph.journal.notify_observer("preset", None, name):
            self._put(name, values)

    def restore(self, name: str, values: dict[Pin, Any] | None) -> None:
        """Puts back the values of a preset; None: none. Undo and documents call it."""
        with self._engine.graph.editing():
            self._put(name, values)
            for listener in self._engine.graph.journal.listeners:
                listener.edited("preset", (name,))

    def _put(self, name: str, values: dict[Pin, Any] | None) -> None:
        if values is None:
            self.saved.pop(name, None)
        else:
            self.saved[name] = values


def is_in_graph(graph: Graph, pin: Pin) -> bool:
    """Whether an input still exists in a graph, or in a composite of it."""
    return pin.block.has(pin) and bool(find_keys(graph, pin.block))


def _source_of(pin: Pin) -> Any:
    return None if pin.block.home is None else pin.block.home.source_of(pin)


def _is_same(before: Any, after: Any) -> bool:
    return np.shape(before) == np.shape(after) and bool(np.array_equal(before, after, equal_nan=False))
