"""The live graph of the tour, with blocks for the camera and the screen."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegrad as lg
from livegrad.tools.tour import wheel
from livegrad.tools.tour.stage import Stage
from livegrad.tools.tour.view import DISTANCE, make_view

WIDTH, HEIGHT = 320, 240


def camera(turn: Any = 0.6, rise: Any = 0.72) -> Any:
    """The right, up and forward vectors and the eye, on a sphere around the part."""
    zero = turn * 0.0
    right = lg.stack([-lg.sin(turn), lg.cos(turn), zero])
    forward = -lg.stack([lg.cos(turn) * lg.cos(rise), lg.sin(turn) * lg.cos(rise), lg.sin(rise)])
    up = lg.stack([-lg.cos(turn) * lg.sin(rise), -lg.sin(turn) * lg.sin(rise), lg.cos(rise)])
    return lg.stack([right, up, forward, -DISTANCE * forward])


def screen(picture: Any) -> Any:
    """The colours in rows and columns."""
    return lg.reshape(picture, (HEIGHT, WIDTH, 3))


def build() -> lg.Engine:
    """Builds the graph."""
    engine = lg.Engine(compile="background")
    target = lg.implicit.part_of_function(lg.implicit.assembly_of_part(wheel.target()), "target", wheel.BOUNDS)
    stage = Stage(engine, target)
    stage.set_view(make_view().evaluate(animation_time=0.0, footprint=(WIDTH, HEIGHT), real_time=0.0))
    engine.set(stage.fit["count"], 40)
    eye = engine.add(lg.block(camera))
    engine.connect(eye, stage.lens["camera"])
    shown = engine.add(lg.block(screen))
    engine.connect(stage.finish, shown["picture"])
    eye["turn"].control = lg.Control(0.0, 2.0 * np.pi, kind="angle", group="camera")
    eye["rise"].control = lg.Control(-1.2, 1.2, kind="angle", group="camera")
    stage.fit["count"].control = lg.Control(1, 120, step=1, label="steps of the fit")
    for pin, high in ((stage.march["swell"], 0.2), (stage.shade["warmth"], 1.0), (stage.finish["exposure"], 2.0)):
        pin.control = lg.Control(0.0, high)
    return engine
