"""The frontend's types: the IR's scalars, vectors and matrices, and composite types (lists, tuples, arrays, records).

`type_reading` derives one from an annotation or a Python value; `ir_of` returns the corresponding IR type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.frontend.function.aliases import MAX_ALIAS_DEPTH
from livegrad.frontend.function.vectors import SHAPED_NAMES, VectorValue
from livegrad.ir import types as ir
from livegrad.ir.bfloat16 import widen


class _Missing(Enum):
    """A class for one object, so that it is the same object after pickling."""

    MISSING = "missing"


MISSING: Any = _Missing.MISSING


class Composite(ir.UnionMember):
    """A type composed of other types, with its IR type, its Differential and its conversions of Python values."""

    @property
    def ir(self) -> ir.Type:
        raise NotImplementedError

    @property
    def differential(self) -> FrontType | None:
        """The type of differentials; None for a type that carries no derivative."""
        raise NotImplementedError

    def accepts(self, value: Any) -> bool:
        """Whether a Python value of another type is accepted where this type is expected."""
        return False

    def to_argument(self, value: Any) -> Any:
        """Converts a Python value to a backend argument."""
        raise NotImplementedError

    def from_result(self, value: Any) -> Any:
        """Converts a backend's result to a Python value."""
        raise NotImplementedError


FrontType = ir.Scalar | ir.Vector | ir.Matrix | Composite


@dataclass(frozen=True)
class ArrayType(Composite):
    """A list of fixed length.

    >>> ArrayType(ir.f64, 3)
    array[float, 3]
    """

    element: FrontType
    size: int

    def __repr__(self) -> str:
        return f"array[{describe(self.element)}, {self.size}]"

    @property
    def ir(self) -> ir.Type:
        return ir.Array(ir_of(self.element), self.size)

    @property
    def differential(self) -> FrontType | None:
        inner = differential_type(self.element)
        return None if inner is None else ArrayType(inner, self.size)

    def to_argument(self, value: Any) -> Any:
        _require_length(value, self.size, self)
        return tuple(to_argument(self.element, item) for item in value)

    def from_result(self, value: Any) -> Any:
        return [from_result(self.element, item) for item in value]


def _require_length(value: Any, size: int, type: FrontType) -> None:
    if not hasattr(value, "__len__") or isinstance(value, str | dict) or len(value) != size:
        raise UsageError(
            "a list of the wrong length", where=caller_origin(), expected=describe(type), found=repr(value)
        )


@dataclass(frozen=True)
class TupleType(Composite):
    """A tuple: values of different types by position."""

    elements: tuple[FrontType, ...]

    def __repr__(self) -> str:
        return f"tuple[{', '.join(map(describe, self.elements)) or '()'}]"

    @property
    def ir(self) -> ir.Type:
        return ir.Tuple(tuple(map(ir_of, self.elements)))

    @property
    def differential(self) -> FrontType | None:
        inner = tuple(map(differential_type, self.elements))
        if all(type is None for type in inner):
            return None
        return TupleType(tuple(NONE if type is None else type for type in inner))

    def to_argument(self, value: Any) -> Any:
        _require_length(value, len(self.elements), self)
        return tuple(to_argument(type, item) for type, item in zip(self.elements, value, strict=True))

    def from_result(self, value: Any) -> Any:
        return tuple(from_result(type, item) for type, item in zip(self.elements, value, strict=True))


@dataclass(frozen=True)
class TensorType(Composite):
    """A whole array that a function indexes; its shape is static.

    >>> TensorType(ir.f64, (100, 3))
    tensor[float, 100, 3]
    """

    element: ir.Scalar
    shape: tuple[int, ...]

    def __repr__(self) -> str:
        return f"tensor[{describe(self.element)}, {', '.join(map(str, self.shape))}]"

    @property
    def ir(self) -> ir.Type:
        return ir.Tensor(self.element, self.shape)

    @property
    def differential(self) -> FrontType | None:
        return self if ir.is_differentiable(self.element) else None

    def to_argument(self, value: Any) -> Any:
        return np.ascontiguousarray(value, self.element.dtype)

    def from_result(self, value: Any) -> Any:
        return np.asarray(value)


class NoneType(Composite):
    """The type of None."""

    def __repr__(self) -> str:
        return "None"

    @property
    def ir(self) -> ir.Type:
        return ir.UNIT

    @property
    def differential(self) -> FrontType | None:
        return None

    def to_argument(self, value: Any) -> Any:
        return ()

    def from_result(self, value: Any) -> Any:
        return None

    def __reduce__(self) -> str:
        return "NONE"


NONE = NoneType()


@dataclass(frozen=True)
class Field:
    """One field of a record."""

    name: str
    type: FrontType
    no_diff: bool = False
    default: Any = MISSING
    derivative_member: str | None = None  # the member of a custom Differential that belongs to this field


