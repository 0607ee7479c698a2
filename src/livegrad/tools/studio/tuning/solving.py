"""Moves sliders so that a measure takes a value (a pull), and the steps of an optimiser (a fit).

In: a `Measure` and the sliders that may move. Out: new values. The thread of `tuner.py` calls it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError
from livegrad.live.blocks.least_squares import Box, minimise
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Pin
from livegrad.live.graph.sources import Numbers, Setting
from livegrad.tools.studio.controls import control_of
from livegrad.tools.studio.tuning.measures import Measure, value_of

Values = dict[Pin, Numbers]
_PULL_STEPS = 12
_BATCH_SECONDS = 0.02  # of steps of a fit between two frames that show them


class Sliders:
    """Sliders as one vector, with their bounds, and the ranges in which their movements are measured."""

    def __init__(self, engine: Engine, pins: Iterable[Pin]) -> None:
        self._engine = engine
        values = {pin: value for pin in pins if (value := value_of(engine, pin)) is not None}
        if not values:
            raise UsageError("no slider is free to move", help="unpin one of the sliders that it depends on")
        self.values: Values = {pin: np.asarray(value, np.float64) for pin, value in values.items()}
        limits = [_limits(pin) for pin in self.values]
        sizes = [value.size for value in self.values.values()]
        low, high, size = (np.repeat([limit[end] for limit in limits], sizes) for end in range(3))
        self.box = Box(self.join(self.values), low, high, size)

    def join(self, values: Mapping[Pin, Any]) -> Numbers:
        """The values of these sliders as one vector; zero for those that are missing."""
        parts = [np.ravel(values.get(pin, np.zeros_like(value))) for pin, value in self.values.items()]
        return np.concatenate(parts).astype(np.float64)

    def split(self, vector: Numbers) -> Values:
        """The inverse of `join`."""
        ends = np.cumsum([value.size for value in self.values.values()])[:-1]
        parts = np.split(vector, ends)
        return {pin: part.reshape(value.shape) for (pin, value), part in zip(self.values.items(), parts, strict=True)}

    def changes(self, vector: Numbers) -> Values:
        """What the sliders must change by to have these values. They may have been moved meanwhile."""
        now = {pin: value_of(self._engine, pin) for pin in self.values}
        return {pin: part - number for pin, part in self.split(vector).items() if (number := now[pin]) is not None}


def _limits(pin: Pin) -> tuple[float, float, float]:
    """The bounds of a slider, which only its control sets, and the size of its range."""
    source = None if pin.block.home is None else pin.block.home.source_of(pin)
    assert isinstance(source, Setting)
    shown = control_of(pin, source)
    size = float(shown["high"]) - float(shown["low"])
    is_bounded = shown["kind"] == "colour" or (pin.control is not None and pin.control.low is not None)
    return (float(shown["low"]), float(shown["high"]), size) if is_bounded else (-math.inf, math.inf, size)


def set_slider(pin: Pin, value: Numbers) -> None:
    """Sets a slider to a value in the type that it has: a Python float stays one."""
    graph = pin.block.home
    source = None if graph is None else graph.source_of(pin)
    if graph is not None and isinstance(source, Setting):
        is_float = source.value.__class__ is float
        graph.set(pin, float(value) if is_float else np.asarray(value, np.asarray(source.value).dtype)[()])


def pull_toward(measure: Measure, sliders: Sliders, to: Sequence[float]) -> Values:
    """The values with which a measure comes as close to a value as it can, with the least movement."""
    wanted = measure.toward(to)

    def residual(point: Numbers) -> Numbers:
        return wanted.value(sliders.changes(point))

    def jacobian(point: Numbers) -> Numbers:
        changes = sliders.changes(point)
        rows = [wanted.gradient(unit, changes) for unit in np.eye(len(residual(point)))]
        return np.array([sliders.join(row) for row in rows])

    return sliders.split(minimise(residual, jacobian, sliders.box, steps=_PULL_STEPS).point)


@dataclass
class Descent:
    """Minimises the mean of a measure step by step: Adam, in units of the sliders' ranges, within their bounds.

    The step becomes shorter when the loss stops falling, until it is done.
    """

    measure: Measure
    sliders: Sliders
    sign: float = 1.0  # -1 maximises
    rate: float = 0.02  # of the range, in one step
    steps: int = 0
    is_done: bool = False
    losses: list[float] = field(default_factory=list[float])  # since the last batch
    _patience: int = 0

    def __post_init__(self) -> None:
        self.point = np.clip(self.sliders.box.start, self.sliders.box.low, self.sliders.box.high)
        self._first, self._second = np.zeros_like(self.point), np.zeros_like(self.point)
        self._moments = 0
        self._best, self._best_point = math.inf, self.point

    def run_batch(self) -> Values:
        """Makes a few steps and returns the values to show."""
        self.losses = []
        end = perf_counter() + _BATCH_SECONDS
        while not self.is_done:
            self._step()
            if perf_counter() >= end:
                break
        return self.sliders.split(self.point)

    def _step(self) -> None:
        changes = self.sliders.changes(self.point)
        values = self.measure.value(changes)
        loss = float(np.mean(values))
        self.losses.append(loss)
        self.steps += 1
        if not math.isfinite(loss):
            if not math.isfinite(self._best):
                raise UsageError("the loss is not a finite number", found=str(loss))
            self._shorten()
            return
        if self._is_better(self.sign * loss):
            self._best, self._best_point, self._patience = self.sign * loss, self.point, 0
        else:
            self._patience += 1
            if self._patience > 12:
                self._shorten()
                return
        weights = np.full(len(values), self.sign / len(values))
        self._move(self.sliders.join(self.measure.gradient(weights, changes)))

    def _is_better(self, loss: float) -> bool:
        return loss < self._best - 1e-7 * max(1e-30, abs(self._best)) or not math.isfinite(self._best)

    def _shorten(self) -> None:
        """Goes on from the best point with shorter steps."""
        self.point = self._best_point
        self._first[:], self._second[:] = 0.0, 0.0
        self._moments = self._patience = 0
        self.rate /= 3.0
        self.is_done = self.rate < 1e-6

    def _move(self, gradient: Numbers) -> None:
        box = self.sliders.box
        assert box.size is not None
        slope = gradient * box.size
        if not np.isfinite(slope).all():
            raise UsageError("the gradient is not finite", help="move a slider away from here")
        held = ((self.point <= box.low) & (slope > 0)) | ((self.point >= box.high) & (slope < 0))
        slope[held] = 0.0
        if not slope.any():
            self._shorten()
            self.is_done = True
            return
        self._moments += 1
        self._first = 0.9 * self._first + 0.1 * slope
        self._second = 0.99 * self._second + 0.01 * slope * slope
        first, second = self._first / (1 - 0.9**self._moments), self._second / (1 - 0.99**self._moments)
        step = self.rate * box.size * first / (np.sqrt(second) + 1e-30)
        self.point = np.clip(self.point - step, box.low, box.high)
