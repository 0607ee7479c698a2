"""The passes `widen_half_matmuls` and `reduce_integer_matmuls`: products of element types without matrix kernels.

Half-precision products are computed in single precision and rounded once. Integer products become reductions, which
fuse with their neighbours. NumPy computes both element by element.
"""

from __future__ import annotations

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f16, f32
from livegrad.ir.walk import nodes_of, ops_in
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import mul
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, broadcast_to, sizes
from livegrad.ops.reduction import reduce


def widen_half_matmuls(function: Function) -> Function:
    """Computes half-precision matrix products in single precision, between casts."""
    return map_results(function, _widen) if any(map(_is_half, matmuls_of(function))) else function


def reduce_integer_matmuls(function: Function) -> Function:
    """Replaces integer matrix products by sums of elementwise products."""
    return map_results(function, _reduce) if any(map(_is_integer, matmuls_of(function))) else function


def matmuls_of(function: Function) -> list[Node]:
    """The products of tensors among the nodes of a function."""
    if matmul not in ops_in(function):
        return []
    return [node for node in nodes_of(function) if node.op is matmul and isinstance(node.type, Tensor)]


def _is_half(node: Node) -> bool:
    return node.op is matmul and isinstance(node.type, Tensor) and node.type.element is f16


def _is_integer(node: Node) -> bool:
    return node.op is matmul and isinstance(node.type, Tensor) and node.type.element.kind in ("signed", "unsigned")


def _widen(node: Node) -> Node | None:
    if not _is_half(node):
        return None
    return cast(matmul(*[cast(operand, type=f32) for operand in node.operands]), type=f16)


def _reduce(node: Node) -> Node | None:
    if not _is_integer(node):
        return None
    first, second = node.operands
    *batch, rows, columns = sizes(node)
    inner, rank = sizes(first)[-1], len(batch)
    shape = (*batch, rows, inner, columns)
    left = broadcast(broadcast_to(first, (*batch, rows, inner)), shape=shape, axes=tuple(range(rank + 2)))
    axes = (*range(rank), rank + 1, rank + 2)
    right = broadcast(broadcast_to(second, (*batch, inner, columns)), shape=shape, axes=axes)
    return reduce(mul(left, right), kind="sum", axes=(rank + 1,))
