"""The root of all types, which interns them: equal types are the same object."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, dataclass_transform

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

    >>> from livegrad.ir.types import Vector, f32
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

    >>> from livegrad.ir.types import f32
    >>> f32 | None
    f32 | None
    """

    parts: tuple[Any, ...]

    def __repr__(self) -> str:
        return " | ".join(str(part) for part in self.parts)


class UnionMember:
    """A base class for types that annotations can combine with `|`.

    >>> from livegrad.ir.types import f32
    >>> f32 | None
    f32 | None
    """

    __slots__ = ()

    def __or__(self, other: Any) -> TypeUnion:
        return TypeUnion((self, other))

    def __ror__(self, other: Any) -> TypeUnion:
        return TypeUnion((other, self))
