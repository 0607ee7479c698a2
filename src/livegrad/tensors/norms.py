"""Norms of vectors and matrices for `lg.linalg`. The derivative of a norm at zero is zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor as TensorType
from livegrad.ops.comparison import not_equal
from livegrad.ops.conversion import cast, imag, real
from livegrad.ops.elementwise import abs as absolute
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import filled, zero
from livegrad.ops.spectra import svdvals
from livegrad.ops.transcendental import pow as power
from livegrad.ops.transcendental import sqrt
from livegrad.tensors.axes_and_shapes import Axes, restore_reduced_axes
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import as_type, element_of, sorted_axes
from livegrad.tensors.products import shape_of_node
from livegrad.tensors.reductions import safe_root


def vector_norm(x: Any, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The norm of vectors along an axis, several, or all: `sum(abs(x)**ord)**(1/ord)`, with its limits.

    An `ord` of infinity gives the largest magnitude, minus infinity the smallest, and 0 counts nonzero elements.

    >>> import livegrad as lg
    >>> lg.linalg.vector_norm(lg.asarray([3.0, 4.0]))
    Tensor(5., dtype=float32)
    """
    node = _inexact(x, "vector_norm")
    shape = shape_of_node(node)
    axes = sorted_axes(axis, len(shape), "vector_norm")
    if isinstance(ord, bool) or not isinstance(ord, int | float) or math.isnan(ord):
        raise UsageError("`vector_norm` takes a number for its order", where=caller_origin(), found=repr(ord))
    norm = _vector_norm(node, axes, float(ord))
    return wrap(restore_reduced_axes(norm, shape, axes) if keepdims else norm)


def _vector_norm(node: Node, axes: tuple[int, ...], order: float) -> Node:
    if order == 2.0:
        return _root_of_squares(node, axes)
    magnitude = absolute(node)
    if order == math.inf:
        return _largest(magnitude, axes)
    if order == -math.inf:
        return reduce(magnitude, kind="min", axes=axes)
    if order == 0.0:
        return reduce(
            cast(not_equal(magnitude, zero(magnitude.type)), type=element_of(magnitude)), kind="sum", axes=axes
        )
    if order == 1.0:
        return reduce(magnitude, kind="sum", axes=axes)
    total = reduce(power(magnitude, filled(order, magnitude.type)), kind="sum", axes=axes)
    with np.errstate(over="ignore"):
        root = float(element_of(magnitude).dtype.type(1.0 / order))  # infinite for the smallest orders
    return safe_root(total, lambda safe: power(safe, filled(root, safe.type)))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """The norm of each matrix: "fro" (Frobenius), "nuc" (sum of singular values), 1, -1, 2, -2, inf or -inf.

    1 and infinity give the largest column and row sum of magnitudes, 2 the largest singular value; their negatives give
    the smallest.

    >>> import livegrad as lg
    >>> lg.linalg.matrix_norm(lg.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Tensor(5., dtype=float32)
    """
    node = _inexact(x, "matrix_norm")
    shape = shape_of_node(node)
    rank = len(shape)
    if rank < 2:
        raise ShapeError("`matrix_norm` takes matrices", where=caller_origin(), found=f"shape {shape}")
    norm = _matrix_norm(node, rank - 2, rank - 1, ord)
    return wrap(restore_reduced_axes(norm, shape, (rank - 2, rank - 1)) if keepdims else norm)


def _matrix_norm(node: Node, row: int, column: int, order: float | str | None) -> Node:
    if order is None or order == "fro":
        return _root_of_squares(node, (row, column))
    if order == "nuc":
        return reduce(svdvals(node), kind="sum", axes=(row,))
    if order == 2:
        return _largest(svdvals(node), (row,))
    if order == -2:
        return reduce(svdvals(node), kind="min", axes=(row,))
    if order in (1, -1):
        sums = reduce(absolute(node), kind="sum", axes=(row,))
    elif order in (math.inf, -math.inf):
        sums = reduce(absolute(node), kind="sum", axes=(column,))
    else:
        raise UsageError(
            f"`matrix_norm` has no order {order!r}",
            where=caller_origin(),
            expected="'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
        )
    return _largest(sums, (row,)) if order in (1, math.inf) else reduce(sums, kind="min", axes=(row,))


def _inexact(x: Any, user: str) -> Node:
    node = node_of(x, user)
    return node if element_of(node).kind in ("float", "complex") else as_type(node, DEFAULT_FLOAT)


def _root_of_squares(node: Node, axes: tuple[int, ...]) -> Node:
    if element_of(node).kind == "complex":
        re, im = real(node), imag(node)
        squares = re * re + im * im
    else:
        squares = node * node
    return safe_root(reduce(squares, kind="sum", axes=axes), sqrt)


def _largest(x: Node, axes: tuple[int, ...]) -> Node:
    """Returns the largest magnitude along axes; zero if an axis is empty."""
    shape = shape_of_node(x)
    if any(shape[axis] == 0 for axis in axes):
        kept_shape = tuple(magnitude for axis, magnitude in enumerate(shape) if axis not in axes)
        return zero(TensorType(element_of(x), kept_shape))
    return reduce(x, kind="max", axes=axes)
