"""Fusion, by counts of kernels and bytes: nothing is stored unnecessarily."""

from collections.abc import Callable

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Struct, Tensor, Vector, bool_, c128, f32, f64, i64
from livegrad.ops.aggregate import get, get_field, make, make_tuple
from livegrad.ops.control import for_loop, make_cond, make_for_loop
from livegrad.ops.elementwise import max
from livegrad.ops.indexing import lookup
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import make_map, map_over
from livegrad.ops.movement import broadcast, flip, permute, reshape, slice_
from livegrad.ops.reduction import cumulative, reduce
from livegrad.ops.transcendental import exp, sin, tanh
from livegrad.ops.vector import dot, length
from livegrad.passes.bind_sizes import bind_sizes
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu.cpu_function import compile_function
from livegrad.schedule.plan import HostStep, KernelStep, ObjectSlot
from tests.schedule.plans import along, host_ops, layer_norm, logsumexp, plan_of, softmax, total

GRID = Tensor(f32, (96, 128))
LINE = Tensor(f32, (1000,))


def test_a_chain_of_elementwise_ops_is_one_kernel() -> None:
    plan = plan_of(lambda x, y: tanh(sin(x) * y + 1.0) / (y * y + 1.0) - x, LINE, LINE)
    assert (plan.kernels, len(plan.steps), plan.arena_bytes) == (1, 1, 0)
    assert plan.bytes_moved == 3 * 4000


