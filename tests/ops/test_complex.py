"""Complex numbers: every elementwise function that the Array API defines for them is NumPy's, in single and double
precision, and derivatives pair by Re(sum(ct * dx))."""

from typing import Any

import mpmath
import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, c64, c128, f64, scalar_of_dtype
from livegrad.passes.complex_functions import FUNCTIONS
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_orders, gradient_of

BACKENDS = pytest.mark.parametrize("run", [evaluate, run_function], ids=["reference", "cpu"])
UNARY: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("conj", "cos", "cosh", "exp", "imag", "log", "log10", "log2")},
    **{name: getattr(np, name) for name in ("real", "sign", "sin", "sinh", "sqrt", "tan")},
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "is_finite": np.isfinite,
    "is_infinite": np.isinf,
    "is_nan": np.isnan,
    "neg": np.negative,
    "round": np.round,
}
BINARY: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
NATIVE = {op.name for op in FUNCTIONS}
_PARTS = np.array([0.0, -0.0, 0.5, -1.0, 2.5, 1e200, np.inf, -np.inf, np.nan])


def every_number(dtype: Any) -> Any:
    """Each part with each, made without arithmetic, which would spoil infinities."""
    with np.errstate(over="ignore"):
        parts = _PARTS.astype(dtype(0).real.dtype)
    numbers = np.empty((parts.size, parts.size), dtype)
    numbers.real, numbers.imag = parts[:, None], parts[None, :]
    return numbers.ravel()


@BACKENDS
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_complex_numbers_are_numpys(name: str, dtype: Any, run: Any) -> None:
    z = every_number(dtype)
    with np.errstate(all="ignore"):
        expected = UNARY[name](z)
    actual = run(trace(getattr(ops, name), Tensor(scalar_of_dtype(dtype), z.shape)), z)
    assert actual.dtype == expected.dtype
    if run is not evaluate and (name in ("abs", "exp") or name in NATIVE):
        # The vector math: its table says 1.5 ulp for `hypot`; others are products of two or three real functions.
        digits, is_number = (2 if name == "abs" else 5) * np.finfo(dtype).eps, ~np.isnan(expected)
        np.testing.assert_array_equal(~np.isnan(actual), is_number)
        for part in (np.real, np.imag):
            np.testing.assert_allclose(part(actual[is_number]), part(expected[is_number]), rtol=digits, atol=0.0)
        return
    np.testing.assert_array_equal(actual, expected)


@BACKENDS
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_of_complex_numbers_is_numpys(name: str, dtype: Any, run: Any) -> None:
    z = every_number(dtype)
    a, b = np.repeat(z, z.size), np.tile(z, z.size)
    with np.errstate(all="ignore"):
        expected = BINARY[name](a, b)
    type = Tensor(scalar_of_dtype(dtype), a.shape)
    np.testing.assert_array_equal(run(trace(getattr(ops, name), type, type), a, b), expected)


@BACKENDS
def test_finite_parts_make_a_finite_number_even_if_its_length_overflows(run: Any) -> None:
    z = np.array([1e308 + 1e308j])
    assert run(trace(ops.is_finite, Tensor(c128, (1,))), z)[0]
    assert not run(trace(ops.is_infinite, Tensor(c128, (1,))), z)[0]


@BACKENDS
@pytest.mark.parametrize("z", [1e-20 + 1e-20j, 1e-9 - 3e-9j, 1e-10j, -0.4 + 0.2j, 0.5j, -0.5 + 1e-8j, 3 - 4j])
def test_the_logarithm_of_one_plus_a_small_number_keeps_its_digits(z: complex, run: Any) -> None:
    with mpmath.workdps(50):
        exact = mpmath.log(1 + mpmath.mpmathify(z))
        actual = mpmath.mpmathify(complex(run(trace(ops.log1p, Tensor(c128, (1,))), np.array([z]))[0]))
        assert abs(actual.real - exact.real) <= 4e-16 * abs(exact)
        assert abs(actual.imag - exact.imag) <= 4e-16 * abs(exact)


@BACKENDS
@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (complex(0.0, -0.0), complex(0.0, -0.0)),
        (complex(np.inf, 0.0), complex(np.inf, 0.0)),
        (complex(-np.inf, 1.0), complex(-1.0, 0.0)),
        (complex(np.inf, 2.0), complex(-np.inf, np.inf)),
        (complex(-np.inf, np.inf), complex(-1.0, 0.0)),
        (complex(np.inf, np.inf), complex(np.inf, np.nan)),
        (complex(-np.inf, np.nan), complex(-1.0, 0.0)),
        (complex(np.inf, np.nan), complex(np.inf, np.nan)),
        (complex(np.nan, 0.0), complex(np.nan, 0.0)),
        (complex(np.nan, 1.0), complex(np.nan, np.nan)),
        (complex(1.0, np.inf), complex(np.nan, np.nan)),
        (complex(1000.0, 0.0), complex(np.inf, 0.0)),
    ],
)
def test_expm1_of_special_numbers_is_the_standard_s(z: complex, expected: complex, run: Any) -> None:
    actual = run(trace(ops.expm1, Tensor(c128, (1,))), np.array([z]))[0]
    np.testing.assert_array_equal([actual.real, actual.imag], [expected.real, expected.imag])


