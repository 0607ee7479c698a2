"""Kernels: a domain, strided accesses to buffers, and scalar functions that run at each point.

A kernel visits every point of its domain (a *row*); inside a row, its stages sweep the inner dimensions. The scheduler
builds kernels, backends compile them. Extents and strides are not part of a kernel, so one kernel serves all shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from livegrad.ir.node import Function
from livegrad.ir.types import Scalar

Level = Literal["row", "point"]  # once a row, or at each inner point
SourceKind = Literal["index", "read", "indexed", "scalar", "row"]
ReduceKind = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]


class Source(NamedTuple):
    """Where an argument of a stage's body comes from.

    index: the position along dimension `number` (the domain's, then the inner ones); read: strided access `number`;
    whole: a tensor read by computed index; uniform: a scalar argument; row: a value kept for the row.
    """

    kind: SourceKind
    number: int


class Sink(NamedTuple):
    """Where a result of a stage's body goes: to an output, or into a row value, folded there if `reduce` is given.

    whole: the result is that tensor, changed in place by index; nothing else reads it.
    """

    kind: Literal["output", "row", "indexed"]
    number: int
    reduce: ReduceKind | None = None


class Scan(NamedTuple):
    """A scan along the inner dimension: the first parameter of the body is the result of the previous point."""

    initial: bool | int | float
    reverse: bool
    exclusive: bool
    kind: ReduceKind | None = None  # the associative operation of the body, which threads may share; None: in order


@dataclass(frozen=True)
class Stage:
    """One sweep of a row: `row` stages run once, `point` stages at each inner point."""

    level: Level
    body: Function
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    scan: Scan | None = None


class StridedAccess(NamedTuple):
    """A buffer that a kernel touches by stride: its element, and whether once a row or at each inner point."""

    element: Scalar
    level: Level
    scratch: bool = False  # thread-local memory, valid for one row


class IndexedBuffer(NamedTuple):
    """A buffer that a kernel reads, or changes in place, by computed index."""

    element: Scalar
    rank: int


@dataclass(frozen=True)
class Kernel:
    """The part of a kernel that is compiled."""

    name: str
    domain_rank: int
    inner_rank: int
    reads: tuple[StridedAccess, ...]
    indexed_buffers: tuple[IndexedBuffer, ...]
    scalar_arguments: tuple[Scalar, ...]
    outputs: tuple[StridedAccess, ...]
    rows: tuple[Scalar, ...]
    stages: tuple[Stage, ...]
    discarded: frozenset[int] = frozenset()  # indices of the indexed buffers that nothing reads after the kernel

    @property
    def uses_index(self) -> bool:
        return any(source.kind == "index" for stage in self.stages for source in stage.sources)

    @cached_property
    def written(self) -> frozenset[int]:
        """The indices of the indexed buffers that are updated in place."""
        return frozenset(t.number for stage in self.stages for t in stage.sinks if t.kind == "indexed")

    @cached_property
    def _hash(self) -> int:
        return hash((self.domain_rank, self.inner_rank, self.reads, self.outputs, self.stages))

    def __hash__(self) -> int:
        return self._hash
