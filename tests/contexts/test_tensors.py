"""Lazy tensors and captured functions in context graphs."""

import numpy as np
import pytest

import livegrad as lg
from livegrad.contexts import ContextGraph, context, context_function, context_tensor, tensor_function
from livegrad.frontend.differentiable.plain_function import PlainFunction
from livegrad.ir.types import Tensor, f32

ROW = Tensor(f32, (3,))


def test_node_functions_may_return_lazy_tensors():
    graph = ContextGraph()
    graph.node("x", lambda ctx: lg.asarray([1.0, 2.0, 3.0]) * ctx.footprint, extract="footprint")
    graph.node("sum", lambda ctx, x: lg.sum(x + 1.0), plain="x")
    graph.node("number", lambda ctx, total: float(total), plain="sum")
    program = graph.compile("number", root="footprint")
    assert [program.evaluate(footprint=value) for value in (1.0, 2.0, 1.0)] == [9.0, 15.0, 9.0]


def test_the_same_expression_is_the_same_value():
    data = lg.asarray([1.0, 2.0, 3.0])
    graph = ContextGraph()
    graph.node("x", lambda ctx: data * float(int(ctx.real_time)), extract="real_time")
    graph.node("doubled", lambda ctx, x: x * 2.0, plain="x")
    program = graph.compile("doubled", root="real_time")
    with program.events() as log:
        first, second = (program.evaluate(real_time=time) for time in (2.1, 2.9))
    assert np.array_equal(first.numpy(), second.numpy())
    assert log.names("reused") == ["doubled"]


def test_changing_a_returned_tensor_does_not_change_the_cache():
    graph = ContextGraph()
    graph.node("x", lambda ctx: lg.asarray([1.0, 2.0, 3.0]) + 0.0)
    program = graph.compile("x")
    first = program.evaluate()
    first[0] = 100.0
    assert program.evaluate().numpy().tolist() == [1.0, 2.0, 3.0]


def test_a_function_of_tensors_reads_features_and_is_differentiated():
    graph = ContextGraph()
    graph.value("x", np.array([1.0, 2.0, 3.0], np.float32))
    move = tensor_function(lambda x: lg.sum(x * context_tensor("animation_time") ** 2), ROW, name="move")
    graph.node("energy", move, plain="x")
    program = graph.compile("energy", root=["animation_time", "footprint"])
    assert program.needs() == ("animation_time",)
    assert float(program.evaluate(animation_time=3.0, footprint=1)) == 54.0
    assert float(program.gradient("animation_time", animation_time=3.0)) == pytest.approx(36.0)


def square_plus(x: lg.f32, y: lg.f32):  # type: ignore[valid-type]
    return x * x + y


def test_a_captured_function_is_a_differentiable_node():
    graph = ContextGraph()
    graph.value("y", 1.0)
    graph.node("time", context_function(lambda: context("animation_time") * 1.0, name="time"))
    graph.node("f", PlainFunction(square_plus), plain=["time", "y"])  # type: ignore[arg-type]
    program = graph.compile("f", root="animation_time")
    assert float(program.evaluate(animation_time=3.0)) == pytest.approx(10.0)
    assert float(program.gradient("animation_time", animation_time=3.0)) == pytest.approx(6.0)
