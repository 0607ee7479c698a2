"""Manipulation functions: each against NumPy, with derivatives, and errors that name shapes and the user's line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

X = np.arange(24).reshape(2, 3, 4)

CASES: list[tuple[str, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = [
    # name, by livegrad, by NumPy: each of (namespace, array)
    ("broadcast_to", lambda n, x: n.broadcast_to(x, (5, 2, 3, 4)), lambda n, x: n.broadcast_to(x, (5, 2, 3, 4))),
    ("concat", lambda n, x: n.concat([x, x[:, :1], x], axis=1), lambda n, x: n.concat([x, x[:, :1], x], axis=1)),
    ("concat flat", lambda n, x: n.concat([x, x[0]], axis=None), lambda n, x: n.concat([x, x[0]], axis=None)),
    ("expand_dims", lambda n, x: n.expand_dims(x, axis=-2), lambda n, x: n.expand_dims(x, axis=-2)),
    ("expand_dims many", lambda n, x: n.expand_dims(x, axis=(0, -1)), lambda n, x: n.expand_dims(x, axis=(0, -1))),
    ("flip", lambda n, x: n.flip(x), lambda n, x: n.flip(x)),
    ("flip some", lambda n, x: n.flip(x, axis=(0, -1)), lambda n, x: n.flip(x, axis=(0, -1))),
    ("moveaxis", lambda n, x: n.moveaxis(x, 0, -1), lambda n, x: n.moveaxis(x, 0, -1)),
    ("moveaxis many", lambda n, x: n.moveaxis(x, (0, 1), (-1, 0)), lambda n, x: n.moveaxis(x, (0, 1), (-1, 0))),
    ("permute_dims", lambda n, x: n.permute_dims(x, (2, 0, -2)), lambda n, x: n.permute_dims(x, (2, 0, -2))),
    ("repeat", lambda n, x: n.repeat(x, 3, axis=1), lambda n, x: n.repeat(x, 3, axis=1)),
    ("repeat flat", lambda n, x: n.repeat(x, 2), lambda n, x: n.repeat(x, 2)),
    (
        "repeat each",
        lambda n, x: n.repeat(x, n.asarray([2, 0, 1]), axis=1),
        lambda n, x: n.repeat(x, [2, 0, 1], axis=1),
    ),
    ("reshape", lambda n, x: n.reshape(x, (4, -1)), lambda n, x: n.reshape(x, (4, -1))),
    ("reshape flat", lambda n, x: n.reshape(x, -1), lambda n, x: n.reshape(x, -1)),
    ("roll", lambda n, x: n.roll(x, 5), lambda n, x: n.roll(x, 5)),
    ("roll axis", lambda n, x: n.roll(x, -5, axis=2), lambda n, x: n.roll(x, -5, axis=2)),
    ("roll axes", lambda n, x: n.roll(x, (1, -1), axis=(0, 2)), lambda n, x: n.roll(x, (1, -1), axis=(0, 2))),
    ("squeeze", lambda n, x: n.squeeze(x[:, :1, :1], axis=(1,)), lambda n, x: n.squeeze(x[:, :1, :1], axis=(1,))),
    ("stack", lambda n, x: n.stack([x, x + 1], axis=-1), lambda n, x: n.stack([x, x + 1], axis=-1)),
    ("tile", lambda n, x: n.tile(x, (2, 1, 3)), lambda n, x: n.tile(x, (2, 1, 3))),
    ("tile more", lambda n, x: n.tile(x[0, 0], (2, 3)), lambda n, x: n.tile(x[0, 0], (2, 3))),
    ("tile fewer", lambda n, x: n.tile(x, (2,)), lambda n, x: n.tile(x, (2,))),
    ("unstack", lambda n, x: n.unstack(x, axis=1)[2], lambda n, x: n.unstack(x, axis=1)[2]),
    ("tril", lambda n, x: n.tril(x, k=-1), lambda n, x: n.tril(x, k=-1)),
    ("triu", lambda n, x: n.triu(x, k=1), lambda n, x: n.triu(x, k=1)),
    ("T", lambda n, x: x[0].T, lambda n, x: x[0].T),
    ("mT", lambda n, x: x.mT, lambda n, x: x.mT),
    ("transpose", lambda n, x: x.transpose(), lambda n, x: x.transpose()),
    ("transpose order", lambda n, x: x.transpose(1, 0, 2), lambda n, x: x.transpose(1, 0, 2)),
    ("method reshape", lambda n, x: x.reshape(3, -1), lambda n, x: x.reshape(3, -1)),
    ("flatten", lambda n, x: x.flatten(), lambda n, x: x.flatten()),
]


@pytest.mark.parametrize(("ours", "numpys"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("dtype", ["int64", "float32", "complex64", "bool"])
def test_elements_move_as_numpy_moves_them(
    ours: Callable[[Any, Any], Any], numpys: Callable[[Any, Any], Any], dtype: str
) -> None:
    x = X.astype(dtype)
    if dtype == "bool":
        x = X % 3 == 0
        x, ours, numpys = x, _without_sums(ours), _without_sums(numpys)
    expected, found = numpys(np, x), ours(lg, lg.asarray(x))
    assert found.shape == expected.shape
    assert found.dtype.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy(), expected)


def _without_sums(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Booleans cannot be added: the case adds to the corresponding numbers."""

    def act(namespace: Any, x: Any) -> Any:
        return function(namespace, namespace.astype(x, namespace.int8))

    return act


