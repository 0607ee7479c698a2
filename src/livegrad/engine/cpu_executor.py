"""Live plans on the CPU: every step is a call of native code on buffers that stay where they are.

`Engine("cpu")` uses it. Regions are loops and branches here, run one step at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from livegrad.backends.cpu import compile_function
from livegrad.backends.cpu.execute import CompiledPlan
from livegrad.backends.cpu.memory_pool import aligned_memory
from livegrad.diagnostics import CompileError, LivegradError
from livegrad.engine.executor import Failure, RunReport
from livegrad.engine.live_plan import (
    BlockStep,
    BufferOperand,
    BufferSpec,
    FeatureOperand,
    LivePlan,
    Operand,
    ParameterOperand,
    RegionStep,
    Step,
    operand_key,
)
from livegrad.engine.sources import Numbers
from livegrad.ir.types import Scalar, Tensor, Type
from livegrad.ops.context import FeatureLevel


class CpuExecutor:
    """Compiles steps to native code."""

    name = "cpu"

    def prepare(self, step: BlockStep) -> CompiledPlan:
        """The step's function as native code for its sizes."""
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
        self._codes = dict(codes)
        self._features = dict(features)
        self._memory = _memory_for(plan, previous)
        self._calls: dict[str, Callable[[], None]] = {}
        self._counts: dict[str, int] = {}
        # Where a number goes when it changes: for each step, the argument lists that hold it and the positions there.
        self._cells: dict[Any, dict[str, list[tuple[list[Any], int, Type]]]] = {}
        known = {state.value for state in previous.plan.states} if previous is not None else set()
        for state in plan.states:
            if state.value not in known or self._memory[state.value] is not previous._memory.get(state.value):  # type: ignore[union-attr]
                np.copyto(self._memory[state.value], state.initial)
        for key, contents in plan.contents.items():
            np.copyto(self._memory[key], contents)
        for key, step in plan.steps.items():
            self._calls[key] = self._call(step, key)

    # --- updates ---

    def set_parameter(self, key: str, value: Any) -> None:
        """Hot: puts the number into every argument list that has it."""
        self._put(key, value)

    def set_feature(self, feature: FeatureLevel, value: Any) -> None:
        """Hot: the same for a feature."""
        self._features[feature] = value
        self._put(feature, value)

    def _put(self, key: str | FeatureLevel, value: Any) -> None:
        for places in self._cells.get(key, {}).values():
            for arguments, position, type in places:
                arguments[position] = _number(value, type)

    def write(self, buffer: str, contents: Numbers) -> None:
        """New contents for a buffer."""
        np.copyto(self._memory[buffer], contents)

    def update(self, plan: LivePlan, codes: Mapping[str, CompiledPlan], steps: Sequence[str]) -> None:
        """Warm and code: other memory and other functions for some steps."""
        touched = {key for name in steps for key in _buffers_around(plan.steps[name])}
        fresh = {}
        for key in touched:
            spec = plan.buffers[key]
            if spec.lifetime == "external":
                fresh[key] = plan.bindings[key].array
            elif spec != self.plan.buffers.get(key):
                fresh[key] = _new_buffer(spec)
        # Nothing can fail from here on.
        self.plan = plan
        self._memory.update(fresh)
        self._codes.update(codes)
        for key in touched & plan.contents.keys():
            np.copyto(self._memory[key], plan.contents[key])
        for name in steps:
            for operand in plan.steps[name].all_operands():
                self._cells.get(operand_key(operand), {}).pop(name, None)
            self._calls[name] = self._call(plan.steps[name], name)

    # --- running ---

    def run(self, steps: Sequence[str], profile: bool = False) -> RunReport:
        """Runs these steps; what depends on one that failed is left out."""
        self._counts = {}
        ran: list[str] = []
        failures: list[Failure] = []
        lost: set[str] = set()
        seconds: dict[str, float] = {}
        started: dict[str, float] = {}
        for key in steps:
            if lost and not lost.isdisjoint(self._sources(key)):
                lost.add(key)
                continue
            start = perf_counter() if profile else 0.0
            try:
                self._calls[key]()
            except LivegradError as error:
                failures.append(Failure(key, error))
                lost.add(key)
                continue
            if profile:
                started[key], seconds[key] = start, perf_counter() - start
            ran.append(key)
        return RunReport(
            tuple(ran), self._counts, tuple(failures), seconds if profile else None, started if profile else None
        )

    def _sources(self, key: str) -> Iterator[str]:
        for operand in self.plan.steps[key].all_operands():
            source = self.plan.producer.get(str(operand_key(operand)))
            if source is not None:
                yield source

    def advance(self) -> None:
        """All states take their next values, at once: one may be another's next."""
        values = {state.value for state in self.plan.states}
        fresh = [
            self._memory[state.next].copy() if state.next in values else self._memory[state.next]
            for state in self.plan.states
        ]
        for state, array in zip(self.plan.states, fresh, strict=True):
            np.copyto(self._memory[state.value], array)

    def read(self, buffer: str) -> Numbers:
        """A copy of a buffer's contents."""
        return self._memory[buffer].copy()

    def close(self) -> None:
        """Drops memory and code."""
        self._memory.clear()
        self._calls.clear()
        self._cells.clear()
        self._codes.clear()

    # --- calls ---

    def _call(self, step: Step, owner: str) -> Callable[[], None]:
        return self._region_call(step, owner) if isinstance(step, RegionStep) else self._block_call(step, owner)

    def _argument(self, operand: Operand) -> Any:
        if isinstance(operand, BufferOperand):
            return self._memory[operand.key]
        if isinstance(operand, ParameterOperand):
            return _number(self.plan.parameters[operand.key], operand.type)
        value = self._features.get(operand.feature)
        return None if value is None else _number(value, operand.type)

    def _arguments(self, owner: str, operands: Sequence[Operand]) -> list[Any]:
        arguments = [self._argument(operand) for operand in operands]
        for position, operand in enumerate(operands):
            if not isinstance(operand, BufferOperand):
                places = self._cells.setdefault(operand_key(operand), {}).setdefault(owner, [])
                places.append((arguments, position, operand.type))
        return arguments

    def _block_call(self, step: BlockStep, owner: str) -> Callable[[], None]:
        code = self._codes[step.key]
        arguments = self._arguments(owner, step.operands)
        results: list[Any] = [self._memory[key] for key in step.results]
        missing = [position for position, operand in enumerate(step.operands) if isinstance(operand, FeatureOperand)]
        key, run, counted = step.key, code.run, self

        def call() -> None:
            for position in missing:
                if arguments[position] is None:
                    raise CompileError(
                        f"`{key}` reads the feature `{step.operands[position].feature}`",  # type: ignore[union-attr]
                        help="give it a value with engine.set_feature",
                    )
            counted._counts[key] = counted._counts.get(key, 0) + 1
            run(arguments, results)

        return call

    def _region_call(self, step: RegionStep, owner: str) -> Callable[[], None]:
        bodies = [[self._call(inner, owner) for inner in body] for body in step.bodies]
        control = self._arguments(owner, [step.control])
        initial = self._arguments(owner, [carried.initial for carried in step.carried])
        carries = [self._memory[carried.carry] for carried in step.carried]
        leaving = [self._memory[carried.result] for carried in step.carried]
        results = [self._memory[key] for key in step.results]
        index = None if step.index is None else self._memory[step.index]
        condition = None if step.condition is None else self._memory[step.condition]

        def begin() -> None:
            for result in results:
                result[...] = np.zeros((), result.dtype)
            for value, carry, result in zip(initial, carries, leaving, strict=True):
                carry[...] = value
                result[...] = value

        def iterate() -> None:
            for inner in bodies[0]:
                inner()
            for carry, result in zip(carries, leaving, strict=True):
                np.copyto(carry, result)

        def branch() -> None:
            begin()
            number = int(control[0])
            chosen = number if step.kind == "switch" else 0 if number else 1
            if 0 <= chosen < len(bodies):
                for inner in bodies[chosen]:
                    inner()

        def loop_while() -> None:
            begin()
            assert condition is not None
            going = bool(control[0])
            while going:
                iterate()
                going = bool(condition)

        def loop_for() -> None:
            begin()
            for number in range(int(control[0])):
                if index is not None:
                    index[...] = number
                iterate()

        return {"while": loop_while, "for": loop_for}.get(step.kind, branch)


