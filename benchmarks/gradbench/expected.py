"""Derivatives of the programs at a few places, without any differentiation: NumPy with a step along the imaginary axis.

`|x - y| <= 1e-4 max(1, |x| + |y|)` is GradBench's agreement; where all values are small, 1 is their size."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.gradbench.arrays import NUMPY
from benchmarks.gradbench.inputs import arrays
from benchmarks.gradbench.programs import PROGRAMS, Program

TOLERANCE = 1e-4
STEP = 1e-30


def flat(parts: Sequence[Any]) -> Any:
    """All numbers of some arrays, one array after the other."""
    return np.concatenate([np.asarray(part).reshape(-1) for part in parts])


def expected_primal(name: str, size: int) -> Any:
    return PROGRAMS[name].primal(NUMPY, *arrays(name, size))


def derivative_shapes(name: str, size: int) -> list[tuple[int, ...]]:
    """The shapes of what a derivative run returns, in order."""
    program, given = PROGRAMS[name], arrays(name, size)
    shapes = [given[index].shape for index in program.active]
    if program.derivative == "rows":
        return shapes * 2
    if program.derivative == "columns":
        return [(*shapes[0], *program.primal(NUMPY, *given).shape)]
    return shapes


def expected_derivative(name: str, size: int, wanted: Sequence[int]) -> list[float]:
    """The derivative's numbers at these places of all of them in a row."""
    program, given = PROGRAMS[name], arrays(name, size)
    if program.derivative == "newton":
        return list(flat([_newton(*given)])[list(wanted)])
    if program.derivative == "rows":
        return list(flat(_rows(program, given))[list(wanted)])
    if program.derivative == "columns":
        columns = [_moved(program, given, 0, place).reshape(-1) for place in range(given[0].size)]
        return list(flat(columns)[list(wanted)])
    places = [(index, place) for index in program.active for place in range(given[index].size)]
    known = {place: float(_moved(program, given, *places[place])) for place in set(wanted)}
    return [known[place] for place in wanted]


def _moved(program: Program, given: tuple[Any, ...], index: int, place: int) -> Any:
    """The derivative of everything by one number of one argument."""
    changed = given[index].astype(np.complex128)
    changed.reshape(-1)[place] += STEP * 1j
    arguments = [changed if at == index else value for at, value in enumerate(given)]
    return np.imag(program.differentiated(NUMPY, *arguments)) / STEP


def _rows(program: Program, given: tuple[Any, ...]) -> list[Any]:
    """An observation depends on its own arguments alone, so a column of all observations is moved at once."""
    found: list[list[Any]] = [[], []]
    for index in program.active:
        columns = given[index].reshape(len(given[index]), -1)
        parts = []
        for column in range(columns.shape[1]):
            changed = columns.astype(np.complex128)
            changed[:, column] += STEP * 1j
            arguments = [changed.reshape(v.shape) if at == index else v for at, v in enumerate(given)]
            parts.append(np.imag(program.primal(NUMPY, *arguments)) / STEP)
        for row in (0, 1):
            found[row].append(np.stack([part[row] for part in parts], 1).reshape(given[index].shape))
    return [*found[0], *found[1]]


def _newton(points: Any, centroids: Any) -> Any:
    """Each centroid's way to the mean of the points that are nearest to it."""
    squares = ((points[:, None] - centroids) ** 2).sum(2)
    nearest = squares.argmin(1)
    return np.stack([centroid - points[nearest == number].mean(0) for number, centroid in enumerate(centroids)])


def agree(actual: Sequence[float], wanted: Sequence[float]) -> bool:
    a, b = np.asarray(actual), np.asarray(wanted)
    least = min(1.0, float(np.abs(b).max()))
    return bool(np.all(np.abs(a - b) <= TOLERANCE * np.maximum(least, np.abs(a) + np.abs(b))))
