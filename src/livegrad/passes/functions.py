"""Helpers of passes for whole functions: applying a rewrite to all functions of a module, uses, purity, signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from livegrad.ir.function import inline, map_results
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tape, Tensor, Type, inner_types
from livegrad.ir.walk import (
    exchanged_functions,
    functions_in,
    nodes_of,
    ops_below,
    reachable_functions,
    substitute,
)
from livegrad.ops.control import call, cond, parameters_of


@propagates_lines
def rewrite_functions(module: Module, transform: Callable[[Function], Function]) -> Module:
    """Applies `transform` once to each function that the module reaches, callees before callers.

    `transform` gets a function whose nested functions are already rewritten, and must keep its signature.
    """
    rewritten: dict[Function, Function] = {}
    for function in reachable_functions(module.functions):
        rewritten[function] = transform(exchange_functions(function, rewritten))
    return Module(tuple(rename_function(rewritten[function], function.name) for function in module.functions))


def rewrite_to_fixpoint(function: Function, next_change: Callable[[Function], dict[Node, Node] | None]) -> Function:
    """Applies changes until `next_change` returns None; a change maps nodes to their replacements."""
    while (change := next_change(function)) is not None:
        changed = Function(function.name, function.parameters, substitute(function.results, change))
        changed.source_locations.update(function.source_locations)
        function = changed
    return function


def count_uses(function: Function) -> Counter[Node]:
    """The number of times each value is used, as an operand or as a result."""
    uses = Counter(operand for node in nodes_of(function) for operand in node.operands)
    uses.update(function.results)
    return uses


def uses_any(functions: Iterable[Function], ops: Iterable[Op]) -> bool:
    """Whether these functions, or functions that they use, have a node of one of these ops."""
    return not all(ops_below(function).isdisjoint(ops) for function in functions)


@lru_cache(maxsize=4096)
def is_pure(function: Function) -> bool:
    """Whether a function only computes scalars and aggregates of them, without checks, loops or tensors."""
    return all(map(is_pure_node, nodes_of(function)))


def is_pure_node(node: Node) -> bool:
    """Whether a node never fails, reads no memory and is no loop."""
    if node.op.checked or node.op is input_op:
        return False
    if _lies_in_memory(node.type) or any(_lies_in_memory(operand.type) for operand in node.operands):
        return False
    return not node.functions or (node.op in (call, cond) and all(map(is_pure, node.functions)))


@lru_cache(maxsize=4096)
def _lies_in_memory(type: Type) -> bool:
    return any(isinstance(inner, Tensor | Tape) for inner in inner_types(type))


def exchange_functions(function: Function, exchange: Mapping[Function, Function]) -> Function:
    """Replaces the functions in the attributes of a function's nodes."""
    if not functions_in(function):
        return function
    return map_results(function, lambda node: exchange_attributes(node, exchange) if node.functions else None)


def exchange_attributes(node: Node, exchange: Mapping[Function, Function]) -> Node:
    """Replaces the functions in the attributes of a node."""
    changed = exchanged_functions(node.attributes, exchange)
    return node if changed is node.attributes else make_node(node.op, node.operands, changed)


def rename_function(function: Function, name: str) -> Function:
    """The function with this name."""
    return function if function.name == name else Function(name, function.parameters, function.results)


def rearrange_signature(
    function: Function,
    order: Sequence[int],
    results: Sequence[int] | None = None,
    stand_ins: Mapping[int, int | Node] | None = None,
) -> Function:
    """The function with its parameters in this order and only these results (all by default).

    A parameter that `order` omits must be unused or have a stand-in: the index of another parameter, or a constant.
    """
    selected = function.results if results is None else tuple(function.results[index] for index in results)
    if list(order) == list(range(len(function.parameters))):
        return function if selected == function.results else Function(function.name, function.parameters, selected)
    fresh = parameters_of([function.parameters[index].type for index in order])
    by_index: dict[int, Node] = dict(zip(order, fresh, strict=True))
    for index, stand_in in (stand_ins or {}).items():
        by_index[index] = stand_in if isinstance(stand_in, Node) else by_index[stand_in]
    replacements = {function.parameters[index]: node for index, node in by_index.items()}
    return Function(function.name, fresh, substitute(selected, replacements))


def insert_unused_parameters(function: Function, position: int, types: Sequence[Type]) -> Function:
    """The function with unused parameters of these types inserted at a position."""
    parameter_types = function.parameter_types
    parameters = parameters_of([*parameter_types[:position], *types, *parameter_types[position:]])
    arguments = [*parameters[:position], *parameters[position + len(types) :]]
    return Function(function.name, parameters, inline(function, arguments))
