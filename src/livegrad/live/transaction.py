"""Frames as transactions: a frame that ends with an exception is rolled back, and the next frame does its work.

The applier and the runtime log every change of a frame before they make it. A frame is committed when `is_open` becomes
False, its last action. An interrupt may come between any two instructions, so rolling back does not rely on an `except`
block: the next frame does it first.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from livegrad.live.executor import Executable
from livegrad.live.graph.sources import Numbers

_MISSING = object()


class Transaction:
    """The changes of the current frame.

    >>> numbers = {"x": 1.0}
    >>> frame = Transaction()
    >>> frame.is_open = True
    >>> frame.set_entry(numbers, "x", 2.0), frame.set_entry(numbers, "y", 3.0)
    (None, None)
    >>> frame.undo(), numbers
    (None, {'x': 1.0})
    """

    def __init__(self) -> None:
        self.is_open = False  # a frame has begun and is not committed
        # In order: what restores a value (`restore_entry` or `setattr`), its owner, its key, and the previous value.
        self.undo_log: list[tuple[Callable[[Any, Any, Any], None], Any, Any, Any]] = []
        self.states: dict[str, Numbers] = {}  # the previous values of states that the frame wrote, by buffer
        self.replaced: list[Executable] = []  # the previous executables, which a rollback needs

    def close(self) -> None:
        """Forgets the changes of a committed frame, which can no longer be rolled back."""
        self.undo_log.clear()
        self.states.clear()
        while self.replaced:
            self.replaced.pop().close()

    def set_entry(self, mapping: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Sets an entry of a mapping; a rollback restores the previous value."""
        self.undo_log.append((restore_entry, mapping, key, mapping.get(key, _MISSING)))
        mapping[key] = value

    def set_attribute(self, owner: object, name: str, value: object) -> None:
        """Sets an attribute; a rollback restores the previous value."""
        # Not an entry of `vars(owner)`: once an object's dictionary exists, attributes take four times as long to read.
        self.undo_log.append((setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def drop(self, mapping: MutableMapping[Any, Any], key: Any) -> None:
        """Removes an entry if there is one; a rollback restores it."""
        self.undo_log.append((restore_entry, mapping, key, mapping.get(key, _MISSING)))
        mapping.pop(key, None)

    def undo(self) -> None:
        """Restores the previous values. It does not restore executables: the caller rebuilds them."""
        for restore, owner, key, before in reversed(self.undo_log):
            restore(owner, key, before)
        self.undo_log.clear()


def restore_entry(mapping: MutableMapping[Any, Any], key: Any, before: Any) -> None:
    if before is _MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = before
