"""Interoperability with other libraries: memory is shared where the layout allows, else copied, never corrupted."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.tensors.interop import register_with_einops

DTYPES = ["bool", *[f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)], *[f"float{n}" for n in (16, 32, 64)]]
DTYPES += ["complex64", "complex128"]


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def data(*shape: int) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


class Producer:
    """An array of another library: it supports only DLPack, and records the requests."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device
        self.asked: dict[str, Any] = {}

    def __dlpack__(self, **asked):
        self.asked = asked
        return self.array.__dlpack__(max_version=asked.get("max_version"), copy=asked.get("copy"))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class OldProducer:
    """An array from before DLPack version 1, which takes only a stream."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


# --- to others -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
def test_every_dtype_round_trips_through_numpy(name, shape):
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(name)
    x = lg.asarray(array)
    for back in (np.asarray(x), np.from_dlpack(x), np.array(x), np.asarray(x.__array__())):
        assert back.dtype == array.dtype
        assert back.shape == shape
        np.testing.assert_array_equal(back, array)
    again = lg.from_dlpack(x)
    assert again.dtype is x.dtype


def test_reading_a_tensor_copies_nothing():
    x = (lg.asarray(data(5)) * 2.0).execute()
    views = [np.asarray(x), np.from_dlpack(x), x.numpy(), np.asarray(x.numpy().data), x.__array__()]
    assert len({address(view) for view in views}) == 1
    assert address(np.asarray(x.__buffer__(0))) == address(x.numpy())
    assert x.__array_interface__["data"] == (address(x.numpy()), True)


def test_shared_memory_is_read_only():
    x = lg.asarray(data(3))
    for view in (np.asarray(x), np.from_dlpack(x), x.numpy(), x.__array__()):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 9.0
    assert x.__buffer__(0).readonly
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_a_copy_can_be_written_to_and_leaves_the_tensor_alone():
    x = lg.asarray(data(3))
    for made in (np.array(x), x.__array__(copy=True), np.from_dlpack(x, copy=True)):
        made[0] = 9.0
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_an_array_of_another_dtype_needs_a_copy():
    x = lg.asarray([1.0, 2.0])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(lg.LivegradError, match=r"another element type needs a copy \(test_interop\.py"):
        x.__array__(np.float64, copy=False)


def test_consumers_before_dlpack_1_get_a_copy_unless_they_want_none():
    x = lg.asarray(data(3))

    class Old:
        def __init__(self, copy):
            self.copy = copy

        def __dlpack__(self, **_):
            return x.__dlpack__(copy=self.copy)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    copied, shared = np.from_dlpack(Old(None)), np.from_dlpack(Old(False))
    assert address(copied) != address(x.numpy())
    assert address(shared) == address(x.numpy())


def test_dlpack_reports_the_device_and_rejects_others():
    x = lg.ones(3)
    assert x.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(x, device="cpu").tolist() == [1.0] * 3
    wrongs: list[dict[str, Any]] = [{"dl_device": (2, 0)}, {"stream": 1}]
    for wrong in wrongs:
        with pytest.raises(BufferError, match="test_interop") as caught:
            x.__dlpack__(**wrong)
        assert isinstance(caught.value, lg.LivegradError)


def test_shared_memory_outlives_the_tensor():
    x = (lg.asarray(data(1000)) + 1.0).execute()
    views = [np.asarray(x), np.from_dlpack(x)]
    x.free()
    del x
    junk = [np.full(1000, -1.0, np.float32) for _ in range(8)]
    for view in views:
        np.testing.assert_array_equal(view, data(1000) + 1.0)
    assert len(junk) == 8


def test_a_freed_or_traced_tensor_raises_with_the_line():
    x = lg.ones(3)
    x.free()
    for read in (np.asarray, np.from_dlpack, pickle.dumps, lambda x: lg.asarray(x, copy=True)):
        with pytest.raises(lg.UsageError, match=r"freed \(test_interop\.py"):
            read(x)

    @lg.jit
    def peek(x):
        return lg.asarray(np.asarray(x))

    with pytest.raises(lg.UsageError, match=r"not known while a function is being traced \(test_interop\.py"):
        peek(lg.ones(3))


def test_numpy_leaves_operators_to_the_tensor():
    x, array = lg.asarray([1.0, 2.0]), np.asarray([10.0, 20.0], np.float32)
    for result in (array + x, array * x, array - x, array / x, array @ x, array < x, np.float32(3.0) + x):
        assert isinstance(result, lg.Tensor)
    assert (array - x).tolist() == [9.0, 18.0]


# --- from others -----------------------------------------------------------------------------------------------------


def test_data_is_copied_unless_sharing_is_requested():
    array = data(4)
    assert address(lg.asarray(array).numpy()) != address(array)
    shared = lg.asarray(array, copy=False)
    assert address(shared.numpy()) == address(array)
    doubled = shared * 2.0
    assert doubled.tolist() == [0.0, 2.0, 4.0, 6.0]
    array[0] = 5.0
    assert doubled.tolist() == [10.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    "array",
    [data(4, 4).T, data(8)[::2], data(4).astype(">f4"), np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32)],
    ids=["transposed", "strided", "byte order", "alignment"],
)
def test_a_layout_that_cannot_be_shared_is_copied_or_rejected(array):
    np.testing.assert_array_equal(lg.asarray(array).numpy(), array)
    with pytest.raises(lg.UsageError, match=r"cannot be shared \(test_interop\.py"):
        lg.asarray(array, copy=False)


def test_read_only_memory_can_be_shared():
    array = data(3)
    array.flags.writeable = False
    assert address(lg.asarray(array, copy=False).numpy()) == address(array)
    assert address(lg.from_dlpack(array).numpy()) == address(array)
    assert lg.asarray(memoryview(array), copy=False).tolist() == [0.0, 1.0, 2.0]


def test_dlpack_shares_memory_that_is_read_each_time():
    array = data(3)
    x = lg.from_dlpack(Producer(array))
    total = lg.sum(x)
    assert address(x.numpy()) == address(array)
    assert float(total) == 3.0
    array[0] = 7.0
    assert float(total) == 10.0


def test_dlpack_copies_on_request():
    array = data(3)
    producer = Producer(array)
    x = lg.from_dlpack(producer, copy=True)
    assert producer.asked["copy"] is True
    array[0] = 7.0
    assert x.tolist() == [0.0, 1.0, 2.0]
    assert lg.from_dlpack(OldProducer(array)).tolist() == [7.0, 1.0, 2.0]
    assert lg.asarray(Producer(array)).tolist() == [7.0, 1.0, 2.0]


def test_a_strided_array_comes_through_dlpack_by_a_copy():
    array = data(3, 4).T
    np.testing.assert_array_equal(lg.from_dlpack(Producer(array)).numpy(), array)
    with pytest.raises(lg.UsageError, match="cannot be shared"):
        lg.from_dlpack(Producer(array), copy=False)


@pytest.mark.parametrize("thing", [object(), [1, 2], "text"])
def test_non_arrays_raise(thing):
    with pytest.raises(lg.UsageError, match=r"cannot be imported \(test_interop\.py"):
        lg.from_dlpack(thing)


def test_shared_memory_is_kept_alive_by_the_tensor():
    x = lg.asarray(data(1000), copy=False)
    y = lg.from_dlpack(Producer(data(1000)))
    junk = [np.full(1000, -1.0, np.float32) for _ in range(8)]
    np.testing.assert_array_equal((x + y).numpy(), data(1000) * 2.0)
    assert len(junk) == 8


# --- copies and pickles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: lg.asarray(x, copy=True)])
def test_a_copy_is_not_reached_by_later_changes(duplicate):
    x = lg.asarray([1.0, 2.0])
    twin = duplicate(x)
    x.fill(9.0)
    x[0] = 5.0
    assert twin.tolist() == [1.0, 2.0]
    twin.fill(3.0)
    assert x.tolist() == [5.0, 9.0]


def test_a_copy_of_shared_memory_is_independent():
    array = data(3)
    twin = copy.deepcopy(lg.asarray(array, copy=False))
    array[:] = -1.0
    assert twin.tolist() == [0.0, 1.0, 2.0]


def test_a_deep_copy_preserves_sharing_and_separate_variables():
    w = lg.asarray([1.0, 2.0]).requires_grad_()
    nest = {"a": w, "b": [w]}
    twin = copy.deepcopy(nest)
    assert twin["a"] is twin["b"][0]
    assert twin["a"].requires_grad
    lg.sum(w * 2.0 + twin["a"] * 3.0).backward()
    assert [np.asarray(x.grad).tolist() for x in (w, twin["a"])] == [[2.0, 2.0], [3.0, 3.0]]


def test_variables_with_equal_expressions_have_separate_gradients():
    first, second = lg.zeros(2).requires_grad_(), lg.zeros(2).requires_grad_()
    data_ = lg.asarray([1.0, 2.0])
    third, fourth = (data_ * 2.0).requires_grad_(), (data_ * 2.0).requires_grad_()
    lg.sum(first + 2.0 * second + 3.0 * third + 4.0 * fourth).backward()
    assert [np.asarray(x.grad)[0] for x in (first, second, third, fourth)] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_tensors_pickle(protocol):
    x = lg.asarray([[1.0, 2.0]]) * 2.0
    found = pickle.loads(pickle.dumps({"x": x, "w": lg.ones(2).requires_grad_()}, protocol))
    assert found["x"].tolist() == [[2.0, 4.0]]
    assert found["x"].dtype is lg.float32
    assert (found["x"].requires_grad, found["w"].requires_grad) == (False, True)


def test_out_of_band_pickles_do_not_share_memory_with_their_buffers():
    parts: list[pickle.PickleBuffer] = []
    text = pickle.dumps(lg.asarray([1.0, 2.0]), protocol=5, buffer_callback=parts.append)
    buffers = [bytearray(part.raw()) for part in parts]
    x = pickle.loads(text, buffers=buffers)
    for buffer in buffers:
        buffer[:] = bytes(len(buffer))
    assert x.tolist() == [1.0, 2.0]
    assert len(buffers) == 1


# --- einops and SciPy ------------------------------------------------------------------------------------------------


def test_einops_takes_tensors_and_stays_lazy_and_differentiable():
    import einops
    import einops.array_api

    register_with_einops()
    register_with_einops()
    gc.collect()  # einops refers to its backends weakly
    x = lg.asarray(data(2, 3, 4))
    expected = x.numpy().transpose(2, 0, 1).reshape(4, 6)
    for library in (einops, einops.array_api):
        before = lg.stats().executions
        moved = library.rearrange(x, "a b c -> c (a b)")
        assert lg.stats().executions == before
        np.testing.assert_array_equal(moved.numpy(), expected)
        np.testing.assert_array_equal(library.reduce(x, "a b c -> a c", "max").numpy(), x.numpy().max(1))
        np.testing.assert_allclose(library.reduce(x, "a b c -> b", "mean").numpy(), x.numpy().mean((0, 2)))
        assert library.repeat(x, "a b c -> a b c r", r=5).shape == (2, 3, 4, 5)
        packed, shapes = library.pack([x, x[0]], "* b c")
        assert packed.shape == (3, 3, 4)
        assert library.unpack(packed, shapes, "* b c")[1].shape == (3, 4)
    assert einops.rearrange([x, x], "n a b c -> n (a b c)").shape == (2, 24)
    assert einops.einsum(x, x, "a b c, a d c -> a b d").shape == (2, 3, 3)
    slope = lg.grad(lambda x: lg.sum(einops.reduce(x, "a b c -> b", "sum") * lg.asarray([1.0, 2.0, 3.0])))(x)
    np.testing.assert_array_equal(slope.numpy(), np.broadcast_to([[1.0], [2.0], [3.0]], (2, 3, 4)))


SCIPY = """
import numpy as np, scipy.fft, scipy.integrate, scipy.ndimage, scipy.signal, scipy.special, scipy.stats
import scipy.cluster.vq, scipy.differentiate, scipy.optimize
import livegrad as lg
array = np.linspace(0.1, 2.0, 12)
functions = {
    "logsumexp": scipy.special.logsumexp, "gamma": scipy.special.gamma, "softmax": scipy.special.softmax,
    "zscore": scipy.stats.zscore, "gmean": scipy.stats.gmean, "skew": scipy.stats.skew,
    "entropy": scipy.stats.entropy, "test": lambda x: scipy.stats.ttest_1samp(x, 0.5).statistic,
    "correlation": lambda x: scipy.stats.pearsonr(x, x * x).statistic,
    "fft": scipy.fft.fft, "dct": scipy.fft.dct, "shift": scipy.fft.fftshift,
    "convolve": lambda x: scipy.signal.fftconvolve(x, x), "detrend": scipy.signal.detrend,
    "hilbert": scipy.signal.hilbert, "blur": lambda x: scipy.ndimage.gaussian_filter(x, 1.0),
    "trapezoid": scipy.integrate.trapezoid, "whiten": lambda x: scipy.cluster.vq.whiten(x[:, None]),
    "rosen": scipy.optimize.rosen,
}
for name, function in functions.items():
    found, expected = function(lg.asarray(array)), function(array)
    assert isinstance(found, lg.Tensor), (name, type(found))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-9, err_msg=name)
