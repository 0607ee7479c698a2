"""Reads and writes PNG files as arrays, without an imaging library. Image stacks of 3MF files use them."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import warn_caller
from livegrad.implicit.formats.errors import FormatError, FormatWarning
from livegrad.runtime.atomic_files import write_atomically

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type: grey, RGB, palette, grey with alpha, RGB with alpha


def read_png(data: bytes, *, most_samples: int = 1 << 27) -> tuple[NDArray[np.uint16], int]:
    """Pixels of shape (rows, columns, channels) and the bits of each value. Palettes are resolved to RGB.

    >>> pixels, depth = read_png(write_png(np.array([[[7, 8, 9]]]), 8))
    >>> pixels.tolist(), depth
    ([[[7, 8, 9]]], 8)
    """
    if not data.startswith(SIGNATURE):
        raise FormatError("not a PNG file")
    chunks = _chunks(data)
    if "IHDR" not in chunks or len(chunks["IHDR"]) != 13 or "IDAT" not in chunks:
        raise FormatError("a PNG file without header or pixels")
    width, height, depth, colour, compression, filtering, interlace = struct.unpack(">IIBBBBB", chunks["IHDR"])
    if colour not in _CHANNELS or depth not in (1, 2, 4, 8, 16) or compression or filtering:
        raise FormatError("a PNG file of an unknown kind", found=f"colour type {colour}, {depth} bits")
    if interlace:
        raise FormatError("an interlaced PNG file", help="save it without interlacing")
    channels = _CHANNELS[colour]
    if not width or not height or width * height * channels > most_samples:
        raise FormatError("a PNG file of an impossible size", found=f"{width} × {height}")
    stride = (width * channels * depth + 7) // 8
    unpacked = _inflate(chunks["IDAT"], height * (stride + 1))
    rows = _unfilter(unpacked, height, stride, max(1, channels * depth // 8))
    pixels = _samples(rows, width, channels, depth)
    if colour == 3:
        return _resolve_palette(pixels[..., 0], chunks), 8
    return pixels, depth


def _chunks(data: bytes) -> dict[str, bytes]:
    chunks: dict[str, bytes] = {}
    position = len(SIGNATURE)
    while position + 12 <= len(data):
        (size,) = struct.unpack(">I", data[position : position + 4])
        kind, end = data[position + 4 : position + 8], position + 8 + size
        body, check = data[position + 8 : end], data[end : end + 4]
        if len(body) != size or len(check) != 4 or struct.unpack(">I", check)[0] != zlib.crc32(kind + body):
            raise FormatError("a damaged PNG file", found=f"a wrong {kind!r} chunk")
        name = kind.decode("latin-1")
        chunks[name] = chunks.get(name, b"") + body
        position = end + 4
        if name == "IEND":
            return chunks
    raise FormatError("a truncated PNG file")


def _inflate(data: bytes, size: int) -> bytes:
    decoder = zlib.decompressobj()
    try:
        unpacked = decoder.decompress(data, size)
    except zlib.error as error:
        raise FormatError(f"a damaged PNG file: {error}") from None
    if len(unpacked) != size:
        raise FormatError("a truncated PNG file")
    return unpacked


def _unfilter(data: bytes, height: int, stride: int, step: int) -> NDArray[np.uint8]:
    lines = np.frombuffer(data, np.uint8).reshape(height, stride + 1)
    rows = np.zeros((height, stride), np.uint8)
    above = np.zeros(stride, np.uint8)
    for index in range(height):
        kind, line = lines[index, 0], lines[index, 1:]
        if kind > 4:
            raise FormatError("a damaged PNG file", found=f"filter {kind}")
        above = rows[index] = _UNFILTERS[kind](line, above, step)
    return rows


def _sub(line: NDArray[np.uint8], above: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    padded = np.zeros(-(-len(line) // step) * step, np.uint8)
    padded[: len(line)] = line
    return np.cumsum(padded.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)[: len(line)]


def _by_byte(line: NDArray[np.uint8], above: NDArray[np.uint8], step: int, predict: Any) -> NDArray[np.uint8]:
    out = [0] * (len(line) + step)  # with `step` zeros to the left of the first pixel
    up = [0] * step + above.tolist()
    for index, value in enumerate(line.tolist()):
        out[index + step] = (value + predict(out[index], up[index + step], up[index])) & 255
    return np.array(out[step:], np.uint8)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    by_left, by_up, by_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner


_UNFILTERS = (
    lambda line, above, step: line,
    _sub,
    lambda line, above, step: line + above,
    lambda line, above, step: _by_byte(line, above, step, lambda left, up, corner: (left + up) // 2),
    lambda line, above, step: _by_byte(line, above, step, _paeth),
)


def _samples(rows: NDArray[np.uint8], width: int, channels: int, depth: int) -> NDArray[np.uint16]:
    if depth == 16:
        return rows.view(">u2").astype(np.uint16).reshape(len(rows), width, channels)
    if depth == 8:
        return rows.astype(np.uint16).reshape(len(rows), width, channels)
    bits = np.unpackbits(rows, axis=1)[:, : width * channels * depth].reshape(len(rows), width, channels, depth)
    return (bits * (1 << np.arange(depth - 1, -1, -1))).sum(-1).astype(np.uint16)


def _resolve_palette(indices: NDArray[np.uint16], chunks: dict[str, bytes]) -> NDArray[np.uint16]:
    palette = np.frombuffer(chunks.get("PLTE", b""), np.uint8)
    if len(palette) % 3 or len(palette) // 3 <= int(indices.max()):
        raise FormatError("a damaged PNG file", found="a palette that is too short")
    colours = palette.reshape(-1, 3).astype(np.uint16)
    if "tRNS" in chunks:
        alpha = np.full((len(colours), 1), 255, np.uint16)
        transparency = np.frombuffer(chunks["tRNS"], np.uint8)[: len(colours)]
        alpha[: len(transparency), 0] = transparency
        colours = np.concatenate([colours, alpha], axis=1)
    return colours[indices]


def write_png(pixels: Any, depth: int = 8) -> bytes:
    """A PNG file of pixels of shape (rows, columns, 1 to 4 channels), with 8 or 16 bits a value."""
    array = np.asarray(pixels)
    if array.ndim != 3 or not 1 <= array.shape[2] <= 4 or depth not in (8, 16) or not array.size:
        raise FormatError(
            "a PNG file cannot hold this",
            expected="(rows, columns, 1 to 4), 8 or 16 bits",
            found=f"{array.shape}, {depth} bits",
        )
    height, width, channels = array.shape
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    stored = np.ascontiguousarray(array.astype(">u2" if depth == 16 else np.uint8)).view(np.uint8).reshape(height, -1)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), stored], axis=1)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    packed = zlib.compress(lines.tobytes(), 6)
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk of a PNG file: its length, its kind, its content, and a checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def save_png(picture: Any, path: str | os.PathLike[str]) -> None:
    """Writes a picture as an 8-bit PNG file: (rows, columns, 3) from 0 to 1, as returned by `render`, or as bytes.

    Without the last axis the picture is grey. NaN becomes black, and values below 0 or above 1 are clipped, with a
    `FormatWarning`, because such a picture is rarely intended.

    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "grey.png")
    >>> save_png(np.full((2, 3), 0.5), path)
    >>> open(path, "rb").read(4)
    b'\\x89PNG'
    """
    values = bytes_of_picture(picture)
    write_atomically(path, write_png(values[:, :, None] if values.ndim == 2 else values))


_ONE_STEP = 1.0 / 255.0


def bytes_of_picture(picture: Any) -> NDArray[np.uint8]:
    """Converts values from 0 to 1 to bytes; bytes are returned unchanged. Warns about losses of more than one step.

    >>> bytes_of_picture([[0.0, 0.5, 1.0]]).tolist()
    [[0, 128, 255]]
    """
    values = np.asarray(picture)
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind not in "bf":
        raise FormatError(
            "not a picture", expected="floats from 0 to 1, or uint8", found=f"an array of {values.dtype}",
            help="bytes from 0 to 255 are np.asarray(picture).astype(np.uint8)",
        )  # fmt: skip
    exact = values.astype(np.float64)
    missing = int(np.count_nonzero(np.isnan(exact)))
    if missing:
        warn_caller(f"{missing} of {exact.size} values of the picture are NaN and become black", FormatWarning)
    if exact.size > missing and (np.nanmin(exact) < -_ONE_STEP or np.nanmax(exact) > 1.0 + _ONE_STEP):
        low, high = np.nanmin(exact), np.nanmax(exact)
        what = f"the picture has values from {low:.4g} to {high:.4g}, which are clipped to 0 and 1"
        help = "divide it by 255" if high > 2.0 else "scale it, or clip it: lg.clip(picture, 0.0, 1.0)"
        warn_caller(f"{what}; {help}", FormatWarning)
    return np.rint(np.clip(np.nan_to_num(exact), 0.0, 1.0) * 255.0).astype(np.uint8)
