"""Defers node creation for ops over small data until something needs the node.

A program that reads each result needs values but no graph. Where all operands are small and have values, `tensors`
creates a `DeferredOp` instead of a node. Reading it evaluates the pending ops one by one (`small_ops`). When a graph, a
transform, a device or a gradient needs the node, it is created with the source location of the op, and with its value
if that is computed. `tensors/deferred.py` does the same for elements and for results of compiled functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

import numpy as np

from livegrad.diagnostics import LivegradError, SourceLocation
from livegrad.ir.leaves import constant_op, input_op
from livegrad.ir.node import Node
from livegrad.ir.source_lines import ambient, created_at, originating_from
from livegrad.ir.types import Tensor, bf16, is_differentiable
from livegrad.lazy import lazy_values
from livegrad.lazy.devices import DEFAULT_DEVICE
from livegrad.lazy.eviction import node_cost
from livegrad.lazy.gradient_variables import variables
from livegrad.lazy.holders import is_held
from livegrad.lazy.lazy_values import (
    MAX_GENERATIONS,
    NO_ANCESTORS,
    Array,
    Cell,
    Leaf,
    clock,
    leaf_node,
    value_store,
)
from livegrad.lazy.nan_checks import watch
from livegrad.lazy.small_ops import SmallNumber, SmallOp, native_ops
from livegrad.lazy.truncate_history import ancestors_of, is_stand_in, leaves_below, new_stand_in, stand_in_of
from livegrad.ops.movement import broadcast

MAX_DEPTH = 12  # of a chain of ops without values
_MAX_NODES_READ = 4  # computed nodes keep their graphs: reading more of them at once counts as a longer history
_new = object.__new__


class DeferredOp:
    """An op whose node has not been created.

    `value` is the computed value, valid as long as no leaf has changed after `stamp`. `holder` is a weak reference to
    the tensor of this op. `generation` counts the reads that the value depends on; after eight, the op becomes data:
    `small` is None, and `ancestors` are the leaves that it was computed from. `stand_ins` are those of its cell.
    """

    __slots__ = (
        "ancestors",
        "depth",
        "generation",
        "holder",
        "node",
        "operands",
        "origins",
        "small",
        "stamp",
        "stand_ins",
        "type",
        "value",
    )
    small: SmallOp | None
    operands: tuple[Any, ...]  # nodes, deferred ops and numbers
    type: Tensor
    origins: tuple[SourceLocation, ...]
    holder: Any
    node: Node | None
    value: Array | None
    stamp: int
    generation: int
    depth: int
    ancestors: Mapping[ref[Leaf], int] | None
    stand_ins: tuple[Leaf, ...]


def defer_op(small: SmallOp, operands: tuple[Any, ...], origins: tuple[SourceLocation, ...]) -> DeferredOp | None:
    """Defers an op over operands with values; returns None if the caller has to create the node now."""
    if variables:
        return None
    depth = 0
    for operand in operands:
        kind = operand.__class__
        if kind is DeferredOp:
            if operand.value is None:
                if operand.node is not None:
                    return None
                below = operand.depth
                if below >= MAX_DEPTH:
                    if evaluate_deferred(operand, is_read=False) is None:
                        return None
                elif below > depth:
                    depth = below
        elif kind is SmallNumber:
            continue
        elif operand.op is input_op:
            if operand.attributes[0][1].__class__ is not Leaf:
                return None  # a parameter of a function that is being traced
        elif operand.cell is None and not is_broadcast_number(operand):
            return None  # neither data nor computed
    deferred: DeferredOp = _new(DeferredOp)
    deferred.small, deferred.operands, deferred.type, deferred.origins = small, operands, small.type, origins
    deferred.node, deferred.value, deferred.stamp, deferred.generation, deferred.depth = None, None, 0, 0, depth + 1
    deferred.ancestors, deferred.holder, deferred.stand_ins = None, None, ()
    return deferred


def node_of_operand(source: Node | DeferredOp | SmallNumber) -> Node:
    """Returns the node of an operand."""
    if source.__class__ is DeferredOp:
        return create_deferred_node(source)  # type: ignore[arg-type]
    return source.make_node() if source.__class__ is SmallNumber else source  # type: ignore[arg-type, return-value]


def is_broadcast_number(node: Node) -> bool:
    """Whether a node is a constant that is broadcast to a shape."""
    return node.op is broadcast and node.operands[0].op is constant_op


def number_operand(node: Node) -> SmallNumber | None:
    """Returns a node that broadcasts a constant as an operand without a node; None for other nodes."""
    if not is_broadcast_number(node):
        return None
    type: Any = node.type
    # NumPy has no bfloat16, and native code has its numbers inside.
    value = None if type.element is bf16 else np.array(node.operands[0].attribute("value"), type.element.dtype)
    return SmallNumber(value, type, node)


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
        small = deferred.small
        if small is None:
            node = leaf_node(deferred.value, deferred.type)  # type: ignore[arg-type]
            leaf: Leaf = node.attributes[0][1]
            leaf.detached, leaf.ancestors, leaf.stand_ins = True, deferred.ancestors or {}, deferred.stand_ins
            return node
        operands = tuple([o if o.__class__ is Node else node_of_operand(o) for o in deferred.operands])
        node = small.make_node(operands)
    if deferred.value is not None:
        cell: Cell = lazy_values.cell_of(node)
        if cell.value is None and cell.claim is None:
            cost = node_cost(node)
            lazy_values.cache_value(cell, deferred.value, cost, volatile=False, stamp=deferred.stamp)
            cell.generation, cell.device = deferred.generation, DEFAULT_DEVICE
        cell.stand_ins = (*cell.stand_ins, *deferred.stand_ins)
    return node


def current_value(deferred: DeferredOp) -> Array | None:
    """Returns the value of a deferred op, read-only, if it is computed and no leaf has been refilled since."""
    array = deferred.value
    if array is None or deferred.stamp != clock.now:
        return None
    array.setflags(write=False)
    return array


# --- evaluation ------------------------------------------------------------------------------------------------------


class _NeedsGraph(Exception):
    """Aborts the evaluation of ops that need a graph."""


@np.errstate(all="ignore")
def evaluate_deferred(root: DeferredOp, *, is_read: bool = True) -> Array | None:
    """Returns the value of a deferred op, and computes it and the pending ops below it one by one.

    Returns None if the caller has to create the node. As long as nothing is read, the whole history is kept: a gradient
    may still be requested for the data.
    """
    with value_store.current.lock:
        if root.value is not None or root.node is not None or watch.active:
            return current_value(root)
        computed: list[DeferredOp] = []
        nodes: list[Node] = []
        generation = 0
        try:
            generation = _evaluate(root, clock.now, computed, nodes)
        except (_NeedsGraph, LivegradError):
            return None  # the general path adds the source location to an error
        finally:
            _count(computed, nodes)
            if is_read or generation:
                _age(computed, nodes, generation)
        array: Any = root.value
        array.setflags(write=False)
        return array


def _evaluate(root: DeferredOp, stamp: int, computed: list[DeferredOp], nodes: list[Node]) -> int:
    """Computes a deferred op, after the pending ops that it uses; returns the generation of what it has read.

    Adds the ops to `computed`, and to `nodes` the computed nodes that they use.
    """
    generation = 0
    pending = [root]
    while pending:
        deferred = pending[-1]
        arguments: list[Any] = []
        for operand in deferred.operands:
            kind = operand.__class__
            if kind is DeferredOp:
                value = operand.value
                if value is None:
                    if operand.node is not None:
                        raise _NeedsGraph
                    pending.append(operand)
                    break
                if operand.stamp != stamp:
                    raise _NeedsGraph
                if operand.generation > generation:
                    generation = operand.generation
                arguments.append(value)
            elif kind is SmallNumber:
                arguments.append(operand.value)
            elif (cell := operand.cell) is None or cell.value is None or operand.op is input_op:
                arguments.append(_value_of_data(operand))
            else:
                value = cell.value
                is_on_host = value.__class__ is np.ndarray and cell.device == DEFAULT_DEVICE
                if not is_on_host or cell.stamp != stamp or cell.volatile:
                    raise _NeedsGraph
                nodes.append(operand)
                if cell.generation > generation:
                    generation = cell.generation
                arguments.append(value)
        else:
            pending.pop()
            if deferred.value is None:  # otherwise several ops use it
                computed.append(deferred)
                _compute(deferred, arguments, stamp)
    return generation


def _compute(deferred: DeferredOp, arguments: list[Any], stamp: int) -> None:
    small: Any = deferred.small
    result = (small.evaluate or small.find_native())(*arguments)
    if result.__class__ is not np.ndarray:
        if result is None:
            raise _NeedsGraph  # native code declines, such as for a check that fails
        result = np.array(result)  # NumPy returns numbers for arrays without dimensions
    deferred.stamp = stamp
    deferred.value = result  # last: other threads read it without the lock


def _value_of_data(node: Node) -> Array:
    """Returns the value of a node that is data on the host, or a number."""
    if node.op is input_op:
        leaf = node.attributes[0][1]
        if leaf.__class__ is not Leaf or leaf.external:
            raise _NeedsGraph
        array: Any = leaf.array if leaf.ancestors is NO_ANCESTORS else lazy_values.read_leaf(leaf)
        if array.__class__ is np.ndarray:
            return array
    number = number_operand(node)
    if number is None or number.value is None:
        raise _NeedsGraph
    return np.full(number.type.shape, number.value)  # type: ignore[arg-type]


def _count(computed: list[DeferredOp], nodes: list[Node]) -> None:
    if computed:
        session = native_ops.current
        session.executions.times += 1
        session.nodes.times += len(computed)
        session.cache_hits.times += len(nodes)


def _age(computed: list[DeferredOp], nodes: list[Node], generation: int) -> None:
    """Counts a read in the length of the history, and truncates a long one."""
    age = 1 if len(nodes) < _MAX_NODES_READ else max(1, len(set(nodes)) // _MAX_NODES_READ)
    for deferred in computed:
        deferred.generation = generation + age
        if generation >= MAX_GENERATIONS and deferred.value is not None:
            truncate_deferred(deferred)


def truncate_deferred(deferred: DeferredOp) -> None:
    """Turns a computed op into data, so that a loop does not retain its whole history."""
    with value_store.current.lock:
        if deferred.node is None and not variables:
            deferred.ancestors = _ancestors_of(deferred)
            deferred.small, deferred.operands, deferred.generation = None, (), 0


def _ancestors_of(root: DeferredOp) -> Mapping[ref[Leaf], int]:
    """Returns the leaves that a value was computed from, with their change counts; data have theirs.

    These include leaves that stand for the values below that tensors hold, as far as a gradient would pass to them.
    """
    merged: dict[ref[Leaf], int] = {}
    visited: set[tuple[DeferredOp, bool]] = set()
    pending = [(root, True)]
    while pending:
        deferred, is_differentiated = pending.pop()
        is_differentiated = is_differentiated and is_differentiable(deferred.type)
        if (deferred, is_differentiated) in visited:
            continue
        visited.add((deferred, is_differentiated))
        if is_differentiated and deferred is not root:
            merged.update(ancestors_of(_stand_ins_of(deferred)))
        if deferred.ancestors is not None:
            merged.update(deferred.ancestors)
            continue
        for operand in deferred.operands:
            if operand.__class__ is DeferredOp:
                pending.append((operand, is_differentiated))
            elif operand.__class__ is SmallNumber:
                continue
            elif operand.op is input_op:
                merged.update(ancestors_of((operand.attributes[0][1],)))
            elif operand.cell is not None:
                leaves = operand.cell.leaves  # usually cached
                leaves = leaves_below([operand])[operand] if leaves is None else leaves
                if not is_differentiated:
                    leaves = tuple([leaf for leaf in leaves if not is_stand_in(leaf)])
                elif is_held(operand):
                    leaves = (*leaves, stand_in_of(operand))
                merged.update(ancestors_of(leaves))
    return merged


def _stand_ins_of(deferred: DeferredOp) -> tuple[Leaf, ...]:
    """Returns the leaves that stand for a value if a tensor holds it."""
    node = deferred.node
    if node is not None:
        if not is_held(node):
            return ()
        return (node.attributes[0][1],) if node.op is input_op else (stand_in_of(node),)
    if not deferred.stand_ins and find_holder(deferred) is not None:
        deferred.stand_ins = (new_stand_in(),)
    return deferred.stand_ins
