"""Matrix factors multiply to the matrix, are unique, and have derivatives; failures name the user's line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import DifferentiationError, KernelCheckError, TypeRuleError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, c64, c128, f16, f32, f64
from livegrad.ops.aggregate import get
from livegrad.ops.conversion import cast
from livegrad.ops.decompositions import cholesky, qr
from livegrad.ops.linalg import matmul
from livegrad.ops.matrices import adjoint, over_rows
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled
from livegrad.ops.solving import cofactors, det, inv, pinv, slogdet, solve, triangular_solve
from livegrad.ops.spectra import eig, eigh, eigvals, eigvalsh, svd, svdvals
from livegrad.ops.transcendental import exp
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_first_order, check_orders, gradient_of

BOTH = pytest.mark.parametrize("scalar", [f64, c128], ids=str)
SINGLE = pytest.mark.parametrize("scalar", [f32, c64], ids=str)


def random_matrix(scalar: Scalar, *shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    imaginary = 1j * rng.standard_normal(shape) if scalar.kind == "complex" else 0.0
    return np.asarray(rng.standard_normal(shape) + imaginary, scalar.dtype)


def adjoint_of(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def run(op: Callable[..., Any], *arguments: Any, **attributes: Any) -> Any:
    types = [
        Tensor({"f": {4: f32, 8: f64}, "c": {8: c64, 16: c128}}[a.dtype.kind][a.itemsize], a.shape) for a in arguments
    ]
    return evaluate(trace(lambda *x: op(*x, **attributes), *types), *arguments)


@BOTH
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3), (2, 5, 2)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_vectors_and_values_multiply_to_the_matrix(scalar: Scalar, shape: tuple[int, ...], full: bool) -> None:
    x = random_matrix(scalar, *shape)
    left, values, right = run(svd, x, full_matrices=full)
    kept = values.shape[-1]
    np.testing.assert_allclose(left[..., :kept] * values[..., None, :] @ right[..., :kept, :], x, atol=1e-13)
    for vectors in (left, adjoint_of(right)):
        np.testing.assert_allclose(
            adjoint_of(vectors) @ vectors,
            np.broadcast_to(np.eye(vectors.shape[-1]), (*shape[:-2], *[vectors.shape[-1]] * 2)),
            atol=1e-13,
        )
    np.testing.assert_allclose(values, run(svdvals, x), atol=1e-13)


@BOTH
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3)])
def test_q_times_r_is_the_matrix(scalar: Scalar, mode: str, shape: tuple[int, ...]) -> None:
    x = random_matrix(scalar, *shape)
    q, r = run(qr, x, mode=mode)
    np.testing.assert_allclose(q @ r, x, atol=1e-13)
    np.testing.assert_array_equal(r, np.triu(r))
    assert not np.any(np.imag(np.diagonal(r, axis1=-2, axis2=-1)))


@BOTH
def test_eigenvectors_are_those_of_the_hermitian_part(scalar: Scalar) -> None:
    x = random_matrix(scalar, 2, 4, 4)
    values, vectors = run(eigh, x)
    hermitian = (x + adjoint_of(x)) / 2
    np.testing.assert_allclose(hermitian @ vectors, vectors * values[..., None, :], atol=1e-13)
    np.testing.assert_allclose(values, run(eigvalsh, x), atol=1e-13)
    lower = run(cholesky, x @ adjoint_of(x))
    np.testing.assert_allclose(lower @ adjoint_of(lower), x @ adjoint_of(x), atol=1e-12)


@BOTH
def test_eigenvectors_of_any_matrix_have_length_one(scalar: Scalar) -> None:
    x = random_matrix(scalar, 3, 4, 4)
    values, vectors = run(eig, x)
    np.testing.assert_allclose(x @ vectors, vectors * values[..., None, :], atol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), 1.0, atol=1e-13)
    np.testing.assert_allclose(np.sort_complex(values[0]), np.sort_complex(run(eigvals, x)[0]), atol=1e-12)


@BOTH
def test_vectors_are_turned_until_their_deciding_component_is_real_and_positive(scalar: Scalar) -> None:
    x = random_matrix(scalar, 5, 4, 4)
    for vectors in (run(eigh, x)[1], run(eig, x)[1], run(svd, x, full_matrices=False)[0]):
        magnitude = np.abs(vectors)
        place = np.argmax(2 * magnitude >= magnitude.max(axis=-2, keepdims=True), axis=-2, keepdims=True)
        deciding: Any = np.take_along_axis(vectors, place, axis=-2)
        assert np.all(deciding.real > 0)
        np.testing.assert_allclose(deciding.imag, 0, atol=1e-15)


@SINGLE
def test_single_precision_stays_single(scalar: Scalar) -> None:
    x = random_matrix(scalar, 3, 3)
    real = scalar.real.dtype
    assert [part.dtype for part in run(svd, x, full_matrices=True)] == [scalar.dtype, real, scalar.dtype]
    assert [part.dtype for part in run(eigh, x)] == [real, scalar.dtype]
    assert [part.dtype for part in run(eig, x)] == [np.complex64, np.complex64]
    assert [part.dtype for part in run(slogdet, x)] == [scalar.dtype, real]


# --- derivatives -----------------------------------------------------------------------------------------------------


@BOTH
def test_a_function_of_a_matrix_by_its_eigenvalues_differentiates(scalar: Scalar) -> None:
    """exp of a hermitian matrix, of which eigenvectors of any phase give the same."""

    def exponential(x: Node) -> Node:
        factors = eigh(x)
        values, vectors = get(factors, index=0), get(factors, index=1)
        powers = exp(values) if scalar is f64 else cast(exp(values), type=c128)
        return matmul(vectors * over_rows(powers, (3, 3)), adjoint(vectors))

    check_orders(trace(exponential, Tensor(scalar, (3, 3))), (random_matrix(scalar, 3, 3),), order=2, tolerance=1e-6)


@BOTH
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_a_determinant_has_a_derivative_at_singular_matrices(scalar: Scalar, rank: int) -> None:
    x = random_matrix(scalar, 4, rank) @ random_matrix(scalar, rank, 4, seed=1)
    check_first_order(trace(det, Tensor(scalar, (4, 4))), (x,), np.random.default_rng(2))


@BOTH
@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_determinants_have_all_derivatives_at_zero(scalar: Scalar, size: int) -> None:
    zeros = np.zeros((size, size), scalar.dtype)
    check_orders(trace(det, Tensor(scalar, (size, size))), (zeros,), order=3, tolerance=1e-6)


@BOTH
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_cofactors_are_the_determinant_times_the_inverse_turned(scalar: Scalar, size: int) -> None:
    x = random_matrix(scalar, 2, size, size)
    expected = np.linalg.det(x)[:, None, None] * np.swapaxes(np.linalg.inv(x), -1, -2)
    np.testing.assert_allclose(run(cofactors, x), expected, atol=1e-12)


@BOTH
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)])
def test_a_pseudo_inverse_of_any_rank_has_a_derivative_along_changes_that_keep_it(
    scalar: Scalar, shape: tuple[int, int]
) -> None:
    def inverse(a: Node, b: Node) -> Node:
        return pinv(matmul(a, b), filled(1e-8, Tensor(f64, ())))

    a, b = random_matrix(scalar, shape[0], 2), random_matrix(scalar, 2, shape[1], seed=1)
    function = trace(inverse, Tensor(scalar, a.shape), Tensor(scalar, b.shape))
    np.testing.assert_allclose(evaluate(function, a, b), np.linalg.pinv(a @ b, rcond=1e-8), atol=1e-12)
    check_orders(function, (a, b), order=2, tolerance=1e-6)


def test_equal_eigenvalues_have_derivatives_as_long_as_vectors_are_not_asked_for() -> None:
    for op in (eigvalsh, svdvals, lambda x: get(eigh(x), index=0), lambda x: get(svd(x, full_matrices=False), index=1)):
        function = trace(lambda x, op=op: reduce(op(x), kind="sum", axes=(0,)), Tensor(f64, (3, 3)))
        (gradient,) = gradient_of(function, 2.0 * np.eye(3))
        np.testing.assert_allclose(gradient, np.eye(3), atol=1e-15)
    vectors = trace(lambda x: reduce(get(eigh(x), index=1), kind="sum", axes=(0, 1)), Tensor(f64, (3, 3)))
    assert not np.all(np.isfinite(gradient_of(vectors, 2.0 * np.eye(3))[0])), "no number would be right here"


@pytest.mark.parametrize("shape", [(4, 2), (2, 4)])
def test_of_a_full_svd_only_the_free_vectors_have_no_derivative(shape: tuple[int, int]) -> None:
    free, bound = (0, 2) if shape[0] > shape[1] else (2, 0)
    type, x = Tensor(f64, shape), random_matrix(f64, *shape)
    for index in (1, bound):
        check_first_order(
            trace(lambda x, i=index: get(svd(x, full_matrices=True), index=i), type), (x,), np.random.default_rng(1)
        )
    function = trace(lambda x: get(svd(x, full_matrices=True), index=free), type)
    with pytest.raises(DifferentiationError, match=r"test_decompositions\.py.*full_matrices=False"):
        vjp(function)
    with pytest.raises(DifferentiationError, match="full_matrices=False"):
        evaluate(jvp(function), x, x)


def test_of_a_complete_qr_of_a_tall_matrix_only_r_has_a_derivative() -> None:
    type, x = Tensor(f64, (4, 2)), random_matrix(f64, 4, 2)
    r = trace(lambda x: get(qr(x, mode="complete"), index=1), type)
    check_first_order(r, (x,), np.random.default_rng(1))
    with pytest.raises(DifferentiationError, match='mode="reduced"'):
        vjp(trace(lambda x: get(qr(x, mode="complete"), index=0), type))


# --- failures and sizes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "message"),
    [(inv, "Singular matrix"), (lambda x: solve(x, x), "Singular matrix"), (cholesky, "not positive definite")],
)
def test_a_matrix_that_cannot_be_taken_apart_is_an_error_with_a_place(op: Any, message: str) -> None:
    function = trace(lambda x: op(x), Tensor(f64, (2, 2)))
    for backend in (evaluate, run_function):
        with pytest.raises(KernelCheckError, match=message) as caught:
            backend(function, np.array([[1.0, 2.0], [2.0, 4.0]]) - 1e-300 * np.eye(2) - (op is cholesky) * np.eye(2))
        assert caught.value.where is not None
        assert caught.value.where.file.endswith("test_decompositions.py")


def test_batches_may_be_of_symbolic_size() -> None:
    n = Dimension.symbol("n")
    function = trace(lambda a, b: (solve(a, b), det(a), eigvalsh(a)), Tensor(f64, (n, 3, 3)), Tensor(f64, (3, 2)))
    for size in (1, 4):
        a, b = random_matrix(f64, size, 3, 3), random_matrix(f64, 3, 2)
        for actual, expected in zip(run_function(function, a, b), evaluate(function, a, b), strict=True):
            np.testing.assert_array_equal(actual, expected)
    gradient = vjp(function)
    assert gradient.result_types == function.parameter_types
    square = Tensor(f32, (n, n))
    assert svd(parameter(0, square), full_matrices=False).type.elements[1] is Tensor(f32, (n,))  # type: ignore[attr-defined]
    with pytest.raises(TypeRuleError, match="which of n and 3 is smaller"):
        svd(parameter(0, Tensor(f32, (n, 3))), full_matrices=False)


def test_what_no_library_takes_is_refused() -> None:
    for type in (Tensor(f16, (2, 2)), Tensor(f32, (2, 3)), Tensor(f32, (2,))):
        with pytest.raises(TypeRuleError):
            inv(parameter(0, type))
    with pytest.raises(TypeRuleError, match="as many rows"):
        triangular_solve(parameter(0, Tensor(f32, (2, 2))), parameter(1, Tensor(f32, (3, 2))), lower=True)
