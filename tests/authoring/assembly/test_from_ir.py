"""Functions of the value IR as graphs: there and back the values are the same; what has no node is refused."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.authoring.assembly import Assembly, AssemblyError, add_ir_function, to_function
from livegrad.authoring.assembly.node_types import NODE_TYPES
from livegrad.backends.reference import evaluate
from livegrad.ir.types import Matrix, Vector, f64
from tests.authoring.assembly.test_node_types import ELEMENTWISE, FIXED, SHAPES, single_node

V, M = Vector(f64, 3), Matrix(f64, 4, 4)


def there_and_back(function: lg.Function, number: int) -> lg.Function:
    outputs = [f"y{index}" for index in range(len(function.results))]
    made = add_ir_function(Assembly(), function, [f"x{index}" for index in range(number)], outputs, name="f")
    assert not made.problems()
    return to_function(made, "f", element=f64)


@pytest.mark.parametrize("name", [*ELEMENTWISE, *FIXED])
def test_every_node_that_computes_comes_back(name: str) -> None:
    for kind in NODE_TYPES[name].kinds or (None,):
        original = to_function(single_node(name, kind), "f", element=f64)
        back = there_and_back(original, len(original.parameters))
        low, high = ELEMENTWISE[name][1] if name in ELEMENTWISE else (-2, 2)
        generator = np.random.default_rng(len(name))
        arguments = [
            generator.uniform(low, high, SHAPES[own or kind])  # type: ignore[index]
            for _, own in NODE_TYPES[name].inputs
        ]
        for found, expected in zip(results(back, arguments), results(original, arguments), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def results(function: lg.Function, arguments: list[Any]) -> tuple[Any, ...]:
    value = evaluate(function, *arguments)
    return value if isinstance(value, tuple) else (value,)


FORMULAS = {
    "comparisons": lambda p, s: ops.select((s < 0.5) & ~(s <= -0.5), s, -s) + ops.select(ops.equal(s, 0.25), s, s * s),
    "or": lambda p, s: ops.select((s > 0.5) | (s >= 2.0), p, -p),
    "rounding": lambda p, s: ops.round(s * 3.0) + ops.trunc(s * 3.0) + ops.floor_div(s, 0.75),
    "copysign": lambda p, s: ops.copysign(s * s + 1.0, s),
    "hypot": lambda p, s: ops.hypot(s, s + 1.0) + ops.exp2(s),
    "components": lambda p, s: ops.make_vector(ops.get(p, index=2), s, ops.get(p, index=0)) * p,
    "normalized": lambda p, s: ops.normalize(p + ops.splat(s, type=V)),
    "gradient": lambda p, s: ops.bwd_diff(p, s, lg.constant(1.0, f64), function=INNER),
}
INNER = lg.trace(lambda p, s: ops.length(p) * ops.sin(s) + ops.max(ops.get(p, index=0), s), V, f64)


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_come_back(name: str) -> None:
    rule = FORMULAS[name]

    def traced(p: Any, s: Any) -> Any:
        value = rule(p, s)
        return tuple(ops.get(value, index=index) for index in range(2)) if name == "gradient" else value

    function = lg.trace(traced, V, f64)
    back = there_and_back(function, 2)
    generator = np.random.default_rng(1)
    for _ in range(20):
        arguments = [generator.uniform(-1, 1, 3), generator.uniform(-1, 1)]
        for found, expected in zip(results(back, arguments), results(function, arguments), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_single_numbers_are_read_out_of_matrices() -> None:
    def corners(m: Any) -> Any:
        return tuple(ops.get(m, index=index) for index in (0, 3, 6, 12, 14))

    function = lg.trace(corners, M)
    matrix = np.random.default_rng(0).uniform(-1, 1, (4, 4))
    np.testing.assert_array_equal(results(there_and_back(function, 1), [matrix]), matrix.reshape(-1)[[0, 3, 6, 12, 14]])


def looping(x: Any) -> Any:
    return ops.make_for_loop(lg.constant(3, lg.i64), lambda index, y: y * x, x)[0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lg.trace(looping, f64), "no node of a 3MF file computes `for_loop`"),
        (lg.trace(lambda x: ops.erf(x), f64), "no node of a 3MF file computes `erf`"),
        (lg.trace(lambda x: x * float("inf"), f64), "no constant node holds inf"),
        (lg.trace(lambda v: v, Vector(f64, 2)), "no port carries a vec<f64, 2>"),
    ],
)
def test_what_has_no_node_is_refused_by_name(function: lg.Function, message: str) -> None:
    with pytest.raises(AssemblyError, match=message):
        add_ir_function(Assembly(), function, ["x"], ["y"])
