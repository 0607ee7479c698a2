"""Moves inputs so that an output takes a wanted value: least squares through exact gradients (Levenberg–Marquardt).

`pull` tries values on a `FrameGradient`, which runs nothing in the engine, and sets the best ones as one gesture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.live.blocks.least_squares import Box, minimise
from livegrad.live.blocks.rollout import FrameGradient, frame_gradient
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.sources import Numbers, Setting


@dataclass(frozen=True)
class PullResult:
    """What a pull did: the new values by pin, the distance from the wanted value before and after, and whether the
    distance is as small as it can be within the bounds.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    >>> _ = engine.step()
    >>> result = lg.live.pull(engine, of=double, to=10.0, by=[double["x"]])
    >>> round(result.values[double["x"]], 4), round(result.before, 4), round(result.after, 4), result.converged
    (5.0, 2.0, 0.0, True)
    """

    values: dict[Pin, Any]
    before: float
    after: float
    steps: int
    converged: bool


def pull(
    engine: Engine,
    *,
    of: Pin | Block,
    to: Any,
    by: Sequence[Pin],
    pinned: Iterable[Pin] = (),
    bounds: Mapping[Pin, tuple[float, float]] | None = None,
    frames: int = 1,
    damping: float = 1e-3,
    steps: int = 30,
    label: str = "pull",
) -> PullResult:
    """Sets inputs so that an output, in the last of the next `frames` frames, is as close as possible to `to`.

    The inputs in `by` move, except `pinned` ones, within `bounds`, which are by default the ranges of their controls. A
    larger `damping` makes shorter first steps. The new values are one entry of the history, with this label; nothing
    changes if no better values are found.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> def arm(a=0.1, b=0.2):
    ...     return lg.stack([lg.cos(a) + lg.cos(b), lg.sin(a) + lg.sin(b)])
    >>> arm = engine.add(lg.block(arm))
    >>> _ = engine.step()
    >>> result = pull(engine, of=arm, to=[1.0, 1.0], by=[arm["a"], arm["b"]])
    >>> _ = engine.step()
    >>> engine.read(arm).round(4).tolist(), result.converged, engine.history.undo()
    ([1.0, 1.0], True, 'pull')
    """
    _require_numbers(damping, steps)
    left_out = set(pinned)
    moving = [pin for pin in by if pin not in left_out]
    if not moving:
        raise UsageError("all inputs are pinned", where=caller_origin(), help="leave one of `by` free")
    gradient = frame_gradient(engine, of=of, by=moving, frames=frames)
    with engine.graph.editing():
        inputs = _Inputs(moving, bounds or {})
    problem = _Problem(gradient, inputs, to)
    fit = minimise(problem.residual, problem.jacobian, inputs.box, damping, steps)
    values = inputs.values(fit.point)
    if fit.after < fit.before:
        with engine.history.gesture(label):
            for pin, value in values.items():
                engine.set(pin, value)
    else:
        values = inputs.values(inputs.box.start)
    return PullResult(values, fit.before, fit.after, fit.steps, fit.converged)


def _require_numbers(damping: Any, steps: Any) -> None:
    if not isinstance(damping, int | float) or isinstance(damping, bool) or not (isfinite(damping) and damping > 0):
        raise UsageError("the damping must be positive", where=caller_origin(), found=shown(damping))
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise UsageError("`steps` counts steps", where=caller_origin(), expected="1 or above", found=shown(steps))


class _Inputs:
    """The values of inputs as one vector of float64, with bounds."""

    def __init__(self, pins: Sequence[Pin], bounds: Mapping[Pin, tuple[float, float]]) -> None:
        self.pins, self.settings = list(pins), [_setting_of(pin) for pin in pins]
        self._starts = [np.asarray(setting.value, np.float64) for setting in self.settings]
        start = np.concatenate([start.ravel() for start in self._starts])
        ranges = [_bounds_of(pin, bounds) for pin in pins]
        sizes = [start.size for start in self._starts]
        low, high = (np.repeat([pair[end] for pair in ranges], sizes) for end in (0, 1))
        self.box = Box(start, low, high)

    def split(self, vector: Numbers) -> dict[Pin, Numbers]:
        """The part of each pin."""
        ends = np.cumsum([start.size for start in self._starts])
        parts = np.split(vector, ends[:-1])
        return {pin: part.reshape(start.shape) for pin, part, start in zip(self.pins, parts, self._starts, strict=True)}

    def values(self, point: Numbers) -> dict[Pin, Any]:
        """The values to set, each of the type that its pin has."""
        parts = self.split(point).values()
        return {
            pin: float(part) if setting.value.__class__ is float else part.astype(setting.value.dtype)[()]
            for pin, setting, part in zip(self.pins, self.settings, parts, strict=True)
        }


def _setting_of(pin: Pin) -> Setting:
    source = None if pin.block.home is None or pin.direction == "output" else pin.block.home.source_of(pin)
    value = source.value if isinstance(source, Setting) else None
    if value.__class__ is not float and getattr(value, "dtype", np.dtype(bool)).kind != "f":
        help = "pull inputs that have a value and no connection"
        found = "no value" if value is None else shown(value)
        raise UsageError(f"`{pin}` cannot be pulled", where=caller_origin(), expected="floats", found=found, help=help)
    assert isinstance(source, Setting)
    return source


def _bounds_of(pin: Pin, bounds: Mapping[Pin, tuple[float, float]]) -> tuple[float, float]:
    control = pin.control
    low = high = None
    if pin in bounds:
        pair = bounds[pin]
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not pair[0] <= pair[1]:
            what = f"invalid bounds of `{pin}`"
            raise UsageError(what, where=caller_origin(), expected="(low, high)", found=shown(pair))
        low, high = pair
    elif control is not None:
        low, high = control.low, control.high
    return -inf if low is None else float(low), inf if high is None else float(high)


class _Problem:
    """The difference of an output from what it should be, as a function of the inputs, and its derivative."""

    def __init__(self, gradient: FrameGradient, inputs: _Inputs, to: Any) -> None:
        self._gradient, self._inputs = gradient, inputs
        self._shape = gradient.value().shape
        try:
            wanted = np.asarray(to, np.float64)
            self._wanted = np.broadcast_to(wanted, self._shape).ravel()
        except (TypeError, ValueError):
            expected = f"numbers of shape {self._shape}"
            what = f"`{gradient.of}` cannot become this"
            raise UsageError(what, where=caller_origin(), expected=expected, found=shown(to)) from None

    def _changes(self, point: Numbers) -> dict[Pin, Numbers]:
        return self._inputs.split(point - self._inputs.box.start)

    def residual(self, point: Numbers) -> Numbers:
        return self._gradient.value(self._changes(point)).astype(np.float64).ravel() - self._wanted

    def jacobian(self, point: Numbers) -> Numbers:
        """One row for each residual: by reverse mode, or by forward mode if there are fewer inputs."""
        changes, count = self._changes(point), len(point)
        if len(self._wanted) <= count:
            rows = (self._gradient.read(seed.reshape(self._shape), changes) for seed in np.eye(len(self._wanted)))
            return np.array([np.concatenate([np.ravel(part) for part in row.values()]) for row in rows], np.float64)
        columns = (self._gradient.tangent(self._inputs.split(unit), changes) for unit in np.eye(count))
        return np.array([column.ravel() for column in columns], np.float64).T
