"""The operators of tensors: arithmetic, comparison and logic, and their in-place versions.

A mixin of `Tensor`, which maps operators to ops or functions of the namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from livegrad.diagnostics import TypeRuleError, caller_origin
from livegrad.tensors.weak_types import is_python_number

if TYPE_CHECKING:
    from livegrad.tensors.handle import Tensor

_Method = Callable[[Any, Any], "Tensor"]


def _in_place(method: _Method) -> _Method:
    def apply(self: Any, other: Any) -> Tensor:
        """`self` then stands for the result; its shape and type stay."""
        result = method(self, other)
        if result is NotImplemented or is_python_number(self._node):
            return result  # a Python number cannot be changed: its name goes over to the result
        if result.type is not self.type:
            raise TypeRuleError(
                "an update in place must keep shape and type",
                where=caller_origin(),
                expected=str(self.type),
                found=str(result.type),
            )
        self._become(result)
        return self

    return apply


class Operators:
    """What Python calls for `+`, `<`, `@` and the others; NotImplemented for operands that are no numbers."""

    __slots__ = ()
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    if TYPE_CHECKING:

        @staticmethod
        def _binary(name: str, first: Any, second: Any) -> Tensor: ...

        @staticmethod
        def _named(name: str, *operands: Any) -> Tensor: ...

    def __add__(self, other: Any) -> Tensor:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return self._named("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._named("divide", other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return self._named("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self._named("floor_divide", other, self)

    def __mod__(self, other: Any) -> Tensor:
        return self._binary("mod", self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._binary("mod", other, self)

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return other // self, other % self

    def __pow__(self, other: Any) -> Tensor:
        return self._named("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._named("pow", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return self._named("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self._named("matmul", other, self)

    def __and__(self, other: Any) -> Tensor:
        return self._binary("bit_and", self, other)

    def __rand__(self, other: Any) -> Tensor:
        return self._binary("bit_and", other, self)

    def __or__(self, other: Any) -> Tensor:
        return self._binary("bit_or", self, other)

    def __ror__(self, other: Any) -> Tensor:
        return self._binary("bit_or", other, self)

    def __xor__(self, other: Any) -> Tensor:
        return self._binary("bit_xor", self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return self._binary("bit_xor", other, self)

    def __lshift__(self, other: Any) -> Tensor:
        return self._named("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return self._named("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return self._named("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return self._named("bitwise_right_shift", other, self)

    def __lt__(self, other: Any) -> Tensor:
        return self._binary("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return self._binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self._binary("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return self._binary("greater_equal", self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._binary("equal", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._binary("not_equal", self, other)

    def __neg__(self) -> Tensor:
        return self._named("negative", self)

    def __pos__(self) -> Tensor:
        return self._named("positive", self)

    def __abs__(self) -> Tensor:
        return self._named("abs", self)

    def __invert__(self) -> Tensor:
        return self._named("bitwise_invert", self)

    # Each then stands for the result.
    __iadd__ = _in_place(__add__)
    __isub__ = _in_place(__sub__)
    __imul__ = _in_place(__mul__)
    __itruediv__ = _in_place(__truediv__)
    __ifloordiv__ = _in_place(__floordiv__)
    __imod__ = _in_place(__mod__)
    __ipow__ = _in_place(__pow__)
    __imatmul__ = _in_place(__matmul__)
    __iand__ = _in_place(__and__)
    __ior__ = _in_place(__or__)
    __ixor__ = _in_place(__xor__)
    __ilshift__ = _in_place(__lshift__)
    __irshift__ = _in_place(__rshift__)
