"""Writes the output of the tour to a folder: the part in several formats, the animation, the loss, and a page.

The 3MF file is read back and compared with the part.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.live.graph.drawing import draw_blocks
from livegrad.runtime.atomic_files import write_atomically
from livegrad.tools.chart import chart_svg
from livegrad.tools.tour import wheel
from livegrad.tools.tour.fit import INITIAL_MEASURES, sample_points
from livegrad.tools.tour.page import Outcome, page_html
from livegrad.tools.tour.script import FRAMES_PER_SECOND, Show

Progress = Callable[[str, float], None]


def write_target(folder: Path) -> lg.Part:
    """Writes the target as a 3MF file, and returns the part that is read from it."""
    lg.save_3mf(lg.implicit.assembly_of_part(wheel.target()), folder / "target.3mf")
    return lg.implicit.part_of_function(lg.load_3mf(folder / "target.3mf"), "target", wheel.BOUNDS)


def write_results(
    folder: Path, show: Show, poster: Any, target: lg.Part, feature_size: float, progress: Progress
) -> Outcome:
    """Writes all files, and returns the figures of the fit."""
    progress("the part, as 3MF and STL", 0.6)
    part = wheel.part(show.stage.measures)
    lg.save_3mf(lg.implicit.assembly_of_part(part, min_feature_size=feature_size), folder / "wheel.3mf")
    (reloaded,) = lg.parts(lg.load_3mf(folder / "wheel.3mf"))
    surface = lg.mesh(reloaded, feature_size=feature_size)
    lg.save_stl(surface, folder / "wheel.stl")
    test_points = sample_points(50_000, seed=1).numpy()
    measures = zip(INITIAL_MEASURES, map(float, show.stage.measures), strict=True)
    outcome = Outcome(
        dict(zip(wheel.MEASURES, measures, strict=True)),
        show.stage.engine.read(show.stage.fit["next_losses"]),
        float(np.mean((reloaded(test_points) < 0) == (target(test_points) < 0))),
        float(np.abs(reloaded(test_points) - part(test_points)).max()),
        len(surface.triangles),
        surface.is_closed(),
    )
    progress("the animation", 0.8)
    lg.save_animation(show.frames, folder / "animation.png", frames_per_second=FRAMES_PER_SECOND)
    lg.save_png(poster, folder / "poster.png")
    _write(folder / "loss.svg", chart_svg(outcome.losses.tolist(), title="the loss", across="steps of the fit"))
    _write(folder / "graph.svg", draw_blocks(show.stage.engine.graph))
    inside = show.stage.fit.bodies["body"]
    _write(folder / "fit.svg", draw_blocks(inside.graph, inside.inner_inputs))
    _write(folder / "index.html", page_html(show, outcome, folder))
    progress("done", 1.0)
    return outcome


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode())
