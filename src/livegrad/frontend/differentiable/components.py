"""Flattens differentials to lists of arrays, one for each number, vector or array in them, and unflattens them.

Hessians are computed one component at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from livegrad.frontend.function.function_types import (
    NONE,
    ArrayType,
    FrontType,
    Instance,
    RecordType,
    TensorType,
    TupleType,
)
from livegrad.ir import types as ir

Shape = tuple[int, ...]


def _leaf_shape(type: FrontType) -> Shape | None:
    """The shape of a type that flattens to one array; None for other types."""
    match type:
        case ir.Scalar():
            return ()
        case ir.Vector(size=size):
            return (size,)
        case ir.Matrix(rows=rows, columns=columns):
            return (rows, columns)
        case TensorType(shape=shape):
            return shape
        case ArrayType(element=element, size=size):
            inner = _leaf_shape(element)
            return None if inner is None else (size, *inner)
    return None


def component_shapes(type: FrontType) -> list[Shape] | None:
    """The shapes of the arrays that a differential of this type flattens to; None if it cannot be flattened."""
    shape = _leaf_shape(type)
    if shape is not None:
        return [shape]
    shapes: list[Shape] = []
    for part in _parts(type) or [None]:
        inner = None if part is None else component_shapes(part)
        if inner is None:
            return None
        shapes += inner
    return shapes


def _parts(type: FrontType) -> list[FrontType] | None:
    if isinstance(type, RecordType):
        return [field.type for field in type.fields]
    if isinstance(type, ArrayType):
        return [type.element] * type.size
    return [part for part in type.elements if part is not NONE] if isinstance(type, TupleType) else None


def flatten_differential(type: FrontType, value: Any) -> list[np.ndarray[Any, Any]]:
    """Flattens a differential to arrays; each may have leading axes, with one value per point."""
    if _leaf_shape(type) is not None:
        return [np.asarray(value)]
    if isinstance(type, RecordType):
        pairs = [(field.type, getattr(value, field.name)) for field in type.fields]
    else:
        types = type.elements if isinstance(type, TupleType) else _parts(type) or []
        pairs = [(part, item) for part, item in zip(types, value, strict=True) if part is not NONE]
    return [array for part, item in pairs for array in flatten_differential(part, item)]


def unflatten_differential(type: FrontType, components: Sequence[Any]) -> Any:
    """Rebuilds a differential of this type from one component for each of its arrays."""
    return _unflatten_from(type, iter(components))


def _unflatten_from(type: FrontType, supply: Iterator[Any]) -> Any:
    if _leaf_shape(type) is not None:
        return next(supply)
    if isinstance(type, RecordType):
        return Instance(type, {field.name: _unflatten_from(field.type, supply) for field in type.fields})
    if isinstance(type, TupleType):
        return tuple(None if part is NONE else _unflatten_from(part, supply) for part in type.elements)
    return [_unflatten_from(part, supply) for part in _parts(type) or []]