def test_movements_are_part_of_the_kernel_that_reads() -> None:
    def moved(x: Node) -> Node:
        transposed = flip(permute(x, axes=(1, 0)), axes=(0,))
        return sin(slice_(transposed, start=(3, 2), size=(60, 40), step=(2, 2))) * 2.0

    plan = plan_of(moved, GRID)
    assert (plan.kernels, len(plan.steps), plan.arena_bytes) == (1, 1, 0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows", [softmax, layer_norm, logsumexp], ids=lambda f: f.__name__)
def test_work_on_rows_is_one_kernel(rows: Callable[[Node, int], Node], axis: int) -> None:
    plan = plan_of(lambda x: rows(x, axis), GRID)
    assert (plan.kernels, len(plan.steps), plan.arena_bytes) == (1, 1, 0)


def test_a_reduction_and_its_use_row_by_row_are_one_kernel() -> None:
    plan = plan_of(lambda x: exp(total(sin(x), 1)) * 2.0, GRID)
    assert (plan.kernels, plan.arena_bytes) == (1, 0)


def test_a_branch_that_reads_a_tensor_is_not_in_the_kernel_that_writes_it() -> None:
    def chosen(x: Node, first: Node) -> Node:
        tripled = reduce(x, kind="sum", axes=(0,)) * 3.0
        return make_cond(first, lambda t: lookup(t) + 1.0, lambda t: lookup(t) * 2.0, tripled)

    function = trace(chosen, LINE, bool_)
    values = np.arange(1000, dtype=np.float32)
    assert [float(compile_function(function)(values, first)) for first in (True, False)] == [1498501.0, 2997000.0]


def test_the_sum_of_a_long_tensor_is_split_over_threads() -> None:
    plan = plan_of(lambda x: reduce(sin(x), kind="sum", axes=(0,)), Tensor(f32, (1 << 20,)))
    assert plan.kernels == 2
    first, second = plan.steps
    assert isinstance(first, KernelStep)
    assert isinstance(second, KernelStep)
    assert first.chunk
    assert (first.domain, second.inner) == ((64,), (64,))
    assert plan.arena_bytes == 64 * 4


def test_the_sum_of_a_short_tensor_is_not_split() -> None:
    assert plan_of(lambda x: reduce(sin(x), kind="sum", axes=(0,)), LINE).kernels == 1


def test_what_follows_a_product_of_matrices_is_one_kernel() -> None:
    def layer(x: Node, weights: Node, bias: Node) -> Node:
        return max(matmul(x, weights) + broadcast(bias, shape=(64, 32), axes=(1,)), 0.0) * 0.5

    plan = plan_of(layer, Tensor(f32, (64, 16)), Tensor(f32, (16, 32)), Tensor(f32, (32,)))
    assert host_ops(plan) == ["matmul"]
    assert (plan.kernels, plan.arena_bytes) == (1, 64 * 32 * 4)


def test_an_expensive_value_that_two_kernels_need_is_stored_once() -> None:
    def twice(x: Node) -> tuple[Node, Node]:
        dear = tanh(sin(x))
        return total(dear, 0), total(dear, 1)

    plan = plan_of(twice, GRID)
    written = [buffer for step in plan.steps for buffer in step.results if buffer.shape == (96, 128)]
    assert len(written) == 1


def test_a_cheap_value_that_two_kernels_need_is_computed_twice() -> None:
    plan = plan_of(lambda x: (total(x * 2.0, 0), total(x * 2.0, 1)), GRID)
    assert plan.arena_bytes == 0


def test_a_reshape_of_stored_memory_moves_nothing() -> None:
    plan = plan_of(lambda x: total(reshape(x, shape=(32, 384)) * 2.0, 1), GRID)
    assert (plan.kernels, plan.arena_bytes) == (1, 0)


def test_a_scan_is_a_kernel_that_computes_its_operand() -> None:
    def running(x: Node) -> Node:
        return cumulative(sin(x), kind="sum", axis=1, reverse=False, exclusive=False)

    plan = plan_of(running, GRID)
    assert (plan.kernels, plan.arena_bytes) == (1, 0)


# --- maps ------------------------------------------------------------------------------------------------------------

POINT = Vector(f64, 3)


def sphere(p: Node, r: Node) -> Node:
    return length(p) - r


def test_a_mapped_function_and_its_gradient_are_one_kernel() -> None:
    function = vjp(map_over(trace(sphere, POINT, f64), lifted=(True, False)), with_value=True)
    plan = plan_of(bind_sizes(function, {"n": 1000}))
    assert host_ops(plan) == []
    assert (plan.kernels, len(plan.steps), plan.arena_bytes) == (1, 1, 0)


def test_summed_and_unsummed_results_of_a_map_are_one_kernel() -> None:
    both = trace(lambda a, b: (sin(a * b), a * b), f64, f64)

    def mapped(x: Node, k: Node) -> tuple[Node, Node]:
        value = make_map(both, x, k, summed=(True, False))
        return get(value, index=0), get(value, index=1)

    plan = plan_of(mapped, Tensor(f64, (1000,)), f64)
    assert (plan.kernels, len(plan.steps)) == (1, 1)


def test_a_map_over_structs_is_one_kernel() -> None:
    kind = Struct("Ball", (("place", POINT), ("size", f64)))
    lifted = Struct("Ball", (("place", Tensor(f64, (50, 3))), ("size", Tensor(f64, (50,)))))

    def grown(ball: Node) -> Node:
        place = get_field(ball, "place")
        return make(place + place, dot(place, place) * get_field(ball, "size"), type=kind)

    plan = plan_of(lambda balls: make_map(trace(grown, kind), balls), lifted)
    assert (plan.kernels, len(plan.steps)) == (1, 1)


def test_a_sum_over_another_tensor_inside_a_map_is_a_loop_in_its_kernel() -> None:
    pull = trace(lambda q, p: sin(dot(p - q, p - q)), POINT, POINT)

    def outer(p: Node, others: Node) -> Node:
        return make_map(pull, others, p, summed=(True,))

    function = trace(outer, POINT, Tensor(f64, (20, 3)))
    plan = plan_of(lambda ps, qs: make_map(function, ps, qs), Tensor(f64, (50, 3)), Tensor(f64, (20, 3)))
    assert (plan.kernels, len(plan.steps)) == (1, 1)


# --- loops -----------------------------------------------------------------------------------------------------------


def test_a_loop_over_scalars_and_its_gradient_are_one_kernel() -> None:
    function = trace(lambda n, x: make_for_loop(n, lambda i, a: sin(a) * x, x)[0], i64, f64)
    for derived in (function, vjp(function), vjp(vjp(function))):
        plan = plan_of(derived)
        assert host_ops(plan) == []


def test_a_loop_in_a_map_and_its_gradient_are_one_kernel() -> None:
    run = trace(lambda n, x, k: make_for_loop(n, lambda i, a: sin(a) * k + x, x)[0], i64, f64, f64)
    function = trace(lambda n, x, k: make_map(run, n, x, k), Tensor(i64, (100,)), Tensor(f64, (100,)), f64)
    assert plan_of(function).kernels == len(plan_of(function).steps) == 1
    plan = plan_of(vjp(function, with_value=True))
    assert (plan.kernels, len(plan.steps)) == (1, 1)


def test_a_loop_reads_a_computed_tensor_from_memory() -> None:
    def summed(n: Node, x: Node) -> Node:
        table = sin(x) * 2.0
        return make_for_loop(n, lambda i, a: a + lookup(table, i), lookup(x, n))[0]

    plan = plan_of(summed, i64, LINE)
    assert (plan.kernels, plan.arena_bytes) == (2, -(-4000 // 64) * 64)


def test_a_trace_that_a_host_step_reads_goes_there_as_an_object() -> None:
    def layers(n: Node, weights: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a: tanh(matmul(a, weights)), x)[0]

    plan = plan_of(vjp(trace(layers, i64, Tensor(f32, (64, 64)), Tensor(f32, (64, 64)))))
    forward, backward = [step for step in plan.steps if isinstance(step, HostStep) and step.op is for_loop]
    assert isinstance(forward.result, ObjectSlot)
    assert any(isinstance(slot, ObjectSlot) for slot in backward.operands)


def test_the_trace_of_a_loop_that_reads_elements_is_a_tensor() -> None:
    def product(n: Node, values: Node) -> Node:
        return make_for_loop(n, lambda i, a: sin(a) * lookup(values, i), lookup(values, n))[0]

    assert host_ops(plan_of(vjp(trace(product, i64, LINE)))) == []


def test_a_loop_over_complex_numbers_is_a_kernel_and_their_parts_are_left_to_the_host() -> None:
    def square(n: Node, z: Node) -> Node:
        return make_for_loop(n, lambda i, a: a * a + z, z)[0]

    plan = plan_of(square, i64, c128)
    assert plan.kernels == 1
    assert "for_loop" not in host_ops(plan)


def test_results_that_are_returned_twice_or_are_arguments_are_copied() -> None:
    plan = plan_of(lambda x: (x, sin(x), sin(x), make_tuple(x, x * 2.0)), LINE)
    assert plan.arena_bytes == 0
    assert len(plan.results) == 5


def test_spread_rows_are_never_stored() -> None:
    def centred(x: Node) -> Node:
        return x - along(total(x, 0), x, 0) - along(total(x, 1), x, 1)

    plan = plan_of(centred, GRID)
    assert all(buffer.bytes <= 128 * 4 for buffer in plan.arena_offsets)


def test_sweeps_down_long_columns_are_separate_kernels() -> None:
    """A group of lanes would find nothing of long columns in the cache in its next sweep."""

    def shares(x: Node) -> Node:
        return softmax(x, 0)

    long, short = plan_of(shares, Tensor(f32, (2048, 512))), plan_of(shares, Tensor(f32, (100, 512)))
    assert short.kernels == 1
    assert long.kernels > 3
    assert long.bytes_moved < 6.1 * 2048 * 512 * 4
