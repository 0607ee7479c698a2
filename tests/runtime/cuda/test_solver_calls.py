"""cuSOLVER and cuBLAS compute linear algebra as NumPy does: layouts, batches, failures, and what our kernels keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, c64, c128, f32, f64, scalar_of_dtype
from livegrad.ops.decompositions import cholesky
from livegrad.ops.solving import inv, solve, triangular_solve
from livegrad.ops.spectra import eigh, eigvalsh
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries import cusolver
from livegrad.runtime.cuda.libraries.solver_kernels import SLOTS, source_of
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.runtime.reference import evaluate
from tests.runtime.cuda.fake_solver import FakeSolver, install
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.test_layout import ARCHITECTURES, parameters_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
OPS: dict[str, Any] = {
    "cholesky": cholesky,
    "inv": inv,
    "solve": solve,
    "lower": lambda a, b: triangular_solve(a, b, lower=True),
    "upper": lambda a, b: triangular_solve(a, b, lower=False),
    "eigh": eigh,
    "eigvalsh": eigvalsh,
}
TOLERANCES = {"f": 5e-5, "d": 1e-11, "F": 5e-5, "D": 1e-11}


def matrices(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    random, size = np.random.default_rng(shape[-1]), shape[-1]
    system = random.uniform(-1, 1, shape) + (1j * random.uniform(-1, 1, shape) if dtype in "FD" else 0)
    if name in ("cholesky", "eigh", "eigvalsh"):
        matrix = system / size + np.diag(np.arange(1.0, size + 1))
    elif name in ("lower", "upper"):
        matrix = system / size + np.eye(size)
    else:
        matrix = np.flip(np.eye(size), 0) + system / size
    return matrix.astype(dtype)


def case(name: str, dtype: str, size: int, columns: int, batches: Any = ((), ())) -> tuple[Function, list[Any]]:
    random, (batch, side_batch) = np.random.default_rng(5), batches
    sides = random.uniform(-1, 1, (*side_batch, size, columns)).astype(dtype)
    arguments = [matrices(name, (*batch, size, size), dtype), sides][: 2 if name in ("solve", "lower", "upper") else 1]
    element = scalar_of_dtype(np.dtype(dtype))
    return trace(OPS[name], *[Tensor(element, argument.shape) for argument in arguments]), arguments


def check(function: Function, arguments: list[Any], dtype: str) -> None:
    actual, expected = CudaFunction(function)(*arguments), evaluate(function, *arguments)
    pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSolver]:
    with simulated() as driver:
        yield install(monkeypatch, driver)


CASES = [("d", 5, 1, ((), ())), ("D", 4, 3, ((), ())), ("f", 35, 2, ((), ())), ("F", 3, 2, ((2, 2), (2, 2)))]


@needs_compiler
@pytest.mark.parametrize(("dtype", "size", "columns", "batches"), CASES)
@pytest.mark.parametrize("name", OPS)
def test_the_libraries_are_called_for_the_layouts_of_tensors(fake, name, dtype, size, columns, batches):
    check(*case(name, dtype, size, columns, batches), dtype)
    assert fake.called


@needs_compiler
@pytest.mark.parametrize("batches", [((3,), ()), ((3,), (3,))])
@pytest.mark.parametrize("name", ["solve", "lower"])
def test_one_side_is_solved_for_every_matrix(fake, name, batches):
    check(*case(name, "D", 4, 3, batches), "D")
    assert fake.called


@needs_compiler
@pytest.mark.parametrize("name", ["lower", "upper"])
def test_one_triangle_is_used_for_every_side(fake, name):
    check(*case(name, "D", 4, 3, ((), (3,))), "D")
    assert fake.called


@needs_compiler
@pytest.mark.parametrize(("name", "message"), [
    ("cholesky", "not positive definite"), ("inv", "Singular"), ("solve", "Singular"), ("lower", "Singular")
])  # fmt: skip
def test_failures_are_reported_and_the_next_run_is_right(fake, name, message):
    function, arguments = case(name, "d", 6, 2)
    wrong = arguments[0].copy()
    wrong[3] = wrong[:, 3] = 0.0
    compiled = CudaFunction(function)
    with pytest.raises(KernelCheckError, match=message):
        compiled(wrong, *arguments[1:])
    np.testing.assert_allclose(compiled(*arguments), evaluate(function, *arguments), atol=1e-11)


@needs_compiler
def test_our_kernels_compute_what_the_libraries_are_not_chosen_for(fake):
    check(*case("lower", "d", 4, 3, ((5,), (5,))), "d")
    assert not fake.called


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("element", [f32, f64, c64, c128])
def test_the_kernels_compile_and_take_one_struct_of_slots(architecture, element):
    cubin = compile_source(source_of(element), architecture)
    for symbol in ("transpose", "hermitian", "lower", "vectors", "copy", "identity", "check", "pointers"):
        assert parameters_of(cubin, symbol) == [(0, 8 * len(SLOTS))]


@pytest.mark.gpu
@pytest.mark.parametrize(("size", "columns", "batches"), [
    (1, 1, ((), ())), (33, 1, ((), ())), (300, 7, ((), ())), (40, 3, ((5,), (5,))), (700, 2, ((), ())),
])  # fmt: skip
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", OPS)
def test_a_device_computes_what_numpy_computes(name, dtype, size, columns, batches):
    if dtype in "FD" and not cusolver.is_available():
        pytest.skip("the host computes complex matrices without cuSOLVER")
    if size > 512 and name.startswith("eig"):
        pytest.skip("rotations take minutes")
    function, arguments = case(name, dtype, size, columns, batches)
    actual, expected = CudaFunction(function)(*arguments), evaluate(function, *arguments)
    pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-3 if dtype in "fF" else 1e-9, atol=TOLERANCES[dtype] * size)
