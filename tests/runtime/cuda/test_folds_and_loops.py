"""Reductions of columns and of few long rows, interruptible loops, both kinds of division, and libraries, on a GPU."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.types import Scalar, Tensor, c64, f16, f32, f64, i32
from livegrad.ops.control import make_while_loop
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import run_function
from livegrad.runtime.cuda import CudaFunction
from livegrad.runtime.cuda.libraries import LIBRARY_CALLS
from livegrad.runtime.cuda.nvrtc import forget_cubins
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.state import fresh_session

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(9)


@pytest.mark.parametrize("shape", [(4000, 33), (100_000, 64), (70_000, 100), (1_000_000, 3), (33, 5000), (50, 200_000)])
@pytest.mark.parametrize(("kind", "element"), [("sum", f32), ("max", f32), ("sum", f64), ("prod", i32), ("sum", f16)])
def test_columns_are_reduced_with_the_same_bits_every_time(shape: tuple[int, int], kind: str, element: Scalar) -> None:
    values = RNG.integers(-3, 4, size=shape) if element is i32 else RNG.normal(size=shape)
    values = values.astype(element.dtype)
    for axis in (0, 1):
        function = trace(lambda x, axis=axis: ops.reduce(x, kind=kind, axes=(axis,)), Tensor(element, shape))
        compiled = CudaFunction(function)
        actual = compiled(values)
        wide = values.astype(np.float64) if element.kind == "float" else values
        with np.errstate(over="ignore"):
            expected = getattr(wide, kind)(axis=axis)
        if element is i32:
            np.testing.assert_array_equal(actual, expected.astype(np.int32))
        else:
            room = {f32: 1e-5, f64: 1e-12, f16: 4e-3}[element] * np.abs(wide).sum(axis=axis).max()
            np.testing.assert_allclose(actual, expected, rtol=2e-3 if element is f16 else 1e-5, atol=room)
        for _ in range(3):
            np.testing.assert_array_equal(actual, compiled(values))


def test_where_the_largest_of_columns_is_the_first_of_equals() -> None:
    values = RNG.integers(0, 50, size=(30_000, 70)).astype(np.float32)
    for axis in (0, 1):
        function = trace(lambda x, axis=axis: ops.arg_reduce(x, kind="argmax", axis=axis), Tensor(f32, values.shape))
        np.testing.assert_array_equal(CudaFunction(function)(values), values.argmax(axis=axis))


def test_several_reductions_in_one_sweep() -> None:
    def function(x):  # type: ignore[no-untyped-def]
        squares = x * x
        return tuple(ops.reduce(value, kind="sum", axes=(0,)) for value in (x, squares, squares * x))

    values = RNG.normal(size=(50_000, 40))
    actual = CudaFunction(trace(function, Tensor(f64, values.shape)))(values)
    for part, power in zip(actual, (1, 2, 3), strict=True):
        np.testing.assert_allclose(part, (values**power).sum(axis=0), rtol=1e-9, atol=1e-9)


def test_an_endless_loop_ends_by_ctrl_c_and_the_device_goes_on() -> None:
    def endless(x):  # type: ignore[no-untyped-def]
        (y,) = make_while_loop(lambda y: y > -1.0, lambda i, y: y + 1.0, x)
        return y

    compiled = CudaFunction(map_over(trace(endless, f64, name="endless")))
    values = np.zeros(100)
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiled(values)
    assert time.monotonic() - start < 30, "the loop must have ended"
    np.testing.assert_array_equal(compiled(np.full(100, -5.0)), np.full(100, -5.0))


def ulps(actual: np.ndarray, exact: np.ndarray) -> float:
    rounded = exact.astype(np.float32)
    return float(np.max(np.abs(actual.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)))


def test_division_and_square_root_are_within_two_ulp_or_ieee() -> None:
    a = (RNG.normal(size=200_000) * 10.0 ** RNG.integers(-18, 18, 200_000)).astype(np.float32)
    b = (RNG.normal(size=200_000) * 10.0 ** RNG.integers(-18, 18, 200_000)).astype(np.float32)
    array = Tensor(f32, a.shape)
    quotient, root = trace(lambda a, b: a / b, array, array), trace(lambda a: ops.sqrt(a), array)
    with np.errstate(over="ignore"):
        exact = a.astype(np.float64) / b.astype(np.float64)
    normal = (np.abs(exact) > 1e-37) & (np.abs(exact) < 3e38)
    actual = CudaFunction(quotient)(a, b)
    assert ulps(actual[normal], exact[normal]) <= 2.0
    assert ulps(CudaFunction(root)(np.abs(a)), np.sqrt(np.abs(a).astype(np.float64))) <= 2.0
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(CudaFunction(quotient, ieee=True)(a, b), a / b)
    np.testing.assert_array_equal(CudaFunction(root, ieee=True)(np.abs(a)), np.sqrt(np.abs(a)))


def test_sine_and_cosine_are_within_two_ulp_near_and_far() -> None:
    near = RNG.uniform(-71_476, 71_476, 200_000)
    x = np.concatenate([near, near / 1e4, near * 1e30, 10.0 ** RNG.uniform(-44, 38, 100_000)]).astype(np.float32)
    array = Tensor(f32, x.shape)
    both = CudaFunction(trace(lambda x: (ops.sin(x), ops.cos(x)), array))(x)
    alone = [CudaFunction(trace(lambda x, f=f: f(x), array))(x) for f in (ops.sin, ops.cos)]
    for actual, again, exact in zip(
        both, alone, (np.sin(x, dtype=np.float64), np.cos(x, dtype=np.float64)), strict=True
    ):
        assert ulps(actual, exact) <= 2.0
        np.testing.assert_array_equal(actual, again)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    sine, cosine = CudaFunction(trace(lambda x: (ops.sin(x), ops.cos(x)), Tensor(f32, (5,))))(special)
    np.testing.assert_array_equal(sine, [0.0, -0.0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(np.signbit(sine[:2]), [False, True])
    np.testing.assert_array_equal(cosine, [1.0, 1.0, np.nan, np.nan, np.nan])


def test_special_numbers_keep_their_meaning_in_quick_division() -> None:
    a = np.array([1, -1, 0, np.inf, np.nan, 0, np.inf, 1, -1, 3e38], np.float32)
    b = np.array([0, 0, 0, np.inf, 1, -5, 2, np.inf, -np.inf, 1e-5], np.float32)
    array = Tensor(f32, a.shape)
    with np.errstate(all="ignore"):
        expected = a / b
    actual = CudaFunction(trace(lambda a, b: a / b, array, array))(a, b)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual[expected == 0]), np.signbit(expected[expected == 0]))
    roots = np.array([0.0, -0.0, -1.0, np.inf, np.nan, 1e-44], np.float32)
    with np.errstate(all="ignore"):
        expected = np.sqrt(roots)
    actual = CudaFunction(trace(lambda a: ops.sqrt(a), Tensor(f32, roots.shape)))(roots)
    np.testing.assert_allclose(actual, expected, rtol=3e-7)
    assert np.signbit(actual[1])


def test_many_min_max_choices_keep_nan_and_the_signs_of_zeros() -> None:
    def choosing(x, y):  # type: ignore[no-untyped-def]
        for number in range(5):
            x, y = ops.max(x, y) - 0.5 * number, ops.min(x * y, y) * 0.75
        return ops.max(ops.min(x, y), ops.max(x, y * y)) + ops.min(y, x * 0.0)

    function = map_over(trace(choosing, f32, f32, name="choosing"))
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-44, 3e38, 0.5], np.float32)
    x, y = (grid.ravel() for grid in np.meshgrid(special, special))
    actual, expected = CudaFunction(function, ieee=True)(x, y), run_function(function, x, y)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual[actual == 0]), np.signbit(expected[actual == 0]))


@pytest.mark.parametrize("element", [f32, f64, c64])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((5, 7), (7, 3)),
        ((1, 7), (7, 1)),
        ((4, 5, 7), (4, 7, 3)),
        ((4, 5, 7), (7, 3)),
        ((2, 3, 5, 7), (2, 3, 7, 2)),
        ((2, 3, 5, 7), (3, 7, 2)),
    ],
)
def test_products_by_the_library_equal_numpys(element: Scalar, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    a, b = (RNG.normal(size=shape).astype(element.dtype) for shape in (first, second))
    function = trace(lambda a, b: ops.matmul(a, b), Tensor(element, first), Tensor(element, second))
    relative = 1e-12 if element is f64 else 1e-5
    np.testing.assert_allclose(CudaFunction(function)(a, b), a @ b, rtol=relative, atol=relative)


def test_products_with_transposed_operands_are_part_of_one_graph() -> None:
    def function(a, b):  # type: ignore[no-untyped-def]
        transposed = ops.permute(a, axes=(1, 0))
        return ops.sin(ops.matmul(ops.cos(transposed), ops.permute(b, axes=(1, 0))))

    a, b = RNG.normal(size=(30, 40)), RNG.normal(size=(20, 30))
    compiled = CudaFunction(trace(function, Tensor(f64, (30, 40)), Tensor(f64, (20, 30))))
    np.testing.assert_allclose(compiled(a, b), np.sin(np.cos(a.T) @ b.T), rtol=1e-12, atol=1e-12)
    plan = compiled.plan()
    assert len(plan.graphs) == len(plan.segments) == 1
    for _ in range(3):
        a, b = RNG.normal(size=(30, 40)), RNG.normal(size=(20, 30))
        results = compiled.on_device(a, b)
        np.testing.assert_allclose(results.numpy(), np.sin(np.cos(a.T) @ b.T), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(16,), (3, 16), (2, 3, 15)])
def test_transforms_equal_numpys(shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    last = len(shape) - 1
    both = trace(
        lambda x: ops.irfft(ops.rfft(x, axis=last, norm="ortho"), axis=last, size=shape[-1], norm="backward"),
        Tensor(f32, shape),
    )
    expected = np.fft.irfft(np.fft.rfft(x, norm="ortho"), shape[-1])
    np.testing.assert_allclose(CudaFunction(both)(x), expected, rtol=1e-4, atol=1e-5)
    z = (x + 1j * RNG.normal(size=shape)).astype(np.complex64)
    for inverse in (False, True):
        function = trace(lambda z, i=inverse: ops.fft(z, axes=(last,), inverse=i, norm="backward"), Tensor(c64, shape))
        expected = (np.fft.ifft if inverse else np.fft.fft)(z)
        np.testing.assert_allclose(CudaFunction(function)(z), expected, rtol=1e-4, atol=1e-4)
    assert LIBRARY_CALLS


def test_a_plan_from_disk_equals_the_stored_plan(tmp_path: Path) -> None:
    with fresh_session():
        set_default_cache(ObjectCache(CacheSettings(tmp_path)))
        n = Dimension.symbol("n")
        function = trace(lambda x: (ops.reduce(x * x, kind="sum", axes=(0,)), ops.sin(x)), Tensor(f32, (n,)))
        x = RNG.normal(size=200_000).astype(np.float32)
        compiled = CudaFunction(function)
        first = compiled(x)
        assert compiled.plan({"n": 200_000}).plan is not None
        forget_cubins()
        again = CudaFunction(function)
        second = again(x)
        assert again.plan({"n": 200_000}).plan is None, "nothing was compiled"
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(first[0], run_function(function, x)[0], rtol=1e-4)
