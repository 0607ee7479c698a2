"""Functions on tensors inside transforms: compiled once, batched, and differentiated through complex numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

FUNCTIONS: dict[str, Callable[[lg.Tensor], lg.Tensor]] = {
    "mean": lambda x: lg.mean(x, axis=0),
    "argmax": lambda x: lg.argmax(x, axis=1),
    "cumulative_prod": lambda x: lg.cumulative_prod(x, axis=1),
    "sort": lg.sort,
    "top_k": lambda x: lg.top_k(x, 2)[0],
    "searchsorted": lambda x: lg.searchsorted(lg.sort(x[0]), x),
    "isin": lambda x: lg.isin(x, x[0]),
    "einsum": lambda x: lg.einsum("ij,kj->ik", x, x),
    "vecdot": lambda x: lg.vecdot(x, x[0]),
    "solve": lambda x: lg.linalg.solve(x, x[0]),
    "svd": lambda x: lg.linalg.svd(x).S,
    "eigh": lambda x: lg.linalg.eigh(x).eigenvalues,
    "cross": lambda x: lg.linalg.cross(x[:, :3], x[:, 1:]),
    "diagonal": lambda x: lg.linalg.diagonal(x, offset=1),
    "fft": lambda x: lg.real(lg.fft.fft(x)),
    "normal": lambda x: x + lg.random.normal(lg.random.key(0), x.shape, dtype=lg.float64),
    "permutation": lambda x: lg.random.permutation(lg.random.key(1), x),
    "softmax": lg.softmax,
    "layer_norm": lambda x: lg.nn.layer_norm(x, x[0]),
    "conv": lambda x: lg.nn.conv(x[None, None], lg.ones((2, 1, 2, 2), dtype=lg.float64)),
    "max_pool": lambda x: lg.nn.max_pool(x[None, None], 2),
    "attention": lambda x: lg.nn.attention(x, x, x, causal=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_the_same_compiled_and_over_a_batch(name: str) -> None:
    function = FUNCTIONS[name]
    batch = lg.asarray(np.random.default_rng(0).standard_normal((2, 4, 4)))
    each = [function(batch[index]).numpy() for index in range(2)]
    np.testing.assert_allclose(lg.jit(function)(batch[0]).numpy(), each[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(lg.vmap(function)(batch).numpy(), np.stack(each), rtol=1e-12, atol=1e-12)


THROUGH_COMPLEX: dict[str, Callable[[lg.Tensor], Any]] = {
    "inv": lg.linalg.inv,
    "pinv": lambda z: lg.linalg.pinv(z[:, :2]),
    "det": lg.linalg.det,
    "solve": lambda z: lg.linalg.solve(z, z[0]),
    "cholesky": lambda z: lg.linalg.cholesky(z @ lg.conj(z.mT)),
    "qr": lambda z: lg.linalg.qr(z).R,
    "eigh": lambda z: lg.linalg.eigh(z + lg.conj(z.mT)).eigenvectors,
    "eigvals": lambda z: lg.linalg.eigvals(z),
    "svd": lambda z: lg.linalg.svd(z, full_matrices=False).U,
    "vecdot": lambda z: lg.vecdot(z, z[0]),
    "einsum": lambda z: lg.einsum("ij,jk->ki", z, z),
    "mean": lambda z: lg.mean(z, axis=0),
    "prod": lambda z: lg.prod(z, axis=0),
}
REAL_FROM_COMPLEX: dict[str, Callable[[lg.Tensor], Any]] = {
    "vector_norm": lambda z: lg.linalg.vector_norm(z, axis=0),
    "vector_norm 1": lambda z: lg.linalg.vector_norm(z, axis=0, ord=1),
    "matrix_norm nuc": lambda z: lg.linalg.matrix_norm(z, ord="nuc"),
    "slogdet": lambda z: lg.linalg.slogdet(z).logabsdet,
    "svdvals": lg.linalg.svdvals,
    "var": lambda z: lg.var(z, axis=0),
}


@pytest.mark.parametrize("name", [*THROUGH_COMPLEX, *REAL_FROM_COMPLEX])
def test_derivatives_through_complex_numbers_match_finite_differences(name: str) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 3, 3))

    def parts(x: lg.Tensor, y: lg.Tensor) -> Any:
        z = lg.astype(x, lg.complex128) + 1j * lg.astype(y, lg.complex128)
        if name in REAL_FROM_COMPLEX:
            return REAL_FROM_COMPLEX[name](z)
        found = THROUGH_COMPLEX[name](z)
        return lg.real(found), lg.imag(found)

    lg.check_gradients(parts, x, y)


def test_shapes_that_depend_on_data_are_counted() -> None:
    x = lg.asarray([1.0, 0.0, 1.0])
    lg.reset_stats()
    lg.nonzero(x)
    lg.unique_all(x)
    assert lg.stats().shapes_from_data == 2
