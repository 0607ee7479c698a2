"""Ranges, identity matrices, triangular parts and coordinate grids for the tensor namespace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.symbolic_size import symbolic_within
from livegrad.ir.types import Scalar, f32, f64, i32, i64, shape_of
from livegrad.ops.comparison import greater_equal, less_equal
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.movement import broadcast_to, index_along, iota, reshape
from livegrad.ops.rules import zero
from livegrad.runtime.arguments import scalar_range
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.axes_and_shapes import normalise_shape
from livegrad.tensors.creation import convert_copy
from livegrad.tensors.dtypes import (
    DEFAULT_COMPLEX,
    DEFAULT_FLOAT,
    DEFAULT_INTEGER,
    dtype_from,
)
from livegrad.tensors.errors import DtypeError, NumberRangeError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.number_nodes import number_node
from livegrad.tensors.placement import place_on


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Numbers from `start` up to, but not including, `stop`. A single argument is `stop`, starting at 0.

    >>> import livegrad as lg
    >>> lg.arange(2, 8, 2)
    Tensor([2, 4, 6], dtype=int64)
    """
    if stop is None:
        start, stop = 0, start
    bounds: list[Any] = [
        bound.item() if isinstance(bound, Tensor | np.generic) else bound for bound in (start, stop, step)
    ]
    first, last, stride = bounds
    if not all(isinstance(bound, int | float) for bound in bounds) or not all(map(_is_finite, bounds)) or stride == 0:
        expected = "finite numbers and a step that is not 0"
        raise UsageError(
            "invalid arguments for `arange`", where=caller_origin(), expected=expected, found=shown(bounds)
        )
    all_integers = all(isinstance(bound, int) for bound in bounds)
    if all_integers and symbolic_within(bounds) is not None:
        target_type = DEFAULT_INTEGER if dtype is None else dtype_from(dtype, "arange")
        return place_on(wrap(_symbolic_range(first, last, stride, target_type)), device)
    target_type = (DEFAULT_INTEGER if all_integers else DEFAULT_FLOAT) if dtype is None else dtype_from(dtype, "arange")
    if not all_integers:
        count = max(0, math.ceil((last - first) / stride))
        return place_on(wrap_array(convert_copy(np.arange(count) * stride + first, target_type)), device)
    numbers = range(first, last, stride)
    if first == 0 and stride == 1 and len(numbers) <= scalar_range(i32)[1] and target_type in (i32, i64, f32, f64):
        return place_on(wrap(iota(shape=(len(numbers),), axis=0, type=target_type)), device)
    kind = np.uint64 if numbers and max(numbers[0], numbers[-1]) > scalar_range(i64)[1] else np.int64
    try:
        values = np.arange(first, last, stride, dtype=kind)
    except OverflowError:
        raise NumberRangeError("an integer does not fit any type", where=caller_origin(), found=shown(bounds)) from None
    return place_on(wrap_array(convert_copy(values, target_type)), device)


