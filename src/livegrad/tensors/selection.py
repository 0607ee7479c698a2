"""The functions that select elements: `take`, `take_along_axis` and `where` of the tensor namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import caller_origin
from livegrad.ir.types import i64, shape_of
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.movement import broadcast_to
from livegrad.ops.sorting import take_along_axis as take_along_axis_nodes
from livegrad.tensors.axes_and_shapes import normalise_axis
from livegrad.tensors.broadcasting import broadcast_node_shapes, join_shapes
from livegrad.tensors.errors import DtypeError, ShapeError
from livegrad.tensors.handle import Tensor, match_operands, node_of, wrap
from livegrad.tensors.index_keys import (
    element_type,
    wrap_negative_indices,
)
from livegrad.tensors.indexing import get_item
from livegrad.tensors.operands import to_boolean


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """Returns the elements at these indices along an axis. The axis is optional for one-dimensional tensors.

    Negative indices count from the end. An index out of range raises when it is computed.

    >>> import livegrad as lg
    >>> lg.take(lg.asarray([10, 20, 30]), lg.asarray([2, 0, -1]))
    Tensor([30, 10, 30], dtype=int64)
    """
    tensor = wrap(node_of(x, "take"))
    if axis is None and tensor.ndim != 1:
        raise ShapeError("`take` needs an axis", where=caller_origin(), found=f"{tensor.ndim} dimensions")
    position = normalise_axis(0 if axis is None else axis, tensor.ndim, "take")
    positions = indices if isinstance(indices, Tensor) else np.asarray(indices)
    if isinstance(positions, np.ndarray) and not positions.size:
        positions = positions.astype(np.int64)
    return get_item(tensor, (*[slice(None)] * position, positions))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Returns elements along an axis, with separate indices for each row. The other dimensions broadcast.

    >>> import livegrad as lg
    >>> x = lg.asarray([[3, 1, 2], [6, 5, 4]])
    >>> lg.take_along_axis(x, lg.asarray([[1], [-1]]), axis=1)
    Tensor([[1],
            [4]], dtype=int64)
    """
    node, positions = node_of(x, "take_along_axis"), node_of(indices, "take_along_axis")
    tensor_shape, positions_shape = shape_of(node.type), shape_of(positions.type)
    position = normalise_axis(axis, len(tensor_shape), "take_along_axis")
    if len(tensor_shape) != len(positions_shape):
        raise ShapeError(
            f"`take_along_axis` cannot combine shapes {tensor_shape} and {positions_shape}",
            where=caller_origin(),
            help="the indices need as many dimensions as the tensor",
        )
    if element_type(positions).kind not in ("signed", "unsigned"):
        raise DtypeError("indices must be integers", where=caller_origin(), found=element_type(positions).dtype.name)
    remaining_shapes = [
        tuple(1 if axis == position else size for axis, size in enumerate(shape))
        for shape in (tensor_shape, positions_shape)
    ]
    join_shapes("take_along_axis", *remaining_shapes)
    wrapped = wrap_negative_indices(positions, tensor_shape[position])
    wrapped = wrapped if element_type(wrapped) is i64 else cast(wrapped, type=i64)
    return wrap(take_along_axis_nodes(node, wrapped, position))


def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """Selects x1 where the condition is true and x2 elsewhere. All three broadcast.

    >>> import livegrad as lg
    >>> lg.where(lg.asarray([True, False]), lg.asarray([1, 2]), 0)
    Tensor([1, 0], dtype=int64)
    """
    mask = to_boolean(node_of(condition, "where"))
    first, second = match_operands("where", x1, x2)
    shape = broadcast_node_shapes("where", mask, first)
    return wrap(select(broadcast_to(mask, shape), broadcast_to(first, shape), broadcast_to(second, shape)))
