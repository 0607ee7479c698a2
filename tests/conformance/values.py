"""Arguments for conformance cases: seeded random values of any type, and the values that break careless code.

Values are held as the reference holds them: NumPy scalars and arrays, tuples for structs, tuples and arrays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegrad.ir.bfloat16 import LARGEST, narrow
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tensor, Tuple, Type, Vector, bf16, components, f32

Draw = Callable[[Scalar, tuple[int, ...], np.random.Generator], Any]


def plain_shape(type: Type) -> tuple[int, ...]:
    """The NumPy shape of a scalar, vector, matrix or tensor whose sizes are known."""
    match type:
        case Vector(size=size):
            return (size,)
        case Matrix(rows=rows, columns=columns):
            return (rows, columns)
        case Tensor(shape=shape):
            return tuple(int(size) for size in shape)  # type: ignore[arg-type]
    return ()


def element_of(type: Type) -> Scalar:
    if isinstance(type, Scalar):
        return type
    assert isinstance(type, Vector | Matrix | Tensor)
    return type.element


def draw_any(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Numbers of moderate size, of both signs where there are two, never near zero."""
    match scalar.kind:
        case "bool":
            return rng.integers(0, 2, shape).astype(bool)
        case "unsigned":
            return rng.integers(0, min(200, 2**scalar.bits - 1), shape).astype(scalar.dtype)
        case "signed":
            return rng.integers(-100, 100, shape).astype(scalar.dtype)
        case "complex":
            return (draw_any(scalar.real, shape, rng) + 1j * draw_any(scalar.real, shape, rng)).astype(scalar.dtype)
    return (rng.uniform(0.2, 2.0, shape) * rng.choice([-1.0, 1.0], shape)).astype(scalar.dtype)


def draw_between(low: float, high: float) -> Draw:
    """Real numbers of an interval; complex ones have both parts in it, and integers are drawn from anywhere."""

    def draw(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        if scalar.kind == "complex":
            return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(scalar.dtype)
        if scalar.kind == "float":
            return rng.uniform(low, high, shape).astype(scalar.dtype)
        return draw_any(scalar, shape, rng)

    return draw


def draw_divisor(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Numbers that may stand below a fraction line."""
    if scalar.kind in ("float", "complex"):
        return (rng.uniform(1.0, 2.0, shape) * rng.choice([-1.0, 1.0], shape)).astype(scalar.dtype)
    sign = rng.choice([-1, 1], shape) if scalar.kind == "signed" else np.ones(shape, int)
    return (rng.integers(1, 30, shape) * sign).astype(scalar.dtype)


def draw_bits(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Integers from the whole range."""
    if scalar.kind == "bool":
        return draw_any(scalar, shape, rng)
    info = np.iinfo(scalar.dtype)
    return rng.integers(info.min, info.max, shape, dtype=scalar.dtype, endpoint=True)


def draw_shift(scalar: Scalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    return rng.integers(0, scalar.bits, shape).astype(scalar.dtype)


def value_of(type: Type, rng: np.random.Generator, draw: Draw = draw_any) -> Any:
    """A random value of any type."""
    if isinstance(type, Struct | Tuple | Array):
        return tuple(value_of(member, rng, draw) for member in components(type))
    element = element_of(type)
    if element is bf16:  # drawn as f32, and rounded
        array = narrow(draw(f32, plain_shape(type), rng))
        return array[()] if isinstance(type, Scalar) else array
    array = draw(element, plain_shape(type), rng)
    return element.dtype.type(array) if isinstance(type, Scalar) else np.asarray(array)


def values_of(types: Sequence[Type], rng: np.random.Generator, draws: Sequence[Draw] = ()) -> tuple[Any, ...]:
    """A random value of each type; draws that are not given are `draw_any`."""
    return tuple(
        value_of(type, rng, draws[index] if index < len(draws) else draw_any) for index, type in enumerate(types)
    )


def special_values(scalar: Scalar) -> Any:
    """Zeros, infinities, NaN, denormals, the largest and the smallest, and ties of rounding."""
    match scalar.kind:
        case "bool":
            return np.array([False, True])
        case "signed" | "unsigned":
            info = np.iinfo(scalar.dtype)
            expected = [0, 1, 2, 3, 7, scalar.bits - 1, scalar.bits, info.max, info.max - 1, info.max // 2]
            signed = [-1, -2, -7, info.min, info.min + 1] if scalar.kind == "signed" else []
            return np.array(sorted({*expected, *signed}), scalar.dtype)
        case "complex":
            # NumPy's own treatment of infinite complex numbers differs from C's: only finite ones are the truth here.
            parts = np.array([0.0, 1.0, -1.0, 0.5, -2.5, 3.25], scalar.real.dtype)
            return (parts[:, None] + 1j * parts[None, :]).ravel().astype(scalar.dtype)
    if scalar is bf16:
        own = [1 - 2.0**-9, 1 + 2.0**-8, 1 + 3 * 2.0**-8, LARGEST, 2.0**-133, 2.0**-126, 2.0**-7, 128.0]
        return narrow(np.concatenate([special_values(f32), np.array([*own, *[-number for number in own]], np.float32)]))
    info = np.finfo(scalar.dtype)
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.1, 1 - info.epsneg, 1 + info.eps, np.pi, 100.0, np.inf]
    extremes = [info.smallest_subnormal, info.smallest_subnormal * 3, info.tiny, info.max, info.eps, 1 / info.eps]
    both = np.array([*positive, *extremes], scalar.dtype)
    return np.concatenate([both, -both, np.array([np.nan], scalar.dtype)])


def every_combination(values: Sequence[Any]) -> tuple[Any, ...]:
    """Each value of the first with each of the second and so on, as flat arrays."""
    grids = np.meshgrid(*values, indexing="ij")
    return tuple(grid.ravel() for grid in grids)
