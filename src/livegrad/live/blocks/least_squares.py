"""Nonlinear least squares within bounds: Levenberg–Marquardt, projected.

In: a residual and its exact derivative as functions of a vector. Out: the best vector that was found. Called by
`pull.py`, and by the Studio while somebody drags a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from livegrad.live.graph.sources import Numbers

_LARGEST_DAMPING = 1e12
_TINY = 1e-8  # of a value: a shorter step changes nothing that float32 can show
_FLOOR = 1e-12  # of the damping of an input without influence, relative to the most influential one


@dataclass(frozen=True)
class Fit:
    """The best point, the length of the residual before and after, and whether it is as short as it can be."""

    point: Numbers
    before: float
    after: float
    steps: int
    converged: bool


@dataclass(frozen=True)
class Box:
    """Where a search begins, its bounds, and the size of each number for damping (None: by its influence)."""

    start: Numbers
    low: Numbers
    high: Numbers
    size: Numbers | None = None


def minimise(
    residual: Callable[[Numbers], Numbers],
    jacobian: Callable[[Numbers], Numbers],
    box: Box,
    damping: float = 1e-3,
    steps: int = 30,
) -> Fit:
    """Levenberg–Marquardt with Marquardt's scaling, projected to the bounds.

    Marquardt's scaling lets all numbers contribute equally to a change of the residual. If the box has sizes, numbers
    move in proportion to their influence, measured in these sizes. A number that is at a bound and would leave it does
    not take part in a step.

    >>> box = Box(np.zeros(2), np.full(2, -2.0), np.full(2, 2.0))
    >>> fit = minimise(lambda x: x - [1.0, 3.0], lambda x: np.eye(2), box)
    >>> fit.point.round(4).tolist(), round(fit.after, 4), fit.converged
    ([1.0, 2.0], 1.0, True)
    """
    low, high = box.low, box.high
    before = _length(residual(box.start))
    point = np.clip(box.start, low, high)
    values = residual(point)
    distance, converged, taken = _length(values), False, 0
    while taken < steps and not converged and isfinite(distance):
        slopes = jacobian(point)
        descent = -(slopes.T @ values)
        free = ~(((point <= low) & (descent < 0)) | ((point >= high) & (descent > 0)))
        curvature = slopes[:, free].T @ slopes[:, free]
        scale = np.diag(curvature).copy()
        if not free.any() or not scale.max(initial=0.0) > 0.0 or not np.isfinite(slopes).all():
            converged = bool(np.isfinite(slopes).all())
            break
        scale = np.maximum(scale, _FLOOR * scale.max())
        if box.size is not None:
            size = box.size[free]
            scale = np.max(scale * size * size) / (size * size)
        while True:
            step = np.zeros_like(point)
            step[free] = np.linalg.solve(curvature + np.diag(damping * scale), descent[free])
            candidate = np.clip(point + step, low, high)
            tried = residual(candidate)
            shorter = _length(tried)
            is_tiny = bool((np.abs(candidate - point) <= _TINY * np.abs(candidate) + 1e-14).all())
            if shorter < distance:
                converged = is_tiny or distance - shorter <= 1e-9 * distance
                point, values, distance = candidate, tried, shorter
                damping, taken = max(damping / 5.0, 1e-15), taken + 1
                break
            damping *= 4.0
            if is_tiny or damping > _LARGEST_DAMPING:
                converged = True  # no step, however short, comes closer
                break
    return Fit(point, before, distance, taken, converged or distance == 0.0)


def _length(values: Numbers) -> float:
    return float(np.linalg.norm(values)) if np.isfinite(values).all() else inf
