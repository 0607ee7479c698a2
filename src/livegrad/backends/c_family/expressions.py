"""Elementwise ops as C: an expression over scalars, by the kind of number that it works on.

An op's own `code` says it for floats; integers wrap round and truth values are what they are in the table here.
`body` writes the checks that some of them need.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from livegrad.backends.c_family.types import Types
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, f32, scalar_of

Rule = Callable[[Types, Scalar, Sequence[str]], str]

_CALL = re.compile(r"([a-z0-9]+)(\(.*\))")
_COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
_ANY_KIND = _COMPARISONS | {"select", "min", "max", "detach"}
_SAME_FOR_FLOATS = frozenset({"add", "sub", "mul", "div", "neg"})
_FLOATS = {
    "is_nan": "({0} != {0})",
    "minimum": "({1} != {1} ? {1} : ({1} < {0} ? {1} : {0}))",
    "maximum": "({1} != {1} ? {1} : ({1} > {0} ? {1} : {0}))",
}
_TRUTHS = {
    "bit_and": "({0} && {1})", "bit_or": "({0} || {1})", "bit_xor": "({0} != {1})", "bit_not": "(!{0})",
}  # fmt: skip
# These mean other things in C.
_WRITTEN_OUT = frozenset({"clamp", "is_infinite", "is_finite", "signbit", "rsqrt", "normalize"})


def template(node: Node) -> str | None:
    """The op's C over floats, or over anything where the kind makes no difference."""
    name, code = node.op.name, node.op.code
    if name in _FLOATS:
        return _FLOATS[name]
    return None if code is None or "lg_" in code or name in _WRITTEN_OUT else code


def has_expression(node: Node) -> bool:
    """Whether an elementwise op is written as one expression here; any other must be expanded."""
    kind = _kind(node)
    name = node.op.name
    if name in _ANY_KIND or name == "cast":
        return True
    if kind == "float":
        return template(node) is not None
    return name in (_TRUTHS if kind == "bool" else _INTEGERS)


def expression(types: Types, node: Node, operands: Sequence[str]) -> str:
    """One component of an elementwise op, without the checks that integers need."""
    scalar = scalar_of(node.operands[-1].type)
    assert scalar is not None
    name, kind = node.op.name, scalar.kind
    if name not in _ANY_KIND and kind == "bool":
        return _TRUTHS[name].format(*operands)
    if name not in _ANY_KIND and kind in ("signed", "unsigned"):
        return _INTEGERS[name](types, scalar, operands)
    text = template(node)
    assert text is not None
    return single_precision(types, text, scalar).format(*operands)


def single_precision(types: Types, text: str, scalar: Scalar) -> str:
    """A call by the name that it has for this type of float."""
    match = _CALL.fullmatch(text)
    if match is None or scalar is not f32:
        return text
    return f"{match[1]}{types.dialect.float_suffix}{match[2]}"


def takes_whole_vectors(types: Types, node: Node) -> bool:
    """Whether the expression of one component is that of the whole, too."""
    if node.op.name == "select":
        return not scalar_of(node.operands[0].type) or isinstance(node.operands[0].type, Scalar)
    kinds = {operand.type for operand in node.operands}
    if not types.dialect.whole_vectors or kinds != {node.type} or not types.is_vector(node.type):
        return False
    code = node.op.code or ""
    is_call = _CALL.fullmatch(code) is not None and node.op.name not in _FLOATS
    return _kind(node) == "float" and (node.op.name in _SAME_FOR_FLOATS or is_call)


def _kind(node: Node) -> str | None:
    scalar = scalar_of(node.operands[-1].type) if node.operands else None
    return None if scalar is None else scalar.kind


# --- integers --------------------------------------------------------------------------------------------------------


def _wrapped(symbol: str) -> Rule:
    """Integers wrap round: in C only the unsigned ones do."""

    def rule(types: Types, scalar: Scalar, operands: Sequence[str]) -> str:
        wide = types.dialect.unsigned[max(scalar.bits, 32)]
        if scalar.kind == "unsigned" and scalar.bits >= 32:
            return f"({f' {symbol} '.join(operands)})"
        terms = f" {symbol} ".join(f"({wide}){operand}" for operand in operands)
        return f"(({types.name(scalar)})({terms}))"

    return rule


