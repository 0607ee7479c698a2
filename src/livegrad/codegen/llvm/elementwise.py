"""Emits elementwise ops on registers, by the `llvm` rule in each op's record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, bf16, bool_, f32, i64, scalar_of, u32
from livegrad.ir.types.scalars import SCALARS
from livegrad.ops.comparison import equal, greater, greater_equal, less, less_equal, not_equal
from livegrad.ops.elementwise import add, sub


def emit_elementwise(builder: KernelBuilder, node: Node, operands: list[Register]) -> Register:
    """One component of an elementwise op."""
    kind = operands[-1].type.kind  # the first operand of a select is its condition
    rule = (node.op.llvm or {}).get(kind)
    if rule is None:
        raise CompileError(f"`{node.op.name}` has no native code for {operands[-1].type}", where=node.origin)
    form, _, name = rule.partition(":")
    if form in _FORMS:
        return _FORMS[form](builder, node, operands, name)
    return _instruction(builder, node, operands, rule)


def _result_scalar(node: Node) -> Scalar:
    scalar = scalar_of(node.type)
    assert scalar is not None
    return scalar


def _instruction(builder: KernelBuilder, node: Node, operands: list[Register], rule: str) -> Register:
    if node.op.name == "select":
        return _emit_select(builder, *operands)
    original, operands = operands, builder.match_lanes(*operands)
    first = operands[0]
    if "{ones}" in rule:
        one = Register("true" if first.type.kind == "bool" else "-1", first.type, 1, literal=True)
        rule = rule.replace("{ones}", builder.widen(one, first.lanes).text)
    text = rule.format(*[operand.text for operand in operands], T=llvm_type(first.type, first.lanes))
    if first.uniform:
        text = text.replace("zeroinitializer", "0")
    result = builder.make(text, _result_scalar(node), first.lanes)
    if builder.has_masks and node.op in _OPPOSITES and first.type.kind == "float" and not result.uniform:
        builder.comparisons[result.text] = _OPPOSITES[node.op], operands[0], operands[1]
    if first.type is i64 and not result.uniform and node.op in (add, sub):
        return _track_consecutive_lanes(builder, result, node.op is sub, *original)
    return result


# The negated predicate of each comparison: it also holds for operands that are NaN, unless it is `oeq`.
_OPPOSITES = {less: "uge", less_equal: "ugt", greater: "ule", greater_equal: "ult", equal: "une", not_equal: "oeq"}


def _emit_select(builder: KernelBuilder, condition: Register, then: Register, otherwise: Register) -> Register:
    """A select. With zero as its first choice, it uses the opposite comparison and has zero as its second choice.

    AVX-512 has a move that writes zeros where a mask is not set. LLVM would negate the mask for it instead of using
    the opposite comparison, and would not merge such masks into comparisons under a mask. For the gradient of a signed
    distance of 310 operations, this saves 170 of 2800 instructions, and mask registers.
    """
    comparison = builder.comparisons.get(condition.text)
    is_zero = then.literal and then.text == builder.constant(0, then.type).text
    if comparison is None or not is_zero or otherwise.literal:
        return builder.select(condition, then, otherwise)
    opposite, left, right = comparison
    return builder.select(builder.apply(f"fcmp {opposite}", bool_, left, right), otherwise, then)


def _track_consecutive_lanes(
    builder: KernelBuilder, result: Register, subtracts: bool, left: Register, right: Register
) -> Register:
    """Records in a sum or difference that its lanes are consecutive, if one operand is so and the other is uniform."""
    indices, number = (left, right) if right.uniform else (right, left)
    ends = (indices.first, indices.last)
    if not number.uniform or ends == (None, None):
        return result
    if not subtracts or right.uniform:
        instruction = "sub" if subtracts else "add"
        first, last = (None if end is None else builder.apply(instruction, i64, end, number) for end in ends)
        return replace(result, first=first, last=last)
    if indices.first is None:
        return result
    beyond = builder.apply("sub", i64, number, indices.first)  # the result's lane 0, which counts down
    return replace(result, last=builder.apply("sub", i64, beyond, builder.constant(result.lanes - 1, i64)))


def _copy(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    return operands[0]


def _intrinsic(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    return builder.intrinsic(name, _result_scalar(node), *operands)


def _math(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    return builder.call_math(name, *operands)


def _absolute(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    return builder.intrinsic("abs", operands[0].type, operands[0], extra="i1 false")


def _compare(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    """min and max: a comparison and a select, one instruction together; minimum and maximum also propagate NaN."""
    first, second = builder.match_lanes(*operands)
    relation = "olt" if name in ("min", "minimum") else "ogt"
    chosen = builder.select(builder.apply(f"fcmp {relation}", bool_, second, first), second, first)
    if name in ("min", "max"):
        return chosen
    if not builder.is_baseline:
        chosen = builder.freeze(chosen)  # or LLVM would merge the selects, and neither would be one instruction
    # The comparison propagates a NaN of the first operand; this select adds a NaN of the second.
    return builder.select(builder.apply("fcmp uno", bool_, second, second), second, chosen)


def _sign(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    """One with the sign of the operand; zeros and NaN are returned as they are."""
    (x,) = operands
    one = builder.intrinsic("copysign", x.type, builder.constant(1.0, x.type), x)
    return builder.select(builder.apply("fcmp one", bool_, x, builder.constant(0, x.type)), one, x)


def _nextafter(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    """Adds or subtracts one from the bits of a float: for each sign, bits as integers are ordered by magnitude."""
    value, towards = builder.match_lanes(*operands)
    integer = SCALARS[f"i{value.type.bits}"]
    zero, one = builder.constant(0, value.type), builder.constant(1, integer)
    bits = builder.convert("bitcast", value, integer)
    away = builder.apply(
        "icmp eq",
        bool_,
        builder.apply("fcmp ogt", bool_, towards, value),
        builder.apply("fcmp ogt", bool_, value, zero),
    )
    moved = builder.select(away, builder.apply("add", integer, bits, one), builder.apply("sub", integer, bits, one))
    least = builder.convert("bitcast", builder.widen(one, value.lanes), value.type)
    from_zero = builder.intrinsic("copysign", value.type, least, towards)
    neighbour = builder.convert("bitcast", moved, value.type)
    stepped = builder.select(builder.apply("fcmp oeq", bool_, value, zero), from_zero, neighbour)
    result = builder.select(builder.apply("fcmp oeq", bool_, value, towards), towards, stepped)
    # If an operand is NaN, so is the result.
    unordered = builder.apply("fcmp uno", bool_, value, towards)
    return builder.select(unordered, builder.apply("fadd", value.type, value, towards), result)


def _shift(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    value, count = builder.match_lanes(*operands)
    bits = value.type.bits
    if operands[1].literal and 0 <= int(operands[1].text) < bits:
        return builder.apply(name, value.type, value, count)
    # As in NumPy, a count outside 0..bits-1 shifts all bits out. Compared as unsigned, negative counts are large.
    limit = builder.constant(bits, value.type)
    within = builder.apply("icmp ult", bool_, count, limit)
    zero = builder.constant(0, value.type)
    shifted = builder.apply(name, value.type, value, builder.select(within, count, zero))
    beyond = (
        zero if name != "ashr" else builder.apply("ashr", value.type, value, builder.constant(bits - 1, value.type))
    )
    return builder.select(within, shifted, beyond)


def _safe_divisor(builder: KernelBuilder, node: Node, divisor: Register) -> Register:
    zero = builder.constant(0, divisor.type)
    bad = builder.apply("icmp eq", bool_, divisor, zero)
    builder.report(bad, "integer division by zero", node.origin)
    return builder.select(bad, builder.constant(1, divisor.type), divisor)


def _checked_unsigned(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    instruction = "udiv" if node.op.name == "floor_div" else "urem"
    return builder.apply(instruction, operands[0].type, operands[0], _safe_divisor(builder, node, operands[1]))


def _floor_division(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    """Python's division of signed integers; the lowest integer divided by -1 wraps round instead of trapping."""
    if operands[1].literal and int(operands[1].text) > 0:
        return _floor_division_by_positive(builder, operands[0], int(operands[1].text), node.op.name == "mod")
    value, divisor = builder.match_lanes(*operands)
    type = value.type
    zero, one = builder.constant(0, type), builder.constant(1, type)
    divisor = _safe_divisor(builder, node, divisor)
    by_minus_one = builder.apply("icmp eq", bool_, divisor, builder.constant(-1, type))
    safe = builder.select(by_minus_one, one, divisor)
    remainder = builder.apply("srem", type, value, safe)
    nonzero = builder.apply("icmp ne", bool_, remainder, zero)
    signs = builder.apply("icmp slt", bool_, builder.apply("xor", type, remainder, divisor), zero)
    rounds_up = builder.apply("and", bool_, nonzero, signs)  # whether truncation rounded the quotient up
    if node.op.name == "mod":
        return builder.select(rounds_up, builder.apply("add", type, remainder, divisor), remainder)
    quotient = builder.apply("sdiv", type, value, safe)
    floored = builder.select(rounds_up, builder.apply("sub", type, quotient, one), quotient)
    return builder.select(by_minus_one, builder.apply("sub", type, zero, value), floored)


