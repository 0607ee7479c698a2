"""Checks whether a Python value is a valid differential of a type, for pairs and for backward derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.frontend.differentiable.differentials import TaggedType
from livegrad.frontend.differentiable.optional import OptionalType
from livegrad.frontend.function.dispatch import call_span
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import (
    NONE,
    ArrayType,
    FrontType,
    RecordType,
    TensorType,
    TupleType,
    describe,
)
from livegrad.frontend.function.lazy_calls import contains_tensor
from livegrad.frontend.function.type_reading import type_of_value
from livegrad.frontend.function.vectors import VectorValue
from livegrad.ir import types as ir


def require_differential_value(type: FrontType, value: Any, what: str, lifted: bool) -> None:
    """Raises if a value is not a differential of the type. A lifted value may have one differential per point."""
    if not _is_differential(type, value, lifted):
        raise FunctionError("LG310", what, call_span(), expected=describe(type), found=_describe_value(value))


def _describe_value(value: Any) -> str:
    if isinstance(value, np.ndarray) and not isinstance(value, VectorValue):
        return f"an array of {value.dtype} with shape {value.shape}"
    try:
        return describe(type_of_value(value))
    except TypeError:
        return type(value).__name__


def _is_differential(type: FrontType, value: Any, lifted: bool) -> bool:
    match type:
        case RecordType(fields=fields):
            return all(
                hasattr(value, f.name) and _is_differential(f.type, getattr(value, f.name), lifted) for f in fields
            )
        case TupleType(elements=elements):
            return _has_length(value, len(elements)) and all(
                _is_differential(item_type, item, lifted) for item_type, item in zip(elements, value, strict=True)
            )
        case ArrayType(element=element, size=size):
            return _has_length(value, size) and all(_is_differential(element, item, lifted) for item in value)
        case OptionalType(element=element):
            return value is None or _is_differential(element, value, lifted)
        case TaggedType():
            return _is_accepted(type, value)
        case TensorType(shape=shape):
            return contains_tensor(value) or np.shape(value) == shape
        case ir.Scalar() | ir.Vector() | ir.Matrix():
            return _is_number(type, value, lifted)
    return type is NONE and value is None


def _has_length(value: Any, size: int) -> bool:
    is_sequence = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return is_sequence and len(value) == size


def _is_accepted(type: TaggedType, value: Any) -> bool:
    try:
        type.to_argument(value)
    except (TypeError, AttributeError):
        return False
    return True


def _is_number(type: ir.Scalar | ir.Vector | ir.Matrix, value: Any, lifted: bool) -> bool:
    """Whether a value is a number, vector or matrix of this type, or an array with one per point."""
    if contains_tensor(value):
        return True
    shape = {ir.Scalar: (), ir.Vector: (getattr(type, "size", 0),)}.get(
        type.__class__, (getattr(type, "rows", 0), getattr(type, "columns", 0))
    )
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        return False
    scalar = ir.scalar_of(type)
    assert scalar is not None
    # NumPy has no bfloat16; it accepts the same values as float32.
    dtype = ir.f32.dtype if scalar is ir.bf16 else scalar.dtype
    if not np.can_cast(array.dtype, dtype, "same_kind") or array.shape[array.ndim - len(shape) :] != shape:
        return False
    # A vector or list is a single value; it holds one value per point only if the call is lifted.
    return array.ndim == len(shape) or lifted or not isinstance(value, VectorValue | list | tuple)
