"""The rows of the hosts suite: transforms, sorting, complex products and decompositions, compiled by each library."""

from benchmarks.harness import Benchmark
from benchmarks.problems import Problem

EVERYONE = ("livegrad", "jax", "torch_eager", "numpy")
_TITLES = {
    "hosts_fft2": ("Fourier transform of {0} × {0} complex numbers", 1024),
    "hosts_fft_rows": ("Fourier transforms of {0} rows of 64", 4096),
    "hosts_fft_primes": ("Fourier transforms of {0} rows of 509", 512),
    "hosts_rfft_rows": ("real Fourier transforms of {0} rows of 1024", 1024),
    "hosts_complex_product": ("product of {0} × {0} complex matrices", 512),
    "hosts_complex_log": ("logarithms of {0} rows of 1024 complex numbers", 256),
    "hosts_argsort_rows": ("stable order of {0} rows of 32", 16384),
    "hosts_top_k": ("the 8 largest of {0} rows of 1024", 1024),
    "hosts_cholesky": ("Cholesky factors of {0} matrices of 16 × 16", 1024),
    "hosts_eigvalsh": ("eigenvalues of {0} symmetric matrices of 8 × 8", 4096),
}


def rows(quick: bool) -> list[Benchmark]:
    made = []
    for kind, (title, full) in _TITLES.items():
        size = 64 if quick else full
        made.append(Benchmark(kind, title.format(size), Problem(kind, size), EVERYONE))
    return made
