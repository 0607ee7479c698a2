"""Products of half-precision floats and of integers run as native code, with the values of NumPy."""

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.types import Tensor
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.linalg import matmul, swap_last
from livegrad.runtime.cpu import run_function
from tests.schedule.plans import host_ops, plan_of

RNG = np.random.default_rng(11)
SHAPES = [
    ((3, 4), (4, 5)), ((1, 1), (1, 1)), ((33, 65), (65, 17)), ((2, 3, 7), (7, 4)), ((5, 1, 3, 7), (2, 7, 4)),
    ((3, 0), (0, 2)), ((0, 3), (3, 2)), ((1, 40), (40, 1)),
]  # fmt: skip


def integers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.iinfo(SCALARS[name].dtype)
    return RNG.integers(limits.min, limits.max, shape, SCALARS[name].dtype, endpoint=True)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_products_of_integers_are_kernels_and_wrap_around(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    types, values = [Tensor(SCALARS[name], shape) for shape in shapes], [integers(name, shape) for shape in shapes]
    function = trace(matmul, *types)
    assert host_ops(plan_of(function)) == []
    assert np.array_equal(run_function(function, *values), values[0] @ values[1])


def test_a_transposed_operand_of_integers_is_read_where_it_lies() -> None:
    function = trace(
        lambda a, b: matmul(a, swap_last(b)), Tensor(SCALARS["i32"], (6, 9)), Tensor(SCALARS["i32"], (8, 9))
    )
    a, b = integers("i32", (6, 9)), integers("i32", (8, 9))
    assert len(plan_of(function).steps) == 1
    assert np.array_equal(run_function(function, a, b), a @ b.T)


@pytest.mark.parametrize("shapes", SHAPES)
def test_halves_are_summed_in_single_precision_and_rounded_once(shapes: tuple[tuple[int, ...], ...]) -> None:
    values = [RNG.standard_normal(shape).astype(np.float16) for shape in shapes]
    function = trace(matmul, *[Tensor(SCALARS["f16"], shape) for shape in shapes])
    exact = values[0].astype(np.float64) @ values[1].astype(np.float64)
    result = run_function(function, *values)
    assert result.dtype == np.float16
    # Half a unit in the last place of a half, and what single precision adds.
    assert np.all(np.abs(result - exact) <= 0.5 * np.spacing(np.abs(exact).astype(np.float16)) + 1e-5)
