"""Widens all floats in a function to float64 and complex128, including explicit types and casts.

Called by `check_gradients`: finite differences need the precision.
"""

from __future__ import annotations

from typing import Any

from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, c128, f64, map_members
from livegrad.ir.walk import nodes_of
from livegrad.ops.conversion import cast

_WIDE = {"float": f64, "complex": c128}


def widen_to_double(function: Function) -> Function:
    """Rewrites a function to compute in double precision.

    >>> import livegrad as lg
    >>> print(widen_to_double(lg.ir.trace(lambda x: x * 2.0, lg.f32)).result_type)
    f64
    """
    return _widen_function(function, {})


def double_scalar(scalar: Scalar) -> Scalar:
    """The double-precision type for a floating or complex scalar type; other types are unchanged."""
    return _WIDE.get(scalar.kind, scalar)


def _double_type(type: Type) -> Type:
    match type:
        case Scalar():
            return double_scalar(type)
        case Tensor(element=element, shape=shape):
            return Tensor(double_scalar(element), shape)
        case Vector(element=element, size=size):
            return Vector(double_scalar(element), size)
        case Matrix(element=element, rows=rows, columns=columns):
            return Matrix(double_scalar(element), rows, columns)
    return map_members(type, _double_type)


def _widen_function(function: Function, rewritten: dict[Function, Function]) -> Function:
    if function not in rewritten:
        widened: dict[Node, Node] = {}
        for node in (*function.parameters, *nodes_of(function)):
            if node not in widened:
                widened[node] = _widen(node, [widened[operand] for operand in node.operands], rewritten)
        parameters = tuple(widened[parameter] for parameter in function.parameters)
        rewritten[function] = Function(function.name, parameters, tuple(widened[result] for result in function.results))
    return rewritten[function]


def _widen(node: Node, operands: list[Node], rewritten: dict[Function, Function]) -> Node:
    attributes = tuple((name, _widen_attribute(value, rewritten)) for name, value in node.attributes)
    if node.op is cast and operands[0].type is _double_type(node.type):
        return operands[0]
    with originating_from(node.origins):
        return make_node(node.op, tuple(operands), attributes)


def _widen_attribute(value: Any, rewritten: dict[Function, Function]) -> Any:
    if isinstance(value, Type):
        return _double_type(value)
    if isinstance(value, Function):
        return _widen_function(value, rewritten)
    return tuple(_widen_attribute(item, rewritten) for item in value) if value.__class__ is tuple else value
