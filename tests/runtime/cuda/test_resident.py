"""Tensors on a real GPU: resident data, counted copies, reused memory, other libraries."""

import gc
import importlib

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f32
from livegrad.runtime.cuda import CudaFunction, DeviceArray, DeviceError, compile_function
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.result_memory import memory_in_use

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(8)


def copies() -> int:
    return lg.stats().copies_between_devices


def test_data_moved_to_the_device_is_copied_once_and_results_when_they_are_read() -> None:
    x = RNG.normal(size=(300, 400)).astype(np.float32)
    moved = lg.asarray(x).to("cuda")
    before = copies()
    doubled, summed = moved * 2.0, moved.sum(axis=0)
    lg.execute(doubled, summed)
    assert copies() - before == 1
    lg.execute(doubled + 1.0)
    assert copies() - before == 1
    np.testing.assert_allclose(np.asarray(summed), x.sum(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.asarray(summed), x.sum(axis=0), rtol=1e-4, atol=1e-4)
    assert copies() - before == 2
    np.testing.assert_array_equal(np.asarray(doubled + 1.0), x * 2 + 1)
    assert copies() - before == 3


def test_forward_and_backward_are_one_graph() -> None:
    x = lg.asarray(RNG.normal(size=(64, 32)).astype(np.float32)).to("cuda")
    w = lg.asarray(RNG.normal(size=(32, 8)).astype(np.float32)).to("cuda").requires_grad_()
    loss = lg.mean((lg.tanh(x @ w) - 0.5) ** 2)
    loss.backward()
    assert w.grad is not None
    before = lg.stats()
    lg.execute(loss, w.grad)
    after = lg.stats()
    assert after.executions - before.executions == 1
    assert w.grad.device == "cuda"
    here = lg.asarray(np.asarray(w)).requires_grad_()
    lg.mean((lg.tanh(lg.asarray(np.asarray(x)) @ here) - 0.5) ** 2).backward()
    assert here.grad is not None
    np.testing.assert_allclose(np.asarray(w.grad), np.asarray(here.grad), rtol=1e-4, atol=1e-6)


def test_a_training_loop_stays_on_the_device() -> None:
    target = lg.asarray(RNG.normal(size=500).astype(np.float32)).to("cuda")
    w = lg.asarray(np.zeros(500, np.float32)).to("cuda").requires_grad_()
    lg.execute(target, w)
    before = copies()
    for _ in range(30):
        w.grad = None
        lg.sum((w - target) ** 2).backward()
        assert w.grad is not None
        w = (w - 0.1 * w.grad).detach().requires_grad_()
        w.execute()
    assert copies() == before
    assert w.device == "cuda"
    np.testing.assert_allclose(np.asarray(w), np.asarray(target), rtol=1e-2, atol=1e-2)


def test_batches_of_a_data_set_run_one_program() -> None:
    data = lg.asarray(RNG.normal(size=(40, 16)).astype(np.float32)).to("cuda").execute()
    host = np.asarray(data)
    np.asarray((data[0:8] * 2.0).sum())
    before = lg.stats().programs_compiled
    for start in range(8, 40, 8):
        actual = np.asarray((data[start : start + 8] * 2.0).sum(axis=0))
        np.testing.assert_allclose(actual, (host[start : start + 8] * 2).sum(axis=0), rtol=1e-5, atol=1e-5)
    assert lg.stats().programs_compiled - before <= 1


def test_devices_are_mixed_where_tensors_were_moved() -> None:
    x = lg.asarray([1.0, 2.0, 3.0])
    there = x.to("cuda") * 2.0
    back = there.to("cpu") + x
    assert (there.device, back.device) == ("cuda", "cpu")
    np.testing.assert_array_equal(np.asarray(back), [3.0, 6.0, 9.0])


def test_filling_data_of_the_device_leaves_it_there() -> None:
    made = lg.jit(lambda x: x + 1.0)(lg.asarray([1.0, 2.0]).to("cuda"))
    doubled = made * 2.0
    np.testing.assert_array_equal(np.asarray(doubled), [4.0, 6.0])
    made.fill(3.0)
    np.testing.assert_array_equal(np.asarray(doubled), [6.0, 6.0])
    assert made.device == doubled.device == "cuda"


def test_memory_is_returned_when_tensors_are_freed() -> None:
    x = lg.asarray(np.ones(1 << 22, np.float32)).to("cuda").execute()
    lg.execute(x * 3.0)
    gc.collect()
    before, computed = memory_in_use(), None
    for factor in range(20):
        computed = x * (float(factor) + 0.123)
        computed.execute()
    del computed
    gc.collect()
    after = memory_in_use()
    assert after[0] - before[0] < 1 << 20
    assert after[1] - before[1] < 1 << 27, "freed memory is used again"


def test_out_of_memory_is_a_clear_error() -> None:
    with pytest.raises(DeviceError, match="out of memory"):
        DeviceMemory(1 << 50)
    assert DeviceMemory(1 << 20).size == 1 << 20


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_other_libraries_read_tensors_in_place(library: str) -> None:
    pytest.importorskip(library)
    other = importlib.import_module(library)
    values = RNG.normal(size=(5, 6)).astype(np.float32)
    tensor = lg.asarray(values).to("cuda") + 1.0
    assert tensor.__dlpack_device__() == (2, 0)
    shared = other.from_dlpack(tensor)
    copied = shared.cpu().numpy() if library == "torch" else shared.get()
    np.testing.assert_array_equal(copied, values + 1)
    same = other.as_tensor(tensor, device="cuda") if library == "torch" else other.asarray(tensor)
    copied = same.cpu().numpy() if library == "torch" else same.get()
    np.testing.assert_array_equal(copied, values + 1)
    del tensor
    gc.collect()
    again = shared.cpu().numpy() if library == "torch" else shared.get()
    np.testing.assert_array_equal(again, values + 1)


def test_arrays_of_other_libraries_are_used_in_place() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(100, dtype=cupy.float32)
    function = trace(lambda x: x * 2.0, Tensor(f32, (100,)))
    np.testing.assert_array_equal(compile_function(function)(x * 3), np.arange(100) * 6)


def test_results_on_the_device_are_not_overwritten_by_later_runs() -> None:
    compiled = CudaFunction(trace(lambda x: x * 2.0, Tensor(f32, (50,))))
    first = compiled.on_device(np.full(50, 1, np.float32))
    second = compiled.on_device(DeviceArray.from_host(np.full(50, 5, np.float32)))
    assert first.numpy()[0] == 2.0
    assert second.numpy()[0] == 10.0


def test_a_function_returns_its_arguments() -> None:
    compiled = CudaFunction(trace(lambda x: (x, x * 2.0, x), Tensor(f32, (4,))))
    source = np.arange(4, dtype=np.float32)
    for actual in (compiled(source), [part.numpy() for part in compiled.on_device(source)]):
        for part, expected in zip(actual, (source, source * 2, source), strict=True):
            np.testing.assert_array_equal(part, expected)


def test_jit_runs_on_the_device_of_its_arguments() -> None:
    function = lg.jit(lambda x, y: lg.sin(x) * y + y)
    x = RNG.normal(size=100).astype(np.float32)
    there = lg.asarray(x).to("cuda").execute()
    before = copies()
    result = function(there, there)
    assert result.device == "cuda"
    assert copies() == before
    np.testing.assert_allclose(np.asarray(result), np.sin(x) * x + x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(function(lg.asarray(x), lg.asarray(x))), np.sin(x) * x + x, rtol=1e-5, atol=1e-6
    )


def test_checks_are_raised_when_a_tensor_is_computed() -> None:
    x = lg.asarray(np.array([4, 2], np.int32)).to("cuda")
    y = lg.asarray(np.array([2, 0], np.int32)).to("cuda")
    with pytest.raises(lg.LivegradError, match="division by zero"):
        (x // y).execute()
