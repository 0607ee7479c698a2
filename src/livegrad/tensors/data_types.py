"""Data type functions of the tensor namespace: casts, promotion, limits and capabilities.

A dtype is the scalar type of the IR itself.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.bfloat16 import LARGEST
from livegrad.ir.types import Scalar, bf16, f64, scalar_of
from livegrad.ir.types.scalars import SCALARS
from livegrad.lazy.devices import DEFAULT_DEVICE
from livegrad.ops.comparison import not_equal
from livegrad.ops.conversion import cast
from livegrad.ops.rules import zero
from livegrad.tensors.dtypes import (
    DEFAULT_COMPLEX,
    DEFAULT_FLOAT,
    DEFAULT_INDEX,
    DEFAULT_INTEGER,
    common_type,
    default_type,
    dtype_from,
    promote_types,
    weak_type,
)
from livegrad.tensors.errors import DtypeError
from livegrad.tensors.handle import Tensor, weak_node_of, wrap
from livegrad.tensors.number_nodes import number_node
from livegrad.tensors.placement import DEVICES, place_on, require_device
from livegrad.tensors.weak_types import is_weak, make_strong

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("signed",),
    "unsigned integer": ("unsigned",),
    "integral": ("signed", "unsigned"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("signed", "unsigned", "float", "complex"),
}


def astype(x: Any, dtype: Any, /, *, copy: builtins.bool = True, device: str | None = None) -> Tensor:
    """Converts a tensor to another element type.

    Casting NaN, infinity or an out-of-range number to an integer raises when it is computed. Complex numbers cannot be
    cast to real numbers: use `lg.real` or `lg.imag`.

    >>> import livegrad as lg
    >>> lg.astype(lg.asarray([1.7, -1.7]), lg.int32)
    Tensor([ 1, -1], dtype=int32)
    """
    target_type = dtype_from(dtype, "astype")
    node = number_node(x, f64) if x.__class__ is float else weak_node_of(x, "astype")
    element = scalar_of(node.type)
    assert element is not None
    if is_weak(node) and element.kind != "complex":
        return place_on(wrap(make_strong(node if element is target_type else cast(node, type=target_type))), device)
    if element is target_type:
        return place_on(x if isinstance(x, Tensor) and not copy else wrap(node), device)
    if element.kind == "complex" and target_type.kind == "bool":
        return place_on(wrap(not_equal(node, zero(node.type))), device)
    if element.kind == "complex" and target_type.kind != "complex":
        help = "take lg.real or lg.imag first"
        raise DtypeError(
            f"complex numbers cannot be converted to {name_of(target_type)}", where=caller_origin(), help=help
        )
    return place_on(wrap(cast(node, type=target_type)), device)


def name_of(dtype: Scalar) -> str:
    """Returns the Array API name of a dtype.

    >>> from livegrad.ir.types import f32
    >>> name_of(f32)
    'float32'
    """
    return dtype.long_name


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Whether one type (or tensor) can be promoted to another.

    >>> import livegrad as lg
    >>> lg.can_cast(lg.int8, lg.int32), lg.can_cast(lg.float64, lg.float32)
    (True, False)
    """
    source = from_.dtype if isinstance(from_, Tensor) else dtype_from(from_, "can_cast")
    target = dtype_from(to, "can_cast")
    return common_type(source, target) is target


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating-point type.

    >>> import livegrad as lg
    >>> lg.finfo(lg.float32).bits
    32
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Scalar


@dataclass(frozen=True)
class IntegerInfo:
    """The limits of an integer type.

    >>> import livegrad as lg
    >>> lg.iinfo(lg.int8).max
    127
    """

    bits: int
    max: int
    min: int
    dtype: Scalar


def finfo(type: Any, /) -> FloatInfo:
    """Returns the limits of a floating-point type, or of the components of a complex type.

    >>> import livegrad as lg
    >>> lg.finfo(lg.float64).eps
    2.220446049250313e-16
    """
    dtype = type.dtype if isinstance(type, Tensor) else dtype_from(type, "finfo")
    if dtype.kind not in ("float", "complex"):
        raise DtypeError("`finfo` takes a floating-point type", where=caller_origin(), found=name_of(dtype))
    if dtype is bf16:
        return FloatInfo(16, 2.0**-7, LARGEST, -LARGEST, 2.0**-126, bf16)
    info = np.finfo(dtype.real.dtype)
    limits = float(info.eps), float(info.max), float(info.min), float(info.smallest_normal)
    return FloatInfo(dtype.real.bits, *limits, dtype.real)


