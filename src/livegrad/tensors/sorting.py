"""Sorting functions of the tensor namespace: `sort`, `argsort` and `top_k`."""

from __future__ import annotations

from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ops import sorting as ops
from livegrad.ops.movement import require_tensor
from livegrad.tensors.axes_and_shapes import normalise_axis
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import require_integer, require_kinds

_KINDS = ("bool", "signed", "unsigned", "float")


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sorts the elements along an axis. NaN counts as the largest number.

    >>> import livegrad as lg
    >>> lg.sort(lg.asarray([3, 1, 2]), descending=True)
    Tensor([3, 2, 1], dtype=int64)
    """
    node, position = _sortable(x, axis, "sort")
    return wrap(ops.sort(node, axis=position, descending=bool(descending), stable=bool(stable)))


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort the elements along an axis.

    >>> import livegrad as lg
    >>> lg.argsort(lg.asarray([30.0, 10.0, 20.0]))
    Tensor([1, 2, 0], dtype=int64)
    """
    node, position = _sortable(x, axis, "argsort")
    return wrap(ops.argsort(node, axis=position, descending=bool(descending), stable=bool(stable)))


def top_k(x: Any, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along an axis, in order, and their indices.

    >>> import livegrad as lg
    >>> lg.top_k(lg.asarray([4, 9, 1, 7]), 2)
    (Tensor([9, 7], dtype=int64), Tensor([1, 3], dtype=int64))
    """
    node, position = _sortable(x, axis, "top_k")
    count, extent = require_integer(k, "top_k", "k"), require_tensor(node.type).shape[position]
    if count < 0 or (isinstance(extent, int) and count > extent):
        what = f"`top_k` cannot take {count} elements along axis {position}"
        raise UsageError(what, where=caller_origin(), expected=f"k from 0 to {extent}", found=str(count))
    values, positions = ops.top_k(node, count, position, bool(largest))
    return wrap(values), wrap(positions)


def _sortable(x: Any, axis: int, user: str) -> tuple[Node, int]:
    node = require_kinds(node_of(x, user), user, *_KINDS)
    return node, normalise_axis(axis, require_tensor(node.type).rank, user)