class RecordType(Composite):
    """Named fields: a struct, its Differential, a pair. Two records are the same type only if they are one object."""

    def __init__(self, name: str, resolve: Callable[[], Sequence[Field]], make: Callable[..., Any]) -> None:
        self.name = name
        self._resolve = resolve
        self.make = make  # creates an instance from keyword arguments
        self.methods: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}  # getters by name
        self._differential: FrontType | None = MISSING

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(self._resolve())

    @property
    def ir(self) -> ir.Type:
        return ir.Struct(self.name, tuple((field.name, ir_of(field.type)) for field in self.fields))

    def __call__(self, *positional: Any, **keywords: Any) -> Any:
        """Creates an instance from its fields, by position or keyword."""
        names = [field.name for field in self.fields]
        values = dict(zip(names, positional, strict=False)) | keywords
        for field in self.fields:
            if field.name not in values:
                if field.default is MISSING:
                    raise TypeError(f"{self.name} needs a value for `{field.name}`")
                values[field.name] = field.default
        if len(positional) > len(names) or set(values) != set(names):
            raise TypeError(f"{self.name} has the fields {', '.join(names)}")
        return self.make(**values)

    def index_of(self, name: str) -> int | None:
        return next((index for index, field in enumerate(self.fields) if field.name == name), None)

    @property
    def differential(self) -> FrontType | None:
        if self._differential is MISSING:
            self._differential = self.make_differential()
        return self._differential

    def make_differential(self) -> FrontType | None:
        """Synthesises the Differential: a record with one member for each field that has a differential."""
        members = tuple(
            Field(field.name, differential, default=MISSING)
            for field in self.fields
            if not field.no_diff and (differential := differential_type(field.type)) is not None
        )
        if not members:
            return None
        if self.name.endswith(".Differential") and [f.type for f in members] == [f.type for f in self.fields]:
            return self
        name = f"{self.name}.Differential"
        record = RecordType(name, lambda: members, lambda **values: Instance(record, values))
        return record

    def to_argument(self, value: Any) -> Any:
        return tuple(to_argument(field.type, getattr(value, field.name)) for field in self.fields)

    def from_result(self, value: Any) -> Any:
        values = {f.name: from_result(f.type, item) for f, item in zip(self.fields, value, strict=True)}
        return self.make(**values)


class Instance:
    """A value of a record without a Python class of its own, such as a synthesised Differential or a pair.

    >>> record = RecordType("Point", lambda: [Field("x", ir.f64)], lambda **v: Instance(record, v))
    >>> record.make(x=1.0)
    Point(x=1.0)
    """

    def __init__(self, record: RecordType, values: dict[str, Any]) -> None:
        self.__livegrad_type__ = record
        self.__dict__.update(values)

    def __livegrad_parts__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        """The pytree protocol: a constructor, and the names of the attributes that it takes."""
        record = self.__livegrad_type__
        return record.make, tuple(field.name for field in record.fields)

    def __repr__(self) -> str:
        record = self.__livegrad_type__
        inside = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in record.fields)
        return f"{record.name}({inside})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instance) or other.__livegrad_type__ is not self.__livegrad_type__:
            return NotImplemented
        names = [field.name for field in self.__livegrad_type__.fields]
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


# --- queries and conversions for every type --------------------------------------------------------------------------

_PYTHON_NAMES = {ir.f64: "float", ir.i64: "int", ir.bool_: "bool", ir.c128: "complex"}


def describe(type: FrontType) -> str:
    """The name of a type as users write it.

    >>> describe(ir.f64), describe(ir.Vector(ir.f32, 3))
    ('float', 'vec3')
    """
    if isinstance(type, ir.Scalar):
        return _PYTHON_NAMES.get(type, type.name)
    if isinstance(type, ir.Vector):
        return SHAPED_NAMES.get(type, f"vec[{describe(type.element)}, {type.size}]")
    if isinstance(type, ir.Matrix):
        return SHAPED_NAMES.get(type, f"mat[{describe(type.element)}, {type.rows}, {type.columns}]")
    return repr(type)


def ir_of(type: FrontType) -> ir.Type:
    """The IR type of a frontend type."""
    return type.ir if isinstance(type, Composite) else type


def differential_type(type: FrontType) -> FrontType | None:
    """The type of differentials of a type; None if it carries no derivative.

    >>> differential_type(ir.f32), differential_type(ir.i32)
    (f32, None)
    """
    if isinstance(type, Composite):
        return type.differential
    return type if ir.is_differentiable(type) else None


def is_mutable(type: FrontType) -> bool:
    """Whether values of the type can be changed in place in Python."""
    return isinstance(type, ArrayType | RecordType | TensorType | ir.Vector | ir.Matrix)


def mutable_depth(type: FrontType | None) -> int:
    """The nesting depth of mutable Python objects in values of the type.

    >>> [mutable_depth(type) for type in (ir.f64, ir.Vector(ir.f32, 3), ArrayType(ArrayType(ir.f64, 2), 2))]
    [0, 1, 2]
    """
    match type:
        case None | ir.Scalar() | NoneType():
            return 0
        case ir.Vector() | ir.Matrix() | TensorType():
            return 1
        case TupleType():
            inner = max(map(mutable_depth, type.elements), default=0)
            return 1 + inner if inner else 0
        case ArrayType():
            return 1 + mutable_depth(type.element)
        case RecordType():
            return 1 + max((mutable_depth(field.type) for field in type.fields), default=0)
    return MAX_ALIAS_DEPTH  # optionals and interface values


def to_argument(type: FrontType, value: Any) -> Any:
    """Converts a Python value to a backend argument."""
    return type.to_argument(value) if isinstance(type, Composite) else value


def from_result(type: FrontType, value: Any) -> Any:
    """Converts a backend's result to a Python value: floats, ints, vectors, structs."""
    if isinstance(type, Composite):
        return type.from_result(value)
    if type is ir.bf16:
        return np.float32(widen(value))  # NumPy has no bfloat16
    if isinstance(type, ir.Scalar):
        return value.item() if type in _PYTHON_NAMES else type.dtype.type(value)
    return np.asarray(value).view(VectorValue)
