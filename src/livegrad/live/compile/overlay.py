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
    """Reads see the changes, the dictionary underneath does not until `commit`; afterwards both are the same.

    >>> numbers = {"a": 1, "b": 2}
    >>> changed = Overlay(numbers, {"a": 10}, gone={"b"})
    >>> changed["c"] = 30
    >>> dict(changed), numbers
    ({'a': 10, 'c': 30}, {'a': 1, 'b': 2})
    >>> changed.commit(Transaction())
    >>> numbers
    {'a': 10, 'c': 30}
    """

    __slots__ = ("_base", "_gone", "_own")

    def __init__(
        self, base: MutableMapping[Key, Value], own: dict[Key, Value] | None = None, gone: set[Key] | None = None
    ) -> None:
        self._base, self._own, self._gone = base, {} if own is None else own, gone or set()

    def __getitem__(self, key: Key) -> Value:
        if key in self._own:
            return self._own[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def get(self, key: Key, default: Any = None) -> Any:
        """What is there, or else the default."""
        if key in self._own:
            return self._own[key]
        return default if key in self._gone else self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._own or (key in self._base and key not in self._gone)

    def __setitem__(self, key: Key, value: Value) -> None:
        self._own[key] = value

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        self._gone.add(key)

    def __iter__(self) -> Iterator[Key]:
        yield from (key for key in self._base if key in self._own or key not in self._gone)
        yield from (key for key in self._own if key not in self._base)

    def __len__(self) -> int:
        gone = sum(key in self._base and key not in self._own for key in self._gone)
        return len(self._base) - gone + sum(key not in self._base for key in self._own)

    def __bool__(self) -> bool:
        return bool(self._own) or bool(self._base and (not self._gone or len(self)))

    def __repr__(self) -> str:
        return repr(dict(self))

    @property
    def is_changed(self) -> bool:
        """Whether anything was written here."""
        return bool(self._own or self._gone)

    def commit(self, frame: Transaction) -> None:
        """Puts the changes into the dictionary underneath, for as long as the frame is not taken back."""
        for key in self._gone:
            if key not in self._own:
                frame.drop(self._base, key)
        for key, value in self._own.items():
            frame.put(self._base, key, value)
        self._own, self._gone = {}, set()
