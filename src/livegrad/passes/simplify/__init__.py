"""The `simplify` pass: algebraic simplification, constant folding and common subexpression elimination.

`rules.RULES` is the table of rewrite rules. Dead code needs no rule, because it is unreachable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import SourceLocation
from livegrad.ir.node import Function, Module, Node, attribute_key
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import add_origins, originating_from
from livegrad.ir.walk import nodes_of, reachable_functions, rebuild
from livegrad.passes.functions import rewrite_functions
from livegrad.passes.simplify.rules import COMMUTATIVE, rules_for

__all__ = ["Simplify", "simplify_function"]


@dataclass(frozen=True)
class Simplify:
    """Applies rewrite rules until none applies. A round visits all functions, innermost first.

    Rules may create new bodies for loops and branches, which the next round simplifies. After `max_rounds`, the module
    is correct, but may not be fully simplified.
    """

    max_rounds: int = 8

    def __call__(self, module: Module) -> Module:
        simplified: set[Function] = set()

        def simplify_once(function: Function) -> Function:
            if function not in simplified:
                function = simplify_function(function)
                simplified.add(function)
            return function

        for _ in range(self.max_rounds):
            module = rewrite_functions(module, simplify_once)
            if simplified.issuperset(reachable_functions(module.functions)):
                break
        return module


@propagates_lines
def simplify_function(function: Function) -> Function:
    """Rewrites a function until no rule applies to its nodes; nested functions are not visited."""
    simplifier = _Simplifier()
    with originating_from(()):  # `_rewrite_once` propagates source locations to the results of rules
        for node in nodes_of(function):
            simplifier.simplify_node(node)
    simplified = simplifier.simplified
    return Function(function.name, function.parameters, tuple([simplified[result] for result in function.results]))


class _Simplifier:
    """Simplifies nodes: maps each to its simplified form, and equivalent nodes to the first of them."""

    def __init__(self) -> None:
        self.simplified: dict[Node, Node] = {}
        self._rewritten: dict[Node, Node] = {}  # node → result of a rule, which may itself need simplification
        self._commutative: dict[
            tuple[Op, frozenset[Node]], Node
        ] = {}  # the first node with these operands in any order
        self._checks: dict[tuple[Any, ...], Node] = {}  # the first check of this kind, regardless of source location

    def simplify_node(self, root: Node) -> None:
        """Simplifies a node repeatedly until no rule applies."""
        simplified, rewritten = self.simplified, self._rewritten
        pending = [root]
        while pending:
            node = pending[-1]
            if node in simplified:
                pending.pop()
                continue
            replacement = rewritten.get(node)
            if replacement is None:
                waiting = [operand for operand in node.operands if operand not in simplified]
                if waiting:
                    pending.extend(reversed(waiting))
                    continue
                replacement = _rewrite_once(node, simplified)
                if replacement is node:
                    replacement = self._find_equivalent(node)
                rewritten[node] = replacement
            if replacement is node or replacement in simplified:
                simplified[node] = simplified.get(replacement, node)
                pending.pop()
            else:
                pending.append(replacement)

    def _find_equivalent(self, node: Node) -> Node:
        if node.op in COMMUTATIVE:
            return self._commutative.setdefault((node.op, frozenset(node.operands)), node)
        if node.op.checked and node.may_fail:
            # Equal checks at two lines become one, which reports the first line.
            return self._checks.setdefault((node.op, node.operands, attribute_key(node.attributes)), node)
        return node


def _rewrite_once(node: Node, simplified: dict[Node, Node]) -> Node:
    """The node with simplified operands, or the result of the first applicable rule."""
    for operand in node.operands:
        if simplified[operand] is not operand:
            return rebuild(node, tuple([simplified[operand] for operand in node.operands]))
    if node.op.checked:
        # The result may be a check too, which must report the same line. Other locations are added below.
        with originating_from(node.origins):
            replacement = _apply_rules(node)
    else:
        replacement = _apply_rules(node)
    if replacement is None:
        return node
    _propagate_origins(node.origins, replacement, simplified)
    return replacement


def _apply_rules(node: Node) -> Node | None:
    for rule in rules_for(node.op):
        replacement = rule(node)
        if replacement is not None:
            return replacement
    return None


def _propagate_origins(origins: tuple[SourceLocation, ...], replacement: Node, simplified: dict[Node, Node]) -> None:
    """Propagates the source locations of a node to its replacement and to the new nodes that this depends on."""
    add_origins(replacement, origins)
    pending = [] if replacement in simplified or not origins else [*replacement.operands]
    while pending:
        node = pending.pop()
        if not node.origins and node not in simplified:
            add_origins(node, origins)
            pending.extend(node.operands)