def _bitwise(symbol: str) -> Rule:
    return lambda types, scalar, operands: f"(({types.name(scalar)})({f' {symbol} '.join(operands)}))"


def _negated(types: Types, scalar: Scalar, operands: Sequence[str]) -> str:
    return f"(({types.name(scalar)})(0 - ({types.dialect.unsigned[max(scalar.bits, 32)]}){operands[0]}))"


def _absolute(types: Types, scalar: Scalar, operands: Sequence[str]) -> str:
    if scalar.kind == "unsigned":
        return operands[0]
    return f"({operands[0]} < 0 ? {_negated(types, scalar, operands)} : {operands[0]})"


def _floor_division(types: Types, scalar: Scalar, operands: Sequence[str]) -> str:
    """Rounded down; the lowest number by -1, which C leaves open, wraps round."""
    a, b = operands
    if scalar.kind == "unsigned":
        return f"(({types.name(scalar)})({a} / {b}))"
    down = f"(({types.name(scalar)})({a} / {b} - (({a} % {b} != 0) && (({a} < 0) != ({b} < 0)))))"
    return f"({b} == -1 ? {_negated(types, scalar, [a])} : {down})"


def _floor_remainder(types: Types, scalar: Scalar, operands: Sequence[str]) -> str:
    a, b = operands
    if scalar.kind == "unsigned":
        return f"(({types.name(scalar)})({a} % {b}))"
    moved = f"{a} % {b} + ((({a} % {b} != 0) && (({a} < 0) != ({b} < 0))) ? {b} : 0)"
    return f"({b} == -1 ? 0 : (({types.name(scalar)})({moved})))"


def _shifted_left(types: Types, scalar: Scalar, operands: Sequence[str]) -> str:
    """A count outside 0..bits-1 shifts everything out."""
    a, count = operands
    wide = types.dialect.unsigned[64]
    return f"(({wide}){count} < {scalar.bits} ? (({types.name(scalar)})(({wide}){a} << (int){count})) : 0)"


def _shifted_right(types: Types, scalar: Scalar, operands: Sequence[str]) -> str:
    a, count = operands
    rest = "0" if scalar.kind == "unsigned" else f"({a} < 0 ? -1 : 0)"
    within = f"({types.dialect.unsigned[64]}){count} < {scalar.bits}"
    return f"(({types.name(scalar)})({within} ? {a} >> (int){count} : {rest}))"


_INTEGERS: dict[str, Rule] = {
    "add": _wrapped("+"),
    "sub": _wrapped("-"),
    "mul": _wrapped("*"),
    "bit_and": _bitwise("&"),
    "bit_or": _bitwise("|"),
    "bit_xor": _bitwise("^"),
    "bit_not": lambda types, scalar, operands: f"(({types.name(scalar)})(~{operands[0]}))",
    "neg": _negated,
    "abs": _absolute,
    "minimum": lambda types, scalar, operands: "({1} < {0} ? {1} : {0})".format(*operands),
    "maximum": lambda types, scalar, operands: "({1} > {0} ? {1} : {0})".format(*operands),
    "floor_div": _floor_division,
    "mod": _floor_remainder,
    "shift_left": _shifted_left,
    "shift_right": _shifted_right,
}


# --- casts -----------------------------------------------------------------------------------------------------------


def cast(types: Types, text: str, source: Scalar, target: Scalar) -> str:
    """A cast between types of numbers."""
    if source is target:
        return text
    return f"({text} != 0)" if target.kind == "bool" else f"(({types.name(target)}){text})"


def fits(types: Types, text: str, source: Scalar, target: Scalar) -> str | None:
    """The condition that an integer type can hold a float, or None where every value fits."""
    if source.kind != "float" or target.kind not in ("signed", "unsigned"):
        return None
    low = -(2 ** (target.bits - 1)) if target.kind == "signed" else 0
    high = 2 ** (target.bits - 1 if target.kind == "signed" else target.bits)
    # Everything above low - 1 truncates into range, if that number exists in the float type.
    below = source.dtype.type(low - 1)
    exact = bool(np.isfinite(below)) and int(below) == low - 1
    bound = f"> {types.literal(float(low - 1), source)}" if exact else f">= {types.literal(float(low), source)}"
    return f"({text} {bound} && {text} < {types.literal(float(high), source)})"
