"""Fourier transforms against NumPy over norms, lengths and axes; types, errors, derivatives."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg

NORMS = ("backward", "ortho", "forward")


def draw(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


def assert_close(found: lg.Tensor, expected: Any) -> None:
    value = found.numpy()
    assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
    digits = 1e-5 if value.dtype in (np.float32, np.complex64) else 1e-13
    np.testing.assert_allclose(value, expected, rtol=digits, atol=digits)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_along_an_axis_match_numpy(name: str, norm: Any) -> None:
    for dtype in ("float32", "float64") if name in ("rfft", "ihfft") else ("complex64", "complex128"):
        x = draw((3, 6, 4), dtype)
        for axis, n in ((-1, None), (1, None), (1, 4), (0, 5), (1, 1)):
            expected = getattr(np.fft, name)(x, n=n, axis=axis, norm=norm)
            assert_close(getattr(lg.fft, name)(lg.asarray(x), n=n, axis=axis, norm=norm), expected)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_transforms_over_axes_match_numpy(name: str, norm: Any) -> None:
    x = draw((3, 6, 4), "float64" if name == "rfftn" else "complex128")
    cases: list[tuple[Any, Any]] = [(None, None), (None, (0, 1)), ((4, 5), (2, 0)), ((-1, 7), (0, 1)), ((8,), (-1,))]
    for s, axes in cases:
        expected = getattr(np.fft, name)(x, s=s, axes=axes, norm=norm)
        assert_close(getattr(lg.fft, name)(lg.asarray(x), s=s, axes=axes, norm=norm), expected)


def test_inverse_transforms_undo_transforms() -> None:
    x = draw((5, 7), "float32")
    assert_close(lg.fft.irfftn(lg.fft.rfftn(lg.asarray(x)), s=x.shape, axes=(0, 1)), x)
    assert_close(lg.real(lg.fft.ifftn(lg.fft.fftn(lg.asarray(x)))), x)


def test_real_numbers_become_complex_and_complex_ones_not_real() -> None:
    assert lg.fft.fft(lg.ones(4)).dtype == lg.complex64
    assert lg.fft.fft(lg.ones(4, dtype=lg.float64)).dtype == lg.complex128
    assert lg.fft.rfft(lg.ones(4, dtype=lg.int32)).dtype == lg.complex64
    with pytest.raises(lg.DtypeError, match=r"`rfft` takes real numbers \(test_fft.py.*found c64; use lg.fft.fft"):
        lg.fft.rfft(lg.ones(4, dtype=lg.complex64))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_match_numpy(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        expected = getattr(np.fft, name)(n, 0.5)
        assert_close(getattr(lg.fft, name)(n, d=0.5, dtype=lg.float64), expected)
        assert_close(getattr(lg.fft, name)(n, d=0.5, device="cpu"), expected.astype(np.float32))
    with pytest.raises(lg.DtypeError, match="returns floats"):
        lg.fft.fftfreq(n, dtype=lg.int64)


@pytest.mark.parametrize("axes", [None, 0, (-1,), (0, 1)])
def test_shifts_match_numpy(axes: Any) -> None:
    x = np.arange(30).reshape(5, 6)
    for name in ("fftshift", "ifftshift"):
        expected = getattr(np.fft, name)(x, axes)
        np.testing.assert_array_equal(getattr(lg.fft, name)(lg.asarray(x), axes=axes).numpy(), expected)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: lg.fft.fft(x, norm="half"), "has no norm 'half'"),
        (lambda x: lg.fft.fft(x, n=0), "the length is too small"),
        (lambda x: lg.fft.fft(x, axis=2), "no axis 2"),
        (lambda x: lg.fft.fftn(x, s=(2, 2)), "takes lengths only together with their axes"),
        (lambda x: lg.fft.fftn(x, s=(2,), axes=(0, 1)), "a length for each axis"),
        (lambda x: lg.fft.rfftn(x, axes=()), "needs at least one axis"),
        (lambda x: lg.fft.fft(x[:0], axis=0), "cannot transform an empty axis"),
        (lambda x: lg.fft.irfft(x[:, :1]), "the length is too small"),
    ],
)
def test_operands_without_a_transform_raise_at_the_call(call: Any, reason: str) -> None:
    with pytest.raises(lg.LivegradError, match=reason) as caught:
        call(lg.ones((3, 4)))
    assert "test_fft.py" in str(caught.value)


def parts(x: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
    return lg.real(x), lg.imag(x)


@pytest.mark.parametrize("norm", NORMS)
def test_transforms_have_the_derivative_of_finite_differences(norm: str) -> None:
    x, y = draw((3, 6), "float64"), draw((3, 6), "float64", 1)

    def spectrum(x: lg.Tensor, y: lg.Tensor) -> lg.Tensor:
        return lg.astype(x, lg.complex128) + 1j * lg.astype(y, lg.complex128)

    lg.check_gradients(lambda x: parts(lg.fft.rfft(x, n=5, norm=norm)), x)
    lg.check_gradients(lambda x: parts(lg.fft.rfftn(x, norm=norm)), x)
    lg.check_gradients(lambda x: parts(lg.fft.ihfft(x, norm=norm)), x)
    lg.check_gradients(lambda x, y: parts(lg.fft.fft(spectrum(x, y), n=8, norm=norm)), x, y)
    lg.check_gradients(lambda x, y: lg.fft.irfft(spectrum(x, y), n=9, norm=norm), x, y)
    lg.check_gradients(lambda x, y: lg.fft.irfftn(spectrum(x, y), norm=norm), x, y)
    lg.check_gradients(lambda x, y: lg.fft.hfft(spectrum(x, y), norm=norm), x, y)
    lg.check_gradients(lambda x: lg.fft.fftshift(x, axes=1), x)


# --- lengths with large prime factors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("length", [17, 34, 127, 509, 1031])
def test_lengths_with_large_prime_factors_match_numpy(length: int, norm: Any) -> None:
    for dtype in ("complex64", "complex128"):
        x = draw((3, length), dtype, length)
        wide = x.astype(np.complex128)
        real = x.real.copy()
        half = draw((3, length // 2 + 1), dtype, length)  # the first imaginary part is not read
        pairs = [
            (lg.fft.fft(lg.asarray(x), norm=norm), np.fft.fft(wide, norm=norm)),
            (lg.fft.ifft(lg.asarray(x.T), axis=0, norm=norm), np.fft.ifft(wide.T, axis=0, norm=norm)),
            (lg.fft.rfft(lg.asarray(real), norm=norm), np.fft.rfft(real.astype(np.float64), norm=norm)),
            (lg.fft.irfft(lg.asarray(half), n=length, norm=norm), np.fft.irfft(half, n=length, norm=norm)),
        ]
        for result, expected in pairs:
            value = result.numpy()
            tolerance = 2e-6 if dtype == "complex64" else 2e-14
            assert np.abs(value - expected).max() <= tolerance * np.abs(expected).max()


def test_several_axes_with_large_prime_factors_run_natively() -> None:
    x = draw((19, 24, 23), "complex128")
    function = lg.jit(lambda x: lg.fft.fftn(x))
    np.testing.assert_allclose(function(lg.asarray(x)).numpy(), np.fft.fftn(x), rtol=1e-11, atol=1e-11)
    from_spectrum = lg.jit(lambda x: lg.fft.irfftn(lg.fft.rfftn(x), s=(19, 24, 23), axes=(0, 1, 2)))
    np.testing.assert_allclose(from_spectrum(lg.asarray(x.real.copy())).numpy(), x.real, rtol=1e-11, atol=1e-11)


def test_derivatives_of_prime_lengths_in_both_modes() -> None:
    x, dx = (lg.asarray(draw((2, 31), "complex128", seed)) for seed in (1, 2))
    value, tangent = lg.jvp(lg.fft.fft, (x,), (dx,))
    np.testing.assert_allclose(tangent.numpy(), np.fft.fft(dx.numpy()), rtol=1e-11, atol=1e-11)
    weights = lg.asarray(draw((2, 31), "float64", 3))
    loss = lambda t: lg.sum(weights * lg.abs(lg.fft.fft(t)) ** 2)  # noqa: E731
    gradient, step = lg.grad(loss)(lg.real(x)), 1e-6
    direction = lg.real(dx)
    slope = (float(loss(lg.real(x) + step * direction)) - float(loss(lg.real(x) - step * direction))) / (2 * step)
    assert np.isclose(float(lg.sum(gradient * direction)), slope, rtol=1e-6)
    assert value.shape == (2, 31)
