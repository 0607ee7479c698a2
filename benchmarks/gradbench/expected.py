"""Derivatives of the programs at a few positions, by NumPy with complex steps instead of differentiation.

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
    """The shapes of the results of a derivative run, in order."""
    program, inputs = PROGRAMS[name], arrays(name, size)
    shapes = [inputs[index].shape for index in program.active]
    if program.derivative == "rows":
        return shapes * 2
    if program.derivative == "columns":
        return [(*shapes[0], *program.primal(NUMPY, *inputs).shape)]
    return shapes


def expected_derivative(name: str, size: int, wanted: Sequence[int]) -> list[float]:
    """The elements of the derivative at these positions of its concatenated results."""
    program, inputs = PROGRAMS[name], arrays(name, size)
    if program.derivative == "newton":
        return list(flat([_newton(*inputs)])[list(wanted)])
    if program.derivative == "rows":
        return list(flat(_rows(program, inputs))[list(wanted)])
    if program.derivative == "columns":
        columns = [_moved(program, inputs, 0, position).reshape(-1) for position in range(inputs[0].size)]
        return list(flat(columns)[list(wanted)])
    elements = [(index, position) for index in program.active for position in range(inputs[index].size)]
    values = {position: float(_moved(program, inputs, *elements[position])) for position in set(wanted)}
    return [values[position] for position in wanted]


def _moved(program: Program, inputs: tuple[Any, ...], index: int, position: int) -> Any:
    """The derivative of all results with respect to one element of one argument."""
    changed = inputs[index].astype(np.complex128)
    changed.reshape(-1)[position] += STEP * 1j
    arguments = [changed if at == index else value for at, value in enumerate(inputs)]
    return np.imag(program.differentiated(NUMPY, *arguments)) / STEP


def _rows(program: Program, inputs: tuple[Any, ...]) -> list[Any]:
    """An observation depends only on its own arguments, so one step moves a column of all observations."""
    rows: list[list[Any]] = [[], []]
    for index in program.active:
        columns = inputs[index].reshape(len(inputs[index]), -1)
        parts = []
        for column in range(columns.shape[1]):
            changed = columns.astype(np.complex128)
            changed[:, column] += STEP * 1j
            arguments = [changed.reshape(v.shape) if at == index else v for at, v in enumerate(inputs)]
            parts.append(np.imag(program.primal(NUMPY, *arguments)) / STEP)
        for row in (0, 1):
            rows[row].append(np.stack([part[row] for part in parts], 1).reshape(inputs[index].shape))
    return [*rows[0], *rows[1]]


def _newton(points: Any, centroids: Any) -> Any:
    """The offset of each centroid from the mean of its nearest points."""
    squares = ((points[:, None] - centroids) ** 2).sum(2)
    nearest = squares.argmin(1)
    return np.stack([centroid - points[nearest == index].mean(0) for index, centroid in enumerate(centroids)])


def agree(actual: Sequence[float], wanted: Sequence[float]) -> bool:
    a, b = np.asarray(actual), np.asarray(wanted)
    least = min(1.0, float(np.abs(b).max()))
    return bool(np.all(np.abs(a - b) <= TOLERANCE * np.maximum(least, np.abs(a) + np.abs(b))))
