"""Eliminates copies from the state of a device loop to its tapes: iterations compute the state directly in tape rows.

In: a `DeviceLoop` and the plan of its body. Out: the loop without the launches that only copied a state. If a tape has
the state before each iteration, all its rows are copied at once after the loop. Called by `plan_objects.py`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from livegrad.runtime.cuda.device_loop import DeviceLoop
from livegrad.runtime.cuda.serialised_launches import SerialisedDevicePlan, SerialisedGraph
from livegrad.schedule.fuse_siblings import computes_by_point
from livegrad.schedule.plan import KernelStep, Plan, Step


def keep_states_in_rows(loop: DeviceLoop, plan: Plan) -> DeviceLoop:
    """Removes the launches that copy a state unchanged to a tape."""
    rows = {row.buffer: row.operand for row in loop.tape_rows if row.operand is not None}
    copies = [
        (number, *pair) for number, step in enumerate(plan.steps) if (pair := _copied_buffers(plan, number, step))
    ]
    dropped: set[int] = set()
    states = list(loop.states)
    for position, state in enumerate(states):
        copy = next((copy for copy in copies if copy[1] == state.result and copy[2] in rows), None)
        if copy is not None and state.argument != state.result:
            states[position] = replace(state, rows=rows[copy[2]])
            dropped.add(copy[0])
    previous_values: list[tuple[int, int]] = []
    for position, state in enumerate(states):
        for number, source, target in copies if state.rows is not None else ():
            if source == state.argument and target in rows:
                previous_values.append((position, rows[target]))
                dropped.add(number)
    if not dropped:
        return loop
    body = _without_launches(loop.body, dropped)
    return replace(loop, body=body, states=tuple(states), previous_values=tuple(previous_values))


def _copied_buffers(plan: Plan, number: int, step: Step) -> tuple[int, int] | None:
    """The source and the target of a step that copies a whole buffer; None if it does anything else.

    Also None if this or a later step writes the source: then the copy must stay.
    """
    if not isinstance(step, KernelStep) or not computes_by_point(step) or len(step.outputs) != 1:
        return None
    (stage,) = step.kernel.stages
    sources = dict(zip(stage.body.parameters, stage.sources, strict=True))
    source = sources.get(stage.body.results[0])
    if source is None or source.kind != "read":
        return None
    read, output = step.reads[source.number], step.outputs[0]
    is_whole = read.offset == output.offset == 0 and read.strides == output.strides == _dense(step.domain)
    if not is_whole or read.buffer.bytes != output.buffer.bytes or read.buffer.element is not output.buffer.element:
        return None
    if prod(step.domain) == output.buffer.size and not any(
        read.buffer.base in later.results for later in plan.steps[number:]
    ):
        return read.buffer.base.number, output.buffer.base.number
    return None


def _dense(domain: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(domain[axis + 1 :]) for axis in range(len(domain)))


def _without_launches(body: SerialisedDevicePlan, dropped: set[int]) -> SerialisedDevicePlan:
    launches = tuple(launch for launch in body.launches if launch.number not in dropped)
    # The loop enqueues launches in order, so dependencies between them do not matter.
    return replace(body, segments=(SerialisedGraph(launches, ((),) * len(launches)),))
