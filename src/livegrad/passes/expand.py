"""Expands ops into simpler ones with the `expand` rule of their record, repeatedly."""

from __future__ import annotations

from collections.abc import Callable

from livegrad.diagnostics import CompileError
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import nodes_of, rebuild
from livegrad.ops.sorting import top_positions


@propagates_lines
def expand_ops(function: Function, should_expand: Callable[[Node], bool]) -> Function:
    """The function with every node expanded that `should_expand` names, expansions included."""
    if not any(map(should_expand, nodes_of(function))):
        return function
    done: dict[Node, Node] = {}
    pending = [*reversed(function.results)]
    while pending:
        node = pending[-1]
        if node in done:
            pending.pop()
            continue
        waiting = [operand for operand in node.operands if operand not in done]
        if waiting:
            pending.extend(reversed(waiting))
            continue
        rebuilt = rebuild(node, tuple(done[operand] for operand in node.operands))
        if should_expand(rebuilt):
            expanded = _expansion(rebuilt)
            if expanded in done:
                done[node] = done[expanded]
                pending.pop()
            else:
                # The operands of the expansion are already rewritten.
                done.update((operand, operand) for operand in rebuilt.operands)
                pending.append(expanded)
        else:
            done[node] = rebuilt
            pending.pop()
    return Function(function.name, function.parameters, tuple(done[result] for result in function.results))


def expand_unsupported(function: Function) -> Function:
    """The function without ops for which devices have no code: they sort, but do not look for the largest few."""
    return expand_ops(function, lambda node: node.op is top_positions)


def _expansion(node: Node) -> Node:
    if node.op.expand is None:
        raise CompileError(f"`{node.op.name}` cannot be expanded into simpler ops", where=node.origin)
    with originating_from(node.origins):
        return node.op.expand(node)
