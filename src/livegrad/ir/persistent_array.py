"""A persistent array (Baker's rerooting): immutable versions, with constant-time access to the newest.

Tapes of loops that run on the host use it: each iteration creates a new version, and usually reads only the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_ABSENT = object()


class PersistentArray(Mapping[int, Any]):
    """Values by index. `with_item` returns a changed version; this one is unchanged.

    All versions share one dict, which the newest version owns. An older version stores its difference from its
    successor, and takes over the dict when it is read.

    >>> first = PersistentArray().with_item(0, "a")
    >>> second = first.with_item(0, "b")
    >>> first[0], second[0], dict(first)
    ('a', 'b', {0: 'a'})
    """

    __slots__ = ("_difference", "_successor", "_table")

    def __init__(self, table: dict[int, Any] | None = None) -> None:
        self._table: dict[int, Any] | None = {} if table is None else table
        self._difference: tuple[int, Any] | None = None  # (index, value) where this version differs from its successor
        self._successor: PersistentArray | None = None

    def with_item(self, index: int, value: Any) -> PersistentArray:
        """A version with another value at one index."""
        table = self._claim_table()
        newest = PersistentArray(table)
        self._table, self._difference, self._successor = None, (index, table.get(index, _ABSENT)), newest
        table[index] = value
        return newest

    def _claim_table(self) -> dict[int, Any]:
        """Takes over the dict and returns it in the state of this version."""
        if self._table is None:
            chain: list[PersistentArray] = []
            version: PersistentArray = self
            while version._table is None:
                chain.append(version)
                assert version._successor is not None
                version = version._successor
            for older in reversed(chain):
                _move_table(version, older)
                version = older
        assert self._table is not None
        return self._table

    def __getitem__(self, index: int) -> Any:
        return self._claim_table()[index]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._claim_table()))

    def __len__(self) -> int:
        return len(self._claim_table())

    def __repr__(self) -> str:
        return f"PersistentArray({self._claim_table()!r})"


def _move_table(newer: PersistentArray, older: PersistentArray) -> None:
    """Moves the dict to the older of two adjacent versions and reverses the link between them."""
    table, difference = newer._table, older._difference
    assert table is not None
    assert difference is not None
    index, value = difference
    newer._table, newer._difference, newer._successor = None, (index, table.get(index, _ABSENT)), older
    if value is _ABSENT:
        table.pop(index, None)
    else:
        table[index] = value
    older._table, older._difference, older._successor = table, None, None