@pytest.mark.parametrize(("ours", "numpys"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_derivatives_move_back_to_where_the_elements_came_from(
    ours: Callable[[Any, Any], Any], numpys: Callable[[Any, Any], Any]
) -> None:
    x = X.astype(np.float64)
    weights = 1.0 + np.arange(numpys(np, x).size).reshape(numpys(np, x).shape)
    found = lg.grad(lambda t: lg.sum(ours(lg, t) * weights))(lg.asarray(x)).numpy()
    # The functions are linear, so each derivative is a difference.
    base = np.sum(numpys(np, x) * weights)
    expected = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        moved = x.copy()
        moved[place] += 1.0
        expected[place] = np.sum(numpys(np, moved) * weights) - base
    np.testing.assert_array_equal(found, expected)


def test_shapes_and_tensors_broadcast_together() -> None:
    assert lg.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    assert lg.broadcast_shapes() == ()
    x, y = lg.broadcast_arrays(lg.ones((2, 1)), lg.arange(3))
    assert (x.shape, y.shape, x.dtype, y.dtype) == ((2, 3), (2, 3), lg.float32, lg.int64)


def test_joining_promotes_types() -> None:
    assert lg.concat([lg.ones(1, dtype=lg.int8), lg.ones(1, dtype=lg.uint8)]).dtype == lg.int16
    assert lg.stack([lg.ones(1, dtype=lg.float32), lg.ones(1, dtype=lg.float64)]).dtype == lg.float64


def test_moving_elements_runs_no_kernel() -> None:
    x = lg.asarray(X)
    lg.reset_stats()
    lg.permute_dims(lg.reshape(lg.flip(x[:, ::2]), (4, -1)), (1, 0)).numpy()
    assert lg.stats().kernels_run == 0


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda x: lg.reshape(x, (5, -1)), lg.ShapeError, r"shape \(2, 3, 4\) cannot be reshaped to \(5, -1\)"),
        (
            lambda x: lg.reshape(x, (4, 5)),
            lg.ShapeError,
            r"\(2, 3, 4\) cannot be reshaped to \(4, 5\).*24 elements, found 20",
        ),
        (lambda x: lg.reshape(x, (-1, -1)), lg.ShapeError, "only one size"),
        (lambda x: lg.reshape(x, (float("inf"),)), lg.ShapeError, "takes integers for a shape"),
        (lambda x: lg.reshape(x, (-2, 12)), lg.ShapeError, "negative"),
        (lambda x: lg.broadcast_to(x, (3, 4)), lg.ShapeError, r"\(2, 3, 4\).*\(3, 4\)"),
        (lambda x: lg.broadcast_to(x, (2, 3, 5)), lg.ShapeError, r"\(2, 3, 4\) and \(2, 3, 5\)"),
        (lambda x: lg.concat([x, lg.ones((2, 2, 2))]), lg.ShapeError, r"\(2, 3, 4\) and \(2, 2, 2\)"),
        (lambda x: lg.concat([]), lg.UsageError, "needs tensors"),
        (lambda x: lg.stack([x, x[0]]), lg.ShapeError, r"\(2, 3, 4\) and \(3, 4\)"),
        (lambda x: lg.squeeze(x, 0), lg.ShapeError, "size 1"),
        (lambda x: lg.flip(x, axis=3), lg.AxisError, "no axis 3.*-3 to 2"),
        (lambda x: lg.flip(x, axis=(0, 0)), lg.AxisError, "repeated axis"),
        (lambda x: lg.permute_dims(x, (0, 1)), lg.AxisError, "each axis once"),
        (lambda x: lg.moveaxis(x, (0, 1), 0), lg.AxisError, "as many destinations"),
        (lambda x: lg.repeat(x, -1), lg.UsageError, "repetitions"),
        (lambda x: lg.repeat(x, [1, 2], axis=1), lg.ShapeError, r"\(3,\)"),
        (lambda x: x.T, lg.ShapeError, "matrices"),
        (lambda x: lg.tril(x[0, 0]), lg.ShapeError, "matrices"),
    ],
)
def test_invalid_manipulations_raise_at_the_call(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        act(lg.asarray(X))
    assert caught.value.where.file == __file__  # type: ignore[attr-defined]
