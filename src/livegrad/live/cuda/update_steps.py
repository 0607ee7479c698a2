"""Updates steps of a running plan in place: new memory, functions and captures, with unchanged structure.

All new objects are prepared while the old plan stays intact; then new launches replace the old ones in their graph
nodes. Programs whose nodes cannot be updated are dropped, and rebuilt when next needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import BlockStep, ParameterOperand, Step, buffers_around
from livegrad.live.cuda.bind_steps import NewBindings, bind_step
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.buffers import DeviceBuffer, make_buffers, write_array
from livegrad.live.cuda.captured_graphs import CapturedGraph
from livegrad.live.cuda.in_place import find_in_place
from livegrad.live.cuda.program import externals_of
from livegrad.live.cuda.step_code import StepCode
from livegrad.live.cuda.touched_buffers import buffers_in_other_nodes, leaves_of, regions_of
from livegrad.runtime.cuda.driver import DeviceError

if TYPE_CHECKING:
    from livegrad.live.cuda.executable import CudaExecutable


def update_executable(
    executable: CudaExecutable, plan: LivePlan, codes: Mapping[str, StepCode], steps: Sequence[str]
) -> None:
    """Updates these steps to a plan of the same structure. Changes nothing if it fails."""
    before = executable.plan
    named = [plan.steps[key] for key in steps]
    touched = {key for step in named for key in buffers_around(step)}
    in_place = _find_in_place_after(executable, named, codes)
    bindings = NewBindings(_allocate_moved_buffers(executable, plan, touched, in_place))
    for leaf in leaves_of(named):
        bind_step(executable, leaf, plan, codes.get(leaf.key), bindings)
    # Nothing can fail from here on.
    old = {key: executable.bound[key] for key in bindings.bound}
    captures = {**bindings.captured}
    for bound in bindings.bound.values():
        captures |= bound.library_graphs()
    executable.plan, executable.in_place = plan, in_place
    executable.buffers.replace_memory(bindings.buffers)
    removed = (key for step in steps for key in buffers_around(before.steps[step]) if key not in plan.buffers)
    executable.buffers.drop(removed)
    executable.install(bindings)
    _write_contents(executable, touched, before, bindings)
    _set_numbers(executable, named, before)
    _replace_launches(executable, named, old, bindings)
    _replace_captures(executable, captures)
    for program in executable.programs:
        program.generation = executable.buffers.generation  # its launches have the new addresses
        program.externals = externals_of(program, plan)
    if any(key in bindings.buffers for state in plan.states for key in (state.value, state.next)):
        executable.drop_advance()


def _find_in_place_after(
    executable: CudaExecutable, named: Sequence[Step], codes: Mapping[str, StepCode]
) -> dict[str, str]:
    """The loop variables that share memory with a result, given the new code of these steps."""
    regions = list(regions_of(named))
    if not regions:
        return executable.in_place
    current_codes = {
        leaf.key: executable.bound[leaf.key].code for leaf in leaves_of(named) if leaf.key in executable.bound
    }
    carries = {variable.carry for region in regions for variable in region.carried}
    unaffected = {carry: result for carry, result in executable.in_place.items() if carry not in carries}
    return unaffected | find_in_place(regions, {**current_codes, **codes})


def _allocate_moved_buffers(
    executable: CudaExecutable, plan: LivePlan, touched: Set[str], in_place: Mapping[str, str]
) -> dict[str, DeviceBuffer]:
    """New memory for buffers with another size or binding, and for loop variables that start or stop sharing."""
    before = executable.plan
    moved = {key for key in touched if _has_moved(key, before, plan)}
    moved |= {key for key in touched if (key in in_place) != (key in executable.in_place)}
    buffers = make_buffers((plan.buffers[key] for key in moved if key not in in_place), plan)
    current = executable.buffers.by_key
    for carry in touched & in_place.keys():
        target = buffers.get(in_place[carry]) or current[in_place[carry]]
        if current.get(carry) is not target:
            buffers[carry] = target
    return buffers


def swap_step(executable: CudaExecutable, step: BlockStep, code: StepCode) -> None:
    """Replaces the function of one step on the same memory. Changes nothing if it fails."""
    bindings = NewBindings()
    bind_step(executable, step, executable.plan, code, bindings)
    # Nothing can fail from here on.
    old = {step.key: executable.bound[step.key]}
    executable.install(bindings)
    _replace_launches(executable, (), old, bindings)
    captures = bindings.bound[step.key].library_graphs()
    if captures:
        _replace_captures(executable, captures)


def _has_moved(key: str, before: LivePlan, plan: LivePlan) -> bool:
    spec, previous = plan.buffers[key], before.buffers.get(key)
    return (spec is not previous and spec != previous) or plan.bindings.get(key) is not before.bindings.get(key)


def _write_contents(
    executable: CudaExecutable, touched: Iterable[str], before: LivePlan, bindings: NewBindings
) -> None:
    """Writes contents that changed or whose buffer is new."""
    contents = executable.plan.contents
    for key in touched:
        if key in contents and (key in bindings.buffers or before.contents.get(key) is not contents[key]):
            write_array(executable.address(key), contents[key])


def _set_numbers(executable: CudaExecutable, named: Iterable[Step], before: LivePlan) -> None:
    """Sets numbers that changed with the plan. New launches have them, but memory cells do not."""
    for step in named:
        for operand in step.all_operands():
            if isinstance(operand, ParameterOperand):
                value = executable.plan.parameters[operand.key]
                if before.parameters.get(operand.key) is not value:
                    executable.set_parameter(operand.key, value)


def _replace_launches(
    executable: CudaExecutable, named: Sequence[Step], old: Mapping[str, BoundStep], bindings: NewBindings
) -> None:
    """Replaces old launches by new ones in every graph, and drops programs where that is impossible."""
    moved = bindings.buffers.keys()
    outdated = {step.key for step in named if not moved.isdisjoint(buffers_in_other_nodes(step))}
    outdated |= {key for key, bound in old.items() if not executable.bound[key].can_replace(bound)}
    executable.programs.drop(outdated)
    for key, bound in old.items():
        for before, after in zip(bound.kernel_launches(), executable.bound[key].kernel_launches(), strict=False):
            for graph in before.graphs:
                graph.replace(before, after)
            before.graphs = []
    if any(bound.reports_failures != executable.bound[key].reports_failures for key, bound in old.items()):
        for program in executable.programs:
            program.update_checks(executable.bound)


def _replace_captures(executable: CudaExecutable, captures: Mapping[str, CapturedGraph]) -> None:
    """Replaces captured graphs in child nodes. Drops programs where the driver refuses."""
    refused = set()
    for name, capture in captures.items():
        for program in executable.programs:
            for graph in program.graphs:
                if name in graph.children:
                    try:
                        graph.change_child(name, capture.graph)
                    except DeviceError:
                        refused.add(name.split(":")[0])
    executable.programs.drop(refused)
