"""The driver calls of the CUDA executor, on a simulated driver that records them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import CompileError
from livegrad.ir.dimension import Dimension
from livegrad.ir.types import Tensor, f32
from livegrad.live.blocks import block, captured_block, edit
from livegrad.live.cuda.executable import CudaExecutable
from livegrad.live.engine import Engine
from livegrad.live.graph.block import State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For, If, While
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.live.update.diff_plans import Level
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, reason_for_no_cuda
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import Result, SimulatedDriver

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
NUMBERS = np.arange(4, dtype=np.float32)
ROW = {"x": Tensor(f32, (Dimension.symbol("n"),))}


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


def chain(length: int = 4, inputs: dict[str, Tensor] | None = ROW) -> tuple[Engine, list]:
    engine = Engine("cuda")
    blocks: list = []
    for number in range(length):
        blocks.append(engine.add(block(lambda x, gain=2.0: x * gain, name=f"b{number}", inputs=inputs)))
        if number:
            engine.connect(blocks[-2], blocks[-1]["x"])
    engine.set(blocks[0]["x"], NUMBERS)
    engine.step()
    engine.read(blocks[-1])
    return engine, blocks


def on_host(x: lg.Tensor) -> lg.Tensor:
    """The root of x² + 1 by an op that only the host supports."""
    return lg.linalg.cholesky((x * x + 1.0)[:, None, None])[:, 0, 0]


def root_of(x: np.ndarray) -> np.ndarray:
    return np.sqrt(x * x + np.float32(1))


def calls_of(driver: SimulatedDriver, engine: Engine) -> list[str]:
    driver.calls.clear()
    engine.step()
    return list(driver.calls)


def test_a_plan_is_one_graph_and_a_frame_is_one_launch(driver):
    driver.calls.clear()
    engine, blocks = chain()
    assert driver.count("cuGraphInstantiate") == driver.count("cuGraphLaunch") == 1
    assert driver.count("cuGraphAddKernelNode") == 4
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 16)


def test_a_hot_change_sets_one_node_and_launches_and_waits_for_nothing(driver):
    engine, blocks = chain()
    engine.set(blocks[0]["gain"], 3.0)
    assert calls_of(driver, engine) == ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"]
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 24)
    assert calls_of(driver, engine) == []


def test_a_failed_launch_is_repeated_in_the_next_frame(driver):
    engine, blocks = chain()
    for gain in (3.0, 4.0, 5.0):
        engine.set(blocks[0]["gain"], gain)
        engine.step()
    engine.set(blocks[0]["gain"], 6.0)
    driver.refuse["cuGraphLaunch"] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        engine.step()
    assert engine.step().ran == ("b0", "b1", "b2", "b3")
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 48)


def test_a_closed_engine_restarts_when_it_is_stepped(driver):
    engine, blocks = chain()
    for gain in (3.0, 4.0, 5.0):
        engine.set(blocks[0]["gain"], gain)
        engine.step()
    engine.close()
    engine.set(blocks[0]["gain"], 6.0)
    engine.step()
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 48)


def test_a_stale_part_has_a_smaller_executable_that_is_cached(driver):
    engine, blocks = chain()
    engine.set(blocks[2]["gain"], 3.0)
    first = calls_of(driver, engine)
    assert first.count("cuGraphAddKernelNode") == 2
    engine.set(blocks[2]["gain"], 5.0)
    assert calls_of(driver, engine) == ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"]
    # The complete graph gets the new number before it runs again.
    engine.set(blocks[0]["gain"], 1.0)
    assert calls_of(driver, engine) == ["cuGraphExecKernelNodeSetParams"] * 2 + ["cuGraphLaunch"]
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 1 * 2 * 5 * 2)


def test_an_edit_of_code_swaps_a_function_in_the_graph_that_runs(driver):
    engine, blocks = chain()
    edit(engine, blocks[0], lambda x, gain=2.0: x + gain)
    calls = calls_of(driver, engine)
    assert engine.frame.level is Level.CODE
    assert "cuGraphInstantiate" not in calls
    assert calls.count("cuGraphExecKernelNodeSetParams") == 1
    np.testing.assert_array_equal(engine.read(blocks[-1]), (NUMBERS + 2) * 8)


def test_an_edit_with_more_kernels_builds_a_new_graph(driver):
    engine, blocks = chain(2)
    edit(engine, blocks[0], lambda x, gain=2.0: lg.cumulative_sum(x) * gain * x.sum())
    assert "cuGraphInstantiate" in calls_of(driver, engine)
    np.testing.assert_array_equal(engine.read(blocks[-1]), np.cumsum(NUMBERS) * 24)


def test_an_update_that_the_driver_rejects_rebuilds_the_graph(driver):
    engine, blocks = chain()
    engine.set(blocks[0]["gain"], 3.0)
    driver.refuse["cuGraphExecKernelNodeSetParams"] = Result.CUDA_ERROR_INVALID_VALUE
    calls = calls_of(driver, engine)
    assert calls.count("cuGraphInstantiate") == calls.count("cuGraphLaunch") == 1
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 24)
    engine.set(blocks[0]["gain"], 4.0)
    assert calls_of(driver, engine) == ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"]


def test_a_region_whose_body_calls_the_host_is_run_by_the_host(driver):
    body = Composite("body")
    order = body.graph.add(block(lambda x: on_host(x) * 2.0, name="order"))
    gate = Composite("gate")
    more = gate.graph.add(block(lambda y: y + 1.0, name="more"))
    gate.expose(more["y"])
    gate.expose(more["result"], "more")
    inner = body.graph.add(If("inner", gate))
    add = body.graph.add(block(lambda a, b: a + b, name="add"))
    odd = body.graph.add(block(lambda index: index % 2 == 1, name="odd"))
    body.graph.connect(order, inner["y"])
    body.graph.connect(odd, inner["condition"])
    body.graph.connect(order, add["a"])
    body.graph.connect(inner["more"], add["b"])
    body.expose(order["x"])
    body.expose(odd["index"])
    body.expose(add["result"], "next")
    actual = []
    for name in ("cpu", "cuda"):
        engine = Engine(name)
        loop = engine.add(For("loop", body, {"x": "next"}))
        engine.set(loop["x"], np.array([3, 1, 2], np.float32))
        engine.set(loop["count"], 3)
        assert engine.step().ok, engine.frame.problems
        actual.append((engine.read(loop).tolist(), dict(engine.frame.calls)))
        engine.set(loop["count"], 0)
        engine.step()
        np.testing.assert_array_equal(engine.read(loop), [3, 1, 2])
        engine.remove(loop)
    assert actual[0] == actual[1]


def test_a_host_call_is_rebound_for_other_sizes(driver):
    row = {"x": Tensor(f32, (Dimension.symbol("n"),))}
    engine = Engine("cuda")
    before = engine.add(block(lambda x: x * 2.0, name="before", inputs=row))
    order = engine.add(block(lambda x: on_host(x) + 1.0, name="order", inputs=row))
    engine.connect(before, order["x"])
    for size in (4, 7, 3):
        values = np.random.default_rng(size).normal(size=size).astype(np.float32)
        engine.set(before["x"], values)
        assert engine.step().ok, engine.frame.problems
        np.testing.assert_array_equal(engine.read(order), root_of(values * 2) + 1)
    edit(engine, order, lambda x: on_host(x) + 2.0)
    assert engine.step().level is Level.CODE
    np.testing.assert_array_equal(engine.read(order), root_of(values * 2) + 2)


def test_an_engine_may_be_stepped_by_another_thread(driver):
    engine, blocks = chain()
    engine.set(blocks[0]["gain"], 3.0)
    worker = threading.Thread(target=engine.step)
    worker.start()
    worker.join()
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 24)


@pytest.mark.parametrize("inputs", [ROW, None], ids=["declared", "as they come"])
def test_other_sizes_are_other_slots_in_the_same_graph(driver, inputs):
    engine, blocks = chain(inputs=inputs)
    for size in (1000, 4, 1000):
        engine.set(blocks[0]["x"], np.ones(size, np.float32))
        calls = calls_of(driver, engine)
        assert engine.frame.level is Level.WARM
        assert not {"cuGraphInstantiate", "cuModuleLoadData", "cuLibraryLoadData"}.intersection(calls)
        assert calls.count("cuGraphExecKernelNodeSetParams") == 4
        np.testing.assert_array_equal(engine.read(blocks[-1]), np.full(size, 16))


def test_a_new_graph_is_built_before_the_old_one_is_destroyed(driver):
    engine, blocks = chain()
    engine.connect(blocks[-1], engine.add(block(lambda x: x + 1.0, name="more"))["x"])
    calls = calls_of(driver, engine)
    assert engine.frame.level is Level.COLD
    assert engine.frame.ran == ("more",)
    assert "cuGraphInstantiate" in calls
    assert "cuGraphExecDestroy" not in calls
    assert "cuGraphExecDestroy" in calls_of(driver, engine)  # the frame cannot be rolled back any more


@pytest.mark.parametrize("call", ["cuGraphInstantiate", "cuGraphAddKernelNode", "cuMemAllocAsync"])
def test_a_driver_error_leaves_the_old_graph_running(driver, call):
    engine, blocks = chain()
    driver.refuse[call] = Result.CUDA_ERROR_INVALID_VALUE
    more = engine.add(block(lambda x: x + 1.0, name="more"))
    engine.connect(blocks[-1], more["x"])
    engine.set(blocks[0]["gain"], 3.0)
    (problem,) = engine.step().problems
    assert problem.block is more
    assert "CUDA_ERROR_INVALID_VALUE" in str(problem)
    np.testing.assert_array_equal(engine.read(blocks[-1], running=True), NUMBERS * 24)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(more), NUMBERS * 24 + 1)


def test_out_of_memory_is_an_error_of_the_block_and_nothing_is_lost():
    with simulated(size=1 << 20) as driver:
        engine, blocks = chain()
        gc.collect()
        driver.cuStreamSynchronize(0)
        before = driver.free
        large = engine.add(block(lambda x: x * 2.0, name="large"))
        engine.set(large["x"], np.zeros(1 << 19, np.float32))
        (problem,) = engine.step().problems
        assert problem.block is large
        assert "out of memory" in str(problem)
        engine.remove(large)
        engine.set(blocks[0]["gain"], 3.0)
        assert engine.step().ok
        np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 24)
        gc.collect()
        driver.cuStreamSynchronize(0)
        assert abs(driver.free - before) < 4096
        engine.close()
        del engine, blocks, large, problem
        gc.collect()
        driver.cuStreamSynchronize(0)
        assert driver.free == driver.total


def test_reading_later_does_not_wait_and_is_not_changed_by_later_frames(driver):
    engine, blocks = chain()
    reading = engine.read_async(blocks[-1])
    engine.set(blocks[0]["gain"], 100.0)
    driver.calls.clear()
    engine.step()
    assert not reading.ready()
    assert not any("Synchronize" in call for call in driver.calls)
    np.testing.assert_array_equal(reading.result(), NUMBERS * 16)
    assert reading.ready()
    np.testing.assert_array_equal(engine.read(blocks[-1]), NUMBERS * 800)


def test_a_state_moves_by_a_copy_on_the_device(driver):
    engine = Engine("cuda")
    position = engine.add(State("position", np.zeros(3, np.float32)))
    move = engine.add(block(lambda x, speed=1.0: x + speed, name="move"))
    engine.connect(position, move["x"])
    engine.connect(move, position["next"])
    engine.step()
    for _ in range(4):
        assert calls_of(driver, engine) == ["cuGraphLaunch"] * 2
    np.testing.assert_array_equal(engine.read(position), np.full(3, 5))


def test_two_states_that_feed_each_other_are_swapped(driver):
    engine = Engine("cuda")
    first, second = (engine.add(State(name, np.float32(value))) for name, value in (("first", 1), ("second", 2)))
    engine.connect(first, second["next"])
    engine.connect(second, first["next"])
    engine.add(block(lambda x=1.0: x, name="other"))
    engine.step()
    assert (float(engine.read(first)), float(engine.read(second))) == (2, 1)


def test_a_whole_optimisation_is_one_launch_and_its_count_is_hot(driver):
    body = Composite("body")
    step = body.graph.add(block(lambda x, rate=0.25: x - rate * 2.0 * (x - 3.0), name="step"))
    for pin in (step["x"], step["rate"], step["result"]):
        body.expose(pin)
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "result"}))
    engine.set(loop["x"], np.zeros(4, np.float32))
    engine.set(loop["rate"], 0.25)
    engine.set(loop["count"], 50)
    assert calls_of(driver, engine).count("cuGraphLaunch") == 1
    np.testing.assert_allclose(engine.read(loop), 3, rtol=1e-6)
    assert engine.frame.calls["loop/step"] == 50
    engine.set(loop["count"], 0)
    calls = calls_of(driver, engine)
    assert engine.frame.level is Level.HOT
    assert "cuGraphInstantiate" not in calls
    np.testing.assert_array_equal(engine.read(loop), np.zeros(4))


def test_a_count_and_code_inside_the_loop_change_in_one_frame(driver):
    body = Composite("body")
    step = body.graph.add(block(lambda x, by=1.0: x + by, name="step"))
    for pin in (step["x"], step["by"], step["result"]):
        body.expose(pin)
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "result"}))
    engine.set(loop["x"], np.zeros(4, np.float32))
    engine.set(loop["by"], 1.0)
    engine.set(loop["count"], 3)
    engine.step()
    engine.set(loop["count"], 5)
    engine.set(loop["by"], 2.0)
    edit(engine, step, lambda x, by=1.0: x + 10.0 * by)
    engine.step()
    np.testing.assert_array_equal(engine.read(loop), np.full(4, 100))
    assert engine.frame.calls["loop/step"] == 5


def test_status_words_never_run_out(driver):
    engine = Engine("cuda")
    pick = engine.add(block(lambda x, k: lg.take(x, k), name="pick"))
    engine.set(pick["x"], NUMBERS)
    engine.set(pick["k"], np.array([1, 2]))
    engine.step()
    running = engine._running
    assert isinstance(running, CudaExecutable)
    running.reports._status_used = running.reports.ledger.status_words  # as after many edits
    running.reports._status_ranges.clear()
    edit(engine, pick, lambda x, k: lg.take(x, k) * 2.0)
    assert engine.step().ok
    np.testing.assert_array_equal(engine.read(pick), [2, 4])
    engine.set(pick["k"], np.array([1, 9]))
    assert engine.step().failed == {"pick"}
    engine.set(pick["k"], np.array([3, 3]))
    assert engine.step().failed == frozenset()
    np.testing.assert_array_equal(engine.read(pick), [6, 6])


def test_a_loop_stops_when_its_condition_is_false(driver):
    body = Composite("body")
    halve = body.graph.add(block(lambda x: (x * 0.5, x > 2.0), name="halve", outputs=("half", "condition")))
    for pin in (*halve.inputs.values(), *halve.outputs.values()):
        body.expose(pin)
    engine = Engine("cuda")
    loop = engine.add(While("loop", body, {"x": "half"}))
    engine.set(loop["x"], np.float32(64))
    engine.set(loop["condition"], True)
    engine.step()
    assert float(engine.read(loop["half"])) == 1.0
    assert dict(engine.frame.calls) == {"loop/halve": 6}


def test_profiling_changes_neither_results_nor_what_runs_and_times_regions_inside(driver):
    body = Composite("body")
    step = body.graph.add(block(lambda x: x + 1.0, name="step"))
    for pin in (step["x"], step["result"]):
        body.expose(pin)
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "result"}))
    after = engine.add(block(lambda x, gain=1.0: x * gain, name="after"))
    engine.connect(loop, after["x"])
    engine.set(loop["x"], NUMBERS)
    engine.set(loop["count"], 3)
    engine.profiling = "step"
    driver.calls.clear()
    frame = engine.step()
    assert driver.count("cuGraphAddEventRecordNode") == 4
    assert frame.seconds is not None
    assert set(frame.seconds) == {"loop", "loop/step", "after"}
    np.testing.assert_array_equal(engine.read(after), NUMBERS + 3)
    engine.profiling = "off"
    assert engine.step().ran == ()
    engine.set(after["gain"], 2.0)
    engine.profiling = "block"
    assert engine.step().ran == ("after",)
    np.testing.assert_array_equal(engine.read(after), 2 * (NUMBERS + 3))


class Foreign:
    """An array of another library."""

    def __init__(self, driver: SimulatedDriver, values: np.ndarray) -> None:
        self.driver, self.values = driver, values.copy()

    @property
    def __cuda_array_interface__(self) -> dict:
        data = (self.values.ctypes.data, False)
        return {"shape": self.values.shape, "typestr": "<f4", "data": data, "strides": None, "version": 3}


@pytest.mark.parametrize("change", ["cold", "code with more kernels", "close"])
def test_unread_timings_survive_their_graph(driver, change):
    engine, blocks = chain()
    engine.profiling = "step"
    engine.set(blocks[0]["gain"], 3.0)
    frame = engine.step()
    assert driver._queue  # the device has not run it yet
    if change == "cold":
        engine.add(block(lambda x=1.0: x, name="other"))
        engine.step()
    elif change == "close":
        engine.close()
    else:
        edit(engine, blocks[0], lambda x, gain=2.0: x * gain + lg.sum(x))
        engine.step()
    gc.collect()
    assert frame.seconds is not None
    assert {key: frame.seconds[key] > 0 for key in frame.seconds} == dict.fromkeys(frame.ran, True)
    assert set(frame.ran) == {"b0", "b1", "b2", "b3"}


def test_memory_of_another_library_is_read_in_place_and_rejected_after_it_moved(driver):
    engine, blocks = chain()
    foreign = Foreign(driver, NUMBERS)
    engine.bind(blocks[0]["x"], ExternalBuffer(foreign))
    engine.step()
    foreign.values[:] = 1
    driver.calls.clear()
    engine.step()
    assert "cuMemcpyHtoDAsync" not in driver.calls
    np.testing.assert_array_equal(engine.read(blocks[-1]), np.full(4, 16))
    old, foreign.values = foreign.values, np.zeros(4, np.float32)
    assert engine.step().failed == {failed_block.name for failed_block in blocks}
    with pytest.raises(CompileError, match="was resized or moved"):
        engine.read(blocks[-1])
    engine.bind(blocks[0]["x"], ExternalBuffer(foreign))
    assert engine.step().level is Level.WARM
    np.testing.assert_array_equal(engine.read(blocks[-1]), np.zeros(4))
    assert old[0] == 1


def test_a_graph_with_freed_addresses_is_not_launched(driver):
    engine, blocks = chain()
    running = engine._running
    assert isinstance(running, CudaExecutable)
    running.buffers.replace_memory({"b0.result": running.buffers.by_key["b1.result"]})  # what no update does
    engine.set(blocks[0]["gain"], 3.0)
    with pytest.raises(DeviceError, match="refers to freed buffers"):
        engine.step()


def copy_on(driver: SimulatedDriver):
    """A library that copies arrays."""

    def call(stream, x, result):
        source, target = (array.__cuda_array_interface__["data"][0] for array in (x, result))
        driver.cuMemcpyDtoDAsync(target, source, 4 * x.shape[0], stream)

    return call


def test_a_captured_call_is_a_child_graph_between_kernels_and_is_replaced_in_place(driver):
    engine = Engine("cuda")
    before = engine.add(block(lambda x, gain=2.0: x * gain, name="before"))
    call = engine.add(captured_block(copy_on(driver), outputs={"result": "same(0)"}, name="call"))
    after = engine.add(block(lambda x: x + 1.0, name="after"))
    engine.connect(before, call["x"])
    engine.connect(call, after["x"])
    engine.set(before["x"], NUMBERS)
    driver.calls.clear()
    engine.step()
    assert driver.count("cuGraphAddChildGraphNode") == driver.count("cuGraphLaunch") == 1
    np.testing.assert_array_equal(engine.read(after), NUMBERS * 2 + 1)
    engine.set(before["gain"], 3.0)
    assert calls_of(driver, engine) == ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"]
    edit(engine, call, copy_on(driver))
    engine.step()  # its stale set is new
    edit(engine, call, copy_on(driver))
    calls = calls_of(driver, engine)
    assert engine.frame.level is Level.RECAPTURE
    assert "cuGraphExecChildGraphNodeSetParams" in calls
    assert "cuGraphInstantiate" not in calls
    np.testing.assert_array_equal(engine.read(after), NUMBERS * 3 + 1)


@pytest.mark.parametrize("inside", [False, True])
def test_a_captured_call_that_writes_its_inputs_does_not_change_them_for_others(driver, inside):
    def greedy(stream, x, y, result):
        copy_on(driver)(stream, x, result)
        copy_on(driver)(stream, y, x)

    captured = captured_block(greedy, outputs={"result": "same(0)"}, name="call")
    engine = Engine("cuda")
    if inside:
        body = Composite("body")
        body.graph.add(captured)
        for pin in (*captured.inputs.values(), *captured.outputs.values()):
            body.expose(pin)
        call = engine.add(If("region", body))
        engine.set(call["condition"], True)
    else:
        call = engine.add(captured)
    first, second = (engine.add(block(lambda x: x * 1.0, name=name)) for name in ("first", "second"))
    other = engine.add(block(lambda x: x + 1.0, name="other"))
    engine.connect(first, call["x"])
    engine.connect(second, call["y"])
    engine.connect(first, other["x"])
    engine.set(first["x"], NUMBERS)
    for factor in (5, 7):  # then `first` does not run, and the call reads it again
        engine.set(second["x"], NUMBERS * np.float32(factor))
        assert engine.step().ok, engine.frame.problems
        for source, expected in ((call["result"], NUMBERS), (first, NUMBERS), (other, NUMBERS + 1)):
            np.testing.assert_array_equal(engine.read(source), expected)
    for block_, size in ((first, 6), (second, 6)):
        engine.set(block_["x"], np.full(size, 3, np.float32))
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(call["result"]), np.full(6, 3))


def test_a_captured_call_may_take_its_arrays_by_dlpack(driver):
    capsule_sources = []

    def call(stream: int, x, result) -> None:
        capsule_sources.extend(array.__dlpack_device__() for array in (x, result))
        capsule_sources.append(type(x.__dlpack__(stream=stream, copy=False)).__name__)
        copy_on(driver)(stream, x, result)

    engine = Engine("cuda")
    captured = engine.add(captured_block(call, outputs={"result": "same(0)"}, name="call"))
    engine.set(captured["x"], NUMBERS)
    assert engine.step().ok, engine.frame.problems
    assert capsule_sources == [(2, 0), (2, 0), "PyCapsule"]
    np.testing.assert_array_equal(engine.read(captured), NUMBERS)


def test_edits_of_all_kinds_leak_no_graph_event_or_memory(driver):
    """Compares what the driver created and what was destroyed."""
    in_use = driver.total - driver.free
    engine, blocks = chain(3)
    order = engine.add(block(lambda x: lg.sort(x), name="order", inputs=ROW))
    engine.connect(blocks[-1], order["x"])
    call = engine.add(captured_block(copy_on(driver), outputs={"result": "same(0)"}, name="call"))
    engine.connect(order, call["x"])
    state = engine.add(State("held", np.zeros(4, np.float32)))
    engine.connect(call, state["next"])
    for profiling in ("off", "step"):
        engine.profiling = profiling
        for size in (4, 6, 4):
            engine.set(blocks[0]["x"], np.ones(size, np.float32))
            if size != 4:
                engine.remove(state)
            elif state.home is None:
                state = engine.add(State("held", np.zeros(4, np.float32)))
                engine.connect(call, state["next"])
            assert engine.step().ok, engine.frame.problems
        edit(engine, blocks[1], lambda x, gain=2.0: x + gain)
        edit(engine, call, copy_on(driver))
        engine.step()
        edit(engine, blocks[1], lambda x, gain=2.0: x.nothing())
        assert not engine.step().ok
        edit(engine, blocks[1], lambda x, gain=2.0: x * gain)
        assert engine.step().ok
        engine.read_async(call)
        driver.refuse["cuGraphInstantiate"] = Result.CUDA_ERROR_OUT_OF_MEMORY
        engine.remove(engine.add(block(lambda x=1.0: x, name="extra")))
        engine.add(block(lambda x=1.0: x, name=f"more {profiling}"))
        engine.step()
        driver.refuse.clear()
        assert engine.step().ok
    engine.close()
    del engine, blocks, order, call, state
    gc.collect()
    driver.cuStreamSynchronize(1)
    refused = 2  # instantiations that the driver rejected
    assert driver.count("cuGraphExecDestroy") == driver.count("cuGraphInstantiate") - refused
    assert driver.count("cuGraphDestroy") == driver.count("cuGraphCreate") + driver.count("cuStreamEndCapture")
    assert driver.count("cuEventDestroy") == driver.count("cuEventCreate")
    assert driver.total - driver.free == in_use


def test_finalizers_after_the_driver_is_gone_start_no_driver() -> None:
    with simulated():
        engine, blocks = chain()
        memory = DeviceMemory(64)
    queries = reason_for_no_cuda.cache_info().misses
    del engine, blocks, memory
    gc.collect()
    assert reason_for_no_cuda.cache_info().misses == queries
