"""What a type contains: its scalar, its shape, its members, and the type of its differentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from livegrad.diagnostics import UsageError
from livegrad.ir.dimension import Size
from livegrad.ir.types.aggregates import UNIT, Array, Matrix, Struct, Tape, Tensor, Tuple, Vector
from livegrad.ir.types.interned import Type
from livegrad.ir.types.scalars import Scalar

_OVER_SCALARS = (Tensor, Vector, Matrix)


def scalar_of(type: Type) -> Scalar | None:
    """The scalar type of a scalar, vector, matrix or tensor; None for other types.

    >>> from livegrad.ir.types import f32, i32
    >>> scalar_of(Vector(f32, 3)), scalar_of(Tuple((f32, i32)))
    (f32, None)
    """
    while isinstance(type, _OVER_SCALARS):
        type = type.element
    return type if isinstance(type, Scalar) else None


def with_scalar(type: Type, scalar: Scalar) -> Type:
    """Returns the same vector, matrix or tensor type with another scalar.

    >>> from livegrad.ir.types import bool_, f32
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

    >>> from livegrad.ir.types import f32
    >>> shape_of(Tensor(f32, (2, 3))), shape_of(f32)
    ((2, 3), ())
    """
    return type.shape if isinstance(type, Tensor) else ()


def array_form(type: Type) -> tuple[Scalar, tuple[Size, ...]] | None:
    """Returns the element and shape of the array that holds a value, or None if it is not a single array.

    >>> from livegrad.ir.types import f32, i32
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

    >>> from livegrad.ir.types import f32
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

    >>> from livegrad.ir.types import f32, i32
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

    >>> from livegrad.ir.types import f32, i32
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

    >>> from livegrad.ir.types import f32
    >>> holds_tensor(Tuple((f32, Tensor(f32, (3,))))), holds_tensor(f32)
    (True, False)
    """
    return any(isinstance(inner, Tensor) for inner in inner_types(type))


@lru_cache(maxsize=4096)
def is_differentiable(type: Type) -> bool:
    """Whether a value of this type can carry a derivative.

    >>> from livegrad.ir.types import f32, i32
    >>> is_differentiable(Vector(f32, 3)), is_differentiable(i32)
    (True, False)
    """
    return any(isinstance(inner, Scalar) and inner.kind in ("float", "complex") for inner in inner_types(type))


@lru_cache(maxsize=4096)
def differential_of(type: Type) -> Type:
    """The type of a tangent or cotangent of a value of `type`.

    Fields of a struct without a derivative are left out; in a tuple or array they become the unit `()`, so that
    positions do not change.

    >>> from livegrad.ir.types import f32, i32
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
