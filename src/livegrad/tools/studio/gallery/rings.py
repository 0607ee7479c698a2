"""Draws coloured rings: coordinates, a distance, waves, and a palette."""

from __future__ import annotations

from typing import Any

import livegrad as lg

SIZE = 384


def pixels(zoom: Any = 1.0) -> Any:
    """The coordinates of each pixel, from -1 to 1 at zoom 1."""
    line = lg.linspace(-1.0, 1.0, SIZE) / zoom
    x, y = lg.meshgrid(line, -line, indexing="xy")
    return x, y


def palette(rings: Any, warm: Any = (1.0, 0.62, 0.2), cool: Any = (0.08, 0.2, 0.45), contrast: Any = 1.0) -> Any:
    """A mix of two colours by the height of the rings."""
    amount = lg.expand_dims(lg.clip(0.5 + 0.5 * contrast * rings, 0.0, 1.0), axis=-1)
    return lg.asarray(cool) + (lg.asarray(warm) - lg.asarray(cool)) * amount


def build() -> lg.Engine:
    """Builds the graph."""
    engine = lg.Engine(compile="background")
    grid = engine.add(lg.block(pixels, outputs=("x", "y")))
    shape = engine.add(lg.block(lambda x, y, squareness=0.0: _distance(x, y, squareness), name="distance"))
    waves = engine.add(lg.block(lambda r, frequency=18.0, phase=0.0: lg.sin(r * frequency - phase), name="waves"))
    swirl = engine.add(lg.block(lambda waves, x, amount=0.3: waves + amount * lg.cos(x * 4.0), name="ripple"))
    colors = engine.add(lg.block(palette, name="picture"))
    engine.connect(grid["x"], shape["x"])
    engine.connect(grid["y"], shape["y"])
    engine.connect(shape, waves["r"])
    engine.connect(waves, swirl["waves"])
    engine.connect(grid["x"], swirl["x"])
    engine.connect(swirl, colors["rings"])
    grid["zoom"].control = lg.Control(0.25, 4.0)
    waves["frequency"].control = lg.Control(0.0, 60.0, step=0.5)
    waves["phase"].control = lg.Control(0.0, 6.283, unit="rad")
    swirl["amount"].control = lg.Control(0.0, 2.0)
    for name in ("warm", "cool"):
        colors[name].control = lg.Control(kind="colour")
    colors["contrast"].control = lg.Control(0.0, 3.0)
    return engine


def _distance(x: Any, y: Any, squareness: Any) -> Any:
    """Between the distance to the centre and the larger coordinate."""
    return (1.0 - squareness) * lg.hypot(x, y) + squareness * lg.maximum(lg.abs(x), lg.abs(y))
