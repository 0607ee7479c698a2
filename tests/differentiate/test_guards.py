"""Sums of guarded cotangents: opposite guards are one select, so the loops of a backward pass stay short."""

from typing import Any

import numpy as np

import livegrad as lg
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key
from livegrad.ir.types import bool_, f64
from livegrad.ops.elementwise import select
from livegrad.ops.rules import zero
from livegrad.passes.differentiate.guards import add_guarded

CONDITION, OTHER = (input_node(Key(name), bool_) for name in ("condition", "other"))
X, Y = (input_node(Key(name), f64) for name in ("x", "y"))
NOTHING = zero(f64)


def test_opposite_guards_become_one_select() -> None:
    then, otherwise = select(CONDITION, X, NOTHING), select(CONDITION, NOTHING, Y)
    assert add_guarded(then, otherwise, f64) is select(CONDITION, X, Y)
    assert add_guarded(otherwise, then, f64) is select(CONDITION, X, Y)


def test_one_value_under_opposite_guards_needs_none() -> None:
    assert add_guarded(select(CONDITION, X, NOTHING), select(CONDITION, NOTHING, X), f64) is X


def test_guards_of_other_conditions_are_added() -> None:
    total = add_guarded(select(CONDITION, X, NOTHING), select(OTHER, NOTHING, Y), f64)
    assert total is not None
    assert total.op.name == "add"  # type: ignore[union-attr]


def test_rows_that_keep_a_part_have_the_right_gradient() -> None:
    """A row that is replaced in one part and kept in the other, as in LU: the cotangent of the row is both parts."""
    matrix, columns = np.random.default_rng(0).normal(size=(6, 6)) + 6.0 * np.eye(6), lg.arange(6)

    def program(a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            a[i] = lg.where(columns > 2, a[i] - a[i, 0] * a[0], a[i])
            return a

        return lg.sum(lg.sin(lg.fori_loop(1, 6, row, a)))

    gradient = np.asarray(lg.grad(program)(lg.asarray(matrix)))
    direction = np.random.default_rng(1).normal(size=(6, 6))
    ends = [float(program(lg.asarray(matrix + sign * 1e-6 * direction))) for sign in (1.0, -1.0)]
    np.testing.assert_allclose(np.vdot(gradient, direction), (ends[0] - ends[1]) / 2e-6, rtol=1e-7)
