"""Sibling fusion of placements: kernels that write parts of several tensors at the same points become one kernel.

In: the steps of neighbouring groups that place parts of tensors (`special.build_placements`). Time steps of several
fields on a grid read the same neighbours for each field: one kernel loads them once, and computes what fields share
once. Called by the plan pass `build_steps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Scalar
from livegrad.ir.walk import nodes_of, substitute
from livegrad.schedule.kernel import Sink, Source, Stage, StridedAccess
from livegrad.schedule.loops.cost_model import MANY_PORTS
from livegrad.schedule.plan import Buffer, KernelStep, View

_MOST_NODES = 400  # of a kernel: beyond, values are spilled
_MOST_OUTPUTS = 16


def fuse_siblings(steps: Sequence[KernelStep]) -> list[KernelStep]:
    """The same steps, some of them joined with an earlier one."""
    fused: list[KernelStep] = []
    for step in steps:
        position = next((n for n, other in enumerate(fused) if _may_join(other, step, fused[n + 1 :])), None)
        if position is None:
            fused.append(step)
        else:
            fused[position] = _join(fused[position], step)
    return fused


def _may_join(first: KernelStep, second: KernelStep, between: Iterable[KernelStep]) -> bool:
    """Whether the second step may run at the points of the first, before the steps between them."""
    if not computes_by_point(first) or not computes_by_point(second):
        return False
    alike = first.domain == second.domain and first.vector_axis == second.vector_axis and first.note == second.note
    if not alike or set(first.inputs).isdisjoint(second.inputs):
        return False
    if any(_depends(other, second) for other in (first, *between)):
        return False
    ports = [view for step in (first, second) for view in (*step.reads, *step.outputs)]
    size = sum(len(nodes_of(step.kernel.stages[0].body)) for step in (first, second))
    outputs = len(first.outputs) + len(second.outputs)
    return size <= _MOST_NODES and outputs <= _MOST_OUTPUTS and len(set(ports)) <= MANY_PORTS


def _depends(first: KernelStep, second: KernelStep) -> bool:
    """Whether two steps must run one after the other."""
    if not set(first.inputs).isdisjoint(second.results) or not set(first.results).isdisjoint(second.inputs):
        return True
    shared = set(first.results).intersection(second.results)
    boxes, others = (written_boxes(step) for step in (first, second))
    return any(overlap(boxes[base], others[base]) for base in shared)


Boxes = list[tuple[tuple[int, int], ...] | None]  # along each dimension, where it begins and where it ends


def written_boxes(step: KernelStep) -> dict[Buffer, Boxes]:
    """The boxes of each buffer that a step writes; None for writes that are not boxes."""
    boxes: dict[Buffer, Boxes] = {base: [] for base in step.results}
    for buffer, offset, strides in step.outputs:
        box = None
        if strides == buffer.strides and buffer is buffer.base:
            extents = zip(strides, buffer.shape, strict=True)
            starts = [offset // stride % size if stride and size else 0 for stride, size in extents]
            box = tuple([(start, start + size) for start, size in zip(starts, step.domain, strict=True)])
        boxes[buffer.base].append(box)
    return {base: box_list or [None] for base, box_list in boxes.items()}  # what is written by index may be anywhere


def overlap(boxes: Boxes, others: Boxes) -> bool:
    """Whether boxes of one buffer may have a point in common with others."""
    for box in boxes:
        for other in others:
            if box is None or other is None:
                return True
            if all(start < end and begin < stop for (start, stop), (begin, end) in zip(box, other, strict=True)):
                return True
    return False


def computes_by_point(step: KernelStep) -> bool:
    """Whether a step is elementwise over its domain: each point is computed from strided reads alone."""
    kernel = step.kernel
    if step.inner or step.indexed_buffers or step.chunk or kernel.rows or len(kernel.stages) != 1:
        return False
    (stage,) = kernel.stages
    return stage.level == "row" and stage.scan is None and all(sink.kind == "output" for sink in stage.sinks)


def _join(first: KernelStep, second: KernelStep) -> KernelStep:
    joined = _Joined()
    results = [node for step in (first, second) for node in joined.add(step)]
    kernel = replace(
        first.kernel,
        name=first.kernel.name if first.kernel.name == second.kernel.name else "",
        reads=tuple([port for port, _ in joined.reads]),
        scalar_arguments=tuple([scalar for scalar, _ in joined.scalar_arguments]),
        outputs=(*first.kernel.outputs, *second.kernel.outputs),
        stages=(joined.stage(results),),
    )
    reads, scalar_arguments = (tuple([view for _, view in table]) for table in (joined.reads, joined.scalar_arguments))
    return replace(
        first, kernel=kernel, reads=reads, scalar_arguments=scalar_arguments, outputs=(*first.outputs, *second.outputs)
    )


class _Joined:
    """The arguments of a kernel that does the work of several: what two of them read alike is read once."""

    def __init__(self) -> None:
        self.reads: dict[tuple[StridedAccess, View], int] = {}
        self.scalar_arguments: dict[tuple[Scalar, View], int] = {}
        self._inputs: dict[Source, Node] = {}
        self._sinks: list[Sink] = []

    def add(self, step: KernelStep) -> list[Node]:
        """The results of a step in terms of the common arguments."""
        (stage,) = step.kernel.stages
        before = len(self._sinks)
        self._sinks += [Sink("output", before + sink.number) for sink in stage.sinks]
        arguments = {}
        for parameter, source in zip(stage.body.parameters, stage.sources, strict=True):
            common = self._common(source, step)
            arguments[parameter] = self._inputs.setdefault(common, input_node(Key(str(common)), parameter.type))
        return list(substitute(stage.body.results, arguments))

    def _common(self, source: Source, step: KernelStep) -> Source:
        number = source.number
        match source.kind:
            case "read":
                read = step.kernel.reads[number], step.reads[number]
                return Source("read", self.reads.setdefault(read, len(self.reads)))
            case "scalar":
                uniform = step.kernel.scalar_arguments[number], step.scalar_arguments[number]
                return Source("scalar", self.scalar_arguments.setdefault(uniform, len(self.scalar_arguments)))
        return source

    def stage(self, results: Sequence[Node]) -> Stage:
        body = make_function("stage", list(self._inputs.values()), list(results))
        return Stage("row", body, tuple(self._inputs), tuple(self._sinks))
