"""Search functions of the tensor namespace: `argmax`, `argmin`, `nonzero` and `searchsorted`.

The number of nonzero elements depends on the data, so `nonzero` computes its operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import size_product
from livegrad.lazy.eviction import count_shape_from_data
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import require_tensor, reshape
from livegrad.ops.reduction import arg_reduce
from livegrad.ops.sorting import searchsorted as searchsorted_op
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.axes_and_shapes import normalise_axis, restore_reduced_axes
from livegrad.tensors.dtypes import DEFAULT_INDEX
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import as_type, promote_operands


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element along an axis, or in the flattened tensor; the first one on a tie.

    >>> import livegrad as lg
    >>> lg.argmax(lg.asarray([[1, 9], [8, 2]]), axis=1)
    Tensor([1, 0], dtype=int64)
    """
    return _position("argmax", x, axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element along an axis, or in the flattened tensor; the first one on a tie.

    >>> import livegrad as lg
    >>> lg.argmin(lg.asarray([3.0, 1.0, 2.0]))
    Tensor(1, dtype=int64)
    """
    return _position("argmin", x, axis, keepdims)


def _position(kind: str, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    node = node_of(x, kind)
    shape = require_tensor(node.type).shape
    if axis is None:
        index = arg_reduce(reshape(node, shape=(size_product(shape),)), kind=kind, axis=0)
        axes = tuple(range(len(shape)))
    else:
        position = normalise_axis(axis, len(shape), kind)
        index, axes = arg_reduce(node, kind=kind, axis=position), (position,)
    return wrap(restore_reduced_axes(index, shape, axes) if keepdims else index)


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The indices of the nonzero elements, in order: one tensor of indices per dimension.

    Their number depends on the data, so this computes `x`; a traced function cannot use it.

    >>> import livegrad as lg
    >>> lg.nonzero(lg.asarray([[0, 7], [5, 0]]))
    (Tensor([0, 1], dtype=int64), Tensor([1, 0], dtype=int64))
    """
    tensor = wrap(node_of(x, "nonzero"))
    if tensor.ndim == 0:
        raise ShapeError(
            "`nonzero` takes a tensor with dimensions",
            where=caller_origin(),
            found="shape ()",
            help="reshape it to (1,) first",
        )
    count_shape_from_data()
    positions = np.nonzero(tensor.numpy())
    return tuple(wrap_array(np.ascontiguousarray(each, np.int64)) for each in positions)


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Tensor:
    """The index at which each element of `x2` must be inserted into the sorted `x1`: before equal elements ("left") or
    after ("right").

    If `x1` is not sorted, `sorter` is the order that sorts it. NaN counts as the largest number.

    >>> import livegrad as lg
    >>> lg.searchsorted(lg.asarray([1.0, 2.0, 2.0, 5.0]), lg.asarray([2.0, 9.0]), side="right")
    Tensor([3, 4], dtype=int64)
    """
    if side not in ("left", "right"):
        raise UsageError(f"`searchsorted` has no side {side!r}", where=caller_origin(), expected="'left' or 'right'")
    ordered = node_of(x1, "searchsorted")
    if require_tensor(ordered.type).rank != 1:
        raise ShapeError(
            "`searchsorted` takes a one-dimensional tensor",
            where=caller_origin(),
            expected="one dimension",
            found=str(ordered.type),
        )
    if sorter is not None:
        ordered = lookup(ordered, as_type(node_of(sorter, "searchsorted"), DEFAULT_INDEX))
    first, values = promote_operands("searchsorted", wrap(ordered), x2)
    return wrap(searchsorted_op(first, values, side=side))
