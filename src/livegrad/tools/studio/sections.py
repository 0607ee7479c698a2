"""A live graph that shows a part: the points of a plane, the distance at each, and a picture of it.

In: a part. Out: an engine with sliders for the parameters, the height of the plane and the colours; and the block that
the 3D view draws. Called by `subjects.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import livegrad as lg
from livegrad.implicit.bodies.part import Part
from livegrad.tools.studio.scenes import PartField, Scene

WIDTH = 320  # pixels


def part_scene(part: Part) -> Scene:
    """The graph of a cross-section through a part.

    >>> from livegrad.implicit.nodes.assembly import Assembly
    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> from livegrad.implicit.bodies.part import part_of_function
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> engine = part_scene(part_of_function(shapes, "ball", bounds=((-1, -1, -1), (1, 1, 1)))).engine
    >>> engine.step().ok, engine.peek(engine.graph.blocks["picture"]).shape
    (True, (320, 320, 3))
    """
    low, high = np.asarray(part.low), np.asarray(part.high)
    margin = 0.04 * float(np.max(high - low))
    height = max(16, round(WIDTH * float((high[1] - low[1] + 2 * margin) / (high[0] - low[0] + 2 * margin))))
    rows = min(height, 4 * WIDTH)
    left, right, bottom, top = (
        float(v) for v in (low[0] - margin, high[0] + margin, low[1] - margin, high[1] + margin)
    )
    middle = float(low[2] + high[2]) / 2.0

    def plane(z: Any = middle) -> Any:
        x, y = lg.meshgrid(lg.linspace(left, right, WIDTH), lg.linspace(top, bottom, rows), indexing="xy")
        return lg.reshape(lg.stack([x, y, x * 0.0 + z], axis=-1), (-1, 3))

    def picture(
        distance: Any, inside: Any = (0.93, 0.66, 0.28), outside: Any = (0.93, 0.95, 0.98), lines: Any = margin / 2.0
    ) -> Any:
        """The section in one colour, and lines of equal distance around it."""
        field = lg.reshape(distance, (rows, WIDTH, 1))
        cover = lg.clip(0.5 - field * (2.0 * WIDTH / (right - left)) / 2.0, 0.0, 1.0)
        shade = 1.0 - 0.12 * (0.5 + 0.5 * lg.cos(field * (6.283 / lines))) * (1.0 - cover)
        return (lg.asarray(outside) + (lg.asarray(inside) - lg.asarray(outside)) * cover) * shade

    engine = lg.Engine(compile="background")
    points = engine.add(lg.block(plane))
    names = ("points", *part.parameter_names, *part.table_names)
    lifted = [name == "points" for name in names]
    body = lg.ir.map_over(part.function, lifted)
    distance = engine.add(lg.block(body, name="distance", inputs=names))
    drawn = engine.add(lg.block(picture))
    engine.connect(points, distance["points"])
    engine.connect(distance, drawn["distance"])
    for name, value in zip(names[1:], part.arguments, strict=True):
        engine.set(distance[name], value)
        distance[name].control = part.controls.get(name)
    points["z"].control = lg.Control(float(low[2]), float(high[2]))
    for name in ("inside", "outside"):
        drawn[name].control = lg.Control(kind="colour")
    drawn["lines"].control = lg.Control(margin / 10.0, 4.0 * margin)
    return Scene(engine, PartField(part, distance))
