"""Reductions in LLVM IR: the identity of each kind, the combination of two values, and reductions over lanes."""

from __future__ import annotations

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Register
from livegrad.ir.types import Scalar, bool_, f16, f32, i64
from livegrad.ops.reduction import fold_start

Accumulator = tuple[Register, ...]  # one register, or a value and its index


def accumulator_type(kind: str, type: Scalar) -> Scalar:
    """The type of an accumulator: single for sums and products of half precision, as in the reference backend."""
    return f32 if type is f16 and kind in ("sum", "prod") else type


def initial(builder: Builder, kind: str, type: Scalar) -> Accumulator:
    """The identity of a reduction; for argmin and argmax, with an index greater than all others."""
    start = builder.constant(fold_start(kind, type), type)
    return (start, builder.constant((1 << 62), i64)) if kind in ("argmax", "argmin") else (start,)


def combine(builder: Builder, kind: str, first: Accumulator, second: Accumulator) -> Accumulator:
    """Combines two accumulators of a lane; those of the first argument are of earlier elements."""
    a, b = first[0], second[0]
    type = a.type
    if kind in ("argmax", "argmin"):
        return _combine_indexed(builder, kind, first, second)
    if kind in ("any", "all"):
        return (builder.apply("or" if kind == "any" else "and", type, a, b),)
    if kind in ("max", "min"):
        if type.kind != "float":
            sign = "s" if type.kind == "signed" else "u"
            return (builder.intrinsic(f"{sign}{kind}", type, a, b),)
        relation = "olt" if kind == "min" else "ogt"
        chosen = builder.select(builder.apply(f"fcmp {relation}", bool_, b, a), b, a)
        return (builder.select(builder.apply("fcmp uno", bool_, b, b), b, chosen),)
    instruction = {"sum": "add", "prod": "mul"}[kind]
    return (builder.apply(f"f{instruction}" if type.kind == "float" else instruction, type, a, b),)


def _combine_indexed(builder: Builder, kind: str, first: Accumulator, second: Accumulator) -> Accumulator:
    """The better value with its index; of equal values, the lower index. NaN is better than numbers."""
    (a, i), (b, j) = first, second
    if a.type.kind == "float":
        relation = "fcmp ogt" if kind == "argmax" else "fcmp olt"
        a_nan, b_nan = builder.apply("fcmp uno", bool_, a, a), builder.apply("fcmp uno", bool_, b, b)
        same = builder.apply(
            "or", bool_, builder.apply("fcmp oeq", bool_, a, b), builder.apply("and", bool_, a_nan, b_nan)
        )
        not_a_nan = builder.apply("xor", bool_, a_nan, builder.constant(True, bool_))
        better = builder.apply(
            "or", bool_, builder.apply(relation, bool_, b, a), builder.apply("and", bool_, b_nan, not_a_nan)
        )
    else:
        sign = "s" if a.type.kind == "signed" else "u"
        better = builder.apply(f"icmp {sign}{'gt' if kind == 'argmax' else 'lt'}", bool_, b, a)
        same = builder.apply("icmp eq", bool_, a, b)
    earlier = builder.apply("and", bool_, same, builder.apply("icmp slt", bool_, j, i))
    take = builder.apply("or", bool_, better, earlier)
    return builder.select(take, b, a), builder.select(take, j, i)


def across_lanes(builder: Builder, kind: str, value: Accumulator) -> Accumulator:
    """Reduces all lanes to one value by halving; the same tree on every machine."""
    lanes = value[0].lanes
    while lanes > 1:
        half = lanes // 2
        low = tuple(builder.shuffle(register, range(half)) for register in value)
        high = tuple(builder.shuffle(register, range(half, lanes)) for register in value)
        value = combine(builder, kind, low, high)
        lanes = half
    return value
