"""Emits operations for which AVX-512 has single instructions: exponents, powers of two, tables, special cases.

In: a math builder and values. Out: the same bits on every instruction set. Called by the modules of this package that
define functions.
"""

from collections.abc import Sequence

from livegrad.codegen.llvm.registers import Register, literal_text, llvm_type, pointer
from livegrad.codegen.llvm.values import Value
from livegrad.codegen.llvm.vector_math.math_builder import REGISTER_BITS, MathBuilder

_CURRENT_ROUNDING = "i32 4"
# Immediate operands of `getmant`: a mantissa between ¾ and 1½, of the magnitude, or NaN for negative numbers.
_OF_MAGNITUDE, _OF_POSITIVE = 0b0111, 0b1011
# Responses of `fixupimm`, which replace a result; 0 keeps it.
_OPERAND, _QUIET, _INVALID, _BELOW, _ABOVE = 1, 2, 3, 4, 5  # the operand, its NaN, another NaN, -∞, ∞


def scale_by_power(a: MathBuilder, x: Value, n: Value, n_bits: Value) -> Value:
    """x·2^n, rounded once, for x near 1 and n from ``nearest_integer``, at most twice the greatest exponent."""
    if a.avx512:
        return _call_masked(a, "scalef", x, n)
    # In two steps, because 2^n may not be representable; the first step is exact.
    both = n_bits + 2 * a.element.bias
    half = both >> 1
    bits = a.element.mantissa_bits
    return x * a.from_bits(half << bits) * a.from_bits((both - half) << bits)


def split_positive(a: MathBuilder, x: Value) -> tuple[Value, Value]:
    """k and m with x = m·2^k and ¾ <= m < 1½, for positive x, denormal or not; m is NaN for negative x.

    If x is zero or infinite, k is infinite.
    """
    return _split(a, x, _OF_POSITIVE)


def split_magnitude(a: MathBuilder, x: Value) -> tuple[Value, Value]:
    """Like ``split_positive``, but splits the magnitude of x."""
    return _split(a, x, _OF_MAGNITUDE)


def _split(a: MathBuilder, x: Value, form: int) -> tuple[Value, Value]:
    mantissa = _call_masked(a, "getmant", x, f"i32 {form}")
    # The mantissa's own exponent, 0 or -1, is not part of k.
    return _call_masked(a, "getexp", x) - _call_masked(a, "getexp", mantissa), mantissa


def fix_logarithm(a: MathBuilder, result: Value, x: Value) -> Value:
    """The logarithm of x: ``result`` where x is positive and finite, and the special cases of IEEE 754 elsewhere."""
    return _fix(a, result, x, nan=_QUIET, zero=_BELOW, below=_INVALID, above=_ABOVE, negative=_INVALID)


def keep_zero(a: MathBuilder, result: Value, x: Value) -> Value:
    """``result``, or x where x is zero, with its sign."""
    return _fix(a, result, x, zero=_OPERAND) if a.avx512 else a.select(x.equals(0.0), x, result)


def look_up(a: MathBuilder, name: str, table: Sequence[float], index: Value) -> Value:
    """table[index modulo 32], for a table of 32 float32 numbers."""
    builder, type = a.builder, a.element.type
    literals = [f"float {literal_text(value, type)}" for value in table]
    if a.avx512:
        halves = [Register(f"<{', '.join(literals[first : first + 16])}>", type, 16).typed for first in (0, 16)]
        return _on_registers(a, "llvm.x86.avx512.vpermi2var.ps.512", halves[0], index, halves[1])
    symbol = f"lg_table_{name}"
    a.tables[symbol] = f"@{symbol} = internal constant [{len(table)} x float] [{', '.join(literals)}]"
    start, lane_indices = Register(f"@{symbol}", pointer, 1), (index & (len(table) - 1)).register
    if a.lanes == 1:
        return a.value(builder.load(builder.advance(start, lane_indices, "float"), type, align=4))
    # One load per lane: gathers are no faster, and very slow on some processors.
    result = Register("poison", type, a.lanes)
    for lane in range(a.lanes):
        entry = builder.load(builder.advance(start, builder.extract(lane_indices, lane), "float"), type, align=4)
        result = builder.insert(result, entry, lane)
    return a.value(result)


# AVX-512


def _call_masked(a: MathBuilder, name: str, *arguments: Value | str) -> Value:
    """Calls an intrinsic that takes a mask, and values for unset lanes, with all lanes set."""
    lanes, suffix = _register(a)
    symbol = f"llvm.x86.avx512.mask.{name}.{suffix}.512"
    rest = (a.builder.zero(a.element.type, lanes).typed, f"i{lanes} -1", _CURRENT_ROUNDING)
    return _on_registers(a, symbol, *arguments, *rest)


def _fix(
    a: MathBuilder,
    result: Value,
    x: Value,
    nan: int = 0,
    zero: int = 0,
    below: int = 0,
    above: int = 0,
    negative: int = 0,
) -> Value:
    """``result``, or one of the responses above where x is NaN, zero, -∞, ∞ or another negative number."""
    # In this order: quiet NaN, signalling NaN, zero, one, -∞, ∞, negative, positive.
    responses = (nan, nan, zero, 0, below, above, negative, 0)
    lanes, suffix = _register(a)
    response_bits = a.integer_constant(sum(response << 4 * kind for kind, response in enumerate(responses)))
    table = a.builder.widen(response_bits.register, lanes)
    symbol = f"llvm.x86.avx512.mask.fixupimm.{suffix}.512"
    return _on_registers(a, symbol, result, x, table.typed, "i32 0", f"i{lanes} -1", _CURRENT_ROUNDING)


def _register(a: MathBuilder) -> tuple[int, str]:
    """The lanes of a register, and the suffix of its intrinsics."""
    return REGISTER_BITS // a.element.width, {"f32": "ps", "f64": "pd"}[a.element.name]


def _on_registers(a: MathBuilder, symbol: str, *arguments: Value | str) -> Value:
    """Calls the intrinsic for each register; arguments that are strings are typed operands, the same for all calls."""
    builder, type = a.builder, a.element.type
    lanes, _ = _register(a)
    vector = llvm_type(type, lanes)
    parts: list[Register] = []
    for first in range(0, a.lanes, lanes):
        operands = [b if isinstance(b, str) else _part(a, b, first, lanes).typed for b in arguments]
        kinds = [text[: text.index(">") + 1] if text.startswith("<") else text.split()[0] for text in operands]
        builder.declarations.add(f"declare {vector} @{symbol}({', '.join(kinds)})")
        parts.append(builder.make(f"call {vector} @{symbol}({', '.join(operands)})", type, lanes))
    while len(parts) > 1:
        parts = [builder.concatenate(low, high) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return a.value(parts[0])


def _part(a: MathBuilder, value: Value, first: int, lanes: int) -> Register:
    if lanes == a.lanes:
        return value.register
    return a.builder.shuffle(value.register, range(first, first + lanes))
