"""Incremental topological sort (Pearce and Kelly, 2006): the cost depends on the steps between the ends of a new edge.

`replan` calls it with the positions of the running plan. Removed edges need no reordering. If a step reads from a later
step, the affected steps between them swap positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping

Neighbours = Callable[[str], Iterable[str]]


class CycleError(Exception):
    """Raised if steps depend on each other."""


def reorder(
    position: MutableMapping[str, int],
    sources: Mapping[str, Iterable[str]],
    sources_of: Neighbours,
    readers_of: Neighbours,
) -> None:
    """Moves each step of `sources` after the steps that it now reads from.

    All of them have a position. `sources_of` and `readers_of` give the edges of the other steps; their edges of steps
    in `sources` are ignored. Raises `CycleError`; positions are then undefined.
    """
    processed_readers: dict[str, list[str]] = {}  # the processed keys of `sources`, by what they read
    processed: set[str] = set()

    def forward(key: str) -> Iterable[str]:
        yield from (reader for reader in readers_of(key) if reader not in sources)
        yield from processed_readers.get(key, ())

    def backward(key: str) -> Iterable[str]:
        return sources_of(key) if key not in sources else sources[key] if key in processed else ()

    for key, new_sources in sources.items():
        first = position[key]
        late = [source for source in new_sources if position[source] >= first]
        if late:
            last = max(position[source] for source in late)
            between = range(first, last + 1)
            behind = _closure([key], forward, position, between)
            before = _closure(late, backward, position, between)
            if not behind.isdisjoint(before):
                raise CycleError
            new_order = [*sorted(before, key=position.__getitem__), *sorted(behind, key=position.__getitem__)]
            for step, index in zip(new_order, sorted(position[step] for step in new_order), strict=True):
                position[step] = index
        processed.add(key)
        for source in new_sources:
            processed_readers.setdefault(source, []).append(key)


def _closure(starts: Iterable[str], neighbours: Neighbours, position: Mapping[str, int], between: range) -> set[str]:
    """All steps that are reachable from `starts` within a range of positions."""
    reached = set(starts)
    worklist = list(reached)
    while worklist:
        for step in neighbours(worklist.pop()):
            if step not in reached and position[step] in between:
                reached.add(step)
                worklist.append(step)
    return reached
