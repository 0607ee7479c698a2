"""livegrad functions as nodes: needs from code, native values, gradients with respect to features."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.contexts import ContextError, ContextGraph, context, context_function
from livegrad.diagnostics import UsageError
from livegrad.ir.types import Tensor

N = lg.ir.Dimension.symbol("n")
COLUMN = Tensor(lg.f32, (N,))


def wave_graph() -> ContextGraph:
    """sin(3 t + speed) * width, where the width is also a feature."""
    graph = ContextGraph()
    graph.value("speed", 0.5)
    graph.node("phase", context_function(lambda v: context("animation_time", lg.f64) * 3.0 + v, lg.f64), plain="speed")
    graph.node("wave", lg.ir.trace(lambda x: lg.ops.sin(x), lg.f64, name="wave"), plain="phase")
    graph.node("scaled", context_function(lambda w: w * context("footprint", lg.f64), lg.f64), plain="wave")
    return graph


def test_the_need_of_a_kernel_follows_from_its_code():
    program = wave_graph().compile("scaled", root=["animation_time", "footprint", "real_time"])
    assert program.needs("wave") == ("animation_time",)
    assert program.needs() == ("animation_time", "footprint")
    moment = {"animation_time": 0.2, "footprint": 2.0}
    assert float(program.evaluate(moment, real_time=0.0)) == pytest.approx(2.0 * np.sin(1.1), rel=1e-12)
    with program.events() as log:
        program.evaluate(moment, real_time=1.0)
        program.evaluate(moment, real_time=1.0, footprint=3.0)
    assert [str(event) for event in log] == [
        "hit scaled [animation_time=0.2, footprint=2.0]",
        "hit wave [animation_time=0.2]",
        "computed scaled [animation_time=0.2, footprint=3.0]",
    ]


def test_equal_code_is_one_node_content():
    first, second = wave_graph(), wave_graph()
    program = first.compile("scaled", root=["animation_time", "footprint"])
    program.evaluate(animation_time=0.2, footprint=2.0)
    first.replace("scaled", second.nodes["scaled"].function)
    with program.events() as log:
        program.evaluate(animation_time=0.2, footprint=2.0)
    assert log.names("computed") == []


def test_the_whole_program_is_one_function():
    program = wave_graph().compile("scaled", root=["animation_time", "footprint"])
    function = program.to_function()
    assert [str(type) for type in function.parameter_types] == ["f64", "f64"]
    assert float(lg.ir.evaluate(function, 0.2, 2.0)) == pytest.approx(2.0 * np.sin(1.1), rel=1e-12)
    assert float(lg.ir.compile(function)(0.2, 2.0)) == pytest.approx(2.0 * np.sin(1.1), rel=1e-12)


@pytest.mark.parametrize("feature", ["animation_time", "footprint"])
def test_gradients_with_respect_to_a_feature_match_central_differences(feature: str):
    program = wave_graph().compile("scaled", root=["animation_time", "footprint"])
    moment = {"animation_time": 0.2, "footprint": 2.0}
    step = 1e-6
    ends = [float(program.evaluate(moment | {feature: moment[feature] + s})) for s in (step, -step)]
    slope = float(program.gradient(feature, moment))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-8)


def test_gradients_propagate_through_modifiers():
    graph = wave_graph()
    slow = lg.ir.trace(lambda t: t * t * 0.5, lg.f64, name="slow")
    graph.modifier("slowed", "scaled", animation_time=slow)
    graph.node("both", lg.ir.trace(lambda a, b: a + b, lg.f64, lg.f64, name="both"), plain=["slowed", "scaled"])
    program = graph.compile("both", root=["animation_time", "footprint"])
    moment = {"animation_time": 0.7, "footprint": 2.0}
    expected = 2.0 * np.sin(3 * 0.245 + 0.5) + 2.0 * np.sin(3 * 0.7 + 0.5)
    assert float(program.evaluate(moment)) == pytest.approx(expected, rel=1e-12)
    slope = 2.0 * np.cos(3 * 0.245 + 0.5) * 3 * 0.7 + 2.0 * np.cos(3 * 0.7 + 0.5) * 3
    assert float(program.gradient("animation_time", moment)) == pytest.approx(slope, rel=1e-12)


def test_the_gradient_of_an_unneeded_feature_is_zero():
    program = wave_graph().compile("scaled", root=["animation_time", "footprint", "real_time"])
    assert program.gradient("real_time", animation_time=0.2, footprint=2.0, real_time=9.0) == 0.0


def test_a_chain_of_a_thousand_kernels_composes():
    graph = ContextGraph()
    step = lg.ir.trace(lambda x: x * 1.001, lg.f64, name="step")
    previous = graph.node("start", context_function(lambda: context("animation_time", lg.f64) + 0.0))
    for number in range(1000):
        previous = graph.node(f"n{number}", step, plain=previous)
    program = graph.compile(previous, root="animation_time")
    assert float(program.gradient("animation_time", animation_time=1.0)) == pytest.approx(1.001**1000, rel=1e-10)


def test_python_functions_have_no_gradient_and_are_named():
    graph = wave_graph()
    graph.node("python", lambda ctx, x: x * 2, plain="scaled")
    program = graph.compile("python", root=["animation_time", "footprint"])
    with pytest.raises(ContextError, match="`python` is a Python function, which has no derivative"):
        program.gradient("footprint", animation_time=0.0, footprint=1.0)
    graph.modifier("late", "scaled", animation_time=lambda t: t - 1.0)
    late = graph.compile("late", root=["animation_time", "footprint"])
    with pytest.raises(ContextError, match="`late` changes `animation_time` with a Python function"):
        late.gradient("footprint", animation_time=0.0, footprint=1.0)


def test_kernels_take_arrays_and_equal_arrays_stop_propagation():
    graph = ContextGraph()
    graph.node("points", lambda ctx: np.arange(int(ctx.footprint), dtype=np.float32), extract="footprint")
    graph.node("moved", context_function(lambda x: x + 1.0, COLUMN), plain="points")
    program = graph.compile("moved", root="footprint")
    with program.events() as log:
        assert program.evaluate(footprint=3.2).tolist() == [1.0, 2.0, 3.0]
        assert program.evaluate(footprint=3.7).tolist() == [1.0, 2.0, 3.0]
    assert log.names("reused") == ["moved"]


def test_a_feature_read_inside_a_loop_is_found():
    def repeated(x: Any) -> Any:
        iterations = lg.ir.constant(3, lg.i64)
        return lg.ops.make_for_loop(iterations, lambda index, y: y * context("animation_time"), x)[0]

    kernel = context_function(repeated, lg.f32)
    assert [str(feature) for feature in kernel.features] == ["animation_time"]
    graph = ContextGraph()
    graph.value("x", 2.0)
    graph.node("power", kernel, plain="x")
    assert float(graph.compile("power", root="animation_time").evaluate(animation_time=3.0)) == 54.0


def test_a_kernel_declares_nothing_and_has_plain_inputs_only():
    graph = ContextGraph()
    kernel = context_function(lambda x: x + 1.0, lg.f32)
    graph.value("x", 1.0)
    with pytest.raises(ContextError, match="reads features with context"):
        graph.node("k", kernel, plain="x", extract="footprint")
    with pytest.raises(ContextError, match="scoped inputs"):
        graph.node("k", kernel, scoped="x")
    with pytest.raises(ContextError, match="expected 1 inputs, found 0"):
        graph.node("k", kernel)


def test_a_feature_without_a_type_of_its_own_must_be_given_one():
    with pytest.raises(UsageError, match="`footprint` has no type of its own"):
        context("footprint")
