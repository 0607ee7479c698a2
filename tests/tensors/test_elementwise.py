"""Elementwise functions and operators: NumPy's values over all types and shapes, the standard's edge cases, types."""

import operator
from typing import Any

import numpy as np
import pytest

import livegrad as lg

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
TOLERANCE = {"float16": 4e-3, "float32": 4e-6, "complex64": 4e-6, "float64": 1e-14, "complex128": 1e-13}
UNARY: dict[str, tuple[Any, tuple[str, ...]]] = {
    "abs": (np.abs, INTEGERS + FLOATS + COMPLEX),
    "acos": (np.arccos, FLOATS + COMPLEX),
    "asin": (np.arcsin, FLOATS + COMPLEX),
    "atan": (np.arctan, FLOATS + COMPLEX),
    "asinh": (np.arcsinh, FLOATS + COMPLEX),
    "atanh": (np.arctanh, FLOATS + COMPLEX),
    "ceil": (np.ceil, FLOATS),
    "conj": (np.conj, FLOATS + COMPLEX),
    "cos": (np.cos, FLOATS + COMPLEX),
    "cosh": (np.cosh, FLOATS + COMPLEX),
    "exp": (np.exp, FLOATS + COMPLEX),
    "expm1": (np.expm1, FLOATS + COMPLEX),
    "floor": (np.floor, FLOATS),
    "imag": (np.imag, COMPLEX),
    "isfinite": (np.isfinite, INTEGERS + FLOATS + COMPLEX),
    "isinf": (np.isinf, INTEGERS + FLOATS + COMPLEX),
    "isnan": (np.isnan, INTEGERS + FLOATS + COMPLEX),
    "negative": (np.negative, INTEGERS + FLOATS + COMPLEX),
    "positive": (np.positive, INTEGERS + FLOATS + COMPLEX),
    "real": (np.real, FLOATS + COMPLEX),
    "reciprocal": (np.reciprocal, FLOATS + COMPLEX),
    "round": (np.rint, FLOATS + COMPLEX),
    "sign": (np.sign, INTEGERS + FLOATS + COMPLEX),
    "signbit": (np.signbit, FLOATS),
    "sin": (np.sin, FLOATS + COMPLEX),
    "sinh": (np.sinh, FLOATS + COMPLEX),
    "square": (np.square, INTEGERS + FLOATS + COMPLEX),
    "tan": (np.tan, FLOATS + COMPLEX),
    "tanh": (np.tanh, FLOATS + COMPLEX),
    "trunc": (np.trunc, FLOATS),
    "bitwise_invert": (np.invert, ("bool", *INTEGERS)),
    "logical_not": (np.logical_not, ("bool", *INTEGERS)),
}
BINARY: dict[str, tuple[Any, tuple[str, ...]]] = {
    "add": (np.add, INTEGERS + FLOATS + COMPLEX),
    "subtract": (np.subtract, INTEGERS + FLOATS + COMPLEX),
    "multiply": (np.multiply, INTEGERS + FLOATS + COMPLEX),
    "divide": (np.divide, FLOATS + COMPLEX),
    "floor_divide": (np.floor_divide, INTEGERS + FLOATS),
    "remainder": (np.remainder, INTEGERS + FLOATS),
    "fmod": (np.fmod, INTEGERS + FLOATS),
    "pow": (np.power, INTEGERS[4:] + FLOATS + COMPLEX),
    "maximum": (np.maximum, INTEGERS + FLOATS),
    "minimum": (np.minimum, INTEGERS + FLOATS),
    "atan2": (np.arctan2, FLOATS),
    "hypot": (np.hypot, FLOATS),
    "copysign": (np.copysign, FLOATS),
    "logaddexp": (np.logaddexp, FLOATS),
    "nextafter": (np.nextafter, FLOATS[1:]),
    "equal": (np.equal, ("bool", *INTEGERS, *FLOATS, *COMPLEX)),
    "not_equal": (np.not_equal, ("bool", *INTEGERS, *FLOATS, *COMPLEX)),
    "less": (np.less, INTEGERS + FLOATS),
    "less_equal": (np.less_equal, INTEGERS + FLOATS),
    "greater": (np.greater, INTEGERS + FLOATS),
    "greater_equal": (np.greater_equal, INTEGERS + FLOATS),
    "bitwise_and": (np.bitwise_and, ("bool", *INTEGERS)),
    "bitwise_or": (np.bitwise_or, ("bool", *INTEGERS)),
    "bitwise_xor": (np.bitwise_xor, ("bool", *INTEGERS)),
    "bitwise_left_shift": (np.left_shift, INTEGERS),
    "bitwise_right_shift": (np.right_shift, INTEGERS),
    "logical_and": (np.logical_and, ("bool", *INTEGERS)),
    "logical_or": (np.logical_or, ("bool", *INTEGERS)),
    "logical_xor": (np.logical_xor, ("bool", *INTEGERS)),
}


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Numbers inside the domain of every function here: floats between -0.9 and 0.9, small integers."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        return rng.integers(1 if dtype[0] == "u" else -3, 5, shape).astype(dtype)
    values = rng.uniform(0.05, 0.9, shape) * rng.choice([-1.0, 1.0], shape)
    if dtype in COMPLEX:
        values = values + 1j * rng.uniform(-0.9, 0.9, shape)
    return values.astype(dtype)


