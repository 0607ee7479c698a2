"""Every node type, on the reference and as native code, compared with an independent formula."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.bodies.level_sets import parts, transform_matrix
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.node_types import ARITHMETIC, CALLING_TYPES, MESH_TYPES, NODE_TYPES
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import LevelSet, TriangleMesh
from livegrad.implicit.nodes.to_ir import convert, to_function
from livegrad.runtime.reference import evaluate

SCALAR, VECTOR, MATRIX = PortType.SCALAR, PortType.VECTOR, PortType.MATRIX
SHAPES = {SCALAR: (), VECTOR: (3,), MATRIX: (4, 4)}


def away_from_zero(x: Any) -> Any:
    return np.where(x < 0, np.ceil(x - 0.5), np.floor(x + 0.5))


ELEMENTWISE: dict[str, tuple[Callable[..., Any], tuple[float, float]]] = {
    "Addition": (np.add, (-3, 3)),
    "Subtraction": (np.subtract, (-3, 3)),
    "Multiplication": (np.multiply, (-3, 3)),
    "Division": (np.divide, (0.5, 3)),
    "Min": (np.minimum, (-3, 3)),
    "Max": (np.maximum, (-3, 3)),
    "Fmod": (
        lambda a, b: np.array([math.fmod(x, y) for x, y in zip(a.flat, b.flat, strict=True)]).reshape(a.shape),
        (-3, 3),
    ),
    "Mod": (lambda a, b: a - b * np.floor(a / b), (-3, 3)),
    "ArcTan2": (np.arctan2, (-3, 3)),
    "Pow": (np.power, (0.3, 3)),
    "Sin": (np.sin, (-3, 3)),
    "Cos": (np.cos, (-3, 3)),
    "Tan": (np.tan, (-1, 1)),
    "ArcSin": (np.arcsin, (-1, 1)),
    "ArcCos": (np.arccos, (-1, 1)),
    "ArcTan": (np.arctan, (-3, 3)),
    "Sinh": (np.sinh, (-2, 2)),
    "Cosh": (np.cosh, (-2, 2)),
    "Tanh": (np.tanh, (-2, 2)),
    "Exp": (np.exp, (-2, 2)),
    "Log": (np.log, (0.2, 3)),
    "Log2": (np.log2, (0.2, 3)),
    "Log10": (np.log10, (0.2, 3)),
    "Sqrt": (np.sqrt, (0.2, 3)),
    "Abs": (np.abs, (-3, 3)),
    "Round": (away_from_zero, (-3, 3)),
    "Ceil": (np.ceil, (-3, 3)),
    "Floor": (np.floor, (-3, 3)),
    "Fract": (lambda x: x - np.floor(x), (-3, 3)),
    "Sign": (np.sign, (-3, 3)),
    "Select": (lambda a, b, c, d: np.where(a < b, c, d), (-3, 3)),
    "Clamp": (lambda x, low, high: np.maximum(low, np.minimum(x, high)), (-3, 3)),
}


def with_ones(rows: Any) -> Any:
    return np.concatenate([rows, [[0.0], [0.0], [0.0], [1.0]]], axis=1)


FIXED: dict[str, Callable[..., Any]] = {
    "ComposeVector": lambda x, y, z: [np.array([x, y, z])],
    "DecomposeVector": lambda a: list(a),
    "VectorFromScalar": lambda a: [np.full(3, a)],
    "ComposeMatrix": lambda *cells: [np.array(cells).reshape(4, 4)],
    "MatrixFromColumns": lambda *columns: [with_ones(np.array(columns)).T],
    "MatrixFromRows": lambda *rows: [with_ones(np.array(rows))],
    "Dot": lambda a, b: [a @ b],
    "Cross": lambda a, b: [np.cross(a, b)],
    "Length": lambda a: [np.linalg.norm(a)],
    "MatVecMultiplication": lambda a, b: [([*b, 1.0] @ a)[:3]],
    "Transpose": lambda a: [a.T],
    "Inverse": lambda a: [np.linalg.inv(a)],
}
VALUES = {"Constant": 1.5, "ConstVec": (1.0, 2.0, 3.0), "ConstMat": tuple(float(i) for i in range(16))}


def single_node(name: str, kind: PortType | None) -> Assembly:
    """A function of a single node, with the ports of the node."""
    type = NODE_TYPES[name]
    inputs = {port: port_type or kind for port, port_type in type.inputs}
    outputs = {port: port_type or kind for port, port_type in type.outputs}
    assembly = Assembly().add_function("f", inputs, outputs)  # type: ignore[arg-type]
    assembly = assembly.add_node("f", name, "n", {port: f"inputs.{port}" for port in inputs}, kind=kind)
    for port in outputs:
        assembly = assembly.link("f", f"n.{port}", f"outputs.{port}")
    return assembly


def check(assembly: Assembly, arguments: list[Any], expected: list[Any]) -> None:
    function = to_function(assembly, "f", element=lg.f64)
    for results in (evaluate(function, *arguments), lg.ir.compile(function)(*arguments)):
        results = results if isinstance(results, tuple) else (results,)
        assert len(results) == len(expected)
        for value, expected_value in zip(results, expected, strict=True):
            np.testing.assert_allclose(value, expected_value, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", ARITHMETIC, ids=lambda kind: kind.value)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_nodes(name: str, kind: PortType) -> None:
    rule, (low, high) = ELEMENTWISE[name]
    assembly = single_node(name, kind)
    generator = np.random.default_rng(len(name))
    for _ in range(3):
        arguments = [generator.uniform(low, high, SHAPES[kind]) for _ in NODE_TYPES[name].inputs]
        check(assembly, arguments, [rule(*map(np.asarray, arguments))])


@pytest.mark.parametrize("name", FIXED)
def test_nodes_with_fixed_port_types(name: str) -> None:
    assembly = single_node(name, None)
    generator = np.random.default_rng(len(name))
    arguments = [generator.uniform(-2, 2, SHAPES[type]) for _, type in NODE_TYPES[name].inputs]  # type: ignore[index]
    check(assembly, arguments, FIXED[name](*arguments))


@pytest.mark.parametrize("name", VALUES)
def test_constants_return_their_value(name: str) -> None:
    ((port, type),) = NODE_TYPES[name].outputs
    assert type is not None
    assembly = Assembly().add_function("f", {}, {"y": type}).add_node("f", name, "n", value=VALUES[name])
    function = to_function(assembly.link("f", f"n.{port}", "outputs.y"), "f", element=lg.f64)
    np.testing.assert_array_equal(evaluate(function), np.reshape(VALUES[name], SHAPES[type]))


def test_every_node_type_has_a_test_or_refers_to_a_resource() -> None:
    elsewhere = {"ResourceId", *CALLING_TYPES, *MESH_TYPES}
    assert set(NODE_TYPES) == set(ELEMENTWISE) | set(FIXED) | set(VALUES) | elsewhere


@pytest.mark.parametrize("value", [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999999999999994])
def test_halves_are_rounded_away_from_zero(value: float) -> None:
    function = to_function(single_node("Round", SCALAR), "f", element=lg.f64)
    assert evaluate(function, value) == math.copysign(
        math.floor(abs(value) + 0.5) if value != 0.49999999999999994 else 0, value
    )


def test_a_node_with_a_missing_input_is_not_lowered() -> None:
    assembly = single_node("Addition", SCALAR).unlink("f", "n.B")
    with pytest.raises(AssemblyError, match="input `B` is not connected"):
        to_function(assembly, "f")


def test_a_call_of_one_of_several_outputs() -> None:
    callee = Assembly().add_function("both", {"x": SCALAR}, {"s": SCALAR, "c": SCALAR})
    for node, name, port in (("Sin", "sine", "s"), ("Cos", "cosine", "c")):
        callee = callee.add_node("both", node, name, A="inputs.x").link("both", f"{name}.result", f"outputs.{port}")
    assembly = callee.add_function("main", {"x": SCALAR}, {"y": SCALAR})
    assembly = assembly.add_node("main", "FunctionCall", "call", functionID=1, x="inputs.x")
    assembly = assembly.link("main", "call.c", "outputs.y")
    assert evaluate(to_function(assembly, "main", element=lg.f64), 0.25) == math.cos(0.25)


def test_outputs_are_selected_by_name() -> None:
    converted = convert(single_node("DecomposeVector", None), "f", outputs=["z", "x"], element=lg.f64)
    assert [float(v) for v in evaluate(converted.function, np.array([1.0, 2.0, 3.0]))] == [3.0, 1.0]
    with pytest.raises(AssemblyError, match="has no output `w`"):
        convert(single_node("DecomposeVector", None), "f", outputs=["w"])


def test_constants_of_callees_become_parameters() -> None:
    assembly = Assembly().add_function("scaled", {"x": SCALAR}, {"y": SCALAR})
    assembly = assembly.add_node("scaled", "Constant", "factor", value=2.0)
    assembly = assembly.add_node("scaled", "Multiplication", "product", A="inputs.x", B="factor.value")
    assembly = assembly.link("scaled", "product.result", "outputs.y")
    assembly = assembly.add_function("main", {"x": SCALAR}, {"y": SCALAR})
    assembly = assembly.add_node("main", "FunctionCall", "call", functionID=1, x="inputs.x")
    assembly = assembly.link("main", "call.y", "outputs.y")
    converted = convert(assembly, "main", parameters=[(1, "factor")], element=lg.f64)
    assert converted.values == (2.0,)
    assert evaluate(converted.function, 3.0, 5.0) == 15.0
    with pytest.raises(AssemblyError, match="no constant `nothing`"):
        convert(assembly, "main", parameters=[(1, "nothing")])


def test_matrix_nodes_and_object_transforms_share_a_convention() -> None:
    """Both multiply (x, y, z, 1) by the matrix."""
    transform = tuple(float(number) for number in np.random.default_rng(7).uniform(-1, 1, 12))
    matrix = transform_matrix(transform)
    assembly = add_expression(Assembly(), "field", "pos.x + 2 * pos.y + 4 * pos.z", {"pos": "vector"}).add_function(
        "moved", {"pos": PortType.VECTOR}, {"shape": PortType.SCALAR}
    )
    assembly = assembly.add_node("moved", "ConstMat", "matrix", value=matrix.reshape(-1))
    assembly = assembly.add_node("moved", "MatVecMultiplication", "point", A="matrix.matrix", B="inputs.pos")
    assembly = assembly.add_node("moved", "FunctionCall", "call", functionID=1, pos="point.result")
    assembly = assembly.link("moved", "call.shape", "outputs.shape").add_resource(
        TriangleMesh.box((-99,) * 3, (99,) * 3), id=5
    )
    by_object = LevelSet(1, "shape", 5, transform=transform)
    assembly = assembly.add_resource(by_object, id=6).add_resource(LevelSet(2, "shape", 5), id=7).build(6).build(7)
    first, second = parts(assembly, element=lg.f64)
    points = np.random.default_rng(8).uniform(-1, 1, (20, 3))
    np.testing.assert_allclose(first(points), second(points), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(first(points), (np.c_[points, np.ones(20)] @ matrix)[:, :3] @ [1, 2, 4], atol=1e-12)
