"""Fourier transforms agree with NumPy in the precision of the operand, and have exact transposes."""

from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, c64, c128, f32, f64
from livegrad.ops.fourier import fft, hfft, ihfft, irfft, irfftn, rfft, rfftn
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_orders, op_names

NORMS = pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
rng = np.random.default_rng(3)
SIGNAL = rng.standard_normal((3, 4, 6))
SPECTRUM = rng.standard_normal((3, 4, 4)) + 1j * rng.standard_normal((3, 4, 4))


@NORMS
@pytest.mark.parametrize("size", [6, 7])
def test_the_composed_transforms_are_numpys(norm: Any, size: int) -> None:
    half = Tensor(c128, SPECTRUM.shape)
    np.testing.assert_allclose(
        evaluate(trace(lambda x: hfft(x, 2, size, norm), half), SPECTRUM),
        np.fft.hfft(SPECTRUM, size, norm=norm),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        evaluate(trace(lambda x: irfftn(x, (0, 2), size, norm), half), SPECTRUM),
        np.fft.irfftn(SPECTRUM, (3, size), (0, 2), norm=norm),
        atol=1e-12,
    )
    whole = Tensor(f64, SIGNAL.shape)
    np.testing.assert_allclose(
        evaluate(trace(lambda x: ihfft(x, 1, norm), whole), SIGNAL), np.fft.ihfft(SIGNAL, axis=1, norm=norm), atol=1e-12
    )
    np.testing.assert_allclose(
        evaluate(trace(lambda x: rfftn(x, (2, 0, 1), norm), whole), SIGNAL),
        np.fft.rfftn(SIGNAL, axes=(2, 0, 1), norm=norm),
        atol=1e-12,
    )


@NORMS
def test_there_and_back_differentiate_in_all_nestings(norm: Any) -> None:
    def filtered(x: Node, w: Node) -> Node:
        return irfftn(rfftn(x, (0, 1), norm) * w, (0, 1), 5, norm)

    function = trace(filtered, Tensor(f64, (3, 5)), Tensor(c128, (3, 3)))
    check_orders(function, (SIGNAL[0, :3, :5], SPECTRUM[0, :3, :3]), order=2)
    hermitian = trace(lambda z: ihfft(hfft(z, 0, 6, norm), 0, norm), Tensor(c128, (4,)))
    check_orders(hermitian, (SPECTRUM[0, 0],), order=1)


def test_single_precision_stays_single() -> None:
    x = SIGNAL.astype(np.float32)
    forward = trace(lambda x: rfft(x, axis=2, norm="backward"), Tensor(f32, x.shape))
    spectrum = run_function(forward, x)
    assert spectrum.dtype == np.complex64
    back = trace(lambda z: irfft(z, axis=2, size=6, norm="backward"), Tensor(c64, spectrum.shape))
    restored = run_function(back, spectrum)
    assert restored.dtype == np.float32
    np.testing.assert_allclose(restored, x, atol=1e-5)


def test_the_gradient_of_a_transform_is_a_transform() -> None:
    assert "fft" in op_names(vjp(trace(lambda x: fft(x, axes=(0,), inverse=True, norm="ortho"), Tensor(c128, (8,)))))
    assert "irfft" in op_names(vjp(trace(lambda x: rfft(x, axis=0, norm="ortho"), Tensor(f64, (8,)))))


def test_lengths_may_be_symbolic_unless_half_of_them_is_taken() -> None:
    n = Dimension.symbol("n")
    function = trace(lambda x: fft(x, axes=(0,), inverse=False, norm="backward"), Tensor(c128, (n,)))
    for size in (4, 5):
        x = SPECTRUM.ravel()[:size]
        np.testing.assert_allclose(run_function(function, x), np.fft.fft(x), atol=1e-13)
    rows = trace(lambda x: rfft(x, axis=1, norm="backward"), Tensor(f64, (n, 6)))
    np.testing.assert_allclose(run_function(rows, SIGNAL[0]), np.fft.rfft(SIGNAL[0]), atol=1e-13)
    with pytest.raises(TypeRuleError, match="the length n must be an integer"):
        rfft(parameter(0, Tensor(f64, (n,))), axis=0, norm="backward")


def test_transforms_refuse_what_they_cannot_take() -> None:
    with pytest.raises(TypeRuleError, match="fft takes complex numbers"):
        fft(parameter(0, Tensor(f32, (4,))), axes=(0,), inverse=False, norm="backward")
    with pytest.raises(TypeRuleError, match="half a spectrum of 4"):
        irfft(parameter(0, Tensor(c64, (3,))), axis=0, size=6, norm="backward")
    with pytest.raises(TypeRuleError, match="no norm `half`"):
        rfft(parameter(0, Tensor(f32, (4,))), axis=0, norm="half")
    with pytest.raises(TypeRuleError, match="cannot transform an empty axis"):
        rfft(parameter(0, Tensor(f32, (0,))), axis=0, norm="ortho")
