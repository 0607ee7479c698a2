"""Converts Python numbers to constant nodes, broadcast to a shape. Used by the handle and the creation functions."""

from __future__ import annotations

from cmath import isfinite
from functools import lru_cache
from math import copysign
from typing import Any

import numpy as np

from livegrad.diagnostics import caller_origin
from livegrad.ir.bfloat16 import narrow, widen
from livegrad.ir.dimension import Size
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Scalar, bf16, f32, f64
from livegrad.ops.movement import broadcast
from livegrad.runtime.arguments import scalar_range
from livegrad.tensors.errors import NumberRangeError

Number = bool | int | float | complex

# The constants of the Array API.
e = 2.718281828459045
pi = 3.141592653589793
inf = float("inf")
nan = float("nan")
newaxis = None


def number_node(number: Number, element: Scalar, shape: tuple[Size, ...] = ()) -> Node:
    """Creates a constant broadcast to a shape; raises if the element type cannot represent the number.

    >>> from livegrad.ir.types import f32
    >>> number_node(0.5, f32, (2, 3)).type
    tensor<f32, [2, 3]>
    """
    if type(number) is SymbolicSize and element in (f32, f64):
        return broadcast(constant(number, element), shape=shape, axes=())
    kind = number.__class__
    if kind is float:
        # 0.0 and -0.0 are equal as cache keys, but are different constants.
        return _constant_node(number, kind, number == 0.0 and copysign(1.0, number) < 0.0, element, shape)  # type: ignore[arg-type]
    if kind is complex:
        return _constant_node.__wrapped__(number, kind, False, element, shape)
    return _constant_node(number, kind, False, element, shape)


# Training loops use the same few numbers at each step.
@lru_cache(maxsize=2048)
def _constant_node(number: Number, kind: type, negative_zero: bool, element: Scalar, shape: tuple[Size, ...]) -> Node:
    if not _in_range(number, element):
        text = str(number) if isinstance(number, float | complex) or abs(number) < 1 << 99 else "this integer"
        raise NumberRangeError(f"{text} is out of the range of {element.long_name}", where=caller_origin())
    return broadcast(constant(number, element), shape=shape, axes=())


def _in_range(number: Number, element: Scalar) -> bool:
    """Whether the magnitude of a number fits a type; `constant` checks its kind."""
    if element.kind == "bool" or (not isinstance(number, int) and not isfinite(number)):
        return True
    low, high = scalar_range(element.real)
    with np.errstate(over="ignore"):
        return all(low <= _rounded(part, element.real) <= high for part in (number.real, number.imag))


def _rounded(number: Any, element: Scalar) -> Any:
    if element.kind != "float":
        return number
    try:
        return float(widen(narrow(number))) if element is bf16 else element.dtype.type(number)
    except OverflowError:  # an integer beyond all floats
        return inf
