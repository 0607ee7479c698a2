"""Allocates arena offsets for the temporary buffers of a plan. Buffers with disjoint lifetimes share bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from livegrad.ir.symbolic_size import compute_for_sizes
from livegrad.schedule.plan import Buffer, reserved_bytes


class BufferUser(Protocol):
    """A step, or several steps that count as one, with the buffers it reads and writes."""

    @property
    def inputs(self) -> tuple[Buffer, ...]: ...

    @property
    def results(self) -> tuple[Buffer, ...]: ...


def live_ranges(steps: Sequence[BufferUser], buffers: Sequence[Buffer]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last step that uses each buffer."""
    allocated = set(buffers)
    ranges: dict[Buffer, tuple[int, int]] = {}
    for index, step in enumerate(steps):
        for buffer in (*step.inputs, *step.results):
            if buffer in allocated:
                first, _ = ranges.get(buffer, (index, index))
                ranges[buffer] = (first, index)
    return ranges


def allocate_arena(steps: Sequence[BufferUser], buffers: Sequence[Buffer]) -> tuple[dict[Buffer, int], int]:
    """Returns byte offsets and the size of the arena: first fit, largest buffers first."""
    ranges = live_ranges(steps, buffers)
    used = sorted(ranges, key=lambda buffer: buffer.number)
    sizes = tuple([buffer.bytes for buffer in used])
    offsets = compute_for_sizes(first_fit, sizes, tuple([ranges[buffer] for buffer in used]))
    return dict(zip(used, offsets, strict=False)), offsets[-1]


def first_fit(sizes: tuple[int, ...], ranges: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Offsets for buffers with these sizes and (first, last) live ranges, followed by the size of the arena.

    >>> first_fit((64, 100, 64), ((0, 1), (1, 2), (2, 3)))
    (128, 0, 128, 192)
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first step, last step
    offsets = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        (first, last), size = ranges[index], reserved_bytes(sizes[index])
        offset = 0
        for other_offset, end, other_first, other_last in sorted(placed):
            if other_last < first or last < other_first:
                continue
            if offset + size <= other_offset:
                break
            offset = max(offset, end)
        offsets[index] = offset
        placed.append((offset, offset + size, first, last))
    return *offsets, max((end for _, end, _, _ in placed), default=0)
