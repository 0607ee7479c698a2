"""Which nodes of a graph must wait for which: by what they read and write, in the order in which they are added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Resource = object  # a buffer's key, or the number of memory that buffers share


@dataclass
class Order:
    """The last writers of everything, and who has read it since.

    >>> order = Order()
    >>> order.note(0, writes=["a"])
    >>> order.note(1, reads=["a"])
    >>> sorted(order.before(reads=[], writes=["a"])), sorted(order.before(reads=["a"]))
    ([0, 1], [0])
    """

    _writers: dict[Resource, list[int]] = field(default_factory=dict)
    _readers: dict[Resource, list[int]] = field(default_factory=dict)

    def before(self, reads: Iterable[Resource] = (), writes: Iterable[Resource] = ()) -> set[int]:
        """The nodes that must have ended before one that reads and writes these may start."""
        found: set[int] = set()
        for resource in reads:
            found.update(self._writers.get(resource, ()))
        for resource in writes:
            found.update(self._writers.get(resource, ()))
            found.update(self._readers.get(resource, ()))
        return found

    def note(self, node: int, reads: Iterable[Resource] = (), writes: Iterable[Resource] = ()) -> None:
        """Says what a node reads and writes."""
        for resource in reads:
            self._readers.setdefault(resource, []).append(node)
        for resource in writes:
            self._writers[resource] = [node]
            self._readers.pop(resource, None)
