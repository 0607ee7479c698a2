"""`lg.transpose` and `lg.reduce_sum`, which act on the last axes of a tensor, for batches of matrices and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livegrad.diagnostics import caller_origin
from livegrad.ir.types import shape_of
from livegrad.ops.movement import permute
from livegrad.tensors.errors import AxisError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.reductions import sum as sum_over


def transpose(x: Any, permutation: Sequence[int] | None = None) -> Tensor:
    """Permutes the last axes; earlier axes stay. Without a permutation, all axes are reversed.

    A permutation of all axes is the usual transpose.

    >>> import livegrad as lg
    >>> lg.transpose(lg.ones((2, 3, 4, 5)), (1, 0)).shape
    (2, 3, 5, 4)
    """
    node = node_of(x, "transpose")
    rank = len(shape_of(node.type))
    order = tuple(reversed(range(rank))) if permutation is None else tuple(permutation)
    if set(order) != set(range(len(order))) or len(order) > rank:
        raise AxisError(
            "not a permutation of the last axes",
            where=caller_origin(),
            expected=f"each of 0 to n - 1 once, for n up to {rank}",
            found=str(order),
        )
    leading = rank - len(order)
    return wrap(permute(node, axes=(*range(leading), *[leading + axis for axis in order])))


def reduce_sum(x: Any, mask: Sequence[int]) -> Tensor:
    """The sum over the last axes whose mask is 1; summed axes keep size 1.

    The mask aligns with the last axes, like the permutation of `transpose`: (1, 0) on shape (2, 3, 4) sums the middle
    axis.

    >>> import livegrad as lg
    >>> lg.reduce_sum(lg.ones((2, 3, 4)), (1, 0)).shape
    (2, 1, 4)
    >>> lg.reduce_sum(lg.ones((2, 3, 4)), (1, 0, 1)).shape
    (1, 3, 1)
    """
    rank = len(shape_of(node_of(x, "reduce_sum").type))
    flags = tuple(mask) if isinstance(mask, Sequence) else (mask,)
    if len(flags) > rank or any(flag not in (0, 1) for flag in flags):
        raise ShapeError(
            "not a mask of the last axes", where=caller_origin(), expected=f"up to {rank} of 0 and 1", found=str(flags)
        )
    first = rank - len(flags)
    axes = tuple(first + position for position, flag in enumerate(flags) if flag)
    return sum_over(x, axis=axes, keepdims=True) if axes else wrap(node_of(x, "reduce_sum"))
