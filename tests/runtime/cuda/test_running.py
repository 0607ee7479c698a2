"""Plans on a real GPU: results, the cost of changed arguments, checks, tapes, memory."""

import gc
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.diagnostics import KernelCheckError, UsageError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, Vector, f32, f64, i32, i64
from livegrad.ops.control import make_for_loop
from livegrad.ops.maps import make_map, map_over
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cuda import DeviceArray, DeviceError, compile_function, memory_in_use
from livegrad.runtime.cuda import device_plan as plans
from livegrad.runtime.reference import evaluate

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(5)


def near(actual: Any, expected: Any, relative: float) -> None:
    np.testing.assert_allclose(actual, expected, rtol=relative, atol=relative)


def scaled() -> Function:
    """A function of an array and a number that runs as one kernel."""
    return map_over(trace(lambda x, s: ops.sin(x) * s, f32, f32, name="scaled"), lifted=(True, False))


def test_a_changed_number_changes_one_node_in_place() -> None:
    compiled = compile_function(scaled())
    x = RNG.normal(size=1000).astype(np.float32)
    compiled(x, 2.0)
    (graph,) = compiled.plan({"n": 1000}).graphs
    before = graph.counters.nodes_updated
    near(compiled(x, 3.0), np.sin(x) * np.float32(3.0), 1e-6)
    assert graph.counters.nodes_updated - before == 1
    near(compiled(x, 3.0), np.sin(x) * np.float32(3.0), 1e-6)
    assert graph.counters.nodes_updated - before == 1
    assert graph.counters.built == 1


def test_an_array_of_the_device_is_used_in_place_and_rebound() -> None:
    compiled = compile_function(scaled())
    first, second = (RNG.normal(size=777).astype(np.float32) for _ in range(2))
    on_device = DeviceArray.from_host(first), DeviceArray.from_host(second)
    near(compiled(on_device[0], 2.0), np.sin(first) * 2, 1e-6)
    near(compiled(on_device[1], 2.0), np.sin(second) * 2, 1e-6)
    near(compiled(first, 2.0), np.sin(first) * 2, 1e-6)
    (graph,) = compiled.plan({"n": 777}).graphs
    assert graph.counters.built == 1
    assert graph.counters.nodes_updated == 2


def test_a_device_array_that_does_not_fit_is_rejected() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        compile_function(scaled())(DeviceArray.from_host(np.zeros(4)), 1.0)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (1000, 7), (7, 1000), (4, 3, 2000), (1, 3_000_000), (3_000_000, 1)])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_reductions_of_all_shapes(shape: tuple[int, ...], kind: str) -> None:
    values = RNG.normal(size=shape)
    for axes in [(0,), (len(shape) - 1,), tuple(range(len(shape)))]:
        function = trace(lambda x, axes=axes: ops.reduce(x, kind=kind, axes=axes), Tensor(f64, shape))
        compiled = compile_function(function)
        found = compiled(values)
        near(found, getattr(values, kind)(axis=axes), 1e-9)
        assert np.array_equal(found, compiled(values)), "the same bits every time"


def test_where_the_largest_is() -> None:
    values = RNG.normal(size=(50, 4000)).astype(np.float32)
    values[3, 1000] = values[3, 2000] = 99.0
    values[4, 77] = np.nan
    function = trace(lambda x: ops.arg_reduce(x, kind="argmax", axis=1), Tensor(f32, (50, 4000)))
    assert np.array_equal(compile_function(function)(values), np.argmax(values, axis=1))


def test_a_softmax_with_rows_in_registers_of_their_block() -> None:
    def softmax(x):  # type: ignore[no-untyped-def]
        most = ops.broadcast(ops.reduce(x, kind="max", axes=(1,)), shape=(300, 1000), axes=(0,))
        raised = ops.exp(x - most)
        return raised / ops.broadcast(ops.reduce(raised, kind="sum", axes=(1,)), shape=(300, 1000), axes=(0,))

    values = RNG.normal(size=(300, 1000))
    raised = np.exp(values - values.max(1, keepdims=True))
    near(
        compile_function(trace(softmax, Tensor(f64, (300, 1000))))(values), raised / raised.sum(1, keepdims=True), 1e-13
    )


