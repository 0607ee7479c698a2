"""Derives frontend types from annotations and Python values; defines type families such as `vec[float, 3]`.

Used by signatures, structs and calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from keyword import iskeyword
from typing import Any, Literal, get_args, get_origin

import numpy as np

from livegrad.diagnostics import CallError, caller_origin, shown
from livegrad.frontend.function.array_patterns import Size, TensorPattern
from livegrad.frontend.function.function_types import (
    NONE,
    ArrayType,
    Composite,
    FrontType,
    TensorType,
    TupleType,
    describe,
)
from livegrad.frontend.function.type_rules import rules
from livegrad.frontend.function.vectors import ShapedConstructor
from livegrad.ir import types as ir

_PYTHON = {float: ir.f64, int: ir.i64, bool: ir.bool_, complex: ir.c128, type(None): NONE, None: NONE}


# --- annotations ------------------------------------------------------------------------------------------------------


def plain_type(annotation: Any) -> FrontType:
    """The type that an annotation without qualifiers or type variables denotes; raises TypeError if there is none."""
    if isinstance(annotation, ir.Scalar | ir.Vector | ir.Matrix | Composite):
        return annotation
    if isinstance(annotation, ir.Tensor):
        return _array_of(annotation)
    if isinstance(annotation, ShapedConstructor):
        return annotation.type
    type = getattr(annotation, "__livegrad_type__", None)
    if isinstance(type, Composite):
        return type
    try:
        builtin_type = _PYTHON.get(annotation)
    except TypeError:
        builtin_type = None
    if builtin_type is not None:
        return builtin_type
    if getattr(annotation, "__origin__", None) is tuple:
        arguments = annotation.__args__
        return TupleType(() if arguments == ((),) else tuple(map(plain_type, arguments)))
    for convert in rules.annotation:
        converted = convert(annotation)
        if converted is not None:
            return converted
    raise TypeError(f"{annotation!r} is not a type that functions support")


def _array_of(type: ir.Tensor) -> TensorType:
    """The type of a whole array of an IR tensor type, whose sizes must be numbers."""
    sizes = tuple([size for size in type.shape if isinstance(size, int)])
    if len(sizes) < type.rank:
        raise TypeError(f"{type!r} is not a type that functions support: its sizes must be numbers")
    return TensorType(type.element, sizes)


def _size(parameter: Any) -> Any:
    """A size in brackets: a number or a name, also as `Literal[...]`, which type checkers accept."""
    return get_args(parameter)[0] if get_origin(parameter) is Literal else parameter


_EXAMPLES = {
    "vec": "vec[float, 3]",
    "mat": "mat[float, 2, 2]",
    "array": "array[float, 4]",
    "tensor": "tensor[float, 2]",
}


def _read_brackets(family: str, parameters: Any) -> tuple[FrontType, list[int]]:
    """Reads the element type and the sizes in the brackets of a family."""
    element, *rest = parameters if isinstance(parameters, tuple) else (parameters,)
    sizes = [*map(_size, rest)]
    is_valid = len(sizes) == (2 if family == "mat" else 1) and all(
        size.__class__ is int and size >= 0 for size in sizes
    )
    try:
        inner = plain_type(element)
    except TypeError:
        is_valid, inner = False, NONE
    if is_valid and (family == "array" or isinstance(inner, ir.Scalar)):
        return inner, sizes
    kind = "a type" if family == "array" else "a type of numbers"
    raise CallError(
        f"`{family}` takes {kind} and {'two whole numbers' if family == 'mat' else 'a whole number'} in brackets",
        where=caller_origin(),
        expected=f"for example {_EXAMPLES[family]}",
        found=f"{family}[{', '.join(map(shown, (element, *sizes)))}]",
    )


def _read_array_pattern(family: str, parameters: Any) -> TensorPattern | None:
    """Reads the pattern of a whole array, as in `array[float, "n", 3]`; None if there is at most one number."""
    element, *rest = parameters if isinstance(parameters, tuple) else (parameters,)
    sizes = [*map(_size, rest)]
    if len(sizes) < 2 and not any(isinstance(size, str) for size in sizes):
        return None
    try:
        inner = plain_type(element)
    except TypeError:
        inner = NONE
    if not isinstance(inner, ir.Scalar) or not all(map(_is_size, sizes)):
        raise CallError(
            f"a whole `{family}` takes a type of numbers and a size for each dimension in brackets",
            where=caller_origin(),
            expected=f'for example {family}[float, "n", 3]',
            found=f"{family}[{', '.join(map(shown, (element, *sizes)))}]",
            help="a size is a number, or a name for a number that comes from the argument",
        )
    return TensorPattern(inner, tuple(sizes))


def _is_size(size: Size) -> bool:
    if isinstance(size, str):
        return size.isidentifier() and not iskeyword(size)
    return size.__class__ is int and size >= 0  # type: ignore[operator]


class _TensorFamily:
    """`tensor[element, rank]` and `tensor[element, "n", "m"]`: whole arrays as annotations.

    >>> import livegrad as lg
    >>> lg.tensor[lg.f32, 2], lg.tensor[float, "n", 3]
    (tensor[f32, 2], array[float, "n", 3])
    """

    def __repr__(self) -> str:
        return "tensor"

    def __call__(self, *values: Any) -> Any:
        what = "`tensor` is a family of types, such as tensor[float, 2]"
        raise CallError(what, where=caller_origin(), help="lg.asarray(data) creates a tensor")

    def __getitem__(self, parameters: tuple[Any, ...]) -> TensorPattern:
        pattern = _read_array_pattern("tensor", parameters)
        if pattern is not None:
            return pattern
        inner, (rank,) = _read_brackets("tensor", parameters)
        assert isinstance(inner, ir.Scalar)
        return TensorPattern(inner, (None,) * rank)


tensor = _TensorFamily()


class _Family:
    """`vec[f64, 3]`, `mat[f32, 2, 2]`, `array[float, 4]`: families of types by element and size.

    With named sizes, or several sizes, `array` denotes a whole NumPy array.

    >>> import livegrad as lg
    >>> lg.vec[lg.f64, 3], lg.mat[lg.f32, 2, 3], lg.array[float, 4], lg.array[float, "n", 3]
    (vec[float, 3], mat[f32, 2, 3], array[float, 4], array[float, "n", 3])
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *values: Any) -> Any:
        advice = {"vec": "lg.vec3(...)", "mat": "lg.mat3(...)", "array": "lg.asarray(data) creates a tensor"}[self.name]
        what = f"`{self.name}` is a family of types, such as {_EXAMPLES[self.name]}"
        raise CallError(what, where=caller_origin(), help=advice)

    def __getitem__(self, parameters: tuple[Any, ...]) -> Any:
        pattern = _read_array_pattern("array", parameters) if self.name == "array" else None
        if pattern is not None:
            return pattern
        inner, sizes = _read_brackets(self.name, parameters)
        text = f"{self.name}[{describe(inner)}, {', '.join(map(str, sizes))}]"
        if self.name == "array":
            return ArrayType(inner, *sizes)
        assert isinstance(inner, ir.Scalar)
        type = ir.Vector(inner, *sizes) if self.name == "vec" else ir.Matrix(inner, *sizes)
        return ShapedConstructor(type, text)


