"""Python operators of tensors: arithmetic, comparison and logic, and their in-place versions.

A mixin of `Tensor` that maps operators to ops or to functions of the namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from livegrad.diagnostics import TypeRuleError, caller_origin, caller_origins
from livegrad.diagnostics.errors import cached_origins
from livegrad.ir.node import Node, make_pair
from livegrad.ir.op import Op
from livegrad.ir.source_lines import ambient
from livegrad.lazy.deferred_ops import defer_op, is_small, node_of_operand
from livegrad.lazy.holders import register_holder, register_waiting
from livegrad.tensors.number_nodes import number_node
from livegrad.tensors.weak_types import is_python_number, python_numbers

if TYPE_CHECKING:
    from livegrad.tensors.handle import Tensor

_Method = Callable[[Any, Any], "Tensor"]
_new = object.__new__
_MAX_TYPES = 1024
_NUMBERS = (float, int)


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


def _operator(name: str, *, swapped: bool = False) -> _Method:
    """Creates the operator method of a binary op that cannot fail."""
    op = Op.table[name]
    types: dict[Any, Any] = {}  # result types, by the common type of both operands

    def apply(self: Any, other: Any) -> Tensor:
        # Fast path for two tensors of one type, and for a tensor and a number that takes its type: programs that read
        # each result spend most of their time here.
        first, second = None, None
        if ambient.is_unset and not python_numbers.current.traces:
            # Inlined from `source_of`.
            deferred = self._deferred
            first = self._node if deferred is None or deferred[1] is not None else deferred[0]
            kind = other.__class__
            if kind is self.__class__:
                deferred = other._deferred
                second = other._node if deferred is None or deferred[1] is not None else deferred[0]
            elif kind in _NUMBERS and first is not None:
                second = _number_like(first.type, other)
        if first is None or second is None or first.type is not second.type:
            return self._binary(name, other, self) if swapped else self._binary(name, self, other)
        frame = _getframe(1)
        # Inlined from `caller_origins`, for call sites that are cached.
        origins = cached_origins.get((id(frame.f_code), frame.f_lasti)) or caller_origins(2)
        cached = types.get(first.type)
        if cached is None:
            type = op.derive_type((first, second), (), origins)
            cached = type, is_small(first.type) and is_small(type)
            if len(types) < _MAX_TYPES:
                types[first.type] = cached
        type, small = cached
        operands = (second, first) if swapped else (first, second)
        deferred = defer_op(op, operands, (), type, origins) if small else None
        tensor = _new(self.__class__)
        tensor._extra = None
        if deferred is not None:
            tensor._deferred = (deferred, None, origins)
            deferred.holder = ref(tensor)
            return tensor
        a, b = operands
        node = make_pair(op, node_of_operand(a), node_of_operand(b), type, origins)
        tensor._node, tensor._deferred = node, None
        if node.holder is None:
            node.holder = reference = ref(tensor)
            register_waiting(reference)
        else:
            register_holder(node, tensor)
        return tensor

    return apply


def source_of(tensor: Any) -> Any:
    """Returns what an op takes as operand for a tensor: its deferred op, or its node."""
    deferred = tensor._deferred
    if deferred is not None and deferred[1] is None:
        return deferred[0]
    return tensor._node


def _number_like(type: Any, number: int | float) -> Node | None:
    """Broadcasts a Python number to a tensor type if it takes that element type; otherwise returns None."""
    kind = type.element.kind
    if kind == "float" or (kind == "signed" and number.__class__ is int):
        return number_node(number, type.element, type.shape)
    return None


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

    def __truediv__(self, other: Any) -> Tensor:
        return self._call_named("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._call_named("divide", other, self)

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
