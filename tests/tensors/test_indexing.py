"""Indexing and indexed assignment: every form against NumPy, derivatives, execution counts, errors with a line."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg

SHAPE = (4, 5, 3)
MASK = np.arange(4) % 2 == 1
GRID = np.arange(20).reshape(4, 5) % 3 == 0
FULL = np.arange(60).reshape(SHAPE) % 7 == 0
PICK, PAIR = np.asarray([3, 0, -1, 3], "int64"), np.asarray([[1], [-4]], "int64")

BASIC: list[Any] = [
    0,
    -1,
    (1, 2, 0),
    (1, -2),
    slice(None),
    slice(1, 3),
    slice(None, None, -1),
    slice(3, 0, -2),
    slice(-1, None, -3),
    slice(10, 20),
    slice(2, 2),
    ...,
    (..., 1),
    (1, ..., slice(0, 2)),
    (slice(None), 1, slice(None, None, 2)),
    (slice(None, None, -2), slice(4, None, -3), slice(None)),
    None,
    (None, 1, None, ..., None),
    (slice(0, 4, 3), None, -1),
    (),
]
ADVANCED: list[Any] = [
    PICK,
    PAIR,
    [0, 2],
    [],
    np.asarray([], "int64"),
    np.asarray([3, 1], "uint8"),
    (PICK, PICK),
    (PICK, slice(1, 4), slice(None)),
    (slice(None), PICK),
    (slice(None), slice(None, None, -2), np.asarray([2, 2], "int64")),
    (slice(1, 3), PICK, PAIR + 1),
    (PICK, slice(None), np.asarray([0, 1, 2, -1], "int64")),
    (0, slice(None), np.asarray([0, 1], "int64")),
    (slice(None), 0, np.asarray([0, 1], "int64")),
    (PAIR, 1),
    (..., np.asarray([2, 0], "int64")),
    (None, PICK, None),
    (PICK[:2], None, np.asarray([0, 1], "int64")),
    (np.int64(2), PICK),
    MASK,
    GRID,
    FULL,
    (MASK, slice(1, 3)),
    (slice(None), np.arange(5) < 2, 1),
    (MASK, np.asarray([0, 4], "int64")),
    (slice(2), np.asarray([True, False, False, True, True], "bool"), np.asarray([0, 1, 2], "int64")),
    ([True, False, True, False],),
    True,
    False,
    np.zeros((4, 5), bool),
    (None, GRID, 0),
    (slice(None), PICK[:3], ..., np.asarray([0, 1, 2])),
    (FULL, ...),
    (..., GRID, 1),
]


def name_of(key: Any) -> str:
    return repr(key).replace("\n", "").replace(" ", "")


def lazy(key: Any) -> Any:
    """The same key with tensors for arrays."""
    if isinstance(key, tuple):
        return tuple(map(lazy, key))
    return lg.asarray(key) if isinstance(key, np.ndarray) and key.size else key


def data(dtype: str = "float32") -> Any:
    return np.arange(60).reshape(SHAPE).astype(dtype)


@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=name_of)
def test_reading_is_as_numpy_reads(key: Any) -> None:
    x = data()
    for form in (key, lazy(key)):
        found = lg.asarray(x)[form]
        np.testing.assert_array_equal(found.numpy(), x[key])
        assert found.shape == x[key].shape


@pytest.mark.parametrize("key", BASIC + ADVANCED, ids=name_of)
def test_assigning_is_as_numpy_assigns(key: Any) -> None:
    expected = data()
    values = -1.0 - np.arange(expected[key].size, dtype=np.float32).reshape(expected[key].shape)
    for value in (values, np.float32(-7.0), -7.0, values[..., :1] if values.ndim and values.shape[-1] else values):
        expected, x = data(), lg.asarray(data())
        before = x[0]
        expected[key] = value
        x[lazy(key)] = value if isinstance(value, float) else lg.asarray(value)
        np.testing.assert_array_equal(x.numpy(), expected)
        np.testing.assert_array_equal(before.numpy(), data()[0])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64"])
def test_every_type_can_be_read_and_assigned(dtype: str) -> None:
    x, expected = lg.asarray(data(dtype)), data(dtype)
    x[PICK, 1] = x[0, 0, 0]
    expected[PICK, 1] = expected[0, 0, 0]
    x[1:3, ::2] = x[2:0:-1, ::2]
    expected[1:3, ::2] = expected[2:0:-1, ::2].copy()
    assert x.dtype.dtype.name == dtype
    np.testing.assert_array_equal(x.numpy(), expected)


def test_tensors_without_dimensions_are_indexed_by_nothing() -> None:
    x = lg.asarray(5.0)
    assert x[()].shape == ()
    assert x[None].shape == (1,)
    assert x[True].shape == (1,)
    assert x[lg.asarray(False)].shape == (0,)
    x[...] = 3.0
    assert float(x) == 3.0
    with pytest.raises(IndexError, match="too many indices"):
        x[0]


def test_the_last_of_repeated_assignments_counts() -> None:
    x = lg.zeros(3)
    x[lg.asarray([1, 1, 1, 0])] = lg.asarray([1.0, 2.0, 3.0, 4.0])
    assert x.tolist() == [4.0, 3.0, 0.0]


def test_only_masks_are_computed_early_and_it_is_counted() -> None:
    x = lg.asarray(data())
    lg.reset_stats()
    y = (x + 1.0)[lg.asarray([1, 2]) - 1]
    y[0, 0] = 5.0
    x[x > 3.0] = 0.0  # a single number needs no shape
    assert lg.stats().executions == 0
    picked = (x * 2.0)[x > 30.0]
    assert (lg.stats().executions, lg.stats().shapes_from_data) == (1, 1)
    assert not picked.is_computed


@pytest.mark.parametrize("key", [1, (slice(None, None, -2), 1), PICK, (PICK, slice(None), PAIR[0]), MASK], ids=name_of)
def test_the_derivative_of_reading_adds_at_the_places_that_were_read(key: Any) -> None:
    x = data("float64")
    weights = 1.0 + np.arange(x[key].size, dtype=np.float64).reshape(x[key].shape)
    found = lg.grad(lambda t: lg.sum(t[key] * weights))(lg.asarray(x))
    expected = np.zeros(SHAPE)
    np.add.at(expected, key, weights)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("key", [1, (slice(None, None, -2), slice(1, 4)), PICK, (slice(None), PICK, 0)], ids=name_of)
def test_the_derivative_of_assignment_goes_to_the_last_value(key: Any) -> None:
    x = data("float64")
    value = 100.0 + np.arange(x[key].size, dtype=np.float64).reshape(x[key].shape)
    weights = 1.0 + np.arange(60, dtype=np.float64).reshape(SHAPE)

    def total(t: lg.Tensor, v: lg.Tensor) -> lg.Tensor:
        t = lg.asarray(t, copy=True)
        t[key] = v
        return lg.sum(t * weights)

    by_x, by_value = lg.grad(total, (0, 1))(lg.asarray(x), lg.asarray(value))
    number, kept = np.full(SHAPE, -1), weights.copy()
    number[key] = np.arange(value.size).reshape(value.shape)  # the last assignment to each element
    kept[number >= 0] = 0.0
    np.testing.assert_array_equal(by_x.numpy(), kept)
    expected = np.zeros(value.size)
    expected[number[number >= 0]] = weights[number >= 0]
    np.testing.assert_array_equal(by_value.numpy(), expected.reshape(value.shape))


def test_take_and_take_along_axis_match_numpy() -> None:
    x = data()
    for axis in (0, 1, -1):
        for indices in (np.asarray([1, 0, -1], "int64"), np.asarray([2, 2], "uint8")):
            expected = np.take(x, indices, axis=axis)
            np.testing.assert_array_equal(lg.take(lg.asarray(x), lg.asarray(indices), axis=axis).numpy(), expected)
        order = np.argsort(-x, axis=axis)
        expected = np.take_along_axis(x, order, axis=axis)
        np.testing.assert_array_equal(lg.take_along_axis(lg.asarray(x), lg.asarray(order), axis=axis).numpy(), expected)
    negative = lg.take_along_axis(lg.asarray(x), lg.asarray([[[-1]]]), axis=1)
    np.testing.assert_array_equal(negative.numpy(), x[:, -1:, :])


def test_where_broadcasts_and_promotes() -> None:
    found = lg.where(lg.asarray([[True], [False]]), lg.asarray([1, 2], dtype=lg.int8), lg.asarray(0.5))
    assert found.dtype == lg.float32
    assert found.tolist() == [[1.0, 2.0], [0.5, 0.5]]
    assert lg.where(lg.asarray([True, False]), 1, lg.asarray([5, 6], dtype=lg.int16)).dtype == lg.int16


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (4, "index 4 is out of range for axis 0 of size 4"),
        ((0, -6), "index -6 is out of range for axis 1 of size 5"),
        ([0, 9], "index 9 is out of range for axis 0 of size 4"),
        ((0, 0, 0, 0), "too many indices"),
        ((..., ...), "only one"),
        (1.5, "cannot be an index"),
        ("a", "cannot be an index"),
        (np.asarray([1.0], "float32"), "cannot be an index"),
        (slice(None, None, 0), "cannot be an index"),
        (np.ones(3, bool), r"a mask has the wrong shape \(3,\)"),
        (([0, 1], [0, 1, 2]), r"cannot combine shapes \(2,\) and \(3,\)"),
    ],
)
def test_wrong_indices_raise_where_they_are_written(key: Any, message: str) -> None:
    x = lg.asarray(data())
    with pytest.raises(lg.LivegradError, match=message) as caught:
        x[key]
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_indices_out_of_range_in_tensors_raise_when_they_are_computed() -> None:
    x = lg.asarray(data())
    for index in (lg.asarray([0, 4]), lg.asarray([-5]), lg.asarray([2**63 + 1], dtype=lg.uint64)):
        picked = x[index]
        with pytest.raises(lg.KernelCheckError, match="out of range") as caught:
            picked.numpy()
        assert caught.value.where is not None
        assert caught.value.where.file == __file__
        y = lg.asarray(x, copy=True)
        y[index] = lg.ones((1, 5, 3))
        with pytest.raises(lg.KernelCheckError, match="out of range"):
            y.numpy()


def test_values_that_do_not_fit_are_not_assigned() -> None:
    x, whole = lg.asarray(data()), lg.asarray([1, 2, 3])
    with pytest.raises(lg.ShapeError, match=r"\(2,\) and \(5, 3\)"):
        x[0] = lg.ones(2)
    with pytest.raises(lg.ShapeError, match="cannot be assigned"):
        x[0, 0, 0] = lg.ones(2)
    with pytest.raises(lg.DtypeError, match="cannot assign float32 to a tensor of int64"):
        whole[0] = lg.asarray(1.5)
    with pytest.raises(lg.TypeRuleError, match=r"1\.5"):
        whole[0] = 1.5
    with pytest.raises(OverflowError, match="range of int8"):
        lg.zeros(2, dtype=lg.int8)[0] = 300
    assert whole.tolist() == [1, 2, 3]


def changed_rows(x: lg.Tensor) -> lg.Tensor:
    x = lg.asarray(x, copy=True)
    x[0] = 5.0
    x[-1] = x[1] * 2.0
    x[1:] = x[:-1]
    x[[0, -1], 1] = lg.asarray([-1.0, -2.0])
    x[x > 9.0] = 0.0
    return x


def test_traced_functions_index_axes_of_any_size() -> None:
    def act(x: Any) -> tuple[lg.Tensor, ...]:
        return x[1:, None], x[::-1, 1], x[-2:] - x[:2], x[[0, -1]], x[lg.asarray([-1, 0]), 1:], changed_rows(x)

    traced = lg.jit(act)
    for rows in (4, 7):
        x = lg.asarray(np.arange(rows * 3, dtype=np.float32).reshape(rows, 3))
        for found, expected in zip(traced(x), act(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_mask_cannot_decide_a_shape_inside_a_traced_function() -> None:
    with pytest.raises(lg.UsageError, match="not known while a function is being traced"):
        lg.jit(lambda x: lg.sum(x[x > 1.0]))(lg.asarray(data()))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (lambda mask: (mask[:, 0],), [7.0, 8.0, 9.0]),  # one row for all selected elements
        (lambda mask: (slice(None), mask[0]), [[5.0], [6.0]]),
        (lambda mask: (mask,), [4.0]),
    ],
)
def test_uniform_values_are_assigned_without_executing_the_mask(key: Any, value: Any) -> None:
    mask = np.array([[True, False, True], [False, True, True]])
    expected = np.zeros((2, 3), np.float32)
    expected[key(mask)] = value

    def assigned(x: lg.Tensor, mask: lg.Tensor, value: lg.Tensor) -> lg.Tensor:
        x[key(mask)] = value
        return x

    found = lg.jit(assigned)(lg.zeros((2, 3)), lg.asarray(mask), lg.asarray(value))
    assert np.array_equal(found.numpy(), expected)
