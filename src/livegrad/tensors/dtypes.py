"""Element types under their Array API names, and type promotion.

A dtype is the scalar type of the IR. Python numbers are weakly typed: they take the type of the tensor that they are
combined with.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, caller_origin
from livegrad.ir.types import (
    Scalar,
    bf16,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    scalar_of_dtype,
    u8,
    u16,
    u32,
    u64,
)
from livegrad.ir.types.scalars import SCALARS
from livegrad.tensors.errors import DtypeError

int8, int16, int32, int64 = i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64
float16, float32, float64 = f16, f32, f64
bfloat16 = bf16
complex64, complex128 = c64, c128

# The types of Python numbers that are not combined with a tensor.
DEFAULT_FLOAT, DEFAULT_INTEGER, DEFAULT_COMPLEX, DEFAULT_INDEX = f32, i64, c64, i64

_SIGNED = {8: i8, 16: i16, 32: i32, 64: i64}
_INTEGER_KINDS = ("signed", "unsigned")


@lru_cache(maxsize=1024)
def common_type(first: Scalar, second: Scalar) -> Scalar | None:
    """Returns the type that two types promote to, or None: u64 and signed integers have no common type.

    Mixed kinds promote to the wider kind: an integer and a float give the float type, a float and a complex number give
    a complex type.

    >>> common_type(i8, u8), common_type(i64, f32), common_type(f64, c64)
    (i16, f32, c128)
    """
    if first is second:
        return first
    kinds = {first.kind, second.kind}
    if "bool" in kinds:
        return second if first.kind == "bool" else first
    if {first, second} == {f16, bf16}:
        return f32  # float16 has more precision, bfloat16 more range
    if len(kinds) == 1:
        return first if first.bits >= second.bits else second
    if kinds == set(_INTEGER_KINDS):
        signed, unsigned = (first, second) if first.kind == "signed" else (second, first)
        return _SIGNED.get(max(signed.bits, 2 * unsigned.bits))
    if "complex" in kinds:
        complex_type, other = (first, second) if first.kind == "complex" else (second, first)
        if other.kind in _INTEGER_KINDS:
            return complex_type
        return c128 if f64 in (complex_type.real, other) else complex_type
    return first if first.kind == "float" else second


def promote_types(first: Scalar, second: Scalar, user: str) -> Scalar:
    """Returns the common type of two types; raises if there is none."""
    common = common_type(first, second)
    if common is None:
        raise DtypeError(
            f"`{user}` has no common type for {first} and {second}",
            where=caller_origin(),
            help="cast one of them with lg.astype",
        )
    return common


def weak_type(number: bool | int | float | complex, beside: Scalar) -> Scalar:
    """Returns the type of an operation on a Python number and a tensor with the element type `beside`."""
    if isinstance(number, bool) or beside.kind == "complex":
        return beside
    if isinstance(number, complex):
        return c128 if beside is f64 else DEFAULT_COMPLEX
    if isinstance(number, float):
        return beside if beside.kind == "float" else DEFAULT_FLOAT
    return DEFAULT_INTEGER if beside.kind == "bool" else beside


def default_type(number: bool | int | float | complex) -> Scalar:
    """Returns the type of a Python number that is not combined with a tensor."""
    if isinstance(number, bool):
        return bool_
    if isinstance(number, int):
        return DEFAULT_INTEGER
    return DEFAULT_FLOAT if isinstance(number, float) else DEFAULT_COMPLEX


_PYTHON_TYPES: dict[Any, Scalar] = {bool: bool_, int: DEFAULT_INTEGER, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
_PYTHON_NAMES: dict[str, Any] = {type.__name__: type for type in _PYTHON_TYPES}


def dtype_from(dtype: Any, user: str) -> Scalar:
    """Converts a dtype argument: a scalar type, a NumPy type, a name, or Python's float, int, bool or complex.

    >>> dtype_from("float64", "zeros"), dtype_from(float, "zeros"), dtype_from("float", "zeros")
    (f64, f32, f32)
    """
    if dtype.__class__ is Scalar:
        return dtype
    if isinstance(dtype, str):
        if dtype == bf16.long_name:
            return bf16
        dtype = _PYTHON_NAMES.get(dtype, dtype)  # "float" means `float`, as in NumPy
    builtin_scalar = _PYTHON_TYPES.get(dtype) if isinstance(dtype, type) else None
    if builtin_scalar is not None:
        return builtin_scalar
    if not isinstance(dtype, str | type | np.dtype):
        raise DtypeError(f"`{user}` takes a dtype", where=caller_origin(), found=repr(dtype))
    try:
        return SCALARS.get(dtype) or scalar_of_dtype(dtype)  # type: ignore[arg-type]
    except (TypeError, LivegradError):
        names = ", ".join(scalar.long_name for scalar in SCALARS.values())
        raise DtypeError(f"`{user}`: unknown dtype", where=caller_origin(), expected=names, found=repr(dtype)) from None
