"""Scalars that a compiled function creates become constants; scalars with a holder do not."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegrad as lg


def captures_of(function: Any) -> int:
    (entry,) = function._entries.values()
    return len(entry.captures)


def test_a_number_that_a_function_makes_is_no_argument_of_its_plan() -> None:
    double = lg.jit(lambda x: x * lg.asarray(2.5, dtype=lg.float64) + lg.asarray(True))
    np.testing.assert_array_equal(np.asarray(double(lg.ones(3, dtype=lg.float64))), [3.5, 3.5, 3.5])
    assert captures_of(double) == 0


def test_a_number_that_somebody_holds_may_be_refilled() -> None:
    factor = lg.asarray(2.0)
    scaled = lg.jit(lambda x: x * factor)
    assert float(lg.sum(scaled(lg.ones(3)))) == 6.0
    factor.fill(3.0)
    assert float(lg.sum(scaled(lg.ones(3)))) == 9.0
    assert captures_of(scaled) == 1


def test_a_number_that_the_function_kept_may_be_refilled() -> None:
    kept = []

    def shifted(x: Any) -> Any:
        kept.append(lg.asarray(1.0))
        return x + kept[-1]

    compiled = lg.jit(shifted)
    assert float(lg.sum(compiled(lg.zeros(2)))) == 2.0
    kept[0].fill(5.0)
    assert float(lg.sum(compiled(lg.zeros(2)))) == 10.0


def test_a_number_that_is_also_a_result_stays_a_tensor() -> None:
    total, number = lg.jit(lambda x: (lg.sum(x), lg.asarray(4)))(lg.ones(3))
    assert (float(total), int(number)) == (3.0, 4)


def test_elements_of_such_numbers_are_constants_where_a_loop_starts_from_them() -> None:
    def counted(x: Any) -> Any:
        return lg.vmap(lambda most: lg.while_loop(lambda k: k < most, lambda k: k + 1, lg.asarray(0)))(x)

    compiled = lg.jit(counted)
    np.testing.assert_array_equal(np.asarray(compiled(lg.asarray([3, 0, 5]))), [3, 0, 5])
    assert captures_of(compiled) == 0


def test_nan_infinity_and_the_sign_of_zero_are_kept() -> None:
    for number in (float("nan"), float("-inf"), -0.0):
        found = lg.jit(lambda x, number=number: x * lg.asarray(number, dtype=lg.float64))(lg.ones(2, dtype=lg.float64))
        assert np.asarray(found).tobytes() == np.full(2, number).tobytes()
