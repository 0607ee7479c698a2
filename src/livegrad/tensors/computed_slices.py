"""Slices with computed bounds, `x[i:i + 3]`: the start is known at run time, the length when the graph is built.

Used by `tensors.index_keys`. A slice whose length depends on values is executed immediately; inside a traced function
it is an error.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.types import i64
from livegrad.lazy.lazy_values import is_traced
from livegrad.ops.affine import constant_difference
from livegrad.tensors.concrete import at_arguments
from livegrad.tensors.errors import DtypeError, IndexRangeError
from livegrad.tensors.handle import Tensor
from livegrad.tensors.number_nodes import number_node

_RAGGED_HELP = (
    "for a fixed length, write x[i : i + 3] or lg.dynamic_slice(x, starts, sizes); for a length that depends on "
    "values, use a mask, as in lg.where(lg.arange(n) > i, value, x), or an inner lg.fori_loop over the elements"
)


@dataclass(frozen=True)
class Window:
    """The positions of a slice whose start is computed: an i64 scalar, range-checked at run time."""

    start: Node
    count: int
    step: int
    keeps_axis = True


def window_of(item: slice, size: Size, axis: int) -> Window | None:
    """Returns a window for a slice with computed bounds; None if all bounds are known now or can be computed now."""
    bounds = (item.start, item.stop, item.step)
    if not any(isinstance(bound, Tensor) for bound in bounds):
        return None
    start, stop, step = (
        bound if bound is None or isinstance(bound, Tensor) else _to_integer(bound, item) for bound in bounds
    )
    if isinstance(step, Tensor) or (step is not None and step < 1):
        problem = "a slice with computed bounds needs a positive Python integer as its step"
        return _reject_if_traced(bounds, problem, "reverse a slice with lg.flip(x[i : i + 3])")
    first, last = (None if bound is None else _bound_node(bound) for bound in (start, stop))
    length = None if first is None or last is None else constant_difference(last, first)
    if first is None or length is None:
        problem = "the length of this slice is not known while a function is being traced"
        return _reject_if_traced(bounds, problem, _RAGGED_HELP)
    step = 1 if step is None else step
    count = max(0, -(-length // step))
    if isinstance(size, int) and count and (count - 1) * step >= size:
        raise IndexRangeError(
            f"a slice over {length} elements does not fit axis {axis} of size {size}", where=caller_origin()
        )
    return Window(first, count, step)


def _to_integer(bound: Any, item: slice) -> int | Tensor | None:
    """Converts a bound to a Python integer; None and tensors are returned unchanged."""
    if bound is None or isinstance(bound, Tensor):
        return bound
    try:
        return operator.index(bound)
    except TypeError as error:
        raise IndexRangeError(f"{shown(item)} cannot be an index: {error}", where=caller_origin()) from None


def _bound_node(bound: int | Tensor) -> Node:
    """Converts a bound of a slice to an integer node without dimensions."""
    if not isinstance(bound, Tensor):
        return number_node(bound, i64)
    if bound.shape or bound.dtype.kind not in ("signed", "unsigned"):
        raise DtypeError(
            "this cannot be a bound of a slice",
            where=caller_origin(),
            expected="an integer without dimensions",
            found=f"{bound.dtype.long_name} of shape {bound.shape}",
        )
    return bound.node


def _reject_if_traced(bounds: tuple[Any, ...], problem: str, help: str) -> None:
    """Raises if a bound depends on traced values; otherwise the slice is an ordinary Python slice."""
    for bound in bounds:
        if isinstance(bound, Tensor) and is_traced(at_arguments(bound.node)):
            raise UsageError(problem, where=caller_origin(), help=help)
