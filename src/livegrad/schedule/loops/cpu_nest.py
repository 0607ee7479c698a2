"""Loop nests for the CPU: lanes, tiles, unrolled rows, and work items for threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from livegrad.schedule.loops.dimensions import StrideKind
from livegrad.schedule.loops.nest import Loop, LoopNest

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
    streamed: tuple[int, ...] = ()  # outputs with non-temporal stores, where their memory begins at a cache line
    interleaved: bool = False  # two halves of twice the lanes may run one behind the other (`interleaving.py`)
    tiled: bool = False  # the last inner dimension is swept in tiles, for accesses that are consecutive along it
    covered: tuple[tuple[int, int, int], ...] = ()  # wholes and axes that have room for every place along a dimension


@dataclass(frozen=True)
class RowTile:
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
    tile: RowTile | None = None
    lanes: int = 0
    unrolled: int = 0  # how many inner points there are, where they are so few that each is written out
    reads: tuple[tuple[StrideKind, ...], ...] = ()
    outputs: tuple[tuple[StrideKind, ...], ...] = ()
    read_packs: tuple[tuple[int, ...], ...] = ()
    output_packs: tuple[tuple[int, ...], ...] = ()
    covered: tuple[tuple[int, int, int], ...] = ()
    tiled: bool = False
    interleaved: bool = False
    streamed: tuple[int, ...] = ()
    block: int = 0  # points of the last dimension in an item, or rows
    total: int = 0  # items
    grain: int = 0  # items that are handed out at once

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
            interleaved=self.interleaved,
            covered=self.covered,
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        loops = [
            Loop("parallel", self.total, f"items of {self.block}, {self.grain} at once" if self.block else "items")
        ]
        points = prod(self.dimensions.inner)
        if self.dimensions.inner and not self.kernel.along:
            loops.append(Loop("unrolled" if self.unrolled else "serial", points, "inner points"))
        direction = "along the inner points" if self.kernel.along else "across the domain"
        return (*loops, Loop("vector", self.lanes, f"lanes {direction}"))

    def notes(self) -> list[str]:
        notes = [] if self.tile is None else [f"tile: {self.tile.block} of {self.tile.rows} rows"]
        for role, accesses in (("read", self.reads), ("output", self.outputs)):
            notes += [f"{role} {number}: strides {', '.join(kinds)}" for number, kinds in enumerate(accesses) if kinds]
        for role, packs in (("reads", self.read_packs), ("outputs", self.output_packs)):
            notes += [f"{role} {', '.join(map(str, pack))}: whole rows, shuffled" for pack in packs]
        notes += ["transposed accesses: in tiles of registers"] if self.tiled else []
        notes += ["lanes: two halves may be interleaved"] if self.interleaved else []
        return [*notes, *(f"output {number}: non-temporal stores" for number in self.streamed)]


def is_transposed(kinds: Sequence[StrideKind], domain_rank: int, reading: bool) -> bool:
    """Whether points are near along the last inner dimension, and far apart along the lanes'; they are written side by
    side only.

    >>> is_transposed(("any", "one"), 1, True), is_transposed(("one", "any"), 1, True)
    (True, False)
    >>> is_transposed(("any", "near 2"), 1, False)
    False
    """
    near = ("one", *NEAR.values()) if reading else ("one", NEAR[-1])
    return domain_rank > 0 and kinds[domain_rank - 1] == "any" and kinds[-1] in near
