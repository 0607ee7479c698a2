"""Fits a curve to noisy points by gradient descent: the gradient is a block of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegrad as lg

POINTS, WIDTH, HEIGHT = 48, 320, 240


def points(amplitude: Any = 0.6, frequency: Any = 3.0, noise: Any = 0.05) -> Any:
    """Points near a wave."""
    x = lg.linspace(-1.0, 1.0, POINTS)
    scatter = lg.sin(x * 9173.0) * 43758.5453
    return x, amplitude * lg.sin(frequency * x) + noise * (scatter - lg.floor(scatter) - 0.5) * 2.0


def polynomial(x: Any, weights: Any) -> Any:
    """A polynomial of degree five."""
    return sum(weights[index] * x**index for index in range(6))


def loss(weights: Any, x: Any, y: Any) -> Any:
    """The mean squared distance of the curve from the points."""
    return lg.mean((polynomial(x, weights) - y) ** 2.0)


def descend(weights: Any, gradient: Any, rate: Any = 0.4) -> Any:
    """A step against the gradient."""
    return weights - rate * gradient


def draw(weights: Any, x: Any, y: Any, ink: Any = (0.85, 0.3, 0.2)) -> Any:
    """The curve and the points as a picture."""
    across, down = lg.linspace(-1.05, 1.05, WIDTH), lg.linspace(1.05, -1.05, HEIGHT)
    curve = lg.exp(-(((down[:, None] - polynomial(across, weights)[None, :]) * 60.0) ** 2.0))
    near = (down[:, None, None] - y) ** 2.0 + (across[None, :, None] - x) ** 2.0
    dots = lg.max(lg.exp(-near * 6000.0), axis=-1)
    paper = 0.97 - 0.85 * dots[:, :, None] * lg.asarray((1.0, 0.75, 0.45))
    return paper + (lg.asarray(ink) - paper) * curve[:, :, None]


def build() -> lg.Engine:
    """Builds the graph."""
    engine = lg.Engine(compile="background")
    weights = engine.add(lg.State("weights", np.zeros(6, np.float32)))
    data = engine.add(lg.block(points, outputs=("x", "y")))
    error = engine.add(lg.block(loss))
    slope = engine.add(lg.grad(of=error, by=[error["weights"]], name="gradient"))
    step = engine.add(lg.block(descend))
    picture = engine.add(lg.block(draw, name="picture"))
    engine.connect(weights, error["weights"])
    for reader in (error, picture):
        engine.connect(data["x"], reader["x"])
        engine.connect(data["y"], reader["y"])
    engine.connect(weights, step["weights"])
    engine.connect(slope["weights"], step["gradient"])
    engine.connect(step, weights["next"])
    engine.connect(weights, picture["weights"])
    data["amplitude"].control = lg.Control(-1.0, 1.0)
    data["frequency"].control = lg.Control(0.5, 6.0)
    data["noise"].control = lg.Control(0.0, 0.3)
    picture["ink"].control = lg.Control(kind="colour")
    step["rate"].control = lg.Control(0.0, 1.0)
    return engine
