"""Summaries of values for the page: the numbers of small arrays; range, NaN count and a histogram of large ones.

In: an array that an engine computed. Out: a dictionary of JSON. Called by `session.py` for what pages show.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.tools.studio.pictures import is_picture, picture_bytes

Json = dict[str, Any]
_MAX_LISTED = 16  # elements of an array whose numbers are shown
_MAX_SAMPLES = 4096  # elements that a histogram counts
_BINS = 24
_THUMBNAIL = 56  # pixels of the longer side


def plain(value: Any) -> Any:
    """A number as JSON. Numbers that JSON lacks become text, which JavaScript converts back.

    >>> plain(np.float32(0.5)), plain(float("nan")), plain(-math.inf), plain([1, True])
    (0.5, 'NaN', '-Infinity', [1, True])
    """
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray) and value.ndim:
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        # The shortest decimal of a float32 is shorter than that of the equal float64.
        if value.dtype.kind == "f" and value.dtype.itemsize < 8:
            return plain(float(str(value)))
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0.0 else "-Infinity"
    if isinstance(value, complex):
        return f"{value.real:g}{value.imag:+g}i"
    return value


def summarize(array: NDArray[Any]) -> Json:
    """The summary of a value.

    >>> summarize(np.array(2.5, np.float32))
    {'shape': [], 'dtype': 'float32', 'value': 2.5}
    >>> large = summarize(np.linspace(0, 1, 101))
    >>> large["min"], large["max"], large["nans"], sum(large["bins"])
    (0.0, 1.0, 0, 101)
    """
    summary: Json = {"shape": list(array.shape), "dtype": array.dtype.name}
    if array.ndim == 0:
        return summary | {"value": plain(array[()])}
    if array.size <= _MAX_LISTED:
        summary["value"] = plain(array)
    if array.size and array.dtype.kind in "biuf":
        summary |= _statistics(array)
    if is_picture(array):
        summary["picture"] = _thumbnail(array)
    return summary


def _statistics(array: NDArray[Any]) -> Json:
    """Range, mean, counts of special numbers, and a histogram of samples."""
    numbers = array.reshape(-1)
    nans = infinities = 0
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            total = float(np.sum(numbers, dtype=np.float64))
        if not math.isfinite(total):  # the sum is only infinite or NaN if an element is, or if they are huge
            nans = int(np.count_nonzero(np.isnan(numbers)))
            infinities = int(np.count_nonzero(np.isinf(numbers)))
            numbers = numbers[np.isfinite(numbers)]
    counts: Json = {"nans": nans, "infinities": infinities}
    if not numbers.size:
        return counts
    low, high = numbers.min(), numbers.max()
    mean = float(np.mean(numbers, dtype=np.float64))
    return {"min": plain(low), "max": plain(high), "mean": plain(mean), **counts, "bins": _histogram(numbers)}


def _histogram(numbers: NDArray[Any]) -> list[int]:
    samples = numbers[:: -(-numbers.size // _MAX_SAMPLES)].astype(np.float64)
    low, high = float(samples.min()), float(samples.max())
    if not low < high or not math.isfinite(high - low):
        return [0] * (_BINS // 2) + [samples.size] + [0] * (_BINS - _BINS // 2 - 1)
    counts, _ = np.histogram(samples, _BINS, (low, high))
    return [int(count) for count in counts]


def _thumbnail(array: NDArray[Any]) -> Json:
    """A small picture: every n-th pixel, as RGBA in base64."""
    step = max(1, -(-max(array.shape[:2]) // _THUMBNAIL))
    small = picture_bytes(array[::step, ::step])
    height, width = small.shape[:2]
    return {"width": width, "height": height, "rgba": base64.b64encode(small.tobytes()).decode()}
