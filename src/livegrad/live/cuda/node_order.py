"""Dependencies between graph nodes, from what they read and write, in the order in which they are added."""

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
    >>> sorted(order.follow(2, reads=["a"], writes=["b"])), sorted(order.before(reads=["b"]))
    ([0], [2])
    """

    _writers: dict[Resource, list[int]] = field(default_factory=dict)
    _readers: dict[Resource, list[int]] = field(default_factory=dict)

    def before(self, reads: Iterable[Resource] = (), writes: Iterable[Resource] = ()) -> set[int]:
        """The nodes that must finish before a node with these reads and writes may start."""
        found: set[int] = set()
        for resource in reads:
            found.update(self._writers.get(resource, ()))
        for resource in writes:
            found.update(self._writers.get(resource, ()))
            found.update(self._readers.get(resource, ()))
        return found

    def follow(self, node: int, reads: Iterable[Resource] = (), writes: Iterable[Resource] = ()) -> set[int]:
        """Both at once: what a node must wait for, and that it is there from now on."""
        found: set[int] = set()
        writers, readers = self._writers, self._readers
        for resource in reads:
            if resource in writers:
                found.update(writers[resource])
            if resource in readers:
                readers[resource].append(node)
            else:
                readers[resource] = [node]
        for resource in writes:
            if resource in writers:
                found.update(writers[resource])
            if resource in readers:
                found.update(readers.pop(resource))
            writers[resource] = [node]
        found.discard(node)  # what it reads and writes itself
        return found

    def note(self, node: int, reads: Iterable[Resource] = (), writes: Iterable[Resource] = ()) -> None:
        """Says what a node reads and writes."""
        for resource in reads:
            known = self._readers.get(resource)
            if known is None:
                self._readers[resource] = [node]
            else:
                known.append(node)
        for resource in writes:
            self._writers[resource] = [node]
            self._readers.pop(resource, None)
