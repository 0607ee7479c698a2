"""Loop nests for the CPU: lanes, tiles, unrolled rows, items of work for threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from livegrad.schedule.loops.dimensions import StrideKind
from livegrad.schedule.loops.nest import LoopNest

# Lanes that are no further apart than this come with one load, as they are in memory.
NEAR: dict[int, StrideKind] = {-1: "near -1", 2: "near 2", 3: "near 3", 4: "near 4"}


@dataclass(frozen=True)
class Layout:
    """What the code depends on besides the kernel: lanes, where they run, ranks after merging, kinds of strides."""

    lanes: int
    direction: Literal["across", "along"]
    domain_rank: int
    inner_rank: int
    reads: tuple[tuple[StrideKind, ...], ...]
    outputs: tuple[tuple[StrideKind, ...], ...]
    vector_bytes: int
    read_packs: tuple[tuple[int, ...], ...] = ()  # reads that are the columns of short rows, one behind the other
    output_packs: tuple[tuple[int, ...], ...] = ()
    row: int = 0  # how many inner points there are, where they are so few that each is written out
    streamed: tuple[int, ...] = ()  # outputs that go past the caches, where their memory begins at a line
    waves: bool = False  # code runs in two waves (`waves.py`)
    tiled: bool = False  # the last inner dimension is swept in tiles, for accesses that are consecutive along it
    covered: tuple[tuple[int, int, int], ...] = ()  # wholes and axes that have room for every place along a dimension


@dataclass(frozen=True)
class RowBlock:
    """A chain's rows: how many there are, and how many are one tile."""

    rows: int
    block: int

    @property
    def count(self) -> int:
        return -(-self.rows // self.block)


@dataclass(frozen=True, eq=False)
class CpuNest(LoopNest):
    """A step of a plan, for vectors of so many bytes, alone or over tiles of rows with the other steps of a chain.

    The domain's points run in parallel, `block` of them an item of work; lanes run across the last dimension of the
    domain, or along the inner one.
    """

    vector_bytes: int = 0
    tile: RowBlock | None = None
    lanes: int = 1
    unrolled: int = 0  # how many inner points there are, where they are so few that each is written out
    reads: tuple[tuple[StrideKind, ...], ...] = ()
    outputs: tuple[tuple[StrideKind, ...], ...] = ()
    read_packs: tuple[tuple[int, ...], ...] = ()
    output_packs: tuple[tuple[int, ...], ...] = ()
    covered: tuple[tuple[int, int, int], ...] = ()
    tiled: bool = False
    streamed: tuple[int, ...] = ()
    block: int = 1  # points of the last dimension in an item, or rows
    total: int = 1  # items
    grain: int = 1  # items that are handed out at once

    @property
    def lane(self) -> int:
        """The dimension along which lanes run; negative where there is none."""
        dimensions = self.dimensions
        return len(dimensions.domain) + (len(dimensions.inner) if self.kernel.along else 0) - 1

    @cached_property
    def layout(self) -> Layout:
        """What the code depends on besides the kernel."""
        return Layout(
            self.lanes,
            "along" if self.kernel.along else "across",
            len(self.dimensions.domain),
            len(self.dimensions.inner),
            self.reads,
            self.outputs,
            self.vector_bytes,
            self.read_packs,
            self.output_packs,
            self.unrolled,
            self.streamed,
            tiled=self.tiled,
            covered=self.covered,
        )

    def __str__(self) -> str:
        dimensions, kernel = self.dimensions, self.kernel
        lines = [super().__str__()]
        if self.tile is not None:
            lines.append(f"  tile: {self.tile.block} of {self.tile.rows} rows")
        if self.total > 1 or self.block > 1:
            lines.append(f"  parallel: {self.total} items of {self.block}, {self.grain} at once")
        if dimensions.inner:
            kind = "unrolled" if self.unrolled else "serial"
            lines.append(f"  {kind}: {prod(dimensions.inner)} inner points" + (", in tiles" if self.tiled else ""))
        lanes = f"{self.lanes} lanes" if self.lanes > 1 else "lanes"
        lines.append(f"  vector: {lanes} {'along' if kernel.along else 'across'} rows")
        for role, accesses in (("read", self.reads), ("output", self.outputs)):
            lines += [f"  {role} {number}: {', '.join(kinds) or 'one'}" for number, kinds in enumerate(accesses)]
        for role, packs in (("reads", self.read_packs), ("outputs", self.output_packs)):
            lines += [f"  {role} {', '.join(map(str, pack))}: whole rows, shuffled" for pack in packs]
        lines += [f"  output {number}: non-temporal stores" for number in self.streamed]
        return "\n".join(lines)


def is_turned(kinds: Sequence[StrideKind], domain_rank: int, reading: bool) -> bool:
    """Whether points are near along the last inner dimension, and far apart along the lanes'; they are written side by
    side only.

    >>> is_turned(("any", "one"), 1, True), is_turned(("one", "any"), 1, True), is_turned(("any", "near 2"), 1, False)
    (True, False, False)
    """
    near = ("one", *NEAR.values()) if reading else ("one", NEAR[-1])
    return domain_rank > 0 and kinds[domain_rank - 1] == "any" and kinds[-1] in near
