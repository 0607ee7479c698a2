"""Guarded cotangents: moves linear ops inside the `select` that masks their cotangent, so zeros do not become NaN.

Where a select does not take an operand, the operand's cotangent is zero, but its partial derivatives may be infinite,
and zero times infinity is NaN. A linear op of `select(p, ct, 0)` equals `select(p, op(ct), 0)`: transposition uses the
latter, so that reverse mode gives zero wherever forward mode does.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, Type, bool_, scalar_of
from livegrad.ops.elementwise import select
from livegrad.ops.rules import filled, is_zero_node, zero
from livegrad.passes.differentiate.tangents import Tangent, add
from livegrad.passes.simplify.folding import kind_of

_MAX_NESTED = 4


@dataclass(frozen=True)
class Guard:
    """`value` where the condition is `when`, zero elsewhere."""

    condition: Node
    when: bool
    value: Node

    def apply(self, tangent: Tangent) -> Tangent:
        """Puts a tangent under the same guard."""
        if tangent is None:
            return None
        if isinstance(tangent, tuple):
            return tuple(map(self.apply, tangent))
        nothing = zero(tangent.type)
        inner = guard_of(tangent)
        if inner is not None and inner.condition.type is self.condition.type and _nesting(inner.value) >= _MAX_NESTED:
            # Merge deeply nested guards, or n nested selects would put n guards around every value inside. Below the
            # limit, selecting twice is cheaper than combining two masks.
            return select(self._holds & inner._holds, inner.value, nothing)
        return select(self.condition, tangent, nothing) if self.when else select(self.condition, nothing, tangent)

    @property
    def _holds(self) -> Node:
        return self.condition if self.when else ~self.condition


def _nesting(tangent: Tangent) -> int:
    """The number of nested guards around a value, at most `_MAX_NESTED`."""
    for depth in range(_MAX_NESTED):
        guard = guard_of(tangent)
        if guard is None:
            return depth
        tangent = guard.value
    return _MAX_NESTED


def guard_of(tangent: Tangent) -> Guard | None:
    """The guard of a cotangent, or None."""
    if not isinstance(tangent, Node) or tangent.op is not select:
        return None
    condition, then, otherwise = tangent.operands
    if is_zero_node(otherwise):
        return Guard(condition, True, then)
    return Guard(condition, False, otherwise) if is_zero_node(then) else None


def can_move_to_operands(guard: Guard, node: Node, flags: tuple[bool, ...]) -> bool:
    """Whether the guard of a node's cotangent can move to the cotangents of its operands."""
    if node.op.transpose is None:
        return False  # control flow needs no guards: a branch that does not run contributes nothing
    linear = [operand.type for operand, flag in zip(node.operands, flags, strict=True) if flag]
    if any(scalar_of(type) is None for type in linear):
        return False
    if node.op.elementwise:
        return True
    # A scalar condition fits values of any shape. Guards of whole tensors stay where they are, to be fused.
    return guard.condition.type is bool_ and not any(isinstance(type, Tensor) for type in (node.type, *linear))


def add_guarded(first: Tangent, second: Tangent, primal: Type) -> Tangent:
    """The sum of two cotangents, under a single guard if both have the same, and as one select if they have opposites.

    A sum with zero may change the sign of a zero, which does not matter for cotangents.
    """
    guard, second_guard = guard_of(first), guard_of(second)
    if guard is None or second_guard is None or guard.condition is not second_guard.condition:
        if first is None or second is None:
            return add(first, second, primal)
        return add(first, as_summand(second), primal) if second_guard else add(as_summand(first), second, primal)
    if guard.when is second_guard.when:
        return guard.apply(add(guard.value, second_guard.value, primal))
    if guard.value is second_guard.value:
        return guard.value
    then, otherwise = (guard, second_guard) if guard.when else (second_guard, guard)
    return select(guard.condition, then.value, otherwise.value)


def as_summand(tangent: Tangent) -> Tangent:
    """A guarded cotangent that is -0.0 where it was zero: adding that changes nothing, so a loop that knows the
    condition of some iterations leaves the addition out there."""
    guard = guard_of(tangent)
    if guard is None or not isinstance(tangent, Node) or kind_of(tangent) != "float":
        return tangent
    nothing = filled(-0.0, tangent.type)
    value = as_summand(guard.value)
    assert isinstance(value, Node)
    return select(guard.condition, value, nothing) if guard.when else select(guard.condition, nothing, value)
