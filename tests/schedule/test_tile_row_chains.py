"""Chains of steps that work row by row: what belongs to a chain, what ends it, and the memory of its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f32
from livegrad.ops.elementwise import maximum
from livegrad.ops.linalg import matmul, swap_last
from livegrad.ops.movement import broadcast
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import Plan, RowChain
from livegrad.schedule.tile_row_chains import find_row_chains
from tests.schedule.plans import along, host_ops, plan_of, softmax, total

MATRIX = Tensor(f32, (1, 4, 64, 64))
SQUARE = Tensor(f32, (64, 64))


def names(chain: RowChain) -> list[str]:
    return [step.kernel.name if hasattr(step, "kernel") else step.op.name for step in chain.steps]  # type: ignore[union-attr]


def tiled(callable: Callable[..., Any], *types: Tensor) -> Plan:
    """The plan for a target that runs all chains by tiles of 16 rows."""
    return compile_plan(trace(callable, *types), replace(CPU, rows_of_tile=lambda chain: 16))


def attention(q: Node, k: Node, v: Node) -> Node:
    return matmul(softmax(matmul(q, swap_last(k)), 3), v)


def test_an_attention_is_one_chain_that_keeps_its_scores_to_itself():
    plan = plan_of(attention, MATRIX, MATRIX, MATRIX)
    (chain,) = find_row_chains(plan.steps)
    assert names(chain) == ["matmul", "reduce+div", "matmul"]
    assert chain.rows == (1, 4, 64)
    assert {buffer.name for buffer in chain.private} == {"matmul", "div"}
    arranged = tiled(attention, MATRIX, MATRIX, MATRIX)
    assert [names(own) for own in arranged.chains] == [names(chain)]
    assert arranged.arena_bytes == 0
    assert plan.arena_bytes > 0


def test_a_bias_and_an_activation_follow_their_product():
    plan = plan_of(
        lambda x, w, b: maximum(matmul(x, w) + broadcast(b, shape=(64, 64), axes=(1,)), 0.0),
        SQUARE,
        SQUARE,
        Tensor(f32, (64,)),
    )
    (chain,) = find_row_chains(plan.steps)
    assert len(chain.steps) == 2
    assert len(chain.private) == 1


def test_a_reduction_over_rows_ends_a_chain():
    plan = plan_of(lambda x, w: softmax(matmul(x, w), 0), SQUARE, SQUARE)
    assert find_row_chains(plan.steps) == []


def test_a_transposed_or_right_operand_ends_a_chain():
    assert (
        find_row_chains(plan_of(lambda x, w: matmul(swap_last(softmax(matmul(x, w), 0)), w), SQUARE, SQUARE).steps)
        == []
    )
    (chain,) = find_row_chains(plan_of(lambda x, w: matmul(x, softmax(matmul(x, w), 1)), SQUARE, SQUARE).steps)
    assert names(chain) == ["matmul", "reduce+div"]


def test_steps_that_do_not_work_by_rows_wait_until_the_chain_is_over():
    def gradient_like(x: Node, w: Node) -> tuple[Node, Node]:
        weights = softmax(matmul(x, w), 1)
        transposed = matmul(swap_last(weights), x)
        scaled = matmul(weights, w)
        return transposed, scaled - along(total(scaled, 1), scaled, 1)

    plan = plan_of(gradient_like, SQUARE, SQUARE)
    (chain,) = find_row_chains(plan.steps)
    assert len(chain.steps) == 4
    arranged = tiled(gradient_like, SQUARE, SQUARE)
    (chain,) = arranged.chains
    assert list(arranged.steps[:4]) == list(chain.steps)
    assert sorted(host_ops(arranged)) == sorted(host_ops(plan))
    # What the step that waits reads must be there for it.
    assert not any(buffer in chain.private for step in arranged.steps[4:] for buffer in step.inputs)


def test_what_a_chain_reads_shares_no_memory_with_what_it_writes():
    def two_layers(x: Node, w: Node, v: Node) -> Node:
        first = matmul(swap_last(matmul(x, w)), w)  # a temporary that dies with the first step of the chain
        second = maximum(matmul(swap_last(first), v), 0.0)
        return matmul(swap_last(second), v)

    arranged = tiled(two_layers, SQUARE, SQUARE, SQUARE)
    assert arranged.chains
    for chain in arranged.chains:
        spans = {b: (at, at + b.reserved_bytes) for b, at in arranged.arena_offsets.items()}
        for read in chain.inputs:
            for written in chain.results:
                if read in spans and written in spans:
                    assert spans[read][1] <= spans[written][0] or spans[written][1] <= spans[read][0]


def test_a_transposed_product_is_the_product_of_transposed_operands():
    plan = plan_of(lambda x, w: swap_last(matmul(x, w)) + 1.0, SQUARE, Tensor(f32, (64, 32)))
    assert plan.kernels == 1
    step = plan.steps[0]
    assert step.results[0].shape == (32, 64)


def test_a_product_that_is_needed_both_ways_is_computed_once():
    def both(x: Node, w: Node) -> tuple[Node, Node]:
        product = matmul(x, w)
        return product, swap_last(product)

    assert host_ops(plan_of(both, SQUARE, SQUARE)) == ["matmul"]


def test_a_softmax_over_a_batch_of_one_is_one_kernel():
    plan = plan_of(lambda x: softmax(x, 3), MATRIX)
    assert plan.kernels == 1


def test_a_plan_says_what_runs_by_tiles():
    assert str(tiled(lambda x, w: matmul(x, w) * 2.0, SQUARE, SQUARE)).splitlines()[1:] == [
        "  by tiles of 16 of 64 rows:",
        "    0: matmul(b0:argument0, b1:argument1) -> b3:matmul",
        "    1: kernel mul [64x64](b3:matmul) -> b2:result0",
    ]
