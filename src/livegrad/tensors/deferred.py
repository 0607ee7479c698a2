"""Tensors whose node is made when it is first asked for: elements of computed tensors, and results of compiled calls.

Most of them are read at once, as in `float(x[i])`, and never become part of a graph. `Tensor._deferred` holds what is
here; `Tensor._node` is not set until then.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from livegrad.diagnostics import Place
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.ir.source_lines import ambient, made_at, originating_from
from livegrad.ir.types import Tensor as TensorType
from livegrad.lazy.lazy_values import Array, Leaf, known_value, leaf_node, read_leaf

# (the node that it is an element or a row of, integers that index it, the author's line), or
# (the data, its type, the author's line)
Deferred = tuple[Any, Any, tuple[Place, ...]]


@cache
def _indexing() -> Any:
    """The module that creates nodes for indices; imported late because it imports tensors."""
    return import_module("livegrad.tensors.indexing")


def array_of(node: Node) -> Array | None:
    """The value of a node if it is known and lies on the host."""
    if node.op is input_op:
        leaf = node.attributes[0][1]
        if leaf.__class__ is not Leaf:
            return None  # of a function that is traced
        array: Any = read_leaf(leaf) if leaf.ancestors else leaf.array
    else:
        array = None if node.cell is None else known_value(node)
    return array if array.__class__ is np.ndarray else None


def element_index(source: Any, before: tuple[int, ...], key: Any) -> tuple[int, ...] | None:
    """The integers that pick the element or row `source[before][key]` of a computed node. None for any other key, for
    one that is out of range, and if there is no value for NumPy to index.

    That the value is still good is found when it is read.
    """
    if source.op is input_op:
        leaf = source.attributes[0][1]
        array: Any = leaf.array if leaf.__class__ is Leaf else None  # else of a function that is traced
    else:
        array = None if source.cell is None else source.cell.value
    if array.__class__ is not np.ndarray or array.dtype.kind == "V":  # bfloat16, which NumPy does not know
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
        return source.item() if not source.shape and source.dtype.kind != "V" else None
    array = array_of(source)
    return array.item(index) if array is not None and len(index) == array.ndim else None


def value_of(deferred: Deferred) -> Array | None:
    """The value as a dense read-only array; None if it is not known any more."""
    source, index, _ = deferred
    if source.__class__ is np.ndarray:
        source.setflags(write=False)
        return source
    array = array_of(source)
    if array is None:
        return None
    value = np.asarray(array[index])
    value.setflags(write=False)
    return value


def type_of(deferred: Deferred) -> TensorType:
    """The type of the tensor."""
    source, index, _ = deferred
    if source.__class__ is np.ndarray:
        return index
    whole = source.type
    return TensorType(whole.element, whole.shape[len(index) :])


def make_deferred_node(deferred: Deferred) -> Node:
    """The node that would have been made at the author's line."""
    source, index, origins = deferred
    with originating_from(origins) if ambient.plain else made_at(origins):
        if source.__class__ is np.ndarray:
            source.setflags(write=False)
            return leaf_node(source, index)
        return _indexing().element_node(source, index)
