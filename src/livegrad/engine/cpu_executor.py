"""Live plans on the CPU: every step is a call of native code on buffers that stay where they are.

`Engine("cpu")` uses it. `cpu_calls` makes the calls, here are memory, updates and the order of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from livegrad.backends.cpu import compile_function
from livegrad.backends.cpu.execute import CompiledPlan
from livegrad.backends.cpu.memory_pool import aligned_memory
from livegrad.diagnostics import CompileError, LivegradError
from livegrad.engine.cpu_calls import Call, Calls
from livegrad.engine.cuda_kernel import CudaKernel
from livegrad.engine.cut_off import CutOff, same_bits
from livegrad.engine.executor import Failure, Known, Profile, RunReport, StepError
from livegrad.engine.live_plan import (
    BlockStep,
    BufferSpec,
    LivePlan,
    Step,
    buffers_around,
    operand_key,
    renewed_buffers,
)
from livegrad.engine.problems import GraphError
from livegrad.engine.sources import Numbers
from livegrad.ops.context import FeatureLevel


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
        """An executable; memory of `previous` that fits is taken over."""
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
        known = {} if previous is None else previous._codes
        self._codes = {key: codes[key] if key in codes else known[key] for key in _leaves(plan.steps)}
        self._memory = _memory_for(plan, previous)
        self._cut_off = CutOff(self, self._memory, None if previous is None else previous._cut_off)
        self._make = Calls(self._memory, self._codes, dict(features), self._cut_off.taken)
        self._make.parameters = plan.parameters
        self._make.bound = {key: plan.buffers[key].shape for key in plan.bindings}
        self._bytes = _require_memory(plan, plan.buffers.values())
        self._calls = _CallsOnDemand(self)
        self._staged: list[Numbers] = []  # the next values of states
        taken = {} if previous is None else previous._memory
        for state in plan.states:
            if self._memory[state.value] is not taken.get(state.value):
                np.copyto(self._memory[state.value], state.initial)
        for key, contents in plan.contents.items():
            if self._memory[key] is not taken.get(key):
                np.copyto(self._memory[key], contents)

    def make_call(self, key: str) -> Call:
        """What runs a step, with the numbers of today."""
        self._make.parameters = self.plan.parameters
        return self._make.make(self.plan.steps[key], key)

    # --- updates ---

    def set_parameter(self, key: str, value: Any) -> None:
        """Hot: puts the number into every argument list that has it."""
        self._make.put(key, value)

    def setter(self, key: str) -> Callable[[Any], None]:
        """The same for one number."""
        return partial(self._make.put, key)

    def set_feature(self, feature: FeatureLevel, value: Any) -> None:
        """Hot: the same for a feature."""
        self._make.features[feature] = value
        self._make.put(feature, value)

    def write(self, buffer: str, contents: Numbers) -> None:
        """New contents for a buffer."""
        np.copyto(self._memory[buffer], contents)

    def update(self, plan: LivePlan, codes: Mapping[str, CompiledPlan], steps: Sequence[str]) -> None:
        """Other memory, functions, operands or states for what is named; what is not named is not looked at."""
        before = {key: self.plan.steps[key] for key in steps if key in self.plan.steps}
        after = {key: plan.steps[key] for key in steps if key in plan.steps}
        named = set(steps)
        states = [state for state in plan.states if state.key in named]
        owners = {state.value: state.owner for state in self.plan.states if state.key in named}
        touched = {key for step in after.values() for key in buffers_around(step)} | {state.value for state in states}
        gone = {key for step in before.values() for key in buffers_around(step)} | owners.keys()
        gone = {key for key in gone if key not in plan.buffers}
        fresh, needed = self._fresh_memory(plan, touched, gone)
        # Nothing can fail from here on.
        contents = [key for key in touched if key in plan.contents]
        renewed = [key for key in contents if key in fresh or self.plan.contents.get(key) is not plan.contents[key]]
        self._cut_off.forget(self.plan, plan, before, after, gone)
        for key, step in before.items():
            self._make.forget(step, key)
            self._calls.pop(key, None)
        self.plan, self._bytes = plan, needed
        self._make.bound = {key: plan.buffers[key].shape for key in plan.bindings}
        self._memory.update(fresh)
        for key in gone:
            self._memory.pop(key, None)
        for leaf in _leaves(before) - _leaves(after):
            del self._codes[leaf]
        self._codes.update(codes)
        for key in renewed:
            np.copyto(self._memory[key], plan.contents[key])
        for state in states:
            if state.value in fresh or owners.get(state.value) is not state.owner:
                np.copyto(self._memory[state.value], state.initial)

    def _fresh_memory(self, plan: LivePlan, touched: set[str], gone: set[str]) -> tuple[dict[str, Numbers], int]:
        """Memory for those buffers that have none that fits, and how many bytes the plan needs then."""
        known = self.plan.buffers
        changed = [plan.buffers[key] for key in touched if plan.buffers[key] != known.get(key)]
        before = [known[key] for key in (*gone, *(spec.key for spec in changed)) if key in known]
        freed = sum(spec.bytes for spec in before if spec.lifetime != "external")
        needed = _require_memory(plan, changed, self._bytes - freed)
        fresh = {spec.key: _new_buffer(spec) for spec in changed if spec.lifetime != "external"}
        bound = {key: _bound_array(plan, key) for key in touched if plan.buffers[key].lifetime == "external"}
        return fresh | bound, needed

    def swap(self, step: BlockStep, code: CompiledPlan) -> None:
        """Code: another function for one step."""
        self._codes[step.key] = code
        own = {step.key: step}
        self._cut_off.forget(self.plan, self.plan, own, own, ())
        self._make.forget(step, step.key)
        self._calls.pop(step.key, None)

    # --- running ---

    def make_ready(self, steps: Sequence[str]) -> None:
        """Nothing: to make a call cannot fail."""

    def run(
        self,
        steps: Sequence[str],
        profile: Profile = False,
        forced: Collection[str] | None = None,
        touched: Collection[object] = (),
    ) -> RunReport:
        """Runs these steps; what depends on one that failed is left out."""
        counts = self._make.counts = {}
        self._make.measure(profile == "step")
        ran: list[str] = []
        spared: list[str] = []
        failures: list[Failure] = []
        lost: set[str] = set()
        seconds: dict[str, float] = {}
        started: dict[str, float] = {}
        calls, cut_off = self._calls, self._cut_off
        regions = cut_off.begin_run()
        changed: set[object] | None = set(touched) if touched else None  # None: all that is read of those that ran
        for key in steps:
            if lost and not lost.isdisjoint(self._sources(key)):
                lost.add(key)
                continue
            if forced is not None and (changed is not None or key in regions) and key not in forced:
                if changed is None:
                    changed = cut_off.changed_by(ran)
                if not cut_off.must_run(key, changed):
                    spared.append(key)
                    continue
            start = perf_counter() if profile else 0.0
            try:
                calls[key]()
            except LivegradError as error:
                failures.append(Failure(key, error))
                lost.add(key)
                cut_off.note_failure(key)
                continue
            if profile:
                started[key], seconds[key] = start, perf_counter() - start
            ran.append(key)
            equal = cut_off.find_equal(key)
            if changed is not None:
                changed.update(cut_off.changed_by((key,)))
            elif equal:
                changed = cut_off.changed_by(ran)
            if equal and changed is not None:
                changed -= equal
        return RunReport(
            tuple(ran),
            counts,
            tuple(failures),
            {**seconds, **self._make.seconds} if profile else None,
            {**started, **self._make.started} if profile else None,
            spared=tuple(spared),
        )

    def starter(self, steps: Sequence[str]) -> None:
        """None: a step may fail, which only `run` looks after."""
        return None

    def _sources(self, key: str) -> Iterator[str]:
        for operand in self.plan.steps[key].all_operands():
            source = self.plan.producer.get(str(operand_key(operand)))
            if source is not None:
                yield source

    def stage(self) -> list[str]:
        """Copies the next values that are another state's value, and compares all with what states hold."""
        values = {state.value for state in self.plan.states}
        self._staged = [
            self._memory[state.next].copy() if state.next in values else self._memory[state.next]
            for state in self.plan.states
        ]
        pairs = zip(self.plan.states, self._staged, strict=True)
        return [state.key for state, array in pairs if not same_bits(self._memory[state.value], array)]

    def advance(self) -> None:
        """All states take the values that were staged."""
        for state, array in zip(self.plan.states, self._staged, strict=True):
            np.copyto(self._memory[state.value], array)

    def read(self, buffer: str) -> Numbers:
        """A copy of a buffer's contents."""
        return self._memory[buffer].copy()

    def read_later(self, buffer: str) -> Known:
        """The same: runs have ended when `run` returns, so that the value is known at once."""
        return Known(self.read(buffer))

    def close(self) -> None:
        """Drops memory and code."""
        self._memory.clear()
        self._staged.clear()
        self._cut_off.close()
        self._calls.clear()
        self._make.close()
        self._codes.clear()