def _symbolic_range(first: int, last: int, stride: int, target_type: Scalar) -> Node:
    """Builds an integer `arange` whose number of elements is symbolic."""
    count = max(0, -((first - last) // stride))
    if first == 0 and stride == 1 and target_type in (i32, i64, f32, f64):
        return iota(shape=(count,), axis=0, type=target_type)
    numbers = iota(shape=(count,), axis=0, type=i64)
    scaled = numbers * number_node(stride, i64, (count,)) + number_node(first, i64, (count,))
    return scaled if target_type is i64 else cast(scaled, type=target_type)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced numbers from `start` to `stop`, including `stop` unless `endpoint=False`.

    >>> import livegrad as lg
    >>> lg.linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    first, last = (bound.item() if isinstance(bound, Tensor | np.generic) else bound for bound in (start, stop))
    if isinstance(num, bool) or not isinstance(num, int) or num < 0:
        raise UsageError("invalid number of points", where=caller_origin(), expected="num >= 0", found=repr(num))
    default = DEFAULT_COMPLEX if isinstance(first, complex) or isinstance(last, complex) else DEFAULT_FLOAT
    target_type = default if dtype is None else dtype_from(dtype, "linspace")
    first, last = (_end_of_range(bound) for bound in (first, last))
    with np.errstate(all="ignore"):
        numbers = np.linspace(first, last, num, endpoint=endpoint)
    return place_on(wrap_array(convert_copy(numbers, target_type)), device)


def _is_finite(number: float) -> bool:
    if symbolic_within((number,)) is not None:
        return True
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond all floats
        return False


def _end_of_range(value: Any) -> float | complex:
    """Converts a bound of a range to float or complex; NumPy would treat a large integer as an object."""
    if isinstance(value, int | float | complex):
        try:
            return value if isinstance(value, complex) else float(value)
        except OverflowError:
            pass
    raise UsageError("`linspace` takes numbers for start and stop", where=caller_origin(), found=shown(value))


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> import livegrad as lg
    >>> lg.eye(2)
    Tensor([[1., 0.],
            [0., 1.]], dtype=float32)
    """
    shape = normalise_shape((n_rows, n_rows if n_cols is None else n_cols), "eye")
    target_type = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, "eye")
    offset = _diagonal_offset(shape, k)
    diagonal = greater_equal(offset, 0) & less_equal(offset, 0)
    return place_on(wrap(diagonal if target_type.kind == "bool" else cast(diagonal, type=target_type)), device)


def _diagonal_offset(shape: tuple[Size, ...], k: int) -> Node:
    """Returns how far each element of a matrix is to the right of the k-th diagonal."""
    rank = len(shape)
    rows, columns = shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        k = max(-rows, min(k, columns))  # all diagonals beyond the corners are equally empty
    return index_along(shape, rank - 1) - index_along(shape, rank - 2) - k


def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """Sets the elements above the k-th diagonal to zero.

    >>> import livegrad as lg
    >>> lg.tril(lg.ones((2, 2), dtype=lg.int64))
    Tensor([[1, 0],
            [1, 1]], dtype=int64)
    """
    node = _matrices(x, "tril")
    return wrap(select(less_equal(_diagonal_offset(shape_of(node.type), k), 0), node, zero(node.type)))


def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """Sets the elements below the k-th diagonal to zero.

    >>> import livegrad as lg
    >>> lg.triu(lg.ones((2, 2), dtype=lg.int64))
    Tensor([[1, 1],
            [0, 1]], dtype=int64)
    """
    node = _matrices(x, "triu")
    return wrap(select(greater_equal(_diagonal_offset(shape_of(node.type), k), 0), node, zero(node.type)))


def _matrices(x: Any, user: str) -> Node:
    node = node_of(x, user)
    if len(shape_of(node.type)) < 2:
        raise ShapeError(f"`{user}` takes matrices", where=caller_origin(), found=f"shape {shape_of(node.type)}")
    return node


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Returns coordinate tensors of a grid from the coordinates along each axis; "xy" swaps the first two axes.

    >>> import livegrad as lg
    >>> x, y = lg.meshgrid(lg.arange(3), lg.arange(2))
    >>> x
    Tensor([[0, 1, 2],
            [0, 1, 2]], dtype=int64)
    """
    if indexing not in ("xy", "ij"):
        raise UsageError(f"`meshgrid` has no indexing {indexing!r}", where=caller_origin(), expected="'xy' or 'ij'")
    nodes = [node_of(bound, "meshgrid") for bound in arrays]
    if any(len(shape_of(node.type)) > 1 for node in nodes):
        raise ShapeError("`meshgrid` takes sequences", where=caller_origin(), expected="one dimension each")
    if len({node.type.element for node in nodes}) > 1:  # type: ignore[attr-defined]
        raise DtypeError("`meshgrid` takes sequences of one type", where=caller_origin())
    lengths = [(shape_of(node.type) or (1,))[0] for node in nodes]
    order = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        order[0], order[1] = 1, 0
    shape = tuple(lengths[axis] for axis in order)
    return tuple(
        wrap(broadcast_to(reshape(node, shape=tuple(lengths[index] if a == index else 1 for a in order)), shape))
        for index, node in enumerate(nodes)
    )
