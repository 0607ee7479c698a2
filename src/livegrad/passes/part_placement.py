"""Where the parts of a function are computed: a tree of parts, and for each node the parts that need it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from livegrad import ops
from livegrad.ir.node import Function, Node
from livegrad.ir.walk import nodes_of
from livegrad.passes.split_choices import Group, Nested, Part, cost_of, uses_of

_CHEAP = 4.0  # additions: cheaper values are recomputed in each part that uses them


@dataclass
class PartPlacement:
    """The tree of a function's parts, and for each node the parts that compute it.

    A node that several parts use is computed once, in the smallest part that contains them all, unless it is cheap. A
    product with several uses is never duplicated: with a single use, each copy could be fused into a sum, which would
    change the bits of the result.
    """

    root: Part
    parents: dict[int, Part] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)
    regions: dict[int, Part] = field(default_factory=dict)
    computing_parts: dict[Node, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pending = [(self.root, 0)]
        while pending:
            part, depth = pending.pop()
            self.regions[id(part)], self.depths[id(part)] = part, depth
            for inner in _parts_of(part):
                self.parents[id(inner)] = part
                pending.append((inner, depth + 1))

    def assign_parts(self, function: Function, used: dict[Node, set[int]]) -> None:
        """Chooses the parts that compute each node; `used` has the parts that use each result."""
        cheap = _cheap_nodes(function)
        needed = {node: set(parts) for node, parts in used.items()}
        for node in reversed(nodes_of(function)):
            groups = needed.get(node, set())
            if not node.operands:
                continue
            if len(groups) > 1:
                groups = self._outermost(groups) if node in cheap else {self._common_ancestor(groups)}
            self.computing_parts[node] = frozenset(groups)
            for operand in node.operands:
                needed.setdefault(operand, set()).update(groups)

    def _outermost(self, groups: set[int]) -> set[int]:
        return {group for group in groups if not any(ancestor in groups for ancestor in self._ancestors(group))}

    def _ancestors(self, group: int) -> Iterable[int]:
        while group in self.parents:
            group = id(self.parents[group])
            yield group

    def _common_ancestor(self, groups: set[int]) -> int:
        """The lowest common ancestor of these parts."""
        ancestor, *remaining = groups
        for group in remaining:
            while ancestor != group:
                if self.depths[ancestor] >= self.depths[group]:
                    ancestor = id(self.parents[ancestor])
                else:
                    group = id(self.parents[group])
        return ancestor


def _parts_of(part: Part) -> tuple[Part, ...]:
    if isinstance(part, Nested):
        return part.group.parts
    return part.parts if isinstance(part, Group) else ()


def _cheap_nodes(function: Function) -> set[Node]:
    """The nodes that are cheap to recompute from nodes that are not."""
    uses = uses_of(function)
    prices: dict[Node, float] = {}
    cheap: set[Node] = set()
    for node in nodes_of(function):
        price = cost_of(node) + sum(prices.get(operand, 0.0) for operand in node.operands)
        is_shared_product = node.op is ops.mul and uses[node] > 1
        if node.operands and price <= _CHEAP and node.op.elementwise and not is_shared_product:
            cheap.add(node)
            prices[node] = price
    return cheap
