"""Cases of vectors, matrices, arrays, structs and tuples: construction, access, update and geometry."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from livegrad.ir.op import Op
from livegrad.ir.types import (
    Array,
    Matrix,
    Scalar,
    Struct,
    Tuple,
    Type,
    Vector,
    bf16,
    c64,
    c128,
    components,
    f16,
    f32,
    f64,
    i32,
    i64,
)
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.aggregate import get, get_at, make, set_, set_at, splat
from livegrad.ops.vector import (
    cross,
    determinant,
    dot,
    inverse,
    length,
    matrix_multiply,
    matrix_transpose,
    matrix_vector,
    normalize,
)
from tests.conformance.case import Case, accepts, make_case
from tests.conformance.tolerance import EXACT, Tolerance
from tests.conformance.values import Draw, draw_any

MATERIAL = Struct("Material", (("albedo", Vector(f64, 3)), ("layer", i32), ("rough", f64), ("name", Tuple((i64, f64)))))
AGGREGATES: tuple[Type, ...] = (
    MATERIAL,
    Tuple((f64, i64, Vector(f64, 2))),
    Array(f64, 3),
    Array(Tuple((f64, i32)), 2),
    Array(Vector(f64, 2), 2),
    Array(i32, 4),
    Struct("Count", (("n", i64), ("m", i32))),
    Tuple((Tuple((f64,)), f64)),
)


def member_cases() -> Iterator[Case]:
    """make, get and set on every kind of aggregate, at the first and last member."""
    packed: list[Type] = [Vector(f64, 2), Matrix(f64, 2, 3), Vector(f32, 4), Matrix(f32, 3, 3)]
    packed += [Vector(scalar, 3) for scalar in SCALARS.values() if scalar not in (f32, f64)]
    for type in (*packed, *AGGREGATES):
        members = components(type)
        note = "" if isinstance(type, Vector | Matrix) else str(AGGREGATES.index(type))
        yield make_case(make, lambda *m, t=type: make(*m, type=t), *members, note=f"{note}")
        for index in (0, len(members) - 1):
            yield make_case(get, lambda x, i=index: get(x, index=i), type, note=f"{index}")
            yield make_case(set_, lambda x, v, i=index: set_(x, v, index=i), type, members[index], note=f"{index}")


def splat_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        for type in (Vector(scalar, 3), Matrix(scalar, 2, 2)):
            if accepts(splat, scalar, type=type):
                yield make_case(splat, lambda x, t=type: splat(x, type=t), scalar, note=str(type).replace(" ", ""))


def computed_index_cases() -> Iterator[Case]:
    def draw_index(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return rng.integers(0, 2, shape).astype(scalar.dtype)

    vectors: list[Type] = [Vector(scalar, 3) for scalar in SCALARS.values()]
    for type in (*vectors, *(t for t in AGGREGATES if isinstance(t, Array))):
        for index in (i32, i64):
            element = components(type)[0]
            yield make_case(get_at, get_at, type, index, draws=(draw_any, draw_index))
            yield make_case(set_at, set_at, type, index, element, draws=(draw_any, draw_index))


def draw_regular(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Matrices that are far from singular."""
    return (draw_any(scalar, shape, rng) * 0.3 + 3.0 * np.eye(shape[0], shape[1])).astype(scalar.dtype)


def geometry_cases() -> Iterator[Case]:
    for scalar in SCALARS.values():
        sizes = (1, 2, 3, 4) if scalar is f32 else (3,)
        for size in sizes:
            vector, square = Vector(scalar, size), Matrix(scalar, size, size)
            wide = Matrix(scalar, 2, size)
            yield from _checked(dot, vector, vector, magnitude=lambda a, b: np.sum(np.abs(a * b)))
            yield from _checked(cross, vector, vector, magnitude=lambda a, b: np.sum(np.abs(a)) * np.max(np.abs(b)))
            yield from _checked(length, vector)
            yield from _checked(normalize, vector)
            yield from _checked(matrix_vector, wide, vector, magnitude=lambda m, v: np.abs(m) @ np.abs(v))
            yield from _checked(matrix_multiply, wide, square, magnitude=lambda a, b: np.abs(a) @ np.abs(b))
            yield from _checked(matrix_transpose, wide)
            yield from _checked(determinant, square, magnitude=_permanent, draw=draw_regular)
            yield from _checked(inverse, square, magnitude=lambda m: 1.0, draw=draw_regular)


def _permanent(matrix: Any) -> Any:
    """An upper bound of the terms that a determinant adds up."""
    return np.prod(np.sum(np.abs(matrix), axis=0))


def _checked(
    op: Op, *types: Type, magnitude: Callable[..., Any] | None = None, draw: Draw = draw_any
) -> Iterator[Case]:
    if accepts(op, *types):
        scalar = types[0].element if isinstance(types[0], Vector | Matrix) else None
        inexact = scalar in (bf16, f16, f32, f64, c64, c128) and op is not matrix_transpose
        tolerance = Tolerance(8.0, magnitude) if inexact else EXACT
        yield make_case(op, op, *types, draws=(draw,) * len(types), tolerance=tolerance)
