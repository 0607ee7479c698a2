"""Scalar functions that the languages of shaders lack or leave undefined for some operands.

One text serves GLSL and WGSL: `$let` declares a local name of the type of the function and `$unsigned_let` an unsigned
one, `$word` has the bits of a float and `$real` the float of some bits. `helpers.py` has the templates of C. Compilers
of shaders may assume that there is no NaN, so tests for NaN look at bits.
"""

from __future__ import annotations

_NAN = "($word({0}) & 0x7fffffffu) > 0x7f800000u"
_COPY_SIGN = "$real(($word({0}) & 0x7fffffffu) | ($word({1}) & 0x80000000u))"

_SIGNED = {
    "floor_div": """\
(a, b)
{
    if (b == -1) { return -a; }
    $let quotient = a / b;
    $let remainder = a - quotient * b;
    if (remainder != 0 && ((remainder < 0) != (b < 0))) { return quotient - 1; }
    return quotient;
}""",
    "mod": """\
(a, b)
{
    if (b == -1) { return 0; }
    $let remainder = a - a / b * b;
    if (remainder != 0 && ((remainder < 0) != (b < 0))) { return remainder + b; }
    return remainder;
}""",
    "shift_right": """\
(a, count)
{
    if ($unsigned(count) < 32u) { return a >> $unsigned(count); }
    return a >> 31u;
}""",
}
_INTEGERS = {
    "shift_left": """\
(a, count)
{
    if ($unsigned(count) < 32u) { return a << $unsigned(count); }
    return $T(0);
}""",
}
_UNSIGNED = {
    "shift_right": """\
(a, count)
{
    if (count < 32u) { return a >> count; }
    return 0u;
}""",
}
_COMPARISONS = {
    # If an operand is NaN, so is the result.
    "minimum": f"""\
(a, b)
{{
    if (b < a || {_NAN.format("b")}) {{ return b; }}
    return a;
}}""",
    "maximum": f"""\
(a, b)
{{
    if (b > a || {_NAN.format("b")}) {{ return b; }}
    return a;
}}""",
    # Zeros and NaN are returned as they are.
    "sign": """\
(x)
{
    if (x > 0.0) { return 1.0; }
    if (x < 0.0) { return -1.0; }
    return x;
}""",
    "nextafter": """\
(a, b)
{
    if (($word(a) & 0x7fffffffu) > 0x7f800000u) { return a; }
    if (($word(b) & 0x7fffffffu) > 0x7f800000u || a == b) { return b; }
    if (a == 0.0) { return $real(1u | ($word(b) & 0x80000000u)); }
    if ((a < b) == (a > 0.0)) { return $real($word(a) + 1u); }
    return $real($word(a) - 1u);
}""",
}
_DIVISIONS = {
    # Every difference is exact, as in a long division; the quotient itself may not be a float.
    "fmod": f"""\
(a, b)
{{
    $let divisor = abs(b);
    $var rest = abs(a);
    if ({_NAN.format("a")} || {_NAN.format("b")} || divisor == 0.0 || rest == $infinity) {{ return $nan; }}
    if (divisor == $infinity) {{ return a; }}
    $var part = divisor;
    while (part <= 0.5 * rest) {{ part = part * 2.0; }}
    while (part >= divisor)
    {{
        if (rest >= part) {{ rest = rest - part; }}
        part = part * 0.5;
    }}
    return {_COPY_SIGN.format("rest", "a")};
}}""",
    # As NumPy divides: from the exact remainder, so that the quotient is never off by one.
    "floor_div": """\
(a, b)
{
    if (b == 0.0) { return a / b; }
    $let remainder = lg_fmod_f32(a, b);
    $var quotient = (a - remainder) / b;
    if (remainder != 0.0 && ((remainder < 0.0) != (b < 0.0))) { quotient = quotient - 1.0; }
    if (quotient == 0.0) { return $real($word(a / b) & 0x80000000u); }
    $let down = floor(quotient);
    if (quotient - down > 0.5) { return down + 1.0; }
    return down;
}""",
    "hypot": """\
(a, b)
{
    $let large = max(abs(a), abs(b));
    $let small = min(abs(a), abs(b));
    if (abs(a) == $infinity || abs(b) == $infinity) { return $infinity; }
    if (($word(a) & 0x7fffffffu) > 0x7f800000u) { return a; }
    if (($word(b) & 0x7fffffffu) > 0x7f800000u) { return b; }
    if (large == 0.0) { return large; }
    $let ratio = small / large;
    return large * sqrt(1.0 + ratio * ratio);
}""",
}
_LOGARITHM = """\
(x)
{{
    if (x == 0.0) {{ return -$infinity; }}
    if (x < 0.0) {{ return $nan; }}
    return {0};
}}"""
_POWERS = {
    "log": _LOGARITHM.format("log(x)"),
    "log2": _LOGARITHM.format("log2(x)"),
    "log10": _LOGARITHM.format("log(x) * 0.43429448"),
    "pow": f"""\
(a, b)
{{
    if (b == 0.0 || a == 1.0) {{ return 1.0; }}
    if (b == 1.0 || {_NAN.format("a")}) {{ return a; }}
    if ({_NAN.format("b")}) {{ return b; }}
    $let magnitude = abs(a);
    $var power = 1.0f;
    if (magnitude == 0.0 || magnitude == $infinity)
    {{
        power = 0.0;
        if ((magnitude == 0.0) == (b < 0.0)) {{ power = $infinity; }}
    }}
    else if (magnitude != 1.0) {{ power = pow(magnitude, b); }}
    if (($word(a) & 0x80000000u) == 0u) {{ return power; }}
    if (abs(b) == $infinity) {{ return power; }}
    if (floor(b) != b)
    {{
        if (magnitude == 0.0 || magnitude == $infinity) {{ return power; }}
        return $nan;
    }}
    if (floor(b * 0.5) * 2.0 != b) {{ return -power; }}
    return power;
}}""",
    "cbrt": """\
(x)
{
    if (!(abs(x) > 0.0 && abs(x) < $infinity)) { return x; }
    $let root = pow(abs(x), 0.33333333);
    $let better = root - (root - abs(x) / (root * root)) / 3.0;
    if (x < 0.0) { return -better; }
    return better;
}""",
    "expm1": """\
(x)
{
    if (abs(x) >= 0.5) { return exp(x) - 1.0; }
    if (x == 0.0) { return x; }
    $let last = 1.0 + x / 6.0 * (1.0 + x / 7.0 * (1.0 + x / 8.0));
    return x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * last))));
}""",
    "log1p": """\
(x)
{
    if (!(abs(x) < 0.5)) { return log(1.0 + x); }
    if (x == 0.0) { return x; }
    $let s = x / (2.0 + x);
    $let z = s * s;
    $let tail = z * (0.14285714 + z * (0.11111111 + z * (0.09090909 + z * (0.07692308 + z * 0.06666667))));
    return 2.0 * s * (1.0 + z * (0.33333333 + z * (0.2 + tail)));
}""",
}
_HYPERBOLIC = {
    "sinh": """\
(x)
{
    if (($word(x) & 0x7fffffffu) > 0x7f800000u) { return x; }
    $let a = abs(x);
    $let e = lg_expm1_f32(min(a, 80.0));
    $let half_power = exp(0.5 * a);
    $var y = 0.5 * (e + e / (e + 1.0));
    if (a > 80.0) { y = 0.5 * half_power * half_power; }
    return $real($word(y) | ($word(x) & 0x80000000u));
}""",
    "cosh": """\
(x)
{
    $let half_power = exp(0.5 * abs(x));
    if (abs(x) > 80.0) { return 0.5 * half_power * half_power; }
    return 0.5 * exp(x) + 0.5 * exp(-x);
}""",
    "tanh": f"""\
(x)
{{
    if ({_NAN.format("x")}) {{ return x; }}
    $let e = lg_expm1_f32(2.0 * min(abs(x), 20.0));
    $let y = e / (e + 2.0);
    return {_COPY_SIGN.format("y", "x")};
}}""",
    "asinh": """\
(x)
{
    $let a = abs(x);
    if (a == 0.0) { return x; }
    $var y = log(a) + 0.69314718;
    if (a < 1.0e9) { y = lg_log1p_f32(a + a * a / (1.0 + sqrt(a * a + 1.0))); }
    return $real($word(y) | ($word(x) & 0x80000000u));
}""",
    "acosh": """\
(x)
{
    $let t = x - 1.0;
    if (x < 1.0 || ($word(x) & 0x7fffffffu) > 0x7f800000u) { return $nan; }
    if (x > 1.0e9) { return log(x) + 0.69314718; }
    return lg_log1p_f32(t + sqrt(2.0 * t + t * t));
}""",
    "atanh": """\
(x)
{
    $let a = abs(x);
    if (a > 1.0 || ($word(x) & 0x7fffffffu) > 0x7f800000u) { return $nan; }
    if (a == 1.0) { return $real(0x7f800000u | ($word(x) & 0x80000000u)); }
    $let y = 0.5 * lg_log1p_f32(2.0 * a / (1.0 - a));
    return $real($word(y) | ($word(x) & 0x80000000u));
}""",
}
_ANGLES = {
    "atan": """\
(x)
{
    $let a = abs(x);
    $var start = 0.0f;
    $var t = a;
    if (a > 2.4142136) { start = 1.5707963; t = -1.0 / a; }
    else if (a > 0.41421357) { start = 0.78539816; t = (a - 1.0) / (a + 1.0); }
    $let z = t * t;
    $let tail = ((0.080537446 * z - 0.13877685) * z + 0.19977711) * z - 0.33332950;
    $let y = start + (tail * z * t + t);
    return $real($word(y) | ($word(x) & 0x80000000u));
}""",
    "atan2": f"""\
(y, x)
{{
    if ({_NAN.format("x")}) {{ return x; }}
    if ({_NAN.format("y")}) {{ return y; }}
    $var across = abs(x);
    $var up = abs(y);
    if (across == $infinity && up == $infinity) {{ across = 1.0; up = 1.0; }}
    $var angle = 0.0f;
    if (up > across) {{ angle = 1.5707963 - lg_atan_f32(across / up); }}
    else if (across > 0.0) {{ angle = lg_atan_f32(up / across); }}
    if (($word(x) & 0x80000000u) != 0u) {{ angle = 3.1415927 - angle; }}
    return {_COPY_SIGN.format("angle", "y")};
}}""",
    "asin": f"""\
(x)
{{
    $let a = abs(x);
    if (a > 1.0) {{ return $nan; }}
    $let y = lg_atan2_f32(a, sqrt((1.0 - a) * (1.0 + a)));
    return {_COPY_SIGN.format("y", "x")};
}}""",
    "acos": """\
(x)
{
    if (abs(x) > 1.0) { return $nan; }
    return lg_atan2_f32(sqrt((1.0 - x) * (1.0 + x)), x);
}""",
}
_ERROR_FUNCTION = {
    "erf": f"""\
(x)
{{
    if ({_NAN.format("x")}) {{ return x; }}
    $let t = min(abs(x), 10.0);
    $let s = t * t;
    $let near = 0.12837917 + s * (-0.37612534 + s * (0.11281993 + s * (-0.026768135 + s * (0.0049911942
        - s * 0.00059676170))));
    if (t <= 0.92773438) {{ return x + x * near; }}
    $let far = (0.00038319713 - 0.000017285347 * t) * s + (0.024254622 - 0.0038839644 * t);
    $let exponent = ((far * t - 0.10677788) * t - 0.63484669) * t - 0.12871751;
    $let y = 1.0 - exp(exponent * t - t);
    return {_COPY_SIGN.format("y", "x")};
}}""",
}
SHADER_HELPERS = {
    "signed": _SIGNED | _INTEGERS,
    "unsigned": _UNSIGNED | _INTEGERS,
    "float": _COMPARISONS | _DIVISIONS | _POWERS | _HYPERBOLIC | _ANGLES | _ERROR_FUNCTION,
}
