"""The dependence test of loops over elements: which reads may see what the same loops have written."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import lower
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Tensor, f64, i64
from livegrad.ir.walk import nodes_of
from livegrad.passes.loop_over_elements import loop_over_elements
from livegrad.passes.loop_over_elements.dependence import may_read_behind
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.tensors.tracing import trace_call

I, J, K = (input_node(Key(name), i64) for name in "ijk")


@pytest.mark.parametrize(
    ("writes", "reads", "expected"),
    [
        ((I, J), (I, J), False),  # the place that is written
        ((K, J), (I, J), True),  # nothing says where the rows begin
        ((K + I, J), (K + I, J + 1), False),  # one that is written later
        ((K + I, J), (K + I, J - 1), True),  # one that was written before
        ((I, J), (I - 1, J + 1), True),
        ((I, J), (I + 1, J - 1), False),
        ((I * 2, J), (I * 2 + 1, J), False),  # even and odd rows never meet
        ((I * 2, J), (I * 3, J), True),
        ((I, J), (J, I), True),
        ((I, J + K), (I, J + K), False),
        ((I, J + 9), (I, J), False),  # beyond the loop
        ((I % 3, J), (I % 3, J), True),
    ],
)
def test_what_an_iteration_may_read(writes: tuple[Node, ...], reads: tuple[Node, ...], expected: bool) -> None:
    assert may_read_behind(writes, reads, (I, J), (6, 5)) is expected


@pytest.mark.parametrize("seed", range(200))
def test_no_read_is_allowed_that_a_search_finds_behind(seed: int) -> None:
    """Random affine indices, beside a search over all pairs of iterations."""
    random = np.random.default_rng(seed)
    extents = tuple(int(n) for n in random.integers(1, 5, 2))
    numbers = [tuple(int(n) for n in (*random.integers(-1, 3, 2), *random.integers(-2, 3, 1))) for _ in range(4)]
    indices = [I * a + J * b + c for a, b, c in numbers]

    def values(point: Sequence[int]) -> list[int]:
        return [a * point[0] + b * point[1] + c for a, b, c in numbers]

    points = list(product(*map(range, extents)))
    behind = any(
        values(later)[2:] == values(earlier)[:2] for number, later in enumerate(points) for earlier in points[:number]
    )
    allowed = not may_read_behind(indices[:2], indices[2:], (I, J), extents)
    assert not (allowed and behind)


def test_a_tensor_that_a_nest_goes_through_by_column_is_stored_transposed() -> None:
    def program(x: Any, y: Any) -> Any:
        def outer(k: Any, x: Any) -> Any:
            def inner(j: Any, x: Any) -> Any:
                x[:, j] = x[:, j] * 0.5 + x[:, k] * lg.sum(y[j])
                return x

            return lg.fori_loop(0, 16, inner, x)

        return lg.fori_loop(0, 16, outer, x)

    types = [Tensor(f64, (24, 16)), Tensor(f64, (16, 8))]
    function = loop_over_elements(lower(trace_call(program, types, "program").function, CPU))
    (loop,) = [node for node in nodes_of(function) if node.op.name == "for_loop"]
    assert loop.attribute("body").parameter_types[1] is Tensor(f64, (16, 24))
    assert [node.op.name for node in nodes_of(function) if node.op.name == "permute"] == ["permute", "permute"]
    x, y = np.random.default_rng(0).normal(size=(24, 16)), np.full((16, 8), 0.01)
    expected = x.copy()
    for k in range(16):
        for j in range(16):
            expected[:, j] = expected[:, j] * 0.5 + expected[:, k] * np.sum(y[j])
    np.testing.assert_allclose(evaluate(function, x, y), expected, rtol=1e-12)
