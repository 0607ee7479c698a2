"""Checks and converts the arguments of a call. In: Python values and parameter types. Out: scalars and dense arrays.

Conversions follow the rules of literals: booleans become integers, integers floats, floats complex numbers. Floats may
be rounded, but nothing is truncated, wrapped around or made infinite: such arguments are errors. Arrays for tensors
must have the exact element type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.bfloat16 import LARGEST, narrow
from livegrad.ir.dimension import Dimension
from livegrad.ir.node import Function
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tape, Tensor, Tuple, Type, Vector, bf16, components, f32

_RANK = {"bool": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}
_RANK_OF_NUMPY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_C_CONTIGUOUS_AND_ALIGNED = 0x101  # of `flags.num`


def is_dense(array: np.ndarray[Any, Any]) -> bool:
    """Whether native code can use the array's memory as it is."""
    return array.flags.num & _C_CONTIGUOUS_AND_ALIGNED == _C_CONTIGUOUS_AND_ALIGNED


def _reject(label: str, expected: str, description: str, help: str | None = None) -> NoReturn:
    raise UsageError(f"{label} does not fit", where=caller_origin(), expected=expected, found=description, help=help)


def named_leaves(function: Function, arguments: Sequence[Any]) -> Iterator[tuple[Any, Type, str]]:
    """The scalars, vectors, matrices and tensors in the arguments, each with its type and a label for errors."""
    if len(arguments) != len(function.parameters):
        raise UsageError(
            f"`{function.name}` takes {len(function.parameters)} arguments",
            where=caller_origin(),
            found=str(len(arguments)),
        )
    for index, (value, type) in enumerate(zip(arguments, function.parameter_types, strict=True)):
        yield from _leaves(value, type, f"argument {index} of `{function.name}`")


def _leaves(value: Any, type: Type, label: str) -> Iterator[tuple[Any, Type, str]]:
    if not isinstance(type, Struct | Tuple | Array):
        yield value, type, label
        return
    names = [name for name, _ in type.fields] if isinstance(type, Struct) else None
    if names is not None and isinstance(value, Mapping):
        if set(value) != set(names):
            _reject(label, f"{type} with {', '.join(names)}", f"keys {', '.join(map(str, value))}")
        value = [value[name] for name in names]
    parts = components(type)
    sized = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if not sized or isinstance(value, str | bytes):
        _reject(label, str(type), shown(value))
    if len(value) != len(parts):
        _reject(label, f"the {len(parts)} members of {type}", str(len(value)))
    for index, (part, part_type) in enumerate(zip(value, parts, strict=True)):
        yield from _leaves(part, part_type, f"member `{names[index] if names else index}` of {label}")


# --- scalars ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def scalar_range(type: Scalar) -> tuple[float, float] | tuple[int, int]:
    """The least and the greatest finite value of a scalar type."""
    if type.kind in ("signed", "unsigned"):
        limits = np.iinfo(type.dtype)
        return int(limits.min), int(limits.max)
    most = LARGEST if type is bf16 else float(np.finfo(type.dtype).max)
    return -most, most


def scalar_argument(argument: Any, type: Scalar, label: str) -> Any:
    """Converts an argument to a number that can be stored as `type`."""
    kind = type.kind
    if isinstance(argument, np.generic) and argument.dtype == type.dtype:
        return argument
    if isinstance(argument, float | int) and kind in ("float", "signed", "unsigned"):
        low, high = scalar_range(type)
        if low <= argument <= high and (kind == "float" or not isinstance(argument, float)):
            return bf16(argument) if type is bf16 else argument
    if type.kind != "float" and isinstance(argument, int) and not -(1 << 63) <= argument < 1 << 64:
        _reject(label, _describe_range(type), shown(argument))
    try:
        value = np.asarray(float(argument) if kind == "float" and isinstance(argument, int) else argument)
    except (ValueError, TypeError, OverflowError):
        _reject(label, str(type), shown(argument))
    if value.ndim:
        _reject(label, str(type), f"shape {value.shape}")
    return _convert_elements(value, type, label, shown(argument))[()]


def _describe_range(type: Scalar) -> str:
    return f"{type}, from {np.iinfo(type.dtype).min} to {np.iinfo(type.dtype).max}"


def _convert_elements(
    array: np.ndarray[Any, Any], element: Scalar, label: str, description: str
) -> np.ndarray[Any, Any]:
    """Converts an array to an element type; an error if a number does not fit."""
    if array.dtype == element.dtype:
        return array
    rank, target_rank = _RANK_OF_NUMPY.get(array.dtype.kind), _RANK[element.kind]
    if rank is None or rank > target_rank or (target_rank == 0 and rank):
        _reject(label, str(element), description if array.ndim == 0 else f"an array of {array.dtype}")
    if element is bf16:
        single = _convert_elements(array, f32, label, description)
        if np.any(np.isfinite(single) & (np.abs(single) > LARGEST)):
            _reject(label, "a finite bf16", shown(float(np.max(np.abs(single)))))
        return narrow(single)
    with np.errstate(all="ignore"):
        result = array.astype(element.dtype, copy=False)
    if target_rank == 1:
        wrong = result != array
    elif target_rank == 0 or np.isfinite(result).all():
        return result
    else:
        wrong = np.isinf(result) & ~np.isinf(array)
    if wrong.any():
        expected = f"a finite {element}" if target_rank > 1 else _describe_range(element)
        _reject(label, expected, shown(array[wrong].reshape(-1)[0].item()))
    return result


