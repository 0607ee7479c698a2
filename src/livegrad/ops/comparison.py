"""Comparison, logic and bitwise ops: elementwise ops without derivatives.

One record per op. Operands have the same type; there is no promotion or broadcasting here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import scalar_of
from livegrad.ops.conversion import imag, real
from livegrad.ops.rules import ANY, BITS, INEXACT, INTEGERS, REALS, predicate, same, zero_tangent


def _flat(name: str, *, type_of: Any, evaluate: Any, **more: Any) -> Op:
    """An elementwise op without a derivative."""
    return Op(
        name, type_of=type_of, evaluate=evaluate, jvp=zero_tangent, elementwise=True, differentiable=False, **more,
    )  # fmt: skip


# --- comparison ----------------------------------------------------------------------------------------------------


def _comparison(name: str, function: Any, symbol: str, float_code: str, signed: str, unsigned: str, kinds: Any) -> Op:
    return _flat(
        name,
        type_of=predicate(2, kinds),
        evaluate=function,
        code=f"({{0}} {symbol} {{1}})",
        llvm={
            "float": f"fcmp {float_code} {{T}} {{0}}, {{1}}",
            "signed": f"icmp {signed} {{T}} {{0}}, {{1}}",
            "unsigned": f"icmp {unsigned} {{T}} {{0}}, {{1}}",
            "bool": f"icmp {unsigned} {{T}} {{0}}, {{1}}",
        },
    )


def _of_parts(x: Node, test: Callable[[Node], Node], join: Callable[[Node, Node], Node]) -> Node:
    """A predicate on a number. Complex numbers are tested by parts, because their magnitude may overflow."""
    scalar = scalar_of(x.type)
    return join(test(real(x)), test(imag(x))) if scalar is not None and scalar.kind == "complex" else test(x)


equal = _comparison("equal", np.equal, "==", "oeq", "eq", "eq", ANY)
not_equal = _comparison("not_equal", np.not_equal, "!=", "une", "ne", "ne", ANY)
less = _comparison("less", np.less, "<", "olt", "slt", "ult", REALS)
less_equal = _comparison("less_equal", np.less_equal, "<=", "ole", "sle", "ule", REALS)
greater = _comparison("greater", np.greater, ">", "ogt", "sgt", "ugt", REALS)
greater_equal = _comparison("greater_equal", np.greater_equal, ">=", "oge", "sge", "uge", REALS)
is_nan = _flat(
    "is_nan",
    type_of=predicate(1, INEXACT),
    evaluate=np.isnan,
    code="({0} != {0})",
    llvm={"float": "fcmp uno {T} {0}, {0}"},
)
is_infinite = _flat(
    "is_infinite",
    type_of=predicate(1, INEXACT),
    evaluate=np.isinf,
    expand=lambda y: _of_parts(
        y.operands[0], lambda part: equal(abs(part), float("inf")), lambda re, im: bit_or(re, im)
    ),
)
is_finite = _flat(
    "is_finite",
    type_of=predicate(1, INEXACT),
    evaluate=np.isfinite,
    expand=lambda y: _of_parts(y.operands[0], lambda part: abs(part) < float("inf"), lambda re, im: bit_and(re, im)),
)

# --- logic and bits ------------------------------------------------------------------------------------------------


def _bitwise(name: str, function: Any, symbol: str, instruction: str) -> Op:
    text = f"{instruction} {{T}} {{0}}, {{1}}"
    return _flat(
        name,
        type_of=same(2, BITS),
        evaluate=function,
        code=f"({{0}} {symbol} {{1}})",
        llvm={"bool": text, "signed": text, "unsigned": text},
    )


bit_and = _bitwise("bit_and", np.bitwise_and, "&", "and")
bit_or = _bitwise("bit_or", np.bitwise_or, "|", "or")
bit_xor = _bitwise("bit_xor", np.bitwise_xor, "^", "xor")
bit_not = _flat(
    "bit_not",
    type_of=same(1, BITS),
    evaluate=np.invert,
    code="(~{0})",
    llvm=dict.fromkeys(BITS, "xor {T} {0}, {ones}"),
)
# A shift by the width or more gives zero (or all sign bits), and a negative count is such a shift too.
shift_left = _flat(
    "shift_left",
    type_of=same(2, INTEGERS),
    evaluate=np.left_shift,
    code="lg_shift_left({0}, {1})",
    llvm={"signed": "shift:shl", "unsigned": "shift:shl"},
)
shift_right = _flat(
    "shift_right",
    type_of=same(2, INTEGERS),
    evaluate=np.right_shift,
    code="lg_shift_right({0}, {1})",
    llvm={"signed": "shift:ashr", "unsigned": "shift:lshr"},
)
