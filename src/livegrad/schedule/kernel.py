"""The kernel data model: accesses to buffers, and scalar functions (stages) that run at each point of a domain.

A point of the domain is a *row*; inside a row, stages sweep the inner dimensions. The scheduler builds kernels and
backends compile them. Extents and strides are not part of a kernel, so that one kernel serves all shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from livegrad.ir.cached_property import cached_property
from livegrad.ir.node import Function
from livegrad.ir.types import Scalar

Level = Literal["row", "point"]  # once for each row, or at each inner point
SourceKind = Literal["index", "read", "indexed", "scalar", "row"]
ReduceKind = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]


class Source(NamedTuple):
    """Where an argument of a stage's body comes from.

    index: the index along dimension `number` (of the domain, then of the inner dimensions); read: strided access
    `number`; indexed: a buffer accessed by computed index; scalar: a scalar argument; row: a row value.
    """

    kind: SourceKind
    number: int


class Sink(NamedTuple):
    """Where a result of a stage's body goes: to an output, or to a row value, which it replaces or is reduced into.

    indexed: the result is an indexed buffer, which the stage updates in place.
    """

    kind: Literal["output", "row", "indexed"]
    number: int
    reduce: ReduceKind | None = None


class Scan(NamedTuple):
    """A scan along the inner dimension: the first parameter of the body is the result of the previous point."""

    initial: bool | int | float
    reverse: bool
    exclusive: bool
    kind: ReduceKind | None = (
        None  # the associative operation of the body, so that threads may share a scan; None: serial
    )


@dataclass(frozen=True)
class Stage:
    """One sweep of a row: `row` stages run once per row, `point` stages at each inner point."""

    level: Level
    body: Function
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    scan: Scan | None = None


class StridedAccess(NamedTuple):
    """A strided read or write of a buffer, once per row or at each inner point."""

    element: Scalar
    level: Level
    scratch: bool = False  # thread-local memory, valid for one row


class IndexedBuffer(NamedTuple):
    """A buffer that a kernel reads, or updates in place, by computed index."""

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

    @cached_property
    def uses_index(self) -> bool:
        """Whether a stage uses an index as a value."""
        return any(source.kind == "index" for stage in self.stages for source in stage.sources)

    @cached_property
    def reduces(self) -> bool:
        return any(sink.reduce is not None for stage in self.stages for sink in stage.sinks)

    @cached_property
    def scans(self) -> bool:
        return any(stage.scan is not None for stage in self.stages)

    @cached_property
    def written(self) -> frozenset[int]:
        """The indices of the indexed buffers that are updated in place."""
        return frozenset([t.number for stage in self.stages for t in stage.sinks if t.kind == "indexed"])

    @cached_property
    def _hash(self) -> int:
        return hash((self.domain_rank, self.inner_rank, self.reads, self.outputs, self.stages))

    def __hash__(self) -> int:
        return self._hash
