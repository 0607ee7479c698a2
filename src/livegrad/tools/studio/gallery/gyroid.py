"""A cross-section through a part: a gyroid in a ball."""

from __future__ import annotations

import livegrad as lg
from livegrad.tools.studio.scenes import Scene
from livegrad.tools.studio.sections import part_scene


def build() -> Scene:
    """Builds the graph."""
    text = (
        "wave = sin(pos.x * 0.8) * cos(pos.y * 0.8) + sin(pos.y * 0.8) * cos(pos.z * 0.8)"
        " + sin(pos.z * 0.8) * cos(pos.x * 0.8); max(abs(wave) - 0.35, length(pos) - 10)"
    )
    shapes = lg.implicit.add_expression(lg.Assembly(), "gyroid", text, {"pos": "vector"})
    part = lg.implicit.part_of_function(shapes, "gyroid", ((-11, -11, -11), (11, 11, 11)))
    return part_scene(part)
