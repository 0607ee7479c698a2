"""The types of the value IR: scalars, vectors, matrices, arrays, structs, tuples, tensors, tapes.

Types are interned: equal types are the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, dataclass_transform

import numpy as np

from livegrad.diagnostics import NotANumberError, UsageError, caller_origin
from livegrad.ir.bfloat16 import BFLOAT16, narrow
from livegrad.ir.cached_property import cached_property
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.interning import InternTable

_interned: InternTable[Any] = InternTable()


@dataclass_transform(frozen_default=True, eq_default=False)
class _Interned(type):
    """Interns instances: constructor calls with equal arguments return the same object."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            entry = _interned.get((cls, *map(_exact, args)))
            type = None if entry is None else entry()
            if type is not None:
                return type
        fresh = super().__call__(*args, **kwargs)
        key = (cls, *(_exact(getattr(fresh, field.name)) for field in fields(fresh)))
        return _interned.enter(key, fresh)


def _exact(value: Any) -> Any:
    # True == 1, and their hashes are equal; keys must distinguish them.
    kind = value.__class__
    if kind is int or kind is str or kind.__class__ is _Interned:
        return value
    if not isinstance(value, tuple):
        return kind, value
    for item in value:
        if item.__class__ is not int:
            return tuple(map(_exact, value))
    return value


@dataclass(frozen=True, eq=False)
class Type(metaclass=_Interned):
    """The root of all types.

    >>> isinstance(f32, Type), isinstance(Vector(f32, 3), Type)
    (True, True)
    """

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class TypeUnion:
    """A union of types in an annotation, such as `f32 | None`.

    >>> f32 | None
    f32 | None
    """

    parts: tuple[Any, ...]

    def __repr__(self) -> str:
        return " | ".join(str(part) for part in self.parts)


class UnionMember:
    """A base class for types that annotations can combine with `|`.

    >>> f32 | None
    f32 | None
    """

    __slots__ = ()

    def __or__(self, other: Any) -> TypeUnion:
        return TypeUnion((self, other))

    def __ror__(self, other: Any) -> TypeUnion:
        return TypeUnion((other, self))


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
    scalar = bf16 if numpy_dtype.name == "bfloat16" else _FROM_NUMPY.get(numpy_dtype)  # the bfloat16 of ml_dtypes
    if scalar is None:
        raise UsageError(
            f"no livegrad type for dtype {dtype}", where=caller_origin(), expected="one of " + ", ".join(SCALARS)
        )
    return scalar


_MAX_MEMBERS = 1 << 16


def _require_size(type: Type, *sizes: int) -> None:
    """Checks that sizes are non-negative integers and not too large: vectors, matrices and arrays live in registers."""
    if any(size.__class__ is not int or size < 0 for size in sizes) or int(np.prod(sizes)) > _MAX_MEMBERS:
        expected = f"non-negative integers, with at most {_MAX_MEMBERS} members"
        raise UsageError("invalid size", expected=expected, found=str(type), help="use a tensor for many elements")


@dataclass(frozen=True, eq=False, repr=False)
class Vector(Type):
    """A short vector; arithmetic works on each component.

    >>> Vector(f32, 3), Vector(f32, 3) is Vector(f32, 3)
    (vec<f32, 3>, True)
    """

    element: Scalar
    size: int

    def __post_init__(self) -> None:
        _require_size(self, self.size)

    def __str__(self) -> str:
        return f"vec<{self.element}, {self.size}>"


@dataclass(frozen=True, eq=False, repr=False)
class Matrix(Type):
    """A small dense matrix; arithmetic works on each component, `matrix_multiply` is the product.

    >>> Matrix(f32, 2, 3)
    mat<f32, 2, 3>
    """

    element: Scalar
    rows: int
    columns: int

    def __post_init__(self) -> None:
        _require_size(self, self.rows, self.columns)

    def __str__(self) -> str:
        return f"mat<{self.element}, {self.rows}, {self.columns}>"


@dataclass(frozen=True, eq=False, repr=False)
class Array(Type):
    """A fixed number of values of one type.

    >>> Array(f32, 4), Array(Vector(f32, 3), 2)
    (array<f32, 4>, array<vec<f32, 3>, 2>)
    """

    element: Type
    size: int

    def __post_init__(self) -> None:
        _require_size(self, self.size)

    def __str__(self) -> str:
        return f"array<{self.element}, {self.size}>"


@dataclass(frozen=True, eq=False, repr=False)
class Struct(Type):
    """Named fields. Two structs are the same type if their names and fields are equal.

    >>> Struct("Material", (("albedo", Vector(f32, 3)), ("layer", i32)))
    struct Material{albedo: vec<f32, 3>, layer: i32}
    """

    name: str
    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return f"struct {self.name}{{{', '.join(f'{name}: {type}' for name, type in self.fields)}}}"

    def field(self, name: str) -> Type:
        for field_name, type in self.fields:
            if field_name == name:
                return type
        raise UsageError(
            f"struct {self.name} has no field `{name}`", expected="one of " + ", ".join(n for n, _ in self.fields)
        )


@dataclass(frozen=True, eq=False, repr=False)
class Tuple(Type):
    """Values by position: the type of a call of a function with several results.

    >>> Tuple((f32, i32))
    (f32, i32)
    """

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))}{',' if len(self.elements) == 1 else ''})"


UNIT = Tuple(())


