"""Converts bfloat16, which NumPy lacks, to and from float32. NumPy stores it as two opaque bytes.

A bfloat16 is the upper half of a float32. Widening is exact; narrowing rounds to nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Opaque on purpose: code that only moves elements works, and arithmetic without widening raises an error.
BFLOAT16: np.dtype[Any] = np.dtype("V2")
LARGEST = float(np.uint32(0x7F7F0000).view(np.float32))


def widen(value: Any) -> Array:
    """Converts bfloat16 to float32.

    >>> widen(narrow([1.0, 3.140625]))
    array([1.      , 3.140625], dtype=float32)
    """
    bits = np.asarray(value).view(np.uint16).astype(np.uint32)
    return np.asarray(np.left_shift(bits, np.uint32(16))).view(np.float32)


def narrow(value: Any) -> Array:
    """Rounds numbers to bfloat16 via float32; values beyond its range become infinite.

    >>> widen(narrow([0.1, 1e39, 1.00390625]))
    array([0.10009766,        inf, 1.        ], dtype=float32)
    """
    with np.errstate(over="ignore"):
        single = np.asarray(np.asarray(value), np.float32)
    bits = np.array(single, order="C").view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quiet = bits | np.uint32(0x400000)  # a NaN must not round to an infinity
    upper_half = np.where(np.isnan(single), quiet, nearest) >> np.uint32(16)
    return np.asarray(upper_half.astype(np.uint16)).view(BFLOAT16)


def readable(value: Array) -> Array:
    """Returns an array that NumPy can compute with: bfloat16 is widened, other types are unchanged."""
    return widen(value) if value.dtype == BFLOAT16 else value
