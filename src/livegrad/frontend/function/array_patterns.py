"""Type patterns of whole arrays, alone or in tuples, whose named or open sizes are bound by the arguments.

`type_reading` creates them from annotations, `signature` stores them, and calls match arguments against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.frontend.function.function_types import FrontType, TensorType, TupleType, describe
from livegrad.ir import types as ir

Size = int | str | None  # of a dimension: a number, a name that is bound to one number in a call, or None for any


@dataclass(frozen=True)
class TensorPattern:
    """`tensor[float, 2]`, `array[float, "n", 3]`: a whole array, whose named or open sizes come from the argument.

    >>> TensorPattern(ir.f64, ("n", 3)), TensorPattern(ir.f64, (None, None))
    (array[float, "n", 3], tensor[float, 2])
    """

    element: ir.Scalar
    sizes: tuple[Size, ...]

    @property
    def rank(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        if all(size is None for size in self.sizes):
            return f"tensor[{describe(self.element)}, {self.rank}]"
        return f"array[{describe(self.element)}, {', '.join(_size_text(size) for size in self.sizes)}]"

    def type_of(self, value: Any) -> TensorType:
        """The type of a Python argument; raises TypeError if it does not match."""
        try:
            array = np.asarray(value)
        except ValueError:
            raise TypeError(f"expected {self!r}, found lists of different lengths") from None
        type = TensorType(self.element, array.shape)
        if not np.can_cast(array.dtype, self.element.dtype, "same_kind") or self.explain_mismatch(type, {}) is not None:
            raise TypeError(f"expected {self!r}, found an array of {array.dtype} with shape {array.shape}")
        return type

    def explain_mismatch(self, argument: FrontType | None, names: dict[str, int]) -> str | None:
        """Why an argument does not match, or None if it does. Binds named sizes in `names`."""
        if (
            not isinstance(argument, TensorType)
            or argument.element is not self.element
            or len(argument.shape) != self.rank
        ):
            return f"expects {self!r}, found {'no array' if argument is None else describe(argument)}"
        for axis, (expected, size) in enumerate(zip(self.sizes, argument.shape, strict=True)):
            bound_size = names.setdefault(expected, size) if isinstance(expected, str) else expected
            if bound_size is not None and bound_size != size:
                name = f"`{expected}`, which is {bound_size}," if isinstance(expected, str) else bound_size
                return f"expects the size {name} in axis {axis}, found {size}"
        return None


def _size_text(size: Size) -> str:
    return f'"{size}"' if isinstance(size, str) else str(size)


@dataclass(frozen=True)
class TuplePattern:
    """`tuple[array[float, "n"], int]`: a tuple that contains whole arrays."""

    elements: tuple[Pattern, ...]

    def __repr__(self) -> str:
        return f"tuple[{', '.join(_pattern_text(element) for element in self.elements)}]"

    def explain_mismatch(self, argument: FrontType | None, names: dict[str, int]) -> str | None:
        """Why an argument does not match, or None if it does. Binds named sizes in `names`."""
        if not isinstance(argument, TupleType) or len(argument.elements) != len(self.elements):
            return f"expects {self!r}, found {'nothing' if argument is None else describe(argument)}"
        for index, (pattern, type) in enumerate(zip(self.elements, argument.elements, strict=True)):
            fits = pattern == type or not isinstance(pattern, TensorPattern | TuplePattern)
            problem = None if fits else pattern.explain_mismatch(type, names)  # type: ignore[union-attr]
            if problem is not None:
                return f"[{index}] {problem}"
        return None


Pattern = FrontType | TensorPattern | TuplePattern


def _pattern_text(pattern: Pattern) -> str:
    return repr(pattern) if isinstance(pattern, TensorPattern | TuplePattern) else describe(pattern)
