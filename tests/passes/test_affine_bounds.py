"""Affine bounds of loop indices: never narrower than what happens, and as narrow where indices are affine."""

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import i32, i64
from livegrad.ir.walk import toposort
from livegrad.passes.affine_bounds import Affine, any_number, between, form_of, index_below
from livegrad.runtime.reference import evaluate


def test_an_index_below_another_stays_below_it() -> None:
    outer = index_below(Affine(10))
    inner = index_below(outer)
    difference = outer.plus(inner, -1)
    assert (difference.least(), difference.greatest()) == (1, 9)
    assert inner.greatest() == 8


def test_sums_that_may_overflow_are_any_number() -> None:
    f = trace(lambda x: x + 1, i64)
    assert form_of(f.results[0], [any_number(i64), Affine(1)]).greatest() == 2**63 - 1  # type: ignore[union-attr]
    assert form_of(f.results[0], [any_number(i64), Affine(1)]).least() == -(2**63)  # type: ignore[union-attr]
    g = trace(lambda x: x * 2, i32)
    assert form_of(g.results[0], [between(0, 2**30), Affine(2)]).least() == -(2**31)  # type: ignore[union-attr]


def test_a_clipped_index_is_in_range() -> None:
    f = trace(lambda x: (ops.max(x, 0), ops.min(ops.max(x, 0), 9)), i64)
    low, clipped = f.results
    at_least_0 = form_of(low, [any_number(i64), Affine(0)])
    form = form_of(clipped, [at_least_0, Affine(9)])
    assert form is not None
    assert (form.least(), form.greatest()) == (0, 9)


def random_expression(random: np.random.Generator, leaves: list[Node], depth: int) -> Node:
    if not depth or random.random() < 0.2:
        whole = int(random.integers(-5, 6))
        return leaves[int(random.integers(len(leaves)))] if random.random() < 0.7 else constant(whole, i64)
    a, b = (random_expression(random, leaves, depth - 1) for _ in range(2))
    divisor = constant(int(random.integers(1, 7)), i64)
    match int(random.integers(9)):
        case 0:
            return a + b
        case 1:
            return a - b
        case 2:
            return a * b
        case 3:
            return ops.min(a, b)
        case 4:
            return ops.max(a, b)
        case 5:
            return ops.mod(a, divisor)
        case 6:
            return ops.floor_div(a, divisor)
        case 7:
            return ops.select(a < b, a, b)
    return -a


@pytest.mark.parametrize("seed", range(60))
def test_what_is_computed_from_indices_is_between_the_bounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 7))
    f = trace(lambda i, j: random_expression(random, [i, j], 4), i64, i64)
    outer = index_below(Affine(n))
    inner = index_below(outer.plus(Affine(1)))
    forms: dict[Node, Affine | None] = dict(zip(f.parameters, (outer, inner), strict=True))
    for node in toposort(f.results):
        if node not in forms:
            forms[node] = form_of(node, [forms[operand] for operand in node.operands])
    form = forms[f.results[0]]
    assert form is not None
    for i in range(n):
        for j in range(i + 1):
            assert form.least() <= int(evaluate(f, i, j)) <= form.greatest()
