"""Allocates arena offsets for the temporary buffers of a plan: buffers with disjoint lifetimes share bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from livegrad.ir.symbolic_size import computed
from livegrad.schedule.plan import Buffer, reserved_bytes


class Touching(Protocol):
    """The reads and writes of a step, or of several steps that count as one."""

    @property
    def inputs(self) -> tuple[Buffer, ...]: ...

    @property
    def results(self) -> tuple[Buffer, ...]: ...


def live_ranges(steps: Sequence[Touching], buffers: Sequence[Buffer]) -> dict[Buffer, tuple[int, int]]:
    """For each buffer the first step that touches it and the last."""
    inside = set(buffers)
    ranges: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for buffer in (*step.inputs, *step.results):
            if buffer in inside:
                first, _ = ranges.get(buffer, (number, number))
                ranges[buffer] = (first, number)
    return ranges


def allocate_arena(steps: Sequence[Touching], buffers: Sequence[Buffer]) -> tuple[dict[Buffer, int], int]:
    """Byte offsets and the arena's size. Largest first, each at the lowest offset that no living neighbour holds."""
    ranges = live_ranges(steps, buffers)
    inside = sorted(ranges, key=lambda buffer: buffer.number)
    sizes = tuple([buffer.bytes for buffer in inside])
    offsets = computed(first_fit, sizes, tuple([ranges[buffer] for buffer in inside]))
    return dict(zip(inside, offsets, strict=False)), offsets[-1]


def first_fit(sizes: tuple[int, ...], ranges: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Offsets for sizes that are in use from a first step to a last one, and the bytes of all together.

    >>> first_fit((64, 100, 64), ((0, 1), (1, 2), (2, 3)))
    (128, 0, 128, 192)
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first step, last step
    offsets = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        (first, last), size = ranges[number], reserved_bytes(sizes[number])
        offset = 0
        for other, end, begin, final in sorted(placed):
            if final < first or last < begin:
                continue
            if offset + size <= other:
                break
            offset = max(offset, end)
        offsets[number] = offset
        placed.append((offset, offset + size, first, last))
    return *offsets, max((end for _, end, _, _ in placed), default=0)
