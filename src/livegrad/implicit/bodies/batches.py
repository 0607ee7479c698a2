"""Runs compiled functions on arrays of any length, in batches of a few fixed lengths.

A compiled function plans its run for each new length, and meshers and renderers need thousands of lengths. All code
that evaluates many points of a part goes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Only a few lengths, because a plan for another length costs as much as a thousand batches.
_LENGTHS = (1 << 9, 1 << 12, 1 << 15, 1 << 17)
_PADDED = 1 << 12  # up to this length, one batch with up to half padding is cheaper than several


def in_batches(run: Callable[..., Any], arrays: Sequence[NDArray[Any]], shared: Sequence[Any]) -> Any:
    """`run(*arrays, *shared)`, for arrays of one length with independent elements.

    >>> in_batches(lambda x, k: x * k, [np.arange(3.0)], [2.0])
    array([0., 2., 4.])
    """
    # NumPy scalars instead of 0-d arrays, which every call would convert again.
    shared = [value[()] if isinstance(value, np.ndarray) and not value.ndim else value for value in shared]
    count = len(arrays[0])
    results = []
    at = 0
    while at < count or not results:
        rest = count - at
        length = _batch_length(rest)
        pieces = [_pad(array[at : at + length], length) for array in arrays]
        results.append(_trim(run(*pieces, *shared), min(rest, length)))
        at += length
    if len(results) == 1:
        return results[0]
    if isinstance(results[0], tuple):
        return tuple(np.concatenate(column) for column in zip(*results, strict=True))
    return np.concatenate(results)


def _batch_length(rest: int) -> int:
    """The length of the next batch. Only the last one is padded."""
    above = next((length for length in _LENGTHS if length >= rest), _LENGTHS[-1])
    if rest <= _LENGTHS[0] or above // 2 < rest <= above <= _PADDED:
        return above
    return max(length for length in _LENGTHS if length <= rest)


def _pad(array: NDArray[Any], length: int) -> NDArray[Any]:
    if len(array) == length:
        return np.ascontiguousarray(array)  # strided arrays would be converted, and planned for, each time
    filler = array[-1:] if len(array) else np.zeros(1, array.dtype)
    return np.concatenate([array, np.broadcast_to(filler, (length - len(array),))])


def _trim(result: Any, length: int) -> Any:
    return tuple(part[:length] for part in result) if isinstance(result, tuple) else result[:length]
