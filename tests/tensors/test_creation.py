"""Creation functions: NumPy's values, livegrad's default types, copies and shared memory, errors."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg

DTYPES = tuple(lg.__array_namespace_info__().dtypes())


def test_python_numbers_become_the_default_types() -> None:
    assert lg.asarray(1).dtype == lg.int64
    assert lg.asarray([1.5]).dtype == lg.float32
    assert lg.asarray([1, 1.5]).dtype == lg.float32
    assert lg.asarray(1j).dtype == lg.complex64
    assert lg.asarray([True]).dtype == lg.bool
    assert lg.zeros(1).dtype == lg.ones(1).dtype == lg.empty(1).dtype == lg.eye(1).dtype == lg.float32
    assert lg.full(1, 2).dtype == lg.int64
    assert lg.full(1, 2.0).dtype == lg.float32


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_round_trips(dtype: str) -> None:
    own = getattr(lg, dtype)
    for value in ([[1, 0], [1, 1]], 1, [], [[], []]):
        expected = np.asarray(value, dtype)
        np.testing.assert_array_equal(lg.asarray(expected).numpy(), expected)
        assert lg.asarray(expected).dtype == own
        assert lg.asarray(value, dtype=own).shape == expected.shape
        assert lg.asarray(value, dtype=dtype).dtype == own
        assert lg.asarray(expected).tolist() == expected.tolist()
    for made, expected in (
        (lg.zeros((2, 3), dtype=own), np.zeros((2, 3), dtype)),
        (lg.ones(3, dtype=own), np.ones(3, dtype)),
        (lg.full((2,), 1, dtype=own) if dtype != "bool" else lg.full((2,), True), np.full((2,), 1, dtype)),
        (lg.eye(3, 4, k=1, dtype=own), np.eye(3, 4, k=1, dtype=dtype)),
        (lg.zeros_like(lg.ones(2, dtype=own)), np.zeros(2, dtype)),
        (lg.ones_like(lg.ones(2), dtype=own), np.ones(2, dtype)),
    ):
        assert made.dtype == own
        np.testing.assert_array_equal(made.numpy(), expected)


def test_generated_numbers_match_numpy() -> None:
    for arguments in ((5,), (2, 9), (2, 9, 3), (9, 2, -2), (0,), (3, 3), (2**40, 2**40 + 3)):
        np.testing.assert_array_equal(lg.arange(*arguments).numpy(), np.arange(*arguments))
    assert lg.arange(2**63, 2**63 + 2, dtype=lg.uint64).tolist() == [2**63, 2**63 + 1]
    for real in ((0.0, 1.0, 0.25), (1, 0, -0.3), (5.0,)):
        np.testing.assert_allclose(lg.arange(*real, dtype=lg.float64).numpy(), np.arange(*real), atol=1e-15)
    np.testing.assert_array_equal(lg.linspace(-1, 2, 7, dtype=lg.float64).numpy(), np.linspace(-1, 2, 7))
    np.testing.assert_array_equal(
        lg.linspace(0, 1, 4, endpoint=False, dtype=lg.float64).numpy(), np.linspace(0, 1, 4, endpoint=False)
    )
    assert lg.linspace(0, 1, 0).shape == (0,)
    assert lg.linspace(0, 1j, 3).dtype == lg.complex64
    for indexing in ("xy", "ij"):
        ours = lg.meshgrid(lg.arange(2), lg.arange(3), lg.arange(4), indexing=indexing)
        for found, expected in zip(ours, np.meshgrid(*map(np.arange, (2, 3, 4)), indexing=indexing), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected)


def test_data_is_copied_unless_sharing_is_requested() -> None:
    data = np.asarray([1.0, 2.0], "float32")
    copied, shared, over_dlpack = lg.asarray(data), lg.asarray(data, copy=False), lg.from_dlpack(data)
    sums = [lg.sum(x) for x in (copied, shared, over_dlpack)]
    assert [float(x) for x in sums] == [3.0, 3.0, 3.0]
    data[0] = 10.0
    assert [float(x) for x in sums] == [3.0, 12.0, 12.0]
    assert np.shares_memory(shared.numpy(), data)
    for unsharable in ([1.0, 2.0], data[::-1], data.astype(np.float64)):
        with pytest.raises(lg.UsageError, match="cannot be shared"):
            lg.asarray(unsharable, dtype=lg.float32, copy=False)
    assert float(lg.sum(lg.from_dlpack(data[::-1], copy=True))) == 12.0


def test_a_copy_of_a_tensor_is_a_separate_handle() -> None:
    x = lg.asarray([1.0, 2.0])
    same, copy = lg.asarray(x), lg.asarray(x, copy=True)
    x[0] = 5.0
    assert (same.tolist(), copy.tolist()) == ([5.0, 2.0], [1.0, 2.0])
    with pytest.raises(lg.UsageError, match="needs a copy"):
        lg.asarray(x, dtype=lg.float64, copy=False)


def test_lists_may_hold_tensors() -> None:
    x = lg.asarray([1.0, 2.0])
    assert lg.asarray([x, x * 2.0]).tolist() == [[1.0, 2.0], [2.0, 4.0]]
    assert lg.asarray([x[0], 3.0]).tolist() == [1.0, 3.0]


def test_lists_of_tensors_are_stacked_with_gradients_and_keep_their_type() -> None:
    x = lg.asarray([1.0, 2.0], dtype=lg.float64)
    assert lg.grad(lambda x: lg.sum(lg.asarray([x[0], 3.0 * x[1]])))(x).tolist() == [1.0, 3.0]
    nested = lg.jit(lambda x, k: lg.asarray([[x[0], k], [0.1, x[1]]]))(x, 0.7)
    assert (nested.tolist(), nested.dtype) == ([[1.0, 0.7], [0.1, 2.0]], lg.float64)

    def assigned(x: lg.Tensor) -> lg.Tensor:
        y = lg.zeros(2, dtype=lg.float64)
        y[:] = [x[0] * x[1], 0.1]
        return lg.sum(y)

    assert float(assigned(x)) == 2.0 + 0.1
    assert lg.grad(assigned)(x).tolist() == [2.0, 1.0]
    for ragged in ([[x[0]], [x[0], x[1]]], [x, x[0]]):
        with pytest.raises(lg.UsageError, match=r"must have equal lengths|tensors of different shapes"):
            lg.asarray(ragged)


def test_lists_of_arrays_keep_the_type_of_the_arrays() -> None:
    assert lg.asarray([np.array([0.1]), np.array([0.2])]).tolist() == [[0.1], [0.2]]
    assert lg.asarray([np.float64(0.1), 0.2]).dtype == lg.float64
    assert lg.asarray([np.float32(0.1), 0.2]).dtype == lg.float32
    assert lg.asarray([np.int32(1), 0.2]).dtype == lg.float32
    assert lg.asarray([np.float64(0.1), 2j]).dtype == lg.complex128


def test_arrays_of_other_byte_orders_and_layouts_are_read() -> None:
    x = np.arange(6, dtype=">i4").reshape(2, 3)
    np.testing.assert_array_equal(lg.asarray(x.T).numpy(), x.T)
    np.testing.assert_array_equal(lg.asarray(memoryview(b"abc")).numpy(), [97, 98, 99])


def test_devices_are_named() -> None:
    assert lg.ones(2).device == "cpu"
    x = lg.ones(2, device="reference")
    assert x.device == (x + 1.0).device == "reference"
    assert (x + 1.0).tolist() == [2.0, 2.0]
    with pytest.raises(lg.UsageError, match="no device 'moon'"):
        lg.zeros(2, device="moon")


def test_floats_of_data_are_rounded_as_by_astype() -> None:
    assert lg.asarray([1.0, 1e39, -1e300]).tolist() == [1.0, lg.inf, -lg.inf]
    assert lg.asarray([complex(0, 1e39)]).tolist() == [complex(0, lg.inf)]
    assert lg.asarray([1.0, 1e39], dtype=lg.bfloat16).tolist() == [1.0, lg.inf]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: lg.asarray([[1, 2], [3]]), "not an array of numbers"),
        (lambda: lg.asarray(["a"]), "no dtype for this data"),
        (lambda: lg.asarray(object()), "no dtype for this data"),
        (lambda: lg.asarray([300], dtype=lg.uint8), "300 is out of the range of uint8"),
        (lambda: lg.asarray([float("nan")], dtype=lg.int32), "nan is out of the range of int32"),
        (lambda: lg.asarray([1j], dtype=lg.float32), "cannot become f32"),
        (lambda: lg.asarray([2**63]), "pass dtype=lg.uint64"),
        (lambda: lg.asarray([1.0], dtype="float3"), "unknown dtype"),
        (lambda: lg.zeros((2, -1)), "negative"),
        (lambda: lg.zeros(2.5), "takes integers for a shape"),
        (lambda: lg.full(2, "a"), "takes a number"),
        (lambda: lg.full(2, 300, dtype=lg.int8), "out of the range of int8"),
        (lambda: lg.full(2, 1e39), "out of the range of float32"),
        (lambda: lg.arange(0, 1, 0), "invalid arguments for `arange`"),
        (lambda: lg.arange(300, dtype=lg.uint8), "256 is out of the range of uint8"),
        (lambda: lg.arange(-1, 3, dtype=lg.uint64), "-1 is out of the range of uint64"),
        (lambda: lg.arange(float("inf")), "invalid arguments for `arange`"),
        (lambda: lg.linspace(0, 1, -1), "invalid number of points"),
        (lambda: lg.meshgrid(lg.ones((2, 2))), "takes sequences"),
        (lambda: lg.from_dlpack([1]), "cannot be imported"),
        (lambda: lg.Tensor(), "cannot be called directly"),
    ],
)
def test_non_tensors_raise_at_the_call(act: Any, message: str) -> None:
    with pytest.raises(lg.LivegradError, match=message) as caught:
        act()
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", ">i4", "u8", "f2", "f4", ">f8", "f8", "c8", "c16", ">c16"])
def test_arrays_of_any_layout_are_copied_with_their_type_and_values(dtype: str) -> None:
    numbers = np.random.default_rng(0).integers(0, 2, (4, 3, 2)).astype(dtype)
    views = [numbers, numbers.T, numbers[::-1, :, 1], numbers[0, 0, 0], np.broadcast_to(numbers[0], (2, 3, 2))]
    for array in [*views, numbers[:0], np.asfortranarray(numbers), np.asarray(numbers[1, 1, 1])]:
        tensor = lg.asarray(array)
        expected = np.array(array)
        value = tensor.numpy()
        assert value.dtype == expected.dtype.newbyteorder("=")
        assert value.flags.c_contiguous
        assert not np.shares_memory(value, numbers)
        np.testing.assert_array_equal(value, expected)
        assert tensor.type is lg.asarray(array.tolist(), dtype=tensor.dtype).type or not array.size
    tensor, before = lg.asarray(numbers), numbers.copy()
    numbers[...] = np.where(before == 0, 1, 0)
    np.testing.assert_array_equal(tensor.numpy(), before)


def test_an_array_of_objects_or_texts_is_an_error() -> None:
    for array in (np.array(["a"]), np.array([1, None]), np.array([2**70], dtype=object), np.zeros(2, "M8[s]")):
        with pytest.raises(lg.LivegradError):
            lg.asarray(array)
