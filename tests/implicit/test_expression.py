"""Functions from expressions: their values, and errors with locations."""

import math

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.builder import FunctionBuilder
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.runtime.reference import evaluate


def value(text: str, **inputs: float) -> float:
    types = {name: "vector" if np.ndim(argument) else "scalar" for name, argument in inputs.items()}
    function = to_function(add_expression(Assembly(), "f", text, types), "f", element=lg.f64)
    return float(evaluate(function, *inputs.values()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7.0),
        ("-x ** 2", -4.0),
        ("x % 1.5", 0.5),
        ("sin(pi / 6) + e", math.sin(math.pi / 6) + math.e),
        ("atan2(x, 1)", math.atan2(2.0, 1.0)),
        ("clamp(x, 0, 1)", 1.0),
        ("min(x, 3) + max(x, 3)", 5.0),
        ("1 if x < 3 else 5", 1.0),
        ("1 if x > 3 else 5", 5.0),
        ("1 if x >= 2 else 5", 1.0),
        ("1 if x <= 2 else 5", 1.0),
        ("length(vector(x, 0, 0) * 2)", 4.0),
        ("dot(vector(1, 2, 3), vector(x))", 12.0),
        ("vector(1, 2, x).z", 2.0),
        ("d = x + 1; e2 = d * d\ne2 - 1", 8.0),
        ("7", 7.0),
    ],
)
def test_expressions_have_the_value_of_python(text: str, expected: float) -> None:
    assert value(text, x=2.0) == pytest.approx(expected, rel=1e-15)


def test_functions_of_the_assembly_are_called_by_name() -> None:
    assembly = add_expression(Assembly(), "ball", "length(pos) - radius", {"pos": "vector", "radius": "scalar"})
    assembly = add_expression(
        assembly, "two", "min(ball(pos, 1), ball(pos - vector(3, 0, 0), radius=0.5))", {"pos": "vector"}
    )
    assert evaluate(to_function(assembly, "two", element=lg.f64), np.array([3.0, 0, 0])) == -0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x +", "is not an expression"),
        ("y", "undefined name `y`"),
        ("x + vector(1, 2, 3)", "spread the scalar"),
        ("sqrt(x, x)", "takes 1 inputs"),
        ("nothing(x)", "undefined function `nothing`"),
        ("x.y", "only a vector has a component"),
        ("(lambda: x)()", "only functions can be called"),
        ("x if x == 1 else 0", "only <"),
        ("__import__(x)", "undefined function `__import__`"),
        ("'text'", "is not supported in an expression"),
        ("for i in x: pass", "may come before the last expression"),
        ("x = 1", "has no expression"),
        ("vector(1, 2)", "one or three arguments"),
        ("True", "is not supported in an expression"),
        ("(" * 500 + "x" + ")" * 500, "is not an expression"),
        ("-" * 5000 + "x", "nested too deeply|is not an expression"),
    ],
)
def test_invalid_expressions_are_rejected(text: str, message: str) -> None:
    with pytest.raises(AssemblyError, match=message):
        add_expression(Assembly(), "f", text, {"x": "scalar"})


def test_long_sums_do_not_exceed_the_recursion_limit() -> None:
    terms = 2000
    part = add_expression(Assembly(), "sum", " + ".join(["x"] * terms), {"x": "scalar"})
    assert len(part.graph("sum").nodes) == terms - 1


def test_errors_have_line_and_column() -> None:
    with pytest.raises(AssemblyError) as caught:
        add_expression(Assembly(), "shape", "a = x\n  \na + b", {"x": "scalar"})
    assert "(shape:3:5)" in str(caught.value)


def test_builders_share_constants_and_components() -> None:
    build = FunctionBuilder(Assembly(), "f")
    pos = build.input("pos", PortType.VECTOR)
    assembly = build.finish(y=pos.x * 2.0 + pos.y * 2.0 - pos.x)
    names = [node.type.name for node in assembly.graph("f").nodes.values()]
    assert names.count("Constant") == 1
    assert names.count("DecomposeVector") == 1


def test_zero_and_negative_zero_are_different_constants() -> None:
    build = FunctionBuilder(Assembly(), "f")
    assembly = build.finish(a=build.constant(0.0), b=build.constant(-0.0))
    a, b = evaluate(to_function(assembly, "f", element=lg.f64))
    assert not np.signbit(a)
    assert np.signbit(b)
