"""Converts nested maps to loops: the lanes of a kernel run the outer map, and each runs the inner map as a loop."""

from __future__ import annotations

from math import prod

from livegrad.ir.function import inline, map_results
from livegrad.ir.leaves import constant, parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Scalar, Tensor, Type, i64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import make, make_tuple
from livegrad.ops.control import make_for_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import component_shape, map_, map_domain
from livegrad.ops.rules import add_values, zero
from livegrad.passes.functions import rewrite_functions


def convert_inner_maps(function: Function) -> Function:
    """Converts each map in a function that only sums over its tensor parameters to a loop over their elements."""
    if not any(node.op is map_ for inner in reachable_functions([function]) for node in nodes_of(inner)):
        return function
    module = rewrite_functions(Module((function,)), lambda inner: map_results(inner, _convert_map))
    return module.functions[0]


def _convert_map(node: Node) -> Node | None:
    if node.op is not map_ or not _can_be_loop(node):
        return None
    function: Function = node.attribute("function")
    lifted = node.attribute("lifted")
    domain = map_domain([operand.type for operand in node.operands], function, lifted)
    sizes: list[int] = [*domain]  # type: ignore[list-item]  # sizes are bound by now

    def add_point(position: Node, *totals: Node) -> tuple[Node, ...]:
        index = _unravel(position, sizes)
        arguments = [
            _read_point(operand, type, index) if flag else operand
            for operand, type, flag in zip(node.operands, function.parameter_types, lifted, strict=True)
        ]
        return tuple(map(add_values, totals, inline(function, arguments)))

    totals = make_for_loop(constant(prod(sizes), i64), add_point, *map(zero, function.result_types))
    return totals[0] if len(totals) == 1 else make_tuple(*totals)


def _can_be_loop(node: Node) -> bool:
    """Whether every result is a sum of scalars, and every element is read from a tensor parameter."""
    function: Function = node.attribute("function")
    types = (*function.parameter_types, *function.result_types)
    inputs = zip(node.operands, function.parameter_types, node.attribute("lifted"), strict=True)
    return (
        all(node.attribute("summed"))
        and all(component_shape(type) is not None or isinstance(type, Tensor) for type in types)
        and not any(isinstance(type, Tensor) for type in function.result_types)
        and all(operand.op is parameter_op for operand, type, flag in inputs if flag or isinstance(type, Tensor))
    )


def _unravel(position: Node, sizes: list[int]) -> list[Node]:
    """The multi-index of a position in row-major order."""
    index: list[Node] = []
    for size in reversed(sizes[1:]):
        index.append(position % size)
        position = position // size
    return [position, *reversed(index)] if sizes else []


def _read_point(tensor: Node, type: Type, indices: list[Node]) -> Node:
    if isinstance(type, Scalar):
        return lookup(tensor, *indices)
    shape = component_shape(type) or ()
    parts = [
        lookup(tensor, *indices, *(constant(index, i64) for index in _multi_index(position, shape)))
        for position in range(prod(shape))
    ]
    return make(*parts, type=type)


def _multi_index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (position,) if len(shape) == 1 else divmod(position, shape[1])
