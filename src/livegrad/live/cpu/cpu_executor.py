"""The CPU executor: every step is a native call on buffers that stay in place.

Used by `Engine("cpu")`. `cpu_calls` creates the calls; this module manages memory, updates and the order of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from livegrad.diagnostics import CompileError, LivegradError
from livegrad.live.compile.live_plan import BufferSpec, LivePlan, renewed_buffers
from livegrad.live.compile.live_steps import BlockStep, Operand, RegionStep, Step, buffers_around
from livegrad.live.cpu.cpu_calls import Call, CallFactory
from livegrad.live.cpu.cpu_run import LostResult, Run
from livegrad.live.cpu.cut_off import CutOff
from livegrad.live.cpu.on_demand import find_on_demand_steps, producers, update_on_demand
from livegrad.live.executor import ImmediateReading, Profile, RunReport, StepError
from livegrad.live.graph.problems import GraphError
from livegrad.live.graph.sources import Numbers, same_bits
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.ops.context import FeatureLevel
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.memory_pool import aligned_memory


class CpuExecutor:
    """Compiles steps to native code."""

    name = "cpu"
    edits_in_place = True

    def prepare(self, step: BlockStep) -> CompiledPlan:
        """The step's function as native code for its sizes."""
        if isinstance(step.function, CudaKernel):
            raise CompileError(f"`{step.key}` is a CUDA kernel", help='run it with Engine("cuda")')
        return compile_function(step.function).plan(dict(step.sizes))

    def build(
        self,
        plan: LivePlan,
        codes: Mapping[str, CompiledPlan],
        features: Mapping[FeatureLevel, Any],
        previous: CpuExecutable | None,
    ) -> CpuExecutable:
        """Builds an executable, which reuses fitting memory of `previous`."""
        return CpuExecutable(plan, codes, features, previous)


