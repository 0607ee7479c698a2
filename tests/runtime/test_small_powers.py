"""Powers that code computes by products and roots: errors, and special cases, which are those of C's `pow`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from livegrad.codegen.c.body import needs_expansion
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.codegen.llvm.function_body import lacks_code
from livegrad.ir.function import trace
from livegrad.ir.types import Scalar, Tensor, f16, f32, f64
from livegrad.ops.rules import filled
from livegrad.ops.transcendental import pow
from livegrad.runtime.cpu import run_function
from livegrad.runtime.cuda import run_ieee
from tests.runtime.cuda.simulate import COMPILER, simulated

EXPONENTS = (-2.0, -1.5, -0.5, 0.5, 1.5, 3.0, 4.0)
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, -2.0)


def power_by_c(x: float, exponent: float) -> float:
    try:
        return math.pow(x, exponent)
    except OverflowError:
        return math.copysign(math.inf, x) if exponent == 3.0 else math.inf
    except ValueError:  # Python raises for 0.0 ** -n and for roots of negative numbers
        return math.inf if x == 0.0 else math.nan


def units(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The errors in units in the last place."""
    rounded = exact.astype(result.dtype)
    return np.abs(result.astype(exact.dtype) - exact) / np.spacing(np.abs(rounded)).astype(exact.dtype)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("element", [f32, f64])
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here"))]
)
def test_small_powers_are_exact_to_a_few_units(device: str, element: Scalar, exponent: float) -> None:
    limits = np.finfo(element.dtype)
    numbers = np.random.default_rng(1)
    exponents = numbers.uniform(math.log2(limits.tiny) + 1, math.log2(limits.max) - 1, 4000)
    edges = [limits.max, limits.tiny, limits.smallest_subnormal]
    x = np.array([*SPECIAL, *edges, *np.exp2(exponents)], element.dtype)
    function = trace(lambda x: pow(x, filled(exponent, x.type)), Tensor(element, x.shape))
    if device == "cpu":
        result = run_function(function, x)
    else:
        with simulated():
            result = run_ieee(function, x)
    expected = np.array([power_by_c(value, exponent) for value in SPECIAL], element.dtype)
    np.testing.assert_array_equal(result[: len(SPECIAL)], expected)
    np.testing.assert_array_equal(
        np.signbit(result[: len(SPECIAL)])[expected == 0], np.signbit(expected[expected == 0])
    )
    wide = np.longdouble if element is f64 else np.float64
    exact = np.power(x[len(SPECIAL) :].astype(wide), wide(exponent))
    with np.errstate(over="ignore"):
        rounded = exact.astype(element.dtype)
    np.testing.assert_array_equal(np.isinf(result[len(SPECIAL) :]), np.isinf(rounded))
    regular = np.isfinite(rounded) & (rounded >= limits.tiny)
    assert units(result[len(SPECIAL) :][regular], exact[regular]).max() < 2.3


def test_other_powers_are_left_to_the_function() -> None:
    for element, exponent, expected in ((f32, 1.5, True), (f64, 3.0, True), (f16, 3.0, False), (f32, 2.7, False)):
        node = trace(lambda x, e=exponent: pow(x, filled(e, x.type)), element).results[0]
        assert lacks_code(node) is expected
        assert needs_expansion(node, KERNELS) is expected
    variable = trace(pow, f64, f64).results[0]
    assert not lacks_code(variable)
