"""QR, eigenvalues and singular values on the device equal LAPACK's, without host steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, c64, c128, f32, f64, scalar_of_dtype
from livegrad.ops.decompositions import qr
from livegrad.ops.solving import slogdet
from livegrad.ops.spectra import eigh, eigvalsh, svd, svdvals
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries.factorisation_kernels import KERNELS, SLOTS, source_of
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.runtime.reference import evaluate
from livegrad.tensors.tracing import trace_call
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver
from tests.runtime.cuda.test_layout import COMPILED_FOR, parameters_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")

OPS: dict[str, Callable[..., Any]] = {
    "qr": lambda x: qr(x, mode="reduced"),
    "complete_qr": lambda x: qr(x, mode="complete"),
    "eigh": lambda x: eigh(x),
    "eigvalsh": lambda x: eigvalsh(x),
    "svd": lambda x: svd(x, full_matrices=False),
    "full_svd": lambda x: svd(x, full_matrices=True),
    "svdvals": lambda x: svdvals(x),
    "slogdet": lambda x: slogdet(x),
}
SQUARE = ("eigh", "eigvalsh", "slogdet")
TOLERANCES = {"f": 2e-5, "d": 1e-13, "F": 2e-5, "D": 1e-13}


def matrices(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Matrices with well separated singular values and eigenvalues, so that vectors are well defined."""
    random, inner = np.random.default_rng(shape[-1]), min(shape[-2:])
    matrix = random.normal(size=shape) * (0.2 / max(shape))
    matrix[..., range(inner), range(inner)] += np.linspace(0.2, 1.0, inner)[::-1] * (-1.0) ** np.arange(inner)
    if dtype in "FD":
        matrix = matrix + 1j * random.normal(size=shape) * (0.2 / max(shape))
    return matrix.astype(dtype)


def traced(name: str, values: np.ndarray[Any, Any]) -> Function:
    return trace(OPS[name], Tensor(scalar_of_dtype(values.dtype), values.shape), name=name)


def cases(*shapes: tuple[tuple[int, ...], str]) -> Any:
    """Each op for all shapes and element types that it supports."""
    fitting = [
        (name, shape, dtype)
        for name in OPS
        for shape, dtype in shapes
        if (shape[-1] == shape[-2] or name not in SQUARE) and (name != "slogdet" or dtype in "fd")
    ]
    return pytest.mark.parametrize(("name", "shape", "dtype"), fitting)


def tuple_of(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def check(name: str, values: np.ndarray[Any, Any], tolerance: float) -> None:
    function = traced(name, values)
    actual, expected = tuple_of(CudaFunction(function)(values)), tuple_of(evaluate(function, values))
    is_rectangular = values.shape[-1] != values.shape[-2]
    if name == "full_svd" and is_rectangular:
        left, singular, right = actual
        shared = singular.shape[-1]
        product = (left[..., :shared] * singular[..., None, :]) @ right[..., :shared, :]
        np.testing.assert_allclose(product, values, atol=tolerance * 10)
        for vectors in (left, right):
            unit = np.conj(np.swapaxes(vectors, -1, -2)) @ vectors
            np.testing.assert_allclose(unit, np.broadcast_to(np.eye(unit.shape[-1]), unit.shape), atol=tolerance * 10)
        actual, expected = (singular,), (expected[1],)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, atol=tolerance * max(values.shape), rtol=tolerance * 10)


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


@needs_compiler
@cases(((4, 4), "d"), ((2, 3, 3), "D"), ((5, 3), "D"), ((3, 4), "f"))
def test_a_factorisation_equals_lapacks_and_stays_on_the_device(driver, name, shape, dtype):
    check(name, matrices(shape, dtype), TOLERANCES[dtype])
    results = {"eigh": 2, "svd": 3, "full_svd": 3, "qr": 2, "complete_qr": 2, "slogdet": 2}.get(name, 1)
    statuses = 0 if name in ("qr", "complete_qr", "slogdet") else 1
    assert driver.count("cuMemcpyDtoHAsync") == results + statuses, "nothing on the way"


