"""What JAX says of a program: values, tangents, gradients and their tangents, and how far its own rounding moves them.

`evaluate_by_jax` gives an `Expected`; `Close` compares results with it. Called by `tensors` and `loop_gradients`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import numpy as np

from tests.fuzz.jax_by_numpy import evaluate, evaluate_widely
from tests.fuzz.programs import Program

PERTURBATIONS = 6  # for the condition of a result that differs from JAX's
ILL_CONDITIONED = "ill-conditioned results"  # as they are counted

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


class Jax:
    """JAX under livegrad's names."""

    def __getattr__(self, name: str) -> Any:
        for module in (jnp, jax.nn, jax.lax, jax):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)

    @property
    def nn(self) -> Any:
        return self

    stop_gradient = staticmethod(jax.lax.stop_gradient)
    scan = staticmethod(jax.lax.scan)
    cond = staticmethod(jax.lax.cond)
    fori_loop = staticmethod(jax.lax.fori_loop)
    clip = staticmethod(jnp.clip)
    erf = staticmethod(jax.scipy.special.erf)
    logsumexp = staticmethod(jax.scipy.special.logsumexp)
    copy = staticmethod(jnp.copy)
    flip = staticmethod(jnp.flip)

    @staticmethod
    def gelu(x: Any) -> Any:
        return jax.nn.gelu(x, approximate=False)

    @staticmethod
    def cumulative_sum(x: Any, *, axis: int | None = None, include_initial: bool = False) -> Any:
        return jnp.cumulative_sum(x, axis=axis, include_initial=include_initial)

    @staticmethod
    def put(x: Any, key: Any, values: Any) -> Any:
        return x.at[key].set(values)

    @staticmethod
    def window(x: Any, starts: Any, sizes: Any) -> Any:
        return jax.lax.dynamic_slice(x, starts, sizes)

    @staticmethod
    def put_window(x: Any, starts: Any, sizes: Any, values: Any) -> Any:
        values = jnp.broadcast_to(jnp.asarray(values, x.dtype), sizes)
        return jax.lax.dynamic_update_slice(x, values, starts)

    @staticmethod
    def update_at(x: Any, key: Any, values: Any, name: str) -> Any:
        if name != "mul":
            return getattr(x.at[key], name)(values)
        # One after the other: JAX has no derivative of products at places that may be the same.
        places = np.arange(x.size).reshape(x.shape)[key]
        values = jnp.broadcast_to(values, places.shape).ravel()
        flat = x.ravel()
        for number, place in enumerate(places.ravel()):
            flat = flat.at[place].set(flat[place] * values[number])
        return flat.reshape(x.shape)

    @staticmethod
    def searchsorted(x: Any, y: Any, *, side: str) -> Any:
        return jnp.searchsorted(x, y, side=side).astype(jnp.int64)

    @staticmethod
    def argsort(x: Any, *, axis: int, descending: bool) -> Any:
        return jnp.argsort(x, axis=axis, descending=descending).astype(jnp.int64)

    @staticmethod
    def top_k(x: Any, k: int, *, axis: int, largest: bool) -> Any:
        moved = jnp.moveaxis(x, axis, -1)
        values, places = jax.lax.top_k(moved if largest else -moved, k)
        values = values if largest else -values
        return jnp.moveaxis(values, -1, axis), jnp.moveaxis(places, -1, axis).astype(jnp.int64)

    @staticmethod
    def while_loop(condition: Any, body: Any, state: Any, most: int) -> Any:
        """Unrolled: JAX has no reverse mode of a loop whose length is found as it runs."""
        for _ in range(most):
            holds, after = condition(state), body(state)
            state = jax.tree.map(lambda new, old, holds=holds: jnp.where(holds, new, old), after, state)
        return state

    @staticmethod
    def loop_by_count(iterations: Any, body: Any, state: Any, most: int) -> Any:
        """Unrolled too, into branches: those that are not taken have no part in derivatives."""
        for i in range(most):
            state = jax.lax.cond(i < iterations, lambda s, i=i: body(i, s), lambda s: s, state)
        return state

    loop_by_test = loop_by_count

    @staticmethod
    def layer_norm(x: Any, *, axis: int) -> Any:
        mean = jnp.mean(x, axis=axis, keepdims=True)
        return (x - mean) / jnp.sqrt(jnp.var(x, axis=axis, keepdims=True) + 1e-5)

    @staticmethod
    def cross_entropy(x: Any, target: Any) -> Any:
        picked = jnp.take_along_axis(x, target[..., None], axis=-1)[..., 0]
        return jax.scipy.special.logsumexp(x, axis=-1) - picked

    @staticmethod
    def one_hot(x: Any, classes: int, *, dtype: Any) -> Any:
        return jax.nn.one_hot(x, classes, dtype=dtype)

    @staticmethod
    def attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
        scores = q @ jnp.swapaxes(k, -1, -2) / float(np.sqrt(q.shape[-1]))  # a number of NumPy would make float64 of it
        if causal:
            scores = jnp.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ v

    @staticmethod
    def conv(x: Any, kernel: Any, *, strides: Any, padding: Any) -> Any:
        around = padding.upper() if isinstance(padding, str) else padding
        return jax.lax.conv_general_dilated(x, kernel, strides, around)

    @staticmethod
    def max_pool(x: Any, window: Any, *, strides: Any, padding: str) -> Any:
        return _pooled(x, window, strides, lambda parts: jnp.max(parts, axis=-1))

    @staticmethod
    def average_pool(x: Any, window: Any, *, strides: Any, padding: str) -> Any:
        return _pooled(x, window, strides, lambda parts: jnp.mean(parts, axis=-1))


