"""Truncates lazy history: turns a tensor into a leaf after eight executions, so a loop does not retain its whole graph.

`execution` periodically calls `truncate_history` with the nodes it has computed. Everything here runs under the lock of
the value store.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from livegrad.ir.node import Node
from livegrad.ir.types import is_differentiable
from livegrad.ir.walk import keep as keep_as_it_is
from livegrad.ir.walk import rewrite_all, toposort
from livegrad.lazy.gradient_variables import differentiable_among
from livegrad.lazy.holders import holders_of, is_held, waiting_holders
from livegrad.lazy.lazy_values import (
    MAX_GENERATIONS,
    MAX_VISITED,
    Cell,
    Leaf,
    Value,
    cache_value,
    cached_value,
    cell_of,
    leaf_node,
    leaf_of,
    reachable_nodes,
)
from livegrad.ops.elementwise import detach

_FEW_LEAVES = 16
_NO_DATA = np.empty(0)  # of leaves that stand for computed values
_VISITS_PER_NODE = 8  # the search runs every eight executions and may visit as many nodes as those have computed


def detach_into_leaf(node: Node, value: Value) -> Node:
    """Creates a leaf with the value of a node, so that its history can be freed."""
    return _leaf_from(value, ancestors_of(leaves_below([node])[node]))


def has_long_history(node: Node) -> bool:
    """Whether a value depends on so many executions that it should become a leaf."""
    cell: Cell | None = node.cell
    return cell is not None and cell.value is not None and cell.generation >= MAX_GENERATIONS


def truncate_history(computed: Iterable[Node], work: int) -> None:
    """Truncates the history of nodes that were just computed, and of values that pending tensors depend on.

    Nodes that a gradient may pass through keep their history. The search visits at most a multiple of `work`, the
    number of nodes that the execution computed: a step with many parameters leaves many pending gradients.
    """
    max_nodes = max(MAX_VISITED, _VISITS_PER_NODE * work)
    waiting = waiting_holders(max(1000, work))
    candidates = [node for node in computed if _has_value(node)]
    below, _ = reachable_nodes((holder._node for holder in waiting), _has_value, max_nodes)
    candidates += [node for node in below if _has_value(node) and cached_value(node) is not None]
    differentiable = differentiable_among(candidates)
    detachable = [node for node in dict.fromkeys(candidates) if node not in differentiable]
    leaves = leaves_below(detachable)
    # Most of the nodes depend on the same leaves: the gradients of all parameters do.
    ancestors = {below: ancestors_of(below) for below in set(leaves.values())}
    leaf_nodes = {node: _leaf_of_computed(node, ancestors[leaves[node]]) for node in detachable}
    for node, data in leaf_nodes.items():
        for holder in list(holders_of(node)):
            holder._set_node(data)
        node.cell.detached = data
    if leaf_nodes:
        _rebase(waiting, leaf_nodes, differentiable, max_nodes)


def _leaf_of_computed(node: Node, ancestors: Mapping[weakref.ref[Leaf], int]) -> Node:
    data = _leaf_from(node.cell.value, ancestors)
    if is_differentiable(node.type):
        stand_in_of(node)  # data that are computed from the node may be detached later
        data.attribute("key").stand_ins = node.cell.stand_ins
    return data


def _leaf_from(value: Value, ancestors: Mapping[weakref.ref[Leaf], int]) -> Node:
    node = leaf_node(value)
    leaf = leaf_of(node)
    assert leaf is not None
    leaf.detached, leaf.ancestors = True, ancestors
    return node


def new_stand_in() -> Leaf:
    """Returns a leaf that stands for a computed value among the ancestors of detached data."""
    return Leaf(_NO_DATA)


def is_stand_in(leaf: Leaf) -> bool:
    """Whether a leaf stands for a computed value."""
    return leaf.array is _NO_DATA


def stand_in_of(node: Node) -> Leaf:
    """Returns the leaf that stands for a computed value among the ancestors of detached data."""
    cell: Cell = cell_of(node)
    if not cell.stand_ins:
        cell.stand_ins = (new_stand_in(),)
    return cell.stand_ins[0]


def ancestors_of(leaves: Iterable[Leaf]) -> dict[weakref.ref[Leaf], int]:
    """Returns the ancestors of data computed from leaves: the leaves and their ancestors, with their change counts."""
    change_counts: dict[weakref.ref[Leaf], int] = {}
    for leaf in leaves:
        leaf.has_descendants = True
        change_counts[weakref.ref(leaf)] = leaf.changed_at
        if leaf.ancestors:
            _drop_freed_ancestors(leaf)
            change_counts.update(leaf.ancestors)
    return change_counts


def _drop_freed_ancestors(leaf: Leaf) -> None:
    """Drops the ancestors that no longer exist, and so cannot be refilled."""
    ancestors = leaf.ancestors
    if None in [reference() for reference in ancestors]:
        leaf.ancestors = {reference: count for reference, count in ancestors.items() if reference() is not None}


def leaves_below(nodes: list[Node]) -> dict[Node, tuple[Leaf, ...]]:
    """Returns the leaves that each node was computed from, in one walk with a bit for each leaf.

    These include leaves that stand for the values below that tensors hold, as far as a gradient would pass to them.
    Cells with few leaves cache them: a loop that reads several values asks for each, and their histories overlap.
    """
    bit_of: dict[Leaf, int] = {}
    bits: dict[Node, int] = {}
    stand_ins = 0
    for node in toposort(nodes, stop=_has_cached_leaves):
        leaf = leaf_of(node)
        if leaf is not None:
            bits[node] = 1 << bit_of.setdefault(leaf, len(bit_of))
            continue
        mask = 0
        if _has_cached_leaves(node):
            for ancestor in node.cell.leaves:
                bit = 1 << bit_of.setdefault(ancestor, len(bit_of))
                stand_ins |= bit if is_stand_in(ancestor) else 0
                mask |= bit
        else:
            for operand in node.operands:
                mask |= bits[operand]
                if operand.operands and is_held(operand):
                    bit = 1 << bit_of.setdefault(stand_in_of(operand), len(bit_of))
                    stand_ins |= bit
                    mask |= bit
            if stand_ins & mask and (node.op is detach or not is_differentiable(node.type)):
                mask &= ~stand_ins
        bits[node] = mask
    leaves = tuple(bit_of)
    leaves_of_mask = {
        mask: tuple([leaf for bit, leaf in enumerate(leaves) if mask >> bit & 1]) for mask in set(bits.values())
    }
    for node, mask in bits.items():
        if node.cell is not None and len(leaves_of_mask[mask]) <= _FEW_LEAVES:
            node.cell.leaves = leaves_of_mask[mask]
    return {node: leaves_of_mask[bits[node]] for node in nodes}


def _has_cached_leaves(node: Node) -> bool:
    return node.cell is not None and node.cell.leaves is not None


def _rebase(
    waiting: Iterable[Any], leaf_nodes: dict[Node, Node], differentiable: Container[Node], max_nodes: int
) -> None:
    """Rebuilds pending tensors on the leaves that replaced their operands.

    Otherwise a loop that builds its next step before it reads the last result would retain every step.
    """
    holders = list(waiting)
    replacements = dict(leaf_nodes)

    def ends(node: Node) -> bool:
        return node in leaf_nodes or (_has_value(node) and node not in differentiable)

    # Only the nearest nodes: those beyond the limit were rebased earlier and have not changed.
    below, _ = reachable_nodes((holder._node for holder in holders), ends, max_nodes)
    visited = set(below)
    for node in below:
        if node not in leaf_nodes and ends(node):
            replacements[node] = node
        elif node not in leaf_nodes:
            for operand in node.operands:
                if operand not in visited:
                    replacements.setdefault(operand, operand)
    rebased = rewrite_all([holder._node for holder in holders], keep_as_it_is, replacements)
    for before, after in rebased.items():
        if after is not before and before not in leaf_nodes:
            _transfer_cell(before, after)
    for holder in holders:
        if rebased[holder._node] is not holder._node:
            holder._set_node(rebased[holder._node])


def _transfer_cell(before: Node, after: Node) -> None:
    """Transfers companions and a valid cached value to the node that replaces `before`."""
    old_cell: Cell | None = before.cell
    if old_cell is None:
        return
    cell_of(after).companions = old_cell.companions
    value = cached_value(before)
    if value is not None and after.cell.value is None:
        cache_value(after.cell, value, old_cell.cost, volatile=False, stamp=old_cell.stamp)
        after.cell.generation, after.cell.device = old_cell.generation, old_cell.device


def _has_value(node: Node) -> bool:
    return node.cell is not None and node.cell.value is not None
