"""Merges kernels that add to elements of one tensor at the same points, by computed index.

In: the steps of adjacent groups that write by index (`write_steps.build_writes`). The gradient of an interpolation adds
to the corners of a cell: one kernel computes the weights of all corners once, and adds them point by point. Called by
the plan pass `build_steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from livegrad.ir.node import Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import nodes_of, toposort
from livegrad.ops.indexing import scatter_add
from livegrad.schedule.fuse_siblings import KernelMerger
from livegrad.schedule.kernel import Sink
from livegrad.schedule.plan import KernelStep

_MOST_NODES = 400  # larger kernels spill registers


def merge_additions(steps: Sequence[KernelStep]) -> list[KernelStep]:
    """Merges each step that adds to elements into the one before it, where that adds to the same tensor."""
    merged: list[KernelStep] = []
    for step in steps:
        if merged and _can_merge(merged[-1], step):
            merged[-1] = _merge(merged[-1], step)
        else:
            merged.append(step)
    return merged


def _can_merge(first: KernelStep, second: KernelStep) -> bool:
    if not _adds_to_elements(first) or not _adds_to_elements(second):
        return False
    same_points = (first.inner, first.vector_axis) == (second.inner, second.vector_axis)
    same_stage = first.kernel.stages[0].level == second.kernel.stages[0].level and first.note == second.note
    size = sum(len(nodes_of(step.kernel.stages[0].body)) for step in (first, second))
    return same_points and same_stage and first.results == second.results and size <= _MOST_NODES


def _adds_to_elements(step: KernelStep) -> bool:
    """Whether a step only adds to elements of one tensor, in place and in order, and does not read it otherwise.

    With a domain, threads and lanes share the points: their elements differ for one addition, but not for two.
    """
    kernel = step.kernel
    if (
        step.domain
        or step.chunk
        or kernel.rows
        or kernel.outputs
        or len(kernel.stages) != 1
        or len(kernel.stages[0].sinks) != 1
    ):
        return False
    (stage,), (sink,) = kernel.stages, kernel.stages[0].sinks
    if stage.scan is not None or sink.kind != "indexed" or any(view.buffer.base in step.results for view in step.reads):
        return False
    targets = [n for n, buffer in enumerate(step.indexed_buffers) if buffer.base in step.results]
    base = next((p for p, s in zip(stage.body.parameters, stage.sources, strict=True) if s == ("indexed", sink.number)))
    (updated,) = stage.body.results
    while updated.op is scatter_add and base not in toposort(updated.operands[1:]):
        updated = updated.operands[0]
    return updated is base and targets == [sink.number]


def _merge(first: KernelStep, second: KernelStep) -> KernelStep:
    merger = KernelMerger()
    before, after = (merger.add(step)[0] for step in (first, second))
    target = merger.indexed_buffers[first.indexed_buffers[first.kernel.stages[0].sinks[0].number]]
    kernel = replace(
        first.kernel,
        reads=tuple([access for access, _ in merger.reads]),
        indexed_buffers=merger.indexed_types(),
        scalar_arguments=tuple([scalar for scalar, _ in merger.scalar_arguments]),
        stages=(merger.stage([_add_to(before, after)], first.kernel.stages[0].level, [Sink("indexed", target)]),),
    )
    reads, scalar_arguments = (tuple([view for _, view in table]) for table in (merger.reads, merger.scalar_arguments))
    return replace(
        first,
        kernel=kernel,
        reads=reads,
        scalar_arguments=scalar_arguments,
        indexed_buffers=tuple(merger.indexed_buffers),
    )


def _add_to(tensor: Node, additions: Node) -> Node:
    """The additions of a chain to another tensor than the one that it starts from."""
    chain: list[Node] = []
    while additions.op is scatter_add:
        chain.append(additions)
        additions = additions.operands[0]
    for addition in reversed(chain):
        with originating_from(addition.origins):
            tensor = make_node(scatter_add, (tensor, *addition.operands[1:]), addition.attributes)
    return tensor
