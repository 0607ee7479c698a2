"""Tracks gradient variables, so that nodes which depend on them keep their history.

Tensors that require a gradient register as variables; execution and `jit` query which nodes depend on one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from livegrad.ir.node import Node
from livegrad.ir.types import is_differentiable
from livegrad.ir.walk import toposort
from livegrad.lazy.holders import holders_of
from livegrad.lazy.lazy_values import Holder, Leaf, is_missing, leaf_of
from livegrad.ops.elementwise import detach

# Weak references to the variables. Shared by all sessions: tensors may be used in any session, and history must stay
# while a gradient through it can be requested.
variables: list[weakref.ref[Any]] = []
# Variables that were declared after data without history had been computed from them: with a weak reference to their
# leaf, or with a leaf that stands for their value and that nothing else might keep.
_late: list[tuple[weakref.ref[Any], Callable[[], Leaf | None]]] = []
# The nodes that variables held before they were updated in place.
_before_updates: weakref.WeakSet[Node] = weakref.WeakSet()
# Tensors that were updated in place since the last `backward`, by id, with the nodes that they held at that time.
_updated: dict[int, tuple[weakref.ref[Any], weakref.ref[Node]]] = {}
_MAX_UPDATED = 10_000  # more are dropped: their history is bounded only by reads


def register_variable(holder: Holder) -> None:
    """Registers a gradient variable."""
    variables.append(weakref.ref(holder, _forget))


def unregister_variable(holder: Holder) -> None:
    """Records that a tensor is no longer a gradient variable."""
    variables[:] = [reference for reference in variables if reference() is not holder]


def _forget(reference: weakref.ref[Any]) -> None:
    if reference in variables:
        variables.remove(reference)


def differentiable_among(nodes: Iterable[Node]) -> set[Node]:
    """Returns the nodes that a requested gradient may pass through; their history must be kept."""
    variables[:] = [ref for ref in variables if (holder := ref()) is not None and holder.requires_grad]
    nodes = list(nodes)
    if not variables:
        return set()
    reaches_variable: dict[Node, bool] = {}
    for node in toposort(nodes, stop=ends_gradients):
        reaches_variable[node] = wants_gradient(node) or (
            node.op is not detach and any(reaches_variable[operand] for operand in node.operands)
        )
    return {node for node in nodes if reaches_variable[node] and not ends_gradients(node)}


def may_be_differentiated(node: Node) -> bool:
    """Whether a requested gradient may pass through the node."""
    return bool(variables) and bool(differentiable_among([node]))


def wants_gradient(node: Node) -> bool:
    """Whether the node is a gradient variable that the program holds."""
    return any(holder.requires_grad for holder in holders_of(node))


def ends_gradients(node: Node) -> bool:
    """Whether gradients stop at this node."""
    return node.op is detach or wants_gradient(node)


def record_late_variable(holder: Holder, node: Node) -> None:
    """Records a new variable if data were computed from its value whose history is no longer known."""
    leaf = leaf_of(node)
    ancestors: list[Callable[[], Leaf | None]] = []
    if leaf is not None and leaf.has_descendants:
        ancestors.append(weakref.ref(leaf))
    value = node.cell if leaf is None else leaf
    if value is not None:
        ancestors += [partial(_same, stand_in) for stand_in in value.stand_ins if stand_in.has_descendants]
    if ancestors:
        _forget_variables_that_are_none()
        _late.extend((weakref.ref(holder), ancestor) for ancestor in ancestors)


def _same(leaf: Leaf) -> Leaf:
    return leaf


def _forget_variables_that_are_none() -> None:
    _late[:] = [(ref, leaf) for ref, leaf in _late if (holder := ref()) is not None and holder.requires_grad]


def depends_on_late_variable(node: Node) -> bool:
    """Whether a gradient would miss data that were computed from a variable before it was declared."""
    _forget_variables_that_are_none()
    late = {leaf for _, reference in _late if (leaf := reference()) is not None}
    if not late:
        return False
    below = toposort([node], stop=lambda below: ends_gradients(below) or not is_differentiable(below.type))
    leaves = [leaf for node in below if not ends_gradients(node) and (leaf := leaf_of(node)) is not None]
    return any(ancestor() in late for leaf in leaves for ancestor in leaf.ancestors)


def record_update(node: Node) -> None:
    """Records that a gradient variable that held the node was updated in place."""
    _before_updates.add(node)


def depends_on_updated(node: Node) -> bool:
    """Whether a gradient would flow to the value of a variable before an in-place update."""
    if not _before_updates:
        return False
    floats = toposort([node], stop=lambda below: ends_gradients(below) or not is_differentiable(below.type))
    return any(below in _before_updates and not wants_gradient(below) for below in floats)


def record_pending_update(holder: Holder, node: Node) -> None:
    """Records that a tensor that holds the node is updated in place."""
    entry = _updated.get(id(holder))
    if entry is None or entry[0]() is not holder:
        if len(_updated) >= _MAX_UPDATED:
            _updated.clear()
        _updated[id(holder)] = weakref.ref(holder), weakref.ref(node)


def take_unread_updates() -> list[Any]:
    """Returns the tensors updated in place since the last call whose value before that has not been computed."""
    entries = list(_updated.values())
    _updated.clear()
    unread: list[Any] = []
    for reference, before in entries:
        holder, node = reference(), before()
        if holder is not None and holder._node is not None and node is not None and node.operands and is_missing(node):
            unread.append(holder)
    return unread
