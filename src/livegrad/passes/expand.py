"""Expands ops into simpler ones by the `expand` rule of their record, until none is left to expand."""

from __future__ import annotations

from collections.abc import Callable

from livegrad.diagnostics import CompileError
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import nodes_of, rebuild
from livegrad.ops.sorting import top_positions
from livegrad.ops.transcendental import expand_power, pow


@propagates_lines
def expand_ops(function: Function, should_expand: Callable[[Node], bool]) -> Function:
    """Expands every node for which `should_expand` holds, including nodes of expansions."""
    if not any(map(should_expand, nodes_of(function))):
        return function
    replacements: dict[Node, Node] = {}
    pending = [*reversed(function.results)]
    while pending:
        node = pending[-1]
        if node in replacements:
            pending.pop()
            continue
        waiting = [operand for operand in node.operands if operand not in replacements]
        if waiting:
            pending.extend(reversed(waiting))
            continue
        rebuilt = rebuild(node, tuple(replacements[operand] for operand in node.operands))
        if should_expand(rebuilt):
            expanded = _expand_node(rebuilt)
            if expanded in replacements:
                replacements[node] = replacements[expanded]
                pending.pop()
            else:
                # The operands of the expansion are already rewritten.
                replacements.update((operand, operand) for operand in rebuilt.operands)
                pending.append(expanded)
        else:
            replacements[node] = rebuilt
            pending.pop()
    return Function(function.name, function.parameters, tuple(replacements[result] for result in function.results))


def expand_unsupported(function: Function) -> Function:
    """Expands the ops that devices have no code for: `top_positions` becomes a sort."""
    return expand_ops(function, lambda node: node.op is top_positions)


def _expand_node(node: Node) -> Node:
    if node.op is pow:  # which has code, except for a few exponents
        with originating_from(node.origins):
            return expand_power(node)
    if node.op.expand is None:
        raise CompileError(f"`{node.op.name}` cannot be expanded into simpler ops", where=node.origin)
    with originating_from(node.origins):
        return node.op.expand(node)
