"""Set functions of the tensor namespace: unique elements and membership.

The number of unique elements depends on the data, so `unique_*` compute their operand, and traced functions cannot use
them. The selected positions are then constant, and derivatives flow to the selected elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from livegrad.ir.dimension import Size, size_product
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor as TensorType
from livegrad.lazy.eviction import count_shape_from_data
from livegrad.lazy.lazy_values import Array
from livegrad.ops.comparison import bit_not, equal
from livegrad.ops.elementwise import minimum
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, broadcast_to, require_tensor, reshape
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled
from livegrad.ops.sorting import searchsorted, sort
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import element_of, promote_operands

# Up to so many elements, comparing with each of them is cheaper than sorting them.
_MAX_COMPARISONS = 32
_MIN_REPETITIONS = 16  # how often elements come on average where looking up the unique ones pays


class UniqueAll(NamedTuple):
    """Unique elements, their first indices, the index of each element among the unique ones, and counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Unique elements and their counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Unique elements, and the index of each element among them."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Any, /) -> UniqueAll:
    """The unique elements in order, their first indices, the inverse indices, and their counts.

    This computes `x`, because the number of unique elements depends on the data. Each NaN counts as unique.

    >>> import livegrad as lg
    >>> lg.unique_all(lg.asarray([5, 3, 5])).counts
    Tensor([1, 2], dtype=int64)
    """
    node, unique = _unique(x, "unique_all")
    indices, inverse, counts = (wrap_array(part) for part in unique)
    return UniqueAll(_elements(node, indices), indices, inverse, counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """The unique elements in order, and their counts. This computes `x`.

    >>> import livegrad as lg
    >>> lg.unique_counts(lg.asarray([5, 3, 5])).values
    Tensor([3, 5], dtype=int64)
    """
    node, (indices, _, counts) = _unique(x, "unique_counts")
    return UniqueCounts(_elements(node, wrap_array(indices)), wrap_array(counts))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The unique elements in order, and the inverse indices. This computes `x`.

    >>> import livegrad as lg
    >>> lg.unique_inverse(lg.asarray([5, 3, 5])).inverse_indices
    Tensor([1, 0, 1], dtype=int64)
    """
    node, (indices, inverse, _) = _unique(x, "unique_inverse")
    return UniqueInverse(_elements(node, wrap_array(indices)), wrap_array(inverse))


def unique_values(x: Any, /) -> Tensor:
    """The unique elements in order. This computes `x`, because their number depends on the data.

    >>> import livegrad as lg
    >>> lg.unique_values(lg.asarray([[2, 1], [1, 2]]))
    Tensor([1, 2], dtype=int64)
    """
    node, (indices, _, _) = _unique(x, "unique_values")
    return _elements(node, wrap_array(indices))


def _unique(x: Any, user: str) -> tuple[Node, tuple[Array, Array, Array]]:
    """Returns the flattened node, and the first indices, inverse indices and counts of its unique elements."""
    tensor = wrap(node_of(x, user))
    count_shape_from_data()
    value = tensor.numpy()
    parts = _search_unique(tensor, value) or _sort_unique(value)
    flat = reshape(tensor.node, shape=(size_product(tensor.shape),))
    first, inverse, counts = (np.ascontiguousarray(part, np.int64).reshape(part.shape) for part in parts)
    return flat, (first, inverse, counts)


def _sort_unique(value: Array) -> tuple[Array, Array, Array]:
    _, indices, inverse, counts = np.unique(
        value, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return indices, inverse.reshape(value.shape), counts


def _search_unique(tensor: Tensor, value: Array) -> tuple[Array, Array, Array] | None:
    """Does the same for few unique elements by binary search, which is faster than sorting positions.

    Returns None for many unique elements, or NaN, each of which is unique.
    """
    if value.dtype.kind not in "iuf" or value.size < _MIN_REPETITIONS:
        return None
    ordered = np.sort(value, axis=None)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    if len(starts) * _MIN_REPETITIONS > value.size or np.isnan(ordered[-1]):
        return None
    inverse = wrap(searchsorted(wrap_array(ordered[starts]).node, tensor.node, side="left")).numpy()
    indices = np.empty(len(starts), np.int64)
    indices[inverse.reshape(-1)[::-1]] = np.arange(value.size - 1, -1, -1)  # the last write, to the first index, counts
    return indices, inverse, np.diff(starts, append=value.size)


def _elements(flat: Node, indices: Tensor) -> Tensor:
    """Reads the elements from the tensor, so that they have its derivative."""
    return wrap(lookup(flat, indices.node))


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of `x1` occurs in `x2`; `invert` negates the result. NaN never occurs.

    >>> import livegrad as lg
    >>> lg.isin(lg.asarray([1, 2, 3]), lg.asarray([3, 1]))
    Tensor([ True, False,  True], dtype=bool)
    """
    elements, among = promote_operands("isin", x1, x2)
    count = size_product(require_tensor(among.type).shape)
    among = reshape(among, shape=(count,))
    compare_all = isinstance(count, int) and count <= _MAX_COMPARISONS
    search = _compare_with_each if compare_all or element_of(among).kind == "complex" else _search_sorted
    is_member = search(elements, among, count)
    return wrap(bit_not(is_member) if invert else is_member)


def _compare_with_each(elements: Node, among: Node, count: Size) -> Node:
    shape = require_tensor(elements.type).shape
    full = (*shape, count)
    axes = tuple(range(len(shape)))
    return reduce(
        equal(broadcast(elements, shape=full, axes=axes), broadcast_to(among, full)), kind="any", axes=(len(shape),)
    )


def _search_sorted(elements: Node, among: Node, count: Size) -> Node:
    ordered = sort(among, axis=0, descending=False, stable=False)
    positions = searchsorted(ordered, elements, side="left")
    type = require_tensor(positions.type)
    last = filled(count - 1, type) if isinstance(count, int) else _last_position(among, type)
    return equal(lookup(ordered, minimum(positions, last)), elements)


def _last_position(among: Node, type: TensorType) -> Node:
    """Computes the last index of a sequence whose length is only known at run time."""
    ones = filled(1, TensorType(type.element, require_tensor(among.type).shape))
    return broadcast(reduce(ones, kind="sum", axes=(0,)), shape=type.shape, axes=()) - filled(1, type)
