"""What a page has chosen to differentiate: an output, an element of it, or a point of the surface of a part.

In: JSON. Out: a `Target`, which stays valid while the graph is edited.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from livegrad.live.graph.block import Pin
from livegrad.tools.studio.describe import Describer
from livegrad.tools.studio.edits import Edits, MessageError
from livegrad.tools.studio.values import Json

MAX_FRAMES = 1000
_MAX_AXES = 8


@dataclass(frozen=True)
class Target:
    """An output (`pin`), of which `index` chooses an element or a row of elements; or a point in space.

    Without an index, an array stands for its mean. `frames` is how many frames later the output is read.
    """

    pin: Pin | None = None
    index: tuple[int, ...] | None = None
    frames: int = 1
    point: tuple[float, float, float] | None = None

    def to_json(self, describer: Describer) -> Json:
        """The target as pages know it."""
        if self.pin is None:
            return {"point": None if self.point is None else list(self.point)}
        index = None if self.index is None else list(self.index)
        return {"pin": [describer.id_of(self.pin.block), self.pin.name], "index": index, "frames": self.frames}

    @property
    def label(self) -> str:
        """The target in words.

        >>> Target(point=(0.0, 1.0, 0.25)).label
        'surface at (0, 1, 0.25)'
        """
        if self.point is not None:
            return f"surface at ({', '.join(f'{x:.3g}' for x in self.point)})"
        at = "" if self.index is None else f"[{', '.join(map(str, self.index))}]"
        return f"{self.pin}{at}"


def parse_target(of: Any, edits: Edits) -> Target:
    """The target in a message of a page."""
    if not isinstance(of, dict):
        raise MessageError("not an output", found=repr(of)[:60])
    if "point" in of:
        return Target(point=parse_point(of["point"]))
    pin, index, frames = edits.pin(of.get("pin"), "output"), of.get("index"), of.get("frames", 1)
    is_index = isinstance(index, list) and len(index) <= _MAX_AXES and all(map(_is_count, index))
    if index is not None and not is_index:
        raise MessageError("not an element", found=repr(index)[:60])
    if not _is_count(frames) or not 1 <= frames <= MAX_FRAMES:
        raise MessageError("not a number of frames", expected=f"1 to {MAX_FRAMES}", found=repr(frames)[:60])
    return Target(pin, None if index is None else tuple(index), frames)


def parse_point(point: Any) -> tuple[float, float, float]:
    """Three finite coordinates."""
    if not isinstance(point, list) or len(point) != 3 or not all(map(_is_finite, point)):
        raise MessageError("not a point", found=repr(point)[:60])
    return float(point[0]), float(point[1]), float(point[2])


def parse_numbers(to: Any) -> list[float]:
    """The value that an output shall take: a number, or a few of them."""
    numbers = to if isinstance(to, list) else [to]
    if not 0 < len(numbers) <= 64 or not all(map(_is_finite, numbers)):
        raise MessageError("not a value", found=repr(to)[:60])
    return [float(number) for number in numbers]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _is_finite(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)
    )
