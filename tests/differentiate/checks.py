"""Derivatives compared with differences: what every test of differentiation calls.

`check_first_order` compares jvp with central differences and vjp with jvp by the dot-product identity; the checks of
higher order do the same with a derivative in the function's place, so that every nesting of the modes is covered.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from livegrad.ir.node import Function
from livegrad.ir.types import (
    Array,
    Struct,
    Tuple,
    Type,
    components,
    differential_of,
    is_differentiable,
)
from livegrad.ir.verify import verify_function
from livegrad.ir.walk import reachable_functions, toposort
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.reference import evaluate
from tests.conformance.values import element_of, plain_shape

MODES: dict[str, Callable[[Function], Function]] = {"f": jvp, "r": vjp}
# The central difference of fourth order: f' = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, with an error of h**4.
_STEP = 1e-4
_STENCIL = ((1.0, 8.0 / 12.0), (-1.0, -8.0 / 12.0), (2.0, -1.0 / 12.0), (-2.0, 1.0 / 12.0))


def random_differential(type: Type, rng: np.random.Generator) -> Any:
    """A tangent or cotangent of a value of this type."""
    if not is_differentiable(type):
        return ()
    if isinstance(type, Struct | Tuple | Array):
        return tuple(
            random_differential(member, rng)
            for member in components(type)
            if not isinstance(type, Struct) or is_differentiable(member)
        )
    scalar, shape = element_of(type), plain_shape(type)
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn + 1j * rng.standard_normal(shape) if scalar.kind == "complex" else drawn, scalar.dtype)


def random_differentials(types: Sequence[Type], rng: np.random.Generator) -> tuple[Any, ...]:
    return tuple(random_differential(type, rng) for type in types)


def moved(value: Any, type: Type, tangent: Any, step: float) -> Any:
    """`value + step * tangent`, where the value has a derivative; the rest stays."""
    if not is_differentiable(type):
        return value
    if isinstance(type, Struct | Tuple | Array):
        supply = iter(tangent)
        return tuple(
            moved(member, own, next(supply), step) if not isinstance(type, Struct) or is_differentiable(own) else member
            for member, own in zip(value, components(type), strict=True)
        )
    return np.asarray(value) + step * np.asarray(tangent)


def combined(values: Sequence[Any], factors: Sequence[float], type: Type) -> Any:
    """The sum of values times factors, as a differential of their type."""
    if not is_differentiable(type):
        return ()
    if isinstance(type, Struct | Tuple | Array):
        return tuple(
            combined([value[index] for value in values], factors, own)
            for index, own in enumerate(components(type))
            if not isinstance(type, Struct) or is_differentiable(own)
        )
    return sum(factor * np.asarray(value) for value, factor in zip(values, factors, strict=True))


def results_of(function: Function, value: Any) -> tuple[Any, ...]:
    return (value,) if len(function.results) == 1 else value


def central_difference(function: Function, arguments: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The derivative of each result along the tangents, by differences."""
    types = function.parameter_types
    samples = []
    for place, _ in _STENCIL:
        shifted = [moved(a, t, d, place * _STEP) for a, t, d in zip(arguments, types, tangents, strict=True)]
        samples.append(results_of(function, evaluate(function, *shifted)))
    factors = [factor / _STEP for _, factor in _STENCIL]
    return tuple(
        combined([sample[index] for sample in samples], factors, type)
        for index, type in enumerate(function.result_types)
    )


def leaves(value: Any) -> list[Any]:
    """The arrays in a nested value, in order."""
    return [leaf for member in value for leaf in leaves(member)] if isinstance(value, tuple) else [np.asarray(value)]


def flat(value: Any) -> Any:
    """All numbers of a nested value in one array."""
    parts = [leaf.ravel() for leaf in leaves(value)]
    return np.concatenate(parts) if parts else np.zeros(0)


