"""Row chains on the CPU: the bits of running step by step, for any number of threads, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, f64
from livegrad.ops.elementwise import maximum
from livegrad.ops.linalg import matmul, swap_last
from livegrad.ops.movement import broadcast
from livegrad.runtime.cpu import row_chains
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.native.pool import set_threads, threads
from livegrad.runtime.cpu.serialised_plan import decode, encode
from livegrad.runtime.reference import evaluate
from tests.schedule.plans import along, softmax, total


def attention(q: Node, k: Node, v: Node) -> Node:
    return matmul(softmax(matmul(q, swap_last(k)) * 0.25, 2), v)


def with_gradient_like_steps(q: Node, k: Node, v: Node) -> tuple[Node, ...]:
    weights = softmax(matmul(q, swap_last(k)), 2)
    result = matmul(weights, v) * 2.0
    by_weights = matmul(result, swap_last(v))
    by_scores = weights * (by_weights - along(total(by_weights * weights, 2), weights, 2))
    return matmul(by_scores, k), matmul(swap_last(by_scores), q), matmul(swap_last(weights), result)


def layers(x: Node, w: Node, b: Node, v: Node) -> tuple[Node, Node]:
    sums = matmul(x, w) + broadcast(b, shape=(200, 50), axes=(1,))
    return matmul(maximum(sums, 0.0), v) + x, sums


def update(x: Node, dy: Node, w: Node) -> Node:
    return w - matmul(swap_last(x), dy) * 0.01


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "attention": (attention, [(3, 96, 20)] * 3),
    "gradient": (with_gradient_like_steps, [(3, 96, 20)] * 3),
    "layers": (layers, [(200, 30), (30, 50), (50,), (50, 30)]),
    "update": (update, [(40, 150), (40, 90), (150, 90)]),
}


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes the number of blocks, which depends on the machine."""
    monkeypatch.setattr(row_chains, "default_threads", lambda: 2)


def prepared(name: str, element: Any = f32) -> tuple[Function, list[np.ndarray]]:
    callable, shapes = CASES[name]
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape).astype(element.dtype) for shape in shapes]
    return trace(callable, *(Tensor(element, shape) for shape in shapes)), arrays


def chained(function: Function) -> CompiledPlan:
    return CompiledPlan.from_plan(compile_plan(function, CPU), run_function)


def step_by_step(function: Function) -> CompiledPlan:
    return CompiledPlan.from_plan(compile_plan(function, CPU.without("tile_row_chains")), run_function)


@pytest.mark.parametrize("element", [f32, f64])
@pytest.mark.parametrize("name", CASES)
def test_a_chain_has_the_bits_of_its_separate_steps(name, element):
    function, arrays = prepared(name, element)
    together = chained(function)
    assert any(kernel.members for kernel in together.serialised.kernels)
    results = together.run(arrays)
    for actual, expected in zip(results, step_by_step(function).run(arrays), strict=True):
        assert np.array_equal(actual, expected)
    reference = evaluate(function, *arrays)
    tolerance = 1e-4 if element is f32 else 1e-11
    for actual, expected in zip(results, reference if isinstance(reference, tuple) else (reference,), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("name", CASES)
def test_a_chain_has_the_same_bits_on_any_number_of_threads(name):
    function, arrays = prepared(name)
    plan = chained(function)
    before = threads()
    runs = []
    for count in (1, 2, 5):
        set_threads(count)
        runs.append([np.array(result) for result in plan.run(arrays)])
    set_threads(before)
    for other in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_scores_take_no_memory_of_the_plan():
    function, _ = prepared("attention")
    scores = 3 * 96 * 96 * 4
    assert chained(function).serialised.arena_bytes < scores < step_by_step(function).serialised.arena_bytes


def test_a_chain_comes_back_from_its_serialised_plan():
    function, arrays = prepared("gradient")
    chain = chained(function)
    serialised = decode(encode(chain.serialised))
    assert serialised is not None
    assert serialised == chain.serialised
    again = CompiledPlan.from_serialised(serialised, run_function)
    assert again is not None
    assert all(np.array_equal(a, b) for a, b in zip(again.run(arrays), chain.run(arrays), strict=True))


def test_few_rows_are_not_split_into_blocks():
    function = trace(lambda x, w: maximum(matmul(x, w), 0.0), Tensor(f32, (16, 64)), Tensor(f32, (64, 64)))
    assert not any(kernel.members for kernel in chained(function).serialised.kernels)
