"""Products of complex matrices by one product of real matrices, for `split_complex`.

Rows of complex numbers are rows of pairs in memory. With a block [[re, im], [-im, re]] for each element of the right
operand, the product of real matrices has the pairs of the complex product; only the right operand is copied. Where it
is large and the left one is not, the real and the imaginary parts of the left operand are rows of a real matrix: each
is multiplied by the pairs of the right operand, and the products are added, those of imaginary parts rotated.
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
    """Whether a product is four products of parts: small ones become one map."""
    return is_unrolled(*map(sizes, node.operands))


def multiply_parts(a: Pair, b: Pair) -> Pair:
    return matmul(a[0], b[0]) - matmul(a[1], b[1]), matmul(a[0], b[1]) + matmul(a[1], b[0])


def copies_left(node: Node) -> bool:
    """Whether it takes less to copy the left operand, and to add two results, than to copy the right operand."""
    first, second = map(sizes, node.operands)
    return prod(first) + 3 * prod(sizes(node)) < 2 * prod(second)


def multiply_pairs(a: Node, b: Node, rotated: Node) -> Node:
    """The pairs of a product from those of its operands; `rotated` are those of the second one times i."""
    (*batch, rows, inner, _), (*others, _, columns, _) = sizes(a), sizes(b)
    left = reshape(a, shape=(*batch, rows, 2 * inner))
    lines = [reshape(pairs, shape=(*others, inner, 1, 2 * columns)) for pairs in (b, rotated)]
    right = reshape(concatenate(*lines, axis=len(others) + 1), shape=(*others, 2 * inner, 2 * columns))
    product = matmul(left, right)
    return reshape(product, shape=(*shape_of(product.type)[:-1], columns, 2))


def multiply_rows(a: Pair, b: Node) -> Pair:
    """The parts of a product from the parts of the first and the pairs of the second operand."""
    *others, inner, columns, _ = sizes(b)
    rank, rows = len(sizes(a[0])), sizes(a[0])[-2]
    right = reshape(b, shape=(*others, inner, 2 * columns))
    both = matmul(concatenate(*a, axis=rank - 2), right)
    pairs = reshape(both, shape=(*shape_of(both.type)[:-1], columns, 2))

    def part(imaginary: int, component: int) -> Node:
        shape = sizes(pairs)
        start = (*[0] * (len(shape) - 3), imaginary * rows, 0, component)
        size = (*shape[:-3], rows, columns, 1)
        return reshape(slice_(pairs, start=start, size=size, step=(1,) * len(shape)), shape=size[:-1])

    return part(0, 0) - part(1, 1), part(0, 1) + part(1, 0)
