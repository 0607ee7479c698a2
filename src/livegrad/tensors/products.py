"""Tensor products of the namespace: matrix products, contractions and inner products. `einsum` has its own module.

Matrix products are separate steps of a plan; everything else fuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livegrad.diagnostics import LivegradError, caller_origin
from livegrad.ir.dimension import Size, size_product
from livegrad.ir.node import Node
from livegrad.ops.conversion import conj
from livegrad.ops.linalg import broadcast_shapes, swap_last
from livegrad.ops.linalg import matmul as matmul_op
from livegrad.ops.movement import broadcast_to, permute, require_tensor, reshape
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import NUMBERS
from livegrad.tensors.axes_and_shapes import normalise_axes, normalise_axis
from livegrad.tensors.errors import AxisError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import element_of, promote_operands, require_kinds


def shape_of_node(node: Node) -> tuple[Size, ...]:
    """Returns the shape of a tensor's node."""
    return require_tensor(node.type).shape


def promote_numeric_operands(user: str, *values: Any) -> list[Node]:
    """Promotes operands to their common element type; raises if it is boolean."""
    return [require_kinds(node, user, *NUMBERS) for node in promote_operands(user, *values)]


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product of the last two dimensions; the others broadcast. A vector is a row or a column.

    >>> import livegrad as lg
    >>> lg.matmul(lg.asarray([[1.0, 2.0], [3.0, 4.0]]), lg.asarray([10.0, 1.0]))
    Tensor([12., 34.], dtype=float32)
    """
    a, b = promote_numeric_operands("matmul", x1, x2)
    first, second = shape_of_node(a), shape_of_node(b)
    if not first or not second:
        raise ShapeError(
            "`matmul` takes tensors with dimensions",
            where=caller_origin(),
            found=f"shapes {first} and {second}",
            help="multiply by a number with *",
        )
    if len(first) == len(second) == 1:
        return wrap(_inner(a, b, "matmul"))
    rows, columns = (1, *first) if len(first) == 1 else first, (*second, 1) if len(second) == 1 else second
    _require_products(first, second, rows, columns)
    product = matmul_op(_reshape_to(a, rows), _reshape_to(b, columns))
    shape = shape_of_node(product)
    if len(first) == 1:
        return wrap(reshape(product, shape=(*shape[:-2], shape[-1])))
    return wrap(reshape(product, shape=shape[:-1]) if len(second) == 1 else product)


def _require_products(
    first: tuple[Size, ...], second: tuple[Size, ...], rows: tuple[Size, ...], columns: tuple[Size, ...]
) -> None:
    """Raises if inner dimensions differ, or if batches do not broadcast."""
    problem = None
    if rows[-1] != columns[-2]:
        problem = f"{rows[-1]} columns do not match {columns[-2]} rows"
    else:
        try:
            broadcast_shapes(rows[:-2], columns[:-2])
        except LivegradError as error:
            problem = error.help
    if problem is not None:
        raise ShapeError(f"`matmul` cannot multiply shapes {first} and {second}", where=caller_origin(), help=problem)


def _reshape_to(node: Node, shape: tuple[Size, ...]) -> Node:
    return node if shape_of_node(node) == shape else reshape(node, shape=shape)


def _inner(a: Node, b: Node, user: str) -> Node:
    """Computes the inner product of two vectors."""
    first, second = shape_of_node(a), shape_of_node(b)
    if first != second:
        raise ShapeError(f"`{user}` cannot multiply shapes {first} and {second}", where=caller_origin())
    return reduce(a * b, kind="sum", axes=(0,))


def matrix_transpose(x: Any, /) -> Tensor:
    """Swaps the last two dimensions.

    >>> import livegrad as lg
    >>> lg.matrix_transpose(lg.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    node = node_of(x, "matrix_transpose")
    shape = shape_of_node(node)
    if len(shape) < 2:
        raise ShapeError(
            "`matrix_transpose` takes at least two dimensions", where=caller_origin(), found=f"shape {shape}"
        )
    return wrap(swap_last(node))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The inner product along an axis, counted from the end. The other dimensions broadcast.

    The first of two complex vectors is conjugated.

    >>> import livegrad as lg
    >>> lg.vecdot(lg.asarray([[1, 2], [3, 4]]), lg.asarray([10, 1]))
    Tensor([12, 34], dtype=int64)
    """
    a, b = promote_numeric_operands("vecdot", x1, x2)
    first, second = shape_of_node(a), shape_of_node(b)
    shared = min(len(first), len(second))
    if axis >= 0 and len(first) != len(second):
        raise AxisError("`vecdot` counts the axis from the end", where=caller_origin(), found=str(axis))
    position = normalise_axis(axis, shared, "vecdot") - shared
    if first[position] != second[position]:
        raise ShapeError(
            f"`vecdot` cannot multiply shapes {first} and {second} along axis {axis}",
            where=caller_origin(),
            help=f"{first[position]} and {second[position]} differ",
        )
    shape = _broadcast_shape("vecdot", first, second)
    conjugate = conj(a) if element_of(a).kind == "complex" else a
    product = broadcast_to(conjugate, shape) * broadcast_to(b, shape)
    return wrap(reduce(product, kind="sum", axes=(len(shape) + position,)))


def _broadcast_shape(user: str, first: tuple[Size, ...], second: tuple[Size, ...]) -> tuple[Size, ...]:
    try:
        return broadcast_shapes(first, second)
    except LivegradError as error:
        raise ShapeError(
            f"`{user}` cannot combine shapes {first} and {second}", where=caller_origin(), help=error.help
        ) from None


def tensordot(x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Sums products over some axes of both tensors. The result has the remaining axes of `x1`, then those of `x2`.

    If `axes` is a number, it counts the last axes of `x1` and the first axes of `x2`.

    >>> import livegrad as lg
    >>> lg.tensordot(lg.ones((2, 3, 4)), lg.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    a, b = promote_numeric_operands("tensordot", x1, x2)
    first, second = shape_of_node(a), shape_of_node(b)
    first_axes, second_axes = _contracted_axes(axes, len(first), len(second))
    sizes = [first[axis] for axis in first_axes], [second[axis] for axis in second_axes]
    if sizes[0] != sizes[1]:
        raise ShapeError(
            f"`tensordot` cannot contract shapes {first} and {second} over axes {first_axes} and {second_axes}",
            where=caller_origin(),
            help=f"{tuple(sizes[0])} and {tuple(sizes[1])} differ",
        )
    outer_first = tuple(axis for axis in range(len(first)) if axis not in first_axes)
    outer_second = tuple(axis for axis in range(len(second)) if axis not in second_axes)
    rows, columns = tuple(first[i] for i in outer_first), tuple(second[i] for i in outer_second)
    inner = size_product(tuple(sizes[0]))
    left = reshape(permute(a, axes=(*outer_first, *first_axes)), shape=(size_product(rows), inner))
    right = reshape(permute(b, axes=(*second_axes, *outer_second)), shape=(inner, size_product(columns)))
    return wrap(reshape(matmul_op(left, right), shape=(*rows, *columns)))


def dot(x1: Any, x2: Any, /) -> Tensor:
    """NumPy's `dot`: sums products over the last axis of `x1` and the second-to-last axis of `x2`; numbers multiply.

    >>> import livegrad as lg
    >>> dot(lg.ones((2, 3)), lg.ones((3, 4))).shape, dot(lg.ones(3), lg.ones(3)).shape
    ((2, 4), ())
    """
    a, b = promote_numeric_operands("dot", x1, x2)
    first, second = shape_of_node(a), shape_of_node(b)
    if not first or not second:
        shape = first or second
        return wrap(broadcast_to(a, shape) * broadcast_to(b, shape))
    axis = max(len(second) - 2, 0)
    if first[-1] != second[axis]:
        raise ShapeError(
            f"`dot` cannot multiply shapes {first} and {second}",
            where=caller_origin(),
            help=f"{first[-1]} and {second[axis]} differ; lg.vecdot multiplies along one axis of both",
        )
    return tensordot(wrap(a), wrap(b), axes=((len(first) - 1,), (axis,)))


def _contracted_axes(axes: Any, first: int, second: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(axes, int) and not isinstance(axes, bool):
        if not 0 <= axes <= min(first, second):
            raise AxisError(
                f"`tensordot` cannot contract {axes} axes",
                where=caller_origin(),
                expected=f"0 to {min(first, second)}",
            )
        return tuple(range(first - axes, first)), tuple(range(axes))
    if not isinstance(axes, list | tuple) or len(axes) != 2:
        raise AxisError("`tensordot` takes a number of axes or two sequences", where=caller_origin(), found=repr(axes))
    first_axes, second_axes = normalise_axes(axes[0], first, "tensordot"), normalise_axes(axes[1], second, "tensordot")
    if len(first_axes) != len(second_axes):
        raise AxisError(
            "`tensordot` needs the same number of axes for both operands", where=caller_origin(), found=repr(axes)
        )
    return first_axes, second_axes
