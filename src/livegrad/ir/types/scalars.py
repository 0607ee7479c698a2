"""Scalar types, and the NumPy dtypes that they correspond to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.diagnostics import NotANumberError, UsageError, caller_origin
from livegrad.ir.bfloat16 import BFLOAT16, narrow
from livegrad.ir.cached_property import cached_property
from livegrad.ir.types.interned import Type, UnionMember


@dataclass(frozen=True, eq=False, repr=False)
class Scalar(UnionMember, Type):
    """A number or boolean.

    >>> f32, f32.bits, f32.kind
    (f32, 32, 'float')
    """

    name: str
    kind: str  # bool, signed, unsigned, float, complex
    bits: int

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        """Whether `other` is this type, the equivalent NumPy dtype, or its name.

        >>> f32 == np.float32, f32 == np.dtype("float32"), f32 == "float32", f32 == np.float64
        (True, True, True, False)
        """
        if self is other:
            return True
        if isinstance(other, str):
            return other in (self.name, self.long_name)
        if isinstance(other, np.dtype) or (isinstance(other, type) and issubclass(other, np.generic)):
            return self.dtype == other or (self is bf16 and np.dtype(other).name == "bfloat16")
        return NotImplemented

    def __hash__(self) -> int:
        """The hash of the equivalent NumPy dtype, which compares equal."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.dtype)

    def __call__(self, value: Any) -> Any:
        """Converts a value to a NumPy scalar of this type.

        >>> f32(0.5).dtype
        dtype('float32')
        """
        try:
            if value is not None:  # NumPy would convert None to NaN
                return narrow(value)[()] if self is bf16 else self.dtype.type(value)
        except (ValueError, TypeError, OverflowError):
            pass
        raise NotANumberError(f"not a number of type {self}", where=caller_origin(), found=repr(value))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The equivalent NumPy dtype; for bfloat16, which NumPy lacks, two opaque bytes."""
        return _NUMPY[self.name]

    @property
    def long_name(self) -> str:
        """The name used by other libraries.

        >>> f32.long_name, bf16.long_name
        ('float32', 'bfloat16')
        """
        return "bfloat16" if self is bf16 else self.dtype.name

    @property
    def real(self) -> Scalar:
        """The type of the components of a complex number; other types are returned unchanged."""
        return {"c64": f32, "c128": f64}.get(self.name, self)


bool_ = Scalar("bool", "bool", 1)
i8, i16, i32, i64 = (Scalar(f"i{bits}", "signed", bits) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (Scalar(f"u{bits}", "unsigned", bits) for bits in (8, 16, 32, 64))
f16, f32, f64 = (Scalar(f"f{bits}", "float", bits) for bits in (16, 32, 64))
bf16 = Scalar("bf16", "float", 16)
c64, c128 = (Scalar(f"c{bits}", "complex", bits) for bits in (64, 128))

SCALARS: Mapping[str, Scalar] = {
    scalar.name: scalar for scalar in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, bf16, f16, f32, f64, c64, c128)
}
_NUMPY: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(
        {"bool": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}[name if name == "bool" else name[0]]
        + ("" if name == "bool" else name[1:])
    )
    for name in SCALARS
    if name != "bf16"
} | {"bf16": BFLOAT16}
_FROM_NUMPY = {dtype: SCALARS[name] for name, dtype in _NUMPY.items()}


def scalar_of_dtype(dtype: Any) -> Scalar:
    """The scalar type of a NumPy dtype.

    >>> scalar_of_dtype("float32")
    f32
    """
    numpy_dtype = np.dtype(dtype)
    scalar = _FROM_NUMPY.get(numpy_dtype)
    if scalar is None and numpy_dtype.name == "bfloat16":  # of the package ml_dtypes
        scalar = bf16
    if scalar is None:
        raise UsageError(
            f"no livegrad type for dtype {dtype}", where=caller_origin(), expected="one of " + ", ".join(SCALARS)
        )
    return scalar


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy computes with a dtype, and it is that of a scalar type, in the byte order of the machine.

    >>> is_native(np.dtype("float32")), is_native(np.dtype(">f4")), is_native(np.dtype("object"))
    (True, False, False)
    """
    return dtype.kind in "biufc" and dtype in _FROM_NUMPY