def test_a_failed_check_names_the_line_and_the_plan_goes_on() -> None:
    compiled = compile_function(trace(lambda a, b: ops.floor_div(a, b), Tensor(i32, (100,)), Tensor(i32, (100,))))
    ones = np.ones(100, np.int32)
    bad = ones.copy()
    bad[[7, 60]] = 0
    with pytest.raises(KernelCheckError, match="integer division by zero, at element 7") as caught:
        compiled(ones, bad)
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_running.py")
    assert np.array_equal(compiled(ones, ones), ones)


def remembering(iterations: int) -> Function:
    """The derivative of a loop, which keeps a tape of all its iterations."""

    def one(x):  # type: ignore[no-untyped-def]
        (y,) = make_for_loop(constant(iterations, i64), lambda i, y: ops.sin(y) + 0.5 * y, x)
        return y

    return vjp(map_over(trace(one, f64, name="loop")))


def test_a_tape_overflow_repeats_the_run() -> None:
    function = remembering(3000)
    x, seed = RNG.normal(size=40), RNG.normal(size=40)
    plan = compile_function(function).plan({"n": 40})
    start = plan._tape_bytes
    near(compile_function(function)(x, seed), evaluate(function, x, seed), 1e-10)
    assert plan._tape_bytes > start


def test_a_tape_larger_than_the_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MAX_TAPE_BYTES", 1 << 20)
    function = remembering(1_000_000)
    with pytest.raises(DeviceError, match="the tapes of loops take more than"):
        compile_function(function)(np.zeros(40), np.zeros(40))


def test_host_steps_run_between_the_graphs_of_a_frame() -> None:
    def function(a):  # type: ignore[no-untyped-def]
        return ops.sin(ops.real(ops.eigvals(ops.cos(a))))

    a = RNG.normal(size=(40, 5, 5))
    compiled = compile_function(trace(function, Tensor(f64, (40, 5, 5))))
    near(compiled(a), np.sin(np.real(np.linalg.eigvals(np.cos(a)))), 1e-12)
    assert compiled.plan().step_counts == (2, 1)
    assert len(compiled.plan().graphs) == 2


def test_a_large_gradient_is_that_of_the_reference() -> None:
    def ball(p, r):  # type: ignore[no-untyped-def]
        return ops.length(p) - r

    n = Dimension.symbol("n")
    point = Vector(f32, 3)
    inner = trace(ball, point, f32, name="ball")
    total = trace(
        lambda p, r: ops.reduce(make_map(inner, p, r), kind="sum", axes=(0,)), Tensor(f32, (n, 3)), f32, name="total"
    )
    function = vjp(total)
    points = RNG.normal(size=(100_000, 3)).astype(np.float32)
    found = compile_function(function)(points, np.float32(0.5), np.float32(1.0))
    near(found[0], points / np.linalg.norm(points, axis=1, keepdims=True), 1e-5)
    near(found[1], -100_000.0, 1e-6)


def test_dropped_plans_free_their_memory() -> None:
    x = np.ones(1_000_000, np.float32)

    def once(factor: float) -> None:
        compiled = type(compile_function(scaled()))(scaled())
        near(compiled(x, factor)[:3], np.sin(x[:3]) * np.float32(factor), 1e-6)

    once(1.0)
    gc.collect()
    before = memory_in_use()
    for step in range(20):
        once(float(step))
    gc.collect()
    assert memory_in_use() == before


def test_tensors_are_computed_on_the_device_they_were_moved_to() -> None:
    x = RNG.normal(size=(30, 40))
    moved = lg.asarray(x).to("cuda")
    result = (moved * 2.0 + 1.0).sum(axis=1)
    assert result.device == "cuda"
    near(np.asarray(result), (x * 2.0 + 1.0).sum(axis=1), 1e-12)
