"""Loops over tensors run on the device: one graph for all iterations, without host steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f64
from livegrad.runtime.cuda import plan_objects
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.device_memory import DeviceArray
from livegrad.runtime.reference import evaluate
from livegrad.tensors.tracing import trace_call
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


def scan(weights: Any, start: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        state = lg.tanh(state @ weights + x)
        return state, state

    return lg.scan(step, start, x)


def scan_gradient(weights: Any, start: Any, x: Any) -> Any:
    def loss(weights: Any, start: Any, x: Any) -> Any:
        last, every = scan(weights, start, x)
        return lg.sum(every * every) + lg.sum(last)

    return lg.grad(loss, argnums=(0, 1, 2))(weights, start, x)


def power(weights: Any, start: Any, x: Any) -> Any:
    return lg.fori_loop(0, 5, lambda index, state: state @ weights + x[0] * index, start)


def swapped(weights: Any, start: Any, x: Any) -> Any:
    return lg.fori_loop(0, 3, lambda index, state: (state[1], state[0] @ weights), (start, x[0]))


def running_products(weights: Any, start: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        total, count = state
        return (total @ weights, count + 1.0), (lg.sum(total), x * count)

    return lg.scan(step, (start, lg.sum(start) * 0.0), x, reverse=True)


def reversed_gradient(weights: Any, start: Any, x: Any) -> Any:
    def loss(weights: Any, start: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            first, second = state
            first, second = lg.tanh(first @ weights + x), first * second
            return (first, second), (first, second, x)

        (first, second), rows = lg.scan(step, (start, start + 1.0), x, reverse=True)
        return lg.sum(first * second) + lg.sum(rows[0] * rows[1] * rows[2])

    return lg.grad(loss, argnums=(0, 1, 2))(weights, start, x)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "scan": scan,
    "scan_gradient": scan_gradient,
    "reversed_gradient": reversed_gradient,
    "power": power,
    "swapped": swapped,
    "running_products": running_products,
}
SHAPES = ((8, 8), (4, 8), (7, 4, 8))


def traced(program: Callable[..., Any]) -> Function:
    return trace_call(program, [Tensor(f64, shape) for shape in SHAPES], program.__name__).function


def arguments(seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.uniform(-0.5, 0.5, shape) for shape in SHAPES]


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


def check(compiled: CudaFunction, function: Function, inputs: list[Any]) -> int:
    actual, expected = compiled(*inputs), evaluate(function, *inputs)
    actual, expected = (value if isinstance(value, tuple) else (value,) for value in (actual, expected))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
    return len(actual)


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_over_tensors_is_one_launch_of_a_graph(driver, monkeypatch, name):
    monkeypatch.setattr(plan_objects, "_LAUNCH_MICROSECONDS", 0.0)  # so that loops of little work run on the device
    function = traced(PROGRAMS[name])
    compiled = CudaFunction(function)
    results = check(compiled, function, arguments())
    assert driver.count("cuGraphLaunch") == 1
    assert driver.count("cuMemcpyDtoHAsync") == results, "the results, and nothing on the way"
    driver.calls.clear()
    check(compiled, function, arguments(1))
    assert driver.count("cuGraphLaunch") == 1
    assert driver.count("cuGraphInstantiate") == 0, "memory stays where it is, and so does the graph"


@needs_compiler
def test_state_in_tape_rows_is_computed_in_place(driver):
    """An iteration multiplies and takes the tangent, and copies nothing."""
    function = traced(scan)
    check(CudaFunction(function), function, arguments())
    assert driver.count("cuLaunchKernel") == 2 * SHAPES[2][0]


@needs_compiler
@pytest.mark.parametrize("name", ["scan", "scan_gradient", "reversed_gradient"])
def test_states_in_rows_have_the_same_bits_as_states_that_are_copied(driver, monkeypatch, name):
    monkeypatch.setattr(plan_objects, "_LAUNCH_MICROSECONDS", 0.0)
    function, inputs = traced(PROGRAMS[name]), arguments()
    in_rows = CudaFunction(function)(*inputs)
    launches = driver.count("cuLaunchKernel")
    monkeypatch.setattr(plan_objects, "keep_states_in_rows", lambda loop, plan: loop)
    copied = CudaFunction(function)(*inputs)
    assert driver.count("cuLaunchKernel") > 2 * launches
    for one, other in zip(in_rows, copied, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_compiler
def test_a_long_loop_is_not_captured_again_for_other_arrays(driver):
    """Its graph reads copies, so new arrays change only the addresses of the copies' sources."""
    shapes = ((64, 64), (4, 64), (40, 4, 64))
    function = trace_call(scan, [Tensor(f64, shape) for shape in shapes], "scan").function
    compiled, previous_results = CudaFunction(function), []
    for seed in range(3):
        driver.calls.clear()
        random = np.random.default_rng(seed)
        inputs = [random.uniform(-0.1, 0.1, shape) for shape in shapes]
        arrays = [DeviceArray.from_host(array) for array in inputs]
        previous_results += [arrays, compiled.on_device(*arrays)]  # so that the next ones have other addresses
        for actual, expected in zip(previous_results[-1], evaluate(function, *inputs), strict=True):
            np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-11)
        assert seed == 0 or driver.count("cuLaunchKernel") == 0


@needs_compiler
def test_a_long_loop_of_little_work_runs_on_the_host(driver):
    def steps(weights: Any, start: Any, x: Any) -> Any:
        return lg.fori_loop(0, 2000, lambda index, state: state + lg.sin(state[::-1]) * 0.01, start[0])

    function = traced(steps)
    check(CudaFunction(function), function, arguments())
    assert driver.count("cuLaunchKernel") < 2000


def needs_the_host(weights: Any, start: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        state = state @ lg.real(lg.linalg.eigvals(weights) * lg.eye(8)) + x
        return state, state * 2.0

    return lg.scan(step, start, x)


@needs_compiler
def test_a_loop_with_a_host_step_computes_the_same(driver):
    function = traced(needs_the_host)
    check(CudaFunction(function), function, arguments())
    assert driver.count("cuMemcpyDtoHAsync") > 2, "the host computes it"


@needs_compiler
@pytest.mark.parametrize("position", [0, 6])
def test_a_check_that_fails_in_a_loop_is_reported_with_its_message(driver, position):
    def gathered(weights: Any, start: Any, x: Any) -> Any:
        rows = lg.astype(x[:, 0, 0], lg.int64)
        return lg.scan(lambda state, row: (state @ weights, state[row]), start, rows)[1]

    function = traced(gathered)
    compiled = CudaFunction(function)
    inputs = arguments()
    inputs[2][:] = 2.0
    check(compiled, function, inputs)
    inputs[2][position] = 4.0
    for run in (lambda: compiled(*inputs), lambda: evaluate(function, *inputs)):
        with pytest.raises(KernelCheckError, match="out of range for axis 0"):
            run()
    inputs[2][position] = 3.0
    check(compiled, function, inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_device_runs_loops_over_tensors(name):
    function = traced(PROGRAMS[name])
    compiled = CudaFunction(function)
    for seed in range(3):
        check(compiled, function, arguments(seed))
