"""External sources of pins: numbers, arrays, and bound memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import copysign
from threading import Lock
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, scalar_of_dtype
from livegrad.runtime.arguments import array_argument, scalar_argument
from livegrad.state import Owned

Numbers = np.ndarray[Any, Any]
_NUMBER_KINDS = "?biufc"  # NumPy's
_MAX_SHOWN = 60  # characters
_touching = Owned(Lock)
_NUMBER_TYPES: dict[type, str] = {bool: "bool", int: "i64", float: "f64", complex: "c128"}


@dataclass(frozen=True)
class InputType:
    """The type of an input at compile time: a tensor of known shape, or a weakly typed Python number."""

    type: Tensor
    weak: bool = False


class ForeignArray:
    """A device array of another library, with `__cuda_array_interface__`."""

    def __init__(self, array: Any) -> None:
        interface = array.__cuda_array_interface__
        if interface.get("strides") is not None:
            raise UsageError(
                "an external buffer must be a dense array",
                where=caller_origin(),
                found=f"strides {interface['strides']}",
            )
        self.array = array
        self.dtype, self.shape = np.dtype(interface["typestr"]), tuple(interface["shape"])

    @property
    def address(self) -> int:
        """The current address."""
        return int(self.array.__cuda_array_interface__["data"][0])

    @property
    def stream(self) -> int | None:
        """The stream that may still write to it."""
        return self.array.__cuda_array_interface__.get("stream")


class ExternalBuffer:
    """External memory. With a version, its readers run only after `touch`; otherwise in every frame.

    The memory is a NumPy array, or an array with `__cuda_array_interface__` (CuPy, torch), which CUDA reads in place.

    >>> shared = ExternalBuffer(np.zeros(3, np.float32), version=0)
    >>> shared.touch()
    >>> shared.version
    1
    """

    def __init__(self, array: Any, version: int | None = None) -> None:
        if not isinstance(array, np.ndarray) and hasattr(array, "__cuda_array_interface__"):
            array = ForeignArray(array)
        elif not isinstance(array, np.ndarray) or not array.flags.c_contiguous or not array.flags.aligned:
            raise UsageError(
                "an external buffer must be a dense array",
                where=caller_origin(),
                found="an array with strides" if isinstance(array, np.ndarray) else type(array).__name__,
                help="copy it with numpy.ascontiguousarray, or pass the values: engine.set(pin, values)",
            )
        scalar_of_dtype(array.dtype)
        self._array = array
        self.version = version

    @property
    def array(self) -> Any:
        """The memory: an array of NumPy, or a `ForeignArray`. To read other memory, bind another buffer."""
        return self._array

    def __repr__(self) -> str:
        version = "read every frame" if self.version is None else f"version {self.version}"
        return f"<external buffer {self.array.dtype} {self.array.shape}, {version}>"

    def touch(self) -> None:
        """Declares that the contents have changed."""
        with _touching.current:  # concurrent calls increment the version twice
            self.version = 0 if self.version is None else self.version + 1


@dataclass(eq=False, slots=True)
class Setting:
    """The value of an input: a number (a live parameter), or a copy of an array."""

    value: Any
    input_type: InputType
    lineage: object = None  # shared by values of one type that replace each other; None: that of the default

    @property
    def is_number(self) -> bool:
        return not isinstance(self.value, np.ndarray)


@dataclass(frozen=True)
class Binding:
    """An input that reads external memory."""

    external: ExternalBuffer


def setting_of(value: Any, like: Setting | None = None) -> Setting:
    """The setting for a value: Python numbers stay numbers, anything else becomes an array.

    An integer for a pin that holds a float becomes a float, so that a slider at a whole number changes no types.
    """
    if value.__class__ in _NUMBER_TYPES:
        if value.__class__ is int and like is not None and like.value.__class__ is float:
            try:
                value = float(value)
            except OverflowError:
                found = shown(value)
                raise UsageError("the integer is too large for a float", where=caller_origin(), found=found) from None
        return Setting(value, _weak_type(value.__class__))
    array = array_of(value)
    input_type = InputType(Tensor(scalar_of_dtype(array.dtype), array.shape))
    return Setting(array[()] if array.ndim == 0 else array, input_type)


def with_default_type(value: Any) -> Any:
    """A Python float or complex number in its default type; anything else unchanged.

    >>> with_default_type(1.5), with_default_type([1.5])
    (np.float32(1.5), [1.5])
    """
    defaults = {float: np.float32, complex: np.complex64}
    return defaults[value.__class__](value) if value.__class__ in defaults else value


def array_of(value: Any) -> Numbers:
    """A dense copy of a number, nested numbers or an array.

    >>> array_of([1.0, 2.0])
    array([1., 2.])
    """
    try:
        array = np.array(value, order="C")
    except ValueError:  # lists of different lengths
        array = None
    if array is None or (array.dtype.kind not in _NUMBER_KINDS and array.dtype.name != "bfloat16"):
        found = repr(value)
        raise UsageError(
            "not a number or an array of numbers",
            where=caller_origin(),
            found=found if len(found) <= _MAX_SHOWN else type(value).__name__,
        )
    return array


def feature_value(value: Any, types: Iterable[Type], label: str) -> Any:
    """The value of a context feature: Python numbers stay numbers, anything else becomes an array.

    Raises unless it fits all `types`, those of its declaration and of its readers.
    """
    number = value if value.__class__ in _NUMBER_TYPES else array_of(value)
    for type in types:
        if isinstance(type, Scalar) or (isinstance(type, Tensor) and not type.shape):
            scalar_argument(number, type.element if isinstance(type, Tensor) else type, label)
        elif isinstance(type, Vector | Matrix):
            array_argument(number, type, label)
    return number


@cache
def _weak_type(kind: type) -> InputType:
    return InputType(Tensor(scalar_of_number(kind()), ()), weak=True)


def scalar_of_number(value: Any) -> Scalar:
    """The scalar type of a Python number.

    >>> scalar_of_number(1.5)
    f64
    """
    return scalar_of_dtype({"bool": "bool", "i64": "int64", "f64": "float64", "c128": "complex128"}[
        _NUMBER_TYPES[value.__class__]
    ])  # fmt: skip


_CHUNK = 1 << 14  # bytes that are compared at once


def same_value(old: Any, new: Any) -> bool:
    """Whether two values of one type are bitwise equal: 0.0 differs from -0.0, and NaN equals itself.

    >>> same_value(0.0, -0.0), same_value(float("nan"), float("nan"))
    (False, True)
    """
    if isinstance(old, int) and isinstance(new, int):
        return old == new
    if old.__class__ is float and new.__class__ is float:
        if old == new:
            return old != 0.0 or copysign(1.0, old) == copysign(1.0, new)
        if old == old or new == new:  # not both NaN
            return False
    before, after = np.asarray(old), np.asarray(new)
    return (before.dtype, before.shape) == (after.dtype, after.shape) and same_bits(before, after)


def describe_setting(setting: Setting) -> str:
    """A value as text for messages."""
    if setting.is_number:
        return str(setting.value) if isinstance(setting.value, np.generic) else repr(setting.value)
    type = setting.input_type.type
    return f"{type.element} {list(type.shape)}" if isinstance(type, Tensor) else f"array of {type}"


def same_bits(first: Numbers, second: Numbers) -> bool:
    """Whether two arrays of one type and shape are bitwise equal; stops at the first difference.

    >>> same_bits(np.array([0.0]), np.array([-0.0])), same_bits(np.array([np.nan]), np.array([np.nan]))
    (False, True)
    """
    left, right = (array.reshape(-1).view("u1") for array in (first, second))
    starts = range(0, len(left), _CHUNK)
    return all(left[start : start + _CHUNK].tobytes() == right[start : start + _CHUNK].tobytes() for start in starts)
