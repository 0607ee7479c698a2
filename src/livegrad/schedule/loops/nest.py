"""The loop nest of a kernel step: its loops with their kinds and extents, and its memory accesses.

`for_cpu` and `for_device` create one from a step, the loop passes decide about it (`livegrad.compiler.lower_loops`),
and code generators read it. `LoopNest.key` is what code depends on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.assignment import indices_of
from livegrad.schedule.kernel import Kernel, Stage
from livegrad.schedule.loops.dimensions import Dimensions, StrideKind, loop_dimensions, stride_kinds
from livegrad.schedule.plan import Axis, KernelStep
from livegrad.schedule.target import Target

LoopKind = Literal["parallel", "serial", "vector", "unrolled"]
# What runs one iteration of a loop. A thread, a warp or a block runs a row of a device; `columns` is a block that runs
# 32 rows, each by one column of its threads; `tile` a block that runs 32 × 32 rows, of which each thread takes some. A
# chunk is a part of the first inner dimension.
Runner = Literal["", "item", "lane", "chunk", "thread", "warp", "block", "columns", "tile"]
IndexType = Literal["int", "long long"]


class Loop(NamedTuple):
    """One loop of a nest: how it runs, over the rows of the domain or the inner points of a row, and how often."""

    kind: LoopKind
    axis: Axis
    extent: int = 0  # iterations; 0 while undecided
    by: Runner = ""
    step: int = 0  # points in an iteration (of an item or a chunk), or threads in a block; 0 while undecided
    grain: int = 0  # items that a thread takes at once
    brief: bool = False  # so little work that no thread is woken up for it
    tile: int = 0  # points that are transposed in registers together; 0: none
    streams: int = 1  # parts of twice the lanes that may be interleaved (`codegen/llvm/interleaving.py`)

    @property
    def key(self) -> Hashable:
        """The loop as code knows it: extents of vector and unrolled loops are fixed, others are arguments."""
        extent = self.extent if self.kind in ("vector", "unrolled") else 0
        return self.kind, self.axis, extent, self.by, self.tile, self.streams

    def __str__(self) -> str:
        return f"{self.kind}: {self.extent or '?'} {self._iterations()}"

    def _iterations(self) -> str:
        match self.kind, self.axis, self.by:
            case "parallel", "domain", "item":
                brief = ", for threads that are awake" if self.brief else ""
                return f"items of {self.step}, {self.grain} at once{brief}" if self.step else "items"
            case "parallel", "domain", runner:
                return f"{f'blocks of {self.step} threads' if self.step else 'blocks'}, a {runner} for a row"
            case "parallel", _, "chunk":
                return f"chunks of {self.step} inner points"
            case "parallel", _, _:
                return "blocks share a row"
            case "vector", "domain", _:
                return "lanes across the domain"
            case "vector", _, _:
                return "lanes along the inner points"
            case _, "domain", _:
                return "rows at once"
        return f"inner points{f', in tiles of {self.tile}' if self.tile else ''}"


class Access(NamedTuple):
    """A strided read or write: the kinds of its strides along all dimensions, and how it is stored."""

    strides: tuple[StrideKind, ...]
    non_temporal: bool = False


@dataclass(frozen=True)
class RowTile:
    """The rows of a chain: how many there are, and how many are one tile."""

    rows: int
    block: int

    @property
    def count(self) -> int:
        return -(-self.rows // self.block)


@dataclass(frozen=True, eq=False)
class LoopNest:
    """A kernel step as loops, the outermost first, with what else was decided about its code.

    The first loop runs over rows in parallel; on the CPU, the last one is the vector loop.
    """

    step: KernelStep
    target: Target
    loops: tuple[Loop, ...]
    reads: tuple[Access, ...] = ()
    outputs: tuple[Access, ...] = ()
    reordered: bool = False  # points are visited in another order than the step says
    # For the CPU.
    vector_bytes: int = 0
    tile: RowTile | None = None  # of the chain that the step is part of
    read_packs: tuple[tuple[int, ...], ...] = ()  # reads that are, together, whole short rows: loaded and shuffled
    output_packs: tuple[tuple[int, ...], ...] = ()
    unrolled_lanes: tuple[int, ...] = ()  # for each stage, how many groups of lanes are written one after the other
    # Of a loop that lanes leave at different iterations: what those that are still in it have in common is a scalar.
    shares_lockstep: bool = False
    peels_remainder: bool = False  # the last group of a row, which may lack lanes, has code of its own
    covered: tuple[tuple[int, int, int], ...] = ()  # (buffer, axis, dimension) of indices that need no bounds check
    # Where LLVM optimises the loops of the stages: for each buffer that is accessed by index, the number of its memory.
    memories: tuple[int, ...] | None = None
    loop_notes: tuple[str, ...] = field(default=(), repr=False)  # for display: where each loop of the bodies runs
    # For devices.
    shares_rows: bool = False  # there is memory for the partial results of blocks that share a row
    by_value: tuple[bool, ...] = ()  # for each scalar argument: part of the arguments, or read from memory
    index: IndexType = "long long"
    heavy: bool = False  # long code, which needs many registers
    # Inner points of a row whose accesses each thread keeps in registers between sweeps; 0: each sweep reads memory.
    kept_points: int = 0
    whole_rows: bool = False  # the threads keep exactly as many points as a row has
    # Reads that go through shared memory, because neighbours in memory are neighbours along this domain dimension.
    tiled_reads: tuple[int, ...] = ()
    tiled_dimension: int = -1

    @property
    def kernel(self) -> Kernel:
        return self.step.kernel

    @cached_property
    def dimensions(self) -> Dimensions:
        """What code loops over: the step's dimensions, merged where memory allows."""
        return loop_dimensions(self.step)

    @property
    def domain_rank(self) -> int:
        return len(self.dimensions.domain)

    @property
    def inner_rank(self) -> int:
        return len(self.dimensions.inner)

    @property
    def is_split(self) -> bool:
        """Whether the first domain dimension numbers chunks of the first inner one."""
        return self.step.chunk > 0

    # --- loops ---

    def loop(self, kind: LoopKind, axis: Axis, by: Runner | None = None) -> Loop | None:
        """The loop of this kind over this axis, if there is one."""
        return next((o for o in self.loops if o.kind == kind and o.axis == axis and by in (None, o.by)), None)

    @property
    def rows(self) -> Loop:
        """The parallel loop over the rows of the domain."""
        return self.loops[0]

    @property
    def points(self) -> Loop | None:
        """The serial or unrolled loop over inner points that lanes do not run along."""
        for loop in self.loops:
            if loop.axis == "inner" and loop.kind in ("serial", "unrolled"):
                return loop
        return None

    @property
    def vector(self) -> Loop:
        """The loop over lanes."""
        return self.loops[-1]

    @property
    def lanes(self) -> int:
        return self.loops[-1].extent

    @property
    def across(self) -> bool:
        """Whether lanes run across rows (outer-loop vectorisation), not along the inner points."""
        return self.loops[-1].axis == "domain"

    @property
    def lane(self) -> int:
        """The dimension along which lanes run; negative where there is none."""
        dimensions = self.dimensions
        return len(dimensions.domain) + (0 if self.across else len(dimensions.inner)) - 1

    @property
    def unrolled_points(self) -> int:
        """How many inner points there are, where each is written out; otherwise 0."""
        points = self.points
        return points.extent if points is not None and points.kind == "unrolled" else 0

    @property
    def non_temporal(self) -> tuple[int, ...]:
        """The outputs that are stored past the caches."""
        return tuple([number for number, access in enumerate(self.outputs) if access.non_temporal])

    @cached_property
    def has_parallel_loops(self) -> bool:
        """Whether loops inside the stages run on threads."""
        functions = reachable_functions([stage.body for stage in self.kernel.stages])
        return any(name == "grain" for f in functions for node in nodes_of(f) for name, _ in node.attributes)

    def lane_groups(self, stage: Stage) -> int:
        """How many groups of lanes of a stage are written one after the other."""
        return self.unrolled_lanes[self.kernel.stages.index(stage)] if self.unrolled_lanes else 1

    # --- decisions ---

    def replace(self, **changes: Any) -> LoopNest:
        """The nest with something else decided."""
        nest = object.__new__(LoopNest)
        fields = nest.__dict__
        fields.update(self.__dict__)  # dimensions too, which take longest to find
        fields.update(changes)
        fields.pop("key", None)
        fields.pop("has_parallel_loops", None)
        if "step" in changes and "dimensions" not in changes:
            fields.pop("dimensions", None)
        return nest

    def change(self, loop: Loop, **changes: Any) -> LoopNest:
        """The nest with another form of one of its loops."""
        changed = loop._replace(**changes)
        return self.replace(loops=tuple([changed if other is loop else other for other in self.loops]))

    def visit_as(self, step: KernelStep) -> LoopNest:
        """The nest of a step that visits the same points in another order."""
        dimensions = loop_dimensions(step)
        return self.replace(step=step, dimensions=dimensions, loops=_cpu_loops(step, dimensions), reordered=True)

    def with_stages(self, stages: tuple[Stage, ...]) -> LoopNest:
        """The same loops around other code."""
        kernel = with_changes(self.kernel, stages=stages)
        return self.replace(step=with_changes(self.step, kernel=kernel), dimensions=self.dimensions)

    # --- code ---

    @cached_property
    def key(self) -> Hashable:
        """All that code depends on: never extents of loops that code takes as arguments."""
        return (
            self.kernel,
            tuple([loop.key for loop in self.loops]),
            self.step.vector_axis,
            self.domain_rank,
            self.inner_rank,
            self.reads,
            self.outputs,
            self.read_packs,
            self.output_packs,
            self.unrolled_lanes,
            self.shares_lockstep,
            self.peels_remainder,
            self.covered,
            self.memories,
            self.vector_bytes,
            self.by_value,
            self.index,
            self.heavy,
            self.kept_points and (self.kept_points, self.rows.step, self.whole_rows),
            self.tiled_reads,
            self.tiled_dimension,
        )

    def __str__(self) -> str:
        sizes = [*self.dimensions.domain, *(f"inner {size}" for size in self.dimensions.inner)]
        title = f"kernel {self.kernel.name or 'copy'} over {' x '.join(map(str, sizes)) or 'one point'}"
        scratch = sum(port.scratch for port in self.kernel.outputs)
        kept = [f"scratch: {scratch} kept for each inner point, for later sweeps"] if scratch else []
        return "\n  ".join([title, *map(str, self.loops), *map(_stage_line, self.kernel.stages), *kept, *self._notes()])

    def _notes(self) -> list[str]:
        notes = [] if self.tile is None else [f"tile: {self.tile.block} of {self.tile.rows} rows"]
        for role, accesses in (("read", self.reads), ("output", self.outputs)):
            notes += [
                f"{role} {n}: strides {', '.join(access.strides)}"
                for n, access in enumerate(accesses)
                if access.strides
            ]
        for role, packs in (("reads", self.read_packs), ("outputs", self.output_packs)):
            notes += [f"{role} {', '.join(map(str, pack))}: whole rows, shuffled" for pack in packs]
        for number, groups in enumerate(self.unrolled_lanes):
            notes += [f"stage {number}: {groups} groups of lanes at once"] if groups > 1 else []
        notes += ["lanes: in step inside of loops"] if self.shares_lockstep else []
        notes += ["lanes: full groups, then the remainder"] if self.peels_remainder else []
        notes += ["lanes: two halves may be interleaved"] if self.loops[-1].streams > 1 else []
        notes += [f"output {number}: non-temporal stores" for number in self.non_temporal]
        proven, total = _proven_indices(self.kernel)
        notes += [f"indices: {total}, of which {total - proven} are checked"] if proven else []
        notes += [f"registers: {self.kept_points} points of a row for each thread"] if self.kept_points else []
        tiled = ", ".join(map(str, self.tiled_reads))
        notes += [f"reads {tiled}: transposed through shared memory"] if tiled else []
        notes += [] if self.memories is None else ["scalar loops, optimised by LLVM"]
        notes += self.loop_notes
        if not self.vector_bytes:
            notes += [f"indices: {self.index}", *(["registers: many, so fewer threads"] if self.heavy else [])]
        return notes


