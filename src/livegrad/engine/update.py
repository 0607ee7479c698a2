"""What has to be done to a running plan so that it becomes the wanted one: `diff_plans`, step by step.

In: two plans. Out: a `Change` for every step that differs, at the cheapest level that is correct. The engine calls
`diff_step` for what the journal names and `diff_plans` after changes of structure; the latter is the tests' oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from livegrad.engine.live_plan import (
    BlockStep,
    BufferOperand,
    LivePlan,
    ParameterOperand,
    RegionStep,
    Step,
    operand_key,
)
from livegrad.engine.sources import same_value


class Level(IntEnum):
    """What an update costs, from nothing to a new graph.

    >>> max(Level.HOT, Level.WARM)
    <Level.WARM: 2>
    """

    NONE = 0
    HOT = 1
    WARM = 2
    CODE = 3
    RECAPTURE = 4
    COLD = 5


@dataclass(frozen=True)
class Change:
    """What happens to one step, and why."""

    step: str
    level: Level
    cause: str


def diff_plans(running: LivePlan, wanted: LivePlan) -> dict[str, Change]:
    """Every step that differs between two plans."""
    changes = {}
    for key in (*wanted.steps, *(key for key in running.steps if key not in wanted.steps)):
        change = diff_step(running, wanted, key)
        if change.cause:
            changes[key] = change
    old, new = ({state.key: state for state in plan.states} for plan in (running, wanted))
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            cause = "state added" if key not in old else "state removed" if key not in new else "state changed"
            changes[key] = Change(key, Level.COLD, cause)
    return changes


def diff_step(running: LivePlan, wanted: LivePlan, key: str) -> Change:
    """What must be done to one step. Of several differences the highest level counts, all causes are named."""
    old, new = running.steps.get(key), wanted.steps.get(key)
    if old is None or new is None:
        return Change(key, Level.COLD, "added" if old is None else "removed")
    if _structure(old) != _structure(new):
        return Change(key, Level.COLD, "its connections changed")
    found: list[tuple[Level, str]] = []
    for before, after in zip(old.block_steps(), new.block_steps(), strict=True):
        inner = "" if before.key == key else f" of {before.key}"
        if before.function != after.function:
            found.append((Level.CODE, f"new code{inner}"))
        if before.sizes != after.sizes:
            found.append((Level.WARM, f"sizes {dict(before.sizes)} → {dict(after.sizes)}{inner}"))
    found += _memory_changes(running, wanted, new)
    found += _value_changes(running, wanted, new)
    if not found:
        return Change(key, Level.NONE, "")
    return Change(key, max(level for level, _ in found), "; ".join(dict.fromkeys(cause for _, cause in found)))


def _structure(step: Step) -> object:
    """What makes a change of this step a change of the graph: which work there is, and what it is connected to."""
    if isinstance(step, BlockStep):
        return step.key, tuple((type(operand), operand_key(operand)) for operand in step.operands), step.results
    bodies = tuple(tuple(_structure(inner) for inner in body) for body in step.bodies)
    control = type(step.control), operand_key(step.control)
    carried = tuple((operand_key(one.initial), one.carry, one.result) for one in step.carried)
    return step.key, step.kind, control, carried, bodies, step.results


def _buffers_of(step: Step) -> Iterable[str]:
    for operand in step.all_operands():
        if isinstance(operand, BufferOperand):
            yield operand.key
    yield from step.results
    if isinstance(step, RegionStep):
        yield from (carried.carry for carried in step.carried)
        for inner in step.inner_steps():
            yield from _buffers_of(inner)


def _memory_changes(running: LivePlan, wanted: LivePlan, step: Step) -> Iterable[tuple[Level, str]]:
    for key in dict.fromkeys(_buffers_of(step)):
        before, after = running.buffers[key], wanted.buffers[key]
        if before != after:
            yield Level.WARM, f"{key}: {before.type} → {after.type}"
        elif running.bindings.get(key) is not wanted.bindings.get(key):
            yield Level.WARM, f"{key} bound to other memory"


def _value_changes(running: LivePlan, wanted: LivePlan, step: Step) -> Iterable[tuple[Level, str]]:
    for operand in step.all_operands():
        if isinstance(operand, ParameterOperand):
            before, after = running.parameters[operand.key], wanted.parameters[operand.key]
            if type(before) is not type(after) or not same_value(before, after):
                yield Level.HOT, f"{operand.key}: {before} → {after}"
        elif isinstance(operand, BufferOperand) and operand.key in wanted.contents:
            old, new = running.contents.get(operand.key), wanted.contents[operand.key]
            # Contents are compared to find who must run; writing them is no update of the graph.
            if old is not new and (old is None or not same_value(old, new)):
                yield Level.NONE, f"{operand.key} has new contents"


def find_changes(running: LivePlan | None, plan: LivePlan, names: Iterable[str] | None) -> dict[str, Change]:
    """What differs: among the steps named, or (None) among all."""
    if running is None:
        return {key: Change(key, Level.COLD, "added") for key in plan.steps}
    if names is None:
        return diff_plans(running, plan)
    found = [diff_step(running, plan, key) for key in names]
    return {change.step: change for change in found if change.cause}


def must_build(running: LivePlan | None, plan: LivePlan, changes: Mapping[str, Change]) -> bool:
    """Whether the plan needs an executable of its own: other steps or edges, or memory that is shared otherwise."""
    if running is None or any(change.level is Level.COLD for change in changes.values()):
        return True
    shared = plan.places or running.places
    return bool(shared) and (bool(changes) or (plan.places, plan.slots) != (running.places, running.slots))
