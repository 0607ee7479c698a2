"""Builds the kernel steps of a fused group: stages, row values, scratch memory, chunks and buffer views."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Scalar, f16, f32
from livegrad.ir.walk import substitute, toposort
from livegrad.ops.reduction import arg_reduce
from livegrad.schedule.fuse import Group
from livegrad.schedule.kernel import IndexedBuffer, Kernel, Level, Sink, Source, Stage, StridedAccess
from livegrad.schedule.loops.cost_model import (
    CHUNK,
    CHUNK_ACROSS,
    DEAR_CHUNK_COST,
    FEWEST_CHUNKS,
    LEAST_ACROSS,
    LEAST_CHUNK,
    SCRATCH_BYTES,
    SCRATCH_COST,
    WIDEST_CHUNK,
)
from livegrad.schedule.plan import Axis, Buffer, KernelStep, View
from livegrad.schedule.views import Affine
from livegrad.schedule.work import KernelBuilder, Work, is_row_level

NewBuffer = Callable[..., Buffer]  # (name, element, shape, lifetime)


@dataclass
class StageBuilder:
    """A stage under construction, whose results are expressions over the kernel's placeholders."""

    level: Level
    results: list[Node] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)

    def add(self, result: Node, target: Sink) -> None:
        self.results.append(result)
        self.sinks.append(target)


