"""Derivatives of the programs of the loops suite: of the sum of their float results, by their float inputs.

A derivative is checked along one fixed direction, where both modes must give the same number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.loops.catalogue import PROGRAMS
from benchmarks.loops.program import PREFIX, Array, Program, lg, normal

KIND = f"gradient_of_{PREFIX}"  # begins the kind of a problem of this suite
TOLERANCE = 1e-6  # relative, between modes and libraries: orbits amplify rounding
SEED = 7  # of the directions


def results_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def float_positions(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(index for index, value in enumerate(values) if np.asarray(value).dtype.kind == "f")


@cache
def positions(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which inputs and which results of a program are floats."""
    given = program.inputs(program.small)
    return float_positions(given), float_positions(results_of(program.numpy(*given)))


def differentiable_programs() -> dict[str, Program]:
    return {KIND + name: program for name, program in PROGRAMS.items() if all(positions(program))}


def inputs(kind: str, size: int) -> tuple[Array, ...]:
    return differentiable_programs()[kind].inputs(size)


def directions(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """One direction for each float input."""
    return [normal(arrays[index].shape, SEED + index) for index in positions(program)[0]]


def total(
    program: Program, port: Callable[..., Any], sum_of: Callable[[Any], Any], arrays: Sequence[Any]
) -> Callable[..., Any]:
    """The sum of the float results of a port as a function of its float inputs."""
    inputs_at, results_at = positions(program)

    def function(*values: Any) -> Any:
        given = list(arrays)
        for index, value in zip(inputs_at, values, strict=True):
            given[index] = value
        results = results_of(port(*given))
        first, *others = [sum_of(results[index]) for index in results_at]
        return sum(others, first)

    return function


@dataclass(frozen=True)
class Gradient:
    """A gradient that becomes an array, to be checked, as the derivative along the directions."""

    parts: Sequence[Any]
    directions: Sequence[Array]

    def __array__(self, *_: Any, **__: Any) -> Array:
        return np.asarray(sum(np.vdot(np.asarray(p), d) for p, d in zip(self.parts, self.directions, strict=True)))


def difference(program: Program, arrays: Sequence[Array], step: float = 1e-6) -> float:
    """The derivative along the directions by a central difference of NumPy's port."""
    function = total(program, program.numpy, np.sum, arrays)
    given = [arrays[index] for index in positions(program)[0]]
    moved = directions(program, arrays)
    after, before = (
        function(*[x + sign * step * d for x, d in zip(given, moved, strict=True)]) for sign in (1.0, -1.0)
    )
    return float((after - before) / (2.0 * step))


def along_directions(program: Program, arrays: Sequence[Array]) -> float:
    """The derivative along the directions in forward mode."""
    tensors = [lg.asarray(array) for array in arrays]
    given = [tensors[index] for index in positions(program)[0]]
    along = [lg.asarray(direction) for direction in directions(program, arrays)]
    return float(lg.jvp(total(program, program.livegrad, lg.sum, tensors), tuple(given), tuple(along))[1])


def expected(kind: str, is_primal: bool, arrays: Sequence[Array]) -> Any:
    """The values of a program; or its derivative in forward mode, which tests compare with differences."""
    program = differentiable_programs()[kind]
    return program.numpy(*arrays) if is_primal else along_directions(program, arrays)


def agrees(kind: str, is_primal: bool, actual: Any, wanted: Any) -> bool:
    if is_primal:
        return differentiable_programs()[kind].agrees(actual, wanted)
    return bool(np.allclose(actual, wanted, rtol=TOLERANCE, atol=TOLERANCE))
