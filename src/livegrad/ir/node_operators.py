"""Python's operators on nodes: `x + y` calls the op `add`. Literals become constants of the other operand's type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from livegrad.ir.node import Node
    from livegrad.ir.op import Op


class NodeOperators:
    """The base class of nodes, with the methods behind operators."""

    __slots__ = ()
    op: Op

    def _binary(self, name: str, other: Any, swapped: bool = False) -> Node:
        op = self.op.table[name]
        return op(other, self) if swapped else op(self, other)

    def __add__(self, other: Any) -> Node:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Node:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Node:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Node:
        return self._binary("sub", other, True)

    def __mul__(self, other: Any) -> Node:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Node:
        return self._binary("mul", other, True)

    def __truediv__(self, other: Any) -> Node:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Node:
        return self._binary("div", other, True)

    def __floordiv__(self, other: Any) -> Node:
        return self._binary("floor_div", other)

    def __rfloordiv__(self, other: Any) -> Node:
        return self._binary("floor_div", other, True)

    def __mod__(self, other: Any) -> Node:
        return self._binary("mod", other)

    def __rmod__(self, other: Any) -> Node:
        return self._binary("mod", other, True)

    def __pow__(self, other: Any) -> Node:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Node:
        return self._binary("pow", other, True)

    def __and__(self, other: Any) -> Node:
        return self._binary("bit_and", other)

    def __or__(self, other: Any) -> Node:
        return self._binary("bit_or", other)

    def __xor__(self, other: Any) -> Node:
        return self._binary("bit_xor", other)

    # `&`, `|` and `^` are commutative.
    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lt__(self, other: Any) -> Node:
        return self._binary("less", other)

    def __le__(self, other: Any) -> Node:
        return self._binary("less_equal", other)

    def __gt__(self, other: Any) -> Node:
        return self._binary("greater", other)

    def __ge__(self, other: Any) -> Node:
        return self._binary("greater_equal", other)

    def __neg__(self) -> Node:
        return self.op.named("neg")(self)

    def __abs__(self) -> Node:
        return self.op.named("abs")(self)

    def __invert__(self) -> Node:
        return self.op.named("bit_not")(self)
