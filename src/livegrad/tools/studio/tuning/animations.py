"""Animates parameters over time: numbers that follow a wave or a ramp of the Studio's clock while it plays."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from livegrad.live.engine import Engine
from livegrad.live.graph.block import Pin
from livegrad.live.graph.sources import Setting
from livegrad.tools.studio.edits import MessageError
from livegrad.tools.studio.values import Json

Shape = Literal["wave", "ramp", "bounce"]
_MAX_PERIOD = 86_400.0


@dataclass(frozen=True)
class Animation:
    """From `low` to `high` in `period` seconds: a sine wave, a ramp that starts again, or one that goes back.

    >>> wave, ramp, bounce = (Animation(shape, 0.0, 2.0, 4.0) for shape in ("wave", "ramp", "bounce"))
    >>> [round(animation.value(time), 6) for animation in (wave, ramp, bounce) for time in (0.0, 1.0, 2.0, 3.0)]
    [0.0, 1.0, 2.0, 1.0, 0.0, 0.5, 1.0, 1.5, 0.0, 1.0, 2.0, 1.0]
    """

    shape: Shape
    low: float
    high: float
    period: float

    def value(self, time: float) -> float:
        """The value at a time in seconds."""
        phase = (time / self.period) % 1.0
        share = phase
        if self.shape == "wave":
            share = 0.5 - 0.5 * math.cos(2.0 * math.pi * phase)
        elif self.shape == "bounce":
            share = 1.0 - abs(1.0 - 2.0 * phase)
        return self.low + (self.high - self.low) * share


def parse_animation(message: Any) -> Animation:
    """The animation in a message of a page."""
    match message:
        case {"shape": "wave" | "ramp" | "bounce" as shape, "low": low, "high": high, "period": period}:
            if all(map(_is_finite, (low, high, period))) and 0.01 <= period <= _MAX_PERIOD:
                return Animation(shape, float(low), float(high), float(period))
    raise MessageError("not an animation", expected="wave, ramp or bounce, with low, high and period")


def _is_finite(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < 1e300 and math.isfinite(value)


class Animations:
    """The animated inputs of a session. Their values are not recorded in the history."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._animations: dict[Pin, Animation] = {}

    def __len__(self) -> int:
        return len(self._animations)

    def put(self, pin: Pin, animation: Animation | None) -> None:
        """Animates an input with one number, or leaves it where it is."""
        if animation is None:
            self._animations.pop(pin, None)
            return
        source = None if pin.block.home is None else pin.block.home.source_of(pin)
        if not isinstance(source, Setting) or np.ndim(source.value) or np.asarray(source.value).dtype.kind not in "iuf":
            raise MessageError("only a number can be animated", found=str(pin))
        self._animations[pin] = animation

    def apply(self, time: float) -> None:
        """Sets the inputs to their values at a time."""
        with self._engine.history.paused():
            for pin, animation in self._animations.items():
                graph = pin.block.home
                source = None if graph is None or not pin.block.has(pin) else graph.source_of(pin)
                if graph is None or not isinstance(source, Setting):
                    continue
                value = animation.value(time)
                kind = type(source.value)
                graph.set(pin, value if kind is float else round(value) if kind is int else _like(value, source.value))

    def describe(self, key: Any) -> Json:
        """The animations as JSON, by the keys of their inputs."""
        return {key(pin): asdict(animation) for pin, animation in self._animations.items()}


def _like(value: float, current: Any) -> Any:
    array = np.asarray(current)
    return array.dtype.type(value if array.dtype.kind == "f" else round(value))
