"""The loop nest of a kernel step: its loops with their kinds and extents, and its memory accesses.

`for_cpu` and `for_device` create a nest from a step, the loop passes transform it (`livegrad.compiler.lower_loops`),
and code generators read it. `LoopNest.key` has everything that code depends on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from math import prod
from typing import Any, Literal, NamedTuple

from livegrad.ir.cached_property import cached_property
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.op import Op
from livegrad.ir.types import i32
from livegrad.ir.walk import nodes_of, ops_below, reachable_functions
from livegrad.ops.assignment import indices_of
from livegrad.schedule.kernel import Kernel, Stage
from livegrad.schedule.loops.dimensions import Dimensions, StrideKind, loop_dimensions, stride_kinds
from livegrad.schedule.plan import Axis, KernelStep
from livegrad.schedule.target import Target

LoopKind = Literal["parallel", "serial", "vector", "unrolled"]
# What runs one iteration of a loop. On a device, a thread, a warp or a block runs a row; with `columns`, a block runs
# 32 rows, each in a column of its threads; with `tile`, a block runs 32 × 32 rows, several per thread. A chunk is a
# part of the first inner dimension.
Runner = Literal["", "item", "lane", "chunk", "thread", "warp", "block", "columns", "tile"]
IndexType = Literal["int", "long long"]


class Loop(NamedTuple):
    """One loop of a nest, over the rows of the domain or over the inner points of a row."""

    kind: LoopKind
    axis: Axis
    extent: int = 0  # iterations; 0 while undecided
    by: Runner = ""
    step: int = 0  # points in an iteration (of an item or a chunk), or threads in a block; 0 while undecided
    grain: int = 0  # items that a thread takes at once
    brief: bool = False  # too little work to wake up a thread
    tile: int = 0  # points that are transposed in registers together; 0: no tiles
    streams: int = 1  # groups of lanes that may be interleaved (`codegen/llvm/interleaving.py`)

    @property
    def key(self) -> Hashable:
        """What code depends on. Extents of vector and unrolled loops are fixed, others are arguments."""
        extent = self.extent if self.kind in ("vector", "unrolled") else 0
        return self.kind, self.axis, extent, self.by, self.tile, self.streams

    def __str__(self) -> str:
        return f"{self.kind}: {self.extent or '?'} {self._description()}"

    def _description(self) -> str:
        match self.kind, self.axis, self.by:
            case "parallel", "domain", "item":
                brief = ", too brief to wake a thread" if self.brief else ""
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
    """A strided read or write: the kinds of its strides along all dimensions, and the kind of store."""

    strides: tuple[StrideKind, ...]
    non_temporal: bool = False


@dataclass(frozen=True)
class RowTile:
    """The number of rows of a chain, and of one tile."""

    rows: int
    block: int

    @property
    def count(self) -> int:
        return -(-self.rows // self.block)


@dataclass(frozen=True, eq=False)
class LoopNest:
    """A kernel step as loops, outermost first, with the other decisions about its code.

    The first loop runs over rows in parallel; on the CPU, the last loop is the vector loop.
    """

    step: KernelStep
    target: Target
    loops: tuple[Loop, ...]
    reads: tuple[Access, ...] = ()
    outputs: tuple[Access, ...] = ()
    reordered: bool = False  # points are visited in another order than in the original step
    # For the CPU.
    vector_bytes: int = 0
    tile: RowTile | None = None  # the tiles of the chain that contains the step
    read_packs: tuple[tuple[int, ...], ...] = ()  # reads that form whole short rows, loaded and de-interleaved
    output_packs: tuple[tuple[int, ...], ...] = ()
    unrolled_lanes: tuple[int, ...] = ()  # for each stage, the unroll factor over groups of lanes
    # In loops that lanes leave at different iterations, values that are uniform over active lanes are scalars.
    shares_lockstep: bool = False
    peels_remainder: bool = False  # the last, partial group of lanes of a row has separate code
    whole_groups: bool = False  # rows have no partial group of lanes
    covered: tuple[tuple[int, int, int], ...] = ()  # (buffer, axis, dimension) of indices that need no bounds check
    # If LLVM optimises the loops of the stages: for each indexed buffer, the first one that shares its memory.
    memories: tuple[int, ...] | None = None
    loop_notes: tuple[str, ...] = field(default=(), repr=False)  # for display: how each loop of the bodies runs
    # For devices.
    shares_rows: bool = False  # blocks may share a row: there is memory for their partial results
    by_value: tuple[bool, ...] = ()  # for each scalar argument: passed by value, or read from memory
    index: IndexType = "long long"
    heavy: bool = False  # long code that needs many registers
    # Inner points of a row whose accesses each thread keeps in registers between sweeps; 0: each sweep reads memory.
    kept_points: int = 0
    whole_rows: bool = False  # the threads together keep exactly the points of a row
    # Reads that are transposed through shared memory, because they are contiguous along this domain dimension.
    tiled_reads: tuple[int, ...] = ()
    tiled_dimension: int = -1

    @property
    def kernel(self) -> Kernel:
        return self.step.kernel

    @cached_property
    def dimensions(self) -> Dimensions:
        """The simplified dimensions of the step, over which code loops."""
        return loop_dimensions(self.step)

    @property
    def contiguous_buffers(self) -> tuple[bool, ...]:
        """For each indexed buffer, whether elements along its last dimension are contiguous."""
        return tuple([buffer.strides[-1:] == (1,) for buffer in self.step.indexed_buffers])

    @property
    def has_short_positions(self) -> bool:
        """Whether positions of reads are computed with 32 bits."""
        return any(
            source.kind == "index" and parameter.type is i32
            for stage in self.kernel.stages
            for source, parameter in zip(stage.sources[::-1], stage.body.parameters[::-1], strict=False)
        )

    @cached_property
    def ops(self) -> frozenset[Op]:
        """The ops of the stages and of all functions they use."""
        return frozenset().union(*[ops_below(stage.body) for stage in self.kernel.stages])

    @property
    def domain_rank(self) -> int:
        return len(self.dimensions.domain)

    @property
    def inner_rank(self) -> int:
        return len(self.dimensions.inner)

    @property
    def is_split(self) -> bool:
        """Whether the first domain dimension counts chunks of the first inner dimension."""
        return self.step.chunk > 0

    # --- loops ---

    def loop(self, kind: LoopKind, axis: Axis, by: Runner | None = None) -> Loop | None:
        """The first loop of a kind over an axis, or None."""
        return next((o for o in self.loops if o.kind == kind and o.axis == axis and by in (None, o.by)), None)

    @property
    def rows(self) -> Loop:
        """The parallel loop over the rows of the domain."""
        return self.loops[0]

    @property
    def points(self) -> Loop | None:
        """The serial or unrolled loop over inner points."""
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
        """Whether lanes run across rows (outer-loop vectorisation) rather than along inner points."""
        return self.loops[-1].axis == "domain"

    @property
    def lane(self) -> int:
        """The dimension along which lanes run; negative if there is none."""
        dimensions = self.dimensions
        return len(dimensions.domain) + (0 if self.across else len(dimensions.inner)) - 1

    @property
    def unrolled_points(self) -> int:
        """The number of inner points if they are fully unrolled, else 0."""
        points = self.points
        return points.extent if points is not None and points.kind == "unrolled" else 0

    @property
    def non_temporal(self) -> tuple[int, ...]:
        """The outputs with non-temporal stores."""
        return tuple([index for index, access in enumerate(self.outputs) if access.non_temporal])

    @cached_property
    def has_parallel_loops(self) -> bool:
        """Whether a loop in a stage runs on several threads."""
        functions = reachable_functions([stage.body for stage in self.kernel.stages])
        return any(name == "grain" for f in functions for node in nodes_of(f) for name, _ in node.attributes)

    def lane_groups(self, stage: Stage) -> int:
        """The unroll factor of a stage over groups of lanes."""
        return self.unrolled_lanes[self.kernel.stages.index(stage)] if self.unrolled_lanes else 1

    # --- decisions ---

    def replace(self, **changes: Any) -> LoopNest:
        """The nest with other decisions."""
        nest = object.__new__(LoopNest)
        fields = nest.__dict__
        fields.update(self.__dict__)  # including the cached dimensions, which are expensive to compute
        fields.update(changes)
        fields.pop("key", None)
        if "step" in changes:
            fields.pop("has_parallel_loops", None)
            fields.pop("ops", None)
            if "dimensions" not in changes:
                fields.pop("dimensions", None)
        return nest

    def change(self, loop: Loop, **changes: Any) -> LoopNest:
        """The nest with one of its loops changed."""
        new_loop = loop._replace(**changes)
        return self.replace(loops=tuple([new_loop if existing is loop else existing for existing in self.loops]))

    def visit_as(self, step: KernelStep) -> LoopNest:
        """The nest of a step that visits the same points in another order."""
        dimensions = loop_dimensions(step)
        return self.replace(step=step, dimensions=dimensions, loops=_cpu_loops(step, dimensions), reordered=True)

    def with_stages(self, stages: tuple[Stage, ...]) -> LoopNest:
        """The same loops with other stages."""
        kernel = with_changes(self.kernel, stages=stages)
        return self.replace(step=with_changes(self.step, kernel=kernel), dimensions=self.dimensions)

    # --- code ---

    @cached_property
    def key(self) -> Hashable:
        """Everything that code depends on. Extents that are arguments of the code are not part of it."""
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
            self.whole_groups,
            self.covered,
            self.memories,
            self.vector_bytes,
            self.by_value,
            self.index,
            not self.vector_bytes and self.contiguous_buffers,
            self.heavy,
            self.kept_points and (self.kept_points, self.rows.step, self.whole_rows),
            self.tiled_reads,
            self.tiled_dimension,
        )

    def __str__(self) -> str:
        sizes = [*self.dimensions.domain, *(f"inner {size}" for size in self.dimensions.inner)]
        title = f"kernel {self.kernel.name or 'copy'} over {' x '.join(map(str, sizes)) or 'one point'}"
        scratch = sum(port.scratch for port in self.kernel.outputs)
        scratch_note = [f"scratch: {scratch} kept for each inner point, for later sweeps"] if scratch else []
        stages = map(_stage_line, self.kernel.stages)
        return "\n  ".join([title, *map(str, self.loops), *stages, *scratch_note, *self._describe_decisions()])

    def _describe_decisions(self) -> list[str]:
        notes = [] if self.tile is None else [f"tile: {self.tile.block} of {self.tile.rows} rows"]
        for role, accesses in (("read", self.reads), ("output", self.outputs)):
            notes += [
                f"{role} {n}: strides {', '.join(access.strides)}"
                for n, access in enumerate(accesses)
                if access.strides
            ]
        for role, packs in (("reads", self.read_packs), ("outputs", self.output_packs)):
            notes += [f"{role} {', '.join(map(str, pack))}: whole rows, shuffled" for pack in packs]
        for index, groups in enumerate(self.unrolled_lanes):
            notes += [f"stage {index}: {groups} groups of lanes at once"] if groups > 1 else []
        notes += ["lanes: in step inside of loops"] if self.shares_lockstep else []
        notes += ["lanes: full groups, then the remainder"] if self.peels_remainder else []
        notes += ["lanes: full groups only"] if self.whole_groups else []
        notes += ["lanes: two halves may be interleaved"] if self.loops[-1].streams > 1 else []
        notes += [f"output {output}: non-temporal stores" for output in self.non_temporal]
        proved, total = _count_proved_indices(self.kernel)
        notes += [f"indices: {total}, of which {total - proved} are checked"] if proved else []
        notes += [f"registers: {self.kept_points} points of a row for each thread"] if self.kept_points else []
        tiled = ", ".join(map(str, self.tiled_reads))
        notes += [f"reads {tiled}: transposed through shared memory"] if tiled else []
        notes += [] if self.memories is None else ["scalar loops, optimised by LLVM"]
        notes += self.loop_notes
        if not self.vector_bytes:
            notes += [f"indices: {self.index}"]
            notes += ["positions: 32 bits"] if self.has_short_positions else []
            notes += ["registers: many, so fewer threads"] if self.heavy else []
        return notes


def for_cpu(step: KernelStep, target: Target, vector_bytes: int, tile: RowTile | None = None) -> LoopNest:
    """Creates the nest of a step for the CPU, alone or over the tiles of a chain."""
    dimensions = loop_dimensions(step)
    nest = LoopNest(step, target, _cpu_loops(step, dimensions), vector_bytes=vector_bytes, tile=tile)
    return nest.replace(dimensions=dimensions)


def _cpu_loops(step: KernelStep, dimensions: Dimensions) -> tuple[Loop, ...]:
    inner = dimensions.inner
    swept = inner if step.vector_axis == "domain" else inner[:-1]
    points = [Loop("serial", "inner", prod(swept))] if swept else []
    return (Loop("parallel", "domain", by="item"), *_chunks(step), *points, Loop("vector", step.vector_axis, by="lane"))


def for_device(step: KernelStep, target: Target, shares_rows: bool, by_value: Sequence[bool] = ()) -> LoopNest:
    """Creates the nest of a step for a device. `shares_rows`: there is memory for blocks that share a row."""
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
    """Describes a stage by counts of its ops, including those of nested functions."""
    nodes = [node for function in reachable_functions([stage.body]) for node in nodes_of(function)]
    counts = Counter(node.op.name for node in nodes if node.op not in (parameter_op, constant_op))
    ops = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
    reductions = ", ".join(dict.fromkeys(sink.reduce for sink in stage.sinks if sink.reduce is not None))
    return f"each {stage.level}: {', '.join(ops) or 'copy'}{f'; reduced by {reductions}' if reductions else ''}"


def _count_proved_indices(kernel: Kernel) -> tuple[int, int]:
    """The number of indices of a kernel that were proved to be in range, and the number of all indices."""
    nodes = [node for function in reachable_functions([s.body for s in kernel.stages]) for node in nodes_of(function)]
    proved = sum(len(dict(node.attributes).get("in_range", ())) for node in nodes)
    return proved, sum(len(indices_of(node)) for node in nodes)


@dataclass(frozen=True)
class LoopPass:
    """A loop pass: one decision about a loop nest."""

    run: Callable[[LoopNest], LoopNest]
    needs: frozenset[Op] = frozenset()  # has nothing to do unless a kernel has one of these ops; empty: it may
    by_tile: bool = False  # runs again for tiles of a chain
    optional: bool = False  # an optimisation that `Target.without` leaves out

    def __call__(self, nest: LoopNest) -> LoopNest:
        return nest if self.needs and self.needs.isdisjoint(nest.ops) else self.run(nest)

    @property
    def name(self) -> str:
        return self.run.__name__
