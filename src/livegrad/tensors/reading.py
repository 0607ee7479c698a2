"""Reads the value of a tensor as a NumPy array, as Python numbers and as lists.

A mixin of `Tensor`. Reading computes the value if it is not cached.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.bfloat16 import readable
from livegrad.tensors.deferred import number_of
from livegrad.tensors.errors import DtypeError, NotANumberError

Array = np.ndarray[Any, Any]


class Reading:
    """Conversions of a tensor's value to types of Python and NumPy."""

    __slots__ = ()

    def numpy(self: Any) -> Array:
        """Returns the value as a read-only NumPy array, without a copy.

        NumPy has no bfloat16; such values are converted to float32, which is exact.

        >>> import livegrad as lg
        >>> lg.arange(3).numpy()
        array([0, 1, 2])
        """
        value = readable(self._value()).view()
        value.setflags(write=False)
        return value

    def item(self: Any) -> Any:
        """Returns the only element as a Python number."""
        number = self._number()
        if number is not None:
            return number
        if self.size != 1:
            raise UsageError(
                "`item` needs a tensor with one element", where=caller_origin(), found=f"shape {self.shape}"
            )
        return readable(self._value()).item()

    def tolist(self: Any) -> Any:
        """Returns the value as nested lists of Python numbers."""
        return readable(self._value()).tolist()

    def __bool__(self: Any) -> bool:
        number = self._number()
        return bool(self._scalar("truth value") if number is None else number)

    def __int__(self: Any) -> int:
        number = self._number()
        if number.__class__ is int:
            return number
        value = self._real("integer")
        if self.dtype.kind == "float" and not np.isfinite(value):
            raise NotANumberError(f"{value} is not an integer", where=caller_origin())
        return int(value)

    def __float__(self: Any) -> float:
        number = self._number()
        return number if number.__class__ is float else float(self._real("float"))

    def __complex__(self: Any) -> complex:
        return complex(self._scalar("complex number"))

    def __format__(self: Any, specification: str) -> str:
        """Formats a zero-dimensional tensor like a Python number.

        >>> import livegrad as lg
        >>> f"{lg.asarray(2.0) / 3.0:.3f}"
        '0.667'
        """
        if specification and self.shape == ():
            return format(self.item(), specification)
        return object.__format__(self, specification)

    def __index__(self: Any) -> int:
        if self.dtype.kind not in ("signed", "unsigned"):
            raise UsageError("an index must be an integer", where=caller_origin(), found=str(self.dtype))
        return int(self._scalar("index"))

    def _number(self: Any) -> Any:
        """Returns a zero-dimensional tensor as a Python number; None if the general path must compute it or raise."""
        deferred = self._deferred
        if deferred is not None:
            return number_of(deferred)
        node = self._node
        if node is None or node.type.shape != () or node.type.element.kind == "complex":
            return None
        value = self._value()
        return value.item() if value.dtype.kind != "V" else None  # bfloat16, which NumPy lacks

    def _real(self: Any, role: str) -> Any:
        if self.dtype.kind == "complex":
            raise DtypeError(
                f"a complex number cannot be converted to a {role}", where=caller_origin(), help="take lg.real first"
            )
        return self._scalar(role)

    def _scalar(self: Any, role: str) -> Any:
        if self.shape != ():
            help = "reduce it first, with lg.all or lg.any" if role == "truth value" else "index or reduce it first"
            raise UsageError(
                f"a tensor of shape {self.shape} has no {role}", where=caller_origin(), expected="shape ()", help=help
            )
        return readable(self._value())[()]
