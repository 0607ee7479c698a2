"""Random parts against NumPy: values, bounds over boxes, pruned pictures, masks, and volumes of meshes.

A part is a tree of shapes, transforms, booleans, thin shells and functions that call each other; the oracle evaluates
the same tree in float64 and shares no code with livegrad.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

import livegrad as lg
from livegrad import ops
from livegrad.diagnostics import CompileError
from livegrad.implicit.bodies import masking
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, compile_bounds, find_blocks
from livegrad.implicit.bodies.ray_hits import bisect
from livegrad.implicit.bodies.slicing import draw_plane
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Vector, f32
from livegrad.ops.aggregate import make_vector
from livegrad.state import fresh_session

SHORT = 4
LIMIT = 2.0  # of the bounds, along each axis
_MANY = 8192  # evaluations of bodies at a point: there, code may be refused

Tree = tuple[Any, ...]
Points = NDArray[np.float64]


# --- a random tree ----------------------------------------------------------------------------------------------------


def random_tree(generator: np.random.Generator, depth: int) -> Tree:
    def number(low: float, high: float) -> float:
        return float(np.float32(generator.uniform(low, high)))

    def vector(size: float) -> tuple[float, ...]:
        return tuple(number(-size, size) for _ in range(3))

    if depth == 0:
        kind = generator.choice(["sphere", "box", "cylinder", "torus"])
        if kind == "sphere":
            return "sphere", number(0.2, 1.2)
        if kind == "box":
            return "box", tuple(number(0.2, 1.8) for _ in range(3))
        if kind == "cylinder":
            return "cylinder", number(0.2, 1.0), number(0.4, 2.0)
        return "torus", number(0.5, 1.2), number(0.1, 0.4)
    kind = str(
        generator.choice(
            ["move", "turn", "scale", "grow", "shell", "union", "intersection", "difference", "blend", "calls"]
        )
    )
    inner = random_tree(generator, depth - 1)
    if kind == "move":
        return kind, inner, vector(0.5)
    if kind == "turn":
        return kind, inner, (number(0.1, 1), number(-1, 1), number(-1, 1)), number(-3, 3)
    if kind == "scale":
        return kind, inner, number(0.6, 1.5)
    if kind == "grow":
        return kind, inner, number(-0.05, 0.2)
    if kind == "shell":
        return kind, inner, number(0.01, 0.3)
    if kind == "calls":
        levels = int(generator.integers(1, 8))
        return kind, inner, str(generator.choice(["min", "max"])), tuple(vector(0.3) for _ in range(levels))
    other = random_tree(generator, int(generator.integers(0, depth)))
    return (kind, inner, other, number(0.05, 0.4)) if kind == "blend" else (kind, inner, other)


# --- the oracle -------------------------------------------------------------------------------------------------------


def value_of(tree: Tree, p: Points) -> NDArray[np.float64]:
    kind, *given = tree
    x, y, z = p.T
    if kind == "sphere":
        return np.linalg.norm(p, axis=1) - given[0]
    if kind == "box":
        away = np.abs(p) - np.array(given[0]) / 2
        return np.linalg.norm(np.maximum(away, 0), axis=1) + np.minimum(away.max(1), 0)
    if kind == "cylinder":
        return np.maximum(np.hypot(x, y) - given[0], np.abs(z) - given[1] / 2)
    if kind == "torus":
        return np.hypot(np.hypot(x, y) - given[0], z) - given[1]
    inner = given[0]
    if kind == "move":
        return value_of(inner, p - np.array(given[1]))
    if kind == "turn":
        return value_of(inner, p @ rotation(given[1], given[2]))
    if kind == "scale":
        return value_of(inner, p / given[1]) * given[1]
    if kind == "grow":
        return value_of(inner, p) - given[1]
    if kind == "shell":
        return np.abs(value_of(inner, p)) - given[1] / 2
    if kind == "calls":
        return called(inner, np.minimum if given[1] == "min" else np.maximum, given[2], p)
    first, second = value_of(inner, p), value_of(given[1], p)
    if kind == "intersection":
        return np.maximum(first, second)
    if kind == "difference":
        return np.maximum(first, -second)
    if kind == "union":
        return np.minimum(first, second)
    near = np.maximum(given[2] - np.abs(first - second), 0) / given[2]
    return np.minimum(first, second) - near * near * given[2] / 4


def called(inner: Tree, choose: Any, steps: tuple[Any, ...], p: Points) -> NDArray[np.float64]:
    if not steps:
        return value_of(inner, p)
    *before, step = steps
    moved = p + np.array(step)
    return choose(called(inner, choose, tuple(before), p), called(inner, choose, tuple(before), moved))


def rotation(axis: tuple[float, ...], angle: float) -> NDArray[np.float64]:
    """The matrix that turns columns by the angle about the axis; rows before it are turned back."""
    x, y, z = np.array(axis) / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


# --- livegrad ---------------------------------------------------------------------------------------------------------


def shape_of(tree: Tree) -> lg.shapes.Shape:
    kind, *given = tree
    if kind == "sphere":
        return lg.shapes.sphere(given[0])
    if kind == "box":
        return lg.shapes.box(given[0])
    if kind == "cylinder":
        return lg.shapes.cylinder(*given)
    if kind == "torus":
        return lg.shapes.torus(*given)
    inner = shape_of(given[0])
    if kind == "calls":
        return _calls(inner, ops.min if given[1] == "min" else ops.max, given[2])
    if kind in ("union", "intersection", "difference"):
        return getattr(lg.shapes, kind)(inner, shape_of(given[1]))
    if kind == "blend":
        return lg.shapes.union(inner, shape_of(given[1]), blend=given[2])
    method = str({"move": "translate", "turn": "rotate"}.get(kind, kind))
    return getattr(inner, method)(*given[1:])


def _calls(inner: lg.shapes.Shape, choose: Any, steps: tuple[Any, ...]) -> lg.shapes.Shape:
    """f_k(p) = choose(f_{k-1}(p), f_{k-1}(p + step)), each a function of its own."""
    function = trace(inner.field, Vector(f32, 3), name="f0")
    for level, step in enumerate(steps, 1):

        def field(p: Node, own: Any = function, by: Any = step) -> Node:
            moved = p + make_vector(*[constant(float(v), f32) for v in by])
            return choose(ops.call(p, function=own), ops.call(moved, function=own))

        function = trace(field, Vector(f32, 3), name=f"f{level}")
    return lg.shapes.Shape(lambda p: ops.call(p, function=function))


# --- the comparison ---------------------------------------------------------------------------------------------------


def run_one(seed: int) -> Mapping[str, int]:
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, int(generator.integers(1, 5)))
    try:
        return _compare(seed, generator, tree)
    except CompileError as error:
        if "call each other too many times" in str(error) and _evaluations(tree) > _MANY:
            return {"too many calls": 1}
        raise


def _evaluations(tree: Tree) -> int:
    """How often bodies are evaluated at one point."""
    inner = sum(_evaluations(item) for item in tree[1:] if isinstance(item, tuple) and _is_tree(item))
    return max(inner, 1) * (2 ** len(tree[3]) if tree[0] == "calls" else 1)


def _compare(seed: int, generator: np.random.Generator, tree: Tree) -> Mapping[str, int]:
    part = shape_of(tree).part(((-LIMIT,) * 3, (LIMIT,) * 3))
    shown = f"parts seed {seed}: {tree}"
    points = generator.uniform(-LIMIT, LIMIT, (512, 3)).astype(np.float32).astype(np.float64)
    expected = value_of(tree, points)
    error = np.abs(part(points) - expected).max()
    assert error < 2e-4, f"{shown}: values are off by {error}"
    _check_bounds(part, tree, generator, shown)
    height = float(generator.uniform(-0.5, 0.5))
    pruned, plain = (draw_plane(part, height, size=64, pruned=choice) for choice in (True, False))
    assert (pruned == plain).all(), f"{shown}: a pruned picture at {height} differs in {(pruned != plain).sum()} pixels"
    counts = Counter(dict.fromkeys(_kinds(tree), 1))
    if seed % 4 == 2:
        counts[_check_masks(part, generator, shown)] += 1
    if seed % 4 == 0:
        counts[_check_volume(part, tree, generator, shown)] += 1
    return counts


def _kinds(tree: Tree) -> set[str]:
    return {tree[0]}.union(*[_kinds(item) for item in tree[1:] if isinstance(item, tuple) and _is_tree(item)])


def _is_tree(item: tuple[Any, ...]) -> bool:
    return bool(item) and isinstance(item[0], str)


def _check_bounds(part: lg.Part, tree: Tree, generator: np.random.Generator, shown: str) -> None:
    corner = generator.uniform(-LIMIT, LIMIT, (128, 3))
    size = generator.uniform(0, 1, (128, 1)) ** 3 * generator.uniform(0, 2, (128, 3))
    low, high = corner.astype(np.float32), (corner + size).astype(np.float32)
    sides = [np.ascontiguousarray(end[:, axis]) for axis in range(3) for end in (low, high)]
    least, most = run_in_batches(compile_bounds(part.function), sides, part.arguments)
    inner = low[:, None] + (high - low)[:, None] * generator.random((128, 24, 3))
    values = value_of(tree, inner.reshape(-1, 3).astype(np.float64)).reshape(128, 24)
    wrong = np.flatnonzero((values.min(1) < least - 1e-4) | (values.max(1) > most + 1e-4))
    assert not len(wrong), (
        f"{shown}: between {low[wrong[0]]} and {high[wrong[0]]} values go from {values[wrong[0]].min()} to "
        f"{values[wrong[0]].max()}, bounds from {least[wrong[0]]} to {most[wrong[0]]}"
    )


def _check_masks(part: lg.Part, generator: np.random.Generator, shown: str) -> str:
    """Signs and normals near the surface by the choices that a block leaves open: those of the whole function."""
    with _masks_for_all():
        bounds = IntervalBounds(part.function, part.arguments, np.float32)
        if not bounds.words:
            return "without masks"
        lattice = Lattice(np.full(3, -LIMIT), np.full(3, LIMIT / 16), (32, 32, 32), 4)
        found = find_blocks(bounds, lattice)
        if not len(found.crossed):
            return "without a surface"
        assert found.masks is not None
        block = generator.integers(len(found.crossed), size=2000)
        cell = found.crossed[block] * 4 + generator.integers(0, 4, (2000, 3))
        ends = [lattice.origin + (cell + step) * lattice.cell for step in ([0, 0, 0], [1, 1, 1])]
        signs = [[bounds.is_inside(list(end.T), masks) for end in ends] for masks in (found.masks[:, block], None)]
        assert (np.array(signs[0]) == signs[1]).all(), f"{shown}: masks change signs"
        crosses = signs[0][0] != signs[0][1]
        block, outside = block[crosses], np.where(signs[0][0], 1, 0)[crosses]
        low, high = (np.where((outside == k)[:, None], ends[0][crosses], ends[1][crosses]) for k in (0, 1))
        masks = np.ascontiguousarray(found.masks[:, block])
        points = (low + (high - low) * bisect(bounds, low, high, masks)[:, None]).astype(np.float32)
        return _check_normals(part, points, masks, shown)


def _check_normals(part: lg.Part, points: NDArray[np.float32], masks: NDArray[np.uint32], shown: str) -> str:
    def normals(at: NDArray[np.float32], given: NDArray[np.uint32] | None) -> NDArray[Any]:
        return masking.surface_normals(part.function, part.arguments, list(np.ascontiguousarray(at.T)), given)

    expected = normals(points, None)
    steps = np.concatenate([np.eye(3), -np.eye(3)]) * 1e-3
    # At an edge of the body the normal is that of either side.
    beside = [normals((points + step).astype(np.float32), None) for step in steps]
    smooth = np.all([np.abs(other - expected).max(1) < 0.05 for other in beside], axis=0)
    off = np.abs(normals(points, masks) - expected).max(1)
    wrong = np.flatnonzero(smooth & ~(off < 1e-3))
    assert not len(wrong), f"{shown}: with masks the normal at {points[wrong[0]]} is off by {off[wrong[0]]}"
    return "normals with masks" if smooth.any() else "no smooth surface"


@contextmanager
def _masks_for_all() -> Iterator[None]:
    """Masks for functions of any cost: they must be right where they do not pay, too."""
    before = masking.MIN_COST
    masking.MIN_COST = 10.0
    try:
        with fresh_session():
            yield
    finally:
        masking.MIN_COST = before


def _check_volume(part: lg.Part, tree: Tree, generator: np.random.Generator, shown: str) -> str:
    """The mesh has the part's volume, or a warning says that it has not, or an error that nothing is left."""
    inside = value_of(tree, generator.uniform(-LIMIT, LIMIT, (200_000, 3))) < 0
    whole = (2 * LIMIT) ** 3
    volume, error = whole * inside.mean(), whole * np.sqrt(inside.mean() / len(inside))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = lg.mesh(part, feature_size=0.1)
        except lg.implicit.AssemblyError as refused:
            if "thinner than the feature size" not in str(refused):
                raise AssertionError(f"{shown}: {refused}") from refused
            return "refused"
    if any(issubclass(warning.category, lg.implicit.PartWarning) for warning in told):
        return "warned"
    assert found.is_closed(), f"{shown}: the mesh is not closed"
    allowed = 0.06 * volume + 8 * error + 1e-4
    assert abs(found.volume() - volume) <= allowed, f"{shown}: the mesh has {found.volume()}, the part {volume}"
    return "meshed"
