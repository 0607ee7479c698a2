"""Runs compiled functions on arrays of any length, in batches of a few fixed lengths.

A compiled function makes a plan for each new length, and meshers and renderers use thousands of lengths. All code that
evaluates many points of a part calls `run_in_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Few lengths, because a plan for a new length costs as much as a thousand batches.
_LENGTHS = (1 << 9, 1 << 12, 1 << 15, 1 << 17)
_PADDED = 1 << 12  # up to this length, one batch that is up to half padding is cheaper than several batches


def run_in_batches(run: Callable[..., Any], arrays: Sequence[NDArray[Any]], shared: Sequence[Any]) -> Any:
    """Returns `run(*arrays, *shared)`. The arrays have equal lengths, and `run` acts on each element independently.

    >>> run_in_batches(lambda x, k: x * k, [np.arange(3.0)], [2.0])
    array([0., 2., 4.])
    """
    # 0-d arrays become NumPy scalars, because every call would convert them again.
    shared = [value[()] if isinstance(value, np.ndarray) and not value.ndim else value for value in shared]
    count = len(arrays[0])
    results = []
    start = 0
    while start < count or not results:
        remaining = count - start
        length = _batch_length(remaining)
        pieces = [_pad(array[start : start + length], length) for array in arrays]
        results.append(_trim(run(*pieces, *shared), min(remaining, length)))
        start += length
    if len(results) == 1:
        return results[0]
    if isinstance(results[0], tuple):
        return tuple(np.concatenate(column) for column in zip(*results, strict=True))
    return np.concatenate(results)


def _batch_length(remaining: int) -> int:
    """The length of the next batch. Only the last batch is padded."""
    padded_length = next((length for length in _LENGTHS if length >= remaining), _LENGTHS[-1])
    if remaining <= _LENGTHS[0] or padded_length // 2 < remaining <= padded_length <= _PADDED:
        return padded_length
    return max(length for length in _LENGTHS if length <= remaining)


def _pad(array: NDArray[Any], length: int) -> NDArray[Any]:
    if len(array) == length:
        return np.ascontiguousarray(array)  # a strided array would need a plan of its own
    filler = array[-1:] if len(array) else np.zeros(1, array.dtype)
    return np.concatenate([array, np.broadcast_to(filler, (length - len(array),))])


def _trim(result: Any, length: int) -> Any:
    return tuple(part[:length] for part in result) if isinstance(result, tuple) else result[:length]
