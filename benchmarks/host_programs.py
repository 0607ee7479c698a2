"""The programs of the hosts suite: operations that libraries for arrays leave to FFT and LAPACK libraries, and sorting.

In: the functions of a library. `inputs` makes the arrays, `expected` the results in float64 with NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Library:
    """The functions of a library that programs use."""

    fft2: Callable[[Any], Any]
    fft: Callable[[Any], Any]
    rfft: Callable[[Any], Any]
    real: Callable[[Any], Any]
    log: Callable[[Any], Any]
    argsort: Callable[[Any], Any]  # stable
    largest: Callable[[Any, int], Any]  # of each row, in order
    cholesky: Callable[[Any], Any]
    eigvalsh: Callable[[Any], Any]


NUMPY = Library(
    fft2=np.fft.fft2,
    fft=np.fft.fft,
    rfft=np.fft.rfft,
    real=np.real,
    log=np.log,
    argsort=lambda x: np.argsort(x, axis=-1, stable=True),
    largest=lambda x, count: -np.sort(-x, axis=-1)[..., :count],
    cholesky=np.linalg.cholesky,
    eigvalsh=np.linalg.eigvalsh,
)
PROGRAMS: dict[str, Callable[[Library, Any], Any]] = {
    "hosts_fft2": lambda lib, x: lib.real(lib.fft2(x)),
    "hosts_fft_rows": lambda lib, x: lib.real(lib.fft(x)),
    "hosts_fft_primes": lambda lib, x: lib.real(lib.fft(x)),
    "hosts_rfft_rows": lambda lib, x: lib.real(lib.rfft(x)),
    "hosts_complex_product": lambda lib, x: lib.real(x @ x),
    "hosts_complex_log": lambda lib, x: lib.real(lib.log(x)),
    "hosts_argsort_rows": lambda lib, x: lib.argsort(x),
    "hosts_top_k": lambda lib, x: lib.largest(x, 8),
    "hosts_cholesky": lambda lib, x: lib.cholesky(x),
    "hosts_eigvalsh": lambda lib, x: lib.eigvalsh(x),
}
_ROWS = {"hosts_fft_rows": 64, "hosts_fft_primes": 509, "hosts_rfft_rows": 1024, "hosts_argsort_rows": 32}
_MATRICES = {"hosts_cholesky": 16, "hosts_eigvalsh": 8}


def inputs(kind: str, size: int) -> tuple[Array]:
    """Complex numbers for transforms and products, symmetric positive definite matrices, and rows of real numbers."""
    generator = np.random.default_rng(0)
    if kind in _MATRICES:
        side = _MATRICES[kind]
        matrices = generator.standard_normal((size, side, side))
        return ((matrices @ matrices.swapaxes(1, 2) + side * np.eye(side)).astype(np.float32),)
    shape = (size, _ROWS.get(kind, size if kind in ("hosts_fft2", "hosts_complex_product") else 1024))
    x = generator.standard_normal(shape)
    if kind in ("hosts_rfft_rows", "hosts_argsort_rows", "hosts_top_k"):
        return (x.astype(np.float32),)
    return ((x + 1j * generator.standard_normal(shape)).astype(np.complex64),)


def expected(kind: str, x: Array) -> Any:
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    return PROGRAMS[kind](NUMPY, wide)
