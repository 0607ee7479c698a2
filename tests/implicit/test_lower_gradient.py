"""Lowering of gradient nodes: accuracy, exact mode, and fallbacks with diagnostics."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.lower_gradient import gradient_nodes, lower_function_gradient
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.runtime.reference import evaluate
from tests.implicit.gradient_graphs import OUTPUTS, PORTS, field, with_gradient, with_normalized_distance

POINTS = np.random.default_rng(7).uniform(-1.5, 1.5, (40, 3))


def gradient_by_hand(p: np.ndarray, size: float = 1.5) -> np.ndarray:  # type: ignore[type-arg]
    scale = np.array([1, 0.5, 2.0])
    length = np.linalg.norm(p * scale, axis=-1, keepdims=True)
    gradient = size * p * scale * scale / length
    gradient[:, 0] += 2 * np.cos(2 * p[:, 0])
    return gradient


def run(assembly: Assembly, *arguments: Any, **options: Any) -> Any:
    function = to_function(assembly, "main", element=lg.f64, **options)
    is_mapped = [np.ndim(argument) == 2 for argument in arguments]
    return lg.ir.compile(lg.ir.map_over(function, is_mapped))(*arguments)


def test_central_differences_have_second_order_accuracy() -> None:
    expected = gradient_by_hand(POINTS)
    errors = []
    for step in (1e-2, 1e-3):
        _, gradient, _ = run(lower_function_gradient(with_gradient(step)).assembly, POINTS, 0.0)
        errors.append(np.abs(gradient - expected).max())
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 50


@pytest.mark.parametrize("form", ["nodes", "derivative ops"])
def test_exact_mode_equals_the_analytic_gradient(form: str) -> None:
    assembly, options = with_gradient(0.5), {}
    if form == "nodes":
        assembly = lower_function_gradient(assembly, exact=True).assembly
        assert not list(gradient_nodes(assembly))
    else:
        options = {"exact": True}
    normal, gradient, magnitude = run(assembly, POINTS, 0.0, **options)
    expected = gradient_by_hand(POINTS)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(magnitude, np.linalg.norm(expected, axis=1), rtol=1e-12)
    np.testing.assert_allclose(normal, expected / magnitude[:, None], rtol=1e-12, atol=1e-12)


def test_native_code_and_reference_agree_on_lowered_graphs() -> None:
    function = to_function(lower_function_gradient(with_gradient()).assembly, "main", element=lg.f64)
    native = lg.ir.compile(function)
    for point in POINTS[:5]:
        for actual, expected in zip(native(point, 0.1), evaluate(function, point, 0.1), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_a_linked_step_is_used() -> None:
    lowered = lower_function_gradient(with_gradient("inputs.h")).assembly
    coarse = run(lowered, POINTS, 0.5)[1]
    fine = run(lowered, POINTS, 1e-4)[1]
    assert np.abs(coarse - gradient_by_hand(POINTS)).max() > 0.05
    assert np.abs(fine - gradient_by_hand(POINTS)).max() < 1e-6


@pytest.mark.parametrize("step", [0.0, -1e-3])
def test_zero_and_negative_steps_are_guarded(step: float) -> None:
    _, gradient, _ = run(lower_function_gradient(with_gradient("inputs.h")).assembly, POINTS, step)
    assert np.isfinite(gradient).all()
    if step < 0:
        np.testing.assert_allclose(gradient, gradient_by_hand(POINTS), rtol=1e-4, atol=1e-4)


def test_a_flat_function_has_no_direction() -> None:
    assembly = add_expression(Assembly(), "flat", "pos.x * 0 + 3", {"pos": "vector"})
    assembly = assembly.add_function("main", {"pos": PortType.VECTOR}, OUTPUTS)
    assembly = assembly.add_node(
        "main",
        "FunctionGradient",
        "g",
        functionID=1,
        step=1e-3,
        pos="inputs.pos",
        scalar_output="shape",
        vector_input="pos",
    )
    for output, port in PORTS.items():
        assembly = assembly.link("main", f"g.{port}", f"outputs.{output}")
    for variant, options in ((lower_function_gradient(assembly).assembly, {}), (assembly, {"exact": True})):
        for value in run(variant, POINTS, **options):
            np.testing.assert_array_equal(value, np.zeros_like(value))


def test_normalized_distance_is_the_value_divided_by_the_gradient_length() -> None:
    lowered = lower_function_gradient(with_normalized_distance())
    assert not lowered.diagnostics
    assert not list(gradient_nodes(lowered.assembly))
    value = lg.ir.compile(lg.ir.map_over(to_function(field(), "field", element=lg.f64), (True, False)))(POINTS, 1.5)
    expected = value / np.linalg.norm(gradient_by_hand(POINTS), axis=1)
    np.testing.assert_allclose(run(lowered.assembly, POINTS), expected, rtol=1e-6)
    np.testing.assert_allclose(run(with_normalized_distance(), POINTS, exact=True), expected, rtol=1e-12)


def test_nested_gradients_are_lowered_completely() -> None:
    assembly = with_normalized_distance().add_function("outer", {"pos": PortType.VECTOR}, {"m": PortType.SCALAR})
    assembly = assembly.add_node(
        "outer",
        "FunctionGradient",
        "g",
        functionID=2,
        step=1e-3,
        pos="inputs.pos",
        scalar_output="distance",
        vector_input="pos",
    )
    assembly = assembly.link("outer", "g.magnitude", "outputs.m")
    lowered = lower_function_gradient(assembly).assembly
    assert not list(gradient_nodes(lowered))
    assert not lowered.problems()
    difference = lg.ir.compile(lg.ir.map_over(to_function(lowered, "outer", element=lg.f64)))(POINTS)
    exact = lg.ir.compile(lg.ir.map_over(to_function(assembly, "outer", element=lg.f64, exact=True)))(POINTS)
    np.testing.assert_allclose(difference, exact, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"function": None}, "input `functionID` is not connected"),
        ({"scalar_output": None}, "no output of the function is chosen"),
        ({"scalar_output": "volume"}, "the function has no output `volume`"),
        ({"vector_input": None}, "no input of the function is chosen"),
        ({"vector_input": "size"}, "input `size` of the function is a scalar, not a vector"),
        ({"size": None}, "input `size` is not connected"),
    ],
)
def test_an_incomplete_node_returns_zeros_with_a_diagnostic(changes: dict[str, Any], message: str) -> None:
    assembly = with_gradient(**changes)
    lowered = lower_function_gradient(assembly)
    assert [str(d) for d in lowered.diagnostics] == [
        f"function `main`, node `g`: this FunctionGradient returns zeros: {message}"
    ]
    for value in run(lowered.assembly, POINTS, np.zeros(len(POINTS))[0]):
        assert not np.any(value)
    with pytest.raises(AssemblyError, match="cannot lower FunctionGradient `g` of function `main`"):
        lower_function_gradient(assembly, on_problem="raise")


def test_a_missing_function_returns_zeros_with_a_diagnostic() -> None:
    assembly = with_gradient().remove_function("field", force=True)
    lowered = lower_function_gradient(assembly)
    assert "function 1 does not exist" in str(lowered.diagnostics[0])
    assert not np.any(run(lowered.assembly, POINTS, 0.0)[1])


def test_a_type_changed_upstream_returns_zeros_with_a_diagnostic() -> None:
    assembly = with_gradient()
    changed = add_expression(Assembly(), "field", "length(pos + size)", {"pos": "vector", "size": "vector"}, id=1)
    assembly = assembly.with_function(changed.graph(1))
    lowered = lower_function_gradient(assembly)
    assert "input `size`: a scalar cannot be connected to a vector" in str(lowered.diagnostics[0])


def test_a_call_cycle_returns_zeros_with_a_diagnostic() -> None:
    assembly = with_gradient()
    call = assembly.add_node("main", "FunctionCall", "c", functionID=1, pos="inputs.pos", size=1.0).node("main", "c")
    circular = assembly.graph("field").with_node(
        type(call)(**{**vars(call), "identifier": "back", "inputs": {"functionID": 2}})
    )
    lowered = lower_function_gradient(assembly.with_function(circular))
    assert "function `field` calls `main` again" in str(lowered.diagnostics[0])
    assert not list(gradient_nodes(lowered.assembly))


def test_an_incomplete_normalized_distance_returns_zero() -> None:
    assembly = with_normalized_distance().describe_node("main", "n", scalar_output=None)
    lowered = lower_function_gradient(assembly)
    assert "this NormalizeDistance returns zeros" in str(lowered.diagnostics[0])
    assert not np.any(run(lowered.assembly, POINTS))


def test_an_input_named_step_size_replaces_the_step() -> None:
    assembly = add_expression(Assembly(), "own", "length(pos) * StepSize", {"pos": "vector", "StepSize": "scalar"})
    assembly = assembly.add_function("main", {"pos": PortType.VECTOR, "h": PortType.SCALAR}, OUTPUTS)
    assembly = assembly.add_node(
        "main",
        "FunctionGradient",
        "g",
        functionID=1,
        step=0.25,
        pos="inputs.pos",
        StepSize="inputs.h",
        scalar_output="shape",
        vector_input="pos",
    )
    for output, port in PORTS.items():
        assembly = assembly.link("main", f"g.{port}", f"outputs.{output}")
    lowered = lower_function_gradient(assembly)
    assert dict(lowered.assembly.function("gradient_of_own_shape_pos").inputs) == dict(assembly.graph("own").inputs)
    assert "its `step` is ignored, because `own` has an input `StepSize`" in str(lowered.diagnostics[0])
    magnitude = run(lowered.assembly, POINTS, 1e-3)[2]
    np.testing.assert_allclose(magnitude, 1e-3, rtol=1e-3)


def test_an_adaptive_step_grows_with_the_coordinate() -> None:
    points = POINTS + 1000.0
    lowered = lower_function_gradient(with_gradient(1e-6), adaptive_step=True).assembly
    assert lowered.function("adaptive_gradient_of_field_shape_pos")
    expected = gradient_by_hand(points)
    adaptive = np.abs(run(lowered, points, 0.0)[1] - expected).max()
    fixed = np.abs(run(lower_function_gradient(with_gradient(1e-9)).assembly, points, 0.0)[1] - expected).max()
    assert adaptive < fixed / 10


def test_managed_functions_are_not_changed() -> None:
    assembly = with_gradient()
    graph = assembly.graph("main")
    managed = assembly.with_function(type(graph)(**{**vars(graph), "managed": True}))
    lowered = lower_function_gradient(managed)
    assert lowered.assembly.graph("main").nodes["g"].type.name == "FunctionGradient"
    assert lowered.assembly.functions.keys() == managed.functions.keys()
    with pytest.raises(AssemblyError, match="lower it first"):
        to_function(lowered.assembly, "main")


def test_lowering_twice_changes_nothing() -> None:
    once = lower_function_gradient(with_gradient()).assembly
    assert lower_function_gradient(once).assembly == once


def test_a_gradient_added_after_lowering_reuses_the_generated_function() -> None:
    once = lower_function_gradient(with_gradient()).assembly
    assembly = once.add_node(
        "main",
        "FunctionGradient",
        "later",
        functionID=1,
        step=0.5,
        pos="inputs.pos",
        size=2.0,
        scalar_output="shape",
        vector_input="pos",
    )
    assert lower_function_gradient(assembly).assembly.functions.keys() == once.functions.keys()


def test_function_inputs_may_have_any_name() -> None:
    names = ("value", "kind", "type", "identifier", "step")
    assembly = add_expression(
        Assembly(), "odd", "length(pos) * " + " * ".join(names), {"pos": "vector"} | dict.fromkeys(names, "scalar")
    )
    assembly = assembly.add_function("main", {"pos": PortType.VECTOR}, {"gradient": PortType.VECTOR})
    inputs = {"functionID": 1, "pos": "inputs.pos", **dict.fromkeys(names, 0.5)}
    assembly = assembly.add_node("main", "FunctionGradient", "g", inputs, scalar_output="shape", vector_input="pos")
    assembly = assembly.link("main", "g.gradient", "outputs.gradient")
    gradient = run(lower_function_gradient(assembly, on_problem="raise").assembly, POINTS)
    expected = 0.5**5 * POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)
    assert np.abs(gradient - expected).max() < 0.05


def test_exact_gradients_of_meshes_cannot_be_nodes() -> None:
    mesh = lg_box()
    assembly = (
        Assembly().add_resource(mesh, id=9).add_function("d", {"pos": PortType.VECTOR}, {"shape": PortType.SCALAR})
    )
    assembly = assembly.add_node("d", "Mesh", "m", pos="inputs.pos", mesh=9).link("d", "m.distance", "outputs.shape")
    assembly = assembly.add_function("main", {"pos": PortType.VECTOR}, {"gradient": PortType.VECTOR})
    inputs = {"functionID": assembly.function("d").id, "pos": "inputs.pos", "step": 1e-4}
    assembly = assembly.add_node("main", "FunctionGradient", "g", inputs, scalar_output="shape", vector_input="pos")
    assembly = assembly.link("main", "g.gradient", "outputs.gradient")
    with pytest.raises(AssemblyError, match="which nodes cannot do"):
        lower_function_gradient(assembly, exact=True)


def lg_box() -> Any:
    from livegrad.implicit.nodes.resources import TriangleMesh

    return TriangleMesh.box((0, 0, 0), (1, 1, 1))
