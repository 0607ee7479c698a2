"""Elementwise ops as CUDA C: one expression for each, by the kind of number that it works on."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from livegrad.backends.cuda.values import Text, held_type, literal
from livegrad.backends.cuda.writer import Writer
from livegrad.diagnostics import CompileError
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, bf16, f16, f32, scalar_of
from livegrad.ops.elementwise import abs as absolute
from livegrad.ops.elementwise import add, mul, sub

Rule = Callable[[Writer, Node, list[Text]], str]

_MATH = (
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "atan2", "hypot", "pow", "fmod"),
    *("floor", "ceil", "trunc", "copysign"),
)
_COMPARISONS = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "bit_and": "&", "bit_or": "|", "bit_xor": "^"}


def has_rule(node: Node) -> bool:
    """Whether an elementwise op has code of its own here; any other is written out."""
    scalar = scalar_of(node.operands[-1].type)
    return scalar is not None and _rule(node.op.name, scalar) is not None


def write_elementwise(writer: Writer, node: Node, operands: list[Text]) -> Text:
    """One component of an elementwise op."""
    scalar, result = operands[-1].type, scalar_of(node.type)
    assert result is not None
    rule = _rule(node.op.name, scalar)
    if rule is None:
        raise CompileError(f"`{node.op.name}` has no CUDA C for {scalar}", where=node.origin)
    text = rule(writer, node, operands)
    if text == operands[0].text and result is operands[0].type:
        return operands[0]
    if result is f16 and node.op.name not in ("select", "cast", "nextafter"):
        text = f"lg_round_half({text})"
    return writer.value(text, result)


def _rule(name: str, scalar: Scalar) -> Rule | None:
    kind = scalar.kind
    if name in _ANY_KIND:
        return _ANY_KIND[name]
    if kind == "float" and scalar is not bf16:
        return _FLOATS.get(name)
    if kind in ("signed", "unsigned"):
        return _INTEGERS.get(name)
    return _TRUTHS.get(name) if kind == "bool" else None


def _template(text: str) -> Rule:
    return lambda writer, node, operands: text.format(*[operand.text for operand in operands])


def _math(name: str) -> Rule:
    def rule(writer: Writer, node: Node, operands: list[Text]) -> str:
        suffix = "" if operands[0].type.bits == 64 else "f"
        if name == "sqrt" and operands[0].type is f32:
            return f"lg_sqrt({operands[0].text})"
        if name == "hypot" and not suffix:
            return f"lg_hypot({operands[0].text}, {operands[1].text})"
        return f"{name}{suffix}({', '.join(operand.text for operand in operands)})"

    return rule


def _quotient(writer: Writer, node: Node, operands: list[Text]) -> str:
    """A division of floats. By a power of two it is a multiplication, which is exact where the division is."""
    value, divisor = operands
    below = node.operands[1]
    if below.op is constant_op and _has_exact_inverse(float(below.attribute("value")), divisor.type):
        return f"{value.text} * {literal(1.0 / float(below.attribute('value')), divisor.type)}"
    quick = divisor.type is f32 and node not in writer.exact_divisions
    return f"lg_div({value.text}, {divisor.text})" if quick else f"{value.text} / {divisor.text}"


def _has_exact_inverse(value: float, type: Scalar) -> bool:
    mantissa, exponent = math.frexp(value)
    return abs(mantissa) == 0.5 and -100 < exponent < 100 and type.bits >= 32


def _extreme(largest: bool) -> Rule:
    """Python's `max` or `min` of floats: the second operand is taken only when it compares higher (or lower).

    That is a comparison and a choice. Beside a constant it is one instruction, where the signs of zeros allow it: one
    that lets NaN through when the constant comes second, and the one that does not when it comes first.
    """
    name, symbol = ("max", ">") if largest else ("min", "<")

    def rule(writer: Writer, node: Node, operands: list[Text]) -> str:
        first, second = operands
        chosen = f"{second.text} {symbol} {first.text} ? {second.text} : {first.text}"
        if first.type is not f32:
            return chosen
        if writer.choices_pass_nan:
            return f"lg_{name}_or_nan({first.text}, {second.text})"
        known, other = node.operands
        if (number := _constant_of(other)) is not None:
            higher_zero = _is_zero(number, negative=not largest)  # it would win over the other zero
            if math.isnan(number) or (higher_zero and not (largest and is_never_negative_zero(known))):
                return chosen
            return f"lg_{name}_or_nan({first.text}, {second.text})"
        if (number := _constant_of(known)) is not None:
            lower_zero = _is_zero(number, negative=largest)
            return chosen if math.isnan(number) or lower_zero else f"f{name}f({first.text}, {second.text})"
        return chosen

    return rule


def _constant_of(node: Node) -> float | None:
    return float(node.attribute("value")) if node.op is constant_op else None


def _is_zero(number: float, negative: bool) -> bool:
    return number == 0.0 and (math.copysign(1.0, number) < 0) == negative


def is_never_negative_zero(node: Node) -> bool:
    """Whether a float cannot be -0: a sum is only if both terms are, and a difference only as -0 - 0.

    Fused with a product, a sum with a tiny number could be rounded to -0; with any other it is no zero or +0.
    """
    if node.op in (add, sub):
        first, second = map(_constant_of, node.operands)
        return any(number is not None and abs(number) > 1e-30 for number in (first, second))
    return node.op is absolute or (node.op is mul and node.operands[0] is node.operands[1])


def _sine_and_cosine(name: str) -> Rule:
    """Where both are taken of one operand, as in derivatives, one call gives them; it reduces the operand once."""

    def rule(writer: Writer, node: Node, operands: list[Text]) -> str:
        (operand,) = operands
        known = writer.pairs.get((name, operand.text))
        if known is not None:
            return known
        if operand.type is f32:
            writer.uses_waves = True
        prefix, suffix = ("lg_", "") if operand.type is f32 else ("", "" if operand.type.bits == 64 else "f")
        if node.operands[0] not in writer.paired or operand.type is f16:
            return f"{prefix}{name}{suffix}({operand.text})"
        sine, cosine = writer.name("sin"), writer.name("cos")
        writer.line(f"{held_type(operand.type)} {sine}, {cosine};")
        writer.line(f"{prefix}sincos{suffix}({operand.text}, &{sine}, &{cosine});")
        other = "cos" if name == "sin" else "sin"
        writer.pairs[other, operand.text] = cosine if name == "sin" else sine
        return sine if name == "sin" else cosine

    return rule


def _wrapped(symbol: str) -> Rule:
    """Integers wrap round: in C only the unsigned ones do."""

    def rule(writer: Writer, node: Node, operands: list[Text]) -> str:
        wide = "unsigned long long" if operands[0].type.bits == 64 else "unsigned int"
        terms = f" {symbol} ".join(f"({wide}){operand.text}" for operand in operands)
        return f"({held_type(operands[0].type)})({terms})"

    return rule


def _negated(writer: Writer, node: Node, operands: list[Text]) -> str:
    return f"({held_type(operands[0].type)})(0ULL - (unsigned long long){operands[0].text})"


def _absolute(writer: Writer, node: Node, operands: list[Text]) -> str:
    text = operands[0].text
    return (
        text if operands[0].type.kind == "unsigned" else f"({text} < 0 ? {_negated(writer, node, operands)} : {text})"
    )


def _divided(function: str) -> Rule:
    def rule(writer: Writer, node: Node, operands: list[Text]) -> str:
        value, divisor = operands
        bad = writer.condition(f"{divisor.text} == 0")
        writer.report(bad, "integer division by zero", node.origin)
        type = held_type(value.type)
        return f"{function}<{type}>({value.text}, {bad} ? ({type})1 : {divisor.text})"

    return rule


def _shifted(function: str) -> Rule:
    def rule(writer: Writer, node: Node, operands: list[Text]) -> str:
        unsigned = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}
        type = held_type(operands[0].type)
        return f"{function}<{unsigned[operands[0].type.bits]}, {type}>({operands[0].text}, {operands[1].text})"

    return rule


def _nextafter(writer: Writer, node: Node, operands: list[Text]) -> str:
    given = ", ".join(operand.text for operand in operands)
    if operands[0].type is f16:
        return f"lg_nextafter_half({given})"
    return f"{'nextafter' if operands[0].type.bits == 64 else 'nextafterf'}({given})"


def _cast(writer: Writer, node: Node, operands: list[Text]) -> str:
    return cast_text(writer, operands[0], node.attribute("type"), node)


def cast_text(writer: Writer, value: Text, target: Scalar, node: Node) -> str:
    """A cast between scalar types; what no integer can hold is reported."""
    source, text = value.type, value.text
    if source is target:
        return text
    if source is bf16 or target is bf16:
        if source is f32:
            return f"lg_to_bfloat({text})"
        if target is f32:
            return f"lg_from_bfloat({text})"
        raise CompileError(f"no way from {source} to {target}", where=node.origin, help="cast to f32 first")
    if target.kind == "bool":
        return f"({text} != 0)"
    if source.kind == "float" and target.kind != "float":
        return _float_to_integer(writer, value, target, node)
    if target is f16:
        # Integers that a float does not hold exactly are rounded once, from the double that holds more of them.
        return f"lg_round_half({text})" if source.kind == "float" else f"lg_round_half((double){text})"
    return f"({held_type(target)}){text}"


def _float_to_integer(writer: Writer, value: Text, target: Scalar, node: Node) -> str:
    low = -(2 ** (target.bits - 1)) if target.kind == "signed" else 0
    high = 2 ** (target.bits - 1 if target.kind == "signed" else target.bits)
    held = f32 if value.type is f16 else value.type
    # Everything above low - 1 truncates into range, if that number exists in the float type.
    below = held.dtype.type(low - 1)
    exact = bool(np.isfinite(below)) and int(below) == low - 1
    least = f"{value.text} > {literal(low - 1, held)}" if exact else f"{value.text} >= {literal(low, held)}"
    fits = writer.condition(f"{least} && {value.text} < {literal(high, held)}")
    writer.report(f"!{fits}", f"a value that no {target} can hold", node.origin)
    return f"({held_type(target)})({fits} ? {value.text} : 0)"


_ANY_KIND: dict[str, Rule] = {
    "cast": _cast,
    "detach": _template("{0}"),
    "select": _template("{0} ? {1} : {2}"),
}
_ORDERED: dict[str, Rule] = {
    **{name: _template(f"{{0}} {symbol} {{1}}") for name, symbol in _COMPARISONS.items()},
    "min": _template("{1} < {0} ? {1} : {0}"),
    "max": _template("{1} > {0} ? {1} : {0}"),
}
_FLOATS: dict[str, Rule] = {
    **_ORDERED,
    "min": _extreme(largest=False),
    "max": _extreme(largest=True),
    **{name: _math(name) for name in _MATH},
    **{name: _template(f"{{0}} {symbol} {{1}}") for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    "div": _quotient,
    "neg": _template("-{0}"),
    "abs": _math("fabs"),
    "round": _math("rint"),
    "sign": _template("lg_sign({0})"),
    "is_nan": _template("{0} != {0}"),
    "minimum": _template("lg_minimum({0}, {1})"),
    "maximum": _template("lg_maximum({0}, {1})"),
    "nextafter": _nextafter,
    "sin": _sine_and_cosine("sin"),
    "cos": _sine_and_cosine("cos"),
    "floor_div": _template("lg_floor_quotient({0}, {1})"),
}
_INTEGERS: dict[str, Rule] = {
    **_ORDERED,
    **{name: _wrapped(symbol) for name, symbol in _ARITHMETIC.items()},
    "minimum": _ORDERED["min"],
    "maximum": _ORDERED["max"],
    "neg": _negated,
    "abs": _absolute,
    "bit_not": lambda writer, node, operands: f"({held_type(operands[0].type)})(~{operands[0].text})",
    "floor_div": _divided("lg_floor_div"),
    "mod": _divided("lg_floor_mod"),
    "shift_left": _shifted("lg_shift_left"),
    "shift_right": _shifted("lg_shift_right"),
}
_TRUTHS: dict[str, Rule] = {
    **{name: _template(f"{{0}} {symbol} {{1}}") for name, symbol in _COMPARISONS.items()},
    "bit_and": _template("{0} && {1}"),
    "bit_or": _template("{0} || {1}"),
    "bit_xor": _template("{0} != {1}"),
    "bit_not": _template("!{0}"),
}
