"""Gradient variables: tensors that require a gradient, and the nodes that depend on them, whose history must be kept.

Tensors register as variables; execution and `jit` query which nodes depend on one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from livegrad.ir.node import Node
from livegrad.ir.types import is_differentiable
from livegrad.ir.walk import toposort
from livegrad.lazy.holders import holders_of
from livegrad.lazy.lazy_values import Holder
from livegrad.ops.elementwise import detach

# Who wanted a gradient at some time. For the process: a history must not go while a gradient can be asked for through
# it, and tensors may be used in any session.
variables: list[weakref.ref[Any]] = []
# What variables stood for until they were updated in place.
_before_updates: weakref.WeakSet[Node] = weakref.WeakSet()


def note_variable(holder: Holder) -> None:
    """Registers a gradient variable."""
    variables.append(weakref.ref(holder, _forget))


def forget_variable(holder: Holder) -> None:
    """Records that a tensor is no longer a gradient variable."""
    variables[:] = [reference for reference in variables if reference() is not holder]


def _forget(reference: weakref.ref[Any]) -> None:
    if reference in variables:
        variables.remove(reference)


def differentiable_among(nodes: Iterable[Node]) -> set[Node]:
    """The nodes that a requested gradient may pass through; their history must be kept."""
    variables[:] = [ref for ref in variables if (holder := ref()) is not None and holder.requires_grad]
    nodes = list(nodes)
    if not variables:
        return set()
    leads: dict[Node, bool] = {}  # whether a gradient goes down to a variable
    for node in toposort(nodes, stop=ends_gradients):
        leads[node] = wants_gradient(node) or (node.op is not detach and any(leads[below] for below in node.operands))
    return {node for node in nodes if leads[node] and not ends_gradients(node)}


def may_be_differentiated(node: Node) -> bool:
    """Whether a requested gradient may pass through the node."""
    return bool(differentiable_among([node]))


def wants_gradient(node: Node) -> bool:
    """Whether the node is a gradient variable that the program holds."""
    return any(holder.requires_grad for holder in holders_of(node))


def ends_gradients(node: Node) -> bool:
    """Whether gradients go no further down than to this node."""
    return node.op is detach or wants_gradient(node)


def note_update(node: Node) -> None:
    """Records that a gradient variable that held the node was updated in place."""
    _before_updates.add(node)


def depends_on_updated(node: Node) -> bool:
    """Whether a gradient would flow to a value that a variable had before it was updated in place."""
    if not _before_updates:
        return False
    floats = toposort([node], stop=lambda below: ends_gradients(below) or not is_differentiable(below.type))
    return any(below in _before_updates and not wants_gradient(below) for below in floats)
