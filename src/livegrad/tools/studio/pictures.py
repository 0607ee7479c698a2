"""Converts arrays to pictures for views: RGBA bytes, as JPEG while they change and exact when they rest.

In: an array (height, width) or (height, width, 1, 3 or 4), with floats from 0 to 1 or bytes. Out: a binary message.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

_MIN_SIDE = 4  # pixels; smaller arrays are shown as numbers
_MAX_CHANNELS = 4
_QUALITY = 85
Bytes = NDArray[np.uint8]


def is_picture(array: NDArray[Any]) -> bool:
    """Whether an array looks like a picture.

    >>> is_picture(np.zeros((8, 8, 3))), is_picture(np.zeros((100, 3))), is_picture(np.zeros(64))
    (True, False, False)
    """
    if array.dtype.kind not in "biuf" or array.ndim not in (2, 3) or min(array.shape[:2]) < _MIN_SIDE:
        return False
    return array.ndim == 2 or array.shape[2] in (1, 3, _MAX_CHANNELS)


def picture_bytes(array: NDArray[Any]) -> Bytes:
    """The pixels of a picture as RGBA. Grey values outside of 0 to 1 are scaled to the range of the array.

    >>> picture_bytes(np.array([[0.0, 1.0]] * 2))[0].tolist()
    [[0, 0, 0, 255], [255, 255, 255, 255]]
    >>> picture_bytes(np.array([[-3.0, 5.0]] * 2))[0, :, 0].tolist()
    [0, 255]
    """
    channels = array[..., None] if array.ndim == 2 else array
    if channels.shape[2] == 1 and channels.dtype != np.uint8:
        channels = _stretch(channels)
    levels = _to_levels(channels)
    rgba = np.empty((*levels.shape[:2], 4), np.uint8)
    rgba[..., 3] = 255
    rgba[..., : max(3, levels.shape[2])] = levels
    return rgba


def _stretch(grey: NDArray[Any]) -> NDArray[Any]:
    """Grey values from 0 to 1. NaN and infinities, which have no place in a range, become black or white."""
    numbers = grey.astype(np.float32)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return numbers
    low, high = float(finite.min()), float(finite.max())
    if low >= 0.0 and high <= 1.0:
        return numbers
    width = high - low
    return (numbers - low) / width if width > 0.0 and math.isfinite(width) else numbers * 0.0


def _to_levels(channels: NDArray[Any]) -> Bytes:
    if channels.dtype == np.uint8:
        return channels
    with np.errstate(invalid="ignore"):
        scaled = np.multiply(channels, 255.0, dtype=np.float32)
        np.nan_to_num(scaled, copy=False, nan=0.0, posinf=255.0, neginf=0.0)
        np.clip(scaled, 0.0, 255.0, out=scaled)
        return (scaled + 0.5).astype(np.uint8)


def picture_message(view: str, frame: int, array: NDArray[Any], *, exact: bool) -> bytes:
    """A picture as a binary message with its pixels or a JPEG."""
    rgba = picture_bytes(array)
    height, width = rgba.shape[:2]
    header = {"type": "picture", "view": view, "frame": frame, "width": width, "height": height}
    header["format"] = "rgba" if exact else "jpeg"
    pixels = rgba.tobytes() if exact else simplejpeg.encode_jpeg(rgba, _QUALITY, "RGBA", fastdct=True)
    return pack(header, pixels)


def pack(header: dict[str, Any], payload: bytes) -> bytes:
    """A binary message: the length of a JSON header, the header, and bytes."""
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + payload
