"""Builds the live graph of the tour: all blocks in one engine, connected.

`Stage(engine, target)` builds the graph, and `script.py` edits it. The target is a part read from a 3MF file, whose
function is used directly as a block.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.tools.tour import fit, picture
from livegrad.tools.tour.view import View

SAMPLES = 12_000
PIXEL = lg.ir.Dimension.symbol("pixels")
Column = lg.ir.types.Tensor(lg.ir.types.f32, (PIXEL,))
Pairs = lg.ir.types.Tensor(lg.ir.types.f32, (PIXEL, 2))
Triples = lg.ir.types.Tensor(lg.ir.types.f32, (PIXEL, 3))
# The types of pins with one value per pixel, by name.
PIXEL_TYPES = {
    "pixels": Pairs,
    "rays": Triples,
    "points": Triples,
    "normals": Triples,
    "color": Triples,
    "backdrop": Triples,
    "open": Column,
    "cover": Column,
    "miss": Column,
}


class Stage:
    """The live graph: samples → fit → march → face → shade → finish, and `miss`, the distance to the target."""

    def __init__(self, engine: lg.Engine, target: lg.Part) -> None:
        self.engine = engine
        points = fit.sample_points(SAMPLES)
        self.fit = fit.make_fit(points, lg.asarray(target(points.numpy())), engine)
        self.lens = self._add(picture.lens, "eye", "rays", "grain")
        self.march = self._add(picture.march, "points", "cover", swell=0.0)
        self.face = self._add(picture.face, "normals", "open")
        self.miss = engine.add(lg.block(lg.ir.map_over(target.function), name="miss", inputs=("points",)))
        self.shade = self._add(picture.shade, "color", warmth=0.0, heat=1.0)
        self.finish = self._add(picture.finish, "picture", exposure=1.0)
        self._connect()

    def _add(self, function: Callable[..., Any], *outputs: str, **numbers: float) -> lg.Block:
        """Adds a block named after the function, with its hot parameters."""
        parameters = signature(function).parameters
        inputs = {name: type for name, type in PIXEL_TYPES.items() if name in parameters}
        block = self.engine.add(lg.block(function, inputs=inputs, outputs=outputs))
        for name, value in numbers.items():
            self.engine.set(block[name], np.float32(value))
        return block

    def _connect(self) -> None:
        engine, march = self.engine, self.march
        for name in ("eye", "rays", "grain"):
            engine.connect(self.lens[name], march[name])
        engine.connect(self.lens["rays"], self.shade["rays"])
        for reader in (march, self.face):
            engine.connect(self.fit["next_measures"], reader["measures"])
        for reader in (self.face, self.miss, self.shade):
            engine.connect(march["points"], reader["points"])
        for name in ("normals", "open"):
            engine.connect(self.face[name], self.shade[name])
        engine.connect(self.miss, self.shade["miss"])
        engine.connect(self.shade, self.finish["color"])
        engine.connect(march["cover"], self.finish["cover"])

    def set_view(self, view: View) -> None:
        """Sets the pixels, the camera and the backdrop. Unchanged values cause no update."""
        self.engine.set(self.lens["pixels"], view.pixels)
        self.engine.set(self.lens["camera"], view.camera)
        self.engine.set(self.finish["backdrop"], view.backdrop)

    def add_ink(self) -> lg.Block:
        """Inserts a block between `shade` and `finish` while the engine runs."""
        engine = self.engine
        ink = self._add(picture.ink, "inked", width=0.3)
        engine.connect(self.shade, ink["color"])
        engine.connect(self.face["normals"], ink["normals"])
        engine.connect(self.lens["rays"], ink["rays"])
        engine.connect(ink, self.finish["color"])
        return ink

    def colors(self) -> np.ndarray[Any, Any]:
        """Red, green and blue of every pixel, from 0 to 1. Waits until the frame is complete."""
        return self.engine.read(self.finish)

    @property
    def measures(self) -> np.ndarray[Any, Any]:
        """The fitted measures."""
        return self.engine.read(self.fit["next_measures"])
