"""The size in bytes and the short description of a cached value, for limits and reports."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np


def size_of(value: Any) -> int:
    """The approximate size of a value in bytes, including its members."""
    if isinstance(value, np.ndarray):
        return value.nbytes + 112
    total = sys.getsizeof(value, 64)
    if isinstance(value, tuple | list | set | frozenset):
        total += sum(map(size_of, value))
    elif isinstance(value, dict):
        total += sum(size_of(key) + size_of(item) for key, item in value.items())
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        total += sum(map(size_of, vars(value).values())) if dataclasses.is_dataclass(value) else 0
    return total


def short_text(value: Any, limit: int = 48) -> str:
    """A short description of a value, on one line.

    >>> short_text(np.zeros((2, 3))), short_text("a" * 100)[-3:]
    ('float64[2, 3]', '...')
    """
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            return repr(value.item())
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, np.generic):
        return repr(value.item())
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
