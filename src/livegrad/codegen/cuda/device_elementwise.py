"""Elementwise ops for which the kernels of plans use fewer instructions than `codegen/c`, where the operands allow it.

`kernel_writer.py` tries these first; all other ops are emitted from their records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from livegrad.codegen.c.expressions import applied
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, f16, f32, f64, scalar_of
from livegrad.ops.elementwise import abs as absolute
from livegrad.ops.elementwise import add, mul, sub

if TYPE_CHECKING:
    from livegrad.codegen.cuda.kernel_writer import KernelWriter

_NEED_NO_ROUNDING = frozenset({"select", "nextafter"})  # their results are halves already


def kernel_expression(writer: KernelWriter, node: Node, operands: Sequence[str]) -> str:
    """One component of an elementwise op; a half is rounded after every operation."""
    scalar, result = scalar_of(node.operands[-1].type), scalar_of(node.type)
    assert scalar is not None
    rule = _RULES.get(node.op.name) if scalar.kind == "float" else None
    text = rule(writer, node, scalar, operands) if rule else applied(KERNELS, node.op, scalar, operands)
    return rounded_half(text) if result is f16 and node.op.name not in _NEED_NO_ROUNDING else text


def rounded_half(text: str) -> str:
    """A float as the nearest half."""
    return f"lg_round_half({without_parentheses(text)})"


def without_parentheses(text: str) -> str:
    """An expression without the parentheses around all of it.

    >>> without_parentheses("(a + b)"), without_parentheses("(a + b) * (c)"), without_parentheses("(int)a")
    ('a + b', '(a + b) * (c)', '(int)a')
    """
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for character in text[1:-1]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return text
    return text[1:-1]


def _quotient(writer: KernelWriter, node: Node, scalar: Scalar, operands: Sequence[str]) -> str:
    """A division of floats. By a power of two it is a multiplication, which is exact where the division is."""
    divisor = _constant_of(node.operands[1])
    if divisor is not None and _has_exact_inverse(divisor, scalar):
        return applied(KERNELS, mul, scalar, [operands[0], KERNELS.literal(1.0 / divisor, scalar)])
    quick = scalar is f32 and node not in writer.exact_divisions
    return "lg_div({}, {})".format(*operands) if quick else applied(KERNELS, node.op, scalar, operands)


def _has_exact_inverse(value: float, type: Scalar) -> bool:
    mantissa, exponent = math.frexp(value)
    return abs(mantissa) == 0.5 and -100 < exponent < 100 and type.bits >= 32


def _extreme(writer: KernelWriter, node: Node, scalar: Scalar, operands: Sequence[str]) -> str:
    """Python's `max` or `min` of floats: the second operand is taken only when it compares higher (or lower).

    That is a comparison and a choice. Beside a constant it is one instruction, where the signs of zeros allow it: one
    that lets NaN through when the constant comes second, and the one that does not when it comes first.
    """
    name, largest = node.op.name, node.op.name == "max"
    chosen = applied(KERNELS, node.op, scalar, operands)
    passing_nan = "lg_{}_or_nan({}, {})".format(name, *operands)
    if scalar is not f32:
        return chosen
    if writer.choices_pass_nan:
        return passing_nan
    first, other = node.operands
    if (number := _constant_of(other)) is not None:
        higher_zero = _is_zero(number, negative=not largest)  # it would win over the other zero
        needs_choice = math.isnan(number) or (higher_zero and not (largest and is_never_negative_zero(first)))
        return chosen if needs_choice else passing_nan
    if (number := _constant_of(first)) is not None:
        lower_zero = _is_zero(number, negative=largest)
        return chosen if math.isnan(number) or lower_zero else "f{}f({}, {})".format(name, *operands)
    return chosen


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


def _sine_or_cosine(writer: KernelWriter, node: Node, scalar: Scalar, operands: Sequence[str]) -> str:
    """Where both are taken of one operand, as in derivatives, one call gives them; it reduces the operand once."""
    (operand,) = operands
    both = {f32: "lg_sincos", f64: "sincos"}.get(scalar)
    if both is None or node.operands[0] not in writer.paired:
        return applied(KERNELS, node.op, scalar, operands)
    if operand not in writer.pairs:
        pair = {"sin": writer.name("sin"), "cos": writer.name("cos")}
        writer.line(f"{KERNELS.scalar(scalar)} {pair['sin']}, {pair['cos']};")
        writer.line(f"{both}({operand}, &{pair['sin']}, &{pair['cos']});")
        writer.pairs[operand] = pair
    return writer.pairs[operand][node.op.name]


_RULES: dict[str, Callable[[KernelWriter, Node, Scalar, Sequence[str]], str]] = {
    "div": _quotient,
    "min": _extreme,
    "max": _extreme,
    "sin": _sine_or_cosine,
    "cos": _sine_or_cosine,
}
