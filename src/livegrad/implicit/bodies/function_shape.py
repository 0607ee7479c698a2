"""Converts typed Python functions of a position and dimensions to fields of the value IR.

`shapes.from_function` calls it. Dimensions are numbers, vectors or structs; `to_node` converts numbers and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from livegrad import ops
from livegrad.diagnostics import caller_origin
from livegrad.frontend.differentiable.plain_function import function
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.function_types import FrontType, RecordType, describe, ir_of
from livegrad.frontend.function.signature import Default
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Vector, f32
from livegrad.ops.aggregate import make, make_vector

POSITION = Vector(f32, 3)


def field_of_function(
    target: Any, dimensions: Mapping[str, Any], to_node: Callable[[Any], Node]
) -> Callable[[Node], Node]:
    """Returns the field of a function with given dimensions. `to_node` converts numbers and parameters to nodes."""
    captured = _require_captured(target)
    bound = captured.signature.bind([None], dimensions)
    if isinstance(bound, str):
        raise AssemblyError(
            f"`{captured.__name__}` {bound}",
            where=caller_origin(),
            expected=str(captured.signature),
            help="the position comes first; pass dimensions by name: from_function(f, radius=2.0)",
        )
    first, *others = captured.signature.parameters
    types = [POSITION, *(parameter.annotation.type or f32 for parameter in others)]
    if first.annotation.type not in (None, POSITION):
        raise _shape_error(captured, f"`{first.name}` is not a position", describe(POSITION), first.annotation.type)
    specialised = captured.specialization_for(*types)
    if specialised.result_type != f32:
        raise _shape_error(captured, "its result is not a distance", describe(f32), specialised.result_type)
    arguments = []
    for parameter, type in zip(others, types[1:], strict=True):
        value = bound[parameter.name]
        value = value.value if isinstance(value, Default) else value
        arguments.append(_dimension_node(f"{captured.__name__}: `{parameter.name}`", type, value, to_node))
    return lambda position: ops.call(position, *arguments, function=specialised.function)


def _require_captured(target: Any) -> CapturedFunction:
    if isinstance(target, CapturedFunction):
        return target
    if isinstance(target, FunctionType):
        return function(target)
    raise AssemblyError(
        "not a function of position",
        where=caller_origin(),
        expected="a function that is decorated with @lg.differentiable or @lg.function",
        found=type(target).__name__,
    )


def _shape_error(captured: CapturedFunction, what: str, expected: str, found: Any) -> AssemblyError:
    return AssemblyError(
        f"`{captured.__name__}` is not a shape: {what}",
        where=caller_origin(),
        expected=expected,
        found=describe(found),
        help="a shape takes an lg.vec3 and returns an lg.f32",
    )


def _dimension_node(label: str, type: FrontType, value: Any, to_node: Callable[[Any], Node]) -> Node:
    """Converts a dimension to a node of the type of its parameter."""
    if type == f32:
        return to_node(value)
    if isinstance(type, Scalar) and isinstance(value, bool | int | float | np.number):
        return constant(value, type)
    if isinstance(type, Vector) and type.element == f32 and np.shape(value) == (type.size,):
        return make_vector(*map(to_node, value))
    if isinstance(type, RecordType) and getattr(value, "__livegrad_type__", None) is type:
        fields = [_dimension_node(f"{label}.{f.name}", f.type, getattr(value, f.name), to_node) for f in type.fields]
        return make(*fields, type=ir_of(type))
    raise AssemblyError(
        f"{label} has the wrong type", where=caller_origin(), expected=describe(type), found=repr(value)[:60]
    )
