"""Reductions, scans and differences of the tensor namespace.

Sums, products, extrema, means, variances, counts, `any` and `all`; cumulative sums and products; `diff`. They build
nodes of the value IR, so a chain of them fuses into one kernel.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Size, size_product
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node, make_node
from livegrad.ir.symbolic_size import symbolic_within
from livegrad.ir.types import Scalar, Type, f32
from livegrad.ir.types import Tensor as TensorType
from livegrad.ops.comparison import equal, not_equal
from livegrad.ops.conversion import cast, imag, make_complex, real
from livegrad.ops.elementwise import maximum, minimum, select
from livegrad.ops.movement import broadcast, concatenate, pad, require_tensor, slice_
from livegrad.ops.reduction import cumulative, reduce, spread_back
from livegrad.ops.rules import filled, zero
from livegrad.ops.transcendental import sqrt
from livegrad.tensors.axes_and_shapes import Axes, normalise_axis, restore_reduced_axes
from livegrad.tensors.broadcasting import cast_and_broadcast
from livegrad.tensors.dtypes import DEFAULT_FLOAT, DEFAULT_INDEX, DEFAULT_INTEGER, dtype_from, uint64
from livegrad.tensors.errors import DtypeError, ShapeError
from livegrad.tensors.handle import Tensor, match_operands, node_of, wrap
from livegrad.tensors.operands import as_type, element_of, require_integer, require_real, sorted_axes

# --- sums and products -----------------------------------------------------------------------------------------------


def sum(x: Any, /, *, axis: Axes = None, dtype: Scalar | None = None, keepdims: bool = False) -> Tensor:
    """The sum along axes. Small integers are summed as 64-bit integers unless `dtype` is given.

    >>> import livegrad as lg
    >>> lg.sum(lg.asarray([[1, 2], [3, 4]]), axis=0)
    Tensor([4, 6], dtype=int64)
    """
    return _reduce_axes("sum", _to_accumulator(node_of(x, "sum"), dtype, "sum"), axis, keepdims)


def prod(x: Any, /, *, axis: Axes = None, dtype: Scalar | None = None, keepdims: bool = False) -> Tensor:
    """The product along axes. Small integers are multiplied as 64-bit integers unless `dtype` is given.

    >>> import livegrad as lg
    >>> lg.prod(lg.asarray([2.0, 3.0, 4.0]))
    Tensor(24., dtype=float32)
    """
    return _reduce_axes("prod", _to_accumulator(node_of(x, "prod"), dtype, "prod"), axis, keepdims)


def _reduce_axes(kind: str, node: Node, axis: Axes, keepdims: bool, user: str | None = None) -> Tensor:
    shape = require_tensor(node.type).shape
    axes = tuple(range(len(shape))) if axis is None else sorted_axes(axis, len(shape), user or kind)
    reduced = make_node(reduce, (node,), (("axes", axes), ("kind", kind)))
    return wrap(restore_reduced_axes(reduced, shape, axes) if keepdims else reduced)


def _to_accumulator(node: Node, dtype: Any, user: str) -> Node:
    """Casts an operand to its accumulator type: the requested type, or 64 bits for integers and booleans."""
    element = element_of(node)
    if dtype is None and element.kind in ("float", "complex"):
        return node
    wide = {"signed": DEFAULT_INTEGER, "bool": DEFAULT_INTEGER, "unsigned": uint64}.get(element.kind, element)
    return as_type(node, wide if dtype is None else dtype_from(dtype, user))


# --- extrema ---------------------------------------------------------------------------------------------------------


def max(x: Any, other: Any = None, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element along axes; for two tensors, the elementwise maximum. NaN propagates.

    Equal largest elements share the derivative. The maximum of an empty axis is an error.

    >>> import livegrad as lg
    >>> lg.max(lg.asarray([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    Tensor([5., 7.], dtype=float32)
    """
    return _extremum("max", x, other, axis, keepdims)


