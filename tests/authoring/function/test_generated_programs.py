"""Programs made by hypothesis: values as Python gives them, derivatives as dual numbers give them, nestings alike."""

import math

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st

from livegrad.authoring.function.captured import CapturedFunction, Slot
from livegrad.authoring.function.source import run_source
from livegrad.backends.cpu import compile_function
from livegrad.backends.reference import evaluate
from livegrad.ir.node import Function
from livegrad.ir.types import f64, i64
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from tests.authoring.function.generated import Dual, dual_sin, dual_tanh, programs

points = st.floats(-1.5, 1.5).map(lambda x: round(x, 3))


def compiled(text: str) -> Function:
    function = CapturedFunction(run_source(text, {"sin": math.sin, "tanh": math.tanh})["program"])
    return function.specialize((Slot(f64), Slot(f64), Slot(i64))).function


def by_duals(text: str, x: Dual, y: Dual, n: int) -> Dual:
    return Dual.of(run_source(text, {"sin": dual_sin, "tanh": dual_tanh})["program"](x, y, n))


@settings(max_examples=20)
@given(text=programs(), x=points, y=points, n=st.integers(0, 4), dx=points, dy=points)
def test_generated_programs(text: str, x: float, y: float, n: int, dx: float, dy: float) -> None:
    note(text)
    function = compiled(text)
    expected = by_duals(text, Dual(x, dx), Dual(y, dy), n)
    forward, backward = jvp(function), vjp(function)
    value, slope = evaluate(forward, x, y, n, dx, dy, ())
    assert math.isclose(value, expected.value, rel_tol=1e-10, abs_tol=1e-12)
    assert math.isclose(slope, expected.slope, rel_tol=1e-8, abs_tol=1e-10)
    gx, gy, _ = evaluate(backward, x, y, n, 1.0)
    assert math.isclose(gx * dx + gy * dy, expected.slope, rel_tol=1e-8, abs_tol=1e-9)
    check_second_order(forward, backward, (x, y, n), (dx, dy, ()))


def check_second_order(forward: Function, backward: Function, at: tuple, along: tuple) -> None:
    """The second derivative along one direction, from all four nestings."""
    dx, dy, _ = along
    zeros = (0.0, 0.0, ())
    second = {
        "ff": evaluate(jvp(forward), *at, *along, *along, *zeros)[-1],
        "fr": np.dot(evaluate(jvp(backward), *at, 1.0, *along, 0.0)[-3:-1], (dx, dy)),
        "rf": np.dot(evaluate(vjp(forward), *at, *along, 0.0, 1.0)[:2], (dx, dy)),
        "rr": np.dot(evaluate(vjp(backward), *at, 1.0, dx, dy, ())[:2], (dx, dy)),
    }
    size = 1.0 + max(abs(value) for value in second.values())
    for value in second.values():
        assert abs(value - second["ff"]) <= 1e-9 * size, second


@settings(max_examples=4)
@given(text=programs(), x=points, y=points, n=st.integers(0, 4))
def test_generated_programs_run_natively(text: str, x: float, y: float, n: int) -> None:
    note(text)
    both = vjp(compiled(text), with_value=True)
    native, reference = compile_function(both)(x, y, n, 1.0), evaluate(both, x, y, n, 1.0)
    np.testing.assert_allclose(native[:3], reference[:3], rtol=1e-9, atol=1e-11)
