"""Elementwise arithmetic, selection and rounding.

One record per op. Operands have the same type; there is no promotion or broadcasting here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Type, bool_, scalar_of, with_scalar
from livegrad.ops.comparison import equal, greater, less, not_equal
from livegrad.ops.conversion import cast, conj, make_complex, real
from livegrad.ops.failing import division_can_fail
from livegrad.ops.rules import (
    FLOATS,
    INEXACT,
    NUMBERS,
    REALS,
    add_tangents,
    filled,
    or_zero,
    same,
    scale_by,
    zero,
    zero_tangent,
)


def _by_kind(float: str | None = None, integer: str | None = None, **more: str) -> dict[str, str]:
    """LLVM rules by kind of scalar. Signed and unsigned integers share one by default."""
    rules = dict(more)
    if float is not None:
        rules["float"] = float
    if integer is not None:
        rules.setdefault("signed", integer)
        rules.setdefault("unsigned", integer)
    return rules


# --- arithmetic ----------------------------------------------------------------------------------------------------

add = Op(
    "add",
    type_of=same(2, NUMBERS),
    evaluate=np.add,
    jvp=lambda y, da, db: add_tangents(da, db),
    transpose=lambda y, ct, a, b: (ct if a else None, ct if b else None),
    linear_in=(0, 1),
    code="({0} + {1})",
    llvm=_by_kind("fadd {T} {0}, {1}", "add {T} {0}, {1}"),
    elementwise=True,
)
neg = Op(
    "neg",
    type_of=same(1, NUMBERS),
    evaluate=np.negative,
    jvp=lambda y, dx: None if dx is None else -dx,
    transpose=lambda y, ct, x: (-ct,),
    linear_in=(0,),
    code="(-{0})",
    llvm=_by_kind("fneg {T} {0}", "sub {T} zeroinitializer, {0}"),
    elementwise=True,
)
sub = Op(
    "sub",
    type_of=same(2, NUMBERS),
    evaluate=np.subtract,
    jvp=lambda y, da, db: da if db is None else (-db if da is None else da - db),
    transpose=lambda y, ct, a, b: (ct if a else None, -ct if b else None),
    linear_in=(0, 1),
    code="({0} - {1})",
    llvm=_by_kind("fsub {T} {0}, {1}", "sub {T} {0}, {1}"),
    elementwise=True,
)
mul = Op(
    "mul",
    type_of=same(2, NUMBERS),
    evaluate=np.multiply,
    jvp=scale_by(lambda y, a, b: b, lambda y, a, b: a),
    transpose=lambda y, ct, a, b: (y.operands[1] * ct if a else None, y.operands[0] * ct if b else None),
    linear_in=(0, 1),
    code="({0} * {1})",
    llvm=_by_kind("fmul {T} {0}, {1}", "mul {T} {0}, {1}"),
    elementwise=True,
)
div = Op(
    "div",
    type_of=same(2, INEXACT),
    evaluate=np.divide,
    jvp=lambda y, da, db: add_tangents(
        None if da is None else da / y.operands[1], None if db is None else -(y / y.operands[1]) * db
    ),
    transpose=lambda y, ct, a, b: (ct / y.operands[1], None),
    linear_in=(0,),
    code="({0} / {1})",
    llvm=_by_kind("fdiv {T} {0}, {1}"),
    elementwise=True,
    cost=6.0,
)


def _abs_type(type: Type) -> Type:
    scalar = scalar_of(same(1, NUMBERS)(type))
    assert scalar is not None
    return with_scalar(type, scalar.real)


def _abs_jvp(y: Node, dx: Node | None) -> Node | None:
    (x,) = y.operands
    if dx is None:
        return None
    if y.type is x.type:
        return sign(x) * dx
    # |x|' = Re(conj(x) dx) / |x|, and 0 at 0 as for real numbers.
    at_zero = equal(y, 0.0)
    return select(at_zero, zero(y.type), real(conj(x) * dx) / select(at_zero, filled(1.0, y.type), y))


abs = Op(
    "abs",
    type_of=_abs_type,
    evaluate=np.abs,
    jvp=_abs_jvp,
    code="fabs({0})",
    llvm={"float": "intrinsic:fabs", "signed": "abs", "unsigned": "copy"},
    elementwise=True,
)


def _checked_floor_div(a: Any, b: Any) -> Any:
    _require_nonzero(b)
    with np.errstate(over="ignore"):
        return np.floor_divide(a, b)


def _checked_mod(a: Any, b: Any) -> Any:
    _require_nonzero(b)
    return np.mod(a, b)


def _require_nonzero(divisor: Any) -> None:
    if np.issubdtype(np.asarray(divisor).dtype, np.integer) and not np.all(divisor):
        raise ZeroDivisionError("integer division by zero")


# Python's division: the quotient is rounded down, the remainder takes the divisor's sign.
floor_div = Op(
    "floor_div",
    type_of=same(2, REALS),
    evaluate=_checked_floor_div,
    jvp=zero_tangent,
    llvm={"float": "expand", "signed": "floor_div", "unsigned": "checked_udiv"},
    code="lg_floor_div({0}, {1})",
    elementwise=True,
    checked=True,
    can_fail=division_can_fail,
    differentiable=False,
    cost=8.0,
    expand=lambda y: _float_floor_div(*y.operands),
)
mod = Op(
    "mod",
    type_of=same(2, REALS),
    evaluate=_checked_mod,
    jvp=lambda y, da, db: add_tangents(da, None if db is None else -(floor_div(*y.operands) * db)),
    llvm={"float": "expand", "signed": "floor_mod", "unsigned": "checked_urem"},
    code="lg_mod({0}, {1})",
    elementwise=True,
    checked=True,
    can_fail=division_can_fail,
    cost=8.0,
    expand=lambda y: _float_mod(*y.operands),
)
fmod = Op(
    "fmod",
    type_of=same(2, FLOATS),
    evaluate=np.fmod,
    jvp=lambda y, da, db: add_tangents(da, None if db is None else -(round((y.operands[0] - y) / y.operands[1]) * db)),
    llvm={"float": "math:fmod"},
    code="fmod({0}, {1})",
    elementwise=True,
    cost=10.0,
)


def _float_mod(a: Node, b: Node) -> Node:
    """The C remainder, plus the divisor where the signs differ. A zero takes the divisor's sign."""
    remainder = fmod(a, b)
    differs = (remainder < 0.0) ^ (b < 0.0)
    corrected = select(differs, remainder + b, remainder)
    return select(equal(remainder, 0.0), copysign(zero(a.type), b), corrected)