def min(x: Any, other: Any = None, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element along axes; for two tensors, the elementwise minimum. NaN propagates.

    >>> import livegrad as lg
    >>> lg.min(lg.asarray([3, 1, 2])), lg.min(lg.asarray([3, 1, 2]), 2)
    (Tensor(1, dtype=int64), Tensor([2, 1, 2], dtype=int64))
    """
    return _extremum("min", x, other, axis, keepdims)


def _extremum(kind: str, x: Any, other: Any, axis: Axes, keepdims: bool) -> Tensor:
    if other is not None:
        if axis is not None or keepdims:
            raise UsageError(
                f"`{kind}` of two tensors compares element by element",
                where=caller_origin(),
                found="an axis or keepdims",
                help=f"write lg.{kind}(x, axis=...) for the {kind} along an axis",
            )
        return wrap((maximum if kind == "max" else minimum)(*match_operands(kind, x, other)))
    node = node_of(x, kind)
    if element_of(node).kind == "bool":
        return _reduce_axes("any" if kind == "max" else "all", node, axis, keepdims, kind)
    return _reduce_axes(kind, node, axis, keepdims)


# --- means and spreads -----------------------------------------------------------------------------------------------


def mean(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean along axes. Integers give float32; an empty axis gives NaN.

    >>> import livegrad as lg
    >>> lg.mean(lg.asarray([1.0, 2.0, 6.0]))
    Tensor(3., dtype=float32)
    """
    node, result_type = _to_mean_type(node_of(x, "mean"))
    shape = require_tensor(node.type).shape
    axes = sorted_axes(axis, len(shape), "mean")
    average = mean_along(node, axes)
    return wrap(as_type(restore_reduced_axes(average, shape, axes) if keepdims else average, result_type))


def var(x: Any, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along axes: the sum of squared deviations from the mean, divided by `count - correction`.

    >>> import livegrad as lg
    >>> lg.var(lg.asarray([1.0, 2.0, 3.0]), correction=1)
    Tensor(1., dtype=float32)
    """
    return wrap(_variance(x, axis, correction, keepdims, "var"))


def std(x: Any, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation along axes: the square root of the variance.

    Its derivative is zero if all elements are equal.

    >>> import livegrad as lg
    >>> lg.std(lg.asarray([1.0, 3.0, 1.0, 3.0]))
    Tensor(1., dtype=float32)
    """
    return wrap(safe_root(_variance(x, axis, correction, keepdims, "std"), sqrt))


def safe_root(total: Node, root: Callable[[Node], Node]) -> Node:
    """Applies a root to a sum of squares. Its infinite derivative at zero is replaced by zero, as for `abs`."""
    zeros = equal(total, zero(total.type))
    return select(zeros, root(zero(total.type)), root(select(zeros, filled(1.0, total.type), total)))


def _variance(x: Any, axis: Axes, correction: float, keepdims: bool, user: str) -> Node:
    node, result_type = _to_mean_type(node_of(x, user))
    shape = require_tensor(node.type).shape
    axes = sorted_axes(axis, len(shape), user)
    correction = require_real(correction, user, "the correction")
    deviation = node - spread_back(mean_along(node, axes), shape, axes)
    total = reduce(_square(deviation), kind="sum", axes=axes)
    variance = total / _broadcast_scalar(_degrees_of_freedom(shape, axes, correction, total.type), total.type)
    return as_type(restore_reduced_axes(variance, shape, axes) if keepdims else variance, result_type.real)


def _square(x: Node) -> Node:
    """Computes |x|²."""
    if element_of(x).kind != "complex":
        return x * x
    re, im = real(x), imag(x)
    return re * re + im * im


def _degrees_of_freedom(shape: tuple[Size, ...], axes: tuple[int, ...], correction: float, like: Type) -> Node:
    """Returns the number of degrees of freedom, or NaN if there are none."""
    element = require_tensor(like).element
    count = size_product(tuple(shape[axis] for axis in axes))
    if isinstance(count, int):
        degrees = count - (int(correction) if float(correction).is_integer() else correction)
        return count_node(degrees, element) if degrees > 0 else constant(math.nan, element)
    degrees_node = count_along(shape, axes, element) - float(correction)
    return select(degrees_node > 0.0, degrees_node, filled(math.nan, degrees_node.type))


def mean_along(x: Node, axes: tuple[int, ...]) -> Node:
    """Computes the mean of a float or complex node along axes; real and imaginary parts are averaged separately."""
    tensor = require_tensor(x.type)
    if tensor.element.kind == "complex":
        return make_complex(mean_along(real(x), axes), mean_along(imag(x), axes))
    total = reduce(x, kind="sum", axes=axes)
    count = size_product(tuple(tensor.shape[axis] for axis in axes))
    if isinstance(count, int):
        return total / count_node(count, total.type)
    return total / _broadcast_scalar(count_along(tensor.shape, axes, tensor.element), total.type)


def count_node(count: float, type: Type) -> Node:
    """Creates a constant number of elements of this type; a symbolic number becomes an argument of the code."""
    return filled(count if symbolic_within((count,)) is not None else float(count), type)


def count_along(shape: tuple[Size, ...], axes: tuple[int, ...], element: Scalar) -> Node:
    """Counts the elements of a reduction at run time, for symbolic sizes."""
    sizes = tuple(shape[axis] for axis in axes)
    ones = filled(1.0, TensorType(element, sizes))
    return reduce(ones, kind="sum", axes=tuple(range(len(sizes))))


def _broadcast_scalar(value: Node, type: Type) -> Node:
    return broadcast(value, shape=require_tensor(type).shape, axes=())


def _to_mean_type(node: Node) -> tuple[Node, Scalar]:
    """Casts an operand to the type in which means are computed, and returns it with the type of the result.

    16-bit floats are averaged as float32.
    """
    element = element_of(node)
    result = element if element.kind in ("float", "complex") else DEFAULT_FLOAT
    return as_type(node, f32 if result.bits == 16 else result), result


# --- truth and counts ------------------------------------------------------------------------------------------------


def all(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along axes are nonzero; True for empty axes.

    >>> import livegrad as lg
    >>> lg.all(lg.asarray([[True, False], [True, True]]), axis=1)
    Tensor([False,  True], dtype=bool)
    """
    return _reduce_axes("all", is_nonzero(node_of(x, "all")), axis, keepdims)


def any(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element along axes is nonzero; False for empty axes.

    >>> import livegrad as lg
    >>> lg.any(lg.asarray([0.0, 2.0]))
    Tensor(True, dtype=bool)
    """
    return _reduce_axes("any", is_nonzero(node_of(x, "any")), axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The number of nonzero elements along axes.

    >>> import livegrad as lg
    >>> lg.count_nonzero(lg.asarray([0, 3, 0, 4]))
    Tensor(2, dtype=int64)
    """
    counted = cast(is_nonzero(node_of(x, "count_nonzero")), type=DEFAULT_INDEX)
    return _reduce_axes("sum", counted, axis, keepdims, "count_nonzero")


def is_nonzero(node: Node) -> Node:
    """Returns a mask of the nonzero elements; NaN is nonzero."""
    return node if element_of(node).kind == "bool" else not_equal(node, zero(node.type))


# --- scans and differences -------------------------------------------------------------------------------------------


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Scalar | None = None, include_initial: bool = False
) -> Tensor:
    """The cumulative sum along an axis.

    >>> import livegrad as lg
    >>> lg.cumulative_sum(lg.asarray([1, 2, 3]), include_initial=True)
    Tensor([0, 1, 3, 6], dtype=int64)
    """
    return _cumulate("sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Scalar | None = None, include_initial: bool = False
) -> Tensor:
    """The cumulative product along an axis.

    >>> import livegrad as lg
    >>> lg.cumulative_prod(lg.asarray([1, 2, 3]))
    Tensor([1, 2, 6], dtype=int64)
    """
    return _cumulate("prod", x, axis, dtype, include_initial)


def _cumulate(kind: str, x: Any, axis: int | None, dtype: Scalar | None, include_initial: bool) -> Tensor:
    user = f"cumulative_{kind}"
    node = _to_accumulator(node_of(x, user), dtype, user)
    tensor = require_tensor(node.type)
    if axis is None and tensor.rank != 1:
        raise UsageError(
            f"`{user}` of {tensor.rank} dimensions needs an axis", where=caller_origin(), help="pass axis=..."
        )
    position = normalise_axis(0 if axis is None else axis, tensor.rank, user)
    result = cumulative(node, kind=kind, axis=position, reverse=False, exclusive=False)
    if include_initial:
        zeros = (0,) * tensor.rank
        before_first = tuple(int(each == position) for each in range(tensor.rank))
        first = filled(1 if kind == "prod" else 0, tensor.element)
        result = pad(result, first, low=before_first, high=zeros, interior=zeros)
    return wrap(result)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Tensor:
    """The n-th difference along an axis, after prepending and appending optional values.

    >>> import livegrad as lg
    >>> lg.diff(lg.asarray([1, 4, 9, 16]), n=2)
    Tensor([2, 2], dtype=int64)
    """
    node = node_of(x, "diff")
    tensor = require_tensor(node.type)
    position = normalise_axis(axis, tensor.rank, "diff")
    n = require_integer(n, "diff", "n", minimum=0)
    ends = [None if end is None else _typed_end(end, tensor, position) for end in (prepend, append)]
    parts = [part for part in (ends[0], node, ends[1]) if part is not None]
    node = parts[0] if len(parts) == 1 else concatenate(*parts, axis=position)
    size = require_tensor(node.type).shape[position]
    for _ in range(builtins.min(n, size) if isinstance(size, int) else n):  # after `size` differences nothing remains
        node = _differences(node, position)
    return wrap(node)


def _typed_end(end: Any, tensor: TensorType, axis: int) -> Node:
    """Converts values to prepend or append to a node; a number becomes one value per row."""
    node = node_of(end, "diff")
    end_type = require_tensor(node.type)
    if end_type.element is not tensor.element and end_type.rank:
        raise DtypeError(
            "`diff` needs values to prepend and append of the tensor's type",
            where=caller_origin(),
            expected=str(tensor.element),
            found=str(end_type.element),
        )
    if not end_type.rank:
        return cast_and_broadcast(
            node, tensor.element, tuple(1 if i == axis else s for i, s in enumerate(tensor.shape))
        )
    others = [[s for i, s in enumerate(shape) if i != axis] for shape in (end_type.shape, tensor.shape)]
    if end_type.rank != tensor.rank or others[0] != others[1]:
        raise ShapeError(
            f"`diff` cannot join shapes {end_type.shape} and {tensor.shape} along axis {axis}", where=caller_origin()
        )
    return node


def _differences(node: Node, axis: int) -> Node:
    shape = require_tensor(node.type).shape
    if shape[axis] == 0:
        return node
    size = tuple(extent - 1 if i == axis else extent for i, extent in enumerate(shape))
    step = (1,) * len(shape)
    later = tuple(int(i == axis) for i in range(len(shape)))
    return slice_(node, start=later, size=size, step=step) - slice_(node, start=(0,) * len(shape), size=size, step=step)
