"""Ops over small data whose nodes are made when they are first asked for. In: an op and operands. Out: values, nodes.

A program that reads each result computes with values that no graph needs. `tensors` makes a `DeferredOp` instead of a
node where all operands are data or computed, and small; `small_graphs` computes it. As soon as something asks for the
node (a graph, a transform, a device, a gradient), it is made as if it had been made at the author's line, together with
its value. `tensors/deferred.py` says the same of elements and of results of compiled functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

from livegrad.diagnostics import SourceLocation
from livegrad.ir.leaves import constant_op, input_op
from livegrad.ir.node import Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import ambient, created_at, originating_from
from livegrad.ir.types import Tensor
from livegrad.lazy import lazy_values
from livegrad.lazy.devices import DEFAULT_DEVICE
from livegrad.lazy.eviction import node_cost
from livegrad.lazy.gradient_variables import variables
from livegrad.lazy.lazy_values import Array, Cell, Leaf, clock, leaf_node, value_store
from livegrad.lazy.truncate_history import ancestors_of, leaves_below
from livegrad.ops.movement import broadcast

MOST_BYTES = 1 << 12  # of a value: it is part of its tensor, and no cache that a budget limits
MOST_DEPTH = 12  # of ops without a value upon each other
_new = object.__new__


class DeferredOp:
    """An op whose node has not been created.

    `value` is there once it is computed, and good up to the change of leaves `stamp`; `holder` is a weak reference to
    the tensor that stands for it. After eight executions upon each other, an op becomes data: `op` is None, and
    `ancestors` are the leaves that it was computed from.
    """

    __slots__ = (
        "ancestors",
        "attributes",
        "depth",
        "generation",
        "holder",
        "node",
        "op",
        "operands",
        "origins",
        "stamp",
        "type",
        "value",
    )
    op: Op | None
    operands: tuple[Any, ...]  # nodes and deferred ops
    attributes: tuple[tuple[str, Any], ...]
    type: Tensor
    origins: tuple[SourceLocation, ...]
    holder: Any
    node: Node | None
    value: Array | None
    stamp: int
    generation: int
    depth: int
    ancestors: Mapping[ref[Leaf], int] | None


def defer_op(
    op: Op,
    operands: tuple[Any, ...],
    attributes: tuple[tuple[str, Any], ...],
    type: Any,
    origins: tuple[SourceLocation, ...],
) -> DeferredOp | None:
    """An op over small data, deferred; None if an operand is not such data, and the node has to be made now."""
    depth = 0
    for operand in operands:
        if operand.__class__ is DeferredOp:
            if operand.value is None:
                if operand.node is not None:
                    return None
                if operand.depth > depth:
                    depth = operand.depth
        elif operand.op is input_op:
            if operand.attributes[0][1].__class__ is not Leaf:
                return None  # of a function that is traced
        elif operand.cell is None and not (operand.op is broadcast and operand.operands[0].op is constant_op):
            return None  # neither data nor computed, nor a number that is spread over a shape
    if depth >= MOST_DEPTH or variables:
        return None
    deferred: DeferredOp = _new(DeferredOp)
    deferred.op, deferred.operands, deferred.attributes = op, operands, attributes
    deferred.type, deferred.origins = type, origins
    deferred.node, deferred.value, deferred.stamp, deferred.generation, deferred.depth = None, None, 0, 0, depth + 1
    deferred.ancestors, deferred.holder = None, None
    return deferred


def is_small(type: Any) -> bool:
    """Whether a value of a type is small enough to be deferred."""
    size = type.element.dtype.itemsize
    for extent in type.shape:
        if extent.__class__ is not int:
            return False
        size *= extent
    return size <= MOST_BYTES


def node_of_source(source: Node | DeferredOp) -> Node:
    """The node of what an op takes: a node, or a deferred op."""
    return node_of_deferred(source) if source.__class__ is DeferredOp else source  # type: ignore[arg-type, return-value]


def held_by(deferred: DeferredOp) -> Any:
    """The tensor that holds a deferred op; None if it is dead or holds another value."""
    holder = None if deferred.holder is None else deferred.holder()
    if holder is None or holder._deferred is None or holder._deferred[0] is not deferred:
        return None
    return holder


def node_of_deferred(root: DeferredOp) -> Node:
    """The node of a deferred op, made now with those below it; tensors that stand for them hold their nodes then."""
    with value_store.current.lock:
        pending = [root]
        while pending:
            deferred = pending[-1]
            if deferred.node is None:
                missing = [o for o in deferred.operands if o.__class__ is DeferredOp and o.node is None]
                if missing:
                    pending += missing
                    continue
                deferred.node = _make_node(deferred)
                holder = held_by(deferred)
                if holder is not None and holder._deferred[1] is None:
                    holder._set_node(deferred.node)
            pending.pop()
        assert root.node is not None
        return root.node


def _make_node(deferred: DeferredOp) -> Node:
    """The node over operands that have nodes, with the value that is known."""
    with originating_from(deferred.origins) if ambient.plain else created_at(deferred.origins):
        if deferred.op is None:
            node = leaf_node(deferred.value, deferred.type)  # type: ignore[arg-type]
            leaf: Leaf = node.attributes[0][1]
            leaf.detached, leaf.ancestors = True, deferred.ancestors or {}
            return node
        operands = tuple([o.node if o.__class__ is DeferredOp else o for o in deferred.operands])
        node = make_node(deferred.op, operands, deferred.attributes)
    if deferred.value is not None:
        cell: Cell = lazy_values.cell_of(node)
        if cell.value is None and cell.pending is None:
            cost = node_cost(node)
            lazy_values.keep(cell, deferred.value, cost, volatile=False, stamp=deferred.stamp)
            cell.generation, cell.device = deferred.generation, DEFAULT_DEVICE
    return node


def current_value(deferred: DeferredOp) -> Array | None:
    """The value of a deferred op if it is computed, and no leaf has been given other data since."""
    return deferred.value if deferred.stamp == clock.now else None


def truncate_deferred(deferred: DeferredOp) -> None:
    """Turns a computed op into data, so that a loop does not retain all that it computed."""
    with value_store.current.lock:
        if deferred.node is None and not variables:
            deferred.ancestors = _ancestors_of(deferred)
            deferred.op, deferred.operands, deferred.attributes, deferred.generation = None, (), (), 0


def _ancestors_of(root: DeferredOp) -> Mapping[ref[Leaf], int]:
    """The leaves that a value was computed from, with their change counts. Computed ops on the way remember theirs."""
    merged: dict[ref[Leaf], int] = {}
    pending = list(root.operands)
    while pending:
        operand = pending.pop()
        if operand.__class__ is not DeferredOp:
            if operand.op is input_op:
                merged.update(ancestors_of((operand.attributes[0][1],)))
            elif operand.cell is not None:
                leaves = operand.cell.leaves  # found before, for most
                merged.update(ancestors_of(leaves_below([operand])[operand] if leaves is None else leaves))
        elif operand.value is None:
            pending += operand.operands
        else:
            if operand.ancestors is None:  # it is at most eight executions deep
                operand.ancestors = _ancestors_of(operand)
            merged.update(operand.ancestors)
    return merged
