"""Python operators of tensors: arithmetic, comparison and logic, and their in-place versions.

A mixin of `Tensor` that maps operators to ops or to functions of the namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

import numpy as np

from livegrad.diagnostics import TypeRuleError, caller_origin, caller_origins
from livegrad.diagnostics.errors import cached_origins
from livegrad.ir.node import Node, make_pair
from livegrad.ir.op import Op
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import f32, f64, i8, i16, i32, i64
from livegrad.lazy.deferred_ops import defer_op, node_of_operand
from livegrad.lazy.gradient_variables import variables
from livegrad.lazy.holders import register_holder, register_waiting
from livegrad.lazy.small_ops import SmallNumber, SmallOp, is_small
from livegrad.ops.elementwise import div
from livegrad.tensors.deferred import operand_of
from livegrad.tensors.number_nodes import number_node
from livegrad.tensors.weak_types import is_python_number, python_numbers

if TYPE_CHECKING:
    from livegrad.tensors.handle import Tensor

_Method = Callable[[Any, Any], "Tensor"]
_new = object.__new__
_MAX_TYPES = 1024
_NUMBERS = (float, int)
_INEXACT = ("float", "complex")
_MAX_CACHED = 64  # numbers for each type and operator
# The numbers that fit each type, as far as one comparison shows it; NumPy evaluates ops of these types.
_MAX_NUMBERS = {f32: 3.4e38, f64: 1.7e308, **{type: 2 ** (type.bits - 1) - 1 for type in (i8, i16, i32, i64)}}


def _make_in_place(method: _Method) -> _Method:
    def apply(self: Any, other: Any) -> Tensor:
        """Applies the operator and rebinds `self` to the result, which must have the same shape and type."""
        result = method(self, other)
        if result is NotImplemented or is_python_number(self._node):
            return result  # Python numbers are immutable: `+=` rebinds the name
        if result.type is not self.type:
            raise TypeRuleError(
                "an in-place update must keep shape and type",
                where=caller_origin(),
                expected=str(self.type),
                found=str(result.type),
            )
        self._rebind(result)
        return self

    return apply


def _operator(name: str, *, swapped: bool = False, convert: str | None = None) -> _Method:
    """Creates the operator method of a binary op that cannot fail.

    `convert` names the function that converts integers, for an op that takes none.
    """
    op = Op.table[name]
    small_ops: dict[Any, SmallOp] = {}  # by the common type of both operands

    def apply(self: Any, other: Any) -> Tensor:
        # Fast path for two tensors of one type, and for a tensor and a number that takes its type: programs that read
        # each result spend most of their time here.
        first, second = None, None
        kind = other.__class__
        if ambient.is_unset and not python_numbers.current.traces:
            # Inlined from `operand_of`.
            deferred = self._deferred
            first = self._node if deferred is None else deferred[0] if deferred[1] is None else operand_of(self)
            if kind is self.__class__:
                deferred = other._deferred
                second = other._node if deferred is None else deferred[0] if deferred[1] is None else operand_of(other)
            elif kind in _NUMBERS and first is not None:
                second = _number_like(op, first, other, small_ops)
        if (
            first is None
            or second is None
            or first.type is not second.type
            or (convert is not None and first.type.element.kind not in _INEXACT)
        ):
            if convert is not None:
                return self._call_named(convert, other, self) if swapped else self._call_named(convert, self, other)
            return self._binary(name, other, self) if swapped else self._binary(name, self, other)
        frame = _getframe(1)
        # Inlined from `caller_origins`, for call sites that are cached.
        origins = cached_origins.get((id(frame.f_code), frame.f_lasti)) or caller_origins(2)
        operands = (second, first) if swapped else (first, second)
        small = small_ops.get(first.type) or _small_op(op, first, origins, small_ops)
        # Native code depends on the values of numbers: an op with a number is deferred only if NumPy evaluates it.
        deferred = None
        if small.is_small and (kind is self.__class__ or second.__class__ is SmallNumber):
            deferred = defer_op(small, operands, origins)
        tensor = _new(self.__class__)
        tensor._extra = None
        if deferred is not None:
            tensor._deferred = (deferred, None, origins)
            deferred.holder = ref(tensor)
            return tensor
        a, b = operands
        node = make_pair(op, node_of_operand(a), node_of_operand(b), small.type, origins)
        tensor._node, tensor._deferred = node, None
        if node.holder is None:
            node.holder = reference = ref(tensor)
            register_waiting(reference)
        else:
            register_holder(node, tensor)
        return tensor

    return apply


def _small_op(op: Op, operand: Any, origins: Any, small_ops: dict[Any, SmallOp]) -> SmallOp:
    """Creates the record of an op for two operands of one type, and checks the type."""
    operands = (operand, operand)
    small = SmallOp(op, (), operands, op.derive_type(operands, (), origins))  # type: ignore[arg-type]
    if len(small_ops) < _MAX_TYPES:
        small_ops[operand.type] = small
    return small


def _number_like(op: Op, operand: Any, number: int | float, small_ops: dict[Any, SmallOp]) -> Node | SmallNumber | None:
    """Broadcasts a Python number to the type of an operand if it takes that element type; otherwise returns None."""
    type = operand.type
    element = type.element
    kind = element.kind
    if kind != "float" and (kind != "signed" or number.__class__ is not int):
        return None
    limit = _MAX_NUMBERS.get(element)
    if variables or limit is None or not -limit <= number <= limit or not is_small(type):
        return number_node(number, element, type.shape)
    small = small_ops.get(type)
    if small is None:
        if element.kind not in _INEXACT and op is div:
            return None  # `divide` converts integers
        small = _small_op(op, operand, caller_origins(3), small_ops)
    cached = small.numbers.get(number)
    if cached is None:
        cached = SmallNumber(np.array(number, element.dtype), type)
        if number and len(small.numbers) < _MAX_CACHED:  # 0.0 and -0.0 are equal as keys
            small.numbers[number] = cached
    return cached


_equal, _not_equal = _operator("equal"), _operator("not_equal")


class Operators:
    """The operator methods of tensors. They return NotImplemented for unsupported operands."""

    __slots__ = ()
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    if TYPE_CHECKING:

        @staticmethod
        def _binary(name: str, first: Any, second: Any) -> Tensor: ...

        @staticmethod
        def _call_named(name: str, *operands: Any) -> Tensor: ...

    __add__ = _operator("add")

    __radd__ = _operator("add", swapped=True)

    __sub__ = _operator("sub")

    __rsub__ = _operator("sub", swapped=True)

    __mul__ = _operator("mul")

    __rmul__ = _operator("mul", swapped=True)

    __truediv__ = _operator("div", convert="divide")

    __rtruediv__ = _operator("div", swapped=True, convert="divide")

    def __floordiv__(self, other: Any) -> Tensor:
        return self._call_named("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self._call_named("floor_divide", other, self)

    def __mod__(self, other: Any) -> Tensor:
        return self._binary("mod", self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._binary("mod", other, self)

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return other // self, other % self

    def __pow__(self, other: Any) -> Tensor:
        return self._call_named("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._call_named("pow", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return self._call_named("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self._call_named("matmul", other, self)

    __and__ = _operator("bit_and")

    def __rand__(self, other: Any) -> Tensor:
        return self._binary("bit_and", other, self)

    __or__ = _operator("bit_or")

    def __ror__(self, other: Any) -> Tensor:
        return self._binary("bit_or", other, self)

    __xor__ = _operator("bit_xor")

    def __rxor__(self, other: Any) -> Tensor:
        return self._binary("bit_xor", other, self)

    def __lshift__(self, other: Any) -> Tensor:
        return self._call_named("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return self._call_named("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return self._call_named("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return self._call_named("bitwise_right_shift", other, self)

    __lt__ = _operator("less")

    __le__ = _operator("less_equal")

    __gt__ = _operator("greater")

    __ge__ = _operator("greater_equal")

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return _equal(self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return _not_equal(self, other)

    def __neg__(self) -> Tensor:
        return self._call_named("negative", self)

    def __pos__(self) -> Tensor:
        return self._call_named("positive", self)

    def __abs__(self) -> Tensor:
        return self._call_named("abs", self)

    def __invert__(self) -> Tensor:
        return self._call_named("bitwise_invert", self)

    # In-place operators rebind the handle to the result.
    __iadd__ = _make_in_place(__add__)
    __isub__ = _make_in_place(__sub__)
    __imul__ = _make_in_place(__mul__)
    __itruediv__ = _make_in_place(__truediv__)
    __ifloordiv__ = _make_in_place(__floordiv__)
    __imod__ = _make_in_place(__mod__)
    __ipow__ = _make_in_place(__pow__)
    __imatmul__ = _make_in_place(__matmul__)
    __iand__ = _make_in_place(__and__)
    __ior__ = _make_in_place(__or__)
    __ixor__ = _make_in_place(__xor__)
    __ilshift__ = _make_in_place(__lshift__)
    __irshift__ = _make_in_place(__rshift__)
