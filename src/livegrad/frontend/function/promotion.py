"""Numeric promotion: the common type of two numbers, with weakly typed Python numbers, and implicit conversions."""

from __future__ import annotations

from livegrad.ir import types as ir
from livegrad.ir.types.scalars import SCALARS

_RANK = {"bool": 0, "unsigned": 1, "signed": 2, "float": 3, "complex": 4}


def adopts_type(weak: ir.Scalar, strong: ir.Scalar) -> bool:
    """Whether a weakly typed number takes the type of a typed operand. A weak int also takes unsigned types.

    >>> adopts_type(ir.i64, ir.u8), adopts_type(ir.f32, ir.i64)
    (True, False)
    """
    return _RANK[weak.kind] <= _RANK[strong.kind] or (weak.kind, strong.kind) == ("signed", "unsigned")


def promote(first: ir.Scalar, first_weak: bool, second: ir.Scalar, second_weak: bool) -> ir.Scalar:
    """The common type of two numbers: a typed one wins over a weak one, then the higher kind, then the larger width.

    >>> promote(ir.f32, False, ir.f64, True), promote(ir.i64, False, ir.f32, False)
    (f32, f32)
    """
    if first is second:
        return first
    if first_weak != second_weak:
        strong, weak = (second, first) if first_weak else (first, second)
        if adopts_type(weak, strong):
            return strong
        return weak  # 0.5 with an integer: Python's float
    if first.kind == second.kind:
        return first if first.bits >= second.bits else second
    low, high = sorted((first, second), key=lambda scalar: _RANK[scalar.kind])
    if low.kind == "unsigned" and high.kind == "signed" and low.bits >= high.bits:
        return SCALARS[f"i{min(64, 2 * low.bits)}"]
    if low.kind == "float" and high.kind == "complex" and low.bits == 64:
        return ir.c128
    return high


def is_lossless(source: ir.Scalar, target: ir.Scalar) -> bool:
    """Whether a call may convert one scalar type to another implicitly."""
    if source is target:
        return True
    if _RANK[source.kind] > _RANK[target.kind]:
        return False
    if source.kind == target.kind or (source.kind == "unsigned" and target.kind == "signed"):
        return source.bits < target.bits
    if source.kind == "bool":
        return True
    if target.kind in ("float", "complex") and source.kind in ("signed", "unsigned"):
        # As in Python's type system, an int is accepted where a float is expected.
        return target in (ir.f64, ir.c128) or source.bits < target.bits
    return source.kind == "float" and target.real.bits >= source.bits
