"""The `bind_sizes` pass: replaces symbolic sizes by integers in types and attributes, including nested functions."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

from livegrad.ir.dimension import Dimension
from livegrad.ir.leaves import constant, constant_op, parameter
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.symbolic_size import SymbolicSize, replace_sizes, symbolic_within
from livegrad.ir.types import Tensor, Type, inner_types, map_members
from livegrad.ir.walk import nodes_of


def has_symbols(type: Type) -> bool:
    """Whether a type has tensors with a `Dimension` in their shape."""
    return any(
        isinstance(size, Dimension) for inner in inner_types(type) if isinstance(inner, Tensor) for size in inner.shape
    )


@propagates_lines
def bind_sizes(function: Function, sizes: Mapping[str, int]) -> Function:
    """Replaces the dimensions of a function by these sizes. Returns a function without dimensions unchanged."""
    # A function is closed, so its only dimensions are those of its parameters.
    if not sizes or not any(map(has_symbols, function.parameter_types)):
        return function
    parameters = tuple(parameter(index, bind_type(type, sizes)) for index, type in enumerate(function.parameter_types))
    replacements: dict[Node, Node] = dict(zip(function.parameters, parameters, strict=True))
    for node in nodes_of(function):
        if node not in replacements:
            attributes = tuple((name, _bind_value(value, sizes)) for name, value in node.attributes)
            with originating_from(node.origins):
                replacements[node] = make_node(
                    node.op, tuple(replacements[operand] for operand in node.operands), attributes
                )
    return Function(function.name, parameters, tuple(replacements[result] for result in function.results))


def _bind_value(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, Dimension):
        return value.evaluate(sizes)
    if isinstance(value, Type):
        return bind_type(value, sizes)
    if isinstance(value, Function):
        return bind_sizes(value, sizes)
    return tuple(_bind_value(item, sizes) for item in value) if isinstance(value, tuple) else value


def has_symbolic_size(node: Node) -> bool:
    """Whether a node's type or attributes, or its nested functions, contain a `SymbolicSize`."""
    values = [value for _, value in node.attributes]
    if symbolic_within(values) is not None:
        return True
    types = [node.type, *[value for value in values if isinstance(value, Type)]]
    shapes = [inner.shape for type in types for inner in inner_types(type) if isinstance(inner, Tensor)]
    return symbolic_within(shapes) is not None or any(
        has_symbolic_size(inner) for function in node.functions for inner in nodes_of(function)
    )


def bind_symbolic(function: Function, size_of: Callable[[SymbolicSize], int]) -> Function:
    """Replaces each `SymbolicSize` in a function by the integer that `size_of` returns for it."""

    def bind_value(value: Any) -> Any:
        if isinstance(value, Function):
            return bind_symbolic(value, size_of)
        if isinstance(value, Type):
            return bind_symbolic_type(value, size_of)
        if builtins.type(value) is SymbolicSize:
            return size_of(value)
        return tuple(map(bind_value, value)) if isinstance(value, tuple) else value

    replacements: dict[Node, Node] = {}
    for node in (*function.parameters, *nodes_of(function)):
        if node not in replacements:
            attributes = {name: bind_value(value) for name, value in node.attributes}
            with originating_from(node.origins):
                if node.op is constant_op:  # a size may be a float
                    replacements[node] = constant(**attributes)
                else:
                    operands = tuple(replacements[operand] for operand in node.operands)
                    replacements[node] = make_node(node.op, operands, tuple(attributes.items()))
    parameters = tuple(replacements[parameter] for parameter in function.parameters)
    return Function(function.name, parameters, tuple(replacements[result] for result in function.results))


def bind_symbolic_type(type: Type, size_of: Callable[[SymbolicSize], int]) -> Type:
    """Replaces each `SymbolicSize` in a type by an integer."""
    return _with_shapes(type, lambda shape: replace_sizes(shape, size_of))


def bind_type(type: Type, sizes: Mapping[str, int]) -> Type:
    """Replaces the dimensions in a type by these sizes."""
    return _with_shapes(type, lambda shape: tuple(s.evaluate(sizes) if isinstance(s, Dimension) else s for s in shape))


def _with_shapes(type: Type, bind: Callable[[Any], Any]) -> Type:
    """Replaces the shapes of all tensors in a type."""
    if isinstance(type, Tensor):
        return Tensor(type.element, bind(type.shape))
    return map_members(type, lambda member: _with_shapes(member, bind))
