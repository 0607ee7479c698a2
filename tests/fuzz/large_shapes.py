"""Movements, indexing, reductions and scans of tensors that no cache holds (17 to 70 MB), alone and fused in pairs.

The oracle is NumPy. Sums of floats are compared with NumPy's in float64; everything else must be equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import livegrad as lg

SHORT = 2
TYPES = ("float32", "float64", "int32", "int64", "uint8", "bool", "complex64", "complex128")
Form = tuple[float, ...]
SHAPES: tuple[Form, ...] = ((1.0,), (3, 1.0), (1.0, 3), (0.5, 0.5), (1.0, 17), (0.3, 4, 0.7), (0.5, 0.5, 5))
ROWS = np.array([0, 2, 0])


class Operation(NamedTuple):
    """The same in both libraries, and whether results are rounded."""

    name: str
    apply: Callable[[Any, Any], Any]  # of a library under livegrad's names, and an array
    rounds: bool = False
    kinds: str = "fiubc"


class _NumPy:
    """NumPy under livegrad's names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def put(x: Any, key: Any, value: Any) -> Any:
        changed = np.array(x)
        changed[key] = value
        return changed

    @staticmethod
    def put_more(x: Any, key: Any, value: Any) -> Any:
        changed = np.array(x)
        np.add.at(changed, key, np.asarray(value, x.dtype))
        return changed

    @staticmethod
    def prefix_sum(x: Any, axis: int) -> Any:
        exact = np.cumsum(_widened(x), axis=axis)
        return exact if x.dtype.kind in "fc" else exact.astype(np.uint64 if x.dtype.kind == "u" else np.int64)

    @staticmethod
    def total(x: Any, axis: Any) -> Any:
        return np.sum(_widened(x), axis=axis)

    @staticmethod
    def first_rows(x: Any) -> Any:
        return np.sum(_widened(x)[:3], keepdims=True).astype(x.dtype).reshape(-1)


class _Livegrad:
    def __getattr__(self, name: str) -> Any:
        return getattr(lg, name)

    @staticmethod
    def put(x: Any, key: Any, value: Any) -> Any:
        return x.at[key].set(value)

    @staticmethod
    def put_more(x: Any, key: Any, value: Any) -> Any:
        return x.at[key].add(value)

    @staticmethod
    def prefix_sum(x: Any, axis: int) -> Any:
        return lg.cumulative_sum(x, axis=axis)

    @staticmethod
    def total(x: Any, axis: Any) -> Any:
        return lg.sum(x, axis=axis)

    @staticmethod
    def first_rows(x: Any) -> Any:
        return lg.reshape(lg.astype(lg.sum(x[:3], keepdims=True), x.dtype), (-1,))


def _widened(x: Any) -> Any:
    return x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype))


def _gathered(xp: Any, x: Any) -> Any:
    rows = np.arange(0, 3 * x.shape[0], 3) % x.shape[0]
    return xp.take(x, xp.asarray(rows), axis=0)


def _picked(xp: Any, x: Any) -> Any:
    return x[xp.asarray(np.arange(x.shape[0])[::-2] - x.shape[0])]


