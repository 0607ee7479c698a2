"""Lowers matrix products in a loop nest to sums of elementwise products, for loops over elements.

Products of a matrix and a vector, outer products and products of small matrices are lowered. Large ones stay for the
kernels that tile them.
"""

from __future__ import annotations

from math import prod

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.walk import ops_below
from livegrad.ops.linalg import matmul, swap_last
from livegrad.ops.movement import broadcast, permute, reshape, sizes
from livegrad.ops.reduction import reduce
from livegrad.passes.functions import rewrite_functions

_MAX_PRODUCTS = 4096  # scalar products of a matrix product: for more, register tiles are faster


def is_product_by_element(node: Node) -> bool:
    """Whether a loop over elements computes a matrix product as fast as a separate kernel."""
    (*_, rows, inner), columns = sizes(node.operands[0]), sizes(node)[-1]
    return 1 in (rows, columns, inner) or count_products(node) <= _MAX_PRODUCTS


def count_products(node: Node) -> int:
    """The number of scalar multiplications of a matrix product."""
    return prod(sizes(node)) * sizes(node.operands[0])[-1]


def expand_products(function: Function) -> Function:
    """Lowers the matrix products of a function and of its nested functions."""
    if matmul not in ops_below(function):
        return function
    rewritten = rewrite_functions(Module((function,)), lambda inner: map_results(inner, _lower_product))
    return rewritten.functions[0]


def _lower_product(node: Node) -> Node | None:
    if node.op is not matmul or not is_product_by_element(node):
        return None
    first, second = node.operands
    *batch, rows, columns = sizes(node)
    inner, outer = sizes(first)[-1], len(batch)
    if inner == 1:
        return _broadcast_matrices(first, sizes(node), (0, 1), outer) * _broadcast_matrices(
            second, sizes(node), (0, 1), outer
        )
    if _sums_rows(first, second, rows, columns):
        shape, axis = (*batch, inner, rows, columns), outer
        left, right = (
            _broadcast_matrices(swap_last(first), shape, (0, 1), outer),
            _broadcast_matrices(second, shape, (0, 2), outer),
        )
    else:
        shape, axis = (*batch, rows, columns, inner), outer + 2
        left, right = (
            _broadcast_matrices(first, shape, (0, 2), outer),
            _broadcast_matrices(swap_last(second), shape, (1, 2), outer),
        )
    return reduce(left * right, kind="sum", axes=(axis,))


def _sums_rows(first: Node, second: Node, rows: int, columns: int) -> bool:
    """Whether to sum whole rows instead of single results, because that accesses memory in order."""
    return rows > 1 and _is_transposed(first) if columns == 1 else not _is_transposed(second)


def _broadcast_matrices(matrices: Node, shape: tuple[int, ...], axes: tuple[int, int], outer: int) -> Node:
    """Broadcasts a batch of matrices to a shape; their rows and columns lie along `axes`, after `outer` batch axes."""
    batch = range(outer - (len(sizes(matrices)) - 2), outer)
    return broadcast(matrices, axes=(*batch, outer + axes[0], outer + axes[1]), shape=shape)


def _is_transposed(operand: Node) -> bool:
    """Whether an operand is a view whose last dimension is not contiguous."""
    while operand.op is reshape:
        (operand,) = operand.operands
    return operand.op is permute and operand.attribute("axes")[-1] != len(sizes(operand)) - 1
