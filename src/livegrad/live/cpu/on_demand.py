"""Finds on-demand steps, whose results only bodies of regions read: they wait until a region takes such a body.

In: a plan, and the steps whose results users read. Out: the steps that may wait. `cpu_executor` calls it for each plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush

from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import BlockStep, BufferOperand, Operand, RegionStep, Step, operand_key


def find_on_demand_steps(plan: LivePlan, regions: Iterable[str], is_needed: Callable[[str], bool]) -> set[str]:
    """The steps whose results only bodies of regions and other on-demand steps read.

    Excludes library calls, and steps that read external memory, which may have changed by the time they run. If buffers
    share memory, no step is on demand.
    """
    on_demand: set[str] = set()
    sources = {key for region in regions for key in producers(plan, plan.steps[region].all_operands())}
    update_on_demand(on_demand, plan, sources, is_needed)
    return on_demand


def update_on_demand(
    on_demand: set[str], plan: LivePlan, keys: Iterable[str], is_needed: Callable[[str], bool]
) -> list[str]:
    """Checks some steps again, and the steps that they read from if the answer changed.

    Updates `on_demand`, the steps that may wait. Returns those that no longer may.
    """
    if plan.reuses_memory:
        return []
    position, needed = plan.position, []
    states = {plan.producer.get(state.next) for state in plan.states}
    waiting = [(-position[key], key) for key in keys if key in position]
    heapify(waiting)
    while waiting:  # last step first, so that the readers of a step come before it
        _, key = heappop(waiting)
        step = plan.steps[key]
        may_wait = (
            key not in states
            and not is_needed(key)
            and _can_wait(plan, step)
            and _has_only_on_demand_readers(plan, step, on_demand)
        )
        if may_wait == (key in on_demand):
            continue
        if may_wait:
            on_demand.add(key)
        else:
            on_demand.remove(key)
            needed.append(key)
        for source in producers(plan, step.all_operands()):
            heappush(waiting, (-position[source], source))
    return needed


def producers(plan: LivePlan, operands: Iterable[Operand]) -> dict[str, None]:
    """The steps that produce these operands."""
    keys = (plan.producer.get(operand.key) for operand in operands if isinstance(operand, BufferOperand))
    return dict.fromkeys(key for key in keys if key is not None)


def unconditional_operands(step: Step) -> Iterator[Operand]:
    """The operands that a step always reads. Those of a region are its control and initial loop variables."""
    if not isinstance(step, RegionStep):
        return step.all_operands()
    return iter((step.control, *(carried.initial for carried in step.carried)))


def _can_wait(plan: LivePlan, step: Step) -> bool:
    leaves = list(step.leaf_steps())
    if not all(isinstance(leaf, BlockStep) for leaf in leaves):
        return False
    return not any(operand_key(operand) in plan.bindings for operand in step.all_operands())


def _has_only_on_demand_readers(plan: LivePlan, step: Step, on_demand: Collection[str]) -> bool:
    """Whether a step has readers, all of which read it on demand."""
    readers = plan.consumers[step.key]
    return bool(readers) and all(_reads_on_demand(plan, step, reader, on_demand) for reader in readers)


def _reads_on_demand(plan: LivePlan, step: Step, reader: str, on_demand: Collection[str]) -> bool:
    if reader in on_demand:
        return True
    region = plan.steps[reader]
    if not isinstance(region, RegionStep):
        return False
    return not any(operand_key(operand) in step.results for operand in unconditional_operands(region))
