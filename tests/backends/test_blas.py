"""Products of matrices through the library's tiles: every layout, batch and edge against NumPy."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from livegrad.backends.cpu.native import blas


def made(shape: tuple[int, ...], dtype: str, layout: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if layout == "transposed":
        return np.swapaxes(generator.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(dtype), -1, -2)
    if layout == "sliced":
        wide = generator.standard_normal((*shape[:-2], shape[-2] + 2, shape[-1] + 3)).astype(dtype)
        return wide[..., 1:-1, 2:-1]
    if layout == "strided":
        return generator.standard_normal((*shape[:-1], shape[-1] * 2)).astype(dtype)[..., ::2]
    return generator.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32"])
@pytest.mark.parametrize("first", ["plain", "transposed", "sliced", "strided"])
@pytest.mark.parametrize("second", ["plain", "transposed"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5), (5, 4)),
        ((1, 7), (7, 300)),
        ((300, 7), (7, 1)),
        ((513, 40), (40, 70)),
        ((6, 33, 20), (6, 20, 17)),
        ((2, 3, 8, 9), (9, 5)),
        ((4, 1, 8, 9), (5, 9, 6)),
        ((2, 0, 3), (2, 3, 4)),
        ((3, 0), (0, 4)),
    ],
)
def test_products_agree_with_numpy_in_every_layout(left, right, first, second, dtype):
    a, b = made(left, dtype, first, 1), made(right, dtype, second, 2)
    expected = np.matmul(a, b)
    out = np.full(expected.shape, 7, expected.dtype)
    blas.multiply(a, b, out)
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-11
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance * 10)


def test_the_librarys_own_number_of_threads_is_as_before():
    found = blas.find_blas()
    if found is None:
        pytest.skip("NumPy's BLAS is no OpenBLAS here")
    before = found.get_threads()
    a = np.ones((200, 200), np.float32)

    def run() -> None:
        for _ in range(20):
            blas.multiply(a, a, np.empty_like(a))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.get_threads() == before


def test_results_do_not_depend_on_the_number_of_threads():
    from livegrad.backends.cpu.native.pool import set_threads, threads

    a = made((700, 130), "float32", "plain", 1)
    b = made((130, 90), "float32", "plain", 2)
    before = threads()
    results = []
    for count in (1, 2):
        set_threads(count)
        out = np.empty((700, 90), np.float32)
        blas.multiply(a, b, out)
        results.append(out)
    set_threads(before)
    assert np.array_equal(*results)
