"""Native Fourier transforms: NumPy's values for all kinds of lengths, batches and layouts, without host steps."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, c64, f64
from livegrad.ops.fourier import fft, irfftn, rfftn
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.native import fourier
from livegrad.runtime.cpu.native.pool import set_threads, threads

RNG = np.random.default_rng(5)
DIGITS = {"complex64": 1e-6, "complex128": 1e-14, "float32": 1e-6, "float64": 1e-14}
PRECISIONS = ("float32", "float64")
# Radices and their products, lengths of up to one square, and lengths that are split into columns and rows.
LENGTHS = (1, 2, 3, 5, 6, 7, 8, 11, 13, 16, 30, 49, 64, 77, 96, 243, 256, 360, 1000, 1024, 2187, 4096, 16384, 46656)


def draw(shape: tuple[int, ...], dtype: str) -> Any:
    values = RNG.standard_normal(shape)
    return (values + 1j * RNG.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


def assert_close(actual: lg.Tensor, expected: Any) -> None:
    value = actual.numpy()
    assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
    assert np.abs(value - expected).max() <= DIGITS[value.dtype.name] * np.abs(expected).max()


def complex_of(real: str) -> str:
    return "complex64" if real == "float32" else "complex128"


@pytest.mark.parametrize("real", PRECISIONS)
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_any_number_are_transformed(length: int, real: str) -> None:
    for rows in (1, 3, 17, 40) if length < 5000 else (1, 3):
        x = draw((rows, length), complex_of(real))
        assert_close(lg.fft.fft(lg.asarray(x)), np.fft.fft(x))
        assert_close(lg.fft.ifft(lg.asarray(x), norm="ortho"), np.fft.ifft(x, norm="ortho"))
        signal = draw((rows, length), real)
        assert_close(lg.fft.rfft(lg.asarray(signal)), np.fft.rfft(signal))
        spectrum = draw((rows, length // 2 + 1), complex_of(real))  # with imaginary parts that the transform ignores
        assert_close(lg.fft.irfft(lg.asarray(spectrum), n=length), np.fft.irfft(spectrum, length))


@pytest.mark.parametrize("real", PRECISIONS)
@pytest.mark.parametrize("shape", [(3, 5, 8), (33, 20, 40), (2, 64, 64), (40, 3, 7, 16), (128, 130)])
def test_transforms_along_any_axes_of_any_layout(shape: tuple[int, ...], real: str) -> None:
    x = draw(shape, complex_of(real))
    for axes in [(0,), (1,), (0, 1), (-2, -1), tuple(range(len(shape)))]:
        assert_close(lg.fft.fftn(lg.asarray(x), axes=axes), np.fft.fftn(x, axes=axes))
        signal = x.real.copy()
        assert_close(lg.fft.rfftn(lg.asarray(signal), axes=axes), np.fft.rfftn(signal, axes=axes))
    order = tuple(reversed(range(len(shape))))
    moved = np.fft.fft(np.transpose(x, order), axis=0)
    assert_close(lg.fft.fft(lg.permute_dims(lg.asarray(x), order), axis=0), moved)


@pytest.mark.parametrize("length", [8, 60, 1024])
def test_a_compiled_transform_has_no_host_steps(length: int) -> None:
    row, axes = Tensor(c64, (20, length)), {"axes": (0, 1), "inverse": True, "norm": "ortho"}
    real, half = Tensor(f64, (20, length)), Tensor(c64, (20, length + 1))
    for function, arguments in (
        (trace(lambda x: fft(x, **axes), row), draw((20, length), "complex64")),
        (trace(lambda x: rfftn(x, (0, 1)), real), draw((20, length), "float64")),
        (trace(lambda x: irfftn(x, (0, 1), 2 * length), half), draw((20, length + 1), "complex64")),
    ):
        compiled = compile_function(function)
        compiled(arguments)
        assert compiled.plan().only_kernels


@pytest.mark.parametrize("shape", [(40, 64), (3, 4096), (1, 65536), (128, 96)])
def test_bits_do_not_depend_on_the_number_of_threads(shape: tuple[int, ...]) -> None:
    x, before = draw(shape, "complex64"), threads()
    results = []
    for count in (1, 2, 3):
        set_threads(count)
        results.append(lg.fft.fftn(lg.asarray(x), axes=(0, 1)).numpy())
    set_threads(before)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def test_bits_do_not_depend_on_the_rows_beside_a_row() -> None:
    x = draw((37, 360), "complex64")
    whole = lg.fft.fft(lg.asarray(x)).numpy()
    some = lg.fft.fft(lg.asarray(x[5:27].copy())).numpy()
    assert whole[5:27].tobytes() == some.tobytes()


def test_a_loop_of_transforms_is_the_transform_of_each() -> None:
    x = draw((6, 48), "complex128")
    transformed = lg.jit(lambda x: lg.fori_loop(0, 5, lambda i, x: lg.fft.fft(x, norm="ortho"), x))
    assert_close(transformed(lg.asarray(x)), np.fft.fft(x, norm="ortho"))  # four transforms are the identity


def test_twiddle_factors_are_exact_at_quarters_and_accurate_elsewhere() -> None:
    roots = fourier._roots(np.arange(48), 48)
    assert list(roots[::12]) == [1, -1j, -1, 1j]
    assert np.abs(np.abs(roots) - 1).max() < 3e-16
    np.testing.assert_allclose(np.cumprod(np.full(47, roots[1])), roots[1:], rtol=1e-14)
