"""What the reference backend says about a function, and whether results of other code agree with it.

A program may magnify rounding (the sine of a large number, the floor of one) beyond any tolerance. Only where the
reference itself moves as far, for arguments that differ by a few roundings, is a difference not held against a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.node import Function
from livegrad.runtime.reference import evaluate

_ROUNDINGS = 16  # that arguments are moved by
_DRAWS = 4


def must_fail(run: Callable[[], Any]) -> dict[str, int]:
    """For a program that fails a check of its values in the reference: it fails everywhere."""
    try:
        found = run()
    except KernelCheckError:
        return {"fails a check": 1}
    raise AssertionError(f"the reference fails a check, and this gave {found!r}")


class Reference:
    def __init__(self, function: Function, arguments: Sequence[Any], float_type: str) -> None:
        self.function = function
        self.arguments = arguments
        self.tolerance = 1e-3 if float_type == "float32" else 1e-9
        self.expected = self._evaluate(arguments)

    def agrees(self, found: Sequence[Any], what: str) -> bool:
        """False if a result is another where the program magnifies rounding; raises if it is another elsewhere."""
        assert len(found) == len(self.expected), what
        steady = True
        for k, (own, other) in enumerate(zip(map(np.asarray, found), self.expected, strict=True)):
            try:
                self._compare(own, other, f"{what}, result {k}")
            except AssertionError:
                if own.shape != other.shape or not np.array_equal(np.isfinite(own), np.isfinite(other)):
                    raise
                if self._is_steady(k):
                    raise
                steady = False
        return steady

    def _evaluate(self, arguments: Sequence[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            results = evaluate(self.function, *arguments)
        return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]

    def _compare(self, own: Any, other: Any, what: str) -> None:
        assert own.shape == other.shape, f"{what}: shape {own.shape}, expected {other.shape}"
        size = np.max(np.abs(other), initial=0.0, where=np.isfinite(other)) if other.dtype.kind in "fc" else 0.0
        np.testing.assert_allclose(
            own, other, rtol=self.tolerance, atol=self.tolerance * (1.0 + size), err_msg=what, equal_nan=True
        )

    def _is_steady(self, number: int) -> bool:
        try:
            for results in self._nearby:
                self._compare(results[number], self.expected[number], "nearby")
        except AssertionError:
            return False
        return True

    @cached_property
    def _nearby(self) -> list[list[Any]]:
        numbers = np.random.default_rng(0)

        def moved(argument: Any) -> Any:
            if argument.dtype.kind != "f":
                return argument
            step = numbers.uniform(-1.0, 1.0, argument.shape) * _ROUNDINGS * np.finfo(argument.dtype).eps
            return np.asarray(argument * (1.0 + step), argument.dtype)

        return [self._evaluate([moved(np.asarray(a)) for a in self.arguments]) for _ in range(_DRAWS)]
