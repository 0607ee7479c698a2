"""Pictures without an imaging library: arrays to PNG files, and a plain line chart."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

_INK, _GRID, _PAPER = (31, 73, 125), (226, 230, 236), (255, 255, 255)


def write_png(path: Path, pixels: Any) -> None:
    """An array of shape (height, width, 3) with values from 0 to 1, as an 8-bit RGB file."""
    image = (np.clip(np.asarray(pixels, np.float64), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    height, width, _ = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_bytes(data)
    partial.replace(path)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def line_chart(values: Any, width: int = 640, height: int = 360, margin: int = 24) -> np.ndarray[Any, Any]:
    """Positive values against their position, on a logarithmic scale with a line for each power of ten.

    What is below the precision of a double beside the largest value counts as that: a zero has no logarithm.
    """
    heights = np.asarray(values, np.float64)
    heights = np.log10(np.maximum(heights, max(heights.max(), 1e-300) * 1e-16))
    low, high = np.floor(heights.min()), np.ceil(heights.max())
    image = np.full((height, width, 3), _PAPER, np.float64)
    scale = (height - 2 * margin) / max(high - low, 1.0)
    for power in np.arange(low, high + 1):
        row = int(height - margin - (power - low) * scale)
        image[row : row + 1, margin : width - margin] = _GRID
    columns = np.arange(margin, width - margin)
    at = np.interp(columns, np.linspace(margin, width - margin - 1, len(heights)), heights)
    rows = (height - margin - (at - low) * scale).astype(int)
    for column, first, last in zip(columns, rows, np.roll(rows, -1), strict=True):
        last = first if column == columns[-1] else last
        image[min(first, last) - 1 : max(first, last) + 1, column] = _INK
    return image / 255.0
