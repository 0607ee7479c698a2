"""The few largest or smallest elements of rows are found by native code, in the order that sorting gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep
from livegrad.tensors.tracing import trace_call
from tests.schedule.plans import host_ops

# Rows of 66,000 are too long for kernels, and a sample bounds their elements first.
LENGTHS = (5, 40, 1025, 66_000)


def run(program: Callable[[Any], Any], x: np.ndarray, loops: bool = True) -> list[np.ndarray]:
    """The results, which are those of sorting."""
    function = trace_call(program, [lg.asarray(x).type], "program").function
    usual, other = compile_plan(function, CPU), compile_plan(function, CPU.without("select_by_insertion"))
    assert "top_positions" in host_ops(other)
    compiled = CompiledPlan.from_plan(usual, run_function)
    assert compiled.only_kernels == loops
    found = compiled.run([x])
    wanted = CompiledPlan.from_plan(other, run_function).run([x])
    for own, right in zip(found, wanted, strict=True):
        assert own.dtype == right.dtype
        np.testing.assert_array_equal(own, right)
    return found


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64", "float32", "float64"])
def test_elements_of_each_type_are_found_in_order(dtype: str, largest: bool) -> None:
    x = np.random.default_rng(0).integers(0 if dtype[0] == "u" else -50, 50, (7, 300)).astype(dtype)  # many are equal
    values, positions = run(lambda x: lg.top_k(x, 4, largest=largest), x)
    order = np.argsort(-x.astype(np.float64) if largest else x, axis=1, stable=True)[:, :4]
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("order", ["up", "down", "alike", "nan", "infinite", "zeros"])
def test_rows_that_are_special(order: str, length: int, largest: bool) -> None:
    x = np.sort(np.random.default_rng(1).standard_normal((3, length)), axis=1)
    special = {
        "up": x,
        "down": x[:, ::-1].copy(),
        "alike": np.ones_like(x),
        "nan": np.where(np.arange(length) % 3 == 1, x, np.nan),
        "infinite": np.where(np.arange(length) % 2 == 0, x, np.where(x < 0.0, -np.inf, np.inf)),
        "zeros": np.where(np.arange(length) % 2 == 0, -0.0, 0.0) * np.ones((3, 1)),
    }[order]
    for count in (1, 3, 5):
        values, _ = run(lambda x, count=count: lg.top_k(x, count, largest=largest), special)
        wanted = np.take_along_axis(special, _stable_order(special, largest)[:, :count], 1)
        np.testing.assert_array_equal(np.signbit(values), np.signbit(wanted))


def _stable_order(x: np.ndarray, largest: bool) -> np.ndarray:
    if not largest:
        return np.argsort(x, axis=1, stable=True)
    return x.shape[1] - 1 - np.flip(np.argsort(np.flip(x, 1), axis=1, stable=True), 1)


@pytest.mark.parametrize("shape", [(20,), (4, 20), (3, 4, 20)])
def test_the_searched_axis_may_be_any(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape)
    for axis in range(len(shape)):
        values, _ = run(lambda x, axis=axis: lg.top_k(x, 2, axis=axis), x)
        np.testing.assert_array_equal(values, -np.sort(-x, axis=axis).take([0, 1], axis))


def test_many_are_sorted_and_none_are_not_searched_for() -> None:
    x = np.random.default_rng(3).standard_normal((4, 300))
    run(lambda x: lg.top_k(x, 40), x, loops=False)
    run(lambda x: lg.top_k(x, 0), x, loops=False)


def test_the_gradient_goes_to_the_elements_that_were_found() -> None:
    x = np.random.default_rng(4).standard_normal((5, 30))
    gradient = lg.grad(lambda x: lg.sum(lg.top_k(x, 3)[0] ** 2))(lg.asarray(x))
    wanted = np.where(x >= -np.sort(-x, axis=1)[:, 2:3], 2.0 * x, 0.0)
    np.testing.assert_allclose(np.asarray(gradient), wanted)


def test_a_search_inside_a_loop_is_native() -> None:
    x = np.random.default_rng(5).standard_normal((6, 200))

    def trim(x: Any) -> Any:
        return lg.fori_loop(0, 4, lambda _, s: s - 0.1 * lg.sum(lg.top_k(s, 5)[0], axis=1)[:, None], x)

    plan = compile_plan(trace_call(trim, [lg.asarray(x).type], "trim").function, CPU)
    loops = [step.loop for step in plan.steps if isinstance(step, HostStep) and step.loop is not None]
    bodies = [loop.plan for loop in loops if loop.plan is not None]
    assert all(CompiledPlan.from_plan(body, run_function).only_kernels for body in bodies)
    expected = x
    for _ in range(4):
        expected = expected - 0.1 * np.sum(-np.sort(-expected, axis=1)[:, :5], axis=1)[:, None]
    np.testing.assert_allclose(np.asarray(lg.jit(trim)(lg.asarray(x))), expected)


@pytest.mark.parametrize("seed", range(10))
def test_random_rows(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, length = int(generator.integers(1, 30)), int(generator.integers(16, 3000))
    x = generator.integers(-5, 5, (rows, length)) + generator.choice([0.0, np.nan, np.inf], (rows, length))
    run(lambda x: lg.top_k(x, int(generator.integers(1, 17)), largest=bool(seed % 2)), x)
