"""Slices with computed starts, `x.at[key]`, `dynamic_slice`, computed rolls: against NumPy and finite differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

X = np.random.default_rng(0).normal(size=(6, 7))
READS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "rows": lambda x, i, j: x[i : i + 3],
    "a column of rows": lambda x, i, j: x[i : i + 3, j],
    "a block": lambda x, i, j: x[i - 1 : i + 2, j - 1 : j + 2],
    "a multiple": lambda x, i, j: x[2 * i : 2 * i + 2],
    "a product": lambda x, i, j: x[i * j - 2 : i * j],
    "a difference": lambda x, i, j: x[j - i : 3 - i + j],
    "a step": lambda x, i, j: x[i : i + 4 : 2, ::2],
    "new axes": lambda x, i, j: x[None, i : i + 2, ..., j],
    "a list": lambda x, i, j: x[[i, i + 1]],
    "nothing": lambda x, i, j: x[i:i],
    "beside an array": lambda x, i, j: x[np.array([0, 2]), j : j + 2],
}


@pytest.mark.parametrize("name", READS)
def test_reading_a_slice_with_a_computed_start_matches_numpy(name: str) -> None:
    read = READS[name]
    for i, j in ((1, 2), (2, 3), (1, 4)):
        expected = read(X, i, j)
        tensors = lg.asarray(X), lg.asarray(i), lg.asarray(j, dtype=lg.int32)
        for function in (read, lg.jit(read)):
            np.testing.assert_array_equal(function(*tensors).numpy(), expected)
        np.testing.assert_array_equal(lg.jit(read)(X, i, j).numpy(), expected)


def _write(x: Any, i: Any, j: Any) -> Any:
    x[i : i + 3, j : j + 2] = x[i : i + 3, j : j + 2] * 2.0
    x[i : i + 2] += 1.0
    x[i : i + 4 : 2, 0] = 5.0
    return x


def test_writing_a_slice_with_a_computed_start_matches_numpy() -> None:
    for i, j in ((1, 2), (2, 4)):
        expected = _write(X.copy(), i, j)
        for function in (_write, lg.jit(_write)):
            np.testing.assert_array_equal(function(lg.asarray(X), lg.asarray(i), lg.asarray(j)).numpy(), expected)


def _slide(i: Any, x: Any) -> Any:
    x[i : i + 3] = x[i : i + 3] * 0.5 + x[i + 1 : i + 4][::-1]
    return x


def _loops(x: Any) -> dict[str, Any]:
    return {
        "fori_loop": lg.fori_loop(0, 3, _slide, x),
        "while_loop": lg.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, _slide(s[0], s[1])), (0, x))[1],
        "scan": lg.scan(lambda s, i: (_slide(i, s), lg.sum(s)), x, lg.arange(3))[0],
        "cond": lg.fori_loop(0, 3, lambda i, s: lg.cond(i < 9, _slide, lambda i, s: s, i, s), x),
    }


def test_loops_and_branches_read_and_write_windows() -> None:
    expected = X.copy()
    for i in range(3):
        _slide(i, expected)
    for name, found in _loops(lg.asarray(X)).items():
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14, err_msg=name)
    lg.check_gradients(lambda x: list(_loops(x * 1.0).values()), lg.asarray(X))


def test_members_of_a_batch_have_separate_windows() -> None:
    starts = np.array([0, 1, 2, 3, 4, 5])
    expected = X.copy()
    for row, start in enumerate(starts):
        expected[row, start : start + 2] = 0.0

    def clear(x: Any, i: Any) -> Any:
        x = lg.copy(x)
        x[i : i + 2] = 0.0
        return x

    np.testing.assert_array_equal(lg.vmap(clear)(lg.asarray(X), lg.asarray(starts)).numpy(), expected)
    np.testing.assert_array_equal(
        lg.vmap(lambda x, i: x[i : i + 2])(lg.asarray(X), lg.asarray(starts))[3].numpy(), X[3, 3:5]
    )


def test_a_window_out_of_range_is_an_error_at_its_line_and_a_negative_start_counts_from_the_end() -> None:
    x = lg.arange(10)
    with pytest.raises(lg.KernelCheckError, match=r"index out of range.*test_updates\.py"):
        lg.jit(lambda x, i: x[i : i + 3])(x, lg.asarray(8)).execute()
    assert lg.jit(lambda x, i: x[i : i + 3])(x, lg.asarray(-3)).tolist() == [7, 8, 9]


def _ragged(i: Any, a: Any) -> Any:
    a[i + 1 :, i] = 1.0
    return a


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a ragged slice": (
        lambda: lg.fori_loop(0, 3, _ragged, lg.zeros((4, 4))),
        lg.UsageError,
        r"length of this slice is not known.*test_updates\.py.*lg\.dynamic_slice.*mask.*fori_loop",
    ),
    "two unrelated bounds": (
        lambda: lg.jit(lambda x, i, j: x[i:j])(lg.arange(5), lg.asarray(1), lg.asarray(2)),
        lg.UsageError,
        "length of this slice is not known",
    ),
    "a negative step": (
        lambda: lg.jit(lambda x, i: x[i : i - 3 : -1])(lg.arange(5), lg.asarray(4)),
        lg.UsageError,
        r"positive Python integer as its step.*lg\.flip",
    ),
    "a computed step": (
        lambda: lg.jit(lambda x, i: x[0:4:i])(lg.arange(5), lg.asarray(1)),
        lg.UsageError,
        "positive Python integer as its step",
    ),
    "a window that never fits": (
        lambda: lg.jit(lambda x, i: x[i : i + 6])(lg.arange(5), lg.asarray(0)),
        IndexError,
        "over 6 elements does not fit axis 0 of size 5",
    ),
    "a bound that is text": (
        lambda: lg.jit(lambda x, i: x[i:"2"])(lg.arange(5), lg.asarray(1)),
        IndexError,
        "cannot be an index",
    ),
    "a step of a half": (
        lambda: lg.jit(lambda x, i: x[i : i + 2 : 0.5])(lg.arange(5), lg.asarray(1)),
        IndexError,
        "cannot be an index",
    ),
    "a float": (
        lambda: lg.jit(lambda x, i: x[i : i + 2])(lg.arange(5), lg.asarray(1.0)),
        TypeError,
        "integer without dimensions",
    ),
    "a slice of another rank": (lambda: lg.dynamic_slice(lg.ones((2, 2)), [0], [1]), ValueError, "for each axis"),
    "a slice that never fits": (lambda: lg.dynamic_slice(lg.ones(2), [0], [3]), ValueError, "does not fit axis 0"),
    "a start that is no integer": (lambda: lg.dynamic_slice(lg.ones(2), [lg.asarray(0.5)], [1]), TypeError, "integers"),
    "an update that is too large": (
        lambda: lg.dynamic_update_slice(lg.ones(2), lg.ones(3), [0]),
        ValueError,
        "does not fit axis 0",
    ),
    "a shift that is no integer": (lambda: lg.roll(lg.ones(2), lg.asarray(0.5)), lg.UsageError, "integer for a shift"),
    "an update of a type that does not fit": (
        lambda: lg.arange(3).at[0].add(lg.asarray(0.5)),
        TypeError,
        "cannot assign float32 to a tensor of int64",
    ),
    "the largest of complex numbers": (
        lambda: lg.ones(3, dtype=lg.complex64).at[0].max(1.0),
        TypeError,
        "does not support",
    ),
    "a sum of truth values": (lambda: lg.asarray([True]).at[0].add(True), TypeError, "does not support"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_keys_raise_with_the_line(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_updates.py" in str(caught.value)


def test_bounds_that_python_may_ask_for_give_slices_of_any_length() -> None:
    x, i = lg.arange(10), lg.asarray(7)
    assert x[i:].tolist() == [7, 8, 9]
    assert x[i : lg.asarray(20)].tolist() == [7, 8, 9]
    assert x[i:2:-2].tolist() == [7, 5, 3]


# --- x.at ------------------------------------------------------------------------------------------------------------

KEYS: dict[str, Any] = {
    "an integer": 2,
    "a slice": np.index_exp[1:4],
    "steps": np.index_exp[::2, 1::3],
    "backwards": np.index_exp[::-1, 5:2:-1],
    "an ellipsis": np.index_exp[..., 3],
    "a new axis": np.index_exp[None, 2:4],
    "an array": np.index_exp[np.array([0, 3, 0, 0])],
    "two arrays": np.index_exp[np.array([0, 3, 0]), np.array([1, 1, 1])],
    "an array beside a slice": np.index_exp[1:3, np.array([0, -1, 0])],
    "a mask": X > 0.3,
    "a mask of rows": np.arange(6) % 2 == 0,
}
UPDATES = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("name", KEYS)
def test_updates_at_keys_match_numpys_ufuncs(name: str) -> None:
    key = KEYS[name]
    values = np.linspace(-2.0, 2.0, X[key].size).reshape(X[key].shape)
    x = lg.asarray(X)
    np.testing.assert_array_equal(x.at[key].get().numpy(), X[key])
    expected = X.copy()
    expected[key] = values
    np.testing.assert_array_equal(x.at[key].set(values).numpy(), expected)
    for operation, ufunc in UPDATES.items():
        for new in (values, 1.5):
            expected = X.copy()
            ufunc.at(expected, key, new)
            updated = getattr(x.at[key], operation)(new)
            np.testing.assert_allclose(updated.numpy(), expected, rtol=1e-15, err_msg=operation)
        lg.check_gradients(lambda x, v, f=operation: getattr(x.at[key], f)(v), x, lg.asarray(values + 0.0173))
    np.testing.assert_array_equal(x.numpy(), X)


def test_updates_at_computed_keys_under_jit_and_vmap() -> None:
    places = np.array([1, 4, 1])
    updated = lg.jit(lambda x, i, p: (x.at[i : i + 2].mul(2.0), x.at[p].max(0.5), x.at[i, p].min(-0.5)))
    windows, largest, smallest = updated(lg.asarray(X), lg.asarray(3), lg.asarray(places))
    expected = [X.copy() for _ in range(3)]
    expected[0][3:5] *= 2.0
    np.maximum.at(expected[1], places, 0.5)
    np.minimum.at(expected[2], (3, places), -0.5)  # pyright: ignore[reportArgumentType]
    for found, wanted in zip((windows, largest, smallest), expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
    batched = lg.vmap(lambda x, p: x.at[p].mul(3.0))(lg.asarray(X), lg.asarray(np.tile(places, (6, 1))))
    wanted = X.copy()
    wanted[:, 1] *= 9.0
    wanted[:, 4] *= 3.0
    np.testing.assert_allclose(batched.numpy(), wanted, rtol=1e-15)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "float16", "bfloat16", "float32", "complex64"])
def test_updates_take_every_type(dtype: str) -> None:
    x = lg.astype(lg.arange(1, 6), getattr(lg, dtype))
    places = lg.asarray([1, 3, 1])
    values = lg.astype(lg.asarray([2, 3, 4]), getattr(lg, dtype))
    real = {"set": [1, 4, 3, 3, 5], "add": [1, 8, 3, 7, 5], "mul": [1, 16, 3, 12, 5]}
    if dtype != "complex64":
        real |= {"max": [1, 4, 3, 4, 5], "min": [1, 2, 3, 3, 5]}
    for name, expected in real.items():
        updated = getattr(x.at[places], name)(values)
        assert updated.dtype == x.dtype
        assert updated.tolist() == expected, name
        sliced = getattr(x.at[1:4:2], name)(values[:2])
        assert sliced.dtype == x.dtype


# --- functions -------------------------------------------------------------------------------------------------------


def test_dynamic_slices_move_inside() -> None:
    x = lg.asarray(X)
    read = lg.jit(lambda x, i, j: lg.dynamic_slice(x, [i, j], [3, 2]))
    for i, j in ((0, 0), (5, 1), (-3, -3), (-99, 99)):
        rows = min(max(i + 6 if i < 0 else i, 0), 3)
        columns = min(max(j + 7 if j < 0 else j, 0), 5)
        expected = X[rows : rows + 3, columns : columns + 2]
        starts = lg.asarray(i), lg.asarray(j)
        for found in (
            read(x, *starts),
            lg.dynamic_slice(x, lg.asarray([i, j]), (3, 2)),
            lg.dynamic_slice(x, [i, j], [3, 2]),
        ):
            np.testing.assert_array_equal(found.numpy(), expected)
        written = X.copy()
        written[rows : rows + 3, columns : columns + 2] = 0.0
        np.testing.assert_array_equal(lg.dynamic_update_slice(x, lg.zeros((3, 2)), starts).numpy(), written)
    lg.check_gradients(lambda x, u: lg.dynamic_update_slice(x, u, [lg.asarray(4), 1]), x, lg.asarray(X[:3, :2]))


def test_rolls_by_computed_shifts() -> None:
    roll = lg.jit(lambda x, s: (lg.roll(x, s), lg.roll(x, (s, 1), axis=(0, 1)), lg.roll(x, s, axis=1)))
    for shift in (0, 1, -4, 9, -50):
        expected = np.roll(X, shift), np.roll(X, (shift, 1), (0, 1)), np.roll(X, shift, 1)
        for found, wanted in zip(roll(lg.asarray(X), lg.asarray(shift)), expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted)
    assert lg.roll(lg.zeros((0, 3)), lg.asarray(2), axis=0).shape == (0, 3)


# --- slices that are known -------------------------------------------------------------------------------------------


def _paint(x: Any) -> Any:
    x[1:-1, 1:-1] = x[1:-1, :-2] + x[1:-1, 2:]
    x[0] = 5.0
    x[:, -1] = x[:, 0] * 2.0
    x[::2, ::3] = 1.0
    x[::-2, 0] = np.arange(x.shape[0] // 2)
    x[3, 4] = 9.0
    x[2:4] += 1.0
    x[2:5, ::-1] *= x[3:6]
    return x


@pytest.mark.parametrize("shape", [(6, 7), (40, 30)])
def test_consecutive_slice_assignments_match_numpy(shape: tuple[int, int]) -> None:
    start = np.random.default_rng(1).normal(size=shape)
    expected = _paint(start.copy())
    for function in (_paint, lg.jit(_paint), lambda x: lg.fori_loop(0, 1, lambda i, x: _paint(x), x)):
        np.testing.assert_allclose(function(lg.asarray(start)).numpy(), expected, rtol=1e-14)
    batched = lg.vmap(_paint)(lg.asarray(np.stack([start, start * 2.0])))
    np.testing.assert_allclose(batched[1].numpy(), _paint(start * 2.0), rtol=1e-14)
    lg.check_gradients(lambda x: _paint(x * 1.0), lg.asarray(start))


def test_old_versions_stay_as_they_were() -> None:
    x = lg.asarray(np.arange(1000.0)) * 1.0
    versions = [x]
    for k in range(4):
        x = x.at[k : k + 500].add(versions[-1][k + 1 : k + 501])
        versions.append(x)
    expected = [np.arange(1000.0)]
    for k in range(4):
        following = expected[-1].copy()
        following[k : k + 500] += expected[-1][k + 1 : k + 501]
        expected.append(following)
    lg.execute(*versions)
    for found, wanted in zip(versions, expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