def _floor_division_by_positive(builder: KernelBuilder, value: Register, divisor: int, is_mod: bool) -> Register:
    """The quotient or remainder by a positive constant: a shift or a mask for a power of two."""
    type = value.type
    if divisor & (divisor - 1) == 0:
        if is_mod:
            return builder.apply("and", type, value, builder.constant(divisor - 1, type))
        return builder.apply("ashr", type, value, builder.constant(divisor.bit_length() - 1, type))
    zero, by = builder.constant(0, type), builder.constant(divisor, type)
    remainder = builder.apply("srem", type, value, by)
    is_negative = builder.apply("icmp slt", bool_, remainder, zero)
    if is_mod:
        return builder.select(is_negative, builder.apply("add", type, remainder, by), remainder)
    quotient = builder.apply("sdiv", type, value, by)
    return builder.select(is_negative, builder.apply("sub", type, quotient, builder.constant(1, type)), quotient)


def _cast(builder: KernelBuilder, node: Node, operands: list[Register], name: str) -> Register:
    return convert(builder, operands[0], node.attribute("type"), node)


def convert(builder: KernelBuilder, value: Register, target: Scalar, node: Node) -> Register:
    """A cast between scalar types; floats outside the range of an integer type are reported."""
    source = value.type
    if source is target:
        return value
    if source is bf16 and target is f32:
        bits = builder.apply("shl", u32, builder.convert("zext", value, u32), builder.constant(16, u32))
        return builder.convert("bitcast", bits, f32)
    if source is f32 and target is bf16:
        return _round_to_bfloat16(builder, value)
    if target.kind == "bool":
        zero = builder.constant(0, source)
        return builder.apply("fcmp une" if source.kind == "float" else "icmp ne", bool_, value, zero)
    if source.kind == "float":
        if target.kind == "float":
            if source.bits == 64 and target.bits == 16:
                value = _round_to_odd(builder, value)
            return builder.convert("fptrunc" if target.bits < source.bits else "fpext", value, target)
        return _float_to_integer(builder, value, target, node)
    if target.kind == "float":
        return builder.convert("sitofp" if source.kind == "signed" else "uitofp", value, target)
    if target.bits == source.bits:
        return builder.convert("bitcast", value, target)
    if target.bits < source.bits:
        return builder.convert("trunc", value, target)
    return builder.convert("sext" if source.kind == "signed" else "zext", value, target)


