"""Contenders of the implicit suite: livegrad with and without pruning or exact gradients, and NumPy.

`parts_expected` has what each of them must give."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import prospero
from benchmarks.contenders import Unavailable
from benchmarks.parts_expected import draw_with_numpy, field, points
from benchmarks.problems import Problem, Run
from livegrad.authoring.assembly import Assembly, add_expression
from livegrad.authoring.assembly.meshing import mesh
from livegrad.authoring.assembly.part import Part, part_of_function
from livegrad.authoring.assembly.resources import TriangleMesh
from livegrad.authoring.assembly.slicing import draw_plane
from livegrad.formats.vm import load_vm

STEP = 1e-3
PART = """
q = abs(pos) - vector(1, 0.7, 0.5)
box = max(q.x, max(q.y, q.z))
hole = 0.3 - length(vector(pos.x, pos.y, 0))
max(box, hole)
"""


@cache
def part() -> Part:
    made = add_expression(Assembly(), "part", PART, {"pos": "vector"})
    return part_of_function(made, "part", ((-1.1, -0.8, -0.6), (1.1, 0.8, 0.6)))


@cache
def tape() -> Part:
    return load_vm(prospero.PATH)


def volume(problem: Problem) -> NDArray[np.float64]:
    found = meshed(problem)
    a, b, c = found.vertices[found.triangles].transpose(1, 0, 2)
    # A round hole meshed with flat triangles: its error goes with the square of the cell.
    return np.array([np.einsum("ij,ij->", a, np.cross(b, c)) / 6])


def meshed(problem: Problem) -> TriangleMesh:
    return mesh(part(), feature_size=2 * 2.0 / problem.size)  # cells are half a feature


def _meshed(problem: Problem) -> Run:
    if not meshed(problem).is_closed():
        raise Unavailable("its mesh is not closed")
    return lambda: volume(problem)


def differences(evaluate: Any, p: Any) -> Any:
    steps = np.eye(3, dtype=p.dtype) * p.dtype.type(STEP)
    return np.stack([(evaluate(p + step) - evaluate(p - step)) / p.dtype.type(2 * STEP) for step in steps], -1)


def _draw(pruned: bool) -> Any:
    def build(problem: Problem) -> Run:
        own, plain = (draw_plane(tape(), size=problem.size, pruned=choice) for choice in (pruned, False))
        if not np.array_equal(own, plain):
            raise Unavailable("its picture is not the plain one, pixel for pixel")
        return lambda: draw_plane(tape(), size=problem.size, pruned=pruned)

    return build


def _gradients(problem: Problem) -> Run:
    given = points(problem.size)
    return lambda: part().gradient(given)


def _differences(problem: Problem) -> Run:
    given = points(problem.size)
    return lambda: differences(part(), given)


def _numpy_differences(problem: Problem) -> Run:
    given = points(problem.size)
    return lambda: differences(field, given)


BUILDERS: dict[str, dict[str, Any]] = {
    "livegrad": {
        "prospero_drawn": _draw(True),
        "part_meshed": _meshed,
        "part_gradient": _gradients,
    },
    "plain": {"prospero_drawn": _draw(False)},
    "numpy_tape": {"prospero_drawn": lambda problem: lambda: draw_with_numpy(problem.size)},
    "differences": {"part_gradient": _differences},
    "numpy_differences": {"part_gradient": _numpy_differences},
}
