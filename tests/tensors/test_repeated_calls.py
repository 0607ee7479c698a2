"""Repeated calls take their own arguments, whatever the arguments were from which the call was learned.

`tests/fuzz/repeated_calls.py` has random programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.state import fresh_session
from livegrad.tensors import repeated_calls
from livegrad.tensors.repeated_calls import CREATION, REPEATED, REPEATED_LINALG
from tests.fuzz import repeated_call_texts

LESSONS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "two equal expressions": lambda x: (x * 2.0, x * 2.0),
    "one and its conversion": lambda x: (x, lg.astype(x, lg.float64)),
    "one and its shape": lambda x: (x, lg.reshape(x, (2, 2))),
    "one and its transpose": lambda x: (lg.reshape(x, (2, 2)), lg.matrix_transpose(lg.reshape(x, (2, 2)))),
    "one and its negative": lambda x: (x, -x),
    "one and itself": lambda x: (x, x),
}
CALLS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "stack": (lambda x, y: lg.stack([x, y]), lambda x, y: np.stack([x, y])),
    "concat": (lambda x, y: lg.concat([x, y]), lambda x, y: np.concatenate([x, y])),
    "maximum": (lg.maximum, np.maximum),
    "hypot": (lg.hypot, np.hypot),
    "logaddexp": (lg.logaddexp, np.logaddexp),
    "subtract": (lg.subtract, np.subtract),
    "operator": (lambda x, y: x - y, lambda x, y: x - y),
    "outer": (lambda x, y: lg.tensordot(x, y, axes=0), lambda x, y: np.tensordot(x, y, axes=0)),
    "where": (lambda x, y: lg.where(x > 3.0, x, y), lambda x, y: np.where(x > 3.0, x, y)),
}


# Only an outer product takes two shapes.
PAIRS = [(call, lesson) for call in CALLS for lesson in LESSONS if call == "outer" or lesson != "one and its shape"]


@pytest.mark.parametrize(("call", "lesson"), PAIRS)
def test_later_calls_take_their_own_arguments(call: str, lesson: str) -> None:
    ours, numpys = CALLS[call]
    lessons = [LESSONS[lesson](lg.asarray(np.arange(4.0, dtype=np.float32) + seed)) for seed in range(4)]
    for first, second in lessons:
        ours(first, second).numpy()
    numbers = np.random.default_rng(0)
    for _ in range(4):
        a, b = ((3.0 * numbers.normal(size=t.shape)).astype(t.numpy().dtype) for t in lessons[0])
        expected = numpys(a, b)
        np.testing.assert_allclose(ours(lg.asarray(a), lg.asarray(b)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_numbers_are_not_taken_for_repeated_arguments() -> None:
    """-1.0 equals -1, which stands for a repetition of the first tensor in the key of a call."""
    x = lg.asarray([-3.0, 0.5, 2.0])
    for _ in range(4):
        assert lg.clip(x, -1.0, x).tolist() == [-3.0, 0.5, 2.0]
        assert lg.clip(x, x, -1.0).tolist() == [-3.0, -1.0, -1.0]
        assert lg.where(x > 0, -1.0, x).tolist() == [-3.0, -1.0, -1.0]
        assert lg.where(x > 0, x, -1.0).tolist() == [-1.0, 0.5, 2.0]


def test_a_call_that_reads_values_is_not_learned() -> None:
    with fresh_session():
        x, mask = lg.asarray([1.0, 2.0, 3.0]), lg.asarray([True, False, True])
        first, last = lg.asarray(0), lg.asarray(2)
        for number in range(4):
            assert x[mask].tolist() == [1.0, 3.0]
            assert x[first:last].shape == (2,)
            assert x[first : first + number].shape == (number,)
            assert x[lg.asarray([number > 1, True, False])].shape == (1 + (number > 1),)
            before = lg.stats().shapes_from_data
            _ = x[mask]
            assert lg.stats().shapes_from_data == before + 1


def test_an_exponent_that_is_a_tensor_is_not_taken_for_a_number() -> None:
    x = lg.asarray([1.0, 2.0, 3.0])
    for _ in range(3):
        assert lg.pow(x, lg.full((3,), 2.0)).tolist() == [1.0, 4.0, 9.0]
    assert lg.pow(x, lg.asarray([0.0, 1.0, 3.0])).tolist() == [1.0, 2.0, 27.0]


def test_calls_that_fail_are_not_learned() -> None:
    with fresh_session():
        x = lg.asarray([1.0, 2.0, 3.0])
        for _ in range(4):
            with pytest.raises(lg.LivegradError, match="axis"):
                lg.sum(x, axis=3)
        assert len(repeated_calls._calls.current.calls) == 0


def test_the_fuzzer_calls_every_function_that_is_memoised() -> None:
    texts = repeated_call_texts
    called = {*texts.UNARY, *texts.BINARY, *texts.REDUCTIONS, *texts.ALONG_AXIS, *texts.PRODUCTS, *texts.OTHERS}
    assert called == REPEATED
    assert {*texts.LINALG, *texts.CREATION} == REPEATED_LINALG | CREATION