def _number(value: Any, type: Type) -> Any:
    """A number as a step takes it; vectors and tensors among the features stay as they are."""
    scalar = type if isinstance(type, Scalar) else type.element if isinstance(type, Tensor) and not type.shape else None
    return np.ascontiguousarray(value) if scalar is None else scalar(value)


def _buffers_around(step: Step) -> Iterator[str]:
    """Every buffer that a step, or a step inside it, touches."""
    for operand in step.all_operands():
        if isinstance(operand, BufferOperand):
            yield operand.key
    yield from step.results
    if isinstance(step, RegionStep):
        yield from (carried.carry for carried in step.carried)
        if step.index is not None:
            yield step.index
        for inner in step.inner_steps():
            yield from _buffers_around(inner)


def _new_buffer(spec: BufferSpec) -> Numbers:
    memory = aligned_memory(max(spec.bytes, 1))
    memory[...] = 0  # a buffer that never was written reads as zeros, not as what others left
    return memory[: spec.bytes].view(spec.element.dtype).reshape(spec.shape)


def _memory_for(plan: LivePlan, previous: CpuExecutable | None) -> dict[str, Numbers]:
    """Memory for every buffer: taken over where the spec is the same, else new."""
    old = {} if previous is None else previous._memory
    specs = {} if previous is None else previous.plan.buffers
    shared = [aligned_memory(max(size, 1)) for size in plan.slots]
    memory: dict[str, Numbers] = {}
    for key, spec in plan.buffers.items():
        place = plan.places.get(key)
        if spec.lifetime == "external":
            memory[key] = plan.bindings[key].array
        elif place is not None:
            memory[key] = shared[place][: spec.bytes].view(spec.element.dtype).reshape(spec.shape)
        elif specs.get(key) == spec and previous is not None and key not in previous.plan.places:
            memory[key] = old[key]
        else:
            memory[key] = _new_buffer(spec)
    return memory
