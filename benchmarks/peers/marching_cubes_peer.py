"""Marching cubes of scikit-image over a grid that NumPy fills: the usual way to mesh an implicit part."""
# pyright: reportMissingImports=false

from typing import Any

import numpy as np
import skimage
from skimage import measure

from benchmarks.parts_expected import CORNER, field, meshing
from benchmarks.problems import Problem, Run

VERSION = skimage.__version__
SLAB = 1 << 20  # points that NumPy evaluates at once


def build_triangles(problem: Problem) -> Run:
    step = 2.0 / problem.size
    axes = [np.arange(-corner, corner + step, step, dtype=np.float32) for corner in CORNER]

    def make() -> tuple[Any, Any]:
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
        values = np.concatenate([field(points[at : at + SLAB]) for at in range(0, len(points), SLAB)])
        vertices, faces, _, _ = measure.marching_cubes(values.reshape([len(axis) for axis in axes]), 0.0)
        return vertices * step, faces

    return meshing(make)


BUILDERS = {"part_triangles": build_triangles}
