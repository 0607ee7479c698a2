"""The passes `widen_half_matmuls` and `reduce_integer_matmuls`: products of element types without matrix kernels.

Half-precision products are computed in single precision and rounded once. Integer products become reductions, which
fuse with their neighbours. NumPy computes both element by element.
"""

from __future__ import annotations

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tensor, f16, f32
from livegrad.ir.walk import ops_in
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import mul
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, broadcast_to, sizes
from livegrad.ops.reduction import reduce


def widen_half_matmuls(function: Function) -> Function:
    """Computes half-precision matrix products in single precision, between casts."""
    return _rewrite_widened(function) if matmul in ops_in(function) else function


def reduce_integer_matmuls(function: Function) -> Function:
    """Replaces integer matrix products by sums of elementwise products."""
    return _rewrite_reduced(function) if matmul in ops_in(function) else function


@propagates_lines
def _rewrite_widened(function: Function) -> Function:
    return map_results(function, _widen)


@propagates_lines
def _rewrite_reduced(function: Function) -> Function:
    return map_results(function, _reduce)


def _widen(node: Node) -> Node | None:
    if node.op is not matmul or not isinstance(node.type, Tensor) or node.type.element is not f16:
        return None
    return cast(matmul(*[cast(operand, type=f32) for operand in node.operands]), type=f16)


def _reduce(node: Node) -> Node | None:
    if node.op is not matmul or not isinstance(node.type, Tensor):
        return None
    if node.type.element.kind not in ("signed", "unsigned"):
        return None
    first, second = node.operands
    *batch, rows, columns = sizes(node)
    inner, rank = sizes(first)[-1], len(batch)
    shape = (*batch, rows, inner, columns)
    left = broadcast(broadcast_to(first, (*batch, rows, inner)), shape=shape, axes=tuple(range(rank + 2)))
    axes = (*range(rank), rank + 1, rank + 2)
    right = broadcast(broadcast_to(second, (*batch, inner, columns)), shape=shape, axes=axes)
    return reduce(mul(left, right), kind="sum", axes=(rank + 1,))
