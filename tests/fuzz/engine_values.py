"""The arithmetic of the model of the live engine: numbers as a block's function sees them, computed with NumPy.

A `Val` is an array, or a Python number, which is weak: it takes the type of what it meets. The rules are written down
here once more, in a plain form: nothing is imported from livegrad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

DEFAULT_FLOAT = np.dtype(np.float32)  # of a Python float that meets nothing else
_RANK = {"b": 0, "i": 1, "f": 2}


class Misfit(Exception):
    """Operands that a function cannot take: the block has a problem."""


class Failure(Exception):
    """A step that fails while it runs; its arguments are what the error must say."""


class Val:
    """A value with its type."""

    def __init__(self, array: Any, weak: bool = False) -> None:
        self.array = np.asarray(array)
        self.weak = weak

    @property
    def type(self) -> tuple[str, tuple[int, ...]]:
        return self.array.dtype.name, self.array.shape

    def strong(self) -> Val:
        """As the result of a block, or the variable of a loop: a number that met nothing takes its default type."""
        if not self.weak:
            return self
        return Val(self.array.astype(DEFAULT_FLOAT) if self.array.dtype.kind == "f" else self.array)

    def __repr__(self) -> str:
        return f"{'weak ' if self.weak else ''}{self.array.dtype} {self.array.tolist()}"

    # --- what functions do with it ---

    def __add__(self, other: Any) -> Val:
        return _apply(np.add, self, other, "if")

    def __sub__(self, other: Any) -> Val:
        return _apply(np.subtract, self, other, "if")

    def __mul__(self, other: Any) -> Val:
        return _apply(np.multiply, self, other, "if")

    def __truediv__(self, other: Any) -> Val:
        return _apply(np.true_divide, self, other, "f")

    def __mod__(self, other: Any) -> Val:
        return _apply(np.mod, self, other, "if")

    def __floordiv__(self, other: Any) -> Val:
        return _apply(_floor_divide, self, other, "i")

    def __and__(self, other: Any) -> Val:
        return _apply(np.bitwise_and, self, other, "bi")

    def __xor__(self, other: Any) -> Val:
        return _apply(np.bitwise_xor, self, other, "bi")

    def __lt__(self, other: Any) -> Val:
        return _apply(np.less, self, other, "if")

    def __gt__(self, other: Any) -> Val:
        return _apply(np.greater, self, other, "if")


def of_python(value: Any) -> Val:
    """A Python number, a number of NumPy or an array."""
    if value.__class__ in (bool, int, float):
        return Val(value, weak=True)
    return value if isinstance(value, Val) else Val(value)


def _floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if not np.all(b):
        raise Failure("division by zero")
    return np.floor_divide(a, b)


def _apply(operation: Callable[..., Any], left: Val, right: Any, kinds: str) -> Val:
    if right is None:
        raise Misfit("no number")
    right = of_python(right)
    dtype, weak = promote(left, right)
    if dtype.kind not in kinds:
        raise Misfit(f"{operation.__name__} of {dtype}")
    try:
        np.broadcast_shapes(left.array.shape, right.array.shape)
    except ValueError:
        raise Misfit(f"shapes {left.array.shape} and {right.array.shape}") from None
    result = operation(left.array.astype(dtype), right.array.astype(dtype))
    return Val(result, weak and result.dtype.kind != "b")


def promote(left: Val, right: Val) -> tuple[np.dtype, bool]:
    """The type in which two operands meet, and whether it is still weak."""
    kinds = [_RANK[one.array.dtype.kind] for one in (left, right)]
    if left.weak == right.weak:
        if max(kinds) < 2 or left.weak:
            return (left if kinds[0] >= kinds[1] else right).array.dtype, left.weak
        floats = [one.array.dtype for one in (left, right) if one.array.dtype.kind == "f"]
        return max(floats, key=lambda dtype: dtype.itemsize), False
    weak, strong = (left, right) if left.weak else (right, left)
    if _RANK[weak.array.dtype.kind] <= _RANK[strong.array.dtype.kind]:
        return strong.array.dtype, False
    return np.dtype(np.float32 if weak.array.dtype.kind == "f" else np.int64), False