class CpuExecutable:
    """A plan with its memory and its calls."""

    def __init__(
        self,
        plan: LivePlan,
        codes: Mapping[str, CompiledPlan],
        features: Mapping[FeatureLevel, Any],
        previous: CpuExecutable | None,
    ) -> None:
        self.plan = plan
        previous_codes = {} if previous is None else previous._codes
        self._codes = {key: codes[key] if key in codes else previous_codes[key] for key in _block_step_keys(plan.steps)}
        self._memory = _memory_for(plan, previous)
        self.cut_off = CutOff(self, self._memory, None if previous is None else previous.cut_off)
        self.call_factory = CallFactory(self._memory, self._codes, dict(features), self.cut_off.taken, self._pull)
        self.call_factory.bound = {key: plan.buffers[key] for key in plan.bindings}
        self._bytes = _require_memory(plan, plan.buffers.values())
        self.calls = _LazyCalls(self)
        self._staged: list[Numbers] = []  # the next values of states
        self._before: dict[str, Numbers] = {}  # the values, in the last run, of states that waiting steps read
        self.on_demand: set[str] = set()  # steps that run only if they are needed
        self._to_recheck: set[str] | None = None  # steps to check again for membership; None: all
        # On-demand steps without a current value. True: the step must run even if its operands do not change.
        self.waiting: dict[str, bool] = {}
        if previous is not None:
            self.waiting = {key: must for key, must in previous.waiting.items() if key in plan.steps}
        self._run = Run(self)
        reused = {} if previous is None else previous._memory
        for state in plan.states:
            if self._memory[state.value] is not reused.get(state.value):
                np.copyto(self._memory[state.value], state.initial)
        for key, contents in plan.contents.items():
            if self._memory[key] is not reused.get(key):
                np.copyto(self._memory[key], contents)

    def _pull(self, steps: Sequence[str]) -> None:
        self._run.pull(steps)

    def make_call(self, key: str) -> Call:
        """Creates the call of a step with the current numbers."""
        self.call_factory.parameters, self.call_factory.producer = self.plan.parameters, self.plan.producer
        return self.call_factory.make(self.plan.steps[key], key)

    # --- updates ---

    def set_parameter(self, key: str, value: Any) -> None:
        """Hot: stores the number in every argument list that holds it."""
        self.call_factory.set_number(key, value)

    def setter(self, key: str) -> Callable[[Any], None]:
        """Returns a function that sets one number."""
        return self.call_factory.setter(key)

    def set_feature(self, feature: FeatureLevel, value: Any) -> None:
        """Hot: stores a feature in every argument list that holds it. None: its readers cannot run any more."""
        if value is None:
            self.call_factory.features.pop(feature, None)
            self.call_factory.clear_number(feature)
            return
        self.call_factory.features[feature] = value
        self.call_factory.set_number(feature, value)

    def write(self, buffer: str, contents: Numbers) -> None:
        """Writes new contents to a buffer."""
        np.copyto(self._memory[buffer], contents)

    def update(self, plan: LivePlan, codes: Mapping[str, CompiledPlan], steps: Sequence[str]) -> None:
        """Replaces the memory, functions, operands and states of the named steps, and examines nothing else."""
        before = {key: self.plan.steps[key] for key in steps if key in self.plan.steps}
        after = {key: plan.steps[key] for key in steps if key in plan.steps}
        named = set(steps)
        states = [state for state in plan.states if state.key in named]
        owners = {state.value: state.owner for state in self.plan.states if state.key in named}
        touched = {key for step in after.values() for key in buffers_around(step)} | {state.value for state in states}
        removed = {key for step in before.values() for key in buffers_around(step)} | owners.keys()
        removed = {key for key in removed if key not in plan.buffers}
        fresh, needed = self._fresh_memory(plan, touched, removed)
        # Nothing can fail from here on.
        contents = [key for key in touched if key in plan.contents]
        renewed = [key for key in contents if key in fresh or self.plan.contents.get(key) is not plan.contents[key]]
        self.cut_off.forget(self.plan, plan, before, after, removed)
        self._mark_for_recheck(plan, before, after, named)
        for key, step in before.items():
            self.call_factory.forget(step, key)
            self.calls.pop(key, None)
            if key not in after:
                self.waiting.pop(key, None)
        self.plan, self._bytes = plan, needed
        self._memory.update(fresh)
        for key in removed:
            self._memory.pop(key, None)
        for key in touched | removed:
            self.call_factory.bound.pop(key, None)
            if key in plan.bindings:
                self.call_factory.bound[key] = plan.buffers[key]
        for leaf in _block_step_keys(before) - _block_step_keys(after):
            del self._codes[leaf]
        self._codes.update(codes)
        for key in renewed:
            np.copyto(self._memory[key], plan.contents[key])
        for state in states:
            if state.value in fresh or owners.get(state.value) is not state.owner:
                np.copyto(self._memory[state.value], state.initial)

    def _mark_for_recheck(
        self, plan: LivePlan, before: Mapping[str, Step], after: Mapping[str, Step], named: set[str]
    ) -> None:
        """Schedules a check whether these steps, and their sources, may run on demand."""
        self.on_demand -= before.keys() - after.keys()
        if self._to_recheck is not None:
            self._to_recheck |= after.keys()
            for version, steps in ((self.plan, before), (plan, after)):
                self._to_recheck.update(*(producers(version, step.all_operands()) for step in steps.values()))
                self._to_recheck.update(
                    version.producer.get(state.next, "") for state in version.states if state.key in named
                )

    def _fresh_memory(self, plan: LivePlan, touched: set[str], removed: set[str]) -> tuple[dict[str, Numbers], int]:
        """New memory for buffers without fitting memory, and the total bytes of the plan."""
        current = self.plan.buffers
        changed = [plan.buffers[key] for key in touched if plan.buffers[key] != current.get(key)]
        before = [current[key] for key in (*removed, *(spec.key for spec in changed)) if key in current]
        freed = sum(spec.bytes for spec in before if spec.lifetime != "external")
        needed = _require_memory(plan, changed, self._bytes - freed)
        fresh = {spec.key: _new_buffer(spec) for spec in changed if spec.lifetime != "external"}
        bound = {key: _bound_array(plan, key) for key in touched if plan.buffers[key].lifetime == "external"}
        return fresh | bound, needed

    def swap(self, step: BlockStep, code: CompiledPlan) -> None:
        """Code: another function for one step. It reads and writes the same buffers, so `cut_off` stays valid."""
        self._codes[step.key] = code
        self.call_factory.forget(step, step.key)
        self.calls.pop(step.key, None)

    # --- running ---

    def make_ready(self, steps: Sequence[str]) -> None:
        """Does nothing: creating a call cannot fail."""

    def run(
        self,
        steps: Sequence[str],
        profile: Profile = False,
        forced: Collection[str] | None = None,
        touched: Collection[object] = (),
    ) -> RunReport:
        """Runs these steps, without the dependents of failed ones."""
        self.call_factory.begin_run(self.plan, profile == "step")
        self._before.clear()
        run = self._run = Run(self, profile, forced, touched)
        run.run_steps(steps)
        return run.report()

    def require(self, is_needed: Callable[[str], bool], wanted: Collection[str] = ()) -> list[str]:
        """Updates the on-demand steps. Returns the waiting steps that became needed."""
        if self._to_recheck is None:
            self.on_demand = find_on_demand_steps(self.plan, self.cut_off.regions, is_needed)
            needed = [key for key in self.waiting if key not in self.on_demand]
        else:
            needed = update_on_demand(self.on_demand, self.plan, self._to_recheck.union(wanted), is_needed)
        self._to_recheck = set()
        return [key for key in needed if key in self.waiting]

    def catch_up(self, step: str, failed: Mapping[str, LivegradError]) -> RunReport:
        """Runs a waiting step with the values that states had in the last run."""
        now = {key: self._memory[key].copy() for key in self._before}
        self.call_factory.begin_run(self.plan, False)
        run = self._run = Run(self, forced=(), lost=failed)
        try:
            for key, value in self._before.items():
                np.copyto(self._memory[key], value)
            try:
                run.pull((step,))
            except LostResult:
                run.record_failure(step, failed)
        finally:
            for key, value in now.items():
                np.copyto(self._memory[key], value)
        return run.report()

    def defer(self, steps: Iterable[str]) -> None:
        """Makes steps that caught up wait again: their results must not be used."""
        self.waiting |= dict.fromkeys(steps, True)

    def operands_read(self, step: str) -> Iterable[Operand]:
        """What a step read in its last run. A region read the operands of its taken bodies."""
        planned = self.plan.steps[step]
        if isinstance(planned, RegionStep):
            return planned.operands_of_bodies(self.cut_off.taken.get(step, ()))
        return planned.all_operands()

    def starter(
        self, steps: Sequence[str], forced: Collection[str] | None, touched: Collection[object]
    ) -> Callable[[], RunReport]:
        """Returns `run` for these steps."""
        return partial(self.run, steps, False, forced, touched)

    def stage(self) -> list[str]:
        """Copies next values that are values of other states. Returns the states that will change."""
        values = {state.value for state in self.plan.states}
        self._staged = [
            self._memory[state.next].copy() if state.next in values else self._memory[state.next]
            for state in self.plan.states
        ]
        pairs = zip(self.plan.states, self._staged, strict=True)
        return [state.key for state, array in pairs if not same_bits(self._memory[state.value], array)]

    def advance(self) -> None:
        """Gives all states their staged values, and saves the old values that waiting steps would have read."""
        for state in self.plan.states if self.waiting else ():
            if state.value not in self._before and not self.waiting.keys().isdisjoint(self._readers(state.value)):
                self._before[state.value] = self._memory[state.value].copy()
        for state, array in zip(self.plan.states, self._staged, strict=True):
            np.copyto(self._memory[state.value], array)

    def _readers(self, buffer: str) -> tuple[str, ...]:
        return self.plan.readers.get(buffer, ())

    def read(self, buffer: str) -> Numbers:
        """A copy of a buffer's contents."""
        return self._memory[buffer].copy()

    def read_operand(self, buffer: str) -> Numbers:
        """The contents of a buffer in the last run."""
        return self._before[buffer].copy() if buffer in self._before else self.read(buffer)

    def read_later(self, buffer: str) -> ImmediateReading:
        """Like `read`: a run has ended when `run` returns, so the value is available at once."""
        return ImmediateReading(self.read(buffer))

    def close(self) -> None:
        """Drops memory and code."""
        self._memory.clear()
        self._staged.clear()
        self.cut_off.close()
        self.calls.clear()
        self.call_factory.close()
        self._codes.clear()


