"""Finds the steps of a loop body that copy a part of the state which no iteration changes, such as the edges of a grid.

In: the plan of a body, whose state is double-buffered. After two iterations both buffers hold the part, and the copy is
not needed again. Called by `runtime/cpu/loop_body.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from livegrad.schedule.fuse_siblings import computes_by_point, overlap, written_boxes
from livegrad.schedule.plan import Buffer, KernelStep, Plan, Step


def copies_of_kept_parts(plan: Plan, state: Mapping[Buffer, Buffer]) -> list[bool]:
    """For each step, whether it only copies parts of state that do not change; `state` has, for each
    argument, the result that the next iteration takes in its place."""
    copies = [_copies_state(step, state) for step in plan.steps]
    # Copies of one part by several steps are the same.
    others = [step for step, copied in zip(plan.steps, copies, strict=True) if not copied]
    return [copied and _writes_alone(step, others) for step, copied in zip(plan.steps, copies, strict=True)]


def _copies_state(step: Step, state: Mapping[Buffer, Buffer]) -> bool:
    """Whether each output is a part of a result, and that part of the argument goes there unchanged."""
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


def _writes_alone(step: Step, others: Sequence[Step]) -> bool:
    """Whether no other step may write what a kernel writes."""
    assert isinstance(step, KernelStep)
    boxes = written_boxes(step)
    for other in others:
        shared = set(boxes).intersection(other.results)
        if shared and not isinstance(other, KernelStep):
            return False
        if isinstance(other, KernelStep):
            theirs = written_boxes(other) if shared else {}
            if any(overlap(boxes[base], theirs[base]) for base in shared):
                return False
    return True
