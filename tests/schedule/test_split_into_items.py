"""Work is split into chunks that are worth a thread each; brief work wakes no thread."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.compiler import compile_plan, lower_loops
from livegrad.ir.types import Tensor
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.cost_model import BRIEF_COST, CHUNK_COST, FEWEST_CHUNKS, FEWEST_ITEMS, POINT_COST
from livegrad.schedule.loops.nest import Loop, for_cpu
from livegrad.schedule.plan import KernelStep


def items_of(shape: tuple[int, ...], *, by_row: bool = False) -> Loop:
    def body(x: lg.ir.Node) -> lg.ir.Node:
        return ops.reduce(x, kind="sum", axes=(len(shape) - 1,)) if by_row else x * x + x

    plan = compile_plan(lg.ir.trace(body, Tensor(lg.f32, shape)), CPU)
    step = plan.steps[0]
    assert isinstance(step, KernelStep)
    return lower_loops(for_cpu(step, CPU, vector_bytes=64)).rows


def chunks(items: Loop) -> int:
    return -(-items.extent // items.grain)


POINT = POINT_COST + 2.0


@pytest.mark.parametrize("shape", [(200, 200), (40_000,), (2, 20_000), (3, 20_000), (30, 40, 50)])
def test_small_grids_are_brief_and_have_several_chunks(shape: tuple[int, ...]) -> None:
    items = items_of(shape)
    assert items.brief
    assert 2 <= chunks(items) <= FEWEST_ITEMS
    assert 2 * CHUNK_COST <= POINT * prod(shape) < BRIEF_COST


@pytest.mark.parametrize("shape", [(20, 20), (5_000,), (1, 100), (100, 100)])
def test_brief_work_is_one_chunk(shape: tuple[int, ...]) -> None:
    items = items_of(shape)
    assert not items.brief
    assert chunks(items) == 1


@pytest.mark.parametrize("shape", [(2000, 2000), (4_000_000,), (2, 1_000_000)])
def test_large_tensors_wake_threads(shape: tuple[int, ...]) -> None:
    items = items_of(shape)
    assert not items.brief
    assert chunks(items) >= FEWEST_ITEMS


def test_rows_are_shared_as_points_are() -> None:
    items = items_of((200, 300), by_row=True)
    assert items.brief
    assert chunks(items) == 2


def steps_of_sum(rows: int, products: int) -> list[KernelStep]:
    """The kernels of the sum of all elements of a polynomial."""

    def body(x: lg.ir.Node) -> lg.ir.Node:
        y = x
        for _ in range(products):
            y = y * x + x
        return ops.reduce(y, kind="sum", axes=(0, 1))

    plan = compile_plan(lg.ir.trace(body, Tensor(lg.f64, (rows, 200))), CPU)
    return [step for step in plan.steps if isinstance(step, KernelStep)]


def test_a_sum_of_few_expensive_elements_is_split_into_chunks() -> None:
    partial, combine = steps_of_sum(200, 50)
    assert partial.chunk > 0
    assert partial.domain[0] >= FEWEST_CHUNKS
    assert combine.kernel.name == "combine sum"


@pytest.mark.parametrize(("rows", "products"), [(200, 1), (10, 50)])
def test_a_sum_of_cheap_or_of_very_few_elements_is_one_chunk(rows: int, products: int) -> None:
    (step,) = steps_of_sum(rows, products)
    assert step.chunk == 0


def test_a_sum_in_chunks_is_that_of_numpy() -> None:
    x = np.random.default_rng(0).uniform(-0.9, 0.9, (200, 200))
    y = x
    for _ in range(50):
        y = y * x + x

    def total(x: lg.ir.Node) -> lg.ir.Node:
        y = x
        for _ in range(50):
            y = y * x + x
        return ops.reduce(y, kind="sum", axes=(0, 1))

    compiled = lg.ir.compile(lg.ir.trace(total, Tensor(lg.f64, (200, 200))))
    np.testing.assert_allclose(compiled(x), y.sum(), rtol=1e-12)
