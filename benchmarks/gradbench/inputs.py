"""Inputs as GradBench describes them, from our own generator: the same in every process.

`arrays(name, size)` gives the arguments of a program; what `size` counts is said beside each generator."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CAMERA = (-0.76, -1.11, -0.85, 34.6, 39.7, 53.9, 419.2, 5.86, -8.52, 0.088, 0.0027)
LANDMARK = (7.2, 0.0011, 3.02)
FINGERS, JOINTS = 5, 4  # a hand has a wrist, and four bones in each of five fingers


def hello(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    return (np.array([3.0]),)


def llsq(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    """`size` places, 128 coefficients: the powers of each place, and the sign that is fitted."""
    points = -1 + np.arange(size) * 2 / (size - 1)
    powers = np.cumprod(np.concatenate([np.ones((size, 1)), np.repeat(points[:, None], 127, 1)], 1), 1)
    return random.uniform(size=128), powers, np.sign(points)


def lse(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    return (random.uniform(size=size),)


def ode(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    """`size` equations; the number of steps belongs to the program."""
    return (random.uniform(size=size),)


def gmm(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    """`size` observations in 10 dimensions, 25 components: x, alpha, mu, q, l."""
    d, k = 10, 25
    return (
        random.normal(size=(size, d)),
        random.normal(size=k),
        random.uniform(size=(k, d)),
        random.normal(size=(k, d)),
        random.normal(size=(k, d * (d - 1) // 2)),
    )


def ba(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    """`size` observations of size // 4 points by 49 cameras, taken in turn: what each observation sees."""
    cameras = np.array(CAMERA) * random.uniform(0.99, 1.01, (49, 11))
    points = np.array(LANDMARK) + random.uniform(-0.1, 0.1, (max(1, size // 4), 3))
    numbers = np.arange(size)
    weights = random.uniform(0.2, 0.8, size)
    features = np.array([271.8, 834.2]) + random.normal(size=(size, 2))
    return cameras[numbers % len(cameras)], points[numbers % len(points)], weights, features


def kmeans(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    """`size` points in 8 dimensions, 100 centroids, each the nearest of some point."""
    points = random.uniform(size=(size, 8))
    return points, points[-100:].copy()


def ht(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    """`size` correspondences: theta, rest pose, its inverse, vertices, weights, observed points."""
    bones = 1 + FINGERS * JOINTS
    relatives = np.tile(np.eye(4), (bones, 1, 1))
    relatives[:, :3, 3] = random.uniform(-0.1, 0.1, (bones, 3))
    inverses = np.tile(np.eye(4), (bones, 1, 1))
    inverses[:, :3, 3] = random.uniform(-0.1, 0.1, (bones, 3))
    vertices = np.concatenate([random.uniform(-1, 1, (size, 3)), np.ones((size, 1))], 1)
    weights = random.uniform(size=(size, bones))
    weights /= weights.sum(1, keepdims=True)
    return (
        random.uniform(-0.5, 0.5, 6 + 4 * FINGERS),
        relatives,
        inverses,
        vertices,
        weights,
        random.normal(size=(size, 3)),
    )


def particle(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    return (np.array([0.0]),)


def saddle(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    return (np.array([1.0, 1.0]),)


def det(size: int, random: np.random.Generator) -> tuple[Any, ...]:
    """A matrix of `size` rows."""
    return (random.uniform(size=(size, size)),)


GENERATORS: dict[str, Callable[[int, np.random.Generator], tuple[Any, ...]]] = {
    "hello": hello,
    "llsq": llsq,
    "lse": lse,
    "ode": ode,
    "gmm": gmm,
    "ba": ba,
    "kmeans": kmeans,
    "ht": ht,
    "particle": particle,
    "saddle": saddle,
    "det": det,
}


def arrays(name: str, size: int) -> tuple[Any, ...]:
    return GENERATORS[name](size, np.random.default_rng(31337))
