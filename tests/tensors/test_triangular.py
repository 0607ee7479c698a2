"""Triangular systems and systems of a Cholesky factor: NumPy's values, both modes of derivatives, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from tests.tensors.test_linalg import DTYPES, assert_close, draw, positive


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("sides", [(5,), (5, 2), (3, 1, 5, 2)])
def test_only_one_triangle_is_read(dtype: str, lower: bool, unit_diagonal: bool, sides: tuple[int, ...]) -> None:
    a, b = draw((2, 5, 5), dtype) + 4 * np.eye(5, dtype=dtype), draw(sides, dtype, 1)
    triangle = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        triangle = triangle * (1 - np.eye(5, dtype=dtype)) + np.eye(5, dtype=dtype)
    columns = np.broadcast_to(b, (2, 5))[..., None] if len(sides) == 1 else b
    expected = np.linalg.solve(triangle, columns)
    found = lg.linalg.solve_triangular(lg.asarray(a), lg.asarray(b), lower=lower, unit_diagonal=unit_diagonal)
    assert_close(found, expected[..., 0] if len(sides) == 1 else expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("sides", [(6,), (6, 3), (2, 6, 1)])
def test_a_factor_solves_systems_of_its_matrix(dtype: str, upper: bool, sides: tuple[int, ...]) -> None:
    a, b = positive((6, 6), dtype), draw(sides, dtype, 1)
    factor = lg.linalg.cholesky(lg.asarray(a), upper=upper)
    assert_close(lg.linalg.cho_solve(factor, lg.asarray(b), upper=upper), np.linalg.solve(a, b))


def likelihood(x: Any, y: Any) -> Any:
    factor = lg.linalg.cholesky(x @ lg.matrix_transpose(x) + 3.0 * lg.eye(4, dtype=x.dtype))
    return lg.sum(y * lg.linalg.cho_solve(factor, y)) + lg.sum(lg.log(lg.linalg.diagonal(factor)))


def substituted(x: Any, y: Any) -> Any:
    return lg.sum(lg.sin(lg.linalg.solve_triangular(x + 3.0 * lg.eye(4, dtype=x.dtype), y, unit_diagonal=False)))


def with_ones(x: Any, y: Any) -> Any:
    return lg.sum(lg.linalg.solve_triangular(x, y, lower=True, unit_diagonal=True) ** 2)


@pytest.mark.parametrize("loss", [likelihood, substituted, with_ones])
@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_agree_with_differences_in_both_modes_and_to_second_order(loss: Any, compiled: bool) -> None:
    arguments = [draw((4, 4)) * 0.5, draw((4,), seed=1)]
    directions = [draw((4, 4), seed=2), draw((4,), seed=3)]

    def at(step: float) -> list[Any]:
        return [lg.asarray(x + step * d) for x, d in zip(arguments, directions, strict=True)]

    def slope(*x: Any) -> Any:
        return lg.jvp(loss, list(x), [lg.asarray(d) for d in directions])[1]

    wrap = lg.jit if compiled else lambda f: f
    difference = (float(loss(*at(1e-6))) - float(loss(*at(-1e-6)))) / 2e-6
    gradients = wrap(lg.grad(loss, argnums=(0, 1)))(*at(0.0))
    backward = sum(float(lg.sum(g * lg.asarray(d))) for g, d in zip(gradients, directions, strict=True))
    assert backward == pytest.approx(difference, rel=1e-6)
    assert float(wrap(slope)(*at(0.0))) == pytest.approx(difference, rel=1e-6)
    second = (float(slope(*at(1e-5))) - float(slope(*at(-1e-5)))) / 2e-5
    found = wrap(lambda *x: lg.jvp(slope, list(x), [lg.asarray(d) for d in directions])[1])(*at(0.0))
    assert float(found) == pytest.approx(second, rel=1e-5)


def test_members_of_a_batch_are_solved_independently() -> None:
    a, b = positive((3, 4, 4)), draw((3, 4), seed=1)
    solve = lg.vmap(lambda a, b: lg.linalg.cho_solve(lg.linalg.cholesky(a), b))
    assert_close(solve(lg.asarray(a), lg.asarray(b)), np.linalg.solve(a, b[..., None])[..., 0])


def test_bad_input_says_what_to_write() -> None:
    a, b = lg.eye(3), lg.ones(3)
    with pytest.raises(lg.LivegradError, match="as many rows"):
        lg.linalg.solve_triangular(a, lg.ones(4))
    with pytest.raises(lg.LivegradError, match="`lower` of `solve_triangular` must be True or False"):
        lg.linalg.solve_triangular(a, b, lower=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(lg.LivegradError, match="takes the factor alone"):
        lg.linalg.cho_solve((a, True), b)
    with pytest.raises(lg.LivegradError):
        lg.linalg.cho_solve(lg.ones((3, 2)), b)
