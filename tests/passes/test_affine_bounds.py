"""Affine bounds of loop indices are sound, and tight where indices are affine."""

import numpy as np
import pytest

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import i32, i64
from livegrad.ir.walk import toposort
from livegrad.passes.affine_bounds import Form, any_number, between, form_of, greatest, index_below, least, range_of
from livegrad.runtime.reference import evaluate


def test_an_index_below_another_stays_below_it() -> None:
    outer = index_below(Form(10))
    inner = index_below(outer)
    difference = outer.plus(inner, -1)
    assert (least(difference), greatest(difference)) == (1, 9)
    assert greatest(inner) == 8


def test_sums_that_may_overflow_are_any_number() -> None:
    f = trace(lambda x: x + 1, i64)
    form = form_of(f.results[0], [any_number(i64), Form(1)])
    assert form is not None
    assert (least(form), greatest(form)) == (-(2**63), 2**63 - 1)
    g = trace(lambda x: x * 2, i32)
    form = form_of(g.results[0], [between(0, 2**30), Form(2)])
    assert form is not None
    assert least(form) == -(2**31)


def test_a_clipped_index_is_in_range() -> None:
    f = trace(lambda x: (ops.max(x, 0), ops.min(ops.max(x, 0), 9)), i64)
    low, clipped = f.results
    at_least_0 = form_of(low, [any_number(i64), Form(0)])
    form = form_of(clipped, [at_least_0, Form(9)])
    assert form is not None
    assert (least(form), greatest(form)) == (0, 9)


def random_expression(random: np.random.Generator, leaves: list[Node], depth: int) -> Node:
    if not depth or random.random() < 0.2:
        whole = int(random.integers(-5, 6))
        return leaves[int(random.integers(len(leaves)))] if random.random() < 0.7 else constant(whole, i64)
    a, b = (random_expression(random, leaves, depth - 1) for _ in range(2))
    divisor = constant(int(random.integers(1, 7)), i64)
    if random.random() < 0.3:
        divisor = ops.max(random_expression(random, leaves, depth - 1), divisor)
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


def test_the_remainder_of_a_computed_positive_number_is_below_it() -> None:
    f = trace(lambda i, n: ops.mod(i, n), i64, i64)
    n = between(1, 9)
    form = form_of(f.results[0], [any_number(i64), n])
    assert form is not None
    assert (least(form), greatest(form.plus(n, -1))) == (0, -1)
    index = index_below(n)
    assert form_of(f.results[0], [index, n]) == index


def test_the_range_of_an_expression_follows_from_those_of_what_it_is_computed_from() -> None:
    f = trace(lambda i, j: (2 * i - j, i - i, ops.mod(j, 4), i + j * 1_000_000_000, j), i64, i64)
    known = {f.parameters[0]: (0, 9)}
    assert [range_of(result, known) for result in f.results] == [None, (0, 0), (0, 3), None, None]
    assert range_of(f.results[0], {**known, f.parameters[1]: (-1, 2)}) == (-2, 19)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_computed_from_indices_is_between_the_bounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 7))
    f = trace(lambda i, j: random_expression(random, [i, j], 4), i64, i64)
    outer = index_below(Form(n))
    inner = index_below(outer.plus(Form(1)))
    forms: dict[Node, Form | None] = dict(zip(f.parameters, (outer, inner), strict=True))
    for node in toposort(f.results):
        if node not in forms:
            forms[node] = form_of(node, [forms[operand] for operand in node.operands])
    form = forms[f.results[0]]
    assert form is not None
    for i in range(n):
        for j in range(i + 1):
            assert least(form) <= int(evaluate(f, i, j)) <= greatest(form)
