"""Searches and compacts tensors with native loops, without sorts or host steps, on every backend.

`append.py` uses it to compact emitted elements, `neighbours.py` to find cells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import i64
from livegrad.ops import select
from livegrad.ops.comparison import shift_left
from livegrad.ops.control import make_for_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map
from livegrad.ops.movement import broadcast
from livegrad.tensors import namespace as xp
from livegrad.tensors.handle import Tensor, wrap


def integer_tensor(value: int) -> Tensor:
    """An integer constant as a tensor."""
    return wrap(broadcast(constant(value, i64), shape=(), axes=()))


def integer(value: int) -> Node:
    """An integer constant for functions of one element."""
    return constant(value, i64)


def search(ascending: Node, value: Node) -> Node:
    """The number of sorted values below a value, by binary search."""
    size = _size(ascending)
    rounds = size.bit_length()

    def probe(index: Node, count: Node) -> Node:
        next_count = count + shift_left(integer(1), integer(rounds - 1) - index)
        is_inside = next_count <= integer(size)
        candidate = select(is_inside, next_count, integer(size)) - integer(1)
        return select(is_inside & (lookup(ascending, candidate) < value), next_count, count)

    return make_for_loop(integer(rounds), probe, integer(0))[0]


def _size(tensor: Node) -> int:
    assert isinstance(tensor.type, TensorType)
    return int(tensor.type.shape[0])  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _trace_search(ascending: TensorType) -> Function:
    return trace(lambda value, ascending_values: search(ascending_values, value), i64, ascending, name="lower_bound")


def lower_bound(ascending: Tensor, values: Tensor) -> Tensor:
    """The number of sorted integers below each value.

    >>> import livegrad as lg
    >>> lower_bound(lg.asarray([1, 3, 3, 7]), lg.asarray([0, 3, 8]))
    Tensor([0, 1, 4], dtype=int64)
    """
    assert isinstance(ascending.node.type, TensorType)
    return wrap(make_map(_trace_search(ascending.node.type), values.node, ascending.node))


def take_rows(tensor: Tensor, index: Tensor) -> Tensor:
    """Gathers rows by an index of any shape."""
    rows = xp.take(tensor, xp.reshape(index, (-1,)), axis=0)
    return xp.reshape(rows, (*index.shape, *tensor.shape[1:]))


def pack(emit: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """The indices of the first `capacity` true elements, in order, and the total number of true elements.

    >>> import livegrad as lg
    >>> pack(lg.asarray([False, True, False, True]), 3)
    (Tensor([1, 3, 3], dtype=int64), Tensor(2, dtype=int64))
    """
    counted: Any = xp.cumulative_sum(xp.astype(emit, xp.int64), axis=0)
    indices = lower_bound(counted, xp.arange(1, capacity + 1, dtype=xp.int64))
    return xp.minimum(indices, integer_tensor(emit.shape[0] - 1)), counted[-1]
