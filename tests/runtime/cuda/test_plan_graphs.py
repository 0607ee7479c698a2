"""Graphs of plans on the simulated driver: when nodes are updated, and when graphs are rebuilt and destroyed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f32, f64
from livegrad.runtime.cuda import DeviceArray
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.driver import DeviceError
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import Result, SimulatedDriver

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
VALUES = np.array([3.0, 1.0, 2.0, 5.0], np.float32)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SimulatedDriver]:
    before = set_default_cache(ObjectCache(CacheSettings(tmp_path)))
    with simulated() as simulated_driver:
        yield simulated_driver
    set_default_cache(before)


def scaled() -> CudaFunction:
    """A function of an array and a number that runs as one kernel."""
    return CudaFunction(trace(lambda x, s: ops.neg(x) * ops.broadcast(s, shape=(4,), axes=()), Tensor(f32, (4,)), f32))


def sorted_row(x: Any) -> Any:
    return ops.sort(x, axis=0, descending=False, stable=True)


def sorted_sums() -> CudaFunction:
    """A kernel, a library call and a kernel, in one graph."""
    return CudaFunction(trace(lambda x: sorted_row(x + x) + x, Tensor(f32, (4,))))


def near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_changed_number_updates_one_node(driver: SimulatedDriver) -> None:
    compiled = scaled()
    near(compiled(VALUES, 2.0), -2 * VALUES)
    (graph,) = compiled.plan().graphs
    near(compiled(VALUES, 3.0), -3 * VALUES)
    near(compiled(VALUES, 3.0), -3 * VALUES)
    assert (graph.counters.built, graph.counters.launched, graph.counters.nodes_updated) == (1, 3, 1)
    assert driver.count("cuGraphExecKernelNodeSetParams") == 1


def test_an_array_on_the_device_is_bound_in_place(driver: SimulatedDriver) -> None:
    compiled = scaled()
    arrays = [DeviceArray.from_host(VALUES + number) for number in range(3)]
    for number, array in enumerate(arrays):
        near(compiled(array, 2.0), -2 * (VALUES + number))
    assert driver.count("cuGraphInstantiate") == 1
    assert driver.count("cuGraphExecKernelNodeSetParams") == 2


def test_a_graph_whose_node_cannot_be_updated_is_rebuilt(driver: SimulatedDriver) -> None:
    compiled = scaled()
    compiled(VALUES, 2.0)
    driver.refuse["cuGraphExecKernelNodeSetParams"] = Result.CUDA_ERROR_INVALID_VALUE
    near(compiled(VALUES, 3.0), -3 * VALUES)
    (graph,) = compiled.plan().graphs
    assert graph.counters.built == 2
    assert driver.count("cuGraphExecDestroy") == 1, "the old one"
    near(compiled(VALUES, 4.0), -4 * VALUES)
    assert graph.counters.built == 2


def test_a_library_call_with_new_addresses_is_captured_again(driver: SimulatedDriver) -> None:
    compiled = sorted_sums()
    (first, second) = DeviceArray.from_host(VALUES), DeviceArray.from_host(VALUES[::-1])
    near(compiled(first), np.sort(2 * VALUES) + VALUES)
    near(compiled(second), np.sort(2 * VALUES) + VALUES[::-1])
    (graph,) = compiled.plan().graphs
    assert graph.counters.built == 1


def test_alternating_addresses_need_no_updates(driver: SimulatedDriver) -> None:
    compiled = sorted_sums()
    arrays = [DeviceArray.from_host(VALUES + number) for number in range(3)]
    for number in (0, 1, 2) * 3:
        near(compiled(arrays[number]), np.sort(2 * VALUES + 2 * number) + VALUES + number)
    names = ("cuStreamEndCapture", "cuGraphInstantiate", "cuGraphExecKernelNodeSetParams")
    counts = [driver.count(name) for name in names]
    for number in (0, 1, 2, 2, 1, 0) * 3:
        near(compiled(arrays[number]), np.sort(2 * VALUES + 2 * number) + VALUES + number)
    assert [driver.count(name) for name in names] == counts
    (graph,) = compiled.plan().graphs
    assert graph.counters.built == 3


def test_addresses_that_do_not_recur_share_one_executable(driver: SimulatedDriver) -> None:
    compiled = sorted_sums()
    arrays = [DeviceArray.from_host(VALUES + number) for number in range(20)]
    for number, array in enumerate(arrays):
        near(compiled(array), np.sort(2 * VALUES + 2 * number) + VALUES + number)
    assert driver.count("cuGraphInstantiate") == 1
    for number in (3, 7, 3, 7, 12, 3, 12, 7, 19, 5, 5, 0, 3) * 2:
        near(compiled(arrays[number]), np.sort(2 * VALUES + 2 * number) + VALUES + number)
    assert driver.count("cuGraphInstantiate") - driver.count("cuGraphExecDestroy") <= 4


def test_numbers_reach_every_executable(driver: SimulatedDriver) -> None:
    compiled = scaled()
    arrays = [DeviceArray.from_host(VALUES + number) for number in range(2)]
    for round in range(6):
        for number, array in enumerate(arrays):
            near(compiled(array, float(round)), -float(round) * (VALUES + number))
    assert driver.count("cuGraphInstantiate") == 2


@pytest.mark.parametrize("refused", [False, True])
def test_a_library_call_of_another_structure_rebuilds_the_graph(driver: SimulatedDriver, refused: bool) -> None:
    compiled = CudaFunction(trace(sorted_row, Tensor(f32, (4,))))
    near(compiled(DeviceArray.from_host(VALUES)), np.sort(VALUES))
    captured = driver.count("cuStreamEndCapture")
    if refused:
        driver.refuse["cuGraphExecChildGraphNodeSetParams"] = Result.CUDA_ERROR_INVALID_VALUE
    other = DeviceArray.from_host(1 - VALUES)
    near(compiled(other), np.sort(1 - VALUES))
    (graph,) = compiled.plan().graphs
    assert graph.counters.built == 1 + refused
    assert driver.count("cuStreamEndCapture") == captured + 1 + refused
    near(compiled(other), np.sort(1 - VALUES))
    assert driver.count("cuStreamEndCapture") == captured + 1 + refused


def test_a_failed_update_is_repeated_in_the_next_run(driver: SimulatedDriver) -> None:
    compiled = scaled()
    compiled(VALUES, 2.0)
    driver.refuse["cuGraphExecKernelNodeSetParams"] = Result.CUDA_ERROR_INVALID_VALUE
    driver.refuse["cuGraphInstantiate"] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        compiled(VALUES, 3.0)
    near(compiled(VALUES, 3.0), -3 * VALUES)


def test_graphs_are_destroyed_with_their_plan(driver: SimulatedDriver) -> None:
    compiled = sorted_sums()
    compiled(VALUES)
    compiled.forget_plans()
    assert driver.count("cuGraphInstantiate") == driver.count("cuGraphExecDestroy") == 1, "without the collector"
    created = driver.count("cuGraphCreate") + driver.count("cuStreamEndCapture")
    assert driver.count("cuGraphDestroy") == created
    gc.collect()
    near(compiled(VALUES), np.sort(2 * VALUES) + VALUES)


def test_host_steps_run_between_graphs(driver: SimulatedDriver) -> None:
    matrices = np.eye(3) + np.arange(18.0).reshape(2, 3, 3) / 7

    def values_of(a: Any) -> Any:
        return np.linalg.eigvals(a).real

    compiled = CudaFunction(trace(lambda a: ops.neg(ops.real(ops.eigvals(a + a))), Tensor(f64, (2, 3, 3))))
    near(compiled(matrices), -values_of(2 * matrices))
    near(compiled(matrices + 1), -values_of(2 * (matrices + 1)))
    assert len(compiled.plan().graphs) == 2


@pytest.mark.parametrize("seed", range(3))
def test_steps_that_reuse_memory_run_in_order(tmp_path: Path, seed: int) -> None:
    """The driver runs nodes in a random order that respects their dependencies."""

    def function(x: Any) -> Any:
        for _ in range(6):
            total = ops.reduce(x, kind="sum", axes=(0,))
            x = x * x - ops.broadcast(total, shape=(40,), axes=())
            x = sorted_row(x) * 0.01
        return x

    values = np.random.default_rng(seed).normal(size=40)
    expected = values
    for _ in range(6):
        expected = np.sort(expected * expected - expected.sum()) * 0.01
    before = set_default_cache(ObjectCache(CacheSettings(tmp_path)))
    try:
        with simulated(seed):
            near(CudaFunction(trace(function, Tensor(f64, (40,))))(values), expected)
    finally:
        set_default_cache(before)