# --- arrays ----------------------------------------------------------------------------------------------------------


def array_argument(argument: Any, type: Tensor | Vector | Matrix, label: str) -> np.ndarray[Any, Any]:
    """A dense array of the parameter's element type; for vectors and matrices also of its shape."""
    array = argument if isinstance(argument, np.ndarray) else _from_sequence(argument, type, label)
    if isinstance(array, np.ma.MaskedArray):
        _reject(label, str(type), "a masked array", "give what is masked a value with .filled(value)")
    if isinstance(type, Tensor):
        if array.dtype != type.element.dtype:
            help = f"convert it with .astype({type.element.long_name!r})"
            _reject(label, str(type), f"an array of {array.dtype}", help)
    else:
        shape = (type.size,) if isinstance(type, Vector) else (type.rows, type.columns)
        if array.dtype != type.element.dtype:
            array = _convert_elements(array, type.element, label, shown(argument))
        if array.shape != shape:
            _reject(label, str(type), f"shape {array.shape}")
    return array if is_dense(array) else array.copy(order="C")


def _from_sequence(argument: Any, type: Tensor | Vector | Matrix, label: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(argument)
    except (ValueError, TypeError, OverflowError) as error:
        _reject(label, str(type), shown(argument), str(error).partition(". ")[0])
    if not array.size:
        return array.astype(type.element.dtype)
    if array.dtype.kind not in _RANK_OF_NUMPY:
        _reject(label, str(type), shown(argument))
    return _convert_elements(array, type.element, label, shown(argument))


# --- symbolic sizes --------------------------------------------------------------------------------------------------


def infer_sizes(tensors: Sequence[tuple[Tensor, tuple[int, ...], str]]) -> dict[str, int]:
    """Infers symbolic sizes from parameter types and actual shapes, and checks all shapes against them."""
    sizes: dict[str, int] = {}
    for type, shape, label in tensors:
        if len(shape) != type.rank:
            _reject(label, str(type), f"shape {shape}")
        for size, actual in zip(type.shape, shape, strict=True):
            if isinstance(size, Dimension) and len(size.terms) == 1 and size.terms[0][1] == 1:
                names = size.terms[0][0]
                if len(names) == 1:
                    sizes.setdefault(names[0], actual)
    for type, shape, _ in tensors:
        for size, actual in zip(type.shape, shape, strict=True):
            _solve_for_symbol(size, actual, sizes)
    for type, shape, label in tensors:
        _check_shape(type, shape, sizes, label)
    return sizes


def _solve_for_symbol(size: int | Dimension, actual: int, sizes: dict[str, int]) -> None:
    """Infers n from a size such as 2*n + 1, if no size is n itself."""
    if not isinstance(size, Dimension) or size.symbols <= sizes.keys() or len(size.symbols) != 1:
        return
    terms = dict(size.terms)
    rest = terms.pop((), 0)
    ((names, factor),) = terms.items() if len(terms) == 1 else [((), 1)]
    if len(names) == 1 and (actual - rest) % factor == 0 and (actual - rest) // factor >= 0:
        sizes[names[0]] = (actual - rest) // factor


def _check_shape(type: Tensor, shape: tuple[int, ...], sizes: Mapping[str, int], label: str) -> None:
    for size, actual in zip(type.shape, shape, strict=True):
        symbols = size.symbols if isinstance(size, Dimension) else frozenset()
        if not symbols <= sizes.keys():
            _reject(label, f"a {type} whose sizes are integers", f"shape {shape}")
        expected = size.evaluate(sizes) if isinstance(size, Dimension) else size
        if expected != actual:
            names = sorted({name for s in type.shape if isinstance(s, Dimension) for name in s.symbols} & sizes.keys())
            values = ", ".join(f"{name} = {sizes[name]}" for name in names)
            _reject(label, f"{type} with {values}" if names else str(type), f"shape {shape}")


class TapeArgument:
    """Stands for the class of tapes in a `DenseForm`: a loop passes tapes to its body unchanged."""


# The form of arguments that need no conversion: the dtype and shape of an array (None: of symbolic sizes), or the class
# and range of a number.
DenseForm = tuple[Any, tuple[int, ...] | None, type | None, float, float]


def dense_form(type: Type) -> DenseForm:
    """The form of arguments of a type that need no conversion."""
    match type:
        case Tensor(element=element, shape=shape):
            return element.dtype, None if is_symbolic(type) else shape, None, 0, 0  # type: ignore[return-value]
        case Vector(element=element, size=size):
            return element.dtype, (size,), None, 0, 0
        case Matrix(element=element, rows=rows, columns=columns):
            return element.dtype, (rows, columns), None, 0, 0
        case Scalar(kind="float" | "signed" | "unsigned"):
            if type is bf16:  # a Python number has to be converted first
                return type.dtype, (), None, 0, 0
            low, high = scalar_range(type)
            return type.dtype, None, float if type.kind == "float" else int, low, high
        case Tape():
            return np.dtype(object), None, TapeArgument, 0, 0
    return None, (), None, 0, 0


def is_symbolic(type: Type) -> bool:
    """Whether a type has symbolic sizes."""
    return isinstance(type, Tensor) and not all(isinstance(size, int) for size in type.shape)