class _LazyCalls(dict[str, Call]):
    """The calls of a plan, created on first use: a cold update costs nothing for steps that do not run."""

    def __init__(self, executable: CpuExecutable) -> None:
        self._executable = executable

    def __missing__(self, key: str) -> Call:
        call = self[key] = self._executable.make_call(key)
        return call


def _block_step_keys(steps: Mapping[str, Step]) -> set[str]:
    """The keys of all block steps, including those inside regions."""
    return {leaf.key for step in steps.values() for leaf in step.block_steps()}


def _require_memory(plan: LivePlan, buffers: Iterable[BufferSpec], others: int = 0) -> int:
    """The bytes of the buffers plus `others`. Raises if the machine has less, because the system overcommits."""
    owned = [spec for spec in buffers if spec.lifetime != "external" and spec.key not in plan.slot_of]
    needed = others + sum(spec.bytes for spec in owned) + sum(plan.slots)
    if owned and needed > (available := machine_memory()):
        largest = max(owned, key=lambda spec: spec.bytes)
        what = f"not enough memory for `{largest.key}`, {largest.type}"
        error = GraphError(what, expected=f"at most {available} bytes in total", found=f"{needed}")
        step = plan.producer.get(largest.key)
        raise error if step is None else StepError(step, error)
    return needed