@dataclass(frozen=True, eq=False, repr=False)
class Tensor(Type):
    """A dense array of scalars; dimensions are integers or symbolic.

    A tensor of vectors has a trailing dimension for them; a tensor of structs is a struct of tensors.

    >>> Tensor(f32, (Dimension.symbol("n"), 3))
    tensor<f32, [n, 3]>
    """

    element: Scalar
    shape: tuple[int | Dimension, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.element, Scalar):
            raise UsageError("a tensor's element must be a scalar", found=str(self.element))
        for size in self.shape:
            if not isinstance(size, Dimension) and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
                raise UsageError("not a shape", expected="integers or symbolic dimensions", found=repr(self.shape))

    def __str__(self) -> str:
        return f"tensor<{self.element}, [{', '.join(map(str, self.shape))}]>"

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Tape(Type):
    """A tape: the residuals of a loop, one value of the same type for each iteration.

    >>> Tape(f32)
    tape<f32>
    """

    element: Type

    def __str__(self) -> str:
        return f"tape<{self.element}>"


_OVER_SCALARS = (Tensor, Vector, Matrix)


def scalar_of(type: Type) -> Scalar | None:
    """The scalar type of a scalar, vector, matrix or tensor; None for other types.

    >>> scalar_of(Vector(f32, 3)), scalar_of(Tuple((f32, i32)))
    (f32, None)
    """
    while isinstance(type, _OVER_SCALARS):
        type = type.element
    return type if isinstance(type, Scalar) else None


def with_scalar(type: Type, scalar: Scalar) -> Type:
    """Returns the same vector, matrix or tensor type with another scalar.

    >>> with_scalar(Vector(f32, 3), bool_)
    vec<bool, 3>
    """
    match type:
        case Tensor(shape=shape):
            return Tensor(scalar, shape)
        case Scalar():
            return scalar
        case Vector(size=size):
            return Vector(scalar, size)
        case Matrix(rows=rows, columns=columns):
            return Matrix(scalar, rows, columns)
    raise UsageError(f"{type} has no scalar element")


def shape_of(type: Type) -> tuple[Size, ...]:
    """Returns the shape of a tensor, or () for other types.

    >>> shape_of(Tensor(f32, (2, 3))), shape_of(f32)
    ((2, 3), ())
    """
    return type.shape if isinstance(type, Tensor) else ()


def array_form(type: Type) -> tuple[Scalar, tuple[Size, ...]] | None:
    """Returns the element and shape of the array that holds a value, or None if it is not a single array.

    >>> array_form(Matrix(f32, 2, 3)), array_form(Tuple((f32, i32)))
    ((f32, (2, 3)), None)
    """
    match type:
        case Scalar():
            return type, ()
        case Vector(element=element, size=size):
            return element, (size,)
        case Matrix(element=element, rows=rows, columns=columns):
            return element, (rows, columns)
        case Tensor(element=element, shape=shape):
            return element, shape
    return None


def components(type: Type) -> tuple[Type, ...]:
    """Returns the member types of an aggregate, in order; empty for a scalar.

    >>> components(Vector(f32, 3))
    (f32, f32, f32)
    """
    match type:
        case Vector(element=element, size=size) | Array(element=element, size=size):
            return (element,) * size
        case Matrix(element=element, rows=rows, columns=columns):
            return (element,) * (rows * columns)
        case Struct(fields=named):
            return tuple(type for _, type in named)
        case Tuple(elements=elements):
            return elements
    return ()


def map_members(type: Type, change: Callable[[Type], Type]) -> Type:
    """Applies `change` to each member type of a struct, tuple, array or tape; other types are returned unchanged.

    >>> map_members(Tuple((f32, i32)), lambda member: Tensor(member, (3,)))
    (tensor<f32, [3]>, tensor<i32, [3]>)
    """
    match type:
        case Struct(name=name, fields=fields):
            return Struct(name, tuple([(field, change(member)) for field, member in fields]))
        case Tuple(elements=elements):
            return Tuple(tuple([change(member) for member in elements]))
        case Array(element=element, size=size):
            return Array(change(element), size)
        case Tape(element=element):
            return Tape(change(element))
    return type


def inner_types(type: Type) -> Iterator[Type]:
    """Yields a type and all types inside it, without recursion.

    >>> list(inner_types(Tuple((f32, i32))))
    [(f32, i32), i32, f32]
    """
    pending = [type]
    while pending:
        current = pending.pop()
        yield current
        if isinstance(current, Tensor | Tape):
            pending.append(current.element)
        else:
            pending.extend(components(current))


@lru_cache(maxsize=4096)
def holds_tensor(type: Type) -> bool:
    """Whether a type is a tensor type or contains one.

    >>> holds_tensor(Tuple((f32, Tensor(f32, (3,))))), holds_tensor(f32)
    (True, False)
    """
    return any(isinstance(inner, Tensor) for inner in inner_types(type))


@lru_cache(maxsize=4096)
def is_differentiable(type: Type) -> bool:
    """Whether a value of this type can carry a derivative.

    >>> is_differentiable(Vector(f32, 3)), is_differentiable(i32)
    (True, False)
    """
    return any(isinstance(inner, Scalar) and inner.kind in ("float", "complex") for inner in inner_types(type))


@lru_cache(maxsize=4096)
def differential_of(type: Type) -> Type:
    """The type of a tangent or cotangent of a value of `type`.

    Fields of a struct without a derivative are left out; in a tuple or array they become the unit `()`, so that
    positions do not change.

    >>> differential_of(Struct("Material", (("albedo", f32), ("layer", i32))))
    struct Material.Differential{albedo: f32}
    """
    if not is_differentiable(type):
        return UNIT
    match type:
        case Struct(name=name, fields=named):
            differentials = tuple((field, differential_of(t)) for field, t in named if is_differentiable(t))
            is_fixed_point = name.endswith(".Differential") and differentials == named
            return type if is_fixed_point else Struct(name + ".Differential", differentials)
    return map_members(type, differential_of)
