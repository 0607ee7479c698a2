"""Emits elementwise ops with fewer instructions than `codegen/c`, where the operands allow it.

`kernel_writer.py` tries these rules first; all other ops are emitted from their records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from livegrad.codegen.c.expressions import apply_op
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, f16, f32, f64, scalar_of
from livegrad.ops.elementwise import abs as absolute
from livegrad.ops.elementwise import add, mul, sub

if TYPE_CHECKING:
    from livegrad.codegen.cuda.kernel_writer import KernelWriter

_EXACT_IN_HALF = frozenset({"select", "nextafter"})  # ops whose results are halves already


def kernel_expression(writer: KernelWriter, node: Node, operands: Sequence[str]) -> str:
    """One component of an elementwise op; results in half precision are rounded after every operation."""
    scalar, result = scalar_of(node.operands[-1].type), scalar_of(node.type)
    assert scalar is not None
    rule = _RULES.get(node.op.name) if scalar.kind == "float" else None
    text = rule(writer, node, scalar, operands) if rule else apply_op(KERNELS, node.op, scalar, operands)
    return round_to_half(text) if result is f16 and node.op.name not in _EXACT_IN_HALF else text


def round_to_half(text: str) -> str:
    """A float rounded to the nearest half."""
    return f"lg_round_half({without_parentheses(text)})"


def without_parentheses(text: str) -> str:
    """An expression without its outermost parentheses, if they enclose all of it.

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
    """A division of floats. Division by a power of two is a multiplication, which is as exact."""
    divisor = _constant_of(node.operands[1])
    if divisor is not None and _has_exact_inverse(divisor, scalar):
        return apply_op(KERNELS, mul, scalar, [operands[0], KERNELS.literal(1.0 / divisor, scalar)])
    approximate = scalar is f32 and node not in writer.exact_divisions
    return "lg_div({}, {})".format(*operands) if approximate else apply_op(KERNELS, node.op, scalar, operands)


def _has_exact_inverse(value: float, type: Scalar) -> bool:
    mantissa, exponent = math.frexp(value)
    return abs(mantissa) == 0.5 and -100 < exponent < 100 and type.bits >= 32


def _extreme(writer: KernelWriter, node: Node, scalar: Scalar, operands: Sequence[str]) -> str:
    """Python's `max` or `min` of floats: the second operand is selected only if it compares higher (or lower).

    In general that is a comparison and a select. With a constant operand, it is one instruction if the signs of zeros
    allow it: the one that propagates NaN if the constant is second, the one that ignores NaN if it is first.
    """
    name, largest = node.op.name, node.op.name == "max"
    selected = apply_op(KERNELS, node.op, scalar, operands)
    propagating_nan = "lg_{}_or_nan({}, {})".format(name, *operands)
    if scalar is not f32:
        return selected
    if writer.minmax_propagates_nan:
        return propagating_nan
    first, second = node.operands
    if (number := _constant_of(second)) is not None:
        higher_zero = _is_zero(number, negative=not largest)  # the instruction would prefer it to the other zero
        needs_select = math.isnan(number) or (higher_zero and not (largest and is_never_negative_zero(first)))
        return selected if needs_select else propagating_nan
    if (number := _constant_of(first)) is not None:
        lower_zero = _is_zero(number, negative=largest)
        return selected if math.isnan(number) or lower_zero else "f{}f({}, {})".format(name, *operands)
    return selected


def _constant_of(node: Node) -> float | None:
    return float(node.attribute("value")) if node.op is constant_op else None


def _is_zero(number: float, negative: bool) -> bool:
    return number == 0.0 and (math.copysign(1.0, number) < 0) == negative


def is_never_negative_zero(node: Node) -> bool:
    """Whether a float cannot be -0. A sum is -0 only if both terms are, and a difference only for -0 - 0.

    Fused with a product, a sum with a tiny constant could be rounded to -0; with other constants it is nonzero or +0.
    """
    if node.op in (add, sub):
        first, second = map(_constant_of, node.operands)
        return any(number is not None and abs(number) > 1e-30 for number in (first, second))
    return node.op is absolute or (node.op is mul and node.operands[0] is node.operands[1])


def _sine_or_cosine(writer: KernelWriter, node: Node, scalar: Scalar, operands: Sequence[str]) -> str:
    """If code needs both of one operand, as derivatives do, one call computes them and reduces the operand once."""
    (operand,) = operands
    sincos = {f32: "lg_sincos", f64: "sincos"}.get(scalar)
    if sincos is None or node.operands[0] not in writer.sincos_operands:
        return apply_op(KERNELS, node.op, scalar, operands)
    if operand not in writer.sincos_names:
        names = {"sin": writer.name("sin"), "cos": writer.name("cos")}
        writer.line(f"{KERNELS.scalar(scalar)} {names['sin']}, {names['cos']};")
        writer.line(f"{sincos}({operand}, &{names['sin']}, &{names['cos']});")
        writer.sincos_names[operand] = names
    return writer.sincos_names[operand][node.op.name]


_RULES: dict[str, Callable[[KernelWriter, Node, Scalar, Sequence[str]], str]] = {
    "div": _quotient,
    "min": _extreme,
    "max": _extreme,
    "sin": _sine_or_cosine,
    "cos": _sine_or_cosine,
}
