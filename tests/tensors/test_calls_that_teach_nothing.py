"""Calls whose arguments are one another's expressions are not taken as examples of calls with other arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg

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