def _pooled(x: Any, window: Any, strides: Any, fold: Any) -> Any:
    """Windows side by side along a new last axis, folded."""
    for axis, (width, stride) in enumerate(zip(window, strides, strict=True), start=2):
        starts = np.arange(0, x.shape[axis] - width + 1, stride)
        x = jnp.moveaxis(jnp.take(x, starts[:, None] + np.arange(width), axis=axis), axis + 1, -1)
    return fold(x.reshape(*x.shape[: len(window) + 2], -1))


class Expected:
    """What JAX says: results, tangents, gradients and their tangents, at each point; weights of the loss."""

    def __init__(
        self,
        weights: list[Any],
        points: list[Any],
        evaluate_at: Callable[[list[Any]], Any],
        evaluate_widely_at: Callable[[list[Any]], Any],
    ) -> None:
        self.weights = weights
        self.rows = [evaluate_at(point) for point in points]
        self._points, self._evaluate_at, self._evaluate_widely_at = points, evaluate_at, evaluate_widely_at

    @functools.cached_property
    def spreads(self) -> list[Any]:
        """For each number of `rows`, how far it moves when the arguments move by their rounding: its condition.

        Also how far it is from its value in float64: a function that saturates, such as a tanh of 1.0 in float32, does
        not move with its arguments. Where this is large against the tolerance, JAX's own result is one of many, and no
        library can be held to it.
        """
        numbers = np.random.default_rng(0)
        spreads: list[Any] = []
        for point, row in zip(self._points, self.rows, strict=True):
            moved = [self._evaluate_at([_move_by_rounding(a, numbers) for a in point]) for _ in range(PERTURBATIONS)]
            moved.append(self._evaluate_widely_at(point))
            spreads.append(jax.tree.map(lambda own, *others: _spread(own, others), row, *moved))
        return spreads


def _move_by_rounding(a: Any, numbers: np.random.Generator) -> Any:
    """Each element moves by up to four units in its last place."""
    return np.asarray(a * (1.0 + numbers.integers(-4, 5, size=a.shape) * np.finfo(a.dtype).eps), a.dtype)


def _spread(own: Any, others: Sequence[Any]) -> Any:
    """The largest distance of each element; infinite where it is finite in one evaluation and not in another."""
    own = np.asarray(own)
    if own.dtype.kind not in "fc":
        return np.zeros(own.shape)
    with np.errstate(invalid="ignore"):
        distances = [
            np.where((other == own) | (np.isnan(other) & np.isnan(own)), 0.0, np.abs(other - own)) for other in others
        ]
    return np.max(np.where(np.isfinite(distances), distances, np.inf), axis=0)