def check_without_full_rank() -> None:
    """Zero columns and equal columns: an orthogonal complement provides the missing unit vectors."""
    values = matrices((6, 4), "d")
    values[:, 1] = 0.0
    values[:, 3] = values[:, 0]
    left, singular, right = CudaFunction(traced("svd", values))(values)
    np.testing.assert_allclose((left * singular) @ right, values, atol=1e-14)
    np.testing.assert_allclose(left.T @ left, np.eye(4), atol=1e-14)
    np.testing.assert_allclose(singular, np.linalg.svd(values, compute_uv=False), atol=1e-14)
    for shape in ((3, 3), (2, 3)):
        left, singular, right = CudaFunction(traced("svd", np.zeros(shape)))(np.zeros(shape))
        assert not singular.any()
        np.testing.assert_array_equal(left.T @ left, np.eye(left.shape[-1]))


def check_hermitian_part() -> None:
    """Eigenvalues of both signs and equal magnitudes, of the mean of a matrix and its adjoint."""
    values = np.array([[0.0, 3.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    actual, vectors = CudaFunction(traced("eigh", values))(values)
    np.testing.assert_allclose(actual, [-1.0, 1.0, 1.0], atol=1e-15)
    part = (values + values.T) / 2
    np.testing.assert_allclose(part @ vectors, vectors * actual, atol=1e-14)


def check_scales() -> None:
    for scale in (1e-30, 1e30):
        values = matrices((3, 3), "f") * np.float32(scale)
        for name in ("qr", "svd", "eigh"):
            function = traced(name, values)
            for one, other in zip(CudaFunction(function)(values), evaluate(function, values), strict=True):
                np.testing.assert_allclose(one, other, atol=2e-6 * max(1.0, np.abs(other).max()))


def check_not_a_number() -> None:
    for name, message in (("svd", "SVD did not converge"), ("svdvals", "SVD did not converge")):
        values = matrices((3, 3), "d")
        function = traced(name, values)
        compiled = CudaFunction(function)
        bad = values.copy()
        bad[1, 1] = np.nan
        with pytest.raises(KernelCheckError, match=message):
            compiled(bad)
        for one, other in zip(tuple_of(compiled(values)), tuple_of(evaluate(function, values)), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-13)


CHECKS = (check_without_full_rank, check_hermitian_part, check_scales, check_not_a_number)


@needs_compiler
@pytest.mark.parametrize("special", CHECKS)
def test_special_matrices(driver, special):
    special()


@needs_compiler
def test_derivatives_of_eigenvectors_stay_on_the_device(driver):
    def loss(x: Any) -> Any:
        values, vectors = lg.linalg.eigh(x)
        return lg.sum(values * values[0]) + lg.sum(vectors[:, 0] ** 3)

    values = matrices((4, 4), "d")
    function = trace_call(lambda x: lg.grad(loss)(x), [Tensor(f64, (4, 4))], "gradient").function
    np.testing.assert_allclose(CudaFunction(function)(values), evaluate(function, values), rtol=1e-9, atol=1e-11)
    assert driver.count("cuMemcpyDtoHAsync") == 2, "the result and the status"


@pytest.mark.parametrize("architecture", COMPILED_FOR)
@pytest.mark.parametrize("element", [f32, c64, c128])
def test_the_kernels_compile_and_take_one_struct_of_slots(architecture, element):
    cubin = compile_source(source_of(element), architecture)
    for symbol in KERNELS:
        assert parameters_of(cubin, symbol) == [(0, 8 * len(SLOTS))]


@pytest.mark.gpu
@cases(*itertools.product([(1, 1), (3, 33, 33), (300, 6, 6), (130, 130), (200, 40), (40, 120)], "fdFD"))
def test_a_device_factors_like_lapack(name, dtype, shape):
    check(name, matrices(shape, dtype), TOLERANCES[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("special", CHECKS)
def test_a_device_factors_special_matrices(special):
    special()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_a_device_factors_large_matrices_with_the_same_bits_every_time(name):
    values = np.random.default_rng(0).normal(size=(700, 700))
    compiled = CudaFunction(traced(name, values))
    first, second = compiled(values), compiled(values)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    expected = (
        np.linalg.eigvalsh((values + values.T) / 2) if name == "eigh" else np.linalg.svd(values, compute_uv=False)
    )
    np.testing.assert_allclose(first[int(name == "svd")], expected, atol=1e-11)
