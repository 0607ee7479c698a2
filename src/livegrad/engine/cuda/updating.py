"""Warm, code and recapture: other memory, functions and recordings for some steps of a plan whose structure stays.

Everything is made beside what runs; then launches take over the nodes of those before them. Programs whose nodes cannot
be changed in place are dropped, and made anew when they are next needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from livegrad.backends.cuda.driver import DeviceError
from livegrad.engine.cuda.binding import Fresh, bind_step
from livegrad.engine.cuda.bound_step import BoundStep
from livegrad.engine.cuda.buffers import make_buffers, write_array
from livegrad.engine.cuda.captured import CapturedGraph
from livegrad.engine.cuda.code import StepCode
from livegrad.engine.cuda.program import externals_of
from livegrad.engine.cuda.steps import leaves_of, own_buffers
from livegrad.engine.live_plan import LivePlan, ParameterOperand, Step, buffers_around

if TYPE_CHECKING:
    from livegrad.engine.cuda.executable import CudaExecutable


def update_executable(
    executable: CudaExecutable, plan: LivePlan, codes: Mapping[str, StepCode], steps: Sequence[str]
) -> None:
    """Brings these steps up to a plan of the same structure; fails as a whole or not at all."""
    before = executable.plan
    named = [plan.steps[key] for key in steps]
    touched = {key for step in named for key in buffers_around(step)}
    fresh = Fresh(make_buffers((plan.buffers[key] for key in touched if _has_moved(key, before, plan)), plan))
    for leaf in leaves_of(named):
        bind_step(executable, leaf, plan, codes.get(leaf.key), fresh)
    # Nothing can fail from here on.
    old = {key: executable.bound[key] for key in fresh.bound}
    recorded = {**fresh.captured}
    for bound in fresh.bound.values():
        recorded |= bound.library_graphs()
    executable.plan = plan
    executable.buffers.put(fresh.buffers)
    gone = (key for step in steps for key in buffers_around(before.steps[step]) if key not in plan.buffers)
    executable.buffers.drop(gone)
    executable.adopt(fresh)
    _write(executable, touched, before, fresh)
    _set_numbers(executable, named, before)
    _hand_over(executable, named, old, fresh)
    _put_recordings(executable, recorded)
    for program in executable.programs.values():
        program.generation = executable.buffers.generation  # whatever it launches was bound anew, or it is gone
        program.externals = externals_of(program, plan)
    if any(key in fresh.buffers for state in plan.states for key in (state.value, state.next)):
        executable.drop_advance()


def _has_moved(key: str, before: LivePlan, plan: LivePlan) -> bool:
    return plan.buffers[key] != before.buffers.get(key) or plan.bindings.get(key) is not before.bindings.get(key)


def _write(executable: CudaExecutable, touched: Iterable[str], before: LivePlan, fresh: Fresh) -> None:
    """Contents that are new, or whose buffer is."""
    contents = executable.plan.contents
    for key in contents.keys() & touched:
        if key in fresh.buffers or before.contents.get(key) is not contents[key]:
            write_array(executable.address(key), contents[key])


def _set_numbers(executable: CudaExecutable, named: Iterable[Step], before: LivePlan) -> None:
    """Numbers that changed along with the rest: words were filled with them, but cells in memory were not."""
    for step in named:
        for operand in step.all_operands():
            if isinstance(operand, ParameterOperand):
                value = executable.plan.parameters[operand.key]
                if before.parameters.get(operand.key) is not value:
                    executable.set_parameter(operand.key, value)


def _hand_over(executable: CudaExecutable, named: Sequence[Step], old: Mapping[str, BoundStep], fresh: Fresh) -> None:
    """New launches get the nodes of old ones, in every graph that has them."""
    moved = fresh.buffers.keys()
    rebuilt = {step.key for step in named if not moved.isdisjoint(own_buffers(step))}
    rebuilt |= {key for key, bound in old.items() if not executable.bound[key].fits_in_place_of(bound)}
    executable.drop_programs(rebuilt)
    for key, bound in old.items():
        for before, after in zip(bound.kernel_launches(), executable.bound[key].kernel_launches(), strict=False):
            for graph in before.graphs:
                graph.replace(before, after)
            before.graphs = []


def _put_recordings(executable: CudaExecutable, recorded: Mapping[str, CapturedGraph]) -> None:
    """Other recordings in the place of child nodes; where the driver refuses one, the graph is made anew."""
    refused = set()
    for name, recording in recorded.items():
        for program in executable.programs.values():
            for graph in program.graphs:
                if name in graph.children:
                    try:
                        graph.change_child(name, recording.graph)
                    except DeviceError:
                        refused.add(name.split(":")[0])
    executable.drop_programs(refused)
