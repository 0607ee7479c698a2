"""Host steps that are split among threads have the same bits as on one thread."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.diagnostics import KernelCheckError
from livegrad.passes import expand_prime_transforms
from livegrad.runtime.cpu import host_steps

RNG = np.random.default_rng(2)
REAL = RNG.standard_normal((9, 8, 8))
# NumPy transforms lengths with large prime factors.
WAVES = (RNG.standard_normal((17, 19, 23)) + 1j * RNG.standard_normal((17, 19, 23))).astype(np.complex64)
LONG = RNG.standard_normal((4, 300))  # kernels sort short rows
POSITIVE = REAL @ np.swapaxes(REAL, 1, 2) + np.eye(8)


@pytest.fixture(autouse=True)
def parts(monkeypatch) -> list[int]:
    """Splits all steps between two threads; records the number of parts of each step."""
    counted: list[int] = []
    run = host_steps._run_on_threads
    # Otherwise these transforms are convolutions, and run in kernels.
    monkeypatch.setattr(expand_prime_transforms, "has_large_factor", lambda length: False)
    monkeypatch.setattr(host_steps, "_MIN_WORK", 0)
    monkeypatch.setattr(host_steps, "threads", lambda: 2)
    monkeypatch.setattr(host_steps, "_run_on_threads", lambda tasks: (counted.append(len(tasks)), run(tasks))[1])
    return counted


CASES: dict[str, tuple[Any, Any, np.ndarray]] = {
    "fft": (lg.fft.fft, np.fft.fft, WAVES),
    "fft of the first axis": (lambda x: lg.fft.fft(x, axis=0), lambda x: np.fft.fft(x, axis=0), WAVES),
    "fft of two axes": (lambda x: lg.fft.fftn(x, axes=(0, 2)), lambda x: np.fft.fftn(x, axes=(0, 2)), WAVES),
    "rfft": (lg.fft.rfft, np.fft.rfft, WAVES.real.copy()),
    "irfft": (lambda x: lg.fft.irfft(x, n=37, axis=1), lambda x: np.fft.irfft(x, 37, axis=1), WAVES),
    "sort": (lambda x: lg.sort(x, axis=0), lambda x: np.sort(x, axis=0), LONG.T.copy()),
    "argsort": (lg.argsort, np.argsort, LONG),
    "inverse": (lg.linalg.inv, np.linalg.inv, REAL),
    "cholesky": (lg.linalg.cholesky, np.linalg.cholesky, POSITIVE),
    "systems": (lambda x: lg.linalg.solve(x, x[:, :, :2]), lambda x: np.linalg.solve(x, x[:, :, :2]), REAL),
    "orthogonal factors": (lambda x: lg.linalg.qr(x)[0], lambda x: np.linalg.qr(x)[0], REAL),
    "singular values": (lambda x: lg.linalg.svd(x)[1], lambda x: np.linalg.svd(x)[1], REAL),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_have_the_bits_of_the_whole(name: str, parts: list[int]) -> None:
    ours, whole, values = CASES[name]
    np.testing.assert_array_equal(ours(lg.asarray(values)).numpy(), whole(values))
    assert parts
    assert set(parts) == {2}


def test_a_transform_over_all_axes_goes_axis_by_axis(parts: list[int]) -> None:
    for inverse, ours in ((np.fft.fftn, lg.fft.fftn), (np.fft.ifftn, lg.fft.ifftn)):
        np.testing.assert_array_equal(ours(lg.asarray(WAVES), norm="ortho").numpy(), inverse(WAVES, norm="ortho"))
    assert parts == [2] * 6


def test_one_row_or_matrix_is_not_split(parts: list[int]) -> None:
    lg.fft.fft(lg.asarray(WAVES[0, 0])).execute()
    lg.sort(lg.asarray(REAL[0, 0])).execute()
    lg.linalg.inv(lg.asarray(REAL[0])).execute()
    lg.linalg.solve(lg.asarray(REAL[0]), lg.asarray(REAL)).execute()  # one matrix for all right-hand sides
    lg.linalg.cholesky(lg.asarray(POSITIVE[:, :4, :4])).execute()  # too little work for each
    assert parts == []


def test_an_error_in_any_part_is_raised(parts: list[int]) -> None:
    for place in (0, 8):
        singular = REAL.copy()
        singular[place] = 0.0
        with pytest.raises(KernelCheckError, match="Singular matrix"):
            lg.linalg.inv(lg.asarray(singular)).execute()
    assert parts == [2, 2]
