"""Validates and normalises axis and shape arguments of tensor functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from livegrad.diagnostics import caller_origin
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Node
from livegrad.ir.symbolic_size import as_integer
from livegrad.ops.movement import reshape
from livegrad.tensors.errors import AxisError, ShapeError

Axes = int | Sequence[int] | None
# Elements of 16 bytes (complex128) that 64-bit addresses can reach.
_MAX_ELEMENTS = 1 << 59


def require_integer(value: Any) -> int:
    """Converts any integer type to a Python integer. Booleans, which Python counts as integers, are rejected."""
    if isinstance(value, bool):
        raise TypeError("a boolean is not a number")
    return as_integer(value)


def normalise_axis(axis: Any, rank: int, user: str) -> int:
    """Returns an axis counted from the front; negative axes count from the back.

    >>> normalise_axis(-1, 3, "flip")
    2
    """
    try:
        number = require_integer(axis)
    except TypeError:
        raise AxisError(f"`{user}` takes an integer for an axis", where=caller_origin(), found=repr(axis)) from None
    if not -rank <= number < rank:
        expected = f"{-rank} to {rank - 1}" if rank else "no axis: the tensor has no dimensions"
        raise AxisError(f"`{user}`: no axis {number}", where=caller_origin(), expected=expected)
    return number + rank if number < 0 else number


def normalise_axes(axes: Any, rank: int, user: str) -> tuple[int, ...]:
    """Returns axes counted from the front, from one axis, several, or None for all.

    >>> normalise_axes((0, -1), 3, "sum"), normalise_axes(None, 2, "sum")
    ((0, 2), (0, 1))
    """
    if axes is None:
        return tuple(range(rank))
    axis_list = axes if isinstance(axes, Iterable) and not _is_index(axes) else (axes,)
    axes_from_front = tuple(normalise_axis(axis, rank, user) for axis in axis_list)
    if len(set(axes_from_front)) != len(axes_from_front):
        raise AxisError(f"`{user}`: repeated axis", where=caller_origin(), found=repr(axes))
    return axes_from_front


def restore_reduced_axes(reduced_node: Node, shape: tuple[Size, ...], axes: Iterable[int]) -> Node:
    """Reshapes the reduction of a tensor of `shape` along `axes` so that these axes have size one (`keepdims`)."""
    reduced = set(axes)
    return reshape(reduced_node, shape=tuple(1 if axis in reduced else size for axis, size in enumerate(shape)))


def _is_index(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, Sequence)


def normalise_shape(shape: Any, user: str) -> tuple[Size, ...]:
    """Returns a shape from one size or several.

    >>> normalise_shape(3, "zeros"), normalise_shape([2, 3], "zeros")
    ((3,), (2, 3))
    """
    if shape.__class__ is tuple and all(size.__class__ is int and size >= 0 for size in shape):
        return _require_addressable(shape, user)
    if isinstance(shape, Dimension) or _is_index(shape):
        shape = (shape,)
    try:
        sizes = tuple(size if isinstance(size, Dimension) else require_integer(size) for size in shape)
    except TypeError:
        raise ShapeError(f"`{user}` takes integers for a shape", where=caller_origin(), found=repr(shape)) from None
    if any(not isinstance(size, Dimension) and size < 0 for size in sizes):
        raise ShapeError(f"`{user}`: a size cannot be negative", where=caller_origin(), found=repr(shape))
    return _require_addressable(sizes, user)


def _require_addressable(sizes: tuple[Size, ...], user: str) -> tuple[Size, ...]:
    if prod(size for size in sizes if isinstance(size, int) and size) > _MAX_ELEMENTS:
        raise ShapeError(f"`{user}`: too many elements", where=caller_origin(), found=repr(sizes))
    return sizes