def _float_floor_div(a: Node, b: Node) -> Node:
    """Floor division from the exact remainder, as in NumPy, so that the quotient is never off by one."""
    remainder = fmod(a, b)
    differs = not_equal(remainder, 0.0) & ((remainder < 0.0) ^ (b < 0.0))
    quotient = (a - remainder) / b
    quotient = select(differs, quotient - 1.0, quotient)
    down = floor(quotient)
    rounded = select(quotient - down > 0.5, down + 1.0, down)
    signed = select(equal(quotient, 0.0), copysign(zero(a.type), a / b), rounded)
    return select(equal(b, 0.0), a / b, signed)


# --- selection -----------------------------------------------------------------------------------------------------


def _select_type(condition: Type, then: Type, otherwise: Type) -> Type:
    if then is not otherwise:
        raise TypeRuleError("the two branches have different types")
    scalar = scalar_of(then)
    if scalar is None:
        raise TypeRuleError("select does not support aggregates", help="use cond, or select each member")
    if condition is not bool_ and condition is not with_scalar(then, bool_):
        raise TypeRuleError("the condition does not match the operands", expected=f"bool or {with_scalar(then, bool_)}")
    return then


def _evaluate_select(condition: Any, then: Any, otherwise: Any) -> Any:
    return np.where(condition, then, otherwise)


def _select_jvp(y: Node, dcondition: None, dthen: Node | None, dotherwise: Node | None) -> Node | None:
    if dthen is None and dotherwise is None:
        return None
    return select(y.operands[0], or_zero(dthen, y.type), or_zero(dotherwise, y.type))


select = Op(
    "select",
    type_of=_select_type,
    evaluate=_evaluate_select,
    jvp=_select_jvp,
    transpose=lambda y, ct, c, a, b: (
        None,
        select(y.operands[0], ct, zero(ct.type)) if a else None,
        select(y.operands[0], zero(ct.type), ct) if b else None,
    ),
    linear_in=(1, 2),
    code="({0} ? {1} : {2})",
    llvm=dict.fromkeys(("bool", "signed", "unsigned", "float"), "select {B} {0}, {T} {1}, {T} {2}"),
    elementwise=True,
)


def _extremum_jvp(y: Node, da: Node | None, db: Node | None) -> Node | None:
    """The derivative of the selected operand; at a tie, half of each.

    Each operand has its own select, so that reverse mode never multiplies a cotangent by zero.
    """
    a, b = y.operands
    tie = equal(a, b)
    # The comparison of `min` and `max`: a NaN in the second operand is never selected.
    second = less(b, a) if y.op in (min, minimum) else greater(b, a)
    share = select(tie, filled(0.5, y.type), filled(1.0, y.type))
    return add_tangents(
        None if da is None else select(second, zero(da.type), share * da),
        None if db is None else select(second | tie, share * db, zero(db.type)),
    )


