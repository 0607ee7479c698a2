"""The clock of the Studio: plays, pauses and steps, and the time that graphs read as `animation_time`."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

RATE = 60.0  # frames a second
_MAX_RATE = 1000.0
_LATEST = 1e6  # seconds


class Clock:
    """Says when the next frame is due. `now` is a function, so that tests need not wait.

    >>> clock = Clock(now=lambda: 10.0)
    >>> clock.play(True)
    >>> clock.seconds_until_due(), clock.take_frame(), clock.time
    (0.0, True, 0.016666666666666666)
    """

    def __init__(self, rate: float = RATE, now: Callable[[], float] = perf_counter) -> None:
        self.rate, self.time, self.is_playing = rate, 0.0, False
        self._now, self._due = now, 0.0
        self.speed = 1.0  # seconds of its time in a second
        self._steps = 0  # frames that were asked for while it pauses

    def play(self, is_playing: bool) -> None:
        """Starts or pauses."""
        if is_playing and not self.is_playing:
            self._due = self._now()
        self.is_playing = is_playing

    def step(self) -> None:
        """Asks for one frame."""
        self._steps += 1

    def rewind(self) -> None:
        """Sets the time to zero."""
        self.time = 0.0

    def seek(self, time: float) -> None:
        """Goes to a time, which later frames continue from."""
        if math.isfinite(time):
            self.time = min(max(time, 0.0), _LATEST)

    def set_speed(self, speed: float) -> None:
        """Sets how fast its time passes."""
        if math.isfinite(speed):
            self.speed = min(max(speed, 0.01), 100.0)

    def set_rate(self, rate: float) -> None:
        """Sets the number of frames a second."""
        if math.isfinite(rate):
            self.rate = min(max(rate, 0.1), _MAX_RATE)

    def describe(self) -> dict[str, float | bool]:
        """The state of the clock, as JSON.

        >>> Clock().describe()
        {'playing': False, 'time': 0.0, 'rate': 60.0, 'speed': 1.0}
        """
        return {"playing": self.is_playing, "time": self.time, "rate": self.rate, "speed": self.speed}

    def seconds_until_due(self) -> float | None:
        """How long to wait for the next frame; None if none is due before somebody asks for it."""
        if self._steps:
            return 0.0
        return max(0.0, self._due - self._now()) if self.is_playing else None

    def take_frame(self) -> bool:
        """Whether a frame is due now; if so, advances the time."""
        if self._steps:
            self._steps -= 1
        elif self.is_playing and self._due <= self._now():
            # A frame that took too long delays the next ones: they are not run in a burst.
            self._due = max(self._due + 1.0 / self.rate, self._now())
        else:
            return False
        self.time += self.speed / self.rate
        return True
