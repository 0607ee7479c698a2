"""Sorting and searching on the device equal NumPy's, with ties and NaN, without host steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, bf16, f32, i32, scalar_of_dtype
from livegrad.ir.types.scalars import SCALARS
from livegrad.live.blocks import block, neighbour_block
from livegrad.live.engine import Engine
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If
from livegrad.ops.sorting import argsort, searchsorted, sort
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries import device_sorting
from livegrad.runtime.cuda.libraries.device_sorting import SLOTS, source_of, tile_source_of
from livegrad.runtime.cuda.nvrtc import compile_source
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver
from tests.runtime.cuda.test_layout import COMPILED_FOR, parameters_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Few different numbers, so that many are equal; zeros of both signs and NaN among floats."""
    actual = np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype)
    if actual.dtype.kind == "f":
        actual[actual == 1] = -0.0
        actual[actual == 3] = np.nan
    return actual


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "descending"),
    [
        ("float32", (37,), 0, False),
        ("float32", (37,), 0, True),
        ("int64", (5, 2, 3), 0, False),
        ("float16", (2, 11, 2), 1, True),
        ("bool", (1, 9), 0, False),
    ],
)
def test_a_sort_equals_numpys_stable_sort(driver, dtype, shape, axis, descending):
    check_sort(dtype, shape, axis, descending)
    assert driver.count("cuMemcpyDtoHAsync") == 2  # only the results


@needs_compiler
@pytest.mark.parametrize("length", [1, 2, 10, 11, 43, 100])
@pytest.mark.parametrize(("dtype", "descending"), [("float32", False), ("float64", True), ("int8", False)])
def test_tiles_are_sorted_in_shared_memory_first(driver, monkeypatch, dtype, descending, length):
    monkeypatch.setattr(device_sorting, "_SHARED_BYTES", 256)  # tiles of 10 to 25 elements
    monkeypatch.setattr(device_sorting, "_FEWEST_TILED", 1)
    monkeypatch.setattr(device_sorting, "THREADS", 32)
    check_sort(dtype, (3, length), 1, descending)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("shape", [(3, 127), (7, 128), (5, 2048), (3, 5000), (1, 300_000)])
def test_a_device_sorts_long_rows_as_numpy_does(dtype, shape):
    for descending in (False, True):
        check_sort(dtype, shape, 1, descending)


def check_sort(dtype, shape, axis, descending):
    values = numbers(dtype, shape)
    type = Tensor(scalar_of_dtype(values.dtype), shape)

    def both(x):
        return tuple(op(x, axis=axis, descending=descending, stable=True) for op in (sort, argsort))

    actual, order = CudaFunction(trace(both, type))(values)
    flipped = np.flip(values, axis) if descending else values
    expected = np.argsort(flipped, axis=axis, kind="stable")
    if descending:  # flipped before and after, so that equal elements keep their order
        expected = shape[axis] - 1 - np.flip(expected, axis)
    np.testing.assert_array_equal(order, expected)
    ordered = np.take_along_axis(values, expected, axis)
    np.testing.assert_array_equal(actual, ordered)
    np.testing.assert_array_equal(np.signbit(actual.astype(float)), np.signbit(ordered.astype(float)))


@needs_compiler
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_search_equals_numpys(driver, side):
    ordered, values = np.sort(numbers("float32", (21,))), numbers("float32", (4, 5))
    function = trace(lambda a, b: searchsorted(a, b, side=side), Tensor(f32, (21,)), Tensor(f32, (4, 5)))
    np.testing.assert_array_equal(CudaFunction(function)(ordered, values), np.searchsorted(ordered, values, side))


@needs_compiler
def test_a_sort_in_a_loop_is_part_of_one_launch(driver):
    body = Composite("body")
    step = body.graph.add(block(lambda x: lg.flip(lg.sort(x)) * 0.5 + x, name="step"))
    for pin in (step["x"], step["result"]):
        body.expose(pin)
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "result"}))
    value = np.random.default_rng(0).normal(size=13).astype(np.float32)
    engine.set(loop["x"], value)
    engine.set(loop["count"], 4)
    driver.calls.clear()
    engine.step()
    assert driver.count("cuGraphLaunch") == 1
    assert "cuStreamSynchronize" not in driver.calls
    for _ in range(4):
        value = np.flip(np.sort(value)) * np.float32(0.5) + value
    np.testing.assert_array_equal(engine.read(loop), value)


@needs_compiler
def test_sorts_inside_and_outside_a_region_do_not_overlap(driver, monkeypatch):
    """They share the memory of passes, like the calls of a library."""
    graphs = []
    instantiate = SimulatedDriver.cuGraphInstantiate
    monkeypatch.setattr(
        SimulatedDriver,
        "cuGraphInstantiate",
        lambda self, graph, flags: graphs.append(graph) or instantiate(self, graph, flags),
    )
    engine = Engine("cuda")
    outside = engine.add(block(lambda x: lg.sort(x), name="outside"))
    body = Composite("body")
    inside = body.graph.add(block(lambda x: lg.sort(x), name="inside"))
    for pin in (inside["x"], inside["result"]):
        body.expose(pin)
    gate = engine.add(If("gate", body))
    for pin in (outside["x"], gate["x"]):
        engine.set(pin, np.arange(5, dtype=np.float32)[::-1].copy())
    engine.set(gate["condition"], True)
    engine.step()
    (conditional,) = [node for node in graphs[-1].nodes if node.kind == "conditional"]
    (child,) = [node for node in graphs[-1].nodes if node.kind == "child"]
    assert child in conditional.before or conditional in child.before
    np.testing.assert_array_equal(engine.read(gate["result"]), np.arange(5))


@needs_compiler
def test_neighbours_are_found_without_the_host(driver):
    points = np.random.default_rng(1).uniform(0, 2, (23, 2)).astype(np.float32)
    actual = []
    for name in ("cpu", "cuda"):
        engine = Engine(name)
        near = engine.add(neighbour_block(capacity=6))
        engine.set(near["positions"], points)
        engine.set(near["radius"], 0.5)
        driver.calls.clear()
        assert engine.step().ok, engine.frame.problems
        assert "cuStreamSynchronize" not in driver.calls
        actual.append([engine.read(pin) for pin in near.outputs.values()])
    for here, there in zip(*actual, strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("architecture", COMPILED_FOR)
def test_the_kernels_compile_and_take_what_is_packed(architecture):
    for element in (f32, i32, bf16, SCALARS["bool"]) if architecture == "sm_90" else (f32,):
        cubin = compile_source(source_of(element, descending=True), architecture, "sort")
        assert parameters_of(cubin, "merge") == parameters_of(cubin, "search") == [(0, 8 * len(SLOTS))]
        tiles = compile_source(tile_source_of(element, descending=True, ordered=True), architecture, "sort")
        assert parameters_of(tiles, "sort_tiles") == [(0, 8 * len(SLOTS))]
