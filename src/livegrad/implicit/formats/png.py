"""Reads and writes PNG files as arrays, without an imaging library. 3MF files contain image stacks as PNG files."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import warn_caller
from livegrad.implicit.formats.errors import FormatError, FormatWarning
from livegrad.ir.dimension import round_up
from livegrad.runtime.atomic_files import write_atomically

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type: grey, RGB, palette, grey with alpha, RGB with alpha


def read_png(data: bytes, *, most_samples: int = 1 << 27) -> tuple[NDArray[np.uint16], int]:
    """Decodes a PNG file: pixels of shape (rows, columns, channels), and bits per value. Palettes become RGB or RGBA.

    >>> pixels, depth = read_png(write_png(np.array([[[7, 8, 9]]]), 8))
    >>> pixels.tolist(), depth
    ([[[7, 8, 9]]], 8)
    """
    if not data.startswith(SIGNATURE):
        raise FormatError("not a PNG file")
    chunks = _read_chunks(data)
    if "IHDR" not in chunks or len(chunks["IHDR"]) != 13 or "IDAT" not in chunks:
        raise FormatError("the PNG file has no header or no pixels")
    width, height, depth, colour, compression, filtering, interlace = struct.unpack(">IIBBBBB", chunks["IHDR"])
    if colour not in _CHANNELS or depth not in (1, 2, 4, 8, 16) or compression or filtering:
        raise FormatError("unsupported kind of PNG file", found=f"colour type {colour}, {depth} bits")
    if interlace:
        raise FormatError("interlaced PNG files are not supported", help="save it without interlacing")
    channels = _CHANNELS[colour]
    if not width or not height or width * height * channels > most_samples:
        raise FormatError("the PNG file has an impossible size", found=f"{width} × {height}")
    stride = (width * channels * depth + 7) // 8
    unpacked = _inflate(chunks["IDAT"], height * (stride + 1))
    rows = _unfilter(unpacked, height, stride, max(1, channels * depth // 8))
    pixels = _unpack_samples(rows, width, channels, depth)
    if colour == 3:
        return _resolve_palette(pixels[..., 0], chunks), 8
    return pixels, depth


def _read_chunks(data: bytes) -> dict[str, bytes]:
    chunks: dict[str, bytes] = {}
    position = len(SIGNATURE)
    while position + 12 <= len(data):
        (size,) = struct.unpack(">I", data[position : position + 4])
        kind, end = data[position + 4 : position + 8], position + 8 + size
        body, check = data[position + 8 : end], data[end : end + 4]
        if len(body) != size or len(check) != 4 or struct.unpack(">I", check)[0] != zlib.crc32(kind + body):
            raise FormatError("the PNG file is damaged", found=f"an invalid {kind!r} chunk")
        name = kind.decode("latin-1")
        chunks[name] = chunks.get(name, b"") + body
        position = end + 4
        if name == "IEND":
            return chunks
    raise FormatError("the PNG file is truncated")


def _inflate(data: bytes, size: int) -> bytes:
    decoder = zlib.decompressobj()
    try:
        unpacked = decoder.decompress(data, size)
    except zlib.error as error:
        raise FormatError(f"the PNG file is damaged: {error}") from None
    if len(unpacked) != size:
        raise FormatError("the PNG file is truncated")
    return unpacked


def _unfilter(data: bytes, height: int, stride: int, step: int) -> NDArray[np.uint8]:
    lines = np.frombuffer(data, np.uint8).reshape(height, stride + 1)
    rows = np.zeros((height, stride), np.uint8)
    above = np.zeros(stride, np.uint8)
    for index in range(height):
        kind, line = lines[index, 0], lines[index, 1:]
        if kind > 4:
            raise FormatError("the PNG file is damaged", found=f"filter {kind}")
        above = rows[index] = _UNFILTERS[kind](line, above, step)
    return rows


def _unfilter_sub(line: NDArray[np.uint8], above: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    padded = np.zeros(round_up(len(line), step), np.uint8)
    padded[: len(line)] = line
    return np.cumsum(padded.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)[: len(line)]


def _unfilter_by_byte(line: NDArray[np.uint8], above: NDArray[np.uint8], step: int, predict: Any) -> NDArray[np.uint8]:
    out = [0] * (len(line) + step)  # with `step` zeros to the left of the first pixel
    up = [0] * step + above.tolist()
    for index, value in enumerate(line.tolist()):
        out[index + step] = (value + predict(out[index], up[index + step], up[index])) & 255
    return np.array(out[step:], np.uint8)


def _predict_paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    by_left, by_up, by_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner


_UNFILTERS = (
    lambda line, above, step: line,
    _unfilter_sub,
    lambda line, above, step: line + above,
    lambda line, above, step: _unfilter_by_byte(line, above, step, lambda left, up, corner: (left + up) // 2),
    lambda line, above, step: _unfilter_by_byte(line, above, step, _predict_paeth),
)


def _unpack_samples(rows: NDArray[np.uint8], width: int, channels: int, depth: int) -> NDArray[np.uint16]:
    if depth == 16:
        return rows.view(">u2").astype(np.uint16).reshape(len(rows), width, channels)
    if depth == 8:
        return rows.astype(np.uint16).reshape(len(rows), width, channels)
    bits = np.unpackbits(rows, axis=1)[:, : width * channels * depth].reshape(len(rows), width, channels, depth)
    return (bits * (1 << np.arange(depth - 1, -1, -1))).sum(-1).astype(np.uint16)


def _resolve_palette(indices: NDArray[np.uint16], chunks: dict[str, bytes]) -> NDArray[np.uint16]:
    palette = np.frombuffer(chunks.get("PLTE", b""), np.uint8)
    if len(palette) % 3 or len(palette) // 3 <= int(indices.max()):
        raise FormatError("the PNG file is damaged", found="a palette that is too short")
    colours = palette.reshape(-1, 3).astype(np.uint16)
    if "tRNS" in chunks:
        alpha = np.full((len(colours), 1), 255, np.uint16)
        transparency = np.frombuffer(chunks["tRNS"], np.uint8)[: len(colours)]
        alpha[: len(transparency), 0] = transparency
        colours = np.concatenate([colours, alpha], axis=1)
    return colours[indices]


def write_png(pixels: Any, depth: int = 8) -> bytes:
    """Encodes pixels of shape (rows, columns, 1 to 4 channels) as a PNG file with 8 or 16 bits per value."""
    array = np.asarray(pixels)
    if array.ndim != 3 or not 1 <= array.shape[2] <= 4 or depth not in (8, 16) or not array.size:
        raise FormatError(
            "a PNG file cannot hold this array",
            expected="(rows, columns, 1 to 4), 8 or 16 bits",
            found=f"{array.shape}, {depth} bits",
        )
    height, width, channels = array.shape
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    bytes_of_rows = (
        np.ascontiguousarray(array.astype(">u2" if depth == 16 else np.uint8)).view(np.uint8).reshape(height, -1)
    )
    lines = np.concatenate([np.zeros((height, 1), np.uint8), bytes_of_rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    compressed = zlib.compress(lines.tobytes(), 6)
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", compressed) + chunk(b"IEND", b"")


def chunk(kind: bytes, body: bytes) -> bytes:
    """Encodes a chunk of a PNG file: length, kind, content and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def save_png(picture: Any, path: str | os.PathLike[str]) -> None:
    """Writes a picture as an 8-bit PNG file: (rows, columns, 3) from 0 to 1, as returned by `render`, or as bytes.

    Without the last axis, the picture is grey. NaN becomes black, and values below 0 or above 1 are clipped. Both cause
    a `FormatWarning`, because they are rarely intended.

    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "grey.png")
    >>> save_png(np.full((2, 3), 0.5), path)
    >>> open(path, "rb").read(4)
    b'\\x89PNG'
    """
    values = convert_to_bytes(picture)
    write_atomically(path, write_png(values[:, :, None] if values.ndim == 2 else values))


_ONE_STEP = 1.0 / 255.0


def convert_to_bytes(picture: Any) -> NDArray[np.uint8]:
    """Converts values from 0 to 1 to bytes; bytes are returned unchanged. Warns if NaN or clipping changes values.

    >>> convert_to_bytes([[0.0, 0.5, 1.0]]).tolist()
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
    floats = values.astype(np.float64)
    nan_count = int(np.count_nonzero(np.isnan(floats)))
    if nan_count:
        warn_caller(f"{nan_count} of {floats.size} values of the picture are NaN and become black", FormatWarning)
    if floats.size > nan_count and (np.nanmin(floats) < -_ONE_STEP or np.nanmax(floats) > 1.0 + _ONE_STEP):
        low, high = np.nanmin(floats), np.nanmax(floats)
        message = f"the picture has values from {low:.4g} to {high:.4g}, which are clipped to 0 and 1"
        help = "divide it by 255" if high > 2.0 else "scale it, or clip it: lg.clip(picture, 0.0, 1.0)"
        warn_caller(f"{message}; {help}", FormatWarning)
    return np.rint(np.clip(np.nan_to_num(floats), 0.0, 1.0) * 255.0).astype(np.uint8)
