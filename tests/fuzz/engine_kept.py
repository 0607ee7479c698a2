"""What an engine keeps of a compilation while edits change parts of it, compared with one made from scratch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import livegrad as lg
from livegrad.live.compile.graph_compiler import Compilation, compile_graph
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import RegionStep, operand_key
from livegrad.live.cpu.on_demand import find_on_demand_steps
from livegrad.live.graph.sources import same_value
from livegrad.live.update.diff_plans import diff_plans


def compare_with_scratch(engine: lg.Engine) -> None:
    """Raises AssertionError where the compilation that an engine keeps is not what its graph comes to.

    For use after a frame that went well, of an engine that shares no memory.
    """
    kept: Any = engine._runtime.compilation
    with engine.edits():
        made = compile_graph(engine.graph)
    assert not made.problems
    assert made.plan is not None
    assert kept.plan is engine.plan
    _compare_networks(kept, made)
    _compare_plans(kept.plan, made.plan)
    _check_order(kept.plan)
    _check_executable(engine._runtime.executable, kept.plan)
    if not engine._runtime.demand_changed:  # else what was read since counts from the next frame on
        _check_waiting(engine._runtime.executable, kept)


def _same(what: str, kept: Any, made: Any) -> None:
    assert kept == made, f"{what}: kept {kept}, from scratch {made}"


def _same_keys(what: str, kept: Mapping[Any, Any], made: Mapping[Any, Any]) -> None:
    odd = kept.keys() ^ made.keys()
    assert not odd, f"{what}: {sorted(map(str, odd))} in one of them only"
    assert len(kept) == len(list(kept))


def _compare_networks(kept: Compilation, made: Compilation) -> None:
    _same_keys("nodes", kept.network.nodes, made.network.nodes)
    for key, node in made.network.nodes.items():
        own = kept.network.nodes[key]
        assert own.block is node.block, f"{key} is another block's"
        feeds = [{name: ref and (type(ref), ref.key) for name, ref in one.feeds.items()} for one in (own, node)]
        _same(f"feeds of {key}", *feeds)
    _same("keys", *({block.name: set(keys) for block, keys in one.network.keys.items()} for one in (kept, made)))
    for name in ("types", "bodies", "inputs"):
        _same_keys(name, getattr(kept.shapes, name), getattr(made.shapes, name))
    _same("types", dict(kept.shapes.types), dict(made.shapes.types))


def _compare_plans(kept: LivePlan, made: LivePlan) -> None:
    _same("steps", diff_plans(kept, made), {})
    for name in ("steps", "buffers", "parameters", "contents", "bindings", "position", "levels"):
        _same_keys(name, getattr(kept, name), getattr(made, name))
    _same("buffers", dict(kept.buffers), dict(made.buffers))
    for name in ("parameters", "contents"):
        for key, value in getattr(made, name).items():
            assert same_value(getattr(kept, name)[key], value), f"{name} of {key}"
    assert all(kept.bindings[key] is external for key, external in made.bindings.items())
    _same("states", set(kept.states), set(made.states))
    _same("levels", kept.levels, made.levels)
    for name in ("producer", "captured"):
        _same(name, dict(getattr(kept, name)), dict(getattr(made, name)))
    for name in ("readers", "consumers"):
        _same(name, _sets(getattr(kept, name)), _sets(getattr(made, name)))


def _sets(lists: Mapping[Any, Iterable[str]]) -> dict[Any, list[str]]:
    return {key: sorted(own) for key, own in lists.items()}


def _check_order(plan: LivePlan) -> None:
    position = plan.position
    assert len(set(position.values())) == len(position)
    assert max(position.values(), default=-1) < plan.end
    for key, step in plan.steps.items():
        for operand in step.all_operands():
            source = plan.producer.get(str(operand_key(operand)))
            assert source is None or position[source] < position[key], f"{key} comes before {source}, which it reads"


def _check_waiting(executable: Any, kept: Compilation) -> None:
    """The steps that may wait until somebody needs them."""
    plan = executable.plan
    if hasattr(executable, "on_demand"):
        regions = [key for key, step in plan.steps.items() if isinstance(step, RegionStep)]
        waiting = find_on_demand_steps(plan, regions, lambda key: kept.network.nodes[key].block.is_read)
        _same("steps on demand", executable.on_demand, waiting)


def _check_executable(executable: Any, plan: LivePlan) -> None:
    """The executable of a CPU has what the plan needs, and no more."""
    if not hasattr(executable, "_memory"):
        return
    _same_keys("memory", executable._memory, plan.buffers)
    for key, spec in plan.buffers.items():
        array = executable._memory[key]
        assert (array.dtype, array.shape) == (spec.element.dtype, spec.shape), f"memory of {key}"
    leaves = {leaf.key: leaf for step in plan.steps.values() for leaf in step.block_steps()}
    _same_keys("codes", executable._codes, leaves)
    assert executable.calls.keys() <= plan.steps.keys()
    _same("bound memory", executable.call_factory.bound, {key: plan.buffers[key] for key in plan.bindings})
    assert executable._bytes == sum(spec.bytes for spec in plan.buffers.values() if spec.lifetime != "external")
