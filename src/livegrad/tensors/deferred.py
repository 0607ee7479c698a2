"""Tensors whose nodes are created on demand: elements of computed tensors, results of compiled calls, and deferred ops.

Most are read immediately, as in `float(x[i])`, and never become part of a graph. `Tensor._deferred` holds the source;
`Tensor._node` stays unset until a graph needs it.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from typing import Any
from weakref import ref

import numpy as np

from livegrad.diagnostics import SourceLocation
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.ir.source_lines import ambient, created_at, originating_from
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import bf16
from livegrad.lazy.deferred_ops import DeferredOp, create_deferred_node, current_value, defer_op, evaluate_deferred
from livegrad.lazy.lazy_values import Array, Leaf, cached_value, leaf_node, read_leaf
from livegrad.lazy.small_ops import SmallOp, is_small

# Each with the source locations of the tensor: (node or deferred op, integer indices into it, locations),
# (array, its type, locations), or (deferred op, None, locations).
Deferred = tuple[Any, Any, tuple[SourceLocation, ...]]


@cache
def _indexing() -> Any:
    """The module that creates nodes for indices; imported late because it imports tensors."""
    return import_module("livegrad.tensors.indexing")


def find_host_value(node: Node) -> Array | None:
    """Returns the value of a node if it is cached and on the host, otherwise None."""
    if node.op is input_op:
        leaf = node.attributes[0][1]
        if leaf.__class__ is not Leaf:
            return None  # a parameter of a function that is being traced
        array: Any = read_leaf(leaf) if leaf.ancestors else leaf.array
    else:
        array = None if node.cell is None else cached_value(node)
    return array if array.__class__ is np.ndarray else None


def compute_now(op: DeferredOp) -> Array | None:
    """Returns the value of a deferred op, and computes it if possible; None if the tensor needs its node for this."""
    return evaluate_deferred(op) if op.value is None else current_value(op)


def element_index(source: Any, prefix: tuple[int, ...], key: Any) -> tuple[int, ...] | None:
    """Returns the integer indices of the element or row `source[before][key]` of a computed node.

    Returns None for other keys, for indices out of range, and if there is no value for NumPy to index. Whether the
    value is still valid is checked when it is read.
    """
    if source.__class__ is DeferredOp:
        if source.type.element is bf16:  # NumPy has no bfloat16
            return None
        shape = source.type.shape
    else:
        if source.op is input_op:
            leaf = source.attributes[0][1]
            array: Any = leaf.array if leaf.__class__ is Leaf else None  # None: a parameter of a traced function
        else:
            array = None if source.cell is None else source.cell.value
        if array.__class__ is not np.ndarray or array.dtype.kind == "V":
            return None
        shape = array.shape
    if key.__class__ is int and not prefix and shape:
        return (key,) if -shape[0] <= key < shape[0] else None
    return integer_index(prefix, key, shape)


def integer_index(prefix: tuple[int, ...], key: Any, shape: tuple[Any, ...]) -> tuple[int, ...] | None:
    """Joins the integers `before` and those of a key if they index an element or row of this shape, else None."""
    index = prefix + (key if key.__class__ is tuple else (key,))
    if not index or len(index) > len(shape):
        return None
    for number, size in zip(index, shape):  # noqa: B905  # the first axes are indexed
        if number.__class__ is not int or not -size <= number < size:
            return None
    return index


def number_of(deferred: Deferred) -> Any:
    """Returns a deferred scalar as a Python number; None if it is not a scalar or its value is no longer cached."""
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
    """Returns the element of a zero-dimensional array; None for other arrays and for bfloat16, which NumPy lacks."""
    return array.item() if not array.shape and array.dtype.kind != "V" else None


def read_deferred(deferred: Deferred, *, compute: bool = False) -> Array | None:
    """Returns the value as a dense read-only array; None if it is not cached.

    With `compute`, deferred ops are computed if that needs no graph.
    """
    source, index, _ = deferred
    if source.__class__ is np.ndarray:
        source.setflags(write=False)
        return source
    if source.__class__ is DeferredOp:
        array = compute_now(source) if compute else current_value(source)
    else:
        array = find_host_value(source)
    if array is None:
        return None
    value = array if index is None else np.asarray(array[index])
    value.setflags(write=False)
    return value


def deferred_type(deferred: Deferred) -> TensorType:
    """Returns the type of a deferred tensor."""
    source, index, _ = deferred
    if source.__class__ is np.ndarray:
        return index
    source_node = source.type
    if index is None:
        return source_node
    return TensorType(source_node.element, source_node.shape[len(index) :])


def _copy_element(index: tuple[int, ...], array: Array) -> Array:
    return np.array(array[index], order="C")  # a view would keep the whole array


class _SmallElement(SmallOp):
    """The element or row of a tensor at integer indices."""

    __slots__ = ("index",)

    def __init__(self, index: tuple[int, ...], type: TensorType) -> None:
        self.index, self.type = index, type
        self.evaluate = partial(_copy_element, index)

    def make_node(self, operands: tuple[Node, ...]) -> Node:
        return _indexing().element_node(operands[0], self.index)


def operand_of(tensor: Any) -> Any:
    """Returns what an op takes as operand for a tensor: its deferred op, or its node. An element becomes an op."""
    deferred = tensor._deferred
    if deferred is None:
        return tensor._node
    source, index, origins = deferred
    if index is None:
        return source
    if source.__class__ is not np.ndarray and is_small(type := deferred_type(deferred)):
        op = defer_op(_SmallElement(index, type), (source,), origins)
        if op is not None:
            tensor._deferred, op.holder = (op, None, origins), ref(tensor)
            return op
    return tensor._node


def make_deferred_node(deferred: Deferred) -> Node:
    """Creates the node of a deferred tensor, with the source location of the tensor."""
    source, index, origins = deferred
    if source.__class__ is DeferredOp:
        source_node = create_deferred_node(source)
        return source_node if index is None else make_deferred_node((source_node, index, origins))
    with originating_from(origins) if ambient.is_unset else created_at(origins):
        if source.__class__ is np.ndarray:
            source.setflags(write=False)
            return leaf_node(source, index)
        return _indexing().element_node(source, index)
