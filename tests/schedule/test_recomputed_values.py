"""Values that are broadcast to many points are stored; operands that a library reads transposed are not copied."""

from functools import reduce

import numpy as np

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f32, f64
from livegrad.ops.movement import sizes, slice_
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import HostStep, KernelStep


def spread_exponential(rows: int):
    def function(x: Node, q: Node) -> Node:
        return x * ops.broadcast(ops.exp(q), shape=(rows, 16), axes=(1,))

    return trace(function, Tensor(f32, (rows, 16)), Tensor(f32, (16,)))


def test_value_that_is_broadcast_to_many_rows_is_computed_by_a_separate_step():
    function = spread_exponential(1000)
    plan = CpuFunction(function).schedule()
    assert [step.kernel.name for step in plan.steps if isinstance(step, KernelStep)] == ["exp", "mul"]
    x = np.random.default_rng(0).standard_normal((1000, 16), np.float32)
    q = np.linspace(-1, 1, 16, dtype=np.float32)
    assert np.allclose(CpuFunction(function)(x, q), evaluate(function, x, q), rtol=1e-6)


def test_value_that_is_broadcast_to_few_rows_is_computed_where_it_is_used():
    assert CpuFunction(spread_exponential(4)).schedule().kernels == 1


def test_transposed_operand_of_a_product_is_read_where_it_lies():
    def gradient(a: Node, b: Node) -> Node:
        transposed = ops.permute(a, axes=(1, 0))
        return ops.matmul(transposed, ops.permute(b, axes=(1, 0)))

    function = trace(gradient, Tensor(f64, (30, 20)), Tensor(f64, (7, 30)))
    plan = CpuFunction(function).schedule()
    assert plan.kernels == 0
    assert len([step for step in plan.steps if isinstance(step, HostStep)]) == 1
    a, b = np.random.default_rng(1).standard_normal((30, 20)), np.random.default_rng(2).standard_normal((7, 30))
    assert np.allclose(CpuFunction(function)(a, b), a.T @ b.T)


def test_transposed_operand_that_is_also_a_result_is_stored():
    def both(a: Node, b: Node) -> tuple[Node, Node]:
        transposed = ops.permute(a * 2.0, axes=(1, 0))
        return transposed, ops.matmul(transposed, b)

    function = trace(both, Tensor(f64, (5, 4)), Tensor(f64, (5, 3)))
    a, b = np.arange(20.0).reshape(5, 4), np.arange(15.0).reshape(5, 3)
    transposed, product = CpuFunction(function)(a, b)
    assert np.array_equal(transposed, 2 * a.T)
    assert np.allclose(product, 2 * a.T @ b)


def test_detached_value_is_not_copied():
    function = trace(lambda a, b: ops.matmul(ops.detach(a), b), Tensor(f64, (4, 4)), Tensor(f64, (4, 4)))
    assert CpuFunction(function).schedule().kernels == 0


def filtered_twice(rows: int, weights: int):
    """A filter along columns of a filter along rows."""

    def window(x: Node, axis: int) -> Node:
        size = tuple(n - weights + 1 if d == axis else n for d, n in enumerate(sizes(x)))
        starts = [tuple(k if d == axis else 0 for d in range(2)) for k in range(weights)]
        parts = [slice_(x, start=start, size=size, step=(1, 1)) * (k + 1.0) for k, start in enumerate(starts)]
        return reduce(lambda a, b: a + b, parts)

    return trace(lambda x: window(window(x, 1), 0), Tensor(f64, (rows, rows)))


def test_value_that_overlapping_windows_read_is_computed_once():
    function = filtered_twice(100, 7)
    assert CpuFunction(function).schedule().kernels == 2
    x = np.random.default_rng(0).standard_normal((100, 100))
    np.testing.assert_allclose(CpuFunction(function)(x), evaluate(function, x), rtol=1e-12, atol=1e-12)


def test_value_that_few_windows_read_or_that_is_small_stays_where_it_is_used():
    assert CpuFunction(filtered_twice(100, 2)).schedule().kernels == 1
    assert CpuFunction(filtered_twice(12, 7)).schedule().kernels == 1
