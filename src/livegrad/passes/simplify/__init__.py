"""The `simplify` pass: computes the same values with fewer and simpler nodes.

`rules.RULES` is the table of rewrites. Dead code needs no rule, because it is unreachable.
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
    """Applies the rules until none applies. A round goes through all functions, innermost first.

    Rules that make new bodies for loops and branches leave those to the next round, of which there are at most
    `max_rounds`; stopping early leaves a module that is right, but not as simple as could be.
    """

    max_rounds: int = 8

    def __call__(self, module: Module) -> Module:
        simplified: set[Function] = set()

        def settle(function: Function) -> Function:
            if function not in simplified:
                function = simplify_function(function)
                simplified.add(function)
            return function

        for _ in range(self.max_rounds):
            module = rewrite_functions(module, settle)
            if simplified.issuperset(reachable_functions(module.functions)):
                break
        return module


@propagates_lines
def simplify_function(function: Function) -> Function:
    """The function with no node left to which a rule applies; the functions among its attributes stay as they are."""
    simplifier = _Simplifier()
    with originating_from(()):  # `_step` propagates source locations to the results of rules
        for node in nodes_of(function):
            simplifier.simplify_node(node)
    done = simplifier.done
    return Function(function.name, function.parameters, tuple([done[result] for result in function.results]))


class _Simplifier:
    """The simplified form of each node, and the first of several equivalent nodes."""

    def __init__(self) -> None:
        self.done: dict[Node, Node] = {}
        self._becomes: dict[Node, Node] = {}  # the result of a rule, while it is itself being simplified
        self._met: dict[tuple[Op, frozenset[Node]], Node] = {}
        self._checks: dict[tuple[Any, ...], Node] = {}  # what may fail, whatever its line

    def simplify_node(self, root: Node) -> None:
        """Simplifies a node repeatedly until no rule applies."""
        done, becomes = self.done, self._becomes
        pending = [root]
        while pending:
            node = pending[-1]
            if node in done:
                pending.pop()
                continue
            replaced = becomes.get(node)
            if replaced is None:
                waiting = [operand for operand in node.operands if operand not in done]
                if waiting:
                    pending.extend(reversed(waiting))
                    continue
                replaced = _step(node, done)
                if replaced is node:
                    replaced = self._first_like(node)
                becomes[node] = replaced
            if replaced is node or replaced in done:
                done[node] = done.get(replaced, node)
                pending.pop()
            else:
                pending.append(replaced)

    def _first_like(self, node: Node) -> Node:
        if node.op in COMMUTATIVE:
            return self._met.setdefault((node.op, frozenset(node.operands)), node)
        if node.op.checked and node.may_fail:
            # The same check at two lines is made once, and names the first.
            return self._checks.setdefault((node.op, node.operands, attribute_key(node.attributes)), node)
        return node


def _step(node: Node, done: dict[Node, Node]) -> Node:
    """The node with simplified operands, or the result of the first applicable rule."""
    for operand in node.operands:
        if done[operand] is not operand:
            return rebuild(node, tuple([done[operand] for operand in node.operands]))
    if node.op.checked:
        # The result of a rule for a check may be a check and blames the same line. Other locations are added later.
        with originating_from(node.origins):
            replaced = _by_a_rule(node)
    else:
        replaced = _by_a_rule(node)
    if replaced is None:
        return node
    _hand_down(node.origins, replaced, done)
    return replaced


def _by_a_rule(node: Node) -> Node | None:
    for rule in rules_for(node.op):
        replaced = rule(node)
        if replaced is not None:
            return replaced
    return None


def _hand_down(origins: tuple[SourceLocation, ...], replaced: Node, done: dict[Node, Node]) -> None:
    """Propagates the source locations of a node to its replacement, down to nodes that existed before."""
    add_origins(replaced, origins)
    pending = [] if replaced in done or not origins else [*replaced.operands]
    while pending:
        node = pending.pop()
        if not node.origins and node not in done:
            add_origins(node, origins)
            pending.extend(node.operands)
