"""Seed 000, "FunctionGradient → Graph Lowering Plan": one test a requirement, named by the heading it comes from."""

import re

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import lower_module, passes_for
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.gradient_function import GradientKey, gradient_name, insert_function, zero_function
from livegrad.implicit.nodes.lower_gradient import gradient_nodes, lower_function_gradient
from livegrad.implicit.nodes.node_graph import GraphFunction
from livegrad.implicit.nodes.node_types import GRADIENT_TYPES
from livegrad.implicit.nodes.ports import PortType, Reference
from livegrad.implicit.nodes.to_c import to_opencl
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.ir.node import Module
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.passes.pipeline import PipelineTrace
from livegrad.schedule.target import PORTABLE
from tests.implicit.gradient_graphs import field, with_gradient, with_normalized_distance

SCALAR, VECTOR = PortType.SCALAR, PortType.VECTOR


def lowered(**changes: object) -> Assembly:
    return lower_function_gradient(with_gradient(**changes)).assembly  # type: ignore[arg-type]


def synthesised() -> GraphFunction:
    return lowered().graph("gradient_of_field_shape_pos")


def test_lowers_single_gradient_produces_function_and_replaces_node() -> None:
    """Seed 000, "Testing plan": LowersSingleGradient_ProducesFunctionAndReplacesNode."""
    made = lowered()
    assert not list(gradient_nodes(made))
    call = made.node("main", "g")
    assert call.type.name == "FunctionCall"
    called = made.called_by("main", "g")
    assert called is not None
    assert called.name == "gradient_of_field_shape_pos"


def test_reuses_gradient_function_for_identical_configs() -> None:
    """Seed 000, "Testing plan": ReusesGradientFunction_ForIdenticalConfigs; steps are parameters and may differ."""
    made = with_gradient().add_node(
        "main",
        "FunctionGradient",
        "second",
        functionID=1,
        step=0.25,
        pos="inputs.pos",
        size="inputs.h",
        scalar_output="shape",
        vector_input="pos",
    )
    result = lower_function_gradient(made).assembly
    assert len(result.functions) == len(made.functions) + 1
    assert result.called_by("main", "g") is result.called_by("main", "second")


def test_wires_arguments_correctly_mirrored_inputs_and_step_size() -> None:
    """Seed 000, "Testing plan": WiresArgumentsCorrectly_MirroredInputsAndStepSize."""
    made = lowered(step="inputs.h", size="inputs.h")
    called = made.called_by("main", "g")
    assert called is not None
    assert dict(called.inputs) == {"pos": VECTOR, "size": SCALAR, "StepSize": SCALAR}
    inputs = made.node("main", "g").inputs
    assert inputs["pos"] == Reference("inputs", "pos")
    assert inputs["size"] == Reference("inputs", "h")
    assert inputs["StepSize"] == Reference("inputs", "h")


def test_literal_arguments_and_steps_are_wired_too() -> None:
    """Seed 000, "Node replacement": copy source wiring if present, else copy the value."""
    made = lowered(step=0.125, size=3.0)
    graph = made.graph("main")
    call = graph.nodes["g"]
    for port, value in (("StepSize", 0.125), ("size", 3.0)):
        source = call.inputs[port]
        assert isinstance(source, Reference)
        assert graph.nodes[source.node].value == value


def test_incomplete_config_lowers_to_zero_vector_function() -> None:
    """Seed 000, "Testing plan": IncompleteConfig_LowersToZeroVectorFunction."""
    result = lower_function_gradient(with_gradient(scalar_output=None))
    assert not list(gradient_nodes(result.assembly))
    function = to_function(result.assembly, "main", element=lg.f64)
    normal, gradient, magnitude = lg.ir.compile(function)(np.ones(3), 0.0)
    assert not normal.any()
    assert not gradient.any()
    assert magnitude == 0
    assert result.diagnostics[0].node == "g"


def test_full_pipeline_runs_and_no_gradient_node_reaches_code_generation() -> None:
    """Seed 000, "Integration smoke" and "Goals": after the transformation no FunctionGradient is left anywhere."""
    made = lower_function_gradient(with_gradient("inputs.h")).assembly
    for function in made.functions.values():
        assert isinstance(function, GraphFunction)
        assert not [node for node in function.nodes.values() if node.type.name in GRADIENT_TYPES]
    trace = PipelineTrace()
    module = lower_module(Module((to_function(made, "main"),)), trace=trace)
    assert [stage.name for stage in trace.stages] == ["input", *(step.name for step in passes_for(PORTABLE)[0])]
    ops = {node.op.name for function in reachable_functions(module.functions) for node in nodes_of(function)}
    assert not ops & {"fwd_diff", "bwd_diff", "call"}
    normal, _, _ = lg.ir.compile(module.functions[0])(np.array([1, 2, 3], np.float32), np.float32(1e-2))
    assert np.linalg.norm(normal) == pytest.approx(1.0, abs=1e-5)