def _round_to_bfloat16(builder: KernelBuilder, value: Register) -> Register:
    """The upper 16 bits of a single, rounded to nearest, ties to even. Code represents a bf16 by its bits."""
    bits = builder.convert("bitcast", value, u32)
    last = builder.apply(
        "and", u32, builder.apply("lshr", u32, bits, builder.constant(16, u32)), builder.constant(1, u32)
    )
    nearest = builder.apply("add", u32, builder.apply("add", u32, bits, builder.constant(0x7FFF, u32)), last)
    quiet = builder.apply("or", u32, bits, builder.constant(0x400000, u32))  # a NaN must not round to an infinity
    chosen = builder.select(builder.apply("fcmp uno", bool_, value, value), quiet, nearest)
    return builder.convert("trunc", builder.apply("lshr", u32, chosen, builder.constant(16, u32)), bf16)


def _round_to_odd(builder: KernelBuilder, value: Register) -> Register:
    """Double to single, rounded to odd: rounding that to half gives the same as rounding the double to half directly.

    Processors have no instruction that rounds doubles to halves. An inexact result is rounded towards zero, and its
    last bit is set.
    """
    single = builder.convert("fptrunc", value, f32)
    back = builder.convert("fpext", single, value.type)
    above = builder.apply("fcmp ogt", bool_, *(builder.intrinsic("fabs", value.type, side) for side in (back, value)))
    inexact = builder.apply("fcmp one", bool_, back, value)
    bits = builder.convert("bitcast", single, u32)
    lower = builder.select(above, builder.apply("sub", u32, bits, builder.constant(1, u32)), bits)
    odd = builder.select(inexact, builder.apply("or", u32, lower, builder.constant(1, u32)), lower)
    return builder.convert("bitcast", odd, f32)


def _float_to_integer(builder: KernelBuilder, value: Register, target: Scalar, node: Node) -> Register:
    if value.type.bits == 16:
        value = builder.convert("fpext", value, f32)
    low = -(2 ** (target.bits - 1)) if target.kind == "signed" else 0
    high = 2 ** (target.bits - 1 if target.kind == "signed" else target.bits)
    # Every float above low - 1 truncates into the range, if the float type has the number low - 1.
    below = value.type.dtype.type(low - 1)
    exact = int(below) == low - 1 if np.isfinite(below) else False
    above_low = builder.apply(
        "fcmp ogt" if exact else "fcmp oge", bool_, value, builder.constant(low - 1 if exact else low, value.type)
    )
    below_high = builder.apply("fcmp olt", bool_, value, builder.constant(high, value.type))
    fits = builder.apply("and", bool_, above_low, below_high)
    bad = builder.apply("xor", bool_, fits, builder.constant(True, bool_))
    builder.report(bad, f"a value does not fit {target}", node.origin)
    safe = builder.select(fits, value, builder.constant(0, value.type))
    return builder.convert("fptosi" if target.kind == "signed" else "fptoui", safe, target)


_FORMS: dict[str, Callable[[KernelBuilder, Node, list[Register], str], Register]] = {
    "copy": _copy,
    "intrinsic": _intrinsic,
    "math": _math,
    "abs": _absolute,
    "compare": _compare,
    "sign": _sign,
    "nextafter": _nextafter,
    "shift": _shift,
    "checked_udiv": _checked_unsigned,
    "checked_urem": _checked_unsigned,
    "floor_div": _floor_division,
    "floor_mod": _floor_division,
    "cast": _cast,
}
