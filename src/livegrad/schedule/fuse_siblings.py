"""Sibling fusion: merges kernels that write parts of several tensors at the same points.

In: the steps of adjacent groups that write parts of tensors (`special.build_placements`). A time step of several fields
on a grid reads the same neighbours for each field; one kernel loads them once, and computes shared values once. Called
by the plan pass `build_steps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Scalar
from livegrad.ir.walk import nodes_of, substitute
from livegrad.schedule.kernel import IndexedBuffer, Level, Sink, Source, Stage, StridedAccess
from livegrad.schedule.loops.cost_model import MANY_PORTS
from livegrad.schedule.plan import Buffer, KernelStep, View

_MOST_NODES = 400  # larger kernels spill registers
_MOST_OUTPUTS = 16


def fuse_siblings(steps: Sequence[KernelStep]) -> list[KernelStep]:
    """Merges steps into earlier ones where possible."""
    fused: list[KernelStep] = []
    for step in steps:
        index = next((n for n, earlier in enumerate(fused) if _can_merge(earlier, step, fused[n + 1 :])), None)
        if index is None:
            fused.append(step)
        else:
            fused[index] = _merge(fused[index], step)
    return fused


def _can_merge(first: KernelStep, second: KernelStep, between: Iterable[KernelStep]) -> bool:
    """Whether the second step can run in the kernel of the first, before the steps between them."""
    if not computes_by_point(first) or not computes_by_point(second):
        return False
    same_points = first.domain == second.domain and first.vector_axis == second.vector_axis
    if not (same_points and first.note == second.note) or set(first.inputs).isdisjoint(second.inputs):
        return False
    if any(_depends(other, second) for other in (first, *between)):
        return False
    views = [view for step in (first, second) for view in (*step.reads, *step.outputs)]
    size = sum(len(nodes_of(step.kernel.stages[0].body)) for step in (first, second))
    outputs = len(first.outputs) + len(second.outputs)
    return size <= _MOST_NODES and outputs <= _MOST_OUTPUTS and len(set(views)) <= MANY_PORTS


def _depends(first: KernelStep, second: KernelStep) -> bool:
    """Whether two steps must run one after the other."""
    if not set(first.inputs).isdisjoint(second.results) or not set(first.results).isdisjoint(second.inputs):
        return True
    shared = set(first.results).intersection(second.results)
    boxes, others = (written_boxes(step) for step in (first, second))
    return any(overlap(boxes[base], others[base]) for base in shared)


Boxes = list[tuple[tuple[int, int], ...] | None]  # (start, end) along each dimension; None: unknown


def written_boxes(step: KernelStep) -> dict[Buffer, Boxes]:
    """The boxes that a step writes in each buffer; None for writes that are not boxes."""
    boxes: dict[Buffer, Boxes] = {base: [] for base in step.results}
    for buffer, offset, strides in step.outputs:
        box = None
        if strides == buffer.strides and buffer is buffer.base:
            extents = zip(strides, buffer.shape, strict=True)
            starts = [offset // stride % size if stride and size else 0 for stride, size in extents]
            box = tuple([(start, start + size) for start, size in zip(starts, step.domain, strict=True)])
        boxes[buffer.base].append(box)
    return {base: box_list or [None] for base, box_list in boxes.items()}  # writes by index may go anywhere


def overlap(boxes: Boxes, others: Boxes) -> bool:
    """Whether two lists of boxes in one buffer may have an element in common."""
    for box in boxes:
        for other in others:
            if box is None or other is None:
                return True
            if all(start < end and begin < stop for (start, stop), (begin, end) in zip(box, other, strict=True)):
                return True
    return False


def computes_by_point(step: KernelStep) -> bool:
    """Whether a step is elementwise over its domain: each point depends on strided reads only."""
    kernel = step.kernel
    if step.inner or step.indexed_buffers or step.chunk or kernel.rows or len(kernel.stages) != 1:
        return False
    (stage,) = kernel.stages
    return stage.level == "row" and stage.scan is None and all(sink.kind == "output" for sink in stage.sinks)


def _merge(first: KernelStep, second: KernelStep) -> KernelStep:
    merger = KernelMerger()
    results = [node for step in (first, second) for node in merger.add(step)]
    kernel = replace(
        first.kernel,
        name=first.kernel.name if first.kernel.name == second.kernel.name else "",
        reads=tuple([access for access, _ in merger.reads]),
        scalar_arguments=tuple([scalar for scalar, _ in merger.scalar_arguments]),
        outputs=(*first.kernel.outputs, *second.kernel.outputs),
        stages=(merger.stage(results),),
    )
    reads, scalar_arguments = (tuple([view for _, view in table]) for table in (merger.reads, merger.scalar_arguments))
    return replace(
        first, kernel=kernel, reads=reads, scalar_arguments=scalar_arguments, outputs=(*first.outputs, *second.outputs)
    )


class KernelMerger:
    """The arguments of a kernel that does the work of several; equal reads of two kernels become one."""

    def __init__(self) -> None:
        self.reads: dict[tuple[StridedAccess, View], int] = {}
        self.scalar_arguments: dict[tuple[Scalar, View], int] = {}
        self.indexed_buffers: dict[Buffer, int] = {}
        self._inputs: dict[Source, Node] = {}
        self._sinks: list[Sink] = []

    def add(self, step: KernelStep) -> list[Node]:
        """Adds a step; returns its results in terms of the merged arguments."""
        (stage,) = step.kernel.stages
        output_count = len(self._sinks)
        self._sinks += [Sink("output", output_count + sink.number) for sink in stage.sinks]
        arguments = {}
        for parameter, source in zip(stage.body.parameters, stage.sources, strict=True):
            merged = self._merge_source(source, step)
            arguments[parameter] = self._inputs.setdefault(merged, input_node(Key(str(merged)), parameter.type))
        return list(substitute(stage.body.results, arguments))

    def _merge_source(self, source: Source, step: KernelStep) -> Source:
        number = source.number
        match source.kind:
            case "read":
                read = step.kernel.reads[number], step.reads[number]
                return Source("read", self.reads.setdefault(read, len(self.reads)))
            case "scalar":
                argument = step.kernel.scalar_arguments[number], step.scalar_arguments[number]
                return Source("scalar", self.scalar_arguments.setdefault(argument, len(self.scalar_arguments)))
            case "indexed":
                buffer = step.indexed_buffers[number]
                return Source("indexed", self.indexed_buffers.setdefault(buffer, len(self.indexed_buffers)))
        return source

    def indexed_types(self) -> tuple[IndexedBuffer, ...]:
        return tuple([IndexedBuffer(buffer.element, len(buffer.shape)) for buffer in self.indexed_buffers])

    def stage(self, results: Sequence[Node], level: Level = "row", sinks: Sequence[Sink] | None = None) -> Stage:
        body = make_function("stage", list(self._inputs.values()), list(results))
        return Stage(level, body, tuple(self._inputs), tuple(self._sinks if sinks is None else sinks))
