"""Expected results of the implicit suite: the tape drawn by NumPy, the volume of the part, its gradient by hand."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import prospero, sdf

LIMITS = {"nested_calls": (0.4, 0.9), "bounds_of_sines": (0.0,), "thin_part": (1.0,), "prospero_rendered": (1.0,)}
KINDS = ("prospero_drawn", "part_meshed", "part_triangles", "part_gradient", *LIMITS)
CORNER = (1.1, 0.8, 0.6)  # of the box that is looked through
ROUGH = 0.02  # marching cubes cuts edges off, and some of the volume with them
AT_ONCE = 1 << 14
# Triangles of meshes, by cells a side: told in the titles of rows, and checked when those are measured.
TRIANGLES = {
    "part_meshed": {64: 4_398, 128: 10_398, 256: 19_286, 512: 62_934},
    "part_triangles": {64: 8_960, 128: 19_300, 256: 40_378, 512: 103_830},
}
MARCHING_CUBES = {64: 29_180, 128: 116_736, 256: 467_384}  # of scikit-image, over the same grid
OPERATIONS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "square": np.square,
    "sqrt": np.sqrt,
    "min": np.minimum,
    "max": np.maximum,
}


def points(count: int) -> NDArray[np.float32]:
    generator = np.random.default_rng(0)
    return generator.uniform(-1.2, 1.2, (count, 3)).astype(np.float32)


def field(p: Any) -> Any:
    """The part once more, in NumPy."""
    away = np.abs(p) - np.array([1, 0.7, 0.5], p.dtype)
    hole = p.dtype.type(0.3) - np.hypot(p[:, 0], p[:, 1])
    return np.maximum(away.max(1), hole)


def gradient(p: Any) -> Any:
    away = np.abs(p) - np.array([1, 0.7, 0.5])
    radius = np.hypot(p[:, 0], p[:, 1])
    in_hole = 0.3 - radius > away.max(1)
    by_box = np.where(np.arange(3) == away.argmax(1)[:, None], np.sign(p), 0.0)
    by_hole = np.stack([-p[:, 0] / radius, -p[:, 1] / radius, np.zeros(len(p))], -1)
    return np.where(in_hole[:, None], by_hole, by_box)


def volume_of(vertices: Any, triangles: Any) -> float:
    """What a mesh encloses."""
    a, b, c = np.asarray(vertices, np.float64)[triangles].transpose(1, 0, 2)
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def meshing(make: Callable[[], tuple[Any, Any]]) -> Callable[[], NDArray[np.float64]]:
    """A run that meshes. The enclosed volume, which is not part of meshing, is computed once."""
    volumes: list[float] = []

    def run() -> NDArray[np.float64]:
        vertices, triangles = make()
        if not volumes:
            volumes.append(abs(volume_of(vertices, triangles)))
        return np.array(volumes)

    return run


def triangle_count(kind: str, side: int) -> int:
    """How many triangles livegrad's mesh has, to two digits."""
    return int(float(f"{TRIANGLES[kind][side]:.1e}"))


def tolerance(kind: str, side: int) -> float:
    """The relative volume error of a mesh: chords across cells cut off part of the hole's wall."""
    if kind == "part_triangles":
        return ROUGH
    cell, radius, share = 2.0 / side, 0.3, np.pi * 0.3**2 / 2.8
    return 1e-4 + 2 * cell**2 / (6 * radius**2) * share / 2


@cache
def tape() -> sdf.Program:
    return prospero.load()


def is_inside(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        return sdf.evaluate(tape(), (x, y), (), OPERATIONS, literal=np.float32) < 0


def draw_with_numpy(side: int) -> Any:
    """Evaluates a few thousand points at a time, because the tape keeps the values of all its operations."""
    x, y = prospero.grid(side)
    return np.concatenate([is_inside(x[at : at + AT_ONCE], y[at : at + AT_ONCE]) for at in range(0, x.size, AT_ONCE)])


def drawn_at(side: int, pixels: Any) -> list[float]:
    """Single pixels of the picture: all of a large one would take NumPy minutes."""
    x, y = prospero.grid(side)
    return is_inside(x[pixels], y[pixels]).astype(float).tolist()


def expected(kind: str, size: int) -> Any:
    """The expected result of a run, computed without livegrad."""
    if kind in LIMITS:
        return np.array(LIMITS[kind])
    if kind in ("part_meshed", "part_triangles"):
        return np.array([2.0 * 1.4 * 1.0 - np.pi * 0.3**2 * 1.0])
    return gradient(points(size).astype(np.float64))
