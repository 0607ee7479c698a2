"""Random bodies as meshes: made, saved as 3MF, loaded and asked for signs, which must be those of the body.

The oracle evaluates the same tree of boxes, balls and cylinders in float64 and shares no code with livegrad.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import livegrad as lg
from livegrad.implicit.meshing.embedded_mesh import is_embedded
from tests.fuzz.parts import Tree, shape_of, value_of

SHORT = 2
_LIMIT = 2.0
_FEATURE = 0.12
_MOST_FOLDED = 0.02  # of the triangles: those in the cells of edges that two curved sides make


def random_body(generator: np.random.Generator) -> Tree:
    def leaf() -> Tree:
        kind = str(generator.choice(["box", "sphere", "cylinder"]))
        sizes = [float(np.float32(size)) for size in generator.uniform(0.5, 1.4, 3)]
        made: Tree = (kind, tuple(sizes)) if kind == "box" else (kind, *sizes[: 1 if kind == "sphere" else 2])
        made = (
            "turn",
            made,
            tuple(map(float, generator.normal(size=3).astype(np.float32))),
            float(np.float32(generator.uniform(-3, 3))),
        )
        return "move", made, tuple(map(float, generator.uniform(-0.4, 0.4, 3).astype(np.float32)))

    body = leaf()
    for _ in range(int(generator.integers(0, 3))):
        body = str(generator.choice(["union", "intersection", "difference"])), body, leaf()
    return body


def run_one(seed: int) -> Mapping[str, int]:
    generator = np.random.default_rng(seed)
    tree = random_body(generator)
    shown = f"meshes seed {seed}: {tree}"
    part = shape_of(tree).part(((-_LIMIT,) * 3, (_LIMIT,) * 3))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", lg.implicit.PartWarning)
        try:
            mesh = lg.mesh(part, feature_size=_FEATURE)
        except lg.implicit.AssemblyError as refused:
            if "thinner than the feature size" not in str(refused):
                raise AssertionError(f"{shown}: {refused}") from refused
            return {"refused": 1}
    if not len(mesh.triangles):
        return {"empty": 1}
    assert mesh.is_closed(), f"{shown}: the mesh is not closed"
    points = generator.uniform(-_LIMIT, _LIMIT, (1500, 3)).astype(np.float32).astype(np.float64)
    expected = value_of(tree, points)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mesh.3mf"
        lg.save_mesh(mesh, path)
        (loaded,) = lg.parts(lg.load_3mf(path))
    # The body's field is no less than a distance times this: closer to the surface a mesh may be anywhere.
    clear = np.abs(expected) > _FEATURE
    wrong = clear & ((loaded(points) < 0) != (expected < 0))
    assert not wrong.any(), f"{shown}: {wrong.sum()} signs, the first at {points[wrong][0]}"
    if any("smaller than cells" in str(warning.message) for warning in warned):
        return {"said to be lost in part": 1, "signs": int(clear.sum())}
    folded = _folded(tree, mesh)
    assert folded <= _MOST_FOLDED * len(mesh.triangles), f"{shown}: {folded} triangles are turned over"
    kind = "bounds a body" if is_embedded(mesh.vertices, mesh.triangles) else "has folds"
    return {kind: 1, "signs": int(clear.sum())}


def _folded(tree: Tree, mesh: lg.implicit.TriangleMesh) -> int:
    """Triangles that look inwards: outside is below their middles, and inside above."""
    corners = mesh.vertices[mesh.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1), 1e-300)[:, None]
    reach = _FEATURE / 8 * normals
    middles = corners.mean(1)
    return int(((value_of(tree, middles + reach) < 0) & (value_of(tree, middles - reach) > 0)).sum())
