"""Scans that are split into segments for reverse mode have the same values and derivatives, at any length."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.types import Tensor, f64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.tensors.tracing import trace_call


def outputs(x: Any) -> Any:
    """Two outputs, of which one has another shape than the state."""

    def step(c: Any, row: Any) -> Any:
        c = lg.sin(c) * 0.9 + 0.1 * row[1]
        return c, (c * row, lg.sum(c))

    last, (rows, sums) = lg.scan(step, x[0], x)
    return lg.sum(last) + lg.sum(rows**2) + lg.sum(lg.cos(sums))


def backwards(x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        return lg.tanh(c * row[0]) + row, c

    last, before = lg.scan(step, x[0], x, reverse=True)
    return lg.sum(last) + lg.sum(before * x)


def of_two(x: Any) -> Any:
    """A scan over two tensors, with a captured value and an integer in its state."""
    scale = lg.mean(x)

    def step(state: Any, rows: Any) -> Any:
        c, k = state
        return (lg.sin(c + rows[0]) * scale + rows[1], k + 1), c * k

    (last, _), ys = lg.scan(step, (x[0], lg.asarray(1)), (x, lg.cos(x)))
    return lg.sum(last) + lg.sum(ys)


def of_scans(x: Any) -> Any:
    def row(c: Any, r: Any) -> Any:
        last, ys = lg.scan(lambda d, e: (lg.sin(d) + e, d * e), lg.sum(c), r)
        return c * 0.5 + last * r, ys

    last, ys = lg.scan(row, x[0], x)
    return lg.sum(last) + lg.sum(ys**2)


PROGRAMS: list[Callable[[Any], Any]] = [outputs, backwards, of_two, of_scans]


def scans_recompute(function: Callable[[Any], Any], rows: int) -> bool:
    traced = trace_call(function, [Tensor(f64, (rows, 3))], "scan").function
    return any(node.op.name == "recompute_call" for f in reachable_functions([traced]) for node in nodes_of(f))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("rows", [1, 2, 7, 16, 41])
def test_values_and_derivatives_are_those_of_the_whole_scan(program: Callable[[Any], Any], rows: int) -> None:
    x, d = (lg.asarray(np.random.default_rng(seed).normal(size=(rows, 3))) for seed in (0, 1))
    limited = lg.remember_at_most(40)(program)
    assert rows < 3 or scans_recompute(limited, rows)
    assert float(limited(x)) == float(program(x))
    for derive in (lg.grad, lambda f: lambda y: lg.jvp(lg.grad(f), [y], [d])[1]):
        np.testing.assert_allclose(
            np.asarray(derive(limited)(x)), np.asarray(derive(program)(x)), rtol=1e-13, atol=1e-14
        )
    batch = lg.asarray(np.random.default_rng(2).normal(size=(3, rows, 3)))
    found, expected = (np.asarray(lg.jit(lg.vmap(lg.grad(f)))(batch)) for f in (limited, program))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_a_scan_within_the_limit_stays_whole() -> None:
    assert not scans_recompute(lg.remember_at_most(1 << 20)(outputs), 41)