@cache
def machine_memory() -> int:
    """The memory of the machine in bytes, or the size of the address space if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 47


def _new_buffer(spec: BufferSpec) -> Numbers:
    memory = aligned_memory(max(spec.bytes, 1))
    memory[...] = 0  # so that a buffer reads as zeros before the first write
    return memory[: spec.bytes].view(spec.element.dtype).reshape(spec.shape)


def _bound_array(plan: LivePlan, key: str) -> Numbers:
    array = plan.bindings[key].array
    if not isinstance(array, np.ndarray):
        raise GraphError(f"`{key}` is bound to device memory", help='use Engine("cuda"), or copy it to NumPy')
    return array


def _memory_for(plan: LivePlan, previous: CpuExecutable | None) -> dict[str, Numbers]:
    """Memory for every buffer: that of the previous executable if the spec is equal, otherwise new."""
    old = {} if previous is None else previous._memory
    specs = {} if previous is None else previous.plan.buffers
    renewed = set() if previous is None else renewed_buffers(previous.plan, plan)
    shared = [aligned_memory(max(size, 1)) for size in plan.slots]
    memory: dict[str, Numbers] = {}
    for key, spec in plan.buffers.items():
        slot = plan.slot_of.get(key)
        if spec.lifetime == "external":
            memory[key] = _bound_array(plan, key)
        elif slot is not None:
            memory[key] = shared[slot][: spec.bytes].view(spec.element.dtype).reshape(spec.shape)
        elif (
            specs.get(key) == spec and previous is not None and key not in previous.plan.slot_of and key not in renewed
        ):
            memory[key] = old[key]
        else:
            memory[key] = _new_buffer(spec)
    return memory