def paired(first: Any, second: Any) -> tuple[float, float]:
    """The pairing Re(sum(a * b)) of two differentials, and the sum of its terms' magnitudes."""
    terms = (flat(first) * flat(second)).real
    return float(np.sum(terms)), float(np.sum(np.abs(terms)))


def assert_near(actual: Any, expected: Any, tolerance: float) -> None:
    a, b = flat(actual), flat(expected)
    assert a.shape == b.shape
    scale = 1.0 + np.max(np.abs(b), initial=0.0)
    np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=tolerance)


def assert_same(found: Any, expected: Any) -> None:
    """Two nested values are one, but for rounding."""
    assert len(leaves(found)) == len(leaves(expected))
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def check_first_order(
    function: Function, arguments: Sequence[Any], rng: np.random.Generator, tolerance: float = 1e-8
) -> None:
    """jvp gives the value and what differences give; vjp pairs with it."""
    forward, backward = jvp(function), vjp(function)
    verify_function(forward)
    verify_function(backward)
    tangents = random_differentials(function.parameter_types, rng)
    number = len(function.results)
    duals = results_of(forward, evaluate(forward, *arguments, *tangents))
    assert_near(duals[:number], results_of(function, evaluate(function, *arguments)), 1e-13)
    assert_near(duals[number:], central_difference(function, arguments, tangents), tolerance)
    cotangents = random_differentials(function.result_types, rng)
    gradient = results_of(backward, evaluate(backward, *arguments, *cotangents))
    assert_dual(gradient, tangents, cotangents, duals[number:])


def assert_dual(gradient: Any, tangents: Any, cotangents: Any, moved_results: Any) -> None:
    """<bwd(ct), dx> = <ct, fwd(dx)>, to rounding."""
    (one, size_one), (other, size_other) = paired(gradient, tangents), paired(cotangents, moved_results)
    assert abs(one - other) <= 1e-12 * (size_one + size_other) + 1e-300, f"<bwd, dx> = {one}, <ct, fwd> = {other}"


def differentiated(function: Function, modes: str) -> Function:
    """The derivative of the derivative and so on, first mode innermost."""
    for mode in modes:
        function = MODES[mode](function)
    return function


def derived(
    function: Function, arguments: Sequence[Any], modes: str, rng: np.random.Generator
) -> tuple[Function, tuple[Any, ...]]:
    """The derivative of the derivative and so on, first mode innermost, with random arguments for its tangents."""
    values = tuple(arguments)
    for mode in modes:
        types = function.parameter_types if mode == "f" else function.result_types
        values += random_differentials(types, rng)
        function = MODES[mode](function)
    return function, values


def check_orders(
    function: Function, arguments: Sequence[Any], order: int = 2, tolerance: float = 1e-7, seed: int = 1
) -> None:
    """All nestings of the modes up to an order: each against differences of the derivative that is one order lower."""
    rng = np.random.default_rng(seed)
    for depth in range(order):
        for modes in product("fr", repeat=depth):
            check_nesting(function, arguments, "".join(modes), rng, tolerance)


def check_nesting(
    function: Function, arguments: Sequence[Any], modes: str, rng: np.random.Generator, tolerance: float = 1e-7
) -> None:
    """Both modes on top of this nesting of modes."""
    inner, values = derived(function, arguments, modes, rng)
    check_first_order(inner, values, rng, tolerance if modes else min(tolerance, 1e-8))


def op_names(function: Function) -> set[str]:
    """The ops that a function and all that it uses are made of."""
    return {node.op.name for inner in reachable_functions([function]) for node in toposort(inner.results)}


def gradient_of(function: Function, *arguments: Any) -> tuple[Any, ...]:
    """The cotangents of all arguments for a cotangent of one."""
    backward = vjp(function)
    return results_of(backward, evaluate(backward, *arguments, 1.0))


def differential_types(types: Sequence[Type]) -> tuple[Type, ...]:
    return tuple(map(differential_of, types))
