"""Contenders of the implicit suite: livegrad with and without pruning or exact gradients, and NumPy.

`parts_expected` has the expected results."""

from functools import cache
from typing import Any

import numpy as np

from benchmarks import parts_limits, prospero
from benchmarks.contenders import Unavailable
from benchmarks.parts_expected import CORNER, TRIANGLES, draw_with_numpy, field, meshing, points
from benchmarks.problems import Problem, Run
from livegrad.implicit.bodies.part import Part, part_of_function
from livegrad.implicit.bodies.slicing import draw_plane
from livegrad.implicit.formats.vm import load_vm
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.resources import TriangleMesh

STEP = 1e-3
PART = """
q = abs(pos) - vector(1, 0.7, 0.5)
box = max(q.x, max(q.y, q.z))
hole = 0.3 - length(vector(pos.x, pos.y, 0))
max(box, hole)
"""


@cache
def part() -> Part:
    assembly = add_expression(Assembly(), "part", PART, {"pos": "vector"})
    return part_of_function(assembly, "part", (tuple(-corner for corner in CORNER), CORNER))


@cache
def tape() -> Part:
    return load_vm(prospero.PATH)


def meshed(problem: Problem, *, sharp: bool = True) -> TriangleMesh:
    return mesh(part(), feature_size=2 * 2.0 / problem.size, sharp=sharp)  # cells are half a feature


def _meshed(sharp: bool) -> Any:
    def build(problem: Problem) -> Run:
        first = meshed(problem, sharp=sharp)
        if not first.is_closed():
            raise Unavailable("its mesh is not closed")
        told = TRIANGLES[problem.kind][problem.size]
        if not 0.9 * told <= len(first.triangles) <= 1.1 * told:
            raise Unavailable(f"its mesh has {len(first.triangles):,} triangles, not about {told:,} as is told")

        def make() -> tuple[Any, Any]:
            result = meshed(problem, sharp=sharp)
            return result.vertices, result.triangles

        return meshing(make)

    return build


def differences(evaluate: Any, p: Any) -> Any:
    steps = np.eye(3, dtype=p.dtype) * p.dtype.type(STEP)
    return np.stack([(evaluate(p + step) - evaluate(p - step)) / p.dtype.type(2 * STEP) for step in steps], -1)


def _draw(pruned: bool) -> Any:
    def build(problem: Problem) -> Run:
        drawn, plain = (draw_plane(tape(), size=problem.size, pruned=choice) for choice in (pruned, False))
        if not np.array_equal(drawn, plain):
            raise Unavailable("its picture is not the plain one, pixel for pixel")
        return lambda: draw_plane(tape(), size=problem.size, pruned=pruned)

    return build


def _gradients(problem: Problem) -> Run:
    positions = points(problem.size)
    return lambda: part().gradient(positions)


def _differences(problem: Problem) -> Run:
    positions = points(problem.size)
    return lambda: differences(part(), positions)


def _numpy_differences(problem: Problem) -> Run:
    positions = points(problem.size)
    return lambda: differences(field, positions)


BUILDERS: dict[str, dict[str, Any]] = {
    "livegrad": {
        "prospero_drawn": _draw(True),
        "part_meshed": _meshed(True),
        "part_triangles": _meshed(False),
        "part_gradient": _gradients,
        **parts_limits.BUILDERS,
    },
    "plain": {"prospero_drawn": _draw(False)},
    "numpy_tape": {"prospero_drawn": lambda problem: lambda: draw_with_numpy(problem.size)},
    "differences": {"part_gradient": _differences},
    "numpy_differences": {"part_gradient": _numpy_differences},
}
