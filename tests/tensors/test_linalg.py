"""Linear algebra: each function against NumPy or its definition, real and complex, with errors and derivatives."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import livegrad as lg

DTYPES = ("float32", "float64", "complex64", "complex128")


def draw(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


def hermitian(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    x = draw(shape, dtype)
    return x + np.conj(np.swapaxes(x, -1, -2))


def positive(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    x = draw(shape, dtype)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + 2 * np.eye(shape[-1], dtype=dtype)


def real_of(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def complex_of(dtype: str) -> str:
    return {"float32": "complex64", "float64": "complex128"}.get(dtype, dtype)


def assert_close(found: lg.Tensor, expected: Any, dtype: str | None = None) -> None:
    value = found.numpy()
    assert value.dtype == np.dtype(dtype or expected.dtype)
    assert value.shape == np.shape(expected)
    digits = 2e-4 if value.dtype in (np.float32, np.complex64) else 1e-10
    np.testing.assert_allclose(value, expected, rtol=digits, atol=digits)


# --- systems, inverses, determinants ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_and_inverses_match_numpy(dtype: str) -> None:
    a, sides, vector = draw((2, 3, 3), dtype), draw((4, 1, 3, 5), dtype, 1), draw((3,), dtype, 2)
    assert_close(lg.linalg.solve(lg.asarray(a), lg.asarray(sides)), np.linalg.solve(a, sides))
    expected = np.linalg.solve(a, np.broadcast_to(vector, (2, 3))[..., None])[..., 0]
    assert_close(lg.linalg.solve(lg.asarray(a), lg.asarray(vector)), expected)
    assert_close(lg.linalg.inv(lg.asarray(a)), np.linalg.inv(a))
    assert_close(lg.linalg.det(lg.asarray(a)), np.linalg.det(a))
    for part, wanted in zip(lg.linalg.slogdet(lg.asarray(a)), np.linalg.slogdet(a), strict=True):
        assert_close(part, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (3, 3)])
def test_pseudo_inverses_match_numpy(shape: Any, dtype: str) -> None:
    x = draw(shape, dtype)
    assert_close(lg.linalg.pinv(lg.asarray(x)), np.linalg.pinv(x))
    x[..., 0, :] = x[..., 1, :]  # one rank less
    assert_close(lg.linalg.pinv(lg.asarray(x), rtol=1e-3), np.linalg.pinv(x, rcond=1e-3))


def test_a_singular_matrix_raises_and_names_the_line() -> None:
    singular = lg.ones((2, 2))
    for function in (lg.linalg.inv, lambda x: lg.linalg.solve(x, lg.ones(2))):
        with pytest.raises(lg.LivegradError, match=r"ingular.*") as caught:
            function(singular).execute()
        assert "test_linalg.py" in str(caught.value)
    with pytest.raises(lg.LivegradError, match="ositive definite") as caught:
        lg.linalg.cholesky(-lg.ones((2, 2))).execute()
    assert "test_linalg.py" in str(caught.value)


def test_matrices_of_the_wrong_shape_or_type_raise() -> None:
    with pytest.raises(lg.ShapeError, match=r"`inv` takes matrices \(test_linalg.py.*square matrices.*\(2, 3\)"):
        lg.linalg.inv(lg.ones((2, 3)))
    with pytest.raises(lg.ShapeError, match="at least two dimensions"):
        lg.linalg.svd(lg.ones(3))
    with pytest.raises(lg.ShapeError, match="as many rows"):
        lg.linalg.solve(lg.ones((2, 2)), lg.ones((3, 1)))
    with pytest.raises(lg.DtypeError, match="does not support f16"):
        lg.linalg.det(lg.ones((2, 2), dtype=lg.float16))
    assert lg.linalg.inv(lg.asarray([[2, 0], [0, 4]])).dtype == lg.float32


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, -1, -2])
def test_powers_of_matrices_match_numpy(n: int) -> None:
    x = draw((2, 3, 3))
    assert_close(lg.linalg.matrix_power(lg.asarray(x), n), np.linalg.matrix_power(x, n))
    with pytest.raises(lg.UsageError, match="takes an integer"):
        lg.linalg.matrix_power(lg.asarray(x), 0.5)  # type: ignore[arg-type]


# --- factorisations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_factors_multiply_to_the_matrix(dtype: str) -> None:
    x = positive((2, 3, 3), dtype)
    lower, upper = lg.linalg.cholesky(lg.asarray(x)), lg.linalg.cholesky(lg.asarray(x), upper=True)
    assert_close(lower, np.linalg.cholesky(x))
    assert_close(upper, np.conj(np.swapaxes(np.linalg.cholesky(x), -1, -2)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (3, 3)])
def test_qr_factors_multiply_to_the_matrix(shape: Any, dtype: str) -> None:
    x = draw(shape, dtype)
    for mode in ("reduced", "complete"):
        q, r = lg.linalg.qr(lg.asarray(x), mode=mode)
        assert_close(q @ r, x)
        assert_close(
            lg.conj(lg.matrix_transpose(q)) @ q,
            np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], q.shape[-1], q.shape[-1])),
            dtype,
        )
        assert_close(r, np.triu(r.numpy()))
    with pytest.raises(lg.UsageError, match="no mode 'full'"):
        lg.linalg.qr(lg.asarray(x), mode="full")


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_and_eigenvectors_belong_together(dtype: str) -> None:
    x = hermitian((2, 3, 3), dtype)
    values, vectors = lg.linalg.eigh(lg.asarray(x))
    assert_close(values, np.linalg.eigvalsh(x), real_of(dtype))
    assert_close(lg.linalg.eigvalsh(lg.asarray(x)), np.linalg.eigvalsh(x), real_of(dtype))
    assert_close(lg.asarray(x) @ vectors, vectors.numpy() * values.numpy()[..., None, :])
    general = draw((2, 3, 3), dtype)
    values, vectors = lg.linalg.eig(lg.asarray(general))
    assert_close(lg.asarray(general) @ vectors, vectors.numpy() * values.numpy()[..., None, :], complex_of(dtype))
    assert_close(lg.linalg.eigvals(lg.asarray(general)), values.numpy(), complex_of(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (3, 3)])
def test_singular_values_and_vectors_multiply_to_the_matrix(shape: Any, dtype: str) -> None:
    x = draw(shape, dtype)
    left, values, right = lg.linalg.svd(lg.asarray(x), full_matrices=False)
    assert_close((left * lg.astype(values, left.dtype)[..., None, :]) @ right, x)
    assert_close(values, np.linalg.svd(x, compute_uv=False), real_of(dtype))
    assert_close(lg.linalg.svdvals(lg.asarray(x)), values.numpy())
    full = lg.linalg.svd(lg.asarray(x))
    assert full.U.shape == (*shape[:-2], shape[-2], shape[-2])
    assert full.Vh.shape == (*shape[:-2], shape[-1], shape[-1])


def test_all_results_of_a_factorisation_are_computed_at_once() -> None:
    parts = lg.linalg.svd(lg.asarray(draw((4, 3))))
    parts.S.execute()
    assert all(part.is_computed for part in parts)
    lg.reset_stats()
    lg.asarray(parts.U).execute()
    assert lg.stats().library_calls == 0


def test_the_rank_counts_singular_values() -> None:
    x = np.stack([np.eye(3), np.diag([1.0, 1e-3, 0.0]), np.zeros((3, 3))])
    tensor = lg.asarray(x)
    assert lg.linalg.matrix_rank(tensor).tolist() == [3, 2, 0]
    assert lg.linalg.matrix_rank(tensor, rtol=1e-2).tolist() == [3, 1, 0]
    assert lg.linalg.matrix_rank(tensor, rtol=lg.asarray([2.0, 0.0, 0.0], dtype=lg.float64)).tolist() == [0, 2, 0]
    assert lg.linalg.matrix_rank(lg.zeros((4, 0))).item() == 0
    with pytest.raises(lg.LivegradError, match=r"test_linalg\.py"):
        lg.linalg.matrix_rank(tensor, rtol=lg.ones(2))


# --- norms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "dtype"),
    [(order, "float64") for order in (0, 1, 2, 3, 2.5, -1, -2, 0.5, np.inf, -np.inf)]
    + [(order, dtype) for order in (0, 2, 2.5, np.inf) for dtype in ("float32", "complex64")],
)
def test_norms_of_vectors_match_numpy(order: float, dtype: str) -> None:
    x = draw((3, 4), dtype)
    expected = np.linalg.norm(x, order, axis=1, keepdims=True)
    found = lg.linalg.vector_norm(lg.asarray(x), axis=1, keepdims=True, ord=order)
    assert_close(found, expected, real_of(dtype))
    if order == 2:
        expected = np.asarray(np.linalg.norm(x.reshape(-1), order))
        assert_close(lg.linalg.vector_norm(lg.asarray(x), ord=order), expected, real_of(dtype))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_of_matrices_match_numpy(order: Any, dtype: str) -> None:
    x = draw((2, 3, 4), dtype)
    expected = np.linalg.norm(x, order, axis=(1, 2), keepdims=True)
    assert_close(lg.linalg.matrix_norm(lg.asarray(x), ord=order, keepdims=True), expected, real_of(dtype))


def test_a_norm_of_the_smallest_order_is_infinite() -> None:
    assert lg.linalg.vector_norm(lg.ones(2), ord=1e-200).item() == np.inf


def test_norms_of_nothing_are_zero_and_of_no_order_an_error() -> None:
    assert lg.linalg.vector_norm(lg.zeros((2, 0)), axis=1, ord=np.inf).tolist() == [0.0, 0.0]
    assert lg.linalg.matrix_norm(lg.zeros((0, 3)), ord=1).item() == 0.0
    with pytest.raises(lg.UsageError, match=r"no order 3 \(test_linalg.py"):
        lg.linalg.matrix_norm(lg.ones((2, 2)), ord=3)
    with pytest.raises(lg.UsageError, match="takes a number"):
        lg.linalg.vector_norm(lg.ones(2), ord="fro")  # type: ignore[arg-type]


def test_a_norm_at_zero_has_the_derivative_zero() -> None:
    for function in (lg.linalg.vector_norm, lg.linalg.matrix_norm):
        assert lg.grad(function)(lg.zeros((2, 2))).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert lg.grad(lambda x: lg.linalg.vector_norm(x, ord=3))(lg.zeros(2)).tolist() == [0.0, 0.0]


# --- diagonals and products ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 5), (2, 5, 3), (1, 4), (4, 1), (0, 3)])
@pytest.mark.parametrize("offset", [0, 1, -3, 7])
def test_diagonals_and_traces_match_numpy(offset: int, shape: Any) -> None:
    x = np.arange(int(np.prod(shape))).reshape(shape)
    expected = np.diagonal(x, offset, -2, -1)
    np.testing.assert_array_equal(lg.linalg.diagonal(lg.asarray(x), offset=offset).numpy(), expected)
    np.testing.assert_array_equal(lg.linalg.trace(lg.asarray(x), offset=offset).numpy(), expected.sum(-1))


def test_a_trace_takes_the_type_of_a_sum() -> None:
    x = lg.asarray(np.full((3, 3), 100, np.int8))
    assert (int(lg.linalg.trace(x)), lg.linalg.trace(x).dtype) == (300, lg.int64)
    assert lg.linalg.trace(x, dtype=lg.float64).dtype == lg.float64


def test_outer_and_cross_products_match_numpy() -> None:
    a, b = draw((3,), "complex64"), draw((4,), "complex64", 1)
    assert_close(lg.linalg.outer(lg.asarray(a), lg.asarray(b)), np.outer(a, b))
    with pytest.raises(lg.ShapeError, match="takes vectors"):
        lg.linalg.outer(lg.ones((2, 2)), lg.ones(2))
    a, b = draw((5, 1, 3)), draw((4, 3), seed=1)
    assert_close(lg.linalg.cross(lg.asarray(a), lg.asarray(b)), np.cross(a, b))
    a, b = draw((3, 5)), draw((3, 5), seed=1)
    assert_close(lg.linalg.cross(lg.asarray(a), lg.asarray(b), axis=0), np.cross(a, b, axis=0))
    with pytest.raises(lg.ShapeError, match="three components along axis -1"):
        lg.linalg.cross(lg.asarray(a), lg.asarray(b))


# --- derivatives -----------------------------------------------------------------------------------------------------

CHECKS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (lg.linalg.solve, (draw((2, 3, 3)), draw((3, 2)))),
    "solve vector": (lg.linalg.solve, (draw((2, 3, 3)), draw((3,)))),
    "inv": (lg.linalg.inv, (draw((2, 3, 3)),)),
    "pinv tall": (lg.linalg.pinv, (draw((2, 4, 3)),)),
    "pinv of coinciding values": (lg.linalg.pinv, (2.0 * np.eye(3),)),
    "det": (lg.linalg.det, (draw((2, 3, 3)),)),
    "det of a singular matrix": (lg.linalg.det, (np.diag([1.0, 2.0, 3.0, 0.0]),)),
    "slogdet": (lambda x: lg.linalg.slogdet(x).logabsdet, (draw((2, 3, 3)),)),
    "matrix_power": (lambda x: lg.linalg.matrix_power(x, 3), (draw((3, 3)),)),
    "inverse matrix_power": (lambda x: lg.linalg.matrix_power(x, -2), (draw((3, 3)),)),
    "cholesky": (lambda x: lg.linalg.cholesky(x @ lg.matrix_transpose(x), upper=True), (draw((3, 3)),)),
    "qr": (lambda x: tuple(lg.linalg.qr(x)), (draw((4, 3)),)),
    "eigh": (lambda x: tuple(lg.linalg.eigh(x + lg.matrix_transpose(x))), (draw((3, 3)),)),
    "eigvalsh": (lambda x: lg.linalg.eigvalsh(x + lg.matrix_transpose(x)), (draw((3, 3)),)),
    "eigvals": (lambda x: lg.sum(lg.real(lg.linalg.eigvals(x) ** 3)), (draw((3, 3)),)),
    "svd": (lambda x: tuple(lg.linalg.svd(x, full_matrices=False)), (draw((4, 3)),)),
    "svdvals": (lg.linalg.svdvals, (draw((2, 3, 4)),)),
    "vector_norm": (lambda x: lg.linalg.vector_norm(x, axis=0), (draw((3, 4)),)),
    "vector_norm 3": (lambda x: lg.linalg.vector_norm(x, axis=0, ord=3), (draw((3, 4)),)),
    "vector_norm inf": (lambda x: lg.linalg.vector_norm(x, axis=0, ord=np.inf), (draw((3, 4)),)),
    "matrix_norm fro": (lg.linalg.matrix_norm, (draw((2, 3, 4)),)),
    "matrix_norm nuc": (lambda x: lg.linalg.matrix_norm(x, ord="nuc"), (draw((2, 3, 4)),)),
    "matrix_norm 2": (lambda x: lg.linalg.matrix_norm(x, ord=2), (draw((3, 4)),)),
    "matrix_norm 1": (lambda x: lg.linalg.matrix_norm(x, ord=1), (draw((3, 4)),)),
    "diagonal": (lambda x: lg.linalg.diagonal(x, offset=-1), (draw((2, 3, 4)),)),
    "trace": (lg.linalg.trace, (draw((2, 3, 4)),)),
    "outer": (lg.linalg.outer, (draw((3,)), draw((2,)))),
    "cross": (lg.linalg.cross, (draw((2, 1, 3)), draw((4, 3)))),
}


@pytest.mark.parametrize("name", CHECKS)
def test_linear_algebra_has_the_derivative_of_finite_differences(name: str) -> None:
    function, arguments = CHECKS[name]
    lg.check_gradients(function, *arguments)


@pytest.mark.parametrize("name", ["inv", "pinv tall", "vector_norm"])
def test_linear_algebra_has_second_derivatives(name: str) -> None:
    function, arguments = CHECKS[name]
    lg.check_gradients(lg.grad(lambda x: lg.sum(function(x) ** 2)), *arguments)


def test_values_that_are_not_unique_have_no_derivative() -> None:
    with pytest.raises(lg.DifferentiationError, match="full_matrices=False"):
        lg.grad(lambda x: lg.sum(lg.linalg.svd(x).U))(lg.asarray(draw((4, 3)))).execute()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_determinants_of_small_matrices_are_kernels(size: int) -> None:
    """One LAPACK call per small matrix would take a hundred times as long."""
    made = np.random.default_rng(3).standard_normal((5, 4, size, size))
    x = lg.asarray(made)
    before = lg.stats().library_calls
    np.testing.assert_allclose(lg.linalg.det(x).numpy(), np.linalg.det(made), rtol=1e-12)
    slope = lg.grad(lambda a: lg.sum(lg.linalg.det(a)))(x).numpy()
    assert lg.stats().library_calls == before
    np.testing.assert_allclose(
        slope, np.linalg.det(made)[..., None, None] * np.linalg.inv(made).swapaxes(-1, -2), rtol=1e-9
    )


def exact_determinant(matrix: Any) -> Fraction:
    (a, b, c), (d, e, f), (g, h, i) = [[Fraction(float(x)) for x in row] for row in matrix]
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


@pytest.mark.parametrize(("dtype", "condition"), [("float32", 1e4), ("float64", 1e4), ("float64", 1e8)])
def test_determinants_of_nearly_singular_matrices_have_as_many_digits_as_the_condition_leaves(
    dtype: str, condition: float
) -> None:
    """A cofactor expansion loses digits with the square of the condition number: all of them here."""
    rng = np.random.default_rng(3)
    turns = np.linalg.qr(rng.standard_normal((2, 50, 3, 3)))[0]
    matrices = (turns[0] * [1.0, 1 / condition, 0.5 / condition] @ turns[1]).astype(dtype)
    exact = np.array([float(exact_determinant(m)) for m in matrices])
    x = lg.asarray(matrices)
    with_gradient = lg.vmap(lg.value_and_grad(lg.linalg.det))
    for found in (lg.linalg.det(x), lg.jit(lg.linalg.det)(x), with_gradient(x)[0], lg.jit(with_gradient)(x)[0]):
        np.testing.assert_allclose(found.numpy(), exact, rtol=8 * condition * float(np.finfo(dtype).eps))


def test_determinants_of_three_rows_have_derivatives_of_every_order_at_singular_matrices() -> None:
    for x in (np.zeros((3, 3)), np.diag([0.0, 2.0, 3.0]), np.arange(1.0, 10.0).reshape(3, 3), np.ones((3, 3))):
        cofactors = np.array([[np.cross(x[(i + 1) % 3], x[(i + 2) % 3]) for i in range(3)]])[0]
        np.testing.assert_allclose(lg.grad(lg.linalg.det)(lg.asarray(x)).numpy(), cofactors, atol=1e-13)
        second = lg.hessian(lg.linalg.det)(lg.asarray(x)).numpy()
        steps = np.eye(9).reshape(9, 3, 3)
        for i, first in enumerate(steps):
            for j, other in enumerate(steps):  # a cubic polynomial: its differences are its derivatives
                both = [exact_determinant(x + s * first + t * other) for s in (1, -1) for t in (1, -1)]
                expected = float(both[0] - both[1] - both[2] + both[3]) / 4
                assert second.reshape(9, 9)[i, j] == pytest.approx(expected, abs=1e-12)
