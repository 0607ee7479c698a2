"""Functions of the value IR as node graphs: round trips keep values; ops without a node are rejected."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.from_ir import add_ir_function
from livegrad.implicit.nodes.node_types import NODE_TYPES
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.ir.types import Matrix, Vector, f64
from livegrad.ops.aggregate import members_of
from livegrad.runtime.reference import evaluate
from tests.implicit.test_node_types import ELEMENTWISE, FIXED, SHAPES, single_node

V, M = Vector(f64, 3), Matrix(f64, 4, 4)


def round_trip(function: lg.ir.Function, number: int) -> lg.ir.Function:
    outputs = [f"y{index}" for index in range(len(function.results))]
    assembly = add_ir_function(Assembly(), function, [f"x{index}" for index in range(number)], outputs, name="f")
    assert not assembly.problems()
    return to_function(assembly, "f", element=f64)


@pytest.mark.parametrize("name", [*ELEMENTWISE, *FIXED])
def test_every_computing_node_survives_a_round_trip(name: str) -> None:
    for kind in NODE_TYPES[name].kinds or (None,):
        original = to_function(single_node(name, kind), "f", element=f64)
        converted = round_trip(original, len(original.parameters))
        low, high = ELEMENTWISE[name][1] if name in ELEMENTWISE else (-2, 2)
        generator = np.random.default_rng(len(name))
        arguments = [
            generator.uniform(low, high, SHAPES[port_type or kind])  # type: ignore[index]
            for _, port_type in NODE_TYPES[name].inputs
        ]
        for actual, expected in zip(results(converted, arguments), results(original, arguments), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def results(function: lg.ir.Function, arguments: list[Any]) -> tuple[Any, ...]:
    value = evaluate(function, *arguments)
    return value if isinstance(value, tuple) else (value,)


TURN = ops.make(*(lg.ir.constant(math.sin(i * i), f64) for i in range(16)), type=Matrix(f64, 4, 4))


def homogeneous(p: Any, last: Any) -> Any:
    """Appends a fourth component to a point."""
    last = lg.ir.constant(last, f64) if isinstance(last, float) else last
    return ops.make(*members_of(p), last, type=Vector(f64, 4))


FORMULAS = {
    "comparisons": lambda p, s: ops.select((s < 0.5) & ~(s <= -0.5), s, -s) + ops.select(ops.equal(s, 0.25), s, s * s),
    "or": lambda p, s: ops.select((s > 0.5) | (s >= 2.0), p, -p),
    "rounding": lambda p, s: ops.round(s * 3.0) + ops.trunc(s * 3.0) + ops.floor_div(s, 0.75),
    "copysign": lambda p, s: ops.copysign(s * s + 1.0, s),
    "bounds the wrong way round": lambda p, s: ops.clamp(s, 0.25, s) + ops.clamp(s, -0.5, 0.5),
    "transformed": lambda p, s: ops.get(ops.matrix_vector(TURN, homogeneous(p, 1.0)), index=0),
    "transformed back": lambda p, s: ops.get(
        ops.matrix_vector(ops.matrix_transpose(TURN), homogeneous(p, 1.0)), index=1
    ),
    "not a point": lambda p, s: ops.get(ops.matrix_vector(TURN, homogeneous(p, s)), index=2),
    "hypot": lambda p, s: ops.hypot(s, s + 1.0) + ops.exp2(s),
    "components": lambda p, s: ops.make_vector(ops.get(p, index=2), s, ops.get(p, index=0)) * p,
    "normalized": lambda p, s: ops.normalize(p + ops.splat(s, type=V)),
    "gradient": lambda p, s: ops.bwd_diff(p, s, lg.ir.constant(1.0, f64), function=INNER),
}
INNER = lg.ir.trace(lambda p, s: ops.length(p) * ops.sin(s) + ops.max(ops.get(p, index=0), s), V, f64)


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_survive_a_round_trip(name: str) -> None:
    rule = FORMULAS[name]

    def traced(p: Any, s: Any) -> Any:
        value = rule(p, s)
        return tuple(ops.get(value, index=index) for index in range(2)) if name == "gradient" else value

    function = lg.ir.trace(traced, V, f64)
    converted = round_trip(function, 2)
    generator = np.random.default_rng(1)
    for _ in range(20):
        arguments = [generator.uniform(-1, 1, 3), generator.uniform(-1, 1)]
        for actual, expected in zip(results(converted, arguments), results(function, arguments), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


SPLIT = {
    "arithmetic": lambda a, b: (ops.abs(a * b - a), ops.max(a, b)),
    "products": lambda a, b: (ops.dot(a, b), ops.length(a - b)),
    "choice by one number": lambda a, b: (ops.select(ops.get(a, index=0) < 0.25, a, b),),
    "choice by each number": lambda a, b: (ops.select((a < b) & ~ops.equal(a, b) | (b > 0.5), a * a, b),),
    "clamped": lambda a, b: (ops.clamp(a, b, a * 0.5),),
    "one number": lambda a, b: (ops.get(a, index=1), ops.splat(ops.get(b, index=0), type=a.type)),
}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", SPLIT)
def test_vectors_without_a_port_type_are_split_into_scalars(name: str, size: int) -> None:
    type = Vector(f64, size)
    function = lg.ir.trace(SPLIT[name], type, type)
    outputs = [f"y{index}" for index in range(len(function.results))]
    assembly = add_ir_function(Assembly(), function, ["a", "b"], outputs, name="f")
    axes = "xyzw"[:size]
    assert list(assembly.function("f").inputs) == [f"{name}_{axis}" for name in "ab" for axis in axes]
    converted = to_function(assembly, "f", element=f64)
    generator = np.random.default_rng(2)
    for _ in range(10):
        a, b = generator.uniform(-1, 1, (2, size))
        expected = np.concatenate([np.reshape(value, -1) for value in results(function, [a, b])])
        np.testing.assert_allclose(np.array(results(converted, [*a, *b])), expected, rtol=1e-12, atol=1e-12)


def test_a_typed_function_with_vec2_arguments_survives_a_3mf_file(tmp_path: Path) -> None:
    part = lg.shapes.from_function(ring, half=lg.vec2(2.0, 0.5), thickness=0.25).part(((-4, -4, -2), (4, 4, 2)), "ring")
    lg.save_3mf(lg.implicit.assembly_of_part(part), tmp_path / "ring.3mf")
    (read,) = lg.parts(lg.load_3mf(tmp_path / "ring.3mf"))
    points = np.random.default_rng(3).uniform((-3, -3, -1.5), (3, 3, 1.5), (200, 3))
    expected = part(points)
    is_near = expected < 0.5  # farther away, the distance to the domain is larger
    np.testing.assert_allclose(read(points)[is_near], expected[is_near], rtol=1e-5, atol=1e-6)


@lg.differentiable
def ring(p: lg.vec3, half: lg.vec2, thickness: lg.f32) -> lg.f32:
    q = lg.abs(lg.vec2(lg.length(lg.vec2(p.x, p.y)) - half.x, p.z)) - lg.vec2(half.y, half.y)
    return lg.length(lg.max(q, lg.vec2(0.0, 0.0))) - thickness


def test_a_type_without_a_port_is_rejected_with_its_line() -> None:
    function = lg.ir.trace(lambda m: m, Matrix(f64, 2, 2))
    with pytest.raises(AssemblyError, match=r"no port has the type mat<f64, 2, 2> of `x` \(.*test_from_ir.py"):
        add_ir_function(Assembly(), function, ["x"], ["y"])


def test_matrix_elements_are_read() -> None:
    def corners(m: Any) -> Any:
        return tuple(ops.get(m, index=index) for index in (0, 3, 6, 12, 14))

    function = lg.ir.trace(corners, M)
    matrix = np.random.default_rng(0).uniform(-1, 1, (4, 4))
    np.testing.assert_array_equal(results(round_trip(function, 1), [matrix]), matrix.reshape(-1)[[0, 3, 6, 12, 14]])


def power(x: Any) -> Any:
    return ops.make_for_loop(lg.ir.constant(3, lg.i64), lambda index, y: y * x, x)[0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lg.ir.trace(power, f64), "3MF files have no node for `for_loop`"),
        (lg.ir.trace(lambda x: ops.erf(x), f64), "3MF files have no node for `erf`"),
        (lg.ir.trace(lambda x: x * float("inf"), f64), "a constant node cannot hold inf"),
        (lg.ir.trace(lambda v: v, Matrix(f64, 3, 3)), "no port has the type mat<f64, 3, 3>"),
    ],
)
def test_ops_without_a_node_are_rejected_by_name(function: lg.ir.Function, message: str) -> None:
    with pytest.raises(AssemblyError, match=message):
        add_ir_function(Assembly(), function, ["x"], ["y"])
