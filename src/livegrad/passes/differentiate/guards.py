"""Guarded cotangents: keeps a `select` outside of the products with its cotangent.

Where a select does not take an operand, the operand's cotangent is zero, but its partial derivatives may be infinite,
and their product is NaN. A linear op of `select(p, ct, 0)` equals `select(p, op(ct), 0)`: transposition uses the
latter, so that reverse mode gives zero wherever forward mode does.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, Type, bool_, scalar_of
from livegrad.ops.elementwise import select
from livegrad.ops.rules import is_zero_node, zero
from livegrad.passes.differentiate.tangents import Tangent, add

_MAX_NESTED = 4


@dataclass(frozen=True)
class Guard:
    """`value` where the condition is `when`, zero elsewhere."""

    condition: Node
    when: bool
    value: Node

    def around(self, tangent: Tangent) -> Tangent:
        """Another value under the same guard."""
        if tangent is None:
            return None
        if isinstance(tangent, tuple):
            return tuple(map(self.around, tangent))
        nothing = zero(tangent.type)
        inner = guard_of(tangent)
        if inner is not None and inner.condition.type is self.condition.type and _nesting(inner.value) >= _MAX_NESTED:
            # One guard for both: n choices in each other would put n of them around every value inside. A few are left
            # unchanged: selecting twice is cheaper than combining two masks.
            return select(self._holds & inner._holds, inner.value, nothing)
        return select(self.condition, tangent, nothing) if self.when else select(self.condition, nothing, tangent)

    @property
    def _holds(self) -> Node:
        return self.condition if self.when else ~self.condition


def _nesting(tangent: Tangent) -> int:
    """How many guards are around a value, one in the other, as far as that matters."""
    for depth in range(_MAX_NESTED):
        guard = guard_of(tangent)
        if guard is None:
            return depth
        tangent = guard.value
    return _MAX_NESTED


def guard_of(tangent: Tangent) -> Guard | None:
    """The guard of a cotangent, when it has one."""
    if not isinstance(tangent, Node) or tangent.op is not select:
        return None
    condition, then, otherwise = tangent.operands
    if is_zero_node(otherwise):
        return Guard(condition, True, then)
    return Guard(condition, False, otherwise) if is_zero_node(then) else None


def can_stay_outside(guard: Guard, node: Node, flags: tuple[bool, ...]) -> bool:
    """Whether the guard can be moved from the operand of the op to its result."""
    if node.op.transpose is None:
        return False  # control flow: a branch that does not run contributes nothing
    linear = [operand.type for operand, flag in zip(node.operands, flags, strict=True) if flag]
    if any(scalar_of(type) is None for type in linear):
        return False
    if node.op.elementwise:
        return True
    # One choice for the whole value: it may change shape on the way. Whole tensors stay as they are, to be fused.
    return guard.condition.type is bool_ and not any(isinstance(type, Tensor) for type in (node.type, *linear))


def add_guarded(first: Tangent, second: Tangent, primal: Type) -> Tangent:
    """The sum of two cotangents, under their guard if it is the same."""
    one, other = guard_of(first), guard_of(second)
    if one is None or other is None or (one.condition, one.when) != (other.condition, other.when):
        return add(first, second, primal)
    return one.around(add(one.value, other.value, primal))
