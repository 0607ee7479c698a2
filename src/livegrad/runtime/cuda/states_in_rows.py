"""Lets a loop on the device compute its state in the rows of a tape, instead of copying it there in each iteration.

In: a `DeviceLoop` and the plan of its body. Out: the loop without the launches that only copied a state. What a tape
holds of the state before each iteration is copied after the loop, all rows at once. `plan_objects.py` calls this.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from livegrad.runtime.cuda.device_loop import DeviceLoop
from livegrad.runtime.cuda.serialised_launches import SerialisedDevicePlan, SerialisedGraph
from livegrad.schedule.fuse_siblings import computes_by_point
from livegrad.schedule.plan import KernelStep, Plan, Step


def keep_states_in_rows(loop: DeviceLoop, plan: Plan) -> DeviceLoop:
    """The same loop with fewer launches, if some of them copy a state as it is."""
    rows = {row.buffer: row.operand for row in loop.moving if row.operand is not None}
    copies = [(number, *found) for number, step in enumerate(plan.steps) if (found := _copied(plan, number, step))]
    dropped: set[int] = set()
    states = list(loop.states)
    for position, state in enumerate(states):
        copy = next((copy for copy in copies if copy[1] == state.given and copy[2] in rows), None)
        if copy is not None and state.taken != state.given:
            states[position] = replace(state, rows=rows[copy[2]])
            dropped.add(copy[0])
    kept: list[tuple[int, int]] = []
    for position, state in enumerate(states):
        for number, source, target in copies if state.rows is not None else ():
            if source == state.taken and target in rows:
                kept.append((position, rows[target]))
                dropped.add(number)
    if not dropped:
        return loop
    return replace(loop, body=_without(loop.body, dropped), states=tuple(states), kept=tuple(kept))


def _copied(plan: Plan, number: int, step: Step) -> tuple[int, int] | None:
    """The numbers of two buffers, if a step copies all of one to the other, which is not changed afterwards."""
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


def _without(body: SerialisedDevicePlan, dropped: set[int]) -> SerialisedDevicePlan:
    launches = tuple(launch for launch in body.launches if launch.number not in dropped)
    # The loop enqueues launches in order: dependencies between them do not matter.
    return replace(body, segments=(SerialisedGraph(launches, ((),) * len(launches)),))
