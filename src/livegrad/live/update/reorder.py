"""Incremental topological sort (Pearce and Kelly, 2006): the cost depends on the steps between the ends of a new edge.

`replan` calls it with the positions of the running plan. Removed edges need no reordering. If a step reads from a later
one, the affected steps between them exchange their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping

Neighbours = Callable[[str], Iterable[str]]


class CycleError(Exception):
    """Steps that wait for each other."""


def reorder(
    position: MutableMapping[str, int],
    sources: Mapping[str, Iterable[str]],
    sources_of: Neighbours,
    readers_of: Neighbours,
) -> None:
    """Puts each step of `sources` after the steps that it reads from now.

    All of them have a position. `sources_of` and `readers_of` say the same of the other steps; what they say of those
    in `sources`, or give among the readers, is left out. Raises `CycleError`; positions may then be anything.
    """
    settled: dict[str, list[str]] = {}  # the readers among `sources` whose edges are there already, by what they read
    done: set[str] = set()

    def forward(key: str) -> Iterable[str]:
        yield from (reader for reader in readers_of(key) if reader not in sources)
        yield from settled.get(key, ())

    def backward(key: str) -> Iterable[str]:
        return sources_of(key) if key not in sources else sources[key] if key in done else ()

    for key, own in sources.items():
        first = position[key]
        late = [source for source in own if position[source] >= first]
        if late:
            last = max(position[source] for source in late)
            between = range(first, last + 1)
            behind = _closure([key], forward, position, between)
            before = _closure(late, backward, position, between)
            if not behind.isdisjoint(before):
                raise CycleError
            moved = [*sorted(before, key=position.__getitem__), *sorted(behind, key=position.__getitem__)]
            for one, number in zip(moved, sorted(position[one] for one in moved), strict=True):
                position[one] = number
        done.add(key)
        for source in own:
            settled.setdefault(source, []).append(key)


def _closure(starts: Iterable[str], neighbours: Neighbours, position: Mapping[str, int], between: range) -> set[str]:
    found = set(starts)
    waiting = list(found)
    while waiting:
        for one in neighbours(waiting.pop()):
            if one not in found and position[one] in between:
                found.add(one)
                waiting.append(one)
    return found
