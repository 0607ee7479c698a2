"""A program and its ports: the record that every file of this folder fills in, and the libraries that ports name.

Ports are plain functions from arrays to an array or a tuple of arrays. They never write to their arguments."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PREFIX = "loops_"  # begins the kind of a problem of this suite
SIZES = ("l1", "l2", "memory")  # where the arrays of a row lie; the end of its name
PEERS = ("jax", "numba", "numba_parallel", "numpy")


class Library:
    """A lazily imported module, so that each process only loads the library that it measures."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


lg: Any = Library("livegrad")
jax: Any = Library("jax")
jnp: Any = Library("jax.numpy")
lax: Any = Library("jax.lax")
prange = range  # Numba's own where Numba compiles, so that its ports also run as plain Python


@dataclass(frozen=True)
class Program:
    """One algorithm at three sizes, in every library's idiom.

    `numpy` gives the values that all others must give. `numba` is plain Python for `njit`, with `prange` where
    iterations are independent; then `parallel` adds the contender `njit(parallel=True)`."""

    name: str
    title: str  # with {n} for the size
    sizes: tuple[int, int, int]
    small: int  # for tests
    inputs: Callable[[int], tuple[Array, ...]]
    numpy: Callable[..., Any]
    livegrad: Callable[..., Any]
    numba: Callable[..., Any]
    jax: Callable[..., Any]
    parallel: bool = False
    interpreted: bool = False  # NumPy's port loops over elements in Python, which is too slow to measure
    differing: float = 0.0  # the share of elements that rounding may change altogether, as in chaotic orbits
    tolerance: float = 1e-9
    today: tuple[int, int, int] | None = None  # smaller sizes, while one call of `sizes` takes livegrad minutes

    @property
    def kind(self) -> str:
        return PREFIX + self.name

    @property
    def peers(self) -> tuple[str, ...]:
        absent = {"numba_parallel": not self.parallel, "numpy": self.interpreted}
        return tuple(peer for peer in PEERS if not absent.get(peer, False))

    @property
    def measured_sizes(self) -> tuple[int, int, int]:
        return self.today or self.sizes

    def row_names(self) -> list[str]:
        return [f"{self.name}_{size}" for size in SIZES]

    def agrees(self, actual: Any, wanted: Any) -> bool:
        close = np.isclose(actual, wanted, rtol=self.tolerance, atol=self.tolerance)
        return bool(np.mean(close) >= 1.0 - self.differing)


def random(size: Any, seed: int = 0) -> Array:
    """Uniform in [0, 1), the same in every process."""
    return np.random.default_rng(seed).random(size)


def normal(size: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(size)