def iinfo(type: Any, /) -> IntegerInfo:
    """Returns the limits of an integer type.

    >>> import livegrad as lg
    >>> lg.iinfo(lg.uint8)
    IntegerInfo(bits=8, max=255, min=0, dtype=u8)
    """
    dtype = type.dtype if isinstance(type, Tensor) else dtype_from(type, "iinfo")
    if dtype.kind not in ("signed", "unsigned"):
        raise DtypeError("`iinfo` takes an integer type", where=caller_origin(), found=name_of(dtype))
    limits = np.iinfo(dtype.dtype)
    return IntegerInfo(dtype.bits, int(limits.max), int(limits.min), dtype)


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether a type is of a kind: a dtype, "bool", "integral", "real floating", "numeric" …, or one of several.

    >>> import livegrad as lg
    >>> lg.isdtype(lg.float32, "real floating"), lg.isdtype(lg.int8, ("bool", lg.int16))
    (True, False)
    """
    element = dtype_from(dtype, "isdtype")
    if isinstance(kind, tuple):
        return any(isdtype(element, each) for each in kind)
    if isinstance(kind, str):
        return element.kind in _kinds_of(kind)
    return element is dtype_from(kind, "isdtype")


def _kinds_of(kind: str) -> tuple[str, ...]:
    kinds = _KINDS.get(kind)
    if kinds is None:
        raise UsageError(f"unknown kind of dtype {kind!r}", where=caller_origin(), expected=", ".join(_KINDS))
    return kinds


def result_type(*arrays_and_dtypes: Any) -> Scalar:
    """Returns the type that tensors, types and Python numbers are promoted to.

    >>> import livegrad as lg
    >>> lg.result_type(lg.int8, lg.uint8) == lg.int16, lg.result_type(lg.float64, 1) == lg.float64
    (True, True)
    """
    if not arrays_and_dtypes:
        raise UsageError("`result_type` needs at least one argument", where=caller_origin())
    numbers = [item for item in arrays_and_dtypes if isinstance(item, builtins.bool | int | float | complex)]
    strong = [
        item.dtype if isinstance(item, Tensor) else dtype_from(item, "result_type")
        for item in arrays_and_dtypes
        if not any(item is number for number in numbers)
    ]
    if not strong:
        return reduce(lambda a, b: promote_types(a, b, "result_type"), map(default_type, numbers))
    common = reduce(lambda a, b: promote_types(a, b, "result_type"), strong)
    return reduce(lambda element, number: weak_type(number, element), numbers, common)


class NamespaceInfo:
    """The capabilities of this namespace, returned by `lg.__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """Returns the supported features. Data-dependent shapes work: they execute what the shape depends on."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Returns the device of tensors that are created without one."""
        return DEFAULT_DEVICE

    def devices(self) -> tuple[str, ...]:
        """Returns the devices that every machine has."""
        return DEVICES

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Scalar]:
        """Returns the types of Python numbers and indices."""
        require_device(device)
        return {
            "real floating": DEFAULT_FLOAT,
            "complex floating": DEFAULT_COMPLEX,
            "integral": DEFAULT_INTEGER,
            "indexing": DEFAULT_INDEX,
        }

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, Scalar]:
        """Returns the standard's types of a kind, of several kinds, or for None of all kinds, by name."""
        require_device(device)
        kind_names = kind if isinstance(kind, tuple) else tuple(_KINDS) if kind is None else (kind,)
        target_type = {each for name in kind_names for each in _kinds_of(name)}
        return {
            name_of(scalar): scalar
            for scalar in SCALARS.values()
            if scalar.kind in target_type and name_of(scalar) in _STANDARD_NAMES
        }


_STANDARD_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


def __array_namespace_info__() -> NamespaceInfo:
    """Returns the capabilities, devices and types of this namespace.

    >>> import livegrad as lg
    >>> lg.__array_namespace_info__().default_device()
    'cpu'
    """
    return NamespaceInfo()
