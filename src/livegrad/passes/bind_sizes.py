"""Replaces symbolic sizes by numbers in types and attributes, including nested functions."""

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
    return any(
        isinstance(size, Dimension) for inner in inner_types(type) if isinstance(inner, Tensor) for size in inner.shape
    )


@propagates_lines
def bind_sizes(function: Function, sizes: Mapping[str, int]) -> Function:
    """The function for these sizes; itself when it has no symbolic ones."""
    # A closed function can only have the symbolic sizes of its parameters.
    if not sizes or not any(map(has_symbols, function.parameter_types)):
        return function
    parameters = tuple(parameter(index, bind_type(type, sizes)) for index, type in enumerate(function.parameter_types))
    done: dict[Node, Node] = dict(zip(function.parameters, parameters, strict=True))
    for node in nodes_of(function):
        if node not in done:
            attributes = tuple((name, _bound(value, sizes)) for name, value in node.attributes)
            with originating_from(node.origins):
                done[node] = make_node(node.op, tuple(done[operand] for operand in node.operands), attributes)
    return Function(function.name, parameters, tuple(done[result] for result in function.results))


def _bound(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, Dimension):
        return value.evaluate(sizes)
    if isinstance(value, Type):
        return bind_type(value, sizes)
    if isinstance(value, Function):
        return bind_sizes(value, sizes)
    return tuple(_bound(item, sizes) for item in value) if isinstance(value, tuple) else value


def has_symbolic_size(node: Node) -> bool:
    """Whether a node's type or attributes have a symbolic size."""
    values = [value for _, value in node.attributes]
    if symbolic_within(values) is not None:
        return True
    types = [node.type, *[value for value in values if isinstance(value, Type)]]
    shapes = [inner.shape for type in types for inner in inner_types(type) if isinstance(inner, Tensor)]
    return symbolic_within(shapes) is not None or any(
        has_symbolic_size(inner) for function in node.functions for inner in nodes_of(function)
    )


def bind_symbolic(function: Function, number_of: Callable[[SymbolicSize], int]) -> Function:
    """A function that was traced with symbolic sizes, with numbers for them."""

    def bound(value: Any) -> Any:
        if isinstance(value, Function):
            return bind_symbolic(value, number_of)
        if isinstance(value, Type):
            return bind_symbolic_type(value, number_of)
        if builtins.type(value) is SymbolicSize:
            return number_of(value)
        return tuple(map(bound, value)) if isinstance(value, tuple) else value

    done: dict[Node, Node] = {}
    for node in (*function.parameters, *nodes_of(function)):
        if node not in done:
            attributes = {name: bound(value) for name, value in node.attributes}
            with originating_from(node.origins):
                if node.op is constant_op:  # a size may be a float
                    done[node] = constant(**attributes)
                else:
                    operands = tuple(done[operand] for operand in node.operands)
                    done[node] = make_node(node.op, operands, tuple(attributes.items()))
    parameters = tuple(done[parameter] for parameter in function.parameters)
    return Function(function.name, parameters, tuple(done[result] for result in function.results))


def bind_symbolic_type(type: Type, number_of: Callable[[SymbolicSize], int]) -> Type:
    """A type with numbers for symbolic sizes."""
    return _with_shapes(type, lambda shape: replace_sizes(shape, number_of))


def bind_type(type: Type, sizes: Mapping[str, int]) -> Type:
    """A type with numbers for its dimensions."""
    return _with_shapes(type, lambda shape: tuple(s.evaluate(sizes) if isinstance(s, Dimension) else s for s in shape))


def _with_shapes(type: Type, bind: Callable[[Any], Any]) -> Type:
    """A type with other shapes of the tensors in it."""
    if isinstance(type, Tensor):
        return Tensor(type.element, bind(type.shape))
    return map_members(type, lambda member: _with_shapes(member, bind))
