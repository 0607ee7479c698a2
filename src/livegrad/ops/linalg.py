"""Matrix products of batches of matrices, and broadcasting of shapes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Type, shape_of
from livegrad.ops.movement import permute, require_tensor, sum_to
from livegrad.ops.rules import NUMBERS, add_tangents


@lru_cache(maxsize=4096)
def broadcast_shapes(first: tuple[Size, ...], second: tuple[Size, ...]) -> tuple[Size, ...]:
    """Returns the shape that two shapes broadcast to, aligned at the last dimension.

    >>> broadcast_shapes((4, 1), (3,))
    (4, 3)
    """
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (first, second)]
    result = []
    for a, b in zip(*padded, strict=True):
        if a != b and 1 not in (a, b):
            raise TypeRuleError(
                f"shapes {first} and {second} do not broadcast", help=f"{a} and {b} differ, and neither is 1"
            )
        result.append(b if a == 1 else a)
    return tuple(result)


def _matmul_type(a: Type, b: Type) -> Type:
    first, second = require_tensor(a), require_tensor(b)
    if first.element is not second.element or first.element.kind not in NUMBERS:
        raise TypeRuleError("matmul takes operands of one type", help="cast one of them: nothing is promoted silently")
    if first.rank < 2 or second.rank < 2:
        raise TypeRuleError("matmul takes tensors of at least two dimensions", help="reshape a vector first")
    if first.shape[-1] != second.shape[-2]:
        raise TypeRuleError("the first operand's columns must match the second's rows")
    batch = broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return Tensor(first.element, (*batch, first.shape[-2], second.shape[-1]))


def swap_last(x: Node) -> Node:
    """The matrix transpose of a batch of matrices."""
    rank = len(shape_of(x.type))
    return permute(x, axes=(*range(rank - 2), rank - 1, rank - 2))


def _matmul_jvp(y: Node, da: Node | None, db: Node | None) -> Node | None:
    a, b = y.operands
    return add_tangents(None if da is None else matmul(da, b), None if db is None else matmul(a, db))


def _matmul_transpose(y: Node, ct: Node, first: bool, second: bool) -> tuple[Node | None, ...]:
    a, b = y.operands
    return (
        sum_to(matmul(ct, swap_last(b)), shape_of(a.type)) if first else None,
        sum_to(matmul(swap_last(a), ct), shape_of(b.type)) if second else None,
    )


matmul = Op(
    "matmul",
    type_of=_matmul_type,
    evaluate=np.matmul,
    jvp=_matmul_jvp,
    transpose=_matmul_transpose,
    linear_in=(0, 1),
    cost=100.0,
)