vec, mat, array = _Family("vec"), _Family("mat"), _Family("array")


# --- values -----------------------------------------------------------------------------------------------------------


def type_of_value(value: Any) -> FrontType:
    """The type of a Python value; raises TypeError if it has none.

    >>> type_of_value([1.0, 2.0])
    array[float, 2]
    """
    value_type = getattr(value, "__livegrad_type__", None)
    if isinstance(value_type, Composite) and not isinstance(value, type):
        return value_type
    if value is None:
        return NONE
    for python in (bool, int, float, complex):  # subclasses too: a member of an IntEnum is an integer
        if isinstance(value, python):
            return _PYTHON[python]
    if isinstance(value, np.generic):
        return ir.scalar_of_dtype(value.dtype)
    if isinstance(value, np.ndarray) and value.ndim in (0, 1, 2):
        element = ir.scalar_of_dtype(value.dtype)
        return (ir.Vector, ir.Matrix)[value.ndim - 1](element, *value.shape) if value.ndim else element
    if isinstance(value, tuple):
        return TupleType(tuple(map(type_of_value, value)))
    if isinstance(value, list) and value:
        inner = [type_of_value(item) for item in value]
        common = _common_type(inner)
        if common is not None:
            return ArrayType(common, len(value))
        raise TypeError(f"a list of values of different types: {', '.join(sorted({describe(t) for t in inner}))}")
    raise TypeError(f"{value!r} has no type that functions support")


def _common_type(types: Sequence[FrontType]) -> FrontType | None:
    """The common type of the elements of a list, where ints are promoted to float; None if there is none."""
    arrays = [type for type in types if isinstance(type, ArrayType)]
    if len(arrays) == len(types) and len({array.size for array in arrays}) == 1:
        inner = _common_type([array.element for array in arrays])
        return None if inner is None else ArrayType(inner, arrays[0].size)
    common = ir.f64 if set(types) == {ir.f64, ir.i64} else types[0]
    return common if all(type in (common, ir.i64) for type in types) else None
