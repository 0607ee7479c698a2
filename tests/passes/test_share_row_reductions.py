"""Reductions of a whole tensor and of its rows share one sweep; reductions across rows are split; values stay."""

from collections.abc import Callable

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, bool_, f16, f32, f64, i32
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import sin
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep
from tests.schedule.plans import along, plan_of, total

GRID = Tensor(f32, (300, 200))


def whole(x: Node, kind: str = "sum") -> Node:
    return reduce(x, kind=kind, axes=(0, 1))


def sweeps_of(function: Callable[..., tuple[Node, ...]], type: Tensor) -> int:
    """The number of kernels of a plan that read a tensor of the argument's size."""
    plan = plan_of(function, type)
    sizes = [view.buffer.shape for step in plan.steps if isinstance(step, KernelStep) for view in step.reads]
    return sum(size == type.shape for size in sizes)


def test_the_sum_of_all_joins_what_sweeps_the_rows() -> None:
    assert sweeps_of(lambda x: (total(x, 1, "max"), whole(x * x)), GRID) == 1
    assert sweeps_of(lambda x: (whole(sin(x)), whole(x, "min"), total(x, 1)), GRID) == 1


def test_the_sum_of_what_rows_are_compared_with_takes_no_second_sweep() -> None:
    assert sweeps_of(lambda x: (whole(x - along(total(x, 1, "max"), x, 1)),), GRID) == 1


def test_folds_of_other_data_or_other_rows_keep_their_sweeps() -> None:
    assert sweeps_of(lambda x: (total(x, 0), whole(x)), GRID) == 2
    halves = Tensor(f16, (300, 200))
    assert sweeps_of(lambda x: (total(x, 1), whole(x)), halves) == 2  # a half between two sums would round


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("element", [f32, f64, i32], ids=str)
def test_shared_sweeps_give_what_the_reference_gives(element: Scalar, kind: str) -> None:
    function = trace(lambda x: (whole(x, kind), total(x, 1)), Tensor(element, (70, 65)))
    values = np.random.default_rng(2).integers(1, 3, (70, 65)).astype(element.dtype)
    for found, expected in zip(compile_function(function)(values), evaluate(function, values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_shared_sweeps_of_truths() -> None:
    function = trace(lambda x: (whole(x, "any"), whole(x, "all"), total(x, 1, "any")), Tensor(bool_, (70, 65)))
    for values in (np.zeros((70, 65), bool), np.ones((70, 65), bool), np.eye(70, 65, dtype=bool)):
        for found, expected in zip(compile_function(function)(values), evaluate(function, values), strict=True):
            np.testing.assert_array_equal(found, expected)


SHAPES = {
    (5000, 40): (0,), (1000, 129): (0,), (70_000, 16): (0,), (70_000, 3): (0,), (300, 4, 33): (0, 1),
    (6, 500, 33): (1,), (2000, 3, 5): (0,), (9, 700, 3, 24): (1, 2), (200_000, 1): (0,),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("element", [f16, f32, f64, i32], ids=str)
@pytest.mark.parametrize(("shape", "axes"), SHAPES.items(), ids=str)
def test_folds_across_rows_give_what_the_reference_gives(
    shape: tuple[int, ...], axes: tuple[int, ...], element: Scalar, kind: str
) -> None:
    function = trace(lambda x: (reduce(x * 2, kind=kind, axes=axes), x + 1), Tensor(element, shape))
    values = np.random.default_rng(3).integers(0, 2, shape).astype(element.dtype)
    for found, expected in zip(compile_function(function)(values), evaluate(function, values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_long_columns_are_cut_up_beside_each_other() -> None:
    (first, second) = plan_of(lambda x: (total(x, 0),), Tensor(f32, (8192, 1024))).steps
    assert isinstance(first, KernelStep)
    assert isinstance(second, KernelStep)
    assert first.chunk
    assert first.vector_axis == "domain"
    assert first.domain == (64, 1024)
    assert (second.domain, second.inner) == ((1024,), (64,))
