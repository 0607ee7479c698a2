"""How objects display themselves: one line at a prompt; shape, type and state or a picture in a notebook."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

import livegrad as lg
from livegrad.public_names import GROUPS, names_of


def boxes(svg: str) -> int:
    ElementTree.fromstring(svg)
    return svg.count("<rect")


@lg.function
def square(x: float) -> float:
    return x * x


def test_tensors_show_shape_type_device_and_state():
    x = lg.asarray([[1.0, 2.0]]) * 2.0
    assert "1 × 2 · float32 · cpu · computed for this display" in x._repr_html_()
    assert "1 × 2 · float32 · cpu · was computed" in x._repr_html_()
    assert "[[2., 4.]]" in x._repr_html_()
    assert "a number" in lg.asarray(1.0)._repr_html_()
    x.free()
    assert "freed" in x._repr_html_()


def test_empty_tensors_show_their_shape_as_in_numpy():
    assert repr(lg.zeros((0, 3))) == "Tensor([], shape=(0, 3), dtype=float32)"
    assert repr(lg.zeros(0)) == "Tensor([], dtype=float32)"


def test_functions_and_graphs_draw_themselves():
    f = lg.ir.trace(lambda x, y: lg.ops.sin(x) * y + x, lg.f32, lg.f32)
    assert boxes(f._repr_svg_()) == 5  # two parameters, sin, mul, add
    assert repr(lg.ir.compile(f)) == "<compiled for the CPU: <function <lambda>(f32, f32) -> f32>>"
    drawn = (lg.asarray([1.0]) + 1.0).graph._repr_svg_()
    assert drawn is not None
    assert boxes(drawn) >= 2


def test_jit_says_what_it_is_of_and_how_often_it_was_traced():
    @lg.jit
    def step(x):
        return x * 2.0

    step(lg.asarray([1.0]))
    assert repr(step) == "<jit of step, traced once>"


def test_names_of_types_are_their_names():
    assert [repr(x) for x in (lg.vec, lg.mat, lg.array, lg.tensor, lg.vec3, lg.f32, lg.no_diff)] == [
        "vec", "mat", "array", "tensor", "vec3", "f32", "no_diff",
    ]  # fmt: skip
    assert [repr(x) for x in (lg.dzero, lg.dadd, lg.dmul)] == ["<dzero>", "<dadd>", "<dmul>"]


def test_contexts_name_their_nodes_and_features(tmp_path):
    graph = lg.ContextGraph()
    assert repr(graph) == "<context graph of 0 nodes>"
    graph.node("clock", lambda ctx: ctx.real_time, extract="real_time")
    program = graph.compile("clock", root=["real_time", "footprint"])
    assert repr(program) == "<program `clock` of <context graph of 1 nodes: clock>, given footprint, real_time>"
    assert boxes(program._repr_svg_()) == 1
    assert "needs real_time" in program.to_svg()
    assert repr(lg.contexts.DiskCache(tmp_path, max_bytes=1000)) == f"<disk cache at {tmp_path}, at most 1,000 bytes>"
    for number in range(10):
        graph.value(f"v{number}", number)
    assert repr(graph) == "<context graph of 11 nodes: clock, v0, v1, v2, v3, v4, v5, v6 and 3 more>"


def test_an_engine_and_its_frames_are_one_line_and_a_picture():
    engine = lg.Engine()
    position = engine.add(lg.State("position", np.zeros(3, np.float32)))
    move = engine.add(lg.block(lambda x, speed=1.0: x + speed, name="move"))
    engine.connect(position, move["x"])
    engine.connect(move, position["next"])
    assert repr(engine) == "<engine on cpu: 2 blocks, 0 frames>"
    assert repr(engine.step()) == "<frame 1: cold, ran move>"
    engine.set(move["speed"], 2.0)
    assert repr(engine.step()) == "<frame 2: hot, ran move>"
    svg = engine._repr_svg_()
    assert boxes(svg) == 2
    assert svg.count("stroke-dasharray") == 1  # the backward pass to the state
    assert "speed = 2.0" in svg
    assert repr(lg.live.ExternalBuffer(np.zeros(3), version=2)) == "<external buffer float64 (3,), version 2>"


def test_assemblies_and_parts_are_one_line():
    assembly = lg.implicit.add_expression(lg.Assembly(), "ball", "length(pos) - r", {"pos": "vector", "r": "scalar"})
    assert repr(assembly) == "<assembly: functions ball; 0 resources, 0 items>"
    function = assembly.graph("ball")
    assert repr(function) == "<graph function ball(pos: vector, r: scalar) -> (shape: scalar), 2 nodes>"
    assert boxes(function._repr_svg_()) == 5
    radius = lg.shapes.Parameter("radius", 0.5)
    part = lg.shapes.sphere(radius).part(((-1, -1, -1), (1, 1, 1)), "ball")
    assert repr(part) == "<part ball in (-1, -1, -1) to (1, 1, 1), radius=0.5>"
    assert re.fullmatch(r"<mesh ball: [\d,]+ vertices, [\d,]+ triangles>", repr(lg.mesh(part, feature_size=0.5)))
    ElementTree.fromstring(lg.slice(part, 0.0)._repr_svg_())
    assert re.fullmatch(r"<slice at 0: 1 contours, area 0\.7\d+>", repr(lg.slice(part, 0.0)))
    assert repr(lg.implicit.FunctionBuilder(assembly, "more")) == "<function builder more(), 0 nodes>"


def test_reports_are_one_line_and_say_that_they_can_be_printed():
    graph = lg.ContextGraph()
    graph.node("clock", lambda ctx: ctx.real_time, extract="real_time")
    program = graph.compile("clock", root=["real_time"])
    program.evaluate(real_time=1.0)
    assert repr(program.report()) == "<report of 1 nodes, 1 results kept, 24 bytes; print it>"
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    engine.step()
    assert repr(engine.plan) == "<live plan: 1 step, 1 buffer; print it>"
    assert repr(lg.differentiable(square).remembered()) == "<residuals of `square`: 1 values, 0 bytes; print it>"
    assert repr(lg.custom_vjp(test_names_of_types_are_their_names)).startswith("<custom_vjp of test_names")
    assert repr(lg.Composite("both")) == "<block both() -> nothing>"


def test_captured_functions_show_their_code():
    assert repr(square) == "<PlainFunction square>"
    assert "mul" in square._repr_html_()


def test_no_public_object_shows_an_address():
    """A default repr tells nothing."""
    grouped = {f"{group}.{name}": getattr(getattr(lg, group), name) for group in GROUPS for name in names_of(group)}
    shown = {name: repr(value) for name, value in ({name: getattr(lg, name) for name in lg.__all__} | grouped).items()}
    addresses = [n for n, text in shown.items() if " object at 0x" in text]
    assert addresses == []