MOVEMENTS = (
    Operation("same", lambda xp, x: x),
    Operation("transposed", lambda xp, x: xp.permute_dims(x, tuple(reversed(range(x.ndim))))),
    Operation("flipped", lambda xp, x: xp.flip(x, axis=-1)),
    Operation("flipped all", lambda xp, x: xp.flip(x)),
    Operation("rolled", lambda xp, x: xp.roll(x, 5, axis=0)),
    Operation("rolled inside", lambda xp, x: xp.roll(x, -1, axis=-1)),
    Operation("every third", lambda xp, x: x[::3]),
    Operation("backwards", lambda xp, x: x[..., ::-1][1:]),
    Operation("middle", lambda xp, x: x[1:-1, ...]),
    Operation("joined", lambda xp, x: xp.concat([x, x[:2], x[1:3]], axis=0)),
    Operation("joined inside", lambda xp, x: xp.concat([x, x], axis=-1)),
    Operation("stacked", lambda xp, x: xp.stack([x, x], axis=-1)),
    Operation("repeated", lambda xp, x: xp.repeat(x, 2, axis=-1)),
    Operation("tiled", lambda xp, x: xp.tile(x, (2,) + (1,) * (x.ndim - 1))),
    Operation("flat", lambda xp, x: xp.reshape(x, (-1,))),
    Operation("gathered", _gathered),
    Operation("picked", _picked),
    Operation("masked", lambda xp, x: xp.where(xp.reshape(xp.arange(x.shape[0]) % 2 == 0, _column(x)), x, x[:1])),
    Operation("slice written", lambda xp, x: xp.put(x, np.s_[:-1], x[1:])),
    Operation("rows written", lambda xp, x: xp.put(x, ROWS % x.shape[0], x[-1:])),
    Operation("column written", lambda xp, x: xp.put(x, np.s_[..., 0], x[..., -1])),
    Operation("rows added", lambda xp, x: xp.put_more(x, ROWS % x.shape[0], x[-1:]), rounds=True, kinds="fiuc"),
    Operation("one element beside", lambda xp, x: xp.concat([xp.reshape(x, (-1,)), xp.first_rows(x)]), rounds=True),
    Operation("added", lambda xp, x: x + x, kinds="fiuc"),
    Operation("compared", lambda xp, x: x == x[:1]),
    Operation("absolute", lambda xp, x: xp.abs(x), rounds=True, kinds="fiuc"),
)
ENDS = (
    Operation("sum", lambda xp, x: xp.total(x, None), rounds=True, kinds="fiuc"),
    Operation("sum of rows", lambda xp, x: xp.total(x, -1), rounds=True, kinds="fiuc"),
    Operation("sum of columns", lambda xp, x: xp.total(x, 0), rounds=True, kinds="fiuc"),
    Operation("max", lambda xp, x: xp.max(x), kinds="fiu"),
    Operation("max of columns", lambda xp, x: xp.max(x, axis=0), kinds="fiu"),
    Operation("min of rows", lambda xp, x: xp.min(x, axis=-1), kinds="fiu"),
    Operation("argmax", lambda xp, x: xp.argmax(x), kinds="fiu"),
    Operation("argmin of columns", lambda xp, x: xp.argmin(x, axis=0), kinds="fiu"),
    Operation("any", lambda xp, x: xp.any(x, axis=-1)),
    Operation("all of columns", lambda xp, x: xp.all(x, axis=0)),
    Operation("counted", lambda xp, x: xp.count_nonzero(x)),
    Operation("prefix sums", lambda xp, x: xp.prefix_sum(x, -1), rounds=True, kinds="fiuc"),
    Operation("prefix sums down", lambda xp, x: xp.prefix_sum(x, 0), rounds=True, kinds="fiuc"),
    Operation("sorted", lambda xp, x: xp.sort(x, axis=-1), kinds="fiu"),
    *MOVEMENTS,
)


def _column(x: Any) -> tuple[int, ...]:
    return (x.shape[0],) + (1,) * (x.ndim - 1)


def run_one(seed: int) -> Mapping[str, int]:
    """One array, one or two operations on it, in one kernel or in several."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(TYPES[seed % len(TYPES)])
    x = _array(random, dtype, float(random.uniform(17e6, 40e6 if seed % 4 else 70e6)))
    first = MOVEMENTS[int(random.integers(len(MOVEMENTS)))]
    second = ENDS[int(random.integers(len(ENDS)))]
    names = f"{second.name} of {first.name}, {dtype} {x.shape}, seed {seed}"
    if dtype.kind not in first.kinds:
        first = MOVEMENTS[0]
    expected = first.apply(_NumPy(), x)
    if np.asarray(expected).dtype.kind not in second.kinds:
        return {"of another type": 1}
    expected = np.asarray(second.apply(_NumPy(), expected))
    tensor = lg.asarray(x)
    before = first.apply(_Livegrad(), tensor)
    if seed % 3 == 0:
        before.execute()
    own = np.asarray(second.apply(_Livegrad(), before))
    assert own.shape == expected.shape, f"{names}: shape {own.shape}, NumPy {expected.shape}"
    if own.dtype.kind in "fc" and (first.rounds or second.rounds):
        _compare_sums(own, expected, x, names)
    else:
        np.testing.assert_array_equal(own, expected, names)
    return {str(dtype): 1, first.name: 1, second.name: 1, "apart" if seed % 3 == 0 else "fused": 1}


def _compare_sums(own: Any, expected: Any, x: Any, names: str) -> None:
    precision = np.finfo(own.dtype).eps
    size = float(np.max(np.abs(expected))) + float(np.max(np.abs(x))) * np.sqrt(x.size)
    np.testing.assert_allclose(own, expected, rtol=1e3 * precision, atol=1e2 * precision * size, err_msg=names)


def _array(random: np.random.Generator, dtype: np.dtype[Any], size: float) -> Any:
    """Elements that follow from a short period, so that making them takes no time."""
    shape = _shape(SHAPES[int(random.integers(len(SHAPES)))], size / dtype.itemsize)
    count = functools.reduce(int.__mul__, shape)
    period = np.round(random.normal(size=10_007) * 64.0)
    if dtype.kind == "b":
        period = period > 0
    elif dtype.kind == "c":
        period = period + 1j * period[::-1]
    elif dtype.kind == "u":
        period = np.abs(period) % 256
    return np.resize(period.astype(dtype), count).reshape(shape)


def _shape(form: Form, elements: float) -> tuple[int, ...]:
    """The sizes of a form: integers as they are, and powers of the number of elements that is left."""
    left = elements
    for size in form:
        left = left / size if isinstance(size, int) else left
    return tuple(size if isinstance(size, int) else max(2, int(left**size)) for size in form)