@dataclass
class StepBuilder:
    """Builds a kernel step: stages, and the accesses and views of its reads and writes."""

    builder: KernelBuilder
    stored: Mapping[Node, Buffer]
    new_buffer: NewBuffer
    outputs: Container[Node] = ()  # the roots that are read outside the kernel
    stages: list[StageBuilder] = field(default_factory=list)
    ports: list[StridedAccess] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    scratch: list[tuple[StridedAccess, View]] = field(default_factory=list)
    partial: dict[Node, tuple[list[Buffer], str]] = field(default_factory=dict)
    chunk: int = 0  # the part of the first inner dimension that one item reduces; 0: the reduction is not split

    @property
    def group(self) -> Group:
        return self.builder.group

    @property
    def rank(self) -> int:
        return len(self.group.domain) + len(self.group.inner)

    @property
    def chunks(self) -> int:
        return -(-self.group.inner[0] // self.chunk) if self.chunk else 0

    def output(self, port: StridedAccess, view: View) -> Sink:
        self.ports.append(port)
        self.views.append(view)
        return Sink("output", len(self.ports) - 1)

    # --- stages ---

    def add_phase(self, works: list[Work], row_level: bool) -> None:
        """Adds the sweep that computes some roots, and the stage that stores its reductions."""
        stage = StageBuilder("row" if row_level or not self.group.axes else "point")
        reductions = []
        for work in works:
            if work.reduce is not None:
                for value, slot in zip(work.values, self.builder.row_slots[work.root], strict=True):
                    stage.add(value, Sink("row", slot, work.reduce))  # type: ignore[arg-type]
                reductions.append(work)
                continue
            if work.root in self.outputs:
                self.store_values(stage, work, row_level)
            if row_level:
                for value, slot in zip(work.values, self.builder.row_slots[work.root], strict=True):
                    stage.add(value, Sink("row", slot))
        self.stages.append(stage)
        if any(work.root in self.outputs for work in reductions):
            self.stages.append(self._store_reductions(reductions))

    def store_values(self, stage: StageBuilder, work: Work, row_level: bool) -> None:
        """Writes a root's values to its buffer, component by component."""
        buffer = self.stored[work.root]
        index = self.group.space.row if row_level else self.group.space.point
        strides = [0] * self.rank
        for item, stride in zip(index, buffer.strides, strict=False):  # components have separate strides
            assert isinstance(item, Affine)
            assert item.axis is not None
            strides[item.axis] = stride
        for component, value in enumerate(work.values):
            port = StridedAccess(buffer.element, stage.level)
            stage.add(value, self.output(port, View(buffer, component, tuple(strides))))

    def _store_reductions(self, reductions: list[Work]) -> StageBuilder:
        """A row stage that stores reductions: the results, or a partial result for each chunk."""
        stage = StageBuilder("row")
        rows = self.builder.rows
        for work in reductions:
            if work.root not in self.outputs:
                continue
            partial: list[Buffer] = []
            for component, slot in enumerate(self.builder.row_slots[work.root]):
                buffer, offset = self.stored[work.root], component
                strides = buffer.strides[: len(self.group.domain)]
                if self.chunks:
                    rows[slot] = f32 if rows[slot] is f16 and work.reduce in ("sum", "prod") else rows[slot]
                    buffer, offset = self.new_buffer("partial", rows[slot], (self.chunks, *self.group.domain)), 0
                    strides = buffer.strides
                    partial.append(buffer)
                target = self.output(
                    StridedAccess(rows[slot], "row"), View(buffer, offset, (*strides, *[0] * len(self.group.inner)))
                )
                stage.add(self.builder.expressions.placeholder(Source("row", slot), rows[slot]), target)
            if partial:
                self.partial[work.root] = (partial, work.reduce or "")
        return stage

    # --- lanes and scratch ---

    def vectorises_inner(self) -> bool:
        """Whether lanes run along the inner dimension, because more accesses are contiguous there."""
        group = self.group
        if not group.axes:
            return False
        if not group.domain or (group.split and group.domain[-1] < LEAST_ACROSS):
            return True
        inner, domain = self.rank - 1, len(group.domain) - 1
        reads = [strides for _, _, strides in self.builder.expressions.reads]
        # Accesses that advance once per row are cheap.
        accesses = [strides for strides in reads if any(strides[len(group.domain) :])]
        accesses += [view.strides for view, port in zip(self.views, self.ports, strict=True) if port.level == "point"]
        lookups = self.builder.expressions.contiguous_lookups
        accesses += [[int(dimension == axis) for dimension in range(self.rank)] for _, axis in lookups]
        along_inner = sum(strides[inner] == 1 for strides in accesses)
        along_domain = sum(strides[domain] == 1 for strides in accesses)
        return group.inner[-1] >= group.domain[-1] if along_inner == along_domain else along_inner > along_domain

    def choose_chunk(self, columns: bool, works: Sequence[Work]) -> None:
        """Splits the only sweep of a kernel into chunks if rows are too few for threads or columns exceed the cache."""
        group = self.group
        if not group.axes or any(root.op is arg_reduce for root in group.roots):
            return  # partial results of chunks would have to store values beside their indices
        rows, layer = prod(group.domain), max(1, prod(group.inner[1:]))
        if self.vectorises_inner():
            # A row of few expensive points counts as long as a row of many cheap points.
            points = CHUNK if group.split else count_chunk_points(works)
            chunk = max(1, points // layer)
            is_long = group.split or (not group.domain and group.inner[0] >= FEWEST_CHUNKS * chunk)
            self.chunk = chunk if is_long else 0
        elif group.split or (columns and rows <= WIDEST_CHUNK):
            chunk = max(1, LEAST_CHUNK // layer, CHUNK_ACROSS // max(1, rows * layer))
            self.chunk = chunk if group.inner[0] > 2 * chunk else 0

    def store_in_scratch(self) -> None:
        """Stores expensive values that several sweeps need in thread-local memory, and reads them in later sweeps."""
        points = [stage for stage in self.stages if stage.level == "point"]
        if len(points) < 2:
            return
        originals = [list(stage.results) for stage in points]
        scratch_reads: dict[Node, Node] = {}
        for index, stage in enumerate(points):
            later = set(toposort([node for results in originals[index + 1 :] for node in results]))
            has_room = (len(scratch_reads) + 1) * prod(self.group.inner) * 8 <= SCRATCH_BYTES
            computed = toposort(originals[index], stop=scratch_reads.__contains__) if has_room and later else []
            expensive = [node for node in computed if node.op.cost >= SCRATCH_COST and isinstance(node.type, Scalar)]
            new = [node for node in expensive if node in later and node not in scratch_reads]
            available = dict(scratch_reads)  # a sweep cannot read the values that it stores itself
            if available:
                stage.results = list(substitute(stage.results, available))
            for node in self._select_outermost(new, originals[index + 1 :]):
                stage.add(substitute([node], available)[0], self._add_scratch(node))
                scratch_reads[node] = self.builder.expressions.placeholder(
                    Source("read", self._scratch_read()), node.type
                )

    @staticmethod
    def _select_outermost(nodes: list[Node], later: list[list[Node]]) -> list[Node]:
        """Of nested candidates, those that later sweeps use directly."""
        candidates = set(nodes)
        read_later = set(toposort([node for results in later for node in results], stop=candidates.__contains__))
        return [node for node in nodes if node in read_later]

    def _add_scratch(self, node: Node) -> Sink:
        assert isinstance(node.type, Scalar)
        buffer = self.new_buffer("scratch", node.type, self.group.inner, "region")
        view = View(buffer, 0, (*[0] * len(self.group.domain), *buffer.strides))
        port = StridedAccess(node.type, "point", scratch=True)
        self.scratch.append((port, view))
        return self.output(port, view)

    def _scratch_read(self) -> int:
        """The index of the last scratch read; scratch reads follow the reads of buffers."""
        return len(self.builder.expressions.reads) + len(self.scratch) - 1

    # --- the step ---

    def finish(self, vector_axis: Axis = "domain") -> KernelStep:
        group, expressions = self.group, self.builder.expressions
        stages = [self._close_stage(stage) for stage in self.stages]
        reads = [
            (
                StridedAccess(buffer.element, "point" if any(strides[len(group.domain) :]) else "row"),
                View(buffer, offset, strides),
            )
            for buffer, offset, strides in expressions.reads
        ] + self.scratch
        return self.build_step(stages, reads, vector_axis)

    def build_step(
        self, stages: list[Stage], reads: list[tuple[StridedAccess, View]], vector_axis: Axis = "domain"
    ) -> KernelStep:
        group, expressions = self.group, self.builder.expressions
        domain = (self.chunks, *group.domain) if self.chunks else group.domain
        kernel = Kernel(
            name=kernel_name(group),
            domain_rank=len(domain),
            inner_rank=len(group.inner),
            reads=tuple([port for port, _ in reads]),
            indexed_buffers=tuple(
                [IndexedBuffer(buffer.element, len(buffer.shape)) for buffer in expressions.indexed_buffers]
            ),
            scalar_arguments=tuple([buffer.element for buffer, _ in expressions.scalar_arguments]),
            outputs=tuple(self.ports),
            rows=tuple(self.builder.rows),
            stages=tuple(map(self._shift_indices, stages)),
        )
        return KernelStep(
            kernel,
            domain,
            group.inner,
            reads=tuple([self._add_chunk_stride(view) for _, view in reads]),
            indexed_buffers=tuple(expressions.indexed_buffers),
            scalar_arguments=tuple([View(buffer, offset, ()) for buffer, offset in expressions.scalar_arguments]),
            outputs=tuple(map(self._add_chunk_stride, self.views)),
            chunk=self.chunk if self.chunks else 0,
            vector_axis=vector_axis,
        )

    def _close_stage(self, stage: StageBuilder) -> Stage:
        body, sources = self.builder.expressions.stage_function("stage", stage.results)
        return Stage(stage.level, body, sources, tuple(stage.sinks))

    def _add_chunk_stride(self, view: View) -> View:
        """Adds a stride for the chunk dimension: zero, except for partial results, which have one already."""
        if not self.chunks or len(view.strides) == self.rank + 1:
            return view
        return View(view.buffer, view.offset, (0, *view.strides))

    def _shift_indices(self, stage: Stage) -> Stage:
        """Shifts the dimensions of indices by one if there is a chunk dimension before them."""
        if not self.chunks:
            return stage
        sources = tuple(Source("index", s.number + 1) if s.kind == "index" else s for s in stage.sources)
        return Stage(stage.level, stage.body, sources, stage.sinks, stage.scan)


def build_kernel_steps(
    builder: KernelBuilder,
    stored: Mapping[Node, Buffer],
    new_buffer: NewBuffer,
    outputs: Container[Node],
    cut_columns: bool,
) -> list[KernelStep]:
    """The steps that compute a fused group: one kernel, and more if a reduction is split over threads."""
    group, works = builder.group, builder.works
    step = StepBuilder(builder, stored, new_buffer, outputs)
    phases = builder.phases()
    for phase in range(max(phases.values()) + 1):
        members = [root for root in group.roots if phases[root] == phase]
        point_works = [works[root] for root in members if not is_row_level(root, group)]
        if point_works:
            if len(point_works) == len(group.roots):
                step.choose_chunk(cut_columns, point_works)
            step.add_phase(point_works, row_level=False)
        for root in members:
            # In this order, because a row value may depend on earlier ones.
            if is_row_level(root, group):
                step.add_phase([works[root]], row_level=True)
    along_inner = step.vectorises_inner()
    if along_inner and not step.chunk:
        step.store_in_scratch()
    return [step.finish("inner" if along_inner else "domain"), *_combine_chunks(step)]


def count_chunk_points(works: Sequence[Work]) -> int:
    """The number of points in a chunk of a row, from the cost of a point."""
    cost = sum(node.op.cost for node in toposort([value for work in works for value in work.values]))
    return max(1, int(DEAR_CHUNK_COST / max(1.0, cost)))


def kernel_name(group: Group) -> str:
    names = list(dict.fromkeys(root.op.name for root in group.roots))
    return "+".join(names[:3]) + ("+…" if len(names) > 3 else "")


def _combine_chunks(step: StepBuilder) -> list[KernelStep]:
    """The kernels that reduce the partial results of all chunks."""
    return [
        _combine_partial(step.group, step.stored[root], component, buffer, kind)
        for root, (buffers, kind) in step.partial.items()
        for component, buffer in enumerate(buffers)
    ]


def _combine_partial(group: Group, result: Buffer, component: int, buffer: Buffer, kind: str) -> KernelStep:
    partial, total = input_node(Key("partial"), buffer.element), input_node(Key("row"), result.element)
    target = Sink("row", 0, kind)  # type: ignore[arg-type]
    fold = Stage("point", make_function("combine", [partial], [partial]), (Source("read", 0),), (target,))
    store = Stage("row", make_function("store", [total], [total]), (Source("row", 0),), (Sink("output", 0),))
    kernel = Kernel(
        name=f"combine {kind}",
        domain_rank=len(group.domain),
        inner_rank=1,
        reads=(StridedAccess(buffer.element, "point"),),
        indexed_buffers=(),
        scalar_arguments=(),
        outputs=(StridedAccess(result.element, "row"),),
        rows=(result.element,),
        stages=(fold, store),
    )
    strides = (*result.strides[: len(group.domain)], 0)
    reads = (View(buffer, 0, (*buffer.strides[1:], buffer.strides[0])),)
    outputs = (View(result, component, strides),)
    axis: Axis = "domain" if group.domain else "inner"
    return KernelStep(kernel, group.domain, buffer.shape[:1], reads, (), (), outputs, vector_axis=axis)
