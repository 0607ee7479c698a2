"""Runs a function-level pass over all functions that a module reaches.

Passes call `rewrite_functions`. Callees come before their callers, and each function is rewritten once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from livegrad.ir.function import map_results
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
    """The module with `transform` applied to each function it reaches, innermost first.

    `transform` sees a function whose own functions have been rewritten, and must keep its signature.
    """
    done: dict[Function, Function] = {}
    for function in reachable_functions(module.functions):
        done[function] = transform(exchange_functions(function, done))
    return Module(tuple(renamed(done[function], function.name) for function in module.functions))


def rewrite_to_fixpoint(function: Function, next_change: Callable[[Function], dict[Node, Node] | None]) -> Function:
    """Applies changes to the function until there is none; a change maps nodes to their replacements."""
    while (change := next_change(function)) is not None:
        changed = Function(function.name, function.parameters, substitute(function.results, change))
        changed.source_locations.update(function.source_locations)
        function = changed
    return function


def count_uses(function: Function) -> Counter[Node]:
    """How often each value is an operand or a result."""
    uses = Counter(operand for node in nodes_of(function) for operand in node.operands)
    uses.update(function.results)
    return uses


def uses_any(functions: Iterable[Function], ops: Iterable[Op]) -> bool:
    """Whether a node of these functions, or of the functions that they use, is of one of these ops."""
    return not all(ops_below(function).isdisjoint(ops) for function in functions)


@lru_cache(maxsize=4096)
def is_pure(function: Function) -> bool:
    """Whether a function computes numbers from numbers and nothing else: no checks, no loops, no tensors."""
    return all(map(is_pure_node, nodes_of(function)))


def is_pure_node(node: Node) -> bool:
    """Whether a node needs nothing but numbers: it never fails, and it reads no memory."""
    if node.op.checked or node.op is input_op:
        return False
    if _lies_in_memory(node.type) or any(_lies_in_memory(operand.type) for operand in node.operands):
        return False
    return not node.functions or (node.op in (call, cond) and all(map(is_pure, node.functions)))


@lru_cache(maxsize=4096)
def _lies_in_memory(type: Type) -> bool:
    return any(isinstance(inner, Tensor | Tape) for inner in inner_types(type))


def exchange_functions(function: Function, exchange: Mapping[Function, Function]) -> Function:
    """The function with the functions among its attributes exchanged."""
    if not functions_in(function):
        return function
    return map_results(function, lambda node: exchange_attributes(node, exchange) if node.functions else None)


def exchange_attributes(node: Node, exchange: Mapping[Function, Function]) -> Node:
    """The node with the functions among its own attributes exchanged."""
    changed = exchanged_functions(node.attributes, exchange)
    return node if changed is node.attributes else make_node(node.op, node.operands, changed)


def renamed(function: Function, name: str) -> Function:
    """The function under another name."""
    return function if function.name == name else Function(name, function.parameters, function.results)


def rearranged(
    function: Function,
    order: Sequence[int],
    results: Sequence[int] | None = None,
    stand_ins: Mapping[int, int | Node] | None = None,
) -> Function:
    """The function with its parameters in another order and some of its results.

    A parameter that `order` omits must be unused, or be replaced: by another parameter's index or a constant.
    """
    kept = function.results if results is None else tuple(function.results[index] for index in results)
    if list(order) == list(range(len(function.parameters))):
        return function if kept == function.results else Function(function.name, function.parameters, kept)
    fresh = parameters_of([function.parameters[index].type for index in order])
    by_index: dict[int, Node] = dict(zip(order, fresh, strict=True))
    for index, other in (stand_ins or {}).items():
        by_index[index] = other if isinstance(other, Node) else by_index[other]
    replacements = {function.parameters[index]: node for index, node in by_index.items()}
    return Function(function.name, fresh, substitute(kept, replacements))