class _CallsOnDemand(dict[str, Call]):
    """The calls of a plan, each made when it is first run: a cold update costs nothing for steps that do not run."""

    def __init__(self, executable: CpuExecutable) -> None:
        self._executable = executable

    def __missing__(self, key: str) -> Call:
        made = self[key] = self._executable.make_call(key)
        return made


def _leaves(steps: Mapping[str, Step]) -> set[str]:
    """What has code: blocks, also those inside of regions."""
    return {leaf.key for step in steps.values() for leaf in step.block_steps()}


def _require_memory(plan: LivePlan, buffers: Iterable[BufferSpec], others: int = 0) -> int:
    """How many bytes the buffers need, with others; refuses more than there is, which the system would promise."""
    own = [spec for spec in buffers if spec.lifetime != "external" and spec.key not in plan.places]
    needed = others + sum(spec.bytes for spec in own) + sum(plan.slots)
    if own and needed > (there := machine_memory()):
        largest = max(own, key=lambda spec: spec.bytes)
        what = f"there is no memory for `{largest.key}`, {largest.type}"
        error = GraphError(what, expected=f"at most {there} bytes in all", found=f"{needed}")
        step = plan.producer.get(largest.key)
        raise error if step is None else StepError(step, error)
    return needed


@cache
def machine_memory() -> int:
    """How much memory the machine has; without an answer, as much as an address can name."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 47


def _new_buffer(spec: BufferSpec) -> Numbers:
    memory = aligned_memory(max(spec.bytes, 1))
    memory[...] = 0  # a buffer that never was written reads as zeros, not as what others left
    return memory[: spec.bytes].view(spec.element.dtype).reshape(spec.shape)


def _bound_array(plan: LivePlan, key: str) -> Numbers:
    array = plan.bindings[key].array
    if not isinstance(array, np.ndarray):
        raise GraphError(f"`{key}` is bound to memory of a device", help='use Engine("cuda"), or copy it to NumPy')
    return array


def _memory_for(plan: LivePlan, previous: CpuExecutable | None) -> dict[str, Numbers]:
    """Memory for every buffer: taken over where the spec is the same, else new."""
    old = {} if previous is None else previous._memory
    specs = {} if previous is None else previous.plan.buffers
    renewed = set() if previous is None else renewed_buffers(previous.plan, plan)
    shared = [aligned_memory(max(size, 1)) for size in plan.slots]
    memory: dict[str, Numbers] = {}
    for key, spec in plan.buffers.items():
        place = plan.places.get(key)
        if spec.lifetime == "external":
            memory[key] = _bound_array(plan, key)
        elif place is not None:
            memory[key] = shared[place][: spec.bytes].view(spec.element.dtype).reshape(spec.shape)
        elif specs.get(key) == spec and previous is not None and key not in previous.plan.places and key not in renewed:
            memory[key] = old[key]
        else:
            memory[key] = _new_buffer(spec)
    return memory
