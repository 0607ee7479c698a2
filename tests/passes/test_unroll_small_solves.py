"""Factorisations of many small matrices are kernels with lanes across them: the values and errors of LAPACK."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.types import f32, f64
from livegrad.ops.solving import triangular_solve
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep
from livegrad.tensors.handle import node_of, wrap
from livegrad.tensors.tracing import trace_call
from tests.schedule.plans import host_ops

PASS = "unroll_small_solves"


def triangular(lower: bool) -> Any:
    return lambda a, b: wrap(triangular_solve(node_of(a, "solve"), node_of(b, "solve"), lower=lower))


PROGRAMS: dict[str, Any] = {
    "solve": lg.linalg.solve,
    "inv": lambda a, b: lg.linalg.inv(a),
    "det": lambda a, b: lg.linalg.det(a),
    "cholesky": lambda a, b: lg.linalg.cholesky(a @ lg.matrix_transpose(a) + 0.5 * lg.eye(a.shape[-1], dtype=a.dtype)),
    "lower": triangular(True),
    "upper": triangular(False),
    "transposed": lambda a, b: lg.linalg.solve(lg.matrix_transpose(a), b) * 2.0,
}


def run(program: Any, arrays: list[Any], *left_out: str) -> tuple[Any, list[str]]:
    function = trace_call(program, [lg.asarray(array).type for array in arrays], "program").function
    plan = CpuFunction(function).schedule(target=CPU.without(*left_out))
    (found,) = CompiledPlan.from_plan(plan, run_function).run(arrays)
    return found, host_ops(plan)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_matrices_have_the_values_of_lapack(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    size, sides = int(random.integers(1, 9)), int(random.integers(1, 4))
    size = max(size, 4) if name == "det" else size  # smaller ones are products from the start
    batch = [(64,), (3, 50), (1000,), (67,)][seed % 4]
    dtype = f64.dtype if seed % 2 else f32.dtype
    a = random.normal(size=(*batch, size, size)) + (3.0 * np.eye(size) if name in ("lower", "upper") else 0.0)
    arrays = [a.astype(dtype), random.normal(size=(*batch, size, sides)).astype(dtype)]
    found, steps = run(PROGRAMS[name], arrays)
    expected, before = run(PROGRAMS[name], arrays, PASS)
    assert len(before) == len(steps) + 1
    condition = np.linalg.cond(arrays[0].astype(np.float64)).reshape(*batch, *[1] * (found.ndim - len(batch)))
    error = np.abs(found - expected) / (np.abs(expected).max(initial=1.0) * np.maximum(condition, 1.0))
    assert error.max() < 200.0 * np.finfo(dtype).eps


def test_pivots_that_are_zero_are_exchanged() -> None:
    """A permutation matrix with zeros on its diagonal; its determinant is a sign."""
    random = np.random.default_rng(0)
    orders = np.array([random.permutation(6) for _ in range(100)])
    a, b = np.eye(6)[orders], random.normal(size=(100, 6, 2))
    np.testing.assert_array_equal(run(lg.linalg.solve, [a, b])[0], np.linalg.solve(a, b))
    np.testing.assert_array_equal(run(PROGRAMS["det"], [a, b])[0], np.linalg.det(a))


def test_the_determinant_of_a_singular_matrix_is_zero() -> None:
    a = np.random.default_rng(1).normal(size=(80, 5, 5))
    a[::2, :, 3] = 0.0
    a[1::4] = 0.0
    found, _ = run(lg.linalg.det, [a])
    assert np.all(found[::2] == 0.0)
    assert np.all(found[1::4] == 0.0)
    np.testing.assert_allclose(found[3::4], np.linalg.det(a[3::4]), rtol=1e-9)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lg.linalg.solve, "Singular matrix"),
        (lambda a, b: lg.linalg.inv(a), "Singular matrix"),
        (triangular(True), "Singular matrix"),
        (lambda a, b: lg.linalg.cholesky(a), "not positive definite"),
    ],
)
def test_a_singular_matrix_among_many_is_an_error(program: Any, message: str) -> None:
    a, b = np.tile(np.eye(4), (70, 1, 1)), np.ones((70, 4, 1))
    a[41] = 0.0
    with pytest.raises(KernelCheckError, match=message):
        np.asarray(lg.jit(program)(lg.asarray(a), lg.asarray(b)))


def test_gradients_of_many_systems_are_kernels_in_both_modes() -> None:
    random = np.random.default_rng(2)
    a, b = random.normal(size=(64, 3, 3)) + 3.0 * np.eye(3), random.normal(size=(64, 3, 1))

    def energy(a: Any) -> Any:
        return lg.sum(lg.linalg.solve(a, lg.asarray(b)) ** 2)

    reverse = np.asarray(lg.grad(energy)(lg.asarray(a)))
    direction = random.normal(size=a.shape)
    _, forward = lg.jvp(energy, (lg.asarray(a),), (lg.asarray(direction),))
    np.testing.assert_allclose(np.sum(reverse * direction), float(forward), rtol=1e-9)
    step = 1e-6
    ahead, behind = (np.sum(np.linalg.solve(a + s * direction, b) ** 2) for s in (step, -step))
    np.testing.assert_allclose(float(forward), (ahead - behind) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("shape", [(63, 4, 4), (64, 9, 9), (4, 4), (0, 4, 4)])
def test_few_or_larger_matrices_stay_with_lapack(shape: tuple[int, ...]) -> None:
    assert run(lambda a: lg.linalg.inv(a), [np.zeros(shape) + np.eye(shape[-1])])[1] == ["inv"]


def in_scan(name: str) -> Any:
    """A scan whose state a small system, inverse, determinant or factor changes."""

    def program(a: Any, b: Any) -> Any:
        def step(state: Any, given: Any) -> Any:
            matrix, side = given
            size = matrix.shape[-1]
            found = PROGRAMS[name](matrix + 0.1 * lg.sin(state) + 3.0 * lg.eye(size, dtype=matrix.dtype), side)
            return state * 0.5 + lg.reshape(lg.tanh(lg.mean(found)), (1, 1)), lg.sum(found)

        last, sums = lg.scan(step, a[0] * 0.2, (a, b))
        return lg.sum(last) + lg.sum(sums)

    return program


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("size", [1, 3, 6])
def test_a_small_matrix_in_each_iteration_of_a_loop_needs_no_host_step(name: str, size: int) -> None:
    random = np.random.default_rng(size)
    arrays = [random.normal(size=(9, size, size)), random.normal(size=(9, size, 2))]

    def both(a: Any, b: Any) -> Any:
        value, gradient = lg.value_and_grad(in_scan(name))(a, b)
        return lg.concat([lg.reshape(value, (1,)), lg.reshape(gradient, (-1,))])

    found, expected = (run(both, arrays, *left_out)[0] for left_out in ((), (PASS,)))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    plan = CpuFunction(trace_call(both, [lg.asarray(array).type for array in arrays], "p").function).schedule(
        target=CPU
    )
    solves = {"solve", "inv", "det", "cholesky", "triangular_solve"}
    bodies = [step.loop.plan for step in plan.steps if isinstance(step, HostStep) and step.loop is not None]
    assert bodies
    assert not [op for body in bodies if body is not None for op in host_ops(body) if op in solves]


def test_a_singular_matrix_in_a_loop_is_an_error() -> None:
    a = lg.asarray(np.stack([np.eye(3), np.zeros((3, 3))]))
    with pytest.raises(KernelCheckError, match="Singular matrix"):
        np.asarray(lg.jit(lambda a: lg.scan(lambda s, m: (s + lg.linalg.inv(m), None), a[0], a)[0])(a))
