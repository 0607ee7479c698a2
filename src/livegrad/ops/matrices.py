"""Helpers for ops on batches of matrices: type rules, adjoints, triangles, diagonals.

`solving`, `decompositions` and `spectra` use them for records and derivatives. Matrices are the last two dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, Type, c64, c128, f32, f64, shape_of
from livegrad.ops.comparison import equal, greater, greater_equal
from livegrad.ops.conversion import cast, conj, real
from livegrad.ops.elementwise import select
from livegrad.ops.linalg import swap_last
from livegrad.ops.movement import index_along, require_tensor, reshape, slice_
from livegrad.ops.reduction import reduce, spread_back
from livegrad.ops.rules import zero

_ELEMENTS = (f32, f64, c64, c128)


def require_matrices(type: Type, square: bool = True) -> Tensor:
    """Requires a batch of matrices that LAPACK supports, and returns its type."""
    tensor = require_tensor(type)
    if tensor.element not in _ELEMENTS:
        raise TypeRuleError(
            "matrices of an unsupported type", expected=" or ".join(map(str, _ELEMENTS)), found=str(type)
        )
    if tensor.rank < 2 or (square and tensor.shape[-1] != tensor.shape[-2]):
        raise TypeRuleError("not a batch of " + ("square matrices" if square else "matrices"), found=str(type))
    return tensor


def smaller(rows: Size, columns: Size) -> Size:
    """The smaller dimension of a matrix, which determines the shapes of its factors."""
    if rows == columns:
        return rows
    if isinstance(rows, int) and isinstance(columns, int):
        return min(rows, columns)
    raise TypeRuleError(
        f"which of {rows} and {columns} is smaller must be known", help="pass the last two dimensions as numbers"
    )


def is_complex(x: Node) -> bool:
    return isinstance(x.type, Tensor) and x.type.element.kind == "complex"


def is_empty(x: Node) -> bool:
    return 0 in shape_of(x.type)


def conjugate(x: Node) -> Node:
    """The complex conjugate. Real numbers are returned unchanged."""
    return conj(x) if is_complex(x) else x


def real_part(x: Node) -> Node:
    """The real part. Real numbers are returned unchanged."""
    return real(x) if is_complex(x) else x


def adjoint(x: Node) -> Node:
    """The conjugate transpose of each matrix.

    >>> from livegrad.ir.leaves import parameter
    >>> adjoint(parameter(0, Tensor(c64, (7, 2, 3)))).type
    tensor<c64, [7, 3, 2]>
    """
    return conjugate(swap_last(x))


def as_element_of(x: Node, like: Node) -> Node:
    """Casts a real tensor to the element type of another tensor."""
    assert isinstance(x.type, Tensor)
    assert isinstance(like.type, Tensor)
    return x if x.type.element is like.type.element else cast(x, type=like.type.element)


def _rows_and_columns(x: Node) -> tuple[Node, Node]:
    shape = shape_of(x.type)
    return index_along(shape, len(shape) - 2), index_along(shape, len(shape) - 1)


def diagonal_mask(x: Node) -> Node:
    """A mask of the elements on the diagonal."""
    return equal(*_rows_and_columns(x))


def lower_triangle(x: Node, strictly: bool = False) -> Node:
    """The matrix with zeros above the diagonal, and on it if strictly."""
    rows, columns = _rows_and_columns(x)
    return select((greater if strictly else greater_equal)(rows, columns), x, zero(x.type))


def triangle(x: Node, lower: bool) -> Node:
    """The lower or upper triangle, with the diagonal."""
    if lower:
        return lower_triangle(x)
    rows, columns = _rows_and_columns(x)
    return select(greater_equal(columns, rows), x, zero(x.type))


def diagonal(x: Node) -> Node:
    """The diagonal of each square matrix."""
    return diagonal_along(x, len(shape_of(x.type)) - 2)


def diagonal_along(x: Node, axis: int) -> Node:
    """Replaces two adjacent dimensions of equal size by their diagonal.

    The diagonal is a slice of the flattened dimensions, in steps of `size + 1`. A symbolic size cannot be a step; the
    elements off the diagonal are then masked out.
    """
    shape = shape_of(x.type)
    before, size, after = shape[:axis], shape[axis], shape[axis + 2 :]
    if not isinstance(size, int):
        mask = equal(index_along(shape, axis), index_along(shape, axis + 1))
        return reduce(select(mask, x, zero(x.type)), kind="sum", axes=(axis + 1,))
    flat = reshape(x, shape=(*before, size * size, *after))
    steps = (*(1 for _ in before), size + 1, *(1 for _ in after))
    return slice_(flat, start=(0,) * len(steps), size=(*before, size, *after), step=steps)


def over_rows(values: Node, shape: tuple[Size, ...]) -> Node:
    """Broadcasts one value per column over the rows: `values[..., j]` at `[..., i, j]`."""
    return spread_back(values, shape, (len(shape) - 2,))


def over_columns(values: Node, shape: tuple[Size, ...]) -> Node:
    """Broadcasts one value per row over the columns: `values[..., i]` at `[..., i, j]`."""
    return spread_back(values, shape, (len(shape) - 1,))


def sum_of_rows(x: Node) -> Node:
    """The sum of each column."""
    return reduce(x, kind="sum", axes=(len(shape_of(x.type)) - 2,))


def part_of_columns(x: Node, start: Size, count: Size) -> Node:
    """`count` columns of each matrix, from `start` on."""
    shape = shape_of(x.type)
    first = (*(0 for _ in shape[1:]), start)
    return slice_(x, start=first, size=(*shape[:-1], count), step=(1,) * len(shape))


def hermitian_part(x: Node) -> Node:
    """(x + xᴴ) / 2, which is x itself if x is hermitian."""
    return 0.5 * x + 0.5 * adjoint(x)


def evaluate_hermitian_part(x: Any) -> Any:
    return 0.5 * x + 0.5 * np.conj(np.swapaxes(x, -1, -2))
