"""Direct calls: repeated calls bypass dispatch and run native code, with the results of general calls."""

# pyright: reportUndefinedVariable=false, reportReturnType=false, reportInvalidTypeForm=false

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

FACTOR = 2.0
LINE = lg.array[float, "n"]


@lg.function
def scaled(x: LINE, k: float) -> LINE:
    y = x.copy()
    for i in range(len(x)):
        y[i] = k * x[i]
    return y


@lg.function
def at(x: LINE, i: int) -> float:
    return x[i]


def warm(function: Callable[..., Any], *arguments: Any) -> Any:
    function(*arguments)
    function(*arguments)
    return function(*arguments)


def python_calls(function: Callable[..., Any], *arguments: Any) -> list[str]:
    names: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return names


def test_a_direct_call_inspects_no_argument_in_python() -> None:
    for size in (5, 4, 4):  # the last call is looked for first
        warm(scaled, np.ones(size), 2.0)
    names = python_calls(scaled, np.ones(4), 3.0)
    assert names[:3] == ["__call__", "run", "is_current"]
    assert [name for name in names[3:] if name != "lookup"] == ["convert_result", "from_result", "from_result"]


def test_direct_calls_distinguish_kinds_types_and_shapes() -> None:
    x = np.arange(6.0)
    np.testing.assert_array_equal(warm(scaled, x, 2.0), 2 * x)
    np.testing.assert_array_equal(warm(scaled, x[:3], 2.0), 2 * x[:3])
    np.testing.assert_array_equal(warm(scaled, x[::2], 2.0), 2 * x[::2])
    np.testing.assert_array_equal(warm(scaled, x, 3), 3 * x)
    np.testing.assert_array_equal(warm(scaled, x.astype(np.float32), 2.0), 2 * x)
    np.testing.assert_array_equal(warm(scaled, list(x), 2.0), 2 * x)
    assert isinstance(scaled(lg.asarray(x), 2.0), lg.Tensor)
    with pytest.raises(lg.LivegradError):
        scaled(x.reshape(2, 3), 2.0)


def test_a_function_without_annotations_distinguishes_types() -> None:
    square = lg.function(lambda x: x * x)
    for _ in range(4):
        results = [square(3), square(3.0), square(np.float64(3.0)), square(True)]
        assert [type(result) for result in results[:2]] == [int, float]
        assert results[:3] == [9, 9.0, 9.0]


def test_results_of_direct_calls_are_new_arrays() -> None:
    x = np.ones(4)
    first, second = warm(scaled, x, 2.0), scaled(x, 2.0)
    second[:] = 0.0
    np.testing.assert_array_equal(first, 2.0 * x)
    np.testing.assert_array_equal(x, np.ones(4))


def test_a_changed_constant_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = [1.0]

    @lg.function
    def shifted(x: LINE) -> float:
        return FACTOR * x[0] + offsets[0]

    x = np.array([10.0])
    assert warm(shifted, x) == 21.0
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert shifted(x) == 31.0
    offsets[0] = 5.0
    assert warm(shifted, x) == 35.0


def test_a_changed_closure_variable_is_noticed() -> None:
    factor = 2.0

    @lg.function
    def scaled_first(x: LINE) -> float:
        return factor * x[0]

    assert warm(scaled_first, np.array([10.0])) == 20.0
    factor = 4.0
    assert scaled_first(np.array([10.0])) == 40.0


def test_an_index_out_of_range_is_an_error_in_direct_calls() -> None:
    x = np.arange(3.0)
    assert warm(at, x, 2) == 2.0
    with pytest.raises(lg.LivegradError, match="out of range"):
        at(x, 3)
    assert at(x, -1) == 2.0


def test_several_results_are_returned_as_a_tuple() -> None:
    @lg.function
    def ends(x: LINE) -> tuple[float, LINE]:
        return x[0], x

    first, whole = warm(ends, np.arange(3.0))
    assert first == 0.0
    np.testing.assert_array_equal(whole, np.arange(3.0))
