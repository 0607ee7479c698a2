"""Empty lists: compiled functions treat them like Python."""
# ruff: noqa: C416, C419, B007, RUF015 (comprehensions are what is tested)

from __future__ import annotations

from typing import Any

import pytest

import livegrad as lg


@lg.function
def doubled(v: list[float]) -> list[float]:
    return [2.0 * x for x in v]


@lg.function
def doubled_integers(v: list[int]) -> list[int]:
    return [2 * x for x in v]


@lg.function
def total_and_length(v: list[float]) -> float:
    doubles = [2.0 * x for x in v]
    return sum(doubles) + len(doubles)


@lg.function
def longer_than_all(v: list[float]) -> float:
    return sum([x for x in v if len(v) > 2])


@lg.function
def appended(v: list[float]) -> list[float]:
    return [2.0 * x for x in v] + [1.0]


@lg.function
def chosen(v: list[float]) -> float:
    some = [x for x in v] if sum(v) > 1.0 else [3.0 * x for x in v]
    return sum(some)


@lg.function
def any_above(v: list[float]) -> bool:
    return any([x > 1.0 for x in v])


@lg.function
def annotated(v: list[float]) -> float:
    nothing: list[float] = []
    same: list[float] = [x for x in v]
    return sum(nothing) + sum(same)


@lg.function
def looped(v: list[float]) -> float:
    total = 0.0
    for x in [2.0 * x for x in v]:
        total += x
    for x in []:
        total += 1.0
    return total


@lg.function
def is_empty(v: list[float]) -> bool:
    return [x for x in v] == []


@pytest.mark.parametrize("length", range(4))
@pytest.mark.parametrize(
    "function",
    [doubled, doubled_integers, total_and_length, longer_than_all, appended, chosen, any_above, annotated, looped,
     is_empty],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_lists_of_every_length_agree_with_python(function: Any, length: int) -> None:
    values: Any = list(range(1, 1 + length)) if function is doubled_integers else [0.5 * k for k in range(length)]
    assert function(values) == function.python(values)


@lg.function
def total_of_rows(rows: list[list[float]]) -> float:
    return sum([sum([x for x in row]) for row in rows])


@pytest.mark.parametrize("rows", [[], [[]], [[], []], [[1.0, 2.0]], [[1.0], [2.0]]])
def test_lists_of_lists_may_be_empty_at_either_level(rows: Any) -> None:
    assert total_of_rows(rows) == total_of_rows.python(rows)


@lg.differentiable
def weighted(v: list[float], x: float) -> float:
    return sum([x * y for y in v]) + x


def test_the_derivative_with_respect_to_an_empty_list_is_an_empty_list() -> None:
    assert lg.bwd_diff(weighted)([], 2.0, 1.0) == ([], 1.0)
    assert lg.bwd_diff(weighted)([3.0], 2.0, 1.0) == ([2.0], 4.0)


@lg.function
def largest(v: list[float]) -> float:
    return max([x for x in v])


@lg.function
def first(v: list[float]) -> float:
    return [x for x in v][0]


@lg.function
def grown(x: float) -> float:
    values = []
    for _ in range(3):
        values.append(x)
    return sum(values)


def test_operations_that_need_an_element_reject_empty_lists() -> None:
    with pytest.raises(lg.FunctionError, match="LG201: `max` does not accept an empty list"):
        largest([])
    with pytest.raises(lg.FunctionError, match=r"LG208: index 0 is out of range(.*\n)*expected: no index: it is empty"):
        first([])
    with pytest.raises(lg.FunctionError, match="LG102: a list cannot grow"):
        grown(1.0)
