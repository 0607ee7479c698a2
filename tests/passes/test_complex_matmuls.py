"""Products of complex matrices become products of real ones: values, derivatives, no host steps."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, c64, c128
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.runtime.cpu import compile_function

RNG = np.random.default_rng(4)
SHAPES = [
    ((5, 7), (7, 3)), ((1, 90), (90, 40)), ((3, 90), (90, 40)), ((64, 64), (64, 1)), ((200, 3, 3), (200, 3, 3)),
    ((3000, 3), (3, 2)), ((4, 5, 6), (6, 7)), ((2, 1, 5, 6), (3, 6, 7)), ((40, 16, 16), (40, 16, 16)),
]  # fmt: skip


def draw(shape: tuple[int, ...], dtype: str = "complex128") -> Any:
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("element", [c64, c128])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_products_have_the_values_of_numpy_and_no_step_of_the_host(left: Any, right: Any, element: Any) -> None:
    a, b = draw(left, element.dtype.name), draw(right, element.dtype.name)
    compiled = compile_function(trace(matmul, Tensor(element, left), Tensor(element, right)))
    expected = a @ b
    digits = 1e-6 if element is c64 else 1e-14
    assert np.abs(compiled(a, b) - expected).max() <= digits * left[-1] * np.abs(expected).max()
    assert compiled.plan().only_kernels


def test_transposed_operands_are_multiplied_too() -> None:
    a, b = draw((6, 9, 4)), draw((6, 5, 9))
    types = Tensor(c128, (6, 9, 4)), Tensor(c128, (6, 5, 9))
    swapped = (0, 2, 1)
    compiled = compile_function(trace(lambda a, b: matmul(permute(a, axes=swapped), permute(b, axes=swapped)), *types))
    np.testing.assert_allclose(compiled(a, b), a.transpose(swapped) @ b.transpose(swapped), rtol=1e-13)


def test_products_without_elements_are_zeros() -> None:
    for left, right in (((2, 0), (0, 3)), ((0, 3), (3, 2)), ((3, 2), (2, 0))):
        found = lg.matmul(lg.asarray(draw(left)), lg.asarray(draw(right))).numpy()
        assert (found.shape, found.dtype) == ((left[0], right[1]), np.complex128)
        assert not found.any()


@pytest.mark.parametrize(("left", "right"), [((5, 7), (7, 3)), ((1, 9), (9, 8)), ((130, 2, 2), (130, 2, 2))])
def test_derivatives_in_both_modes(left: Any, right: Any) -> None:
    def energy(a: lg.Tensor, b: lg.Tensor) -> lg.Tensor:
        product = lg.matmul(a, b)
        return lg.sum(lg.real(product * lg.conj(product)) * 0.01)

    lg.check_gradients(energy, lg.asarray(draw(left)), lg.asarray(draw(right)))
