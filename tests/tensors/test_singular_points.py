"""Derivatives at singular points, and where precision is easily lost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import livegrad as lg

INF = float("inf")


# --- spreads and sums of exponentials --------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", [0, 1])
def test_the_deviation_of_equal_elements_has_the_derivative_zero(correction: int) -> None:
    gradient = lg.grad(lambda x: lg.sum(lg.std(x, axis=1, correction=correction)))
    found = np.asarray(gradient(lg.asarray([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]], dtype=lg.float64)))
    scale = np.sqrt(2.0 / (3 - correction)) * (3 - correction)
    np.testing.assert_allclose(found, [[0.0, 0.0, 0.0], [-1.0 / scale, 0.0, 1.0 / scale]], atol=1e-15)
    second = lg.hessian(lambda x: lg.std(x, correction=correction))(lg.asarray([2.0, 2.0, 2.0]))
    assert not np.any(np.asarray(second))


@pytest.mark.parametrize(
    ("x", "shares"),
    [
        ([-INF, -INF], [0.5, 0.5]),
        ([-INF, -INF, -INF, -INF], [0.25] * 4),
        ([INF, 1.0], [1.0, 0.0]),
        ([INF, -INF, INF], [0.5, 0.0, 0.5]),
        ([-INF, 1.0], [0.0, 1.0]),
    ],
)
def test_infinite_elements_share_the_derivative_of_logsumexp(x: list[float], shares: list[float]) -> None:
    point = lg.asarray(x, dtype=lg.float64)
    assert float(lg.logsumexp(point)) == np.logaddexp.reduce(x)
    np.testing.assert_allclose(np.asarray(lg.grad(lg.logsumexp)(point)), shares, rtol=1e-15)
    forward = [float(lg.jvp(lg.logsumexp, [point], [lg.asarray(row)])[1]) for row in np.eye(len(x))]
    np.testing.assert_allclose(forward, shares, rtol=1e-15)


# --- complex numbers -------------------------------------------------------------------------------------------------

Z = np.array([1.0 + 2.0j, 3.0 - 1.0j])


@pytest.mark.parametrize("transform", [lg.jacfwd, lg.jacrev])
@pytest.mark.parametrize("function", [lg.conj, lambda z: z * lg.real(z), lambda z: z * lg.abs(z)])
def test_a_jacobian_of_a_function_that_is_not_holomorphic_raises(transform: Any, function: Any) -> None:
    with pytest.raises(lg.LivegradError, match="not holomorphic"):
        transform(function)(lg.asarray(Z)).numpy()


def test_a_forward_jacobian_of_real_results_by_complex_numbers_raises() -> None:
    with pytest.raises(lg.LivegradError, match=r"needs a holomorphic function .*found real results"):
        lg.jacfwd(lg.real)(lg.asarray(Z))


@pytest.mark.parametrize("transform", [lg.jacfwd, lg.jacrev])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda z: z * z, np.diag(2.0 * Z)),
        (lambda z: lg.mean(z), np.full(2, 0.5)),  # computed from its parts
        (lambda z: lg.fft.fft(z), np.array([[1.0, 1.0], [1.0, -1.0]])),
    ],
)
def test_a_jacobian_of_a_holomorphic_function_is_complex(transform: Any, function: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(transform(function)(lg.asarray(Z))), expected, atol=1e-14)


@pytest.mark.parametrize("transform", [lg.jacfwd, lg.jacrev])
def test_a_jacobian_of_complex_results_by_real_numbers_has_both_parts(transform: Any) -> None:
    found = transform(lambda x: x * (2.0 + 3.0j))(lg.asarray(np.array([1.0, 2.0])))
    np.testing.assert_allclose(np.asarray(found), np.eye(2) * (2.0 + 3.0j))


# --- pseudo-inverses -------------------------------------------------------------------------------------------------


def exact(x: Any) -> Any:
    return np.vectorize(Fraction, otypes=[object])(x)


def exact_inverse(a: Any) -> Any:
    """Gauss–Jordan elimination with fractions."""
    size = len(a)
    rows = np.concatenate([a, exact(np.eye(size))], axis=1)
    for i in range(size):
        pivot = next(j for j in range(i, size) if rows[j, i] != 0)
        rows[[i, pivot]] = rows[[pivot, i]]
        rows[i] = rows[i] / rows[i, i]
        for j in range(size):
            if j != i:
                rows[j] = rows[j] - rows[j, i] * rows[i]
    return rows[:, size:]


def exact_pinv(a: Any) -> Any:
    return exact_inverse(a.T @ a) @ a.T if a.shape[0] >= a.shape[1] else a.T @ exact_inverse(a @ a.T)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_second_derivatives_of_pseudo_inverses_keep_their_digits(shape: tuple[int, int]) -> None:
    """The error is the condition number times the precision, not its square."""
    random, condition = np.random.default_rng(3), 1e4
    small = min(shape)
    left, _ = np.linalg.qr(random.normal(size=(shape[0], small)))
    right, _ = np.linalg.qr(random.normal(size=(shape[1], small)))
    a = (left * np.geomspace(1.0, 1.0 / condition, small)) @ right.T
    v, w = random.normal(size=(2, *shape))
    step = Fraction(1, 10**20)
    moved = {(i, j): exact_pinv(exact(a) + i * step * exact(v) + j * step * exact(w)) for i in (1, -1) for j in (1, -1)}
    expected = (moved[1, 1] - moved[1, -1] - moved[-1, 1] + moved[-1, -1]) / (4 * step * step)
    expected = expected.astype(np.float64)

    def first(x: lg.Tensor) -> lg.Tensor:
        return lg.jvp(lg.linalg.pinv, [x], [lg.asarray(w)])[1]

    found = np.asarray(lg.jvp(first, [lg.asarray(a)], [lg.asarray(v)])[1])
    assert np.abs(found - expected).max() < 100 * condition * 2.0**-52 * np.abs(expected).max()
