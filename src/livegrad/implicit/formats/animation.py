"""Writes animated PNG files (APNG) from arrays. Programs without support for animations show the first picture.

`save_animation` is public; the tour uses it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.png import SIGNATURE, chunk, convert_to_bytes
from livegrad.runtime.atomic_files import write_atomically

_MAX_FRAMES = 1 << 16


def save_animation(pictures: Sequence[Any], path: str | os.PathLike[str], *, frames_per_second: float = 12.0) -> None:
    """Writes pictures of equal size, (rows, columns, 3) from 0 to 1 or as bytes, as an animated PNG that repeats.

    >>> import os, tempfile
    >>> blink = [np.zeros((2, 2, 3)), np.ones((2, 2, 3))]
    >>> path = os.path.join(tempfile.mkdtemp(), "blink.png")
    >>> save_animation(blink, path, frames_per_second=2)
    >>> with open(path, "rb") as file: file.read().count(b"fcTL")
    2
    """
    frames = [_convert_frame(picture) for picture in pictures]
    if not 0 < len(frames) <= _MAX_FRAMES or len({frame.shape for frame in frames}) != 1 or frames_per_second <= 0:
        raise FormatError(
            "these pictures cannot form an animation",
            expected="at least one picture, all of one size (rows, columns, 3), and a positive frame rate",
            found=f"{len(frames)} pictures at {frames_per_second} frames per second",
        )
    height, width, _ = frames[0].shape
    with ThreadPoolExecutor() as pool:  # zlib releases the GIL
        compressed = list(pool.map(lambda frame: zlib.compress(filter_rows(frame), 6), frames))
    parts = [SIGNATURE, chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))]
    parts.append(chunk(b"acTL", struct.pack(">II", len(frames), 0)))
    sequence_number = 0
    for index, data in enumerate(compressed):
        frame_control = (sequence_number, width, height, 0, 0, 100, round(frames_per_second * 100), 0, 0)
        parts.append(chunk(b"fcTL", struct.pack(">IIIIIHHBB", *frame_control)))
        sequence_number += 1
        if index == 0:
            parts.append(chunk(b"IDAT", data))
        else:
            parts.append(chunk(b"fdAT", struct.pack(">I", sequence_number) + data))
            sequence_number += 1
    write_atomically(path, b"".join([*parts, chunk(b"IEND", b"")]))


def _convert_frame(picture: Any) -> NDArray[np.uint8]:
    array = np.asarray(picture)
    if array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise FormatError("not a picture", expected="an array of shape (rows, columns, 3)", found=str(array.shape))
    return convert_to_bytes(array)


def filter_rows(pixels: NDArray[np.uint8]) -> bytes:
    """Applies PNG filters: for each row, the filter with the smallest sum of absolute values."""
    height, _, channels = pixels.shape
    rows = pixels.reshape(height, -1)
    left, above, corner = np.zeros_like(rows), np.zeros_like(rows), np.zeros_like(rows)
    left[:, channels:] = rows[:, :-channels]
    above[1:] = rows[:-1]
    corner[1:, channels:] = rows[:-1, :-channels]
    filtered = np.stack([rows, rows - left, rows - above, rows - _predict_paeth(left, above, corner)])
    sizes = np.minimum(filtered, 0 - filtered).sum(-1, dtype=np.int64)  # absolute values of signed bytes
    selected = sizes.argmin(0)
    kinds = np.array([0, 1, 2, 4], np.uint8)[selected]
    return np.concatenate([kinds[:, None], filtered[selected, np.arange(height)]], axis=1).tobytes()


def _predict_paeth(left: NDArray[np.uint8], above: NDArray[np.uint8], corner: NDArray[np.uint8]) -> NDArray[np.uint8]:
    a, b, c = (array.astype(np.int16) for array in (left, above, corner))
    by_left, by_above, by_corner = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    nearer = np.where(by_above <= by_corner, above, corner)
    return np.where((by_left <= by_above) & (by_left <= by_corner), left, nearer)