def test_exact_gradients_leave_no_derivative_op_for_code_generation() -> None:
    """Seed 000, "Non-goals", which we exceed: analytic differentiation, gone before code generation as well."""
    module = lower_module(Module((to_function(with_gradient(), "main", exact=True),)))
    ops = {node.op.name for function in reachable_functions(module.functions) for node in nodes_of(function)}
    assert not ops & {"fwd_diff", "bwd_diff", "call"}


def test_the_gradient_function_makes_six_calls_with_perturbed_vectors() -> None:
    """Seed 000, "Function synthesis (G)": six calls of R with v ± h along each axis."""
    graph = synthesised()
    calls = [node for node in graph.nodes.values() if node.type.name == "FunctionCall"]
    assert len(calls) == 6
    moved = [graph.nodes[call.inputs["pos"].node] for call in calls]  # type: ignore[union-attr]
    assert sorted(node.type.name for node in moved) == ["Addition"] * 3 + ["Subtraction"] * 3
    for call in calls:
        assert call.inputs["size"] == Reference("inputs", "size")


def test_the_gradient_function_divides_differences_by_twice_the_step() -> None:
    """Seed 000, "Function synthesis (G)": (f+ - f-) / (2 * h) for each axis, on a function with known differences."""
    made = field()
    graph = synthesised()
    function = to_function(made.with_function(graph), graph.id, element=lg.f64)
    value = lg.ir.compile(to_function(made, "field", element=lg.f64))
    point, step = np.array([0.3, -0.8, 0.5]), 0.125
    expected = [(value(point + step * axis, 2.0) - value(point - step * axis, 2.0)) / (2 * step) for axis in np.eye(3)]
    vector, gradient, magnitude = lg.ir.compile(function)(point, 2.0, step)
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)
    assert magnitude == pytest.approx(np.linalg.norm(expected), rel=1e-14)
    np.testing.assert_allclose(vector, np.array(expected) / np.linalg.norm(expected), rtol=1e-14)


def test_a_step_that_is_not_positive_is_guarded() -> None:
    """Seed 000, "Edge cases": max(abs(h), 1e-8) in the graph."""
    graph = synthesised()
    guard = graph.nodes["step"]
    assert guard.type.name == "Max"
    smallest = guard.inputs["B"]
    assert isinstance(smallest, Reference)
    assert graph.nodes[smallest.node].value == 1e-8
    magnitude = graph.nodes[guard.inputs["A"].node]  # type: ignore[union-attr]
    assert (magnitude.type.name, magnitude.inputs["A"]) == ("Abs", Reference("inputs", "StepSize"))


def test_the_direction_is_zero_where_the_gradient_is_no_longer_than_epsilon() -> None:
    """Seed 000, "Function synthesis (G)": len > 1e-8 ? g / len : 0."""
    made = field()
    graph = synthesised()
    function = lg.ir.compile(to_function(made.with_function(graph), graph.id, element=lg.f64))
    point = np.array([np.pi / 4, 0.5, 1.0])
    vector, gradient, magnitude = function(point, 1e-9, 1e-3)
    assert 0 < magnitude < 1e-8
    assert gradient.any()
    assert not vector.any()
    assert np.linalg.norm(function(point, 1e-6, 1e-3)[0]) == pytest.approx(1.0)


def test_all_three_outputs_are_rewired() -> None:
    """Seed 000, "Node replacement": consumers follow to the call; not of the normalised output alone."""
    results = lowered().graph("main").results
    assert results == {
        "normal": Reference("g", "vector"),
        "gradient": Reference("g", "gradient"),
        "magnitude": Reference("g", "magnitude"),
    }


def test_names_are_sanitised() -> None:
    """Seed 000, "Display/naming": gradient_of_${Rname}_${out}_${vec}, sanitised."""
    function = GraphFunction(4, "my gyroid (v2)")
    assert gradient_name(function, GradientKey(4, "shape", "pos")) == "gradient_of_my_gyroid__v2__shape_pos"


