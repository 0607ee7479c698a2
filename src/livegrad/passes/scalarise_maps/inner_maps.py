"""Converts maps inside a scalar function to loops: the lanes of a kernel run the outer map, and a loop runs the inner
one."""

from __future__ import annotations

from math import prod

from livegrad.ir.function import inline, map_results
from livegrad.ir.leaves import constant, parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Scalar, Tensor, Type, i64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import make, make_tuple
from livegrad.ops.control import component_shape, make_for_loop, map_, map_domain
from livegrad.ops.indexing import lookup
from livegrad.ops.rules import add_values, zero
from livegrad.passes.functions import rewrite_functions


def without_inner_maps(function: Function) -> Function:
    """The function with each map that only adds up over tensors it is given written as a loop over their elements."""
    if not any(node.op is map_ for inner in reachable_functions([function]) for node in nodes_of(inner)):
        return function
    module = rewrite_functions(Module((function,)), lambda inner: map_results(inner, _as_loop))
    return module.functions[0]


def _as_loop(node: Node) -> Node | None:
    if node.op is not map_ or not _can_loop(node):
        return None
    function: Function = node.attribute("function")
    lifted = node.attribute("lifted")
    domain = map_domain([operand.type for operand in node.operands], function, lifted)
    sizes: list[int] = [*domain]  # type: ignore[list-item]  # they are bound by now

    def add_point(number: Node, *totals: Node) -> tuple[Node, ...]:
        index = _unravel(number, sizes)
        arguments = [
            _value_at(operand, type, index) if flag else operand
            for operand, type, flag in zip(node.operands, function.parameter_types, lifted, strict=True)
        ]
        return tuple(map(add_values, totals, inline(function, arguments)))

    totals = make_for_loop(constant(prod(sizes), i64), add_point, *map(zero, function.result_types))
    return totals[0] if len(totals) == 1 else make_tuple(*totals)


def _can_loop(node: Node) -> bool:
    """Whether every result is a sum of scalars, and every element is read from a tensor that lies in memory."""
    function: Function = node.attribute("function")
    types = (*function.parameter_types, *function.result_types)
    shared = zip(node.operands, function.parameter_types, node.attribute("lifted"), strict=True)
    return (
        all(node.attribute("summed"))
        and all(component_shape(type) is not None or isinstance(type, Tensor) for type in types)
        and not any(isinstance(type, Tensor) for type in function.result_types)
        and all(operand.op is parameter_op for operand, type, flag in shared if flag or isinstance(type, Tensor))
    )


def _unravel(number: Node, sizes: list[int]) -> list[Node]:
    """The index of the point with a number in row-major order."""
    index: list[Node] = []
    for size in reversed(sizes[1:]):
        index.append(number % size)
        number = number // size
    return [number, *reversed(index)] if sizes else []


def _value_at(tensor: Node, type: Type, indices: list[Node]) -> Node:
    if isinstance(type, Scalar):
        return lookup(tensor, *indices)
    shape = component_shape(type) or ()
    parts = [
        lookup(tensor, *indices, *(constant(index, i64) for index in _multi_index(number, shape)))
        for number in range(prod(shape))
    ]
    return make(*parts, type=type)


def _multi_index(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (number,) if len(shape) == 1 else divmod(number, shape[1])