def assert_close(name: str, found: lg.Tensor, expected: Any) -> None:
    value = found.numpy()
    assert value.dtype == expected.dtype, name
    assert value.shape == expected.shape, name
    tolerance = TOLERANCE.get(str(expected.dtype), 0.0)
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance / 4, err_msg=name)


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, *COMPLEX])
def test_unary_functions_match_numpy(dtype: str) -> None:
    x = numbers(dtype, (3, 4))
    names = [name for name, (_, dtypes) in UNARY.items() if dtype in dtypes]
    results = [getattr(lg, name)(lg.asarray(x)) for name in names]
    for name, result in zip(names, lg.execute(results), strict=True):
        with np.errstate(all="ignore"):
            expected = UNARY[name][0](x)
        assert_close(name, result, expected)


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, *COMPLEX])
def test_binary_functions_broadcast_and_match_numpy(dtype: str) -> None:
    x, y = numbers(dtype, (3, 1)), numbers(dtype, (2, 1, 4), seed=1)
    if dtype in INTEGERS:
        y = np.where(y == 0, 1, np.abs(y.astype(np.int64))).astype(dtype)  # a divisor, a count of bits
    names = [name for name, (_, dtypes) in BINARY.items() if dtype in dtypes]
    a = np.abs(x) if dtype in FLOATS else x  # a base of powers
    results = [getattr(lg, name)(lg.asarray(a), lg.asarray(y)) for name in names]
    for name, result in zip(names, lg.execute(results), strict=True):
        assert_close(name, result, BINARY[name][0](a, y))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (1, 1, 1)])
def test_every_shape_works(shape: tuple[int, ...]) -> None:
    x = numbers("float32", shape)
    assert_close("exp", lg.exp(lg.asarray(x)) * 2.0 - lg.asarray(x), np.asarray(np.exp(x) * np.float32(2) - x))


def test_functions_with_other_domains_match_numpy() -> None:
    x = np.asarray([1.0, 1.5, 20.0], "float64")
    for name, reference in (
        *(("acosh", np.arccosh), ("log", np.log), ("log1p", np.log1p), ("log2", np.log2), ("log10", np.log10)),
        ("sqrt", np.sqrt),
    ):
        assert_close(name, getattr(lg, name)(lg.asarray(x)), reference(x))
        z = x - 2j
        assert_close(name, getattr(lg, name)(lg.asarray(z)), reference(z))


MIXED = [
    ("int8", "uint8", "int16"),
    ("int32", "uint16", "int32"),
    ("uint8", "uint32", "uint32"),
    ("int64", "int8", "int64"),
    ("float32", "float64", "float64"),
    ("float16", "float32", "float32"),
    ("float64", "complex64", "complex128"),
    ("float32", "complex64", "complex64"),
    ("int64", "float32", "float32"),
]


@pytest.mark.parametrize(("first", "second", "both"), MIXED)
def test_types_promote_as_in_the_standard(first: str, second: str, both: str) -> None:
    result = lg.ones(2, dtype=first) + lg.ones(2, dtype=second)
    assert result.dtype.dtype.name == both
    assert lg.result_type(getattr(lg, first), getattr(lg, second)) == getattr(lg, both)


def test_python_numbers_take_the_type_of_the_tensor_beside_them() -> None:
    for dtype in ("int8", "uint64", "float16", "float64", "complex64"):
        x = lg.ones(2, dtype=dtype)
        for result in (x + 1, 1 - x, x * 2, 3 * x, -1 * x if dtype != "uint64" else x):
            assert result.dtype == x.dtype
    assert (lg.ones(2, dtype=lg.int32) + 0.5).dtype == lg.float32
    assert (lg.ones(2, dtype=lg.float64) * 1j).dtype == lg.complex128
    assert (lg.asarray([True]) & False).dtype == lg.bool


def test_zeros_of_both_signs_are_different_numbers() -> None:
    x = lg.zeros(1)
    assert np.signbit((x * 1.0 - 0.0).numpy()) == [False]
    assert np.signbit((x * -0.0).numpy()) == [True]
    assert np.signbit((x * 0.0).numpy()) == [False]
    assert np.signbit(lg.full(1, -0.0).numpy()) == [True]


def test_operators_are_the_functions() -> None:
    x, y = np.asarray([7, -7, 5], "int32"), np.asarray([2, 3, -4], "int32")
    a, b = lg.asarray(x), lg.asarray(y)
    for name in ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne"):
        act = getattr(operator, name)
        np.testing.assert_array_equal(act(a, b).numpy(), act(x, y))
        np.testing.assert_array_equal(act(a, 3).numpy(), act(x, 3))
        np.testing.assert_array_equal(act(3, b).numpy(), act(3, y))
        np.testing.assert_array_equal(act(x, b).numpy(), act(x, y))
    np.testing.assert_array_equal((a << 2).numpy(), x << 2)
    np.testing.assert_array_equal((a >> 1).numpy(), x >> 1)
    np.testing.assert_array_equal((a**3).numpy(), x**3)
    np.testing.assert_array_equal((2 ** lg.asarray([3, 0])).numpy(), [8, 1])
    np.testing.assert_array_equal((-a, +a, abs(a), ~a)[2].numpy(), np.abs(x))
    assert (a / b).dtype == lg.float32


