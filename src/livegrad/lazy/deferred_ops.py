"""Defers node creation for ops over small data until something needs the node.

A program that reads each result needs values but no graph. Where all operands are small and have values, `tensors`
creates a `DeferredOp` instead of a node, and `small_graphs` computes it. When a graph, a transform, a device or a
gradient needs the node, it is created with the source location of the op, and with its value if that is computed.
`tensors/deferred.py` does the same for elements and for results of compiled functions.
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

MAX_BYTES = 1 << 12  # of one value: it belongs to its tensor and does not count towards the cache budget
MAX_DEPTH = 12  # of a chain of ops without values
_new = object.__new__


class DeferredOp:
    """An op whose node has not been created.

    `value` is the computed value, valid as long as no leaf has changed after `stamp`. `holder` is a weak reference to
    the tensor of this op. `generation` counts the executions that the value depends on; after eight, the op becomes
    data: `op` is None, and `ancestors` are the leaves that it was computed from.
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
    operands: tuple[Any, ...]  # nodes or deferred ops
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
    """Defers an op over operands with values; returns None if the caller has to create the node now."""
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
                return None  # a parameter of a function that is being traced
        elif operand.cell is None and not (operand.op is broadcast and operand.operands[0].op is constant_op):
            return None  # neither data, nor computed, nor a broadcast number
    if depth >= MAX_DEPTH or variables:
        return None
    deferred: DeferredOp = _new(DeferredOp)
    deferred.op, deferred.operands, deferred.attributes = op, operands, attributes
    deferred.type, deferred.origins = type, origins
    deferred.node, deferred.value, deferred.stamp, deferred.generation, deferred.depth = None, None, 0, 0, depth + 1
    deferred.ancestors, deferred.holder = None, None
    return deferred


def is_small(type: Any) -> bool:
    """Whether an op with a result of this type is small enough to be deferred."""
    size = type.element.dtype.itemsize
    for extent in type.shape:
        if extent.__class__ is not int:
            return False
        size *= extent
    return size <= MAX_BYTES


def node_of_operand(source: Node | DeferredOp) -> Node:
    """Returns the node of an operand, which is a node or a deferred op."""
    return create_deferred_node(source) if source.__class__ is DeferredOp else source  # type: ignore[arg-type, return-value]


def find_holder(deferred: DeferredOp) -> Any:
    """Returns the tensor that holds a deferred op; None if it is gone or holds another value."""
    holder = None if deferred.holder is None else deferred.holder()
    if holder is None or holder._deferred is None or holder._deferred[0] is not deferred:
        return None
    return holder


def create_deferred_node(root: DeferredOp) -> Node:
    """Creates the node of a deferred op and of the deferred ops below it, and gives their tensors the nodes."""
    with value_store.current.lock:
        pending = [root]
        while pending:
            deferred = pending[-1]
            if deferred.node is None:
                missing = [o for o in deferred.operands if o.__class__ is DeferredOp and o.node is None]
                if missing:
                    pending += missing
                    continue
                deferred.node = _create_node(deferred)
                holder = find_holder(deferred)
                if holder is not None and holder._deferred[1] is None:
                    holder._set_node(deferred.node)
            pending.pop()
        assert root.node is not None
        return root.node


def _create_node(deferred: DeferredOp) -> Node:
    """Creates the node of a deferred op whose operands have nodes, with its value if that is computed."""
    with originating_from(deferred.origins) if ambient.is_unset else created_at(deferred.origins):
        if deferred.op is None:
            node = leaf_node(deferred.value, deferred.type)  # type: ignore[arg-type]
            leaf: Leaf = node.attributes[0][1]
            leaf.detached, leaf.ancestors = True, deferred.ancestors or {}
            return node
        operands = tuple([o.node if o.__class__ is DeferredOp else o for o in deferred.operands])
        node = make_node(deferred.op, operands, deferred.attributes)
    if deferred.value is not None:
        cell: Cell = lazy_values.cell_of(node)
        if cell.value is None and cell.claim is None:
            cost = node_cost(node)
            lazy_values.cache_value(cell, deferred.value, cost, volatile=False, stamp=deferred.stamp)
            cell.generation, cell.device = deferred.generation, DEFAULT_DEVICE
    return node


def current_value(deferred: DeferredOp) -> Array | None:
    """Returns the value of a deferred op if it is computed and no leaf has been refilled since."""
    return deferred.value if deferred.stamp == clock.now else None


def truncate_deferred(deferred: DeferredOp) -> None:
    """Turns a computed op into data, so that a loop does not retain its whole history."""
    with value_store.current.lock:
        if deferred.node is None and not variables:
            deferred.ancestors = _ancestors_of(deferred)
            deferred.op, deferred.operands, deferred.attributes, deferred.generation = None, (), (), 0


def _ancestors_of(root: DeferredOp) -> Mapping[ref[Leaf], int]:
    """Returns the leaves that a value was computed from, with their change counts; computed operands cache theirs."""
    merged: dict[ref[Leaf], int] = {}
    pending = list(root.operands)
    while pending:
        operand = pending.pop()
        if operand.__class__ is not DeferredOp:
            if operand.op is input_op:
                merged.update(ancestors_of((operand.attributes[0][1],)))
            elif operand.cell is not None:
                leaves = operand.cell.leaves  # usually cached
                merged.update(ancestors_of(leaves_below([operand])[operand] if leaves is None else leaves))
        elif operand.value is None:
            pending += operand.operands
        else:
            if operand.ancestors is None:  # the recursion is at most eight executions deep
                operand.ancestors = _ancestors_of(operand)
            merged.update(operand.ancestors)
    return merged