def _is_inexact(dtype: Any) -> bool:
    return np.dtype(dtype).kind in "fc"


def evaluate_by_jax(
    program: Program, points: Any, directions: Any, numbers: Any, check: bool = False, names: Any = None
) -> Expected:
    """`check` compares NumPy's evaluation of what JAX traces with JAX's own; `names` is what the program calls `xp`."""
    function = program.function(names or Jax())
    shapes = jax.eval_shape(function, *points[0])
    weights = [np.asarray(numbers.normal(size=s.shape)) for s in shapes]

    def inexact(*arguments: Any) -> Any:
        return [r for r in function(*arguments) if _is_inexact(r.dtype)]

    def loss(*arguments: Any) -> Any:
        return weighted_loss(jnp, function(*arguments), weights, program.float_type)

    every = tuple(range(len(directions)))

    def all_of_it(arguments: Any, tangents: Any) -> Any:
        moved = jax.jvp(inexact, tuple(arguments), tuple(tangents))[1]
        gradient, second = jax.jvp(jax.grad(loss, every), tuple(arguments), tuple(tangents))
        return function(*arguments), moved, list(gradient), list(second)

    traced, shape = jax.make_jaxpr(all_of_it, return_shape=True)(points[0], directions)
    structure = jax.tree.structure(shape)

    def evaluate_at(point: list[Any]) -> Any:
        return jax.tree.unflatten(structure, evaluate(traced, [*point, *directions], check))

    def evaluate_widely_at(point: list[Any]) -> Any:
        return jax.tree.unflatten(structure, evaluate_widely(traced, [*point, *directions]))

    return Expected(weights, points, evaluate_at, evaluate_widely_at)


def weighted_loss(xp: Any, results: list[Any], weights: list[Any], float_type: str) -> Any:
    total: Any = None
    for result, weight in zip(results, weights, strict=True):
        kind = getattr(result.dtype, "kind", "f")[0]  # "float" of livegrad, "f" of NumPy
        if kind not in "fc":
            continue
        weight = xp.asarray(weight.astype(float_type))
        if kind == "c":
            term = xp.sum(xp.real(result) * weight) + xp.sum(xp.imag(result) * weight * 0.7)
        else:
            term = xp.sum(result * weight)
        total = term if total is None else total + term
    return xp.sum(xp.zeros((1,), dtype=getattr(xp, float_type))) if total is None else total


VALUES, FORWARD, GRADIENT, SECOND_ORDER = range(4)  # what `all_of_it` returns


class Close:
    """Compares results with JAX's. What differs must be ill-conditioned by measurement; such results are counted."""

    def __init__(self, tolerance: float, expected: Expected) -> None:
        self.tolerance = tolerance
        self.expected = expected
        self.ill_conditioned = 0

    def __call__(self, what: str, found: list[Any], column: int, row: int = 0) -> None:
        expected = self.expected.rows[row][column]
        assert len(found) == len(expected), f"{what}: {len(found)} results, expected {len(expected)}"
        for k, (own, other) in enumerate(zip(found, expected, strict=True)):
            own, other = np.asarray(own), np.asarray(other)
            assert own.shape == other.shape, f"{what} {k}: shape {own.shape}, JAX {other.shape}"
            assert own.dtype.kind == other.dtype.kind, f"{what} {k}: type {own.dtype}, JAX {other.dtype}"
            if own.dtype.kind not in "fc":
                np.testing.assert_array_equal(own, other, err_msg=f"{what} {k}")
                continue
            size = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
            allowed = self.tolerance * (1.0 + size)
            try:
                np.testing.assert_allclose(own, other, rtol=self.tolerance, atol=allowed, err_msg=f"{what} {k}")
            except AssertionError:
                spreads = self.expected.spreads[row][column][k]
                spread = np.max(spreads, initial=0.0, where=np.isfinite(spreads))
                # A spread below the tolerance shows no condition: the difference is a defect.
                near = (np.abs(own - other) <= 4.0 * spread) & (spread > allowed)
                if not np.all(near | np.isclose(own, other, self.tolerance, allowed, True) | np.isinf(spreads)):
                    raise
                self.ill_conditioned += 1