def for_cpu(step: KernelStep, target: Target, vector_bytes: int, tile: RowTile | None = None) -> LoopNest:
    """A step for vectors of so many bytes, alone or over tiles of rows with the other steps of a chain."""
    dimensions = loop_dimensions(step)
    nest = LoopNest(step, target, _cpu_loops(step, dimensions), vector_bytes=vector_bytes, tile=tile)
    return nest.replace(dimensions=dimensions)


def _cpu_loops(step: KernelStep, dimensions: Dimensions) -> tuple[Loop, ...]:
    inner = dimensions.inner
    swept = inner if step.vector_axis == "domain" else inner[:-1]
    points = [Loop("serial", "inner", prod(swept))] if swept else []
    return (Loop("parallel", "domain", by="item"), *_chunks(step), *points, Loop("vector", step.vector_axis, by="lane"))


def for_device(step: KernelStep, target: Target, shares_rows: bool, by_value: Sequence[bool] = ()) -> LoopNest:
    """A step on a device; `shares_rows` says whether there is memory for blocks that share a row."""
    inner = loop_dimensions(step).inner
    points = prod(inner) if not step.chunk else min(step.chunk, inner[0]) * prod(inner[1:])
    swept = [Loop("serial", "inner", points)] if inner else []
    loops = (Loop("parallel", "domain", by="thread"), *_chunks(step), *swept)
    nest = LoopNest(step, target, loops, shares_rows=shares_rows, by_value=tuple(by_value))
    reads, outputs = (stride_kinds(strides) for strides in (nest.dimensions.reads, nest.dimensions.outputs))
    return nest.replace(reads=tuple(map(Access, reads)), outputs=tuple(map(Access, outputs)))


