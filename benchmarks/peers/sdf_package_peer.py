"""The `sdf` package of Michael Fogleman: it skips blocks that the distance excludes, and marches through the others.

It is not on the package index (an `sdf` there is another one); measured where it is installed from its repository."""

import importlib
from typing import Any

import numpy as np

from benchmarks.parts_expected import CORNER, meshing
from benchmarks.problems import Problem, Run

sdf: Any = importlib.import_module("sdf")
VERSION = "0.1"


def build_triangles(problem: Problem) -> Run:
    if not hasattr(sdf, "rounded_box"):
        raise ImportError("the sdf that is installed is another one; see github.com/fogleman/sdf")
    part = sdf.box((2.0, 1.4, 1.0)) - sdf.cylinder(0.3)
    bounds = (tuple(-corner for corner in CORNER), CORNER)

    def make() -> tuple[Any, Any]:
        points = np.array(part.generate(step=2.0 / problem.size, bounds=bounds, workers=2, verbose=False))
        return points, np.arange(len(points)).reshape(-1, 3)

    return meshing(make)


BUILDERS = {"part_triangles": build_triangles}
