"""Native functions of complex numbers have NumPy's branch cuts and values at infinity, and are as accurate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.types import Tensor, c64
from livegrad.ops import transcendental
from livegrad.passes.complex_functions import FUNCTIONS
from livegrad.runtime.cpu import compile_function

NAMES = sorted(op.name for op in FUNCTIONS)
_EDGES = {
    "complex64": [0.0, 1.0, np.inf, 1e-44, 1e-38, 1e38, 3e38, 0.5, 88.5, 89.2, 9.0, 11.0],
    "complex128": [0.0, 1.0, np.inf, 1e-320, 1e-300, 1e300, 1.5e308, 0.5, 700.0, 710.3, 20.0, 25.0],
}
_SIGNED = ("sqrt", "log", "log2", "log10")
_TOLERANCE = {"complex64": 1e-6, "complex128": 2e-15}


def compute(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(lg.jit(getattr(lg, name))(lg.asarray(values)))


def are_same(value: float, expected: float, tolerance: float, smallest: float) -> bool:
    if np.isnan(expected) or np.isnan(value):
        return bool(np.isnan(expected) and np.isnan(value))
    if not np.isfinite(expected) or expected == 0.0:
        return value == expected and np.signbit(value) == np.signbit(expected)
    return abs(value - expected) <= tolerance * max(abs(expected), smallest)


@pytest.mark.parametrize("dtype", _EDGES)
@pytest.mark.parametrize("name", NAMES)
def test_edge_cases_are_those_of_numpy(name: str, dtype: str) -> None:
    axis = np.array([*_EDGES[dtype], *[-x for x in _EDGES[dtype]], np.nan])
    values = np.empty((len(axis), len(axis)), dtype)
    values.real, values.imag = axis[:, None], axis[None, :]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(values)
    result = compute(name, values)
    tiny = float(np.finfo(dtype).tiny)
    for argument, value, wanted in zip(values.ravel(), result.ravel(), expected.ravel(), strict=True):
        for part in ("real", "imag"):
            found, right = getattr(value, part), getattr(wanted, part)
            if not np.isfinite(argument) and (right == 0.0 or np.isinf(right)) and name not in _SIGNED:
                found, right = abs(found), abs(right)  # C99 leaves some of the signs open
            assert are_same(found, right, 50 * _TOLERANCE[dtype], tiny), (argument, value, wanted)


@pytest.mark.parametrize("dtype", _EDGES)
@pytest.mark.parametrize("name", NAMES)
def test_random_arguments_near_and_far(name: str, dtype: str) -> None:
    rng = np.random.default_rng(len(name))
    sizes = 10 ** rng.uniform(-6, 2, (2, 4000))
    scattered = rng.standard_normal(4000) * sizes[0] + 1j * rng.standard_normal(4000) * sizes[1]
    circle = np.exp(1j * rng.uniform(-4, 4, 500)) * (1 + rng.standard_normal(500) * 10 ** rng.uniform(-12, -1, 500))
    values = np.concatenate([scattered, circle]).astype(dtype)
    expected = getattr(np, name)(values.astype(np.complex128))
    with np.errstate(all="ignore"):
        fits = np.isfinite(expected.astype(dtype)) & (np.abs(expected) > np.finfo(dtype).tiny)
    error = np.abs(compute(name, values)[fits] - expected[fits]) / np.abs(expected[fits])
    assert error.max() < _TOLERANCE[dtype]
    if name == "log" and dtype == "complex64":  # the real part near the unit circle
        near = np.abs(np.abs(values.astype(np.complex128)) - 1.0) > 1e-6
        np.testing.assert_allclose(compute(name, values).real[near], expected.real[near], rtol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_no_function_runs_on_the_host(name: str) -> None:
    function = lg.ir.trace(getattr(transcendental, name), Tensor(c64, (64,)))
    assert compile_function(function).plan().only_kernels


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_agree_with_differences(name: str) -> None:
    rng = np.random.default_rng(3)
    x, dx = (lg.asarray(rng.uniform(0.2, 1.2, 16) + 1j * rng.uniform(-1.2, 1.2, 16)) for _ in range(2))
    function = getattr(lg, name)
    _, tangent = lg.jvp(function, (x,), (dx,))
    step = 1e-6
    difference = (function(x + step * dx) - function(x - step * dx)) / (2 * step)
    np.testing.assert_allclose(np.asarray(tangent), np.asarray(difference), rtol=1e-6)
    value, backward = lg.vjp(function, x)
    weights = lg.asarray(rng.standard_normal(16) + 1j * rng.standard_normal(16))
    (pulled,) = backward(weights)
    assert value.shape == x.shape
    pairing = np.sum(np.asarray(pulled) * np.asarray(dx)).real
    other = np.sum(np.asarray(weights) * np.asarray(tangent)).real
    conjugate = np.sum(np.conj(np.asarray(pulled)) * np.asarray(dx)).real
    conjugate_other = np.sum(np.conj(np.asarray(weights)) * np.asarray(tangent)).real
    assert np.isclose(pairing, other) or np.isclose(conjugate, conjugate_other)
