"""An overlay dictionary: pending changes over a base dictionary, at a cost proportional to the changes.

`replan` puts an overlay over each dictionary of the running plan; `commit` merges them when the new plan is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

from livegrad.live.transaction import Transaction

Key = TypeVar("Key")
Value = TypeVar("Value")


class Overlay(MutableMapping[Key, Value]):
    """Reads see the changes. The base dictionary gets them with `commit`; afterwards both are equal.

    >>> numbers = {"a": 1, "b": 2}
    >>> changed = Overlay(numbers, {"a": 10}, removed={"b"})
    >>> changed["c"] = 30
    >>> dict(changed), numbers
    ({'a': 10, 'c': 30}, {'a': 1, 'b': 2})
    >>> changed.commit(Transaction())
    >>> numbers
    {'a': 10, 'c': 30}
    """

    __slots__ = ("_base", "_changed", "_removed")

    def __init__(
        self, base: MutableMapping[Key, Value], changed: dict[Key, Value] | None = None, removed: set[Key] | None = None
    ) -> None:
        self._base, self._changed, self._removed = base, {} if changed is None else changed, removed or set()

    def __getitem__(self, key: Key) -> Value:
        if key in self._changed:
            return self._changed[key]
        if key in self._removed:
            raise KeyError(key)
        return self._base[key]

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of a key, or the default."""
        if key in self._changed:
            return self._changed[key]
        return default if key in self._removed else self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._changed or (key in self._base and key not in self._removed)

    def __setitem__(self, key: Key, value: Value) -> None:
        self._changed[key] = value

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self._changed.pop(key, None)
        self._removed.add(key)

    def __iter__(self) -> Iterator[Key]:
        yield from (key for key in self._base if key in self._changed or key not in self._removed)
        yield from (key for key in self._changed if key not in self._base)

    def __len__(self) -> int:
        removed = sum(key in self._base and key not in self._changed for key in self._removed)
        return len(self._base) - removed + sum(key not in self._base for key in self._changed)

    def __bool__(self) -> bool:
        return bool(self._changed) or bool(self._base and (not self._removed or len(self)))

    def __repr__(self) -> str:
        return repr(dict(self))

    @property
    def is_changed(self) -> bool:
        """Whether there are pending changes."""
        return bool(self._changed or self._removed)

    def commit(self, frame: Transaction) -> None:
        """Writes the changes to the base dictionary through the frame's transaction, which can roll them back."""
        for key in self._removed:
            if key not in self._changed:
                frame.drop(self._base, key)
        for key, value in self._changed.items():
            frame.set_entry(self._base, key, value)
        self._changed, self._removed = {}, set()