slope = scipy.differentiate.derivative(lg.sin, lg.asarray(array)).df
np.testing.assert_allclose(np.asarray(slope), np.cos(array), rtol=1e-8)
print(len(functions))
"""


def test_scipy_gives_tensors_for_tensors():
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    ran = subprocess.run([sys.executable, "-c", SCIPY], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "19"


class Foreign:
    """An array of another library that NumPy cannot read."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("no")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


def test_arrays_of_other_libraries_are_named_by_library() -> None:
    with pytest.raises(lg.UsageError, match=r"found \w+\.Foreign; use lg\.asarray"):
        lg.sin(Foreign())
    with pytest.raises(lg.UsageError, match="found Foreign; Can't call numpy"):
        lg.asarray(Foreign())


def test_numpy_knows_the_type_of_a_tensor_without_reading_it() -> None:
    unread = lg.ones(2, dtype=lg.int8) + 1
    assert np.result_type(unread, np.float64) == np.float64
    assert np.dtype(unread) == np.int8
    assert np.result_type(lg.ones(2, dtype=lg.bfloat16)) == np.float32  # the type that NumPy reads
    assert not unread.is_computed


class _OfAnotherLibrary:
    """An array that NumPy copies and DLPack shares."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("only a copy")
        return self.array.copy()

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_arrays_that_numpy_would_copy_are_shared_by_dlpack() -> None:
    array = np.ones(3, np.float32)
    shared = lg.asarray(_OfAnotherLibrary(array), copy=False)
    copied = lg.asarray(_OfAnotherLibrary(array))
    array[0] = 7.0
    assert shared.tolist() == [7.0, 1.0, 1.0]
    assert copied.tolist() == [1.0, 1.0, 1.0]
