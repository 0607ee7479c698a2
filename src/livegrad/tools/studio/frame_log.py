"""The last frames of an engine in which something happened, and why each block ran in them or did not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from livegrad.live.frame import Frame
from livegrad.live.graph.block import Block
from livegrad.tools.studio.describe import Describer
from livegrad.tools.studio.values import Json

_MAX_FRAMES = 240


class FrameLog:
    """Remembers frames. A frame without work is not remembered."""

    def __init__(self, last: Frame) -> None:
        self._last = last
        self._frames: deque[Frame] = deque(maxlen=_MAX_FRAMES)

    def note(self, frame: Frame) -> None:
        """Remembers a frame."""
        self._last = frame
        if frame.ran or frame.changes or frame.problems:
            self._frames.append(frame)

    def find(self, number: int | None) -> Frame | None:
        """The frame with a number, or the last one."""
        if number is None:
            return self._last
        return next((frame for frame in self._frames if frame.number == number), None)

    def list(self, describer: Describer) -> list[Json]:
        """The frames as JSON: number, level, and how many blocks ran."""
        blocks = describer.block_by_key
        return [
            {"number": frame.number, "level": frame.level.name.lower(), "ran": sum(key in blocks for key in frame.ran)}
            for frame in self._frames
        ]

    def reasons(self, frame: Frame, blocks: Iterable[Block], describer: Describer) -> Json:
        """For each block whether it ran, and why or why not."""
        keys: dict[Block, list[str]] = {}
        for key, block in describer.block_by_key.items():
            keys.setdefault(block, []).append(key)
        return {describer.id_of(block): _reason(frame, keys.get(block, [])) for block in blocks}


def _reason(frame: Frame, keys: Iterable[str]) -> Json:
    for key in keys:
        change = frame.changes.get(key)
        if key in frame.failed:
            return {"ran": False, "level": None, "text": "failed, or reads a result that failed"}
        if key in frame.reasons:
            level = "ran" if change is None or not change.level else change.level.name.lower()
            return {"ran": True, "level": level, "text": frame.reasons[key]}
        if key in frame.unneeded:
            return {"ran": False, "level": None, "text": "no taken branch reads it"}
        if key in frame.spared:
            return {"ran": False, "level": None, "text": "what it reads was computed again, with equal results"}
    return {"ran": False, "level": None, "text": "none of its inputs changed"}