def _chunks(step: KernelStep) -> list[Loop]:
    return [Loop("parallel", "inner", step.domain[0], by="chunk", step=step.chunk)] if step.chunk else []


def _stage_line(stage: Stage) -> str:
    """The ops of a stage and of its functions, and how often each occurs."""
    every = [node for function in reachable_functions([stage.body]) for node in nodes_of(function)]
    counts = Counter(node.op.name for node in every if node.op not in (parameter_op, constant_op))
    ops = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
    reductions = ", ".join(dict.fromkeys(sink.reduce for sink in stage.sinks if sink.reduce is not None))
    return f"each {stage.level}: {', '.join(ops) or 'copy'}{f'; reduced by {reductions}' if reductions else ''}"


def _proven_indices(kernel: Kernel) -> tuple[int, int]:
    """How many of the indices by which a kernel reads and writes are known to be in range, and how many there are."""
    every = [node for function in reachable_functions([s.body for s in kernel.stages]) for node in nodes_of(function)]
    proven = sum(len(dict(node.attributes).get("in_range", ())) for node in every)
    return proven, sum(len(indices_of(node)) for node in every)


@dataclass(frozen=True)
class LoopPass:
    """One decision about a loop nest."""

    run: Callable[[LoopNest], LoopNest]
    by_tile: bool = False  # decides otherwise in a chain
    optional: bool = False  # an optimisation that `Target.without` leaves out

    @property
    def name(self) -> str:
        return self.run.__name__
