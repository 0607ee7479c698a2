"""Computes a product of complex matrices as one product of real matrices, for `split_complex`.

Complex numbers lie in memory as pairs. If each element of the right operand becomes a block [[re, im], [-im, re]], the
real product consists of the pairs of the complex product, and only the right operand is copied. Where the right operand
is much larger, the left one is copied instead: its real and imaginary parts become rows of a real matrix, which is
multiplied by the pairs of the right operand, and the products are combined.
"""

from __future__ import annotations

from math import prod

from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import concatenate, reshape, sizes, slice_
from livegrad.passes.unroll_small_matmuls import is_unrolled

Pair = tuple[Node, Node]  # real and imaginary parts


def is_multiplied_by_parts(node: Node) -> bool:
    """Whether to compute four products of parts, for matrices so small that `unroll_small_matmuls` makes one map."""
    return is_unrolled(*map(sizes, node.operands))


def multiply_parts(a: Pair, b: Pair) -> Pair:
    return matmul(a[0], b[0]) - matmul(a[1], b[1]), matmul(a[0], b[1]) + matmul(a[1], b[0])


def copies_left(node: Node) -> bool:
    """Whether copying the left operand and combining two products is cheaper than copying the right operand."""
    first, second = map(sizes, node.operands)
    return prod(first) + 3 * prod(sizes(node)) < 2 * prod(second)


def multiply_pairs(a: Node, b: Node, rotated: Node) -> Node:
    """The pairs of a product, from the pairs of its operands; `rotated` has the pairs of i * b."""
    (*batch, rows, inner, _), (*right_batch, _, columns, _) = sizes(a), sizes(b)
    left = reshape(a, shape=(*batch, rows, 2 * inner))
    lines = [reshape(pairs, shape=(*right_batch, inner, 1, 2 * columns)) for pairs in (b, rotated)]
    right = reshape(concatenate(*lines, axis=len(right_batch) + 1), shape=(*right_batch, 2 * inner, 2 * columns))
    product = matmul(left, right)
    return reshape(product, shape=(*shape_of(product.type)[:-1], columns, 2))


def multiply_rows(a: Pair, b: Node) -> Pair:
    """The parts of a product, from the parts of the first operand and the pairs of the second."""
    *batch, inner, columns, _ = sizes(b)
    rank, rows = len(sizes(a[0])), sizes(a[0])[-2]
    right = reshape(b, shape=(*batch, inner, 2 * columns))
    product = matmul(concatenate(*a, axis=rank - 2), right)
    pairs = reshape(product, shape=(*shape_of(product.type)[:-1], columns, 2))

    def part(imaginary: int, component: int) -> Node:
        shape = sizes(pairs)
        start = (*[0] * (len(shape) - 3), imaginary * rows, 0, component)
        size = (*shape[:-3], rows, columns, 1)
        return reshape(slice_(pairs, start=start, size=size, step=(1,) * len(shape)), shape=size[:-1])

    return part(0, 0) - part(1, 1), part(0, 1) + part(1, 0)
