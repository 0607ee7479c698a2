"""Matrix products inside a nest become sums of products, which a loop over elements computes.

In: the functions of a loop that is to run by element. A product of a matrix and a vector, an outer product or a product
of small matrices has elements of its own; one of large matrices is left to the kernels that tile it.
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

_MAX_PRODUCTS = 4096  # of numbers, in a product of two matrices: beyond that, tiles in registers are faster


def is_product_by_element(node: Node) -> bool:
    """Whether a loop over elements computes a matrix product as fast as a separate kernel."""
    (*_, rows, inner), columns = sizes(node.operands[0]), sizes(node)[-1]
    return 1 in (rows, columns, inner) or count_products(node) <= _MAX_PRODUCTS


def count_products(node: Node) -> int:
    """How many numbers a matrix product multiplies."""
    return prod(sizes(node)) * sizes(node.operands[0])[-1]


def expand_products(function: Function) -> Function:
    """The function and the functions inside it, with matrix products as sums of elementwise products."""
    if matmul not in ops_below(function):
        return function
    rewritten = rewrite_functions(Module((function,)), lambda inner: map_results(inner, _sum_of_products))
    return rewritten.functions[0]


def _sum_of_products(node: Node) -> Node | None:
    if node.op is not matmul or not is_product_by_element(node):
        return None
    first, second = node.operands
    *batch, rows, columns = sizes(node)
    inner, outer = sizes(first)[-1], len(batch)
    if inner == 1:
        return _spread(first, sizes(node), (0, 1), outer) * _spread(second, sizes(node), (0, 1), outer)
    if _adds_rows(first, second, rows, columns):
        shape, axis = (*batch, inner, rows, columns), outer
        left, right = _spread(swap_last(first), shape, (0, 1), outer), _spread(second, shape, (0, 2), outer)
    else:
        shape, axis = (*batch, rows, columns, inner), outer + 2
        left, right = _spread(first, shape, (0, 2), outer), _spread(swap_last(second), shape, (1, 2), outer)
    return reduce(left * right, kind="sum", axes=(axis,))


def _adds_rows(first: Node, second: Node, rows: int, columns: int) -> bool:
    """Whether each term of the sums is added to all results in turn: where memory is read in order that way."""
    return rows > 1 and _is_transposed(first) if columns == 1 else not _is_transposed(second)


def _spread(matrices: Node, shape: tuple[int, ...], axes: tuple[int, int], outer: int) -> Node:
    """A batch of matrices broadcast to a shape: its matrices along two axes after the `outer` ones of the batch."""
    batch = range(outer - (len(sizes(matrices)) - 2), outer)
    return broadcast(matrices, axes=(*batch, outer + axes[0], outer + axes[1]), shape=shape)


def _is_transposed(operand: Node) -> bool:
    """Whether the last dimension of an operand is not the last one in memory."""
    while operand.op is reshape:
        (operand,) = operand.operands
    return operand.op is permute and operand.attribute("axes")[-1] != len(sizes(operand)) - 1
