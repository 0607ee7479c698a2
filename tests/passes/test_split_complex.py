"""Complex numbers in kernels: parts are computed as real numbers, and stored as pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, c64, c128, f32, shape_of
from livegrad.ops.comparison import equal, not_equal
from livegrad.ops.conversion import cast, conj, imag, make_complex, real
from livegrad.ops.elementwise import abs, select
from livegrad.ops.fourier import fft
from livegrad.ops.movement import broadcast, flip, permute, reshape
from livegrad.ops.transcendental import asin, exp
from livegrad.passes.split_complex import split_complex
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.reference import evaluate
from tests.schedule.plans import along, host_ops, plan_of, total

PROGRAMS: dict[str, Callable[..., Any]] = {
    "polynomial": lambda a, b: a * a + 1.0,
    "product": lambda a, b: conj(a) * b - a,
    "quotient": lambda a, b: (a / b, 1.0 / b),
    "length": lambda a, b: abs(a),
    "parts": lambda a, b: (real(a) * 2.0, imag(a * b)),
    "choice": lambda a, b: select(equal(a, b), a, -b),
    "different": lambda a, b: not_equal(a, b),
    "row sums": lambda a, b: total(a * b, 1),
    "shares": lambda a, b: a * along(total(b, 1), a, 1),
    "turned": lambda a, b: permute(a, axes=(1, 0)) * 2.0,
    "backwards": lambda a, b: flip(a, axes=(1,)) + b,
    "another shape": lambda a, b: reshape(a * b, shape=(37 * 53,)) * 2.0,
    "widened": lambda a, b: cast(real(a), type=c128) * cast(b, type=c128),
    "exponential": lambda a, b: exp(a * b) + a,
    "several": lambda a, b: (a * b, a * b + 1.0, a),
}


def numbers(element: Scalar, seed: int, shape: tuple[int, ...] = (37, 53)) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(element.dtype)


@pytest.mark.parametrize("element", [c64, c128], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_arithmetic_on_complex_numbers_runs_in_kernels(name: str, element: Scalar) -> None:
    matrix = Tensor(element, (37, 53))
    function = trace(PROGRAMS[name], matrix, matrix)
    assert host_ops(plan_of(function)) == []
    given = numbers(element, 0), numbers(element, 1)
    given[1][3] = given[0][3]
    found, expected = CpuFunction(function)(*given), evaluate(function, *given)
    several = isinstance(expected, tuple)
    for one, other in zip(found if several else [found], expected if several else [expected], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5 if element is c64 else 1e-13, atol=1e-12)


def test_an_expression_is_one_kernel_that_reads_and_writes_once() -> None:
    plan = plan_of(lambda a, b: conj(a) * b + 2.0 * a, Tensor(c64, (100, 10)), Tensor(c64, (100, 10)))
    assert plan.kernels == 1
    assert plan.arena_bytes == 0
    assert plan.bytes_moved == 3 * 8000


def test_results_in_another_shape_are_written_where_they_belong() -> None:
    wide = plan_of(lambda a: reshape(a * a, shape=(10, 30)), Tensor(c64, (100, 3)))
    plain = plan_of(lambda a: reshape(a * a, shape=(10, 30)), Tensor(f32, (100, 3)))
    assert (wide.kernels, wide.arena_bytes) == (plain.kernels, plain.arena_bytes) == (1, 0)


def test_what_has_no_rule_is_computed_by_the_host_between_kernels() -> None:
    line = Tensor(c64, (64,))
    plan = plan_of(lambda a, b: fft(asin(a) * b, axes=(0,), inverse=False, norm="backward"), line, line)
    assert host_ops(plan) == ["asin", "fft"]
    assert plan.kernels == 1


@pytest.mark.parametrize(("element", "values"), [(c128, (709.5, 720.0, 1000.0)), (c64, (88.0, 89.5, 95.0))])
def test_exponentials_are_those_of_numpy_for_special_numbers(element: Scalar, values: tuple[float, ...]) -> None:
    numbers = [*SPECIAL[:4], 1.5, 1e-30, np.inf, -np.inf, np.nan, *values]
    z = np.array([complex(a, b) for a in numbers for b in numbers]).astype(element.dtype)
    function = trace(exp, Tensor(element, z.shape))
    assert not host_ops(plan_of(function))
    with np.errstate(all="ignore"):
        expected = np.exp(z)
    found = CpuFunction(function)(z)
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(found), part(expected), 1e-5 if element is c64 else 1e-13, 0.0)


SPECIAL = [0.0, -0.0, 1.0, -2.0, 1e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("name", ["product", "quotient", "length", "choice"])
def test_special_values_are_as_the_reference_has_them(name: str) -> None:
    parts = np.array(SPECIAL, np.float32)
    every = np.empty((8, 8), np.complex64)
    every.real, every.imag = parts[:, None], parts[None]
    a, b = np.repeat(every.ravel(), 64), np.tile(every.ravel(), 64)
    function = trace(PROGRAMS[name], Tensor(c64, (4096,)), Tensor(c64, (4096,)))
    with np.errstate(all="ignore"):
        found, expected = CpuFunction(function)(a, b), evaluate(function, a, b)
    several = isinstance(expected, tuple)
    for one, other in zip(found if several else [found], expected if several else [expected], strict=True):
        for part in (np.real, np.imag):
            # Where two products cancel, one of them is not rounded: something far below 1 is left.
            np.testing.assert_allclose(part(one), part(other), rtol=1e-6, atol=1e-36)


@pytest.mark.parametrize("element", [c64, c128], ids=str)
def test_exponentials_of_special_and_large_values_are_those_of_c(element: Scalar) -> None:
    """The result may be finite where the exponential of the real part overflows."""
    parts = [*SPECIAL, 1.5, np.pi / 2, 88.5, 100.0, 709.5, 715.0, 745.0, 1400.0, -745.2, 1e300]
    with np.errstate(all="ignore"):
        given = np.array([complex(re, im) for re in parts for im in parts]).astype(element.dtype)
        found, expected = CpuFunction(trace(exp, Tensor(element, given.shape)))(given), np.exp(given)
    for part in (np.real, np.imag):
        one, other = part(found), part(expected)
        np.testing.assert_allclose(one, other, rtol=1e-14 if element is c128 else 2e-6, atol=np.finfo(one.dtype).tiny)
        zeros = (other == 0.0) & np.isfinite(np.imag(given))  # C leaves the sign of others open
        assert np.array_equal(np.signbit(one)[zeros], np.signbit(other)[zeros])


def test_a_real_function_is_left_alone_and_scalars_stay_whole() -> None:
    plain = trace(lambda x: x * x, Tensor(f32, (5,)))
    assert split_complex(plain) is plain

    def scaled(a: Node, s: Node) -> Node:
        return a * broadcast(s * s, shape=shape_of(a.type), axes=())

    function = trace(scaled, Tensor(c64, (70,)), c64)
    a, s = numbers(c64, 0, (70,)), np.complex64(2 - 1j)
    np.testing.assert_allclose(CpuFunction(function)(a, s), a * s * s, rtol=1e-5)


def test_parts_are_put_together_without_arithmetic() -> None:
    function = trace(make_complex, Tensor(f32, (40,)), Tensor(f32, (40,)))
    re, im = np.full(40, np.inf, np.float32), np.full(40, -0.0, np.float32)
    found = CpuFunction(function)(re, im)
    np.testing.assert_array_equal(found.real, re)
    assert np.signbit(found.imag).all()
