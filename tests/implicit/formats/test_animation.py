"""Animated PNG files: every frame can be read back."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from livegrad.implicit.formats import FormatError, read_png, save_animation
from livegrad.implicit.formats.animation import filter_rows
from livegrad.implicit.formats.png import SIGNATURE, chunk


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    result, start = [], len(SIGNATURE)
    while start < len(data):
        (size,) = struct.unpack(">I", data[start : start + 4])
        result.append((data[start + 4 : start + 8], data[start + 8 : start + 8 + size]))
        assert data[start + 8 + size : start + 12 + size] == struct.pack(
            ">I", zlib.crc32(data[start + 4 : start + 8 + size])
        )
        start += 12 + size
    return result


def test_every_frame_survives_a_round_trip(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (3, 7, 5, 3), np.uint8)
    save_animation(list(frames), tmp_path / "a.png", frames_per_second=20)
    parts = chunks((tmp_path / "a.png").read_bytes())
    header = next(body for kind, body in parts if kind == b"IHDR")
    data = [body for kind, body in parts if kind == b"IDAT"] + [body[4:] for kind, body in parts if kind == b"fdAT"]
    for frame, packed in zip(frames, data, strict=True):
        single = SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
        np.testing.assert_array_equal(read_png(single)[0], frame)
    controls = [struct.unpack(">IIIIIHHBB", body) for kind, body in parts if kind == b"fcTL"]
    numbers = [control[0] for control in controls] + [struct.unpack(">I", b[:4])[0] for k, b in parts if k == b"fdAT"]
    assert sorted(numbers) == list(range(5))
    assert {control[5] / control[6] for control in controls} == {1 / 20}
    assert struct.unpack(">II", next(body for kind, body in parts if kind == b"acTL")) == (3, 0)


def test_a_reader_without_animations_sees_the_first_frame(tmp_path):
    save_animation([np.zeros((2, 2, 3)), np.ones((2, 2, 3))], tmp_path / "a.png")
    assert not read_png((tmp_path / "a.png").read_bytes())[0].any()


def test_filters_compress_smooth_pictures():
    ramp = np.broadcast_to(np.arange(200, dtype=np.uint8)[:, None, None], (200, 300, 3))
    assert len(zlib.compress(filter_rows(np.ascontiguousarray(ramp)))) < 2000


@pytest.mark.parametrize("pictures", [[], [np.zeros((2, 2))], [np.zeros((2, 2, 3)), np.zeros((3, 2, 3))]])
def test_invalid_animations_are_rejected(pictures, tmp_path):
    with pytest.raises(FormatError):
        save_animation(pictures, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
