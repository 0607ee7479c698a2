"""Linear algebra on the device equals NumPy's, including failures, without host steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f32, f64, scalar_of_dtype
from livegrad.ops.decompositions import cholesky
from livegrad.ops.solving import det, inv, solve, triangular_solve
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries import device_linalg, linalg_kernels
from livegrad.runtime.cuda.libraries.linalg_kernels import SLOTS, source_of
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.runtime.reference import evaluate
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver
from tests.runtime.cuda.test_layout import COMPILED_FOR, parameters_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
SIZES = [1, 40]
TOLERANCES = {"float32": 2e-4, "float64": 1e-11}

OPS: dict[str, tuple[Callable[..., Any], int]] = {  # functions and their operands
    "cholesky": (cholesky, 1),
    "det": (det, 1),
    "inv": (inv, 1),
    "solve": (solve, 2),
    "lower": (lambda a, b: triangular_solve(a, b, lower=True), 2),
    "upper": (lambda a, b: triangular_solve(a, b, lower=False), 2),
}


def matrices(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Well conditioned matrices that need pivoting; symmetric only for Cholesky."""
    size = shape[-1]
    system = np.random.default_rng(size).uniform(-1, 1, shape)
    if name == "cholesky":
        return (system @ np.swapaxes(system, -1, -2) + np.eye(size)).astype(dtype)
    if name in ("lower", "upper"):
        return (system / size + np.eye(size)).astype(dtype)
    return (np.flip(np.eye(size), 0) + system / size).astype(dtype)


def function_and_arguments(
    name: str, dtype: str, size: int, batch: tuple[int, ...] = (), side_batch: tuple[int, ...] = (), columns: int = 3
) -> tuple[Function, list[Any]]:
    call, count = OPS[name]
    sides = np.random.default_rng(size).uniform(-1, 1, (*side_batch, size, columns)).astype(dtype)
    arguments = [matrices(name, (*batch, size, size), dtype), sides][:count]
    element = scalar_of_dtype(np.dtype(dtype))
    return trace(call, *[Tensor(element, argument.shape) for argument in arguments]), arguments


def check_on_the_device(function: Function, arguments: list[Any], dtype: str) -> None:
    actual, expected = CudaFunction(function)(*arguments), evaluate(function, *arguments)
    pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


@needs_compiler
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("dtype", "size"), [*[("float64", size) for size in SIZES], ("float32", 33)])
def test_an_op_computes_what_numpy_computes_and_stays_on_the_device(driver, name, dtype, size):
    check_on_the_device(*function_and_arguments(name, dtype, size), dtype)
    statuses = 0 if name == "det" else 1
    assert driver.count("cuMemcpyDtoHAsync") == 1 + statuses, "the result and whether it failed, nothing on the way"


@needs_compiler
@pytest.mark.parametrize("name", ["det", "inv", "solve"])
def test_more_rows_than_registers_hold_are_factored_in_memory(driver, monkeypatch, name):
    monkeypatch.setattr(linalg_kernels, "_ROWS_PER_THREAD", ())
    check_on_the_device(*function_and_arguments(name, "float64", 40), "float64")


@needs_compiler
@pytest.mark.parametrize(("size", "rows"), [(60, 1), (70, 2), (140, 4)])
def test_a_thread_has_several_rows_in_registers(driver, monkeypatch, size, rows):
    for module in (linalg_kernels, device_linalg):  # fewer threads, so that small matrices have more rows than threads
        monkeypatch.setattr(module, "PANEL_THREADS", 64)
    assert linalg_kernels.rows_per_thread(size, 8) == rows
    check_on_the_device(*function_and_arguments("solve", "float64", size, columns=1), "float64")


@needs_compiler
@pytest.mark.parametrize("name", OPS)
def test_batches_are_computed_together(driver, name):
    check_on_the_device(*function_and_arguments(name, "float64", 9, (2, 2), (2, 2)), "float64")
    launches = driver.count("cuLaunchKernel")
    check_on_the_device(*function_and_arguments(name, "float64", 9), "float64")
    assert driver.count("cuLaunchKernel") == 2 * launches


@needs_compiler
@pytest.mark.parametrize("name", ["solve", "lower", "upper"])
@pytest.mark.parametrize(("batch", "side_batch"), [((3,), ()), ((), (3,))])
def test_one_matrix_or_right_hand_side_is_broadcast_to_a_batch(driver, name, batch, side_batch):
    check_on_the_device(*function_and_arguments(name, "float64", 5, batch, side_batch, 140), "float64")
    assert driver.count("cuMemcpyDtoHAsync") == 2


@needs_compiler
def test_the_gradient_of_a_cholesky_factor_stays_on_the_device_but_for_products(driver):
    function, (matrix,) = function_and_arguments("cholesky", "float64", 40)
    weights = np.random.default_rng(1).normal(size=(40, 40))
    check_on_the_device(lg.vjp(function), [matrix, weights], "float64")


FAILURES = {
    "cholesky": "Matrix is not positive definite",
    "inv": "Singular matrix",
    "solve": "Singular matrix",
    "lower": "Singular matrix",
    "upper": "Singular matrix",
}


@needs_compiler
@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("position", [37])
def test_a_failure_equals_numpys_and_the_next_run_is_right(driver, name, position):
    check_failure(name, position)


def check_failure(name: str, position: int) -> None:
    function, arguments = function_and_arguments(name, "float64", 40)
    wrong = arguments[0].copy()
    wrong[position] = wrong[:, position] = 0.0
    compiled = CudaFunction(function)
    with pytest.raises(KernelCheckError, match=FAILURES[name]):
        compiled(wrong, *arguments[1:])
    with pytest.raises(KernelCheckError, match=FAILURES[name]):
        evaluate(function, wrong, *arguments[1:])
    np.testing.assert_allclose(compiled(*arguments), evaluate(function, *arguments), atol=1e-11)


@needs_compiler
def test_a_singular_matrix_has_the_determinant_zero(driver):
    function, (matrix,) = function_and_arguments("det", "float64", 40)
    matrix[7] = 0.0
    assert CudaFunction(function)(matrix) == 0.0


@pytest.mark.parametrize("architecture", COMPILED_FOR)
@pytest.mark.parametrize("element", [f32, f64])
def test_the_kernels_compile_and_take_one_struct_of_slots(architecture, element):
    cubin = compile_source(source_of(element, 2000), architecture)
    names = ("cholesky_block", "solve_block", "subtract_product", "pivot_columns", "pivot_panel", "exchange_rows")
    for symbol in ("fill", *names):
        assert parameters_of(cubin, symbol) == [(0, 8 * len(SLOTS))]


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("size", "batch"), [(1, ()), (31, (7,)), (100, ()), (300, (3,)), (1100, ())])
def test_a_device_computes_what_numpy_computes(name, dtype, size, batch):
    check_on_the_device(*function_and_arguments(name, dtype, size, batch, batch, 50), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAILURES)
def test_a_device_reports_failures(name):
    check_failure(name, 37)


@needs_compiler
@pytest.mark.parametrize("name", OPS)
def test_many_small_matrices_are_one_kernel(driver, name):
    check_on_the_device(*function_and_arguments(name, "float64", 3, (70,), (70,)), "float64")
    assert driver.count("cuLaunchKernel") == 0, "a kernel of the graph, and no calls that are captured"
