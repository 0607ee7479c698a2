"""Elementwise ops as CUDA C: one expression for each, by the kind of number that it works on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from livegrad.backends.cuda.values import Text, held_type, literal
from livegrad.backends.cuda.writer import Writer
from livegrad.diagnostics import CompileError
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, bf16, f16, f32, scalar_of

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
        if name == "hypot" and not suffix:
            return f"lg_hypot({operands[0].text}, {operands[1].text})"
        return f"{name}{suffix}({', '.join(operand.text for operand in operands)})"

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
    **{name: _math(name) for name in _MATH},
    **{name: _template(f"{{0}} {symbol} {{1}}") for name, symbol in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    "div": _template("{0} / {1}"),
    "neg": _template("-{0}"),
    "abs": _math("fabs"),
    "round": _math("rint"),
    "sign": _template("lg_sign({0})"),
    "is_nan": _template("{0} != {0}"),
    "minimum": _template("lg_minimum({0}, {1})"),
    "maximum": _template("lg_maximum({0}, {1})"),
    "nextafter": _nextafter,
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
