"""Frames of pictures that a page has recorded: every frame that ran, whatever the page could show of them.

In: the value of an output after each frame. Out: pictures by index, and animations as files. `session.py` calls it.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.formats.animation import save_animation
from livegrad.implicit.formats.png import write_png
from livegrad.live.graph.block import Pin
from livegrad.tools.studio.edits import MessageError
from livegrad.tools.studio.exports import File, file_name
from livegrad.tools.studio.pictures import is_picture, picture_bytes

MAX_FRAMES = 1200
_MAX_BYTES = 256 << 20
_ENCODER_SECONDS = 120.0
ANIMATIONS: Mapping[str, str] = {"apng": "Animation (PNG)", "frames": "Frames (PNG, zip)", "mp4": "Film (MP4)"}
Bytes = NDArray[np.uint8]


@dataclass
class Recording:
    """The pictures of one output, in order; all have the size of the first."""

    is_running: bool = True
    frames: list[int] = field(default_factory=list)
    pictures: list[Bytes] = field(default_factory=list)

    def add(self, frame: int, value: Any) -> None:
        """Notes the picture of a frame. A full recording ends."""
        if value is None or not is_picture(value) or (self.frames and frame <= self.frames[-1]):
            return
        picture = picture_bytes(value)[..., :3].copy()
        if self.pictures and picture.shape != self.pictures[0].shape:
            self.is_running = False
            return
        self.frames.append(frame)
        self.pictures.append(picture)
        is_full = len(self.pictures) >= MAX_FRAMES or len(self.pictures) * picture.nbytes >= _MAX_BYTES
        self.is_running = not is_full

    def picture(self, index: Any) -> tuple[int, Bytes]:
        """The frame number and the picture at an index."""
        if not isinstance(index, int) or not 0 <= index < len(self.pictures):
            raise MessageError("the recording has no such frame", expected=f"0 to {len(self.pictures) - 1}")
        return self.frames[index], self.pictures[index]


class Recorder:
    """The recordings of one engine, by output."""

    def __init__(self) -> None:
        self._recordings: dict[Pin, Recording] = {}

    @property
    def running(self) -> list[tuple[Pin, Recording]]:
        """The outputs to note after each frame."""
        return [(pin, recording) for pin, recording in self._recordings.items() if recording.is_running]

    def start(self, pin: Pin) -> None:
        """Begins a recording; an earlier one of this output is forgotten."""
        self._recordings[pin] = Recording()

    def stop(self, pin: Pin) -> Recording:
        """Ends a recording, and keeps it."""
        recording = self.recording(pin)
        recording.is_running = False
        return recording

    def forget(self, pin: Pin) -> None:
        """Frees a recording."""
        self._recordings.pop(pin, None)

    def recording(self, pin: Pin) -> Recording:
        """The recording of an output."""
        if pin not in self._recordings:
            raise MessageError("nothing is recorded", help="press Record first")
        return self._recordings[pin]


def film_program() -> str | None:
    """The program that encodes films, if it is installed."""
    return shutil.which("ffmpeg")


def export_animation(name: str, pictures: Sequence[Bytes], what: str, rate: float) -> File:
    """A recording as a file.

    >>> blink = [np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 255, np.uint8)]
    >>> export_animation("blink", blink, "apng", 2.0).content.count(b"fcTL")
    2
    """
    if not pictures:
        raise MessageError("nothing is recorded", help="press Record first")
    if what == "frames":
        return File(file_name(name, ".zip"), _zip(name, pictures))
    with tempfile.TemporaryDirectory(prefix="livegrad-studio-") as folder:
        path = Path(folder) / ("film.png" if what == "apng" else "film.mp4")
        if what == "apng":
            save_animation(pictures, path, frames_per_second=rate)
        else:
            _encode_film(pictures, path, rate)
        return File(file_name(name, path.suffix), path.read_bytes())


def _zip(name: str, pictures: Sequence[Bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:  # PNG files are compressed already
        for index, picture in enumerate(pictures):
            archive.writestr(file_name(f"{name} {index:05}", ".png"), write_png(picture))
    return stream.getvalue()


def _encode_film(pictures: Sequence[Bytes], path: Path, rate: float) -> None:
    program = film_program()
    if program is None:
        raise MessageError("films need ffmpeg, which is not installed", help="save an animation (PNG) instead")
    height, width = pictures[0].shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate:g}", "-i", "-"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"]  # what players expect
    command = [program, "-v", "error", "-y", *raw, *even, str(path)]
    frames = b"".join(picture.tobytes() for picture in pictures)
    done = subprocess.run(command, input=frames, capture_output=True, timeout=_ENCODER_SECONDS, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise MessageError("ffmpeg could not encode the film", found=reason[-1][:200] if reason else None)