def _extremum(name: str, function: Any, relation: str, code: str, expand: Any = None) -> Op:
    integer = {"signed": f"s{relation}", "unsigned": f"u{relation}"}
    return Op(
        name,
        type_of=same(2, REALS),
        evaluate=function,
        jvp=_extremum_jvp,
        code=code,
        llvm={"float": f"compare:{name}", **{kind: f"intrinsic:{text}" for kind, text in integer.items()}},
        elementwise=True,
    )


# Python's min and max: select the second operand only if it compares below (above) the first.
min = _extremum("min", lambda a, b: np.where(np.less(b, a), b, a), "min", "({1} < {0} ? {1} : {0})")
max = _extremum("max", lambda a, b: np.where(np.greater(b, a), b, a), "max", "({1} > {0} ? {1} : {0})")
# NumPy's minimum and maximum: a NaN in either operand is the result.
minimum = _extremum("minimum", np.minimum, "min", "lg_minimum({0}, {1})")
maximum = _extremum("maximum", np.maximum, "max", "lg_maximum({0}, {1})")
clamp = Op(
    "clamp",
    type_of=same(3, REALS),
    evaluate=lambda x, low, high: np.minimum(np.maximum(x, low), high),
    expand=lambda y: minimum(maximum(y.operands[0], y.operands[1]), y.operands[2]),
    elementwise=True,
)

# --- rounding ------------------------------------------------------------------------------------------------------


def _rounding(name: str, function: Any, intrinsic: str, code: str, kinds: tuple[str, ...] = FLOATS) -> Op:
    return Op(
        name,
        type_of=same(1, kinds),
        evaluate=function,
        jvp=zero_tangent,
        code=code,
        llvm={"float": f"intrinsic:{intrinsic}"},
        elementwise=True,
        differentiable=False,
    )


floor = _rounding("floor", np.floor, "floor", "floor({0})")
ceil = _rounding("ceil", np.ceil, "ceil", "ceil({0})")
trunc = _rounding("trunc", np.trunc, "trunc", "trunc({0})")
round = _rounding("round", np.rint, "roundeven", "rint({0})", INEXACT)  # half to even, both parts of complex numbers
fract = Op(
    "fract",
    type_of=same(1, FLOATS),
    evaluate=lambda x: x - np.floor(x),
    jvp=lambda y, dx: dx,
    expand=lambda y: y.operands[0] - floor(y.operands[0]),
    code="({0} - floor({0}))",
    elementwise=True,
)


def _over_magnitude(value: Node, x: Node) -> Node:
    """A complex value divided by |x|, and 0 where x is 0."""
    scalar, size = scalar_of(x.type), abs(x)
    at_zero = equal(size, 0.0)
    quotient = value / cast(select(at_zero, filled(1.0, size.type), size), type=scalar)
    return select(at_zero, zero(x.type), quotient)


def _expand_sign(y: Node) -> Node:
    (x,) = y.operands
    scalar = scalar_of(x.type)
    assert scalar is not None
    if scalar.kind == "complex":
        return _over_magnitude(x, x)
    one = filled(1.0 if scalar.kind == "float" else 1, x.type)
    if scalar.kind == "unsigned":
        return select(equal(x, 0), x, one)
    nothing = zero(x.type)
    # A zero or NaN is its own sign.
    return select(x > nothing, one, select(x < nothing, -one, x if scalar.kind == "float" else nothing))


def _sign_jvp(y: Node, dx: Node | None) -> Node | None:
    """The derivative of x / |x|, which is zero for real numbers."""
    scalar = scalar_of(y.type)
    if dx is None or scalar is None or scalar.kind != "complex":
        return None
    radial = real(conj(y) * dx)
    return _over_magnitude(dx - y * make_complex(radial, zero(radial.type)), y.operands[0])


sign = Op(
    "sign",
    type_of=same(1, NUMBERS),
    evaluate=lambda x: np.where(np.equal(x, 0), x, np.sign(x)),
    jvp=_sign_jvp,
    expand=_expand_sign,
    llvm={"float": "sign"},
    code="lg_sign({0})",
    elementwise=True,
)
copysign = Op(
    "copysign",
    type_of=same(2, FLOATS),
    evaluate=np.copysign,
    jvp=lambda y, dx, ds: (
        None
        if dx is None
        else copysign(filled(1.0, y.type), y.operands[0]) * copysign(filled(1.0, y.type), y.operands[1]) * dx
    ),
    code="copysign({0}, {1})",
    llvm={"float": "intrinsic:copysign"},
    elementwise=True,
)

# --- stopping derivatives -------------------------------------------------------------------------------------------

detach = Op(
    "detach",
    type_of=lambda type: type,
    evaluate=lambda x: x,
    jvp=zero_tangent,
    code="{0}",
    llvm=dict.fromkeys(("bool", "signed", "unsigned", "float"), "copy"),
    elementwise=True,
    cost=0.0,
)
