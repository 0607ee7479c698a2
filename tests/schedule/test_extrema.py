"""A tensor that is compared with its own extremum has the same bits on both sides, for any fusion."""

import random
from typing import Any

import numpy as np
import pytest

import livegrad as lg


def _spread(x: Any) -> Any:
    """Products in sums, used by themselves too: which of them are rounded differs from kernel to kernel."""
    row = (x - lg.mean(x, axis=-2, keepdims=True)) / (1.0 + lg.max(lg.abs(x + 0.0173)))
    return row * row


@pytest.mark.parametrize("shape", [(67, 7), (5, 67, 7), (33, 130)], ids=str)
def test_the_gradient_of_a_maximum_of_fused_products_is_finite(shape: tuple[int, ...]) -> None:
    def loss(x: Any) -> Any:
        square = _spread(x)
        return lg.sum(square / (1.0 + lg.max(lg.abs(square + 0.0173))))

    x = np.random.default_rng(301).normal(size=shape)
    step = np.random.default_rng(302).normal(size=shape) * 1e-6
    slope = np.sum(np.asarray(lg.jit(lg.grad(loss))(lg.asarray(x))) * step)
    difference = (float(loss(lg.asarray(x + step))) - float(loss(lg.asarray(x - step)))) / 2.0
    np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-12)


def _random_expression(source: random.Random) -> str:
    """Of `a`, `b` and the product `p`."""
    terms = ["0.0173", "b", "a * a", "a * 0.37", "p * b"]
    operators = source.choice(["+-", "*"])  # what has products alone is recomputed
    text = "p"
    for _ in range(source.randint(1, 3)):
        text = f"({text}) {source.choice(operators)} {source.choice(terms)}"
    return source.choice(["{}", "lg.abs({})", "lg.sin({})"]).format(f"({text})")


@pytest.mark.parametrize("seed", range(24))
def test_some_element_of_a_random_expression_is_equal_to_its_extremum(seed: int) -> None:
    source, numbers = random.Random(seed), np.random.default_rng(seed)
    text, product = _random_expression(source), source.choice(["a * b", "a * a", "(a - b) * a"])
    fold, axis = source.choice([lg.max, lg.min]), source.choice([None, 0, 1])

    def program(a: Any, b: Any) -> Any:
        p = eval(product, {"a": a, "b": b})
        x = eval(text, {"lg": lg, "a": a, "b": b, "p": p})
        hits = x == fold(x, axis=axis, keepdims=True)
        return lg.any(hits, axis=axis), lg.sum(lg.where(hits, p, a), axis=axis)

    def sum_of_extrema(a: Any, b: Any, c: Any) -> Any:
        p = eval(product, {"a": a, "b": b})
        x = eval(text, {"lg": lg, "a": a, "b": b, "p": p + c})
        return lg.sum(fold(x + c, axis=axis)) + lg.sum(lg.sin(p))

    shape = (source.choice([3, 17, 67]), source.choice([5, 7, 64]))
    arguments = [lg.asarray(numbers.normal(size=shape)) for _ in range(2)]
    assert np.all(lg.jit(program)(*arguments)[0]), f"{product}: {text}"
    slope = lg.jit(lg.grad(sum_of_extrema, (2,)))(*arguments, lg.asarray(np.zeros(shape)))[0]
    assert np.all(np.isfinite(slope)), f"{product}: {text}"
