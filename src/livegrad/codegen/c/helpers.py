"""Scalar functions that C lacks, defined for each type that code calls them with.

An op whose record has the code `lg_floor_div({0}, {1})` is called for 32-bit integers as `lg_floor_div_i32(a, b)`;
`helper_functions` returns the definition. A template starts with the names of the parameters. The templates here are
those of OpenCL C and CUDA C; `shader_helpers.py` has those of shaders.
"""

from __future__ import annotations

import re
from string import Template

from livegrad.codegen.c.dialect import Dialect
from livegrad.ir.types import Scalar
from livegrad.ir.types.scalars import SCALARS

_CALL = re.compile(r"\blg_([a-z0-9_]+)_([a-z]+\d+)\(")

# Python's division: the quotient is rounded down. The lowest integer divided by -1, undefined in C, wraps round.
_SIGNED = {
    "floor_div": """\
(a, b)
{
    if (b == -1) return ($T)(0 - ($wrapping)a);
    const $T quotient = a / b, remainder = a % b;
    return remainder != 0 && ((remainder < 0) != (b < 0)) ? quotient - 1 : quotient;
}""",
    "mod": """\
(a, b)
{
    if (b == -1) return 0;
    const $T remainder = a % b;
    return remainder != 0 && ((remainder < 0) != (b < 0)) ? remainder + b : remainder;
}""",
    # A count outside 0..bits-1 shifts all bits out.
    "shift_right": """\
(a, count)
{
    return ($unsigned)count < $bits ? a >> (int)count : (a < 0 ? -1 : 0);
}""",
}
_UNSIGNED = {
    "shift_right": """\
(a, count)
{
    return count < $bits ? a >> (int)count : 0;
}""",
}
_INTEGERS = {
    "shift_left": """\
(a, count)
{
    return ($unsigned)count < $bits ? ($T)(($wide)a << (int)count) : 0;
}""",
}
_FLOATS = {
    # As NumPy divides: from the exact remainder, so that the quotient is never off by one.
    "floor_div": """\
(a, b)
{
    if (b == 0) return a / b;
    const $T remainder = fmod$f(a, b);
    $T quotient = (a - remainder) / b;
    if (remainder != 0 && ((remainder < 0) != (b < 0))) quotient -= 1;
    if (quotient == 0) return copysign$f(($T)0, a / b);
    const $T down = floor$f(quotient);
    return quotient - down > ($T)0.5 ? down + 1 : down;
}""",
    # If an operand is NaN, so is the result.
    "minimum": """\
(a, b)
{
    const $T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}""",
    "maximum": """\
(a, b)
{
    const $T larger = b > a ? b : a;
    return b != b ? b : larger;
}""",
    # Zeros and NaN are returned as they are.
    "sign": """\
(x)
{
    return fabs$f(x) > 0 ? copysign$f(($T)1, x) : x;
}""",
    "hypot": """\
(a, b)
{
    const $T x = fabs$f(a), y = fabs$f(b), large = x > y ? x : y, small = x > y ? y : x;
    if (x == $infinity || y == $infinity) return $infinity;
    if (x != x || y != y) return x + y;
    if (large == 0 || small < large * 0x1p-60) return large;
    const $T ratio = small / large;
    return large * sqrt$f(1 + ratio * ratio);
}""",
}
_BY_KIND = {"signed": _SIGNED | _INTEGERS, "unsigned": _UNSIGNED | _INTEGERS, "float": _FLOATS}


def has_helper(dialect: Dialect, name: str, scalar: Scalar) -> bool:
    """Whether a helper function exists for a scalar type.

    >>> from livegrad.codegen.c.dialect import CUDA
    >>> from livegrad.ir.types import i32, u32
    >>> has_helper(CUDA, "lg_floor_div", i32), has_helper(CUDA, "lg_floor_div", u32)
    (True, False)
    """
    return name.removeprefix("lg_") in (dialect.helpers or _BY_KIND).get(scalar.kind, {})


def helper_functions(text: str, dialect: Dialect) -> list[str]:
    """The definitions of the helper functions that a text calls, each once, and before helpers that call it.

    >>> from livegrad.codegen.c.dialect import OPENCL
    >>> print(*helper_functions("y = lg_minimum_f32(a, b) + lg_minimum_f32(b, c);", OPENCL))
    float lg_minimum_f32(float a, float b)
    {
        const float smaller = b < a ? b : a;
        return b != b ? b : smaller;
    }
    """
    definitions: dict[tuple[str, str], str] = {}
    _define_calls(text, dialect, definitions)
    return list(definitions.values())


def _define_calls(text: str, dialect: Dialect, definitions: dict[tuple[str, str], str]) -> None:
    for name, type in dict.fromkeys(_CALL.findall(text)):
        if (name, type) not in definitions and type in SCALARS and has_helper(dialect, name, SCALARS[type]):
            definition = _define(name, SCALARS[type], dialect)
            _define_calls(definition.partition("\n")[2], dialect, definitions)
            definitions[name, type] = definition


def _define(name: str, scalar: Scalar, dialect: Dialect) -> str:
    type, is_double = dialect.scalar(scalar), scalar.bits == 64
    substitutions = {"T": type, "bits": str(scalar.bits), "wide": dialect.unsigned(64)}
    substitutions |= {word: text.format(T=type) for word, text in dialect.words.items()}
    if scalar.kind == "float":
        substitutions |= {"f": "" if is_double else dialect.float_suffix, "infinity": dialect.infinity[is_double]}
    else:
        substitutions |= {"unsigned": dialect.unsigned(scalar.bits), "wrapping": dialect.unsigned(max(scalar.bits, 32))}
    parameters, _, body = (dialect.helpers or _BY_KIND)[scalar.kind][name].partition("\n")
    names = [(type, parameter) for parameter in parameters.strip("()").split(", ")]
    head = dialect.function_head(type, f"lg_{name}_{scalar.name}", names)
    return f"{head}\n{Template(body).substitute(substitutions)}"
