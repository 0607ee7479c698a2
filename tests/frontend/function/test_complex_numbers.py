"""Complex numbers in captured functions: real and imaginary parts, `complex(re, im)`, and derivatives."""

import math
import re
from typing import Any, Literal

import numpy as np
import pytest

import livegrad as lg


@lg.differentiable
def mix(z: complex, x: float) -> Any:
    w = complex(x, 2.0) * z.conjugate() + complex(x)
    return w.real * w.imag + lg.real(z) - lg.imag(z) + abs(lg.conj(w)) + x.real + x.imag + (3).real


@lg.function
def transform(a: lg.inout[lg.tensor[complex, Literal[1]]]) -> Any:
    n = len(a)
    j = 0
    for i in range(1, n):
        bit = n >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j ^= bit
        if i < j:
            a[i], a[j] = a[j], a[i]
    length = 2
    while length <= n:
        angle = -2.0 * math.pi / length
        for i in range(0, n, length):
            for k in range(length // 2):
                u, v = a[i + k], a[i + k + length // 2] * complex(math.cos(angle * k), math.sin(angle * k))
                a[i + k] = u + v
                a[i + k + length // 2] = u - v
        length *= 2
    return a


def test_complex_parts_agree_with_python() -> None:
    points = [1.0 + 2.0j, 3.0 - 1.0j, complex(-0.0, math.inf)]
    for z in points[:2]:
        assert mix(z, 0.5) == pytest.approx(mix.python(z, 0.5), rel=1e-14)
    np.testing.assert_allclose(mix(np.array(points[:2]), 0.5), [mix.python(z, 0.5) for z in points[:2]], rtol=1e-14)

    @lg.function
    def swap(z: complex) -> complex:
        return complex(z.imag, z.real)

    assert [repr(swap(z)) for z in points] == [repr(swap.python(z)) for z in points]


def test_derivatives_flow_through_complex_parts() -> None:
    z, x, step = 1.0 + 2.0j, 0.5, 1e-6
    by_z, by_x = lg.bwd_diff(mix)(z, x, 1.0)
    assert by_x == pytest.approx((mix(z, x + step) - mix(z, x - step)) / (2 * step), abs=1e-6)
    slopes = [(mix(z + d * step, x) - mix(z - d * step, x)) / (2 * step) for d in (1.0, 1.0j)]
    assert by_z == pytest.approx(complex(slopes[0], -slopes[1]), abs=1e-6)  # dL/dx - i dL/dy
    forward = lg.fwd_diff(mix)(lg.pair(z, 1.0j), lg.pair(x, 0.0)).differential
    assert forward == pytest.approx(slopes[1], abs=1e-6)


def test_a_fourier_transform_in_loops_agrees_with_numpy() -> None:
    values = np.random.default_rng(0).normal(size=16) + 0j
    np.testing.assert_allclose(transform(values), np.fft.fft(values), atol=1e-13)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("complex(z, 1.0)", "LG201: `complex` takes one number, or two real ones"),
        ("complex(1.0, 2.0, 3.0)", "LG108: `complex` takes 2 arguments"),
        ("z.conjugate(1)", "LG108: `conj` takes 1 argument"),
        ("lg.real(lg.vec2(1.0))", "LG201: `real` takes a number, not vec2"),
    ],
)
def test_invalid_uses_of_complex_numbers_are_rejected(call: str, said: str) -> None:
    names = lg.run_source(f"@lg.function\ndef f(z: complex) -> complex:\n    return {call}\n", {"lg": lg})
    with pytest.raises(lg.FunctionError, match=re.escape(said)):
        names["f"](1j)


def test_math_functions_of_constants_are_folded_by_python() -> None:
    @lg.function
    def f(x: float) -> float:
        return x * math.factorial(4) + math.comb(5, 2)

    assert f(0.5) == 22.0