@BACKENDS
@pytest.mark.parametrize("z", [1e-20 + 1e-20j, -3e-9 + 1e-5j, 0.7 - 2.0j, 1e-10j, -30 + 1j, 5 - 4j])
def test_expm1_and_tanh_of_complex_numbers_keep_their_digits(z: complex, run: Any) -> None:
    with mpmath.workdps(50):
        for op, exact in ((ops.expm1, mpmath.expm1(z)), (ops.tanh, mpmath.tanh(z))):
            actual = complex(run(trace(op, Tensor(c128, (1,))), np.array([z]))[0])
            assert abs(mpmath.mpmathify(actual) - exact) <= 1e-15 * abs(exact)


@BACKENDS
def test_sums_products_and_running_folds_take_complex_numbers(run: Any) -> None:
    z = np.random.default_rng(0).standard_normal((3, 4, 2)).view(np.complex128)[..., 0]
    type = Tensor(c128, z.shape)
    for kind, fold, running in (("sum", np.sum, np.cumsum), ("prod", np.prod, np.cumprod)):
        whole = trace(lambda x, k=kind: ops.reduce(x, kind=k, axes=(1,)), type)
        np.testing.assert_allclose(run(whole, z), fold(z, axis=1), rtol=1e-14)
        along = trace(lambda x, k=kind: ops.cumulative(x, kind=k, axis=1, reverse=False, exclusive=False), type)
        np.testing.assert_allclose(run(along, z), running(z, axis=1), rtol=1e-14)
        check_orders(whole, (z,), order=2)
        check_orders(along, (z,), order=2)
    product = trace(ops.matmul, type, Tensor(c128, (4, 3)))
    np.testing.assert_allclose(run(product, z, z.T), z @ z.T, rtol=1e-13)


# --- what a derivative is --------------------------------------------------------------------------------------------

Z = np.array([1.5 - 0.5j, -2.0 + 1.0j])


def squared_length(z: Node) -> Node:
    return ops.reduce(ops.real(ops.conj(z) * z), kind="sum", axes=(0,))


def test_the_gradient_of_a_real_loss_is_the_conjugate_of_its_steepest_ascent() -> None:
    """dL = Re(g * dz), so g = dL/dx - i dL/dy: of |z|² it is 2 conj(z), as JAX gives it."""
    (gradient,) = gradient_of(trace(squared_length, Tensor(c128, (2,))), Z)
    np.testing.assert_allclose(gradient, 2 * np.conj(Z), rtol=1e-15)


def test_the_gradient_of_a_holomorphic_function_is_its_derivative() -> None:
    function = trace(lambda z: ops.reduce(ops.sin(z), kind="sum", axes=(0,)), Tensor(c128, (2,)))
    np.testing.assert_allclose(gradient_of(function, Z)[0], np.cos(Z), rtol=1e-14)


def test_the_gradient_by_a_real_number_behind_complex_arithmetic_is_real() -> None:
    def loss(x: Node) -> Node:
        z = ops.exp(ops.make_complex(ops.zero(x.type), x)) + 1.0
        return squared_length(z)

    x = np.array([0.3, 2.0])
    (gradient,) = gradient_of(trace(loss, Tensor(f64, (2,))), x)
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, -2 * np.sin(x), rtol=1e-14)


@pytest.mark.parametrize("op", [ops.sign, ops.abs, ops.log1p, ops.asin, ops.acosh, ops.atanh, ops.log10], ids=str)
def test_derivatives_of_complex_functions_nest(op: Any) -> None:
    check_orders(trace(op, Tensor(c128, (2,))), (Z,), order=2)


def test_powers_of_complex_numbers_differentiate_by_both_operands() -> None:
    check_orders(trace(ops.pow, Tensor(c128, (2,)), Tensor(c128, (2,))), (Z, Z[::-1].copy()), order=2)


def test_single_precision_gradients_stay_single() -> None:
    (gradient,) = gradient_of(trace(squared_length, Tensor(c64, (2,))), Z.astype(np.complex64))
    assert gradient.dtype == np.complex64
