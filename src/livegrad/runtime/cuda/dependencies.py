"""Tracks data dependencies. In: the reads and writes of each node in program order. Out: its predecessors.

Two nodes are ordered if one writes a resource that the other reads or writes; all others may run concurrently.
`plan_dependencies` orders the launches of a plan, `live.cuda.program_builder` the nodes of a live graph.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence

from livegrad.schedule.plan import Buffer, Plan, Step

# A buffer, a range of bytes that buffers share, or anything else that nodes must not use at the same time.
Resource = Hashable


class DependencyTracker:
    """The last writer of each resource, and the nodes that have read it since.

    >>> tracker = DependencyTracker()
    >>> tracker.add(0, writes=["a"]), tracker.add(1, reads=["a"]), tracker.add(2, reads=["a"], writes=["b"])
    (set(), {0}, {0})
    >>> sorted(tracker.add(3, writes=["a"])), sorted(tracker.add(4, reads=["a", "b"]))
    ([0, 1, 2], [2, 3])
    """

    def __init__(self) -> None:
        self._writer: dict[Resource, int] = {}
        self._readers: dict[Resource, list[int]] = {}

    def add(self, node: int, reads: Iterable[Resource] = (), writes: Iterable[Resource] = ()) -> set[int]:
        """Adds a node; returns the nodes that must end before it starts."""
        before: set[int] = set()
        writer, readers = self._writer, self._readers
        for resource in reads:
            if resource in writer:
                before.add(writer[resource])
            if resource in readers:
                readers[resource].append(node)
            else:
                readers[resource] = [node]
        for resource in writes:
            if resource in writer:
                before.add(writer[resource])
            if resource in readers:
                before.update(readers.pop(resource))
            writer[resource] = node
        before.discard(node)  # it may read what it writes
        return before


def plan_dependencies(
    steps: Sequence[Step], plan: Plan, exclusive: Mapping[int, Resource] | None = None
) -> list[tuple[int, ...]]:
    """For each step of a plan, the indices of the earlier steps that must end before it starts.

    `exclusive` has resources besides buffers that one step at a time may use, by the indices of the steps.
    """
    ranges, tracker = _byte_ranges(plan), DependencyTracker()
    predecessors = []
    for index, step in enumerate(steps):
        reads, writes = _resources(step.inputs, ranges), _resources(step.results, ranges)
        if exclusive is not None and index in exclusive:
            writes.append(exclusive[index])
        predecessors.append(tuple(sorted(tracker.add(index, reads, writes))))
    return predecessors


def _resources(buffers: Iterable[Buffer], ranges: Mapping[Buffer, Sequence[Resource]]) -> list[Resource]:
    return [resource for buffer in dict.fromkeys(buffers) for resource in ranges.get(buffer, (buffer,))]


def _byte_ranges(plan: Plan) -> dict[Buffer, range]:
    """Cuts the arena at the bounds of all buffers. Returns, for each buffer, the indices of the ranges it covers."""
    extents = {buffer: (start, start + buffer.reserved_bytes) for buffer, start in plan.arena_offsets.items()}
    cuts = sorted({end for extent in extents.values() for end in extent})
    return {buffer: range(bisect_left(cuts, start), bisect_left(cuts, end)) for buffer, (start, end) in extents.items()}
