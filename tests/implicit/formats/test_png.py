"""PNG files: every depth, colour type and filter, compared with files assembled here."""

import struct
import zlib

import numpy as np
import pytest

from livegrad.implicit.formats.animation import save_animation
from livegrad.implicit.formats.errors import FormatError, FormatWarning
from livegrad.implicit.formats.png import read_png, save_png, write_png


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour: int, lines: bytes, *more: bytes, interlace: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    body = b"".join([chunk(b"IHDR", header), *more, chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")])
    return b"\x89PNG\r\n\x1a\n" + body


def filtered(rows: np.ndarray, step: int, kinds: list[int]) -> bytes:  # type: ignore[type-arg]
    """Applies filters to rows byte by byte, as in the standard."""
    out = b""
    for index, kind in enumerate(kinds):
        line = [int(v) for v in rows[index]]
        above = [int(v) for v in rows[index - 1]] if index else [0] * len(line)
        coded = []
        for index_in_line, value in enumerate(line):
            left = line[index_in_line - step] if index_in_line >= step else 0
            corner = above[index_in_line - step] if index_in_line >= step else 0
            up = above[index_in_line]
            guess = left + up - corner
            paeth = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
            coded.append((value - [0, left, up, (left + up) // 2, paeth][kind]) % 256)
        out += bytes([kind, *coded])
    return out


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_every_filter_is_decoded(channels: int) -> None:
    pixels = np.random.default_rng(channels).integers(0, 256, (5, 7, channels))
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    data = png(7, 5, 8, colour, filtered(pixels.reshape(5, -1), channels, [0, 1, 2, 3, 4]))
    read, depth = read_png(data)
    assert depth == 8
    np.testing.assert_array_equal(read, pixels)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_small_depths_are_unpacked(depth: int) -> None:
    pixels = np.random.default_rng(depth).integers(0, 1 << depth, (3, 5))
    bits = "".join
    lines = b""
    for row in pixels:
        text = bits(format(int(v), f"0{depth}b") for v in row)
        text = text.ljust(-(-len(text) // 8) * 8, "0")
        lines += b"\0" + bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))
    read, actual_depth = read_png(png(5, 3, depth, 0, lines))
    assert actual_depth == depth
    np.testing.assert_array_equal(read[..., 0], pixels)


def test_palettes_are_resolved() -> None:
    palette = chunk(b"PLTE", bytes([1, 2, 3, 4, 5, 6]))
    read, depth = read_png(png(2, 1, 8, 3, b"\0\1\0", palette))
    assert (read.tolist(), depth) == ([[[4, 5, 6], [1, 2, 3]]], 8)
    read, _ = read_png(png(2, 1, 8, 3, b"\0\1\0", palette, chunk(b"tRNS", b"\7")))
    assert read.tolist() == [[[4, 5, 6, 255], [1, 2, 3, 7]]]
    with pytest.raises(FormatError, match="palette"):
        read_png(png(2, 1, 8, 3, b"\0\1\2", palette))


@pytest.mark.parametrize(("depth", "channels"), [(8, 1), (8, 2), (8, 3), (8, 4), (16, 1), (16, 2), (16, 3), (16, 4)])
def test_pixels_survive_a_round_trip(depth: int, channels: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 1 << depth, (6, 4, channels))
    read, actual_depth = read_png(write_png(pixels, depth))
    assert actual_depth == depth
    np.testing.assert_array_equal(read, pixels)


def test_unsupported_files_are_rejected() -> None:
    with pytest.raises(FormatError, match="interlaced"):
        read_png(png(1, 1, 8, 0, b"\0\0", interlace=1))
    with pytest.raises(FormatError, match="truncated"):
        read_png(png(4, 4, 8, 0, b"\0\0"))
    with pytest.raises(FormatError, match="filter"):
        read_png(png(1, 1, 8, 0, b"\7\0"))
    with pytest.raises(FormatError, match="impossible size"):
        read_png(png(100, 100, 8, 0, b""), most_samples=10)
    with pytest.raises(FormatError, match="a PNG file cannot hold"):
        write_png(np.zeros((2, 2)))


def test_bytes_and_floats_from_0_to_1_are_saved_alike(tmp_path):
    """Like `save_animation`: bytes are not mistaken for floats above 1."""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10
    save_png(pixels, tmp_path / "bytes.png")
    save_png(pixels / 255.0, tmp_path / "numbers.png")
    for name in ("bytes.png", "numbers.png"):
        np.testing.assert_array_equal(read_png((tmp_path / name).read_bytes())[0], pixels)


@pytest.mark.filterwarnings("error")
def test_a_picture_without_channels_is_grey_and_nan_is_black(tmp_path):
    with pytest.warns(FormatWarning):
        save_png(np.array([[0.5, np.nan], [np.inf, -1.0]]), tmp_path / "grey.png")
    pixels, _ = read_png((tmp_path / "grey.png").read_bytes())
    np.testing.assert_array_equal(pixels[..., 0], [[128, 0], [255, 0]])


LOST = {
    "floats up to 255": (
        np.array([[0.0, 255.0]]),
        "values from 0 to 255, which are clipped to 0 and 1; divide it by 255",
    ),
    "a little too bright": (np.array([[0.5, 1.25]]), "values from 0.5 to 1.25.*scale it, or clip it"),
    "negative": (np.array([[-0.5, 1.0]]), "values from -0.5 to 1"),
    "no number": (np.array([[0.5, np.nan]]), "1 of 2 values of the picture are NaN"),
}


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("moving", [False, True])
def test_clipping_and_nan_warn_at_the_callers_line(kind, moving, tmp_path):
    picture, said = LOST[kind]
    colour = np.repeat(picture[:, :, None], 3, axis=2)
    said = said.replace("1 of 2", "3 of 6") if moving else said
    with pytest.warns(FormatWarning, match=said) as caught:
        save_animation([colour], tmp_path / "a.png") if moving else save_png(picture, tmp_path / "a.png")
    assert [warning.filename for warning in caught] == [__file__]


def test_rounding_does_not_warn(tmp_path, recwarn):
    save_png(np.array([[-1e-6, 1.0 + 1e-6]]), tmp_path / "a.png")
    save_png(np.array([[True, False]]), tmp_path / "b.png")
    assert not recwarn.list


def test_integers_other_than_bytes_are_rejected_with_help(tmp_path):
    with pytest.raises(FormatError, match=r"expected floats from 0 to 1, or uint8, found an array of int64.*astype"):
        save_png(np.array([[0, 128], [255, 3]]), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
