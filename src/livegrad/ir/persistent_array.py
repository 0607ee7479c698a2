"""A persistent array: an immutable mapping from indices to values, whose newest version is updated in constant time.

Tapes of loops that run on the host use it: each iteration creates a new version, and only the newest is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_ABSENT = object()


class Entries(Mapping[int, Any]):
    """Values by number. `with_entry` gives a changed table; this one stays what it was.

    All versions share one dict, which belongs to the newest; an older one knows how it differs from its successor, and
    takes the dict back when it is read after all.

    >>> first = Entries().with_entry(0, "a")
    >>> second = first.with_entry(0, "b")
    >>> first[0], second[0], dict(first)
    ('a', 'b', {0: 'a'})
    """

    __slots__ = ("_difference", "_successor", "_table")

    def __init__(self, table: dict[int, Any] | None = None) -> None:
        self._table: dict[int, Any] | None = {} if table is None else table
        self._difference: tuple[int, Any] | None = None  # the entries in which this version differs from its successor
        self._successor: Entries | None = None

    def with_entry(self, index: int, value: Any) -> Entries:
        """The table with another value at one number."""
        table = self._table_of_version()
        entries = Entries(table)
        self._table, self._difference, self._successor = None, (index, table.get(index, _ABSENT)), entries
        table[index] = value
        return entries

    def _table_of_version(self) -> dict[int, Any]:
        """The dict, updated to the state of this version."""
        if self._table is None:
            chain: list[Entries] = []
            version: Entries = self
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
        return self._table_of_version()[index]

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._table_of_version()))

    def __len__(self) -> int:
        return len(self._table_of_version())

    def __repr__(self) -> str:
        return f"Entries({self._table_of_version()!r})"


def _move_table(newer: Entries, older: Entries) -> None:
    """Reverses the link between two versions: the older one gets the dict."""
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
