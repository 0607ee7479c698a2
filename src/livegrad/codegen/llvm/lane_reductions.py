"""Reductions in native code: identity values, the combination of two values, and reductions over lanes."""

from __future__ import annotations

from functools import lru_cache

from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.ir.types import Scalar, bool_, f16, f32, i64
from livegrad.ops.reduction import fold_start

Accumulator = tuple[Register, ...]  # one register, or a value and its index


def accumulator_type(kind: str, type: Scalar) -> Scalar:
    """Sums and products of half precision are kept in single, as the reference has it."""
    return f32 if type is f16 and kind in ("sum", "prod") else type


def initial(asm: Assembler, kind: str, type: Scalar) -> Accumulator:
    """The identity of a reduction; argmin and argmax also start from an index behind all others."""
    start = asm.constant(fold_start(kind, type), type)
    return (start, asm.constant((1 << 62), i64)) if kind in ("argmax", "argmin") else (start,)


def combine(asm: Assembler, kind: str, first: Accumulator, second: Accumulator) -> Accumulator:
    """The fold of two partial folds, the first from earlier elements (of the same lane)."""
    a, b = first[0], second[0]
    type = a.type
    if kind in ("argmax", "argmin"):
        return _combine_indexed(asm, kind, first, second)
    if kind in ("any", "all"):
        return (asm.apply("or" if kind == "any" else "and", type, a, b),)
    if kind in ("max", "min"):
        if type.kind != "float":
            sign = "s" if type.kind == "signed" else "u"
            return (asm.intrinsic(f"{sign}{kind}", type, a, b),)
        relation = "olt" if kind == "min" else "ogt"
        chosen = asm.select(asm.apply(f"fcmp {relation}", bool_, b, a), b, a)
        return (asm.select(asm.apply("fcmp uno", bool_, b, b), b, chosen),)
    instruction = {"sum": "add", "prod": "mul"}[kind]
    return (asm.apply(f"f{instruction}" if type.kind == "float" else instruction, type, a, b),)


def _combine_indexed(asm: Assembler, kind: str, first: Accumulator, second: Accumulator) -> Accumulator:
    """The better value with its index; of equals the lower index; a NaN beats everything, the first one wins."""
    (a, i), (b, j) = first, second
    if a.type.kind == "float":
        relation = "fcmp ogt" if kind == "argmax" else "fcmp olt"
        a_nan, b_nan = asm.apply("fcmp uno", bool_, a, a), asm.apply("fcmp uno", bool_, b, b)
        same = asm.apply("or", bool_, asm.apply("fcmp oeq", bool_, a, b), asm.apply("and", bool_, a_nan, b_nan))
        not_a_nan = asm.apply("xor", bool_, a_nan, asm.constant(True, bool_))
        better = asm.apply("or", bool_, asm.apply(relation, bool_, b, a), asm.apply("and", bool_, b_nan, not_a_nan))
    else:
        sign = "s" if a.type.kind == "signed" else "u"
        better = asm.apply(f"icmp {sign}{'gt' if kind == 'argmax' else 'lt'}", bool_, b, a)
        same = asm.apply("icmp eq", bool_, a, b)
    earlier = asm.apply("and", bool_, same, asm.apply("icmp slt", bool_, j, i))
    take = asm.apply("or", bool_, better, earlier)
    return asm.select(take, b, a), asm.select(take, j, i)


def across_lanes(asm: Assembler, kind: str, value: Accumulator) -> Accumulator:
    """Reduces all lanes to one value by halving; the same tree on every machine."""
    lanes = value[0].lanes
    while lanes > 1:
        half = lanes // 2
        low = tuple(_part(asm, register, 0, half) for register in value)
        high = tuple(_part(asm, register, half, half) for register in value)
        value = combine(asm, kind, low, high)
        lanes = half
    return value


def _part(asm: Assembler, register: Register, start: int, count: int) -> Register:
    vector = llvm_type(register.type, register.lanes)
    if count == 1:
        return asm.make(f"extractelement {vector} {register.text}, i64 {start}", register.type, 1)
    text = f"shufflevector {vector} {register.text}, {vector} poison, {_lanes(start, count)}"
    return asm.make(text, register.type, count)


@lru_cache(maxsize=256)
def _lanes(start: int, count: int) -> str:
    return f"<{count} x i32> <{', '.join(f'i32 {start + lane}' for lane in range(count))}>"
