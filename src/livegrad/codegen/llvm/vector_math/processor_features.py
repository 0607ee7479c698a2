"""Operations that AVX-512 does in one instruction: exponents, powers of two, tables, special cases. In: an assembler
and values. Out: the same bits on every instruction set.
Called by the modules of this package that define functions."""

from collections.abc import Sequence

from livegrad.codegen.llvm.vector_math.math_builder import REGISTER_BITS, Assembler, Value

_CURRENT_ROUNDING = "i32 4"
# Of `getmant`: a mantissa between ¾ and 1½, positive for any sign, or NaN for a negative number.
_OF_MAGNITUDE, _OF_POSITIVE = 0b0111, 0b1011
# Of `fixupimm`: what takes the place of a result. 0 leaves it.
_OPERAND, _QUIET, _INVALID, _BELOW, _ABOVE = 1, 2, 3, 4, 5  # the operand, its NaN, another NaN, -∞, ∞


def scale_by_power(a: Assembler, x: Value, n: Value, n_bits: Value) -> Value:
    """x·2^n, rounded once, where x is near 1 and n, by ``nearest_integer``, at most twice the greatest exponent."""
    if a.avx512:
        return _masked(a, "scalef", x, n)
    # In two steps, since 2^n itself need not be a number of this format; the first of them is exact.
    both = n_bits + 2 * a.element.bias
    half = both >> 1
    bits = a.element.mantissa_bits
    return x * a.from_bits(half << bits) * a.from_bits((both - half) << bits)


def split_positive(a: Assembler, x: Value) -> tuple[Value, Value]:
    """k and m with x = m·2^k and ¾ <= m < 1½, for positive x, denormal or not; m is NaN where x is negative.

    Where x is zero or infinite, k is."""
    return _split(a, x, _OF_POSITIVE)


def split_magnitude(a: Assembler, x: Value) -> tuple[Value, Value]:
    """As ``split_positive``, but m belongs to the magnitude of x."""
    return _split(a, x, _OF_MAGNITUDE)


def _split(a: Assembler, x: Value, form: int) -> tuple[Value, Value]:
    mantissa = _masked(a, "getmant", x, f"i32 {form}")
    # The exponent of the mantissa, 0 or -1, is what was taken from the other.
    return _masked(a, "getexp", x) - _masked(a, "getexp", mantissa), mantissa


def fix_logarithm(a: Assembler, result: Value, x: Value) -> Value:
    """The logarithm of x: ``result`` where x is positive and finite, else what IEEE 754 has for it."""
    return _fix(a, result, x, nan=_QUIET, zero=_BELOW, below=_INVALID, above=_ABOVE, negative=_INVALID)


def keep_zero(a: Assembler, result: Value, x: Value) -> Value:
    """``result``, or x where that is zero: with its sign."""
    return _fix(a, result, x, zero=_OPERAND) if a.avx512 else a.select(x.equals(0.0), x, result)


def look_up(a: Assembler, name: str, table: Sequence[float], index: Value) -> Value:
    """table[index modulo 32], for a table of 32 float32 numbers."""
    literals = [f"float {a.element.literal(value)}" for value in table]
    if a.avx512:
        halves = [f"<16 x float> <{', '.join(literals[first : first + 16])}>" for first in (0, 16)]
        return _on_registers(a, "llvm.x86.avx512.vpermi2var.ps.512", "float", halves[0], index, halves[1])
    symbol = f"lg_table_{name}"
    a.tables[symbol] = f"@{symbol} = internal constant [{len(table)} x float] [{', '.join(literals)}]"
    place = index & (len(table) - 1)
    if a.lanes == 1:
        return _load(a, symbol, place.text)
    # One by one: where processors gather, that is no faster, and on some very slow.
    floats, integers = a.type_of("float"), a.type_of("i32")
    result = Value(a, "poison", "float")
    for lane in range(a.lanes):
        own = _load(a, symbol, a.emit(f"extractelement {integers} {place.text}, i32 {lane}", "i32").text)
        result = a.emit(f"insertelement {floats} {result.text}, float {own.text}, i32 {lane}", "float")
    return result


def _load(a: Assembler, table: str, place: str) -> Value:
    address = a.emit(f"getelementptr inbounds float, ptr @{table}, i32 {place}", "ptr")
    return a.emit(f"load float, ptr {address.text}, align 4", "float")


# AVX-512


def _masked(a: Assembler, name: str, *arguments: Value | str) -> Value:
    """An instruction whose intrinsic takes a mask and what is left where the mask is not set: nowhere."""
    register, lanes, suffix = _register(a)
    symbol = f"llvm.x86.avx512.mask.{name}.{suffix}.512"
    rest = (f"{register} zeroinitializer", f"i{lanes} -1", _CURRENT_ROUNDING)
    return _on_registers(a, symbol, a.element.float_type, *arguments, *rest)


def _fix(
    a: Assembler,
    result: Value,
    x: Value,
    nan: int = 0,
    zero: int = 0,
    below: int = 0,
    above: int = 0,
    negative: int = 0,
) -> Value:
    """``result``, or one of the answers above where x is a NaN, zero, -∞, ∞ or another negative number."""
    # In this order: quiet NaN, signalling NaN, zero, one, -∞, ∞, negative, positive.
    answers = (nan, nan, zero, 0, below, above, negative, 0)
    _, lanes, suffix = _register(a)
    integer = a.element.integer_type
    table = f"<{lanes} x {integer}> splat ({integer} {sum(answer << 4 * kind for kind, answer in enumerate(answers))})"
    symbol = f"llvm.x86.avx512.mask.fixupimm.{suffix}.512"
    rest = (table, "i32 0", f"i{lanes} -1", _CURRENT_ROUNDING)
    return _on_registers(a, symbol, a.element.float_type, result, x, *rest)


def _register(a: Assembler) -> tuple[str, int, str]:
    """The type of a register, its lanes, and how intrinsics are named for it."""
    lanes = REGISTER_BITS // a.element.width
    return f"<{lanes} x {a.element.float_type}>", lanes, {"f32": "ps", "f64": "pd"}[a.element.name]


def _on_registers(a: Assembler, symbol: str, kind: str, *arguments: Value | str) -> Value:
    """A call of the intrinsic for each register; arguments that are not values are the same for all, typed text."""
    lanes = REGISTER_BITS // a.element.width
    parts: list[str] = []
    for first in range(0, a.lanes, lanes):
        given = [b if isinstance(b, str) else f"<{lanes} x {b.kind}> {_part(a, b, first, lanes)}" for b in arguments]
        kinds = [text[: text.index(">") + 1] if text.startswith("<") else text.split()[0] for text in given]
        vector = f"<{lanes} x {kind}>"
        a.declarations.add(f"declare {vector} @{symbol}({', '.join(kinds)})")
        parts.append(a.emit(f"call {vector} @{symbol}({', '.join(given)})", kind).text)
    while len(parts) > 1:
        joined = 2 * lanes
        places = ", ".join(f"i32 {lane}" for lane in range(joined))
        parts = [
            a.emit(
                f"shufflevector <{lanes} x {kind}> {low}, <{lanes} x {kind}> {high}, <{joined} x i32> <{places}>", kind
            ).text
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
        lanes = joined
    return Value(a, parts[0], kind)


def _part(a: Assembler, value: Value, first: int, lanes: int) -> str:
    if lanes == a.lanes:
        return value.text
    vector = a.type_of(value.kind)
    places = ", ".join(f"i32 {first + lane}" for lane in range(lanes))
    return a.emit(f"shufflevector {vector} {value.text}, {vector} poison, <{lanes} x i32> <{places}>", value.kind).text
