"""Loops over independent points with small tensors become maps of loops; others stay loops over tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.tensors.tracing import trace_call
from tests.schedule.plans import host_ops

POINTS = 101


def run(program: Callable[..., Any], *arrays: np.ndarray, loops: int = 0) -> None:
    """Compares the program with and without the pass, and counts the loops over tensors that the pass leaves."""
    function = trace_call(program, [lg.asarray(array).type for array in arrays], "program").function
    source = CpuFunction(function)
    usual, other = source.schedule(), source.schedule(target=CPU.without("interchange_point_loops"))
    assert sum(name.endswith("_loop") for name in host_ops(usual)) == loops
    assert (str(usual) != str(other)) == (not loops)
    found = CompiledPlan.from_plan(usual, run_function).run(list(arrays))
    wanted = CompiledPlan.from_plan(other, run_function).run(list(arrays))
    for own, right in zip(found, wanted, strict=True):
        assert own.dtype == right.dtype
        assert own.shape == right.shape
        np.testing.assert_allclose(own, right, 1e-12, 1e-12)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape)


@pytest.mark.parametrize("iterations", [-1, 0, 1, 7])
@pytest.mark.parametrize("shape", [(3, POINTS), (POINTS, 3), (2, POINTS, 3), (3, 40, 30)])
def test_small_dimensions_belong_to_points(shape: tuple[int, ...], iterations: int) -> None:
    axis = shape.index(3)

    def program(x: Any, iterations: Any) -> Any:
        def step(i: Any, s: Any) -> Any:
            length = lg.sqrt(lg.sum(s * s, axis=axis, keepdims=True))
            return lg.flip(s, axis=axis) / (1.0 + length) + 0.1 * lg.max(s, axis=axis, keepdims=True)

        return lg.fori_loop(0, iterations, step, x)

    run(program, numbers(*shape), np.asarray(iterations))


def test_points_read_tensors_that_do_not_change_and_know_where_they_are() -> None:
    def program(x: Any, table: Any) -> Any:
        places = lg.arange(POINTS)

        def step(i: Any, state: Any) -> Any:
            s, total = state
            others = x[0, (places + i) % POINTS] + table[i, lg.astype(lg.abs(s[0]) * 3.0, lg.int64) % 5]
            return lg.stack([s[1], lg.sin(s[0] + others)]), total + 1.5

        return lg.fori_loop(0, 6, step, (x, lg.zeros((), dtype=lg.float64)))

    run(program, numbers(2, POINTS), numbers(6, 5))


def test_loops_and_branches_inside_become_those_of_a_point() -> None:
    def program(x: Any, sides: Any) -> Any:
        def step(state: Any) -> Any:
            k, s = state

            def nearer(j: Any, best: Any) -> Any:
                return lg.minimum(best, lg.sum((s - sides[j][:, None]) ** 2, axis=0))

            nearest = lg.fori_loop(0, 4, nearer, 1e9 + 0.0 * s[0])
            s = lg.cond(k % 2 == 0, lambda s: s * 0.5, lambda s: s + nearest, s)
            return k + 1, s

        return lg.while_loop(lambda state: state[0] < 5, step, (lg.zeros((), dtype=lg.int64), x))

    run(program, numbers(3, POINTS), numbers(4, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, np.complex128])
def test_points_have_any_element_type(dtype: Any) -> None:
    def program(x: Any) -> Any:
        return lg.fori_loop(0, 3, lambda i, s: lg.stack([s[1] + s[0] * s[1], s[0] - s[1]]), x)

    run(program, (numbers(2, POINTS) * 2.0).astype(np.int8).astype(dtype))


@pytest.mark.parametrize(
    "step",
    [
        lambda i, s: s - lg.mean(s, axis=1, keepdims=True),
        lambda i, s: lg.roll(s, 1, axis=1) + lg.sum(s, axis=0),
        lambda i, s: s[:, ::-1] * lg.sum(s, axis=0),
        lambda i, s: lg.cumulative_sum(s, axis=1) * 0.1,
    ],
)
def test_points_that_meet_stay_in_a_loop_over_tensors(step: Callable[[Any, Any], Any]) -> None:
    run(lambda x: lg.fori_loop(0, 3, step, x), numbers(2, POINTS), loops=1)


def test_an_index_out_of_range_names_the_line() -> None:
    def program(x: Any, table: Any) -> Any:
        return lg.fori_loop(0, 3, lambda i, s: s * lg.sum(s, axis=0) + table[i + 3], x)

    with pytest.raises(lg.LivegradError, match=r"out of range.*\n?.*test_interchange_point_loops.py"):
        np.asarray(lg.jit(program)(lg.asarray(numbers(2, POINTS)), lg.asarray(numbers(5))))
