"""The `can_fail` rules of op records: whether a checked op can fail for its operands and attributes.

A node that cannot fail is shared by all source lines that create it.
"""

from __future__ import annotations

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Attribute, Node
from livegrad.ir.types import Scalar, Tensor, components, scalar_of

_INTEGERS = ("signed", "unsigned")
_BROADCASTS = ("broadcast", "splat")

Operands = tuple[Node, ...]
Attributes = tuple[tuple[str, Attribute], ...]


def constant_number(node: Node) -> float | None:
    """The value of a float constant, or of a broadcast of one; None for other nodes."""
    while node.op.name in _BROADCASTS:
        (node,) = node.operands
    if node.op is not constant_op or not isinstance(node.type, Scalar) or node.type.kind != "float":
        return None
    return float(node.attribute("value"))


def constant_integer(node: Node) -> int | None:
    """The value of an integer constant, or of a broadcast of one; None for other nodes."""
    while node.op.name in _BROADCASTS:
        (node,) = node.operands
    if node.op is not constant_op or not isinstance(node.type, Scalar) or node.type.kind not in _INTEGERS:
        return None
    return node.attribute("value")


def division_can_fail(operands: Operands, attributes: Attributes) -> bool:
    """Integer division by zero fails; float division does not."""
    if not operands:
        return False
    divisor = operands[-1]
    while divisor.op.name in _BROADCASTS:
        (divisor,) = divisor.operands
    if divisor.op is constant_op and divisor.attribute("value"):
        return False
    scalar = scalar_of(divisor.type)
    return scalar is not None and scalar.kind in _INTEGERS


def cast_can_fail(operands: Operands, attributes: Attributes) -> bool:
    """A cast fails only from a float to an integer that may not represent it."""
    target = attributes[0][1] if attributes else None
    if not isinstance(target, Scalar) or target.kind not in _INTEGERS or not operands:
        return False
    source = scalar_of(operands[0].type)
    return source is not None and source.kind == "float"


def member_can_fail(operands: Operands, attributes: Attributes) -> bool:
    """An index into an aggregate may be out of range."""
    if len(operands) < 2:
        return True
    index = constant_integer(operands[1])
    return index is None or not 0 <= index < len(components(operands[0].type))


def lookup_can_fail(operands: Operands, attributes: Attributes) -> bool:
    """An index into a tensor may be out of range. A tensor of rank 0 takes no index."""
    if not operands or not isinstance(operands[0].type, Tensor):
        return True
    if not write_can_fail(operands, attributes):
        return False
    indices = map(constant_integer, operands[1:])
    return not all(
        isinstance(size, int) and index is not None and 0 <= index < size
        for size, index in zip(operands[0].type.shape, indices, strict=False)
    )


def write_can_fail(operands: Operands, attributes: Attributes) -> bool:
    """An index into a tensor may be out of range, unless it was proved to be in range."""
    if not operands or not isinstance(operands[0].type, Tensor):
        return True
    axes_in_range = dict(attributes).get("in_range")
    return axes_in_range is None or len(axes_in_range) < len(operands[0].type.shape)


def loop_can_fail(operands: Operands, attributes: Attributes) -> bool:
    """A loop fails when it exceeds its limit; a loop without a limit never fails."""
    return dict(attributes).get("limit") is not None


def power_can_fail(operands: Operands, attributes: Attributes) -> bool:
    """Integers have no negative powers."""
    scalar = scalar_of(operands[-1].type) if operands else None
    exponent = constant_integer(operands[-1]) if operands else None
    return not (scalar is not None and scalar.kind == "unsigned") and (exponent is None or exponent < 0)
