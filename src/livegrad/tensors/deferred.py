"""Tensors whose node is made when it is first asked for: elements of computed tensors, results of compiled calls, and
ops over small data.

Most of them are read at once, as in `float(x[i])`, and never become part of a graph. `Tensor._deferred` holds what is
here; `Tensor._node` is not set until then.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from livegrad.diagnostics import SourceLocation
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.ir.source_lines import ambient, created_at, originating_from
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import bf16
from livegrad.lazy.deferred_ops import DeferredOp, create_deferred_node, current_value, find_holder
from livegrad.lazy.execution import execute_node, watch
from livegrad.lazy.holders import register_holder
from livegrad.lazy.lazy_values import Array, Leaf, cached_value, clock, leaf_node, read_leaf
from livegrad.lazy.small_graphs import compute_deferred

# (the node or deferred op that it is an element or a row of, integers that index it, the author's line),
# (the data, its type, the author's line), or (a deferred op, None, the author's line)
Deferred = tuple[Any, Any, tuple[SourceLocation, ...]]


@cache
def _indexing() -> Any:
    """The module that creates nodes for indices; imported late because it imports tensors."""
    return import_module("livegrad.tensors.indexing")


def find_host_value(node: Node) -> Array | None:
    """The value of a node if it is known and lies on the host."""
    if node.op is input_op:
        leaf = node.attributes[0][1]
        if leaf.__class__ is not Leaf:
            return None  # of a function that is traced
        array: Any = read_leaf(leaf) if leaf.ancestors else leaf.array
    else:
        array = None if node.cell is None else cached_value(node)
    return array if array.__class__ is np.ndarray else None


class _Keeper:
    """Holds a node while it is computed, as a tensor does."""

    __slots__ = ("__weakref__", "_deferred", "_node")
    requires_grad = False

    def __init__(self, node: Node) -> None:
        self._node: Node | None = node
        self._deferred = None
        register_holder(node, self)

    def _set_node(self, node: Node) -> None:
        self._node = node


def compute_now(op: DeferredOp) -> Array | None:
    """The value of a deferred op, computed if need be; None if the tensor's node has to say it."""
    value = op.value
    if value is not None:
        return value if op.stamp == clock.now else None
    if watch.active:
        return None
    value, graph = compute_deferred(op)
    if graph is None:
        return value
    # The first graph of its structure. It keeps the values that those after it keep, so that it is found for them.
    keepers = [_Keeper(create_deferred_node(kept)) for kept in graph.outputs if find_holder(kept) is None]  # type: ignore[arg-type]
    value = execute_node(create_deferred_node(op))
    del keepers
    return value if value.__class__ is np.ndarray else None  # type: ignore[return-value]


def element_index(source: Any, before: tuple[int, ...], key: Any) -> tuple[int, ...] | None:
    """The integers that pick the element or row `source[before][key]` of a computed node. None for any other key, for
    one that is out of range, and if there is no value for NumPy to index.

    That the value is still good is found when it is read.
    """
    if source.__class__ is DeferredOp:
        if source.type.element is bf16:  # which NumPy does not know
            return None
        shape = source.type.shape
    else:
        if source.op is input_op:
            leaf = source.attributes[0][1]
            array: Any = leaf.array if leaf.__class__ is Leaf else None  # else of a function that is traced
        else:
            array = None if source.cell is None else source.cell.value
        if array.__class__ is not np.ndarray or array.dtype.kind == "V":
            return None
        shape = array.shape
    if key.__class__ is int and not before and shape:
        return (key,) if -shape[0] <= key < shape[0] else None
    return integer_index(before, key, shape)


def integer_index(before: tuple[int, ...], key: Any, shape: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The integers `before` and those of a key, if they pick an element or row of an array of this shape; else None."""
    index = before + (key if key.__class__ is tuple else (key,))
    if not index or len(index) > len(shape):
        return None
    for number, size in zip(index, shape):  # noqa: B905  # the first axes are indexed
        if number.__class__ is not int or not -size <= number < size:
            return None
    return index


def number_of(deferred: Deferred) -> Any:
    """A deferred number as a Python number; None if it is none, or is not known any more."""
    source, index, _ = deferred
    if source.__class__ is np.ndarray:
        return _scalar_in(source)
    if source.__class__ is not DeferredOp:
        array = find_host_value(source)
    else:
        array = compute_now(source)
        if index is None:
            return None if array is None else _scalar_in(array)
    return array.item(index) if array is not None and len(index) == array.ndim else None


def _scalar_in(array: Array) -> Any:
    """The only element of an array without dimensions; None for others, and for bfloat16, which NumPy does not know."""
    return array.item() if not array.shape and array.dtype.kind != "V" else None


def read_deferred(deferred: Deferred, *, compute: bool = False) -> Array | None:
    """The value as a dense read-only array; None if it is not known, or not any more.

    With `compute`, deferred ops are computed if they can be without a graph.
    """
    source, index, _ = deferred
    if source.__class__ is np.ndarray:
        source.setflags(write=False)
        return source
    if source.__class__ is DeferredOp:
        array = compute_now(source) if compute else current_value(source)
        if index is None:
            return array
    else:
        array = find_host_value(source)
    if array is None:
        return None
    value = np.asarray(array[index])
    value.setflags(write=False)
    return value


def deferred_type(deferred: Deferred) -> TensorType:
    """The type of the tensor."""
    source, index, _ = deferred
    if source.__class__ is np.ndarray:
        return index
    source_node = source.type
    if index is None:
        return source_node
    return TensorType(source_node.element, source_node.shape[len(index) :])


def make_deferred_node(deferred: Deferred) -> Node:
    """The node that would have been made at the author's line."""
    source, index, origins = deferred
    if source.__class__ is DeferredOp:
        source_node = create_deferred_node(source)
        return source_node if index is None else make_deferred_node((source_node, index, origins))
    with originating_from(origins) if ambient.plain else created_at(origins):
        if source.__class__ is np.ndarray:
            source.setflags(write=False)
            return leaf_node(source, index)
        return _indexing().element_node(source, index)
