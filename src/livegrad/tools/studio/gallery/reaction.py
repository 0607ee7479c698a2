"""The Gray-Scott model: one chemical feeds on another, and both diffuse."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegrad as lg

SIZE = 160


def spread(x: Any) -> Any:
    """The difference of each cell to the mean of its neighbours, on a torus."""
    sides = lg.roll(x, 1, axis=0) + lg.roll(x, -1, axis=0) + lg.roll(x, 1, axis=1) + lg.roll(x, -1, axis=1)
    return 0.25 * sides - x


def react(u: Any, v: Any, feed: Any = 0.037, kill: Any = 0.06, diffusion: Any = 0.8) -> Any:
    """One step in time."""
    eaten = u * v * v
    next_u = u + diffusion * spread(u) - eaten + feed * (1.0 - u)
    next_v = v + 0.5 * diffusion * spread(v) + eaten - (feed + kill) * v
    return next_u, next_v


def paint(v: Any, ink: Any = (0.05, 0.22, 0.35), paper: Any = (0.97, 0.95, 0.9), depth: Any = 3.0) -> Any:
    """Ink on paper by the amount of the second chemical."""
    cover = lg.expand_dims(lg.clip(v * depth, 0.0, 1.0), axis=-1)
    return lg.asarray(paper) + (lg.asarray(ink) - lg.asarray(paper)) * cover


def build() -> lg.Engine:
    """Builds the graph."""
    random = np.random.default_rng(3)
    u, v = np.ones((SIZE, SIZE), np.float32), np.zeros((SIZE, SIZE), np.float32)
    for x, y in random.integers(10, SIZE - 10, (18, 2)):
        u[y - 4 : y + 4, x - 4 : x + 4], v[y - 4 : y + 4, x - 4 : x + 4] = 0.5, 0.35
    engine = lg.Engine(compile="background")
    food, eater = engine.add(lg.State("food", u)), engine.add(lg.State("eater", v))
    step = engine.add(lg.block(react, outputs=("food", "eater")))
    picture = engine.add(lg.block(paint, name="picture"))
    engine.connect(food, step["u"])
    engine.connect(eater, step["v"])
    engine.connect(step["food"], food["next"])
    engine.connect(step["eater"], eater["next"])
    engine.connect(step["eater"], picture["v"])
    step["feed"].control = lg.Control(0.01, 0.08, step=0.0005)
    step["kill"].control = lg.Control(0.04, 0.07, step=0.0005)
    step["diffusion"].control = lg.Control(0.2, 1.0)
    for name in ("ink", "paper"):
        picture[name].control = lg.Control(kind="colour")
    picture["depth"].control = lg.Control(1.0, 8.0)
    return engine
