"""Compares the running plan with the new plan: a `Change` for every different step, at the cheapest correct level.

`Applier` calls `find_changes`, which compares the steps that `replan` names, or all of them. Tests use `diff_plans` as
an oracle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, Type
from livegrad.ir.walk import nodes_of
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import (
    BlockStep,
    BufferOperand,
    CapturedStep,
    LeafStep,
    ParameterOperand,
    RegionStep,
    Step,
    buffers_around,
    captured_keys,
    operand_key,
    reads_the_same,
)
from livegrad.live.graph.sources import same_value


class Level(IntEnum):
    """The cost of an update, from none to a new graph.

    >>> max(Level.HOT, Level.WARM)
    <Level.WARM: 2>
    """

    NONE = 0
    HOT = 1
    WARM = 2
    CODE = 3
    RECAPTURE = 4
    COLD = 5


class StepChange(NamedTuple):
    """What happens to one step, and why. `values` are the numbers and contents that differ, if nothing else does."""

    step: str
    level: Level
    cause: str
    values: frozenset[object] = frozenset()


def diff_plans(running: LivePlan, wanted: LivePlan, same: Collection[str] = ()) -> dict[str, StepChange]:
    """The changes of all steps that differ between two plans, except those in `same`."""
    changes = {}
    for key in (*wanted.steps, *(key for key in running.steps if key not in wanted.steps)):
        if key in same:
            continue
        change = diff_step(running, wanted, key)
        if change.cause:
            changes[key] = change
    return changes | _diff_states(running, wanted)


def _diff_states(running: LivePlan, wanted: LivePlan) -> dict[str, StepChange]:
    if running.states is wanted.states:
        return {}
    changes = {}
    old, new = ({state.key: state for state in plan.states} for plan in (running, wanted))
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            cause = "state added" if key not in old else "state removed" if key not in new else "state changed"
            changes[key] = StepChange(key, Level.COLD, cause)
    return changes


def diff_step(running: LivePlan, wanted: LivePlan, key: str) -> StepChange:
    """The change of one step: the highest level among its differences, with all causes."""
    old, new = running.steps.get(key), wanted.steps.get(key)
    if old is None or new is None:
        return StepChange(key, Level.COLD, "added" if old is None else "removed")
    differences: list[tuple[Level, str]] = []
    replaced: set[object] = set()
    if old is not new:
        numbers = _find_replaced_numbers(old, new)
        if numbers is None or (numbers and not isinstance(new, RegionStep)):
            return StepChange(key, Level.COLD, "its connections changed")
        replaced = numbers
        for before, after in zip(old.leaf_steps(), new.leaf_steps(), strict=True):
            differences += _code_changes(before, after, "" if before.key == key else f" of {before.key}")
    differences += _memory_changes(running, wanted, new)
    values = _value_changes(running, wanted, new, replaced)
    changed_values = frozenset() if differences else frozenset((*replaced, *(operand for operand, _, _ in values)))
    if replaced:
        differences.append((Level.COLD, "its connections changed"))
    differences += [(level, cause) for _, level, cause in values]
    if not differences:
        return StepChange(key, Level.NONE, "")
    causes = "; ".join(dict.fromkeys(cause for _, cause in differences))
    return StepChange(key, max(level for level, _ in differences), causes, changed_values)


def _code_changes(before: LeafStep, after: LeafStep, inner: str) -> Iterable[tuple[Level, str]]:
    if isinstance(before, BlockStep) and isinstance(after, BlockStep):
        if before.function != after.function:
            resized = is_resized(before, after)
            yield (Level.WARM, f"new sizes{inner}") if resized else (Level.CODE, f"new code{inner}")
        if before.sizes != after.sizes:
            yield Level.WARM, f"sizes {dict(before.sizes)} → {dict(after.sizes)}{inner}"
    elif isinstance(before, CapturedStep) and isinstance(after, CapturedStep) and before.call != after.call:
        yield Level.RECAPTURE, f"new call{inner}"


def is_resized(before: BlockStep, after: BlockStep) -> bool:
    """Whether two functions differ only in the sizes of arrays: the same body and the same operations.

    Compiled code does not depend on array sizes, so it is reused. A body whose operations depend on sizes (a loop over
    `len(x)`) has other code.
    """
    old, new = before.function, after.function
    if before.body is not after.body or not (isinstance(old, Function) and isinstance(new, Function)):
        return False
    types = zip(old.parameter_types, new.parameter_types, strict=False)
    if len(old.parameters) != len(new.parameters) or not all(_differ_in_size_only(*pair) for pair in types):
        return False
    if old.parameter_types == new.parameter_types:
        return False  # the functions differ for another reason
    nodes, other_nodes = nodes_of(old), nodes_of(new)
    return len(nodes) == len(other_nodes) and all(
        node.op is other_node.op for node, other_node in zip(nodes, other_nodes, strict=True)
    )


def _differ_in_size_only(before: Type, after: Type) -> bool:
    if not (isinstance(before, Tensor) and isinstance(after, Tensor)):
        return before is after
    return before.element is after.element and before.rank == after.rank


def _find_replaced_numbers(old: Step, new: Step) -> set[object] | None:
    """The numbers that replace other operands of a step, such as the value of a pin that replaces its default.

    None if other connections, or the inner steps of a region, differ.
    """
    if old.__class__ is not new.__class__ or old.key != new.key or old.results != new.results:
        return None
    if not (isinstance(old, RegionStep) and isinstance(new, RegionStep)):
        return _find_replaced_operands(old, new)
    if _skeleton(old) != _skeleton(new) or [*map(len, old.bodies)] != [*map(len, new.bodies)]:
        return None
    replaced: set[object] = set()
    for before, after in zip(old.inner_steps(), new.inner_steps(), strict=True):
        numbers = _find_replaced_numbers(before, after)
        if numbers is None:
            return None
        replaced |= numbers
    return replaced


def _find_replaced_operands(old: Step, new: Step) -> set[object] | None:
    if reads_the_same(old, new):
        return set()
    old_operands, new_operands = list(old.all_operands()), list(new.all_operands())
    if not isinstance(new, BlockStep) or len(old_operands) != len(new_operands):
        return None
    numbers: set[object] = set()
    for before, after in zip(old_operands, new_operands, strict=True):
        if isinstance(before, ParameterOperand) and isinstance(after, ParameterOperand):
            numbers |= {after.key} - {before.key}
        elif before.__class__ is not after.__class__ or operand_key(before) != operand_key(after):
            return None
    return numbers


def _skeleton(step: RegionStep) -> object:
    """The structure of a region without its bodies."""
    carried = tuple(
        (type(variable.initial), operand_key(variable.initial), variable.carry, variable.result)
        for variable in step.carried
    )
    return step.kind, type(step.control), operand_key(step.control), carried, len(step.bodies)


def _memory_changes(running: LivePlan, wanted: LivePlan, step: Step) -> Iterable[tuple[Level, str]]:
    captured = captured_keys(step)
    for key in dict.fromkeys(buffers_around(step)):
        before, after = running.buffers[key], wanted.buffers[key]
        level = Level.RECAPTURE if key in captured else Level.WARM
        if before is not after and before != after:
            yield level, f"{key}: {before.type} → {after.type}"
        elif running.bindings.get(key) is not wanted.bindings.get(key):
            yield level, f"{key} bound to other memory"


def _value_changes(
    running: LivePlan, wanted: LivePlan, step: Step, replaced: Collection[object]
) -> list[tuple[object, Level, str]]:
    """The changed values among the operands of a step, except the numbers in `replaced`."""
    captured = captured_keys(step)
    changes: list[tuple[object, Level, str]] = []
    for operand in step.all_operands():
        if isinstance(operand, ParameterOperand):
            if operand.key in replaced:
                continue
            before, after = running.parameters[operand.key], wanted.parameters[operand.key]
            if type(before) is not type(after) or not same_value(before, after):
                level = Level.RECAPTURE if operand.key in captured else Level.HOT
                changes.append((operand.key, level, f"{operand.key}: {before} → {after}"))
        elif isinstance(operand, BufferOperand) and operand.key in wanted.contents:
            old, new = running.contents.get(operand.key), wanted.contents[operand.key]
            # This comparison finds the steps that must run; writing contents does not update the graph.
            if old is not new and (old is None or not same_value(old, new)):
                level = Level.WARM if new.ndim == 0 else Level.NONE  # a number that a captured call reads from memory
                changes.append((operand.key, level, f"{operand.key} has new contents"))
    return changes


def find_changes(
    running: LivePlan | None, plan: LivePlan, names: Iterable[str] | None, same: Collection[str] = ()
) -> dict[str, StepChange]:
    """The changes of the named steps, or (None) of all steps except those in `same`."""
    if running is None:
        return {key: StepChange(key, Level.COLD, "added") for key in plan.steps}
    if names is None:
        return diff_plans(running, plan, same)
    changes = [diff_step(running, plan, key) for key in names if key in running.steps or key in plan.steps]
    return {change.step: change for change in changes if change.cause} | _diff_states(running, plan)


def must_build(running: LivePlan | None, plan: LivePlan, changes: Mapping[str, StepChange], in_place: bool) -> bool:
    """Whether the plan needs a new executable: other memory sharing, or other steps or edges.

    `in_place`: the running executable can add and remove steps.
    """
    if running is None or (not in_place and any(change.level is Level.COLD for change in changes.values())):
        return True
    shared = plan.slot_of or running.slot_of
    return bool(shared) and (bool(changes) or (plan.slot_of, plan.slots) != (running.slot_of, running.slots))