def test_ids_are_deterministic_and_collisions_are_resolved() -> None:
    """Seed 000, "Resource ID allocation": a hash of what the gradient is of, with a collision check."""
    first, second = (lowered().function("gradient_of_field_shape_pos").id for _ in range(2))
    assert first == second
    taken = with_gradient().add_function("in the way", id=first)
    moved = lower_function_gradient(taken).assembly
    assert moved.function("gradient_of_field_shape_pos").id == first + 1
    assert moved.function(first).name == "in the way"
    zero, number = insert_function(Assembly(), None, zero_function())
    assert insert_function(zero, None, zero_function()) == (zero, number)


def test_the_authored_assembly_is_unchanged() -> None:
    """Seed 000, "Goals": keep the authoring surface unchanged."""
    made = with_gradient()
    copy = with_gradient()
    lower_function_gradient(made)
    assert made == copy
    assert made.node("main", "g").type.name == "FunctionGradient"


def test_discovery_skips_managed_models() -> None:
    """Seed 000, "Data flow and helpers": iterate all models, skip managed."""
    made = with_gradient()
    graph = made.graph("main")
    managed = made.with_function(type(graph)(**{**vars(graph), "managed": True}))
    assert list(gradient_nodes(made)) == [(2, "g")]
    assert list(gradient_nodes(managed)) == []


def test_cycles_are_detected() -> None:
    """Seed 000, "Edge cases": if R can call the model again, lowering is aborted for that case."""
    made = with_gradient()
    call = made.add_node("main", "FunctionCall", "c", functionID=1, pos="inputs.pos", size=1.0).node("main", "c")
    back = type(call)(**{**vars(call), "identifier": "back", "inputs": {"functionID": 2}})
    result = lower_function_gradient(made.with_function(made.graph("field").with_node(back)))
    assert "calls `main` again" in result.diagnostics[0].message


def test_normalize_distance_and_gradients_are_lowered_to_a_fixed_point() -> None:
    """Seed 000, "Goals": after the transformation there are no such nodes, whichever creates the other."""
    result = lower_function_gradient(with_normalized_distance()).assembly
    assert not list(gradient_nodes(result))
    assert result.function("gradient_of_field_shape_pos")


def test_a_lowered_graph_serialises_as_ordinary_nodes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Seed 000, "Rollout": 3MF needs no changes, the lowered graph serialises as ordinary nodes."""
    made = lowered(step="inputs.h")
    save_3mf(made, tmp_path / "lowered.3mf")
    assert load_3mf(tmp_path / "lowered.3mf") == made


def test_output_pruning_keeps_the_union_of_what_callers_read() -> None:
    """Seed 000, "Integration with existing passes": the selected output of R is consumed because G's graph reads it."""
    made = Assembly().add_function("both", {"pos": VECTOR}, {"a": SCALAR, "b": SCALAR})
    made = made.add_node("both", "DecomposeVector", "parts", A="inputs.pos")
    made = made.link("both", "parts.x", "outputs.a").link("both", "parts.y", "outputs.b")
    made = made.add_function("main", {"pos": VECTOR}, {"first": SCALAR, "slope": VECTOR})
    made = made.add_node("main", "FunctionCall", "call", functionID=1, pos="inputs.pos")
    made = made.add_node(
        "main", "FunctionGradient", "g", functionID=1, step=0.5, pos="inputs.pos", scalar_output="b", vector_input="pos"
    )
    made = made.link("main", "call.a", "outputs.first").link("main", "g.gradient", "outputs.slope")
    function = to_function(lower_function_gradient(made).assembly, "main", element=lg.f64)
    first, slope = lg.ir.compile(function)(np.array([2.0, 3.0, 4.0]))
    assert first == 2.0
    assert slope.tolist() == [0.0, 1.0, 0.0]


def test_generates_expected_ocl_for_lowered_graph() -> None:
    """Seed 000, "Testing plan": GeneratesExpectedOcl_ForLoweredGraph; central differences, normalisation patterns."""
    text = to_opencl(with_gradient("inputs.h"), "main")
    body = text[text.index("gradient_of_field_shape_pos(float3 p0, float p1, float p2)") :]
    body = body[: body.index("\n}\n")]
    assert body.count("= field(") == 6
    assert len(re.findall(r"= \(p0 \+ v\d+\);", body)) == 3
    assert len(re.findall(r"= \(p0 - v\d+\);", body)) == 3
    assert "fabs(p2)" in body
    assert len(re.findall(r"const float v\d+ = \(v\d+ / v\d+\);", body)) == 3
    assert len(re.findall(r"= length\(v\d+\);", body)) == 1
    assert re.search(r"\(v\d+\.x \? v\d+\.x : 0\.0f\)", body)
    assert "FunctionGradient" not in text
