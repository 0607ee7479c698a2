"""Truncates lazy history: turns a tensor into a leaf after eight executions, so a loop does not retain its whole graph.

`execution` periodically calls `truncate_history` with the values it has computed. Everything here runs under
the lock of the value store.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable
from typing import Any

from livegrad.ir.node import Node
from livegrad.ir.walk import keep as keep_as_it_is
from livegrad.ir.walk import rewrite_all, toposort
from livegrad.lazy.gradient_variables import differentiable_among
from livegrad.lazy.holders import holders_of, waiting_holders
from livegrad.lazy.lazy_values import (
    MOST_GENERATIONS,
    MOST_LOOKED_AT,
    Cell,
    Leaf,
    Value,
    cached_value,
    cell_of,
    keep,
    leaf_node,
    leaf_of,
    reach,
)

_FEW_LEAVES = 16
_SHARE_OF_WORK = 8  # it is looked once in eight executions: as much each time as those have computed


def detach_into_leaf(node: Node, value: Value) -> Node:
    """Turns the value of a node into a leaf, so that its history can be freed."""
    return _leaf_from(value, leaves_below([node])[node])


def has_long_history(node: Node) -> bool:
    """Whether a value depends on so many executions that it should become a leaf."""
    cell: Cell | None = node.cell
    return cell is not None and cell.value is not None and cell.generation >= MOST_GENERATIONS


def truncate_history(computed: Iterable[Node], work: int) -> None:
    """Truncates the history of nodes that were just computed, and of values that pending tensors depend on.

    Nodes that a gradient may go through keep their history. The number of examined nodes is bounded by the `work` that
    was done: a step of many parameters leaves many pending gradients.
    """
    most = max(MOST_LOOKED_AT, _SHARE_OF_WORK * work)
    waiting = waiting_holders(max(1000, work))
    candidates = [node for node in computed if _has_value(node)]
    below, _ = reach((holder._node for holder in waiting), _has_value, most)
    candidates += [node for node in below if _has_value(node) and cached_value(node) is not None]
    needed = differentiable_among(candidates)
    detachable = [node for node in dict.fromkeys(candidates) if node not in needed]
    leaves = leaves_below(detachable)
    leaf_nodes = {node: _leaf_from(node.cell.value, leaves[node]) for node in detachable}
    for node, data in leaf_nodes.items():
        for holder in list(holders_of(node)):
            holder._set_node(data)
        node.cell.detached = data
    if leaf_nodes:
        _rebase(waiting, leaf_nodes, needed, most)


def _leaf_from(value: Value, ancestors: Iterable[Leaf]) -> Node:
    node = leaf_node(value)
    leaf = leaf_of(node)
    assert leaf is not None
    leaf.detached, leaf.ancestors = True, ancestors_of(ancestors)
    return node


def ancestors_of(leaves: Iterable[Leaf]) -> dict[weakref.ref[Leaf], int]:
    """The ancestors of data computed from leaves: these and their own ancestors, with their change counts."""
    changes: dict[weakref.ref[Leaf], int] = {}
    for leaf in leaves:
        changes[weakref.ref(leaf)] = leaf.changed
        changes.update((r, c) for r, c in leaf.ancestors.items() if r() is not None)
    return changes


def leaves_below(nodes: list[Node]) -> dict[Node, tuple[Leaf, ...]]:
    """The leaves that each node was computed from, found in one walk with a bit for each leaf.

    A loop that reads several values asks for each of them, and most of their history is the same: values of few leaves
    remember these.
    """
    bit_of: dict[Leaf, int] = {}
    bits: dict[Node, int] = {}
    for node in toposort(nodes, stop=_remembers_leaves):
        leaf = leaf_of(node)
        if leaf is not None:
            bits[node] = 1 << bit_of.setdefault(leaf, len(bit_of))
            continue
        mask = 0
        if _remembers_leaves(node):
            for ancestor in node.cell.leaves:
                mask |= 1 << bit_of.setdefault(ancestor, len(bit_of))
        else:
            for operand in node.operands:
                mask |= bits[operand]
        bits[node] = mask
    leaves = tuple(bit_of)
    leaves_of_mask = {
        mask: tuple([leaf for bit, leaf in enumerate(leaves) if mask >> bit & 1]) for mask in set(bits.values())
    }
    for node, mask in bits.items():
        if node.cell is not None and len(leaves_of_mask[mask]) <= _FEW_LEAVES:
            node.cell.leaves = leaves_of_mask[mask]
    return {node: leaves_of_mask[bits[node]] for node in nodes}


def _remembers_leaves(node: Node) -> bool:
    return node.cell is not None and node.cell.leaves is not None


def _rebase(waiting: Iterable[Any], leaf_nodes: dict[Node, Node], needed: Container[Node], most: int) -> None:
    """Pending tensors that depend on nodes which became leaves now depend on these leaves.

    Otherwise a loop that builds its next step before it asks for the result of the last would never let go of any.
    """
    holders = list(waiting)
    replacements = dict(leaf_nodes)

    def ends(node: Node) -> bool:
        return node in leaf_nodes or (_has_value(node) and node not in needed)

    # The nearest nodes: those beyond the limit were rebased when they were near, and are unchanged.
    below, _ = reach((holder._node for holder in holders), ends, most)
    looked_at = set(below)
    for node in below:
        if node not in leaf_nodes and ends(node):
            replacements[node] = node
        elif node not in leaf_nodes:
            for operand in node.operands:
                if operand not in looked_at:
                    replacements.setdefault(operand, operand)
    moved = rewrite_all([holder._node for holder in holders], keep_as_it_is, replacements)
    for before, after in moved.items():
        if after is not before and before not in leaf_nodes:
            _take_over(before, after)
    for holder in holders:
        if moved[holder._node] is not holder._node:
            holder._set_node(moved[holder._node])


def _take_over(before: Node, after: Node) -> None:
    """A node that was built anew is known as it was before, if that is still good."""
    earlier: Cell | None = before.cell
    if earlier is None:
        return
    cell_of(after).companions = earlier.companions
    value = cached_value(before)
    if value is not None and after.cell.value is None:
        keep(after.cell, value, earlier.cost, volatile=False, stamp=earlier.stamp)
        after.cell.generation, after.cell.device = earlier.generation, earlier.device


def _has_value(node: Node) -> bool:
    return node.cell is not None and node.cell.value is not None
