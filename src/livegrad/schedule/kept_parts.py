"""Finds steps of a loop body that copy an invariant part of the state, such as the edges of a grid.

In: the plan of a body whose state is double-buffered. After two iterations both buffers have the part, and the copy is
redundant. Called by `runtime/cpu/loop_body.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from livegrad.schedule.fuse_siblings import computes_by_point, overlap, written_boxes
from livegrad.schedule.plan import Buffer, KernelStep, Plan, Step


def copies_of_kept_parts(plan: Plan, state: Mapping[Buffer, Buffer]) -> list[bool]:
    """For each step, whether it only copies invariant parts of the state.

    `state` maps each argument to the result that becomes this argument in the next iteration.
    """
    copies = [_copies_state(step, state) for step in plan.steps]
    # Several steps may copy the same part: the copies are equal.
    others = [step for step, is_copy in zip(plan.steps, copies, strict=True) if not is_copy]
    return [is_copy and _is_only_writer(step, others) for step, is_copy in zip(plan.steps, copies, strict=True)]


def _copies_state(step: Step, state: Mapping[Buffer, Buffer]) -> bool:
    """Whether a step copies parts of arguments to the same parts of the corresponding results."""
    if not isinstance(step, KernelStep) or not computes_by_point(step):
        return False
    (stage,) = step.kernel.stages
    sources = dict(zip(stage.body.parameters, stage.sources, strict=True))
    for sink, result in zip(stage.sinks, stage.body.results, strict=True):
        source = sources.get(result)
        if source is None or source.kind != "read":
            return False
        read, output = step.reads[source.number], step.outputs[sink.number]
        if state.get(read.buffer) is not output.buffer or read[1:] != output[1:]:
            return False
    return True


def _is_only_writer(step: Step, others: Sequence[Step]) -> bool:
    """Whether no other step writes the elements that a kernel writes."""
    assert isinstance(step, KernelStep)
    boxes = written_boxes(step)
    for other in others:
        shared = set(boxes).intersection(other.results)
        if shared and not isinstance(other, KernelStep):
            return False
        if isinstance(other, KernelStep):
            other_boxes = written_boxes(other) if shared else {}
            if any(overlap(boxes[base], other_boxes[base]) for base in shared):
                return False
    return True


def whole_copies(step: Step) -> list[tuple[Buffer, Buffer]]:
    """The pairs (to, from) of whole buffers that a step copies; empty if it does anything else."""
    if not isinstance(step, KernelStep) or not computes_by_point(step):
        return []
    (stage,) = step.kernel.stages
    sources = dict(zip(stage.body.parameters, stage.sources, strict=True))
    copies: list[tuple[Buffer, Buffer]] = []
    for sink, result in zip(stage.sinks, stage.body.results, strict=True):
        source = sources.get(result)
        if source is None or source.kind != "read":
            return []
        read, output = step.reads[source.number], step.outputs[sink.number]
        is_whole = step.domain == output.buffer.shape and output.strides == output.buffer.strides
        if not is_whole or read.buffer.shape != output.buffer.shape or read[1:] != output[1:] or output.offset:
            return []
        copies.append((output.buffer, read.buffer))
    return copies