def test_updates_in_place_change_the_handle_and_nothing_else() -> None:
    x = lg.asarray([1.0, 2.0])
    y, double = x, x * 2.0
    x += 1.0
    x *= lg.asarray([2.0, 3.0])
    assert x is y
    assert x.tolist() == [4.0, 9.0]
    assert double.tolist() == [2.0, 4.0]
    with pytest.raises(lg.TypeRuleError, match="must keep shape and type"):
        x += lg.ones((2, 2))


def test_floor_division_follows_the_standard_in_edge_cases() -> None:
    inf = float("inf")
    x = np.asarray([inf, -inf, 1.0, -1.0, 1.0, 0.0])
    y = np.asarray([2.0, 2.0, inf, inf, -inf, inf])
    found = (lg.asarray(x) // lg.asarray(y)).numpy()
    np.testing.assert_array_equal(found, [inf, -inf, 0.0, -0.0, -0.0, 0.0])
    np.testing.assert_array_equal(np.signbit(found), [False, True, False, True, True, False])
    assert np.isnan((lg.asarray(inf) // lg.asarray(inf)).numpy())


def test_complex_functions_follow_the_standard_in_edge_cases() -> None:
    inf, nan = float("inf"), float("nan")
    z = lg.asarray([complex(inf, 0), complex(-inf, inf), complex(inf, nan), complex(nan, 0), complex(-0.0, 0.0)])
    found = lg.expm1(z).numpy()
    np.testing.assert_array_equal(found.real, [inf, -1.0, inf, nan, 0.0])
    np.testing.assert_array_equal(np.abs(found.imag), [0.0, 0.0, nan, 0.0, 0.0])
    tiny = lg.expm1(lg.asarray([1e-12 + 1e-12j], dtype=lg.complex128)).numpy()
    np.testing.assert_allclose(tiny, [1e-12 + 1e-12j], rtol=1e-11)
    far = lg.tanh(lg.asarray([complex(inf, 2.0), complex(inf, -2.0)])).numpy()
    np.testing.assert_array_equal(np.signbit(far.imag), [False, True])
    assert lg.sign(lg.asarray([3 + 4j, 0j], dtype=lg.complex128)).tolist() == [0.6 + 0.8j, 0j]


def test_clip_takes_bounds_of_any_shape_and_keeps_the_type() -> None:
    x = numbers("float32", (3, 4))
    low, high = np.asarray([[-0.5], [-0.1], [0.0]], "float32"), np.float32(0.4)
    found = lg.clip(lg.asarray(x), lg.asarray(low), lg.asarray(high))
    assert_close("clip", found, np.clip(x, low, high))
    assert lg.clip(lg.asarray([1, 5], dtype=lg.uint8), max=3).dtype == lg.uint8
    with pytest.raises(lg.DtypeError, match="wider type"):
        lg.clip(lg.asarray([1, 5]), lg.asarray([0.5, 0.5]))


def test_powers_of_integers_multiply() -> None:
    x = np.asarray([0, 1, -2, 3, 10], "int64")
    for exponent in (0, 1, 2, 5, 13):
        np.testing.assert_array_equal((lg.asarray(x) ** exponent).numpy(), x**exponent)
    with pytest.raises(lg.UsageError, match="negative power"):
        lg.pow(lg.asarray(x), -1)
    with pytest.raises(lg.KernelCheckError, match="negative power"):
        (lg.asarray(x) ** lg.asarray([-1])).numpy()


@pytest.mark.parametrize(
    "name", ["exp", "log", "sin", "tanh", "sqrt", "square", "reciprocal", "atan", "asinh", "log1p", "expm1", "log2"]
)
def test_gradients_are_the_slopes(name: str) -> None:
    x = np.asarray([0.3, 0.7, 0.95], "float64")
    found = lg.grad(lambda t: lg.sum(getattr(lg, name)(t)))(lg.asarray(x)).numpy()
    reference: Any = UNARY[name][0] if name in UNARY else getattr(np, name)
    step = 1e-6
    np.testing.assert_allclose(found, (reference(x + step) - reference(x - step)) / (2 * step), rtol=1e-8)


def test_numbers_are_written_and_divided_as_pythons_are() -> None:
    third = lg.asarray(1.0) / 3.0
    assert f"{third:.3f}|{third:>8.2f}|{lg.asarray(7):d}" == "0.333|    0.33|7"
    assert f"{third}" == str(third)
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{lg.ones(2):.3f}"
    assert [part.tolist() for part in divmod(lg.asarray([-7.0, 7.0]), 2.0)] == [[-4.0, 3.0], [1.0, 1.0]]
    assert [int(part) for part in divmod(-7, lg.asarray(2))] == [-4, 1]
