"""Creates a Python callable for each step of a plan on the CPU: native code, library calls, appends, and regions.

`cpu_executor` requests the callables and runs them in order. Loop variables are double-buffered, not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from livegrad.diagnostics import CompileError, LivegradError
from livegrad.ir.types import Scalar, Tensor, Type, f32, f64, scalar_of_dtype
from livegrad.live.compile.live_plan import BufferSpec, LivePlan
from livegrad.live.compile.live_steps import (
    AppendStep,
    BlockStep,
    BufferOperand,
    CapturedStep,
    FeatureOperand,
    Operand,
    ParameterOperand,
    RegionStep,
    Step,
    operand_key,
)
from livegrad.live.cpu.on_demand import unconditional_operands
from livegrad.live.graph.problems import GraphError, origin_of_exception
from livegrad.live.graph.sources import Numbers
from livegrad.ops.context import FeatureLevel
from livegrad.runtime.cpu.compiled_plan import CompiledPlan

Call = Callable[[], None]


class CallFactory:
    """Creates calls on the memory of one executable, and updates their arguments when numbers change."""

    def __init__(
        self,
        memory: Mapping[str, Numbers],
        codes: Mapping[str, CompiledPlan],
        features: dict[FeatureLevel, Any],
        taken: dict[str, set[tuple[str, int]]],
        pull: Callable[[Sequence[str]], None],
    ) -> None:
        self.memory, self.codes, self.features = memory, codes, features
        self._pull = pull  # runs those of the passed steps that wait
        self.producer: Mapping[str, str] = {}  # the step of the plan that writes each buffer
        self._taken = taken  # the bodies that the last run of each region took, including inner regions
        self.parameters: Mapping[str, Any] = {}
        self.bound: dict[str, BufferSpec] = {}  # the specs of external memory at the time of binding
        self.counts: dict[str, int] = {}  # the calls of each function and inner region in the current run
        self.seconds: dict[str, float] = {}  # of steps inside regions, while they are measured
        self.started: dict[str, float] = {}
        self._measuring = False
        # For each number and step, the argument lists that hold it, with its position and conversion.
        self._number_uses: dict[Any, dict[str, list[tuple[list[Any], int, Callable[[Any], Any]]]]] = {}
        self.buffer_swaps: dict[str, str] = {}  # swaps of buffers that apply to calls while they are created

    def set_number(self, key: str | FeatureLevel, value: Any) -> None:
        """Stores a number in every argument list that holds it."""
        self.setter(key)(value)

    def clear_number(self, key: str | FeatureLevel) -> None:
        """Removes a number from every argument list that holds it."""
        for uses in self._number_uses.setdefault(key, {}).values():
            for arguments, position, _ in uses:
                arguments[position] = None

    def setter(self, key: str | FeatureLevel) -> Callable[[Any], None]:
        """`set_number` for one number, as long as this object is open."""
        uses_of_steps = self._number_uses.setdefault(key, {}).values

        def set_number(value: Any) -> None:
            for uses in uses_of_steps():
                for arguments, position, convert in uses:
                    arguments[position] = convert(value)

        return set_number

    def begin_run(self, plan: LivePlan, measures_inside: bool) -> None:
        """Resets the counts and times; the next run measures steps inside regions if `measures_inside`."""
        self.counts, self.seconds, self.started = {}, {}, {}
        self._measuring = measures_inside
        self.parameters, self.producer = plan.parameters, plan.producer  # for loop bodies, created during the run

    def forget(self, step: Step, owner: str) -> None:
        """Drops the argument lists of a step, whose call will be created again."""
        for operand in step.all_operands():
            self._number_uses.get(operand_key(operand), {}).pop(owner, None)

    def close(self) -> None:
        """Drops everything."""
        self._number_uses.clear()

    def make(self, step: Step, owner: str) -> Call:
        """Creates the call of a step; `owner` is the step of the plan that contains it."""
        call: Call
        if isinstance(step, RegionStep):
            call = self._region_call(step, owner)
        elif isinstance(step, AppendStep):
            call = self._append_call(step, owner)
        elif isinstance(step, CapturedStep):
            call = self._captured_call(step, owner)
        else:
            call = self._block_call(step, owner)
        return self._guard_bound_memory(step, call) if self.bound and step.key == owner else call

    def _guard_bound_memory(self, step: Step, call: Call) -> Call:
        """Wraps a call on external memory: it fails if the array has moved, because the code holds the old address."""
        keys = {operand.key for operand in step.all_operands() if isinstance(operand, BufferOperand)}
        arrays = {key: self.memory[key] for key in keys if key in self.bound}
        expected = [(key, array, _layout_when_bound(array, self.bound[key])) for key, array in arrays.items()]

        def check_and_call() -> None:
            for key, array, layout in expected:
                if layout_of(array) != layout:
                    what = f"the array bound to `{key}` was resized or changed its type"
                    raise GraphError(what, help="bind it again")
            call()

        return check_and_call if expected else call

    # --- operands ---

    def _array(self, key: str) -> Numbers:
        return self.memory[self.buffer_swaps.get(key, key)]

    def _argument(self, operand: Operand) -> Any:
        if isinstance(operand, BufferOperand):
            return self._array(operand.key)
        if isinstance(operand, ParameterOperand):
            return _as_argument(self.parameters[operand.key], operand.type)
        value = self.features.get(operand.feature)
        return None if value is None else _as_argument(value, operand.type)

    def _arguments(self, owner: str, operands: Sequence[Operand]) -> list[Any]:
        arguments = [self._argument(operand) for operand in operands]
        for position, operand in enumerate(operands):
            if not isinstance(operand, BufferOperand):
                uses = self._number_uses.setdefault(operand_key(operand), {}).setdefault(owner, [])
                uses.append((arguments, position, _argument_converter(operand.type)))
        return arguments

    def _count(self, key: str) -> None:
        self.counts[key] = self.counts.get(key, 0) + 1

    def _measure_call(self, key: str, owner: str, call: Call) -> Call:
        """Wraps a call inside a region to measure its time. The run measures calls outside of regions."""
        calls = self

        def measure() -> None:
            if not calls._measuring:
                return call()
            start = perf_counter()
            calls.started.setdefault(key, start)
            call()
            calls.seconds[key] = calls.seconds.get(key, 0.0) + perf_counter() - start
            return None

        return call if key == owner else measure

    # --- calls ---

    def _block_call(self, step: BlockStep, owner: str) -> Call:
        arguments = self._arguments(owner, step.operands)
        results: list[Any] = [self._array(key) for key in step.results]
        run = self.codes[step.key].run_step_by_step
        features = [
            (index, operand.feature)
            for index, operand in enumerate(step.operands)
            if isinstance(operand, FeatureOperand)
        ]
        key, calls = step.key, self

        def call() -> None:
            for position, feature in features:
                if arguments[position] is None:
                    what = f"`{key}` reads the feature `{feature}`"
                    raise CompileError(what, help="give it a value with engine.set_feature")
            calls.counts[key] = calls.counts.get(key, 0) + 1
            run(arguments, results)

        return self._measure_call(key, owner, call)

    def _captured_call(self, step: CapturedStep, owner: str) -> Call:
        """A library call with the operands of its capture, repeated until the next capture."""
        arguments = [*self._arguments(owner, step.operands), *(self._array(key) for key in step.results)]
        for position, operand in enumerate(step.operands):
            if isinstance(operand, BufferOperand):  # read-only, because other steps read it too
                arguments[position] = arguments[position].view()
                arguments[position].flags.writeable = False
        library_call = step.call.call

        def call() -> None:
            self._count(step.key)
            try:
                library_call(None, *arguments)
            except LivegradError:
                raise
            except Exception as error:
                what = f"`{step.call.name}` raised {type(error).__name__}: {error}"
                raise GraphError(what, where=origin_of_exception(error)) from error

        return self._measure_call(step.key, owner, call)

    def _append_call(self, step: AppendStep, owner: str) -> Call:
        """Resets the counter, then appends the rows of each writer."""
        values, count, total = (self._array(key) for key in step.results)
        writers = [(self._array(rows.key), self._array(emitted.key)) for rows, emitted in step.writers]
        capacity = step.capacity

        def call() -> None:
            self._count(step.key)
            total[...] = 0
            start = 0
            for rows, emitted in writers:
                room = min(len(rows), int(emitted), capacity - start)
                values[start : start + room] = rows[:room]
                start += room
                total[...] += emitted
            values[start:] = np.zeros((), values.dtype)
            count[...] = start

        return self._measure_call(step.key, owner, call)

    # --- regions ---

    def _region_call(self, step: RegionStep, owner: str) -> Call:
        control = self._arguments(owner, [step.control])
        initial = self._arguments(owner, [carried.initial for carried in step.carried])
        carries = [self._array(carried.carry) for carried in step.carried]
        carried_results = [self._array(carried.result) for carried in step.carried]
        results = [self._array(key) for key in step.results]

        def begin() -> None:
            for result in results:
                result[...] = np.zeros((), result.dtype)
            for value, carry, result in zip(initial, carries, carried_results, strict=True):
                carry[...] = value
                result[...] = value

        if step.kind in ("while", "for"):
            return self._loop_call(step, owner, control, begin)
        bodies = [[self.make(inner, owner) for inner in body] for body in step.bodies]
        sources = [self._sources(body, owner) for body in step.bodies]
        pull = self._pull
        is_switch = step.kind == "switch"
        start = self._make_run_start(step, owner)

        def branch() -> None:
            taken = start()
            begin()
            index = int(control[0]) if is_switch else 0 if control[0] else 1
            if 0 <= index < len(bodies):
                taken.add((step.key, index))
                pull(sources[index])
                for inner in bodies[index]:
                    inner()

        return branch

    def _sources(self, body: Sequence[Step], owner: str) -> tuple[str, ...]:
        """The steps of the plan whose results a body always reads. Inner bodies request their own sources.

        Excludes the owner: it is running already, even if the body reads one of its results.
        """
        operands = (operand for step in body for operand in unconditional_operands(step))
        producers = (self.producer.get(operand.key) for operand in operands if isinstance(operand, BufferOperand))
        return tuple(dict.fromkeys(key for key in producers if key is not None and key != owner))

    def _make_run_start(self, step: RegionStep, owner: str) -> Callable[[], set[tuple[str, int]]]:
        """Returns a function that starts a run of a region and returns the set of taken bodies.

        The outermost region clears the set; inner regions count their runs, as functions do.
        """
        taken = self._taken

        def begin_outermost() -> set[tuple[str, int]]:
            bodies = taken[owner] = set()
            return bodies

        def begin_inner() -> set[tuple[str, int]]:
            self._count(step.key)
            return taken[owner]

        return begin_outermost if step.key == owner else begin_inner

    def _loop_call(self, step: RegionStep, owner: str, control: list[Any], begin: Call) -> Call:
        """A loop with double buffering: odd iterations swap the buffers of loop variables and results."""
        bodies = _DoubleBufferedBodies(self, step, owner)
        index = None if step.index is None else self._array(step.index)
        swapped_pairs = bodies.find_swapped_pairs()
        is_while = step.kind == "while"
        start = self._make_run_start(step, owner)
        pull, sources = self._pull, self._sources(step.bodies[0], owner)

        def loop() -> None:
            taken = start()
            begin()
            iteration = 0
            limit = 0 if is_while else int(control[0])
            continues = bool(control[0]) if is_while else limit > 0
            if continues:
                taken.add((step.key, 0))
                pull(sources)
            while continues:
                if index is not None:
                    index[...] = iteration
                body = bodies.bodies[iteration & 1] or bodies.make(iteration & 1)
                body.run()
                iteration += 1
                continues = bool(body.condition) if is_while else iteration < limit
            if iteration and not iteration & 1:  # the last iteration wrote its results to the variables' buffers
                for carry, result in swapped_pairs:
                    np.copyto(result, carry)

        return loop

    def swap_buffers(self, swaps: Mapping[str, str]) -> dict[str, str]:
        """Adds swaps for calls that are created next. Returns the previous swaps, which the caller restores."""
        previous = self.buffer_swaps
        self.buffer_swaps = {**previous, **{key: previous.get(other, other) for key, other in swaps.items()}}
        return previous


def _buffer_swaps(step: RegionStep) -> dict[str, str]:
    """The swaps of loop variables and results. A result that feeds two variables is copied instead."""
    results = [variable.result for variable in step.carried]
    pairs = [(variable.carry, variable.result) for variable in step.carried if results.count(variable.result) == 1]
    return {**dict(pairs), **{result: carry for carry, result in pairs}}


class _DoubleBufferedBodies:
    """The two versions of a loop body, created on first use, because eager creation doubles the work per level."""

    def __init__(self, calls: CallFactory, step: RegionStep, owner: str) -> None:
        self._calls, self._step, self._owner = calls, step, owner
        self._outer_swaps = calls.buffer_swaps  # of enclosing loops
        self.bodies: list[_LoopBody | None] = [None, None]

    def make(self, parity: int) -> _LoopBody:
        calls, step = self._calls, self._step
        previous, calls.buffer_swaps = calls.buffer_swaps, self._outer_swaps
        try:
            body = self.bodies[parity] = _LoopBody(calls, step, self._owner, _buffer_swaps(step) if parity else {})
        finally:
            calls.buffer_swaps = previous
        return body

    def find_swapped_pairs(self) -> list[tuple[Numbers, Numbers]]:
        """The arrays of loop variables and of the results that are swapped with them."""
        swapped, array = _buffer_swaps(self._step), self._calls._array
        variables = [variable for variable in self._step.carried if variable.carry in swapped]
        return [(array(variable.carry), array(variable.result)) for variable in variables]


class _LoopBody:
    """The body of a loop, on planned or swapped buffers."""

    def __init__(self, calls: CallFactory, step: RegionStep, owner: str, swaps: Mapping[str, str]) -> None:
        before = calls.swap_buffers(swaps)
        self._inner = [calls.make(inner, owner) for inner in step.bodies[0]]
        self.condition = None if step.condition is None else calls._array(step.condition)
        swapped = _buffer_swaps(step)
        copied = [variable for variable in step.carried if variable.carry not in swapped]
        self._copies = [(calls._array(variable.carry), calls._array(variable.result)) for variable in copied]
        calls.buffer_swaps = before

    def run(self) -> None:
        for inner in self._inner:
            inner()
        for carry, result in self._copies:
            np.copyto(carry, result)


def layout_of(array: Numbers) -> tuple[int, tuple[int, ...], Any]:
    """The address, shape and element type of an array."""
    return array.__array_interface__["data"][0], array.shape, array.dtype


def _layout_when_bound(array: Numbers, spec: BufferSpec) -> tuple[int, tuple[int, ...], Any]:
    """The required layout of an array, whose owner may have changed it since it was bound."""
    return layout_of(array)[0], spec.shape, array.dtype if scalar_of_dtype(array.dtype) == spec.element else None


def _argument_converter(type: Type) -> Callable[[Any], Any]:
    """`_as_argument` for numbers of this type, which were checked when they were set."""
    return type.dtype.type if isinstance(type, Scalar) and type in (f32, f64) else partial(_as_argument, type=type)


def _as_argument(value: Any, type: Type) -> Any:
    """Converts a number to an argument of a step. Features that are vectors or tensors become dense arrays."""
    scalar = type if isinstance(type, Scalar) else type.element if isinstance(type, Tensor) and not type.shape else None
    return np.ascontiguousarray(value) if scalar is None else scalar(value)
