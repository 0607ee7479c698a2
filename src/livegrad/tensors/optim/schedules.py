"""Learning rates that change from step to step: functions of the number of steps made, inside `jit` too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from livegrad.tensors.arithmetic import clip
from livegrad.tensors.creation import asarray
from livegrad.tensors.data_types import astype
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.handle import Tensor
from livegrad.tensors.optim.checks import require_settings
from livegrad.tensors.selection import where
from livegrad.tensors.transcendental import cos


def _count(step: Any) -> Tensor:
    return astype(asarray(step), DEFAULT_FLOAT)


def _share(step: Any, start: float, end: float) -> Tensor:
    """How much of the steps from `start` to `end` is done, from 0 to 1."""
    return clip((_count(step) - start) / max(end - start, 1e-9), 0.0, 1.0)


@dataclass(frozen=True)
class LinearSchedule:
    """From one learning rate to another in `steps` steps.

    >>> import livegrad as lg
    >>> schedule = lg.optim.LinearSchedule(1.0, 0.0, steps=4)
    >>> [float(schedule(step)) for step in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        require_settings(start=self.start, end=self.end, steps=self.steps)

    def __call__(self, step: Any) -> Tensor:
        return self.start + (self.end - self.start) * _share(step, 0, self.steps)


@dataclass(frozen=True)
class CosineSchedule:
    """Rises to the peak in `warmup` steps, then falls to `end` along half a cosine, until `steps`.

    >>> import livegrad as lg
    >>> schedule = lg.optim.CosineSchedule(1.0, steps=12, warmup=2)
    >>> [round(float(schedule(step)), 2) for step in (0, 1, 2, 7, 12)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    peak: float
    steps: int
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        require_settings(peak=self.peak, end=self.end, steps=self.steps, warmup=self.warmup)

    def __call__(self, step: Any) -> Tensor:
        height = (1.0 + cos(math.pi * _share(step, self.warmup, self.steps))) / 2.0
        falling = self.end + (self.peak - self.end) * height
        return where(_count(step) < self.warmup, self.peak * _share(step, 0, self.warmup), falling)


@dataclass(frozen=True)
class ExponentialSchedule:
    """Multiplies the learning rate by `factor` in each `steps` steps, continuously.

    >>> import livegrad as lg
    >>> schedule = lg.optim.ExponentialSchedule(1.0, factor=0.25, steps=2)
    >>> [float(schedule(step)) for step in (0, 1, 2)]
    [1.0, 0.5, 0.25]
    """

    start: float
    factor: float
    steps: int = 1

    def __post_init__(self) -> None:
        require_settings(start=self.start, factor=self.factor, steps=self.steps)

    def __call__(self, step: Any) -> Tensor:
        return self.start * self.factor ** (_count(step) / self.steps)


@dataclass(frozen=True)
class OneCycleSchedule:
    """Rises from `peak / start_divisor` to the peak, then falls to `peak / end_divisor`, along halves of a cosine.

    >>> import livegrad as lg
    >>> schedule = lg.optim.OneCycleSchedule(1.0, steps=10, rising=0.2)
    >>> [round(float(schedule(step)), 2) for step in (0, 1, 2, 6, 10)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """

    peak: float
    steps: int
    rising: float = 0.3  # the share of the steps
    start_divisor: float = 25.0
    end_divisor: float = 10000.0

    def __post_init__(self) -> None:
        require_settings(peak=self.peak, steps=self.steps, rising=self.rising)

    def __call__(self, step: Any) -> Tensor:
        top = self.rising * self.steps
        rise = (1.0 - cos(math.pi * _share(step, 0, top))) / 2.0
        fall = (1.0 + cos(math.pi * _share(step, top, self.steps))) / 2.0
        start, end = self.peak / self.start_divisor, self.peak / self.end_divisor
        return where(_count(step) < top, start + (self.peak - start) * rise, end + (self.peak - end) * fall)


@dataclass(frozen=True)
class StepSchedule:
    """Multiplies the learning rate by a factor at certain steps.

    >>> import livegrad as lg
    >>> schedule = lg.optim.StepSchedule(1.0, {10: 0.5, 20: 0.5})
    >>> [float(schedule(step)) for step in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """

    start: float
    factors: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_settings(start=self.start, **{f"factors[{step}]": factor for step, factor in self.factors.items()})

    def __call__(self, step: Any) -> Tensor:
        rate: Any = asarray(self.start, dtype=DEFAULT_FLOAT)
        for first, factor in sorted(self.factors.items()):
            rate = where(_count(step) >= first, rate * factor, rate)
        return rate
