"""The `unroll_small_matmuls` pass: batched products of small matrices become a map with an unrolled product.

For the CPU; such products transform points, rotations and frames. The kernel has lanes across the matrices and fuses
with its neighbours. A matrix product kernel would spend its time on overhead.
"""

from __future__ import annotations

import operator
from functools import reduce
from math import prod

from livegrad.ir.function import map_results, trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Tensor, Vector, f32, f64, i64, shape_of
from livegrad.ops.aggregate import make, members_of
from livegrad.ops.indexing import lookup
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import map_
from livegrad.ops.movement import permute
from livegrad.ops.vector import matrix_multiply
from livegrad.passes.lower_matmuls import matmuls_of

_MAX_ROWS = 4
_MAX_PRODUCTS = 36  # scalar products of one matrix product: more do not fit in registers
_FEWEST_MATRICES, _FEWEST_ROWS = 128, 2048


def unroll_small_matmuls(function: Function) -> Function:
    """Replaces products of many small matrices by maps."""
    return map_results(function, _unroll) if any(map(_is_small, matmuls_of(function))) else function


def _is_small(node: Node) -> bool:
    if node.op is not matmul or not isinstance(node.type, Tensor) or node.type.element not in (f32, f64):
        return False
    return is_unrolled(*map(_shape, node.operands))


def _unroll(node: Node) -> Node | None:
    if not _is_small(node):
        return None
    first, second = map(_shape, node.operands)
    rows, inner, columns = first[-2], first[-1], second[-1]
    return _multiply_pairs(node, rows, inner, columns) if len(second) > 2 else _multiply_rows(node, inner, columns)


def is_unrolled(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether a product of these shapes becomes a map: many pairs of small matrices, or many rows with one matrix."""
    (*batch, rows, inner), (*second_batch, _, columns) = first, second
    if not 0 < max(inner, columns) <= _MAX_ROWS:
        return False
    if batch and batch == second_batch:
        is_small = 0 < rows <= _MAX_ROWS and rows * inner * columns <= _MAX_PRODUCTS
        return is_small and prod(batch) >= _FEWEST_MATRICES
    return not second_batch and prod((*batch, rows)) >= _FEWEST_ROWS


def _multiply_pairs(node: Node, rows: int, inner: int, columns: int) -> Node:
    """Multiplies pairs of matrices."""
    assert isinstance(node.type, Tensor)
    element = node.type.element
    product = trace(matrix_multiply, Matrix(element, rows, inner), Matrix(element, inner, columns))
    return map_(*node.operands, function=product, lifted=(True, True), summed=(False,))


def _multiply_rows(node: Node, inner: int, columns: int) -> Node:
    """Multiplies all rows by the same matrix."""
    assert isinstance(node.type, Tensor)
    element = node.type.element

    points, matrix = node.operands
    is_transposed = matrix.op is permute and matrix.attribute("axes") == (1, 0)
    source = matrix.operands[0] if is_transposed else matrix

    def product(point: Node, matrix: Node) -> Node:
        indices = [[constant(index, i64) for index in range(size)] for size in (inner, columns)]
        members = members_of(point)
        sums = []
        for column in indices[1]:
            elements = [lookup(matrix, *((column, row) if is_transposed else (row, column))) for row in indices[0]]
            sums.append(reduce(operator.add, map(operator.mul, members, elements)))
        return make(*sums, type=Vector(element, columns))

    traced = trace(product, Vector(element, inner), source.type)
    return map_(points, source, function=traced, lifted=(True, False), summed=(False,))


def _shape(node: Node) -> tuple[int, ...]:
    return shape_of(node.type)  # type: ignore[return-value]  # sizes are bound by now
