"""Values that stay on a device, with a simulated device of NumPy arrays: copies, residency, and where graphs run."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.node import Function
from livegrad.lazy import devices, eviction, lazy_values
from livegrad.runtime.cpu import compile_function
from livegrad.state import fresh_session


class Away:
    """A NumPy array that simulates an array in device memory."""

    device = "cuda"
    uploads = 0

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.hidden = array
        self.dtype, self.shape, self.nbytes = array.dtype, array.shape, array.nbytes

    @staticmethod
    def from_host(array: np.ndarray[Any, Any]) -> "Away":
        Away.uploads += 1
        return Away(np.array(array))

    def rows(self, start: int, count: int) -> "Away":
        return Away(self.hidden[start : start + count])

    @cached_property
    def on_host(self) -> np.ndarray[Any, Any]:
        return self.hidden.copy()

    @property
    def is_on_host(self) -> bool:
        return "on_host" in self.__dict__


class Plan:
    """A CPU plan that takes and returns simulated device arrays."""

    def __init__(self, function: Function) -> None:
        self.inner = compile_function(function).plan()
        self.step_counts = self.inner.step_counts

    def run_on_device(self, arguments: Sequence[Any], defers_checks: bool = False) -> list[Any]:
        given = [np.ascontiguousarray(a.hidden) if isinstance(a, Away) else a for a in arguments]
        return [Away(np.asarray(result)) for result in self.inner.run(given)]


def compile_for_device(function: Function) -> Any:
    return SimpleNamespace(plan=lambda: Plan(function), function=function)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    backend = SimpleNamespace(
        DeviceArray=Away, compile_chosen=lambda: compile_for_device, current_compiler=lambda: None, make_room=[]
    )
    monkeypatch.setattr(devices, "_cuda", lambda: backend)
    with fresh_session():
        yield


def copies() -> int:
    return lg.stats().copies_between_devices


def test_data_is_uploaded_once_and_results_are_copied_when_they_are_read() -> None:
    x = lg.asarray([1.0, 2.0, 3.0]).to("cuda")
    uploads, before = Away.uploads, copies()
    doubled = x * 2.0
    doubled.execute()
    (x + 1.0).execute()
    assert Away.uploads - uploads == 1
    assert copies() - before == 1
    assert isinstance(lazy_values.cached_value(doubled.node), Away)
    np.testing.assert_array_equal(np.asarray(doubled), [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(np.asarray(doubled), [2.0, 4.0, 6.0])
    assert copies() - before == 2


def test_tensors_moved_back_are_computed_on_the_host() -> None:
    x = lg.asarray([1.0, 2.0])
    there = x.to("cuda") * 3.0
    back = there.to("cpu") + x
    assert (there.device, back.device) == ("cuda", "cpu")
    np.testing.assert_array_equal(np.asarray(back), [4.0, 8.0])


def test_a_loop_of_updates_stays_on_the_device_when_its_history_is_dropped() -> None:
    x = lg.asarray([1.0, 2.0]).to("cuda")
    x.execute()
    before = copies()
    for _ in range(30):
        x = x * 0.5 + 1.0
        x.execute()
    assert copies() == before
    assert x.device == "cuda"
    np.testing.assert_allclose(np.asarray(x), [2.0, 2.0], rtol=1e-6)


def test_constants_are_created_on_the_device_even_if_a_host_copy_is_held() -> None:
    held = [lg.ones((2,)).execute(), lg.full((2,), 0.5).execute()]  # the constants below are the same nodes
    x = lg.asarray([1.0, 2.0]).to("cuda").execute()
    before = copies()
    (x * 0.5 + 1.0).execute()
    assert copies() == before
    np.testing.assert_array_equal(np.stack([np.asarray(one) for one in held]), [[1.0, 1.0], [0.5, 0.5]])


def test_rows_of_data_on_the_device_run_one_program() -> None:
    data = lg.asarray(np.arange(24.0).reshape(8, 3)).to("cuda").execute()
    np.asarray(data[0:2] * 2.0)
    before = lg.stats().programs_compiled
    for start in (2, 4, 6):
        found = np.asarray(data[start : start + 2] * 2.0)
        np.testing.assert_array_equal(found, np.arange(24.0).reshape(8, 3)[start : start + 2] * 2)
    assert lg.stats().programs_compiled == before


def test_a_compiled_function_runs_where_its_arguments_lie() -> None:
    function = lg.jit(lambda x: x + 1.0)
    x = lg.asarray([1.0, 2.0]).to("cuda").execute()
    before = copies()
    found = function(x)
    assert (found.device, copies()) == ("cuda", before)
    doubled = found * 2.0
    np.testing.assert_array_equal(np.asarray(doubled), [4.0, 6.0])
    found.fill(3.0)
    np.testing.assert_array_equal(np.asarray(doubled), [6.0, 6.0])
    assert found.device == doubled.device == "cuda"
    assert function(lg.asarray([1.0])).device == "cpu"


def test_device_values_are_dropped_when_memory_runs_out_and_recomputed() -> None:
    x = lg.asarray([1.0, 2.0]).to("cuda")
    y = (x * 3.0).execute()
    before = lg.stats().evictions
    assert eviction.release_device_values()
    assert lg.stats().evictions > before
    assert lazy_values.cached_value(y.node) is None
    np.testing.assert_array_equal(np.asarray(y), [3.0, 6.0])


def test_a_gradient_is_computed_where_its_variable_is() -> None:
    w = lg.asarray([1.0, 2.0]).to("cuda").requires_grad_()
    lg.sum(w * w).backward()
    assert w.grad is not None
    assert w.grad.device == "cuda"
    np.testing.assert_array_equal(np.asarray(w.grad), [2.0, 4.0])


def test_other_libraries_learn_the_device_of_a_tensor() -> None:
    x = lg.asarray([1.0, 2.0])
    assert x.__dlpack_device__() == (1, 0)
    assert not hasattr(x, "__cuda_array_interface__")
    assert x.to("cuda").__dlpack_device__() == (2, 0)
