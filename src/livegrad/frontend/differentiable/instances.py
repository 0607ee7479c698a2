"""Methods of struct instances in Python: construction, repr, comparison and copying by fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegrad.diagnostics import CallError, caller_origin, shown
from livegrad.frontend.function.function_types import MISSING, Field, RecordType, describe
from livegrad.frontend.function.vectors import VectorValue
from livegrad.ir import types as ir
from livegrad.ops.maps import component_shape


def initialize(self: Any, *positional: Any, **keywords: Any) -> None:
    record: RecordType = type(self).__livegrad_type__
    names = [field.name for field in record.fields]
    if len(positional) > len(names):
        raise _call_error(record, f"{record.name} has {len(names)} fields", f"{len(positional)} values")
    values = dict(zip(names, positional, strict=False))
    for name, value in keywords.items():
        if name not in names or name in values:
            raise _call_error(
                record, f"{record.name} has {'two values for' if name in values else 'no field'} `{name}`"
            )
        values[name] = value
    for field in record.fields:
        if field.name not in values:
            if field.default is MISSING:
                raise _call_error(record, f"{record.name} needs a value for `{field.name}`")
            values[field.name] = field.default
        setattr(self, field.name, _convert_field(record, field, values[field.name]))
    prepare = getattr(self, "__post_init__", None)
    if prepare is not None:
        prepare()


def _call_error(record: RecordType, what: str, description: str | None = None) -> CallError:
    fields = ", ".join(f"{field.name}: {describe(field.type)}" for field in record.fields)
    return CallError(what, where=caller_origin(), expected=f"{record.name}({fields})", found=description)


def _convert_field(record: RecordType, field: Field, value: Any) -> Any:
    """Converts the value of a field: a list becomes a vector if the field is one; raises for values of the wrong type.
    Arrays may have leading axes, with one vector or matrix per point.
    """
    type = field.type
    what = f"field `{field.name}` of {record.name} takes {describe(type)}"
    if isinstance(value, str | bytes | dict | set | None) and isinstance(type, ir.Scalar | ir.Vector | ir.Matrix):
        raise _call_error(record, what, shown(value))
    if isinstance(value, str | bytes | int | float | complex | np.number) and isinstance(type, RecordType):
        raise _call_error(record, what, shown(value))
    if isinstance(value, list | tuple | np.ndarray | int | float | complex | np.number) and isinstance(
        type, ir.Vector | ir.Matrix
    ):
        is_vector = isinstance(value, VectorValue)
        try:
            array = value if is_vector else np.array(value, type.element.dtype).view(VectorValue)
        except (TypeError, ValueError, OverflowError):
            raise _call_error(record, what, shown(value)) from None
        shape = component_shape(type)
        if shape is not None and array.shape[-len(shape) :] != shape:
            raise _call_error(record, what, f"shape {array.shape}" if array.ndim else shown(value))
        return array
    return value


def parts(self: Any) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The pytree protocol: a constructor, and the names of the attributes that it takes."""
    record: RecordType = type(self).__livegrad_type__
    return type(self), tuple(field.name for field in record.fields)


def represent(self: Any) -> str:
    record: RecordType = type(self).__livegrad_type__
    inside = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in record.fields)
    return f"{record.name}({inside})"


def equal(self: Any, other: object) -> bool:
    if type(other) is not type(self):
        return NotImplemented
    record: RecordType = type(self).__livegrad_type__
    return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in record.fields)


def copy(self: Any) -> Any:
    record: RecordType = type(self).__livegrad_type__
    return type(self)(**{f.name: _copy_value(getattr(self, f.name)) for f in record.fields})


def _copy_value(value: Any) -> Any:
    return value.copy() if hasattr(value, "copy") else value
