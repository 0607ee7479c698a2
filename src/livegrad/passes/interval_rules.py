"""Interval rules: the bounds of each op's result from the bounds of its operands.

Applied by `bound_intervals`. Rounding of the four operations and of square roots is monotone, so bounds computed with
the same operations hold for computed values. Products are widened, because a compiler may fuse them into sums;
functions that are not correctly rounded are widened by their error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from livegrad import ops
from livegrad.diagnostics import CompileError
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Array, Struct, Tuple, Type, Vector, bool_, components, scalar_of
from livegrad.ops.control import parameters_of
from livegrad.ops.rules import filled

_PRODUCT_ERROR = 2.0**-22
_FUNCTION_ERROR = 2.0**-19
_ANGLE_ERROR = 1e-5  # relative: where in its period an angle lies is only as good as its own digits


@dataclass(frozen=True)
class Interval:
    """The bounds of a value; of a condition, whether it must hold and whether it can. A point has one node for both.

    What is known before any box is: whether bounds may be infinite because nothing is known of the value, and whether
    it is never negative.
    """

    low: Node
    high: Node
    unbounded: bool = False
    nonnegative: bool = False

    @property
    def is_point(self) -> bool:
        return self.low is self.high


Rule = Callable[..., Interval]


def anything(type: Type) -> Interval:
    """The bounds of a value of which nothing is known."""
    scalar = scalar_of(type)
    if scalar is None:
        if not isinstance(type, Tuple | Struct | Array):
            raise CompileError(f"there are no interval bounds for {type}")
        inner = [anything(member) for member in components(type)]
        low, high = (ops.make(*[getattr(i, side) for i in inner], type=type) for side in ("low", "high"))
        return Interval(low, high, unbounded=True)
    if scalar is bool_:
        return Interval(filled(False, type), filled(True, type))
    if scalar.kind in ("signed", "unsigned"):
        smallest = -(1 << (scalar.bits - 1)) if scalar.kind == "signed" else 0
        largest = (1 << (scalar.bits - (scalar.kind == "signed"))) - 1
        return Interval(filled(smallest, type), filled(largest, type))
    return Interval(filled(-math.inf, type), filled(math.inf, type), unbounded=True)


def hull(*intervals: Interval) -> Interval:
    """The bounds of a value that is one of several."""
    low, high = intervals[0].low, intervals[0].high
    careful = any(interval.unbounded for interval in intervals)
    least, most = (ops.minimum, ops.maximum) if careful else (ops.min, ops.max)
    for other in intervals[1:]:
        low, high = least(low, other.low), most(high, other.high)
    return Interval(low, high, careful)


def _all(condition: Node, interval: Interval) -> Interval:
    """The interval, or everything where the condition holds."""
    whole = anything(interval.low.type)
    low = ops.select(condition, whole.low, interval.low)
    return Interval(low, ops.select(condition, whole.high, interval.high), unbounded=True)


def _widened(interval: Interval, error: float) -> Interval:
    low, high = interval.low, interval.high
    return Interval(low - ops.abs(low) * error, high + ops.abs(high) * error)


def _number(value: float, type: Type) -> Node:
    return filled(value, type)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _add(node: Node, a: Interval, b: Interval) -> Interval:
    low, high = a.low + b.low, a.high + b.high
    return Interval(low, high, nonnegative=a.nonnegative and b.nonnegative)


def _sub(node: Node, a: Interval, b: Interval) -> Interval:
    if node.operands[0] is node.operands[1]:
        return Interval(a.low - a.low, a.low - a.low)
    return Interval(a.low - b.high, a.high - b.low)


def _square(a: Interval) -> Interval:
    low, high = a.low * a.low, a.high * a.high
    inside = (a.low <= 0.0) & (a.high >= 0.0)
    smaller = ops.select(inside, _number(0.0, low.type), ops.min(low, high))
    larger = ops.max(low, high)
    low, high = smaller - smaller * _PRODUCT_ERROR, larger + larger * _PRODUCT_ERROR
    return Interval(low, high, nonnegative=True)


def _finite_product(a: Node, b: Node) -> Node:
    """0 × ∞ is 0 here: the bound of products of a zero with anything finite."""
    product = a * b
    return ops.select(ops.is_nan(product), _number(0.0, product.type), product)


def _constant_value(node: Node) -> float | None:
    inner = node.operands[0] if node.op is ops.splat else node
    return inner.attribute("value") if inner.op is constant_op else None


def _mul(node: Node, a: Interval, b: Interval) -> Interval:
    if node.operands[0] is node.operands[1]:
        return _square(a)
    for factor, other, source in ((a, b, node.operands[0]), (b, a, node.operands[1])):
        value = _constant_value(source)
        if value is not None and math.isfinite(value) and value != 0.0:
            ends = (factor.low * other.low, factor.low * other.high)
            low, high = ends if value > 0 else ends[::-1]
            return _widened(Interval(low, high), _PRODUCT_ERROR)
    if a.is_point or b.is_point:
        point, other = (a, b) if a.is_point else (b, a)
        corners = [_finite_product(point.low, end) for end in (other.low, other.high)]
    else:
        corners = [_finite_product(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return _widened(hull(*[Interval(corner, corner) for corner in corners]), _PRODUCT_ERROR)


def _div(node: Node, a: Interval, b: Interval) -> Interval:
    if node.operands[0] is node.operands[1]:
        one = _number(1.0, a.low.type)
        return _all(_contains(b, 0.0), Interval(one, one))
    corners = [x / y for x in ((a.low,) if a.is_point else (a.low, a.high)) for y in _ends(b)]
    quotient = hull(*[Interval(corner, corner, unbounded=True) for corner in corners])
    value = _constant_value(node.operands[1])
    if value is not None and value != 0.0:
        return Interval(quotient.low, quotient.high, unbounded=a.unbounded)
    wrong = _contains(b, 0.0) | ops.is_nan(quotient.low) | ops.is_nan(quotient.high)
    return _all(wrong, quotient)


def _ends(a: Interval) -> tuple[Node, ...]:
    return (a.low,) if a.is_point else (a.low, a.high)


def _contains(a: Interval, value: float) -> Node:
    return (a.low <= value) & (a.high >= value)


def _neg(node: Node, a: Interval) -> Interval:
    return Interval(-a.high, -a.low)


def _abs(node: Node, a: Interval) -> Interval:
    low, high = ops.abs(a.low), ops.abs(a.high)
    smaller = ops.select(_contains(a, 0.0), _number(0.0, low.type), ops.min(low, high))
    return Interval(smaller, ops.max(low, high), nonnegative=True)


def _monotone(op: Callable[[Node], Node], error: float = 0.0, *, falling: bool = False) -> Rule:
    def rule(node: Node, a: Interval) -> Interval:
        low, high = (op(a.high), op(a.low)) if falling else (op(a.low), op(a.high))
        return _widened(Interval(low, high), error) if error else Interval(low, high)

    return rule


def _pairwise(op: Callable[[Node, Node], Node], careful: Callable[[Node, Node], Node]) -> Rule:
    """min and max: where a bound may be NaN it must not be lost, elsewhere one instruction does."""

    def rule(node: Node, a: Interval, b: Interval) -> Interval:
        chosen = careful if a.unbounded or b.unbounded else op
        return Interval(chosen(a.low, b.low), chosen(a.high, b.high), nonnegative=a.nonnegative and b.nonnegative)

    return rule


def _clamp(node: Node, a: Interval, low: Interval, high: Interval) -> Interval:
    return Interval(ops.clamp(a.low, low.low, high.low), ops.clamp(a.high, low.high, high.high))


def _sqrt(node: Node, a: Interval) -> Interval:
    if a.nonnegative:
        return Interval(ops.sqrt(a.low), ops.sqrt(a.high), nonnegative=True)
    nothing = _number(0.0, a.low.type)
    ends = Interval(ops.sqrt(ops.max(nothing, a.low)), ops.sqrt(ops.max(nothing, a.high)))
    return _or_undefined(a.low < 0.0, ends)


def _or_undefined(some_undefined: Node, defined: Interval) -> Interval:
    """If the function may be NaN, the interval is unbounded."""
    return _all(some_undefined, defined)


def _logarithm(op: Callable[[Node], Node]) -> Rule:
    def rule(node: Node, a: Interval) -> Interval:
        positive = ops.max(_number(1e-37, a.low.type), a.low), ops.max(_number(1e-37, a.low.type), a.high)
        ends = _widened(Interval(op(positive[0]), op(positive[1])), _FUNCTION_ERROR)
        return _or_undefined(a.low <= 0.0, Interval(ends.low - 1e-6, ends.high + 1e-6))

    return rule


def _inverse_of_bounded(op: Callable[[Node], Node], *, falling: bool) -> Rule:
    def rule(node: Node, a: Interval) -> Interval:
        one = _number(1.0, a.low.type)
        low, high = (op(ops.clamp(end, -one, one)) for end in (a.low, a.high))
        ends = Interval(high, low) if falling else Interval(low, high)
        ends = Interval(ends.low - 1e-5, ends.high + 1e-5)
        return _or_undefined((a.low < -1.0) | (a.high > 1.0), ends)

    return rule


def _as_function(rule: Callable[[Interval], Interval]) -> Rule:
    """Shares a rule of many nodes as one function: a part may have thousands of sines."""

    @lru_cache(maxsize=64)
    def function_for(type: Type) -> Function:
        low, high = parameters_of([type, type])
        bounds = rule(Interval(low, high))
        return Function(rule.__name__, (low, high), (bounds.low, bounds.high))

    def called(node: Node, a: Interval) -> Interval:
        bounds = ops.call(a.low, a.high, function=function_for(a.low.type))
        return Interval(ops.get(bounds, index=0), ops.get(bounds, index=1))

    return called


def _periodic(op: Callable[[Node], Node], top: float, bottom: float) -> Rule:
    """sin and cos: the ends, unless a top or a bottom of the wave lies between."""

    def wave_bounds(a: Interval) -> Interval:
        ends = [op(a.low), op(a.high)]
        low, high = ops.min(*ends) - 1e-6, ops.max(*ends) + 1e-6
        one = _number(1.0, low.type)
        high = ops.select(_passes(a, top), one, ops.min(high, one))
        low = ops.select(_passes(a, bottom), -one, ops.max(low, -one))
        endless = ~(ops.is_finite(a.low) & ops.is_finite(a.high))
        return Interval(ops.select(endless, -one, low), ops.select(endless, one, high))

    return _as_function(wave_bounds)


def _passes(a: Interval, phase: float) -> Node:
    """Whether the interval holds phase + 2πk for a whole k, or may by rounding."""
    turn = 1.0 / math.tau
    margin = _ANGLE_ERROR * (1.0 + ops.max(ops.abs(a.low), ops.abs(a.high)))
    return ops.floor((a.high + margin - phase) * turn) > ops.floor((a.low - margin - phase) * turn)


def _tan(node: Node, a: Interval) -> Interval:
    half = Interval(a.low * 2.0, a.high * 2.0)
    crosses = _passes(half, math.pi) | ~(ops.is_finite(a.low) & ops.is_finite(a.high))
    return _all(crosses, _widened(Interval(ops.tan(a.low), ops.tan(a.high)), 1e-4))


def _cosh(node: Node, a: Interval) -> Interval:
    size = _abs(node, a)
    return _widened(Interval(ops.cosh(size.low), ops.cosh(size.high)), _FUNCTION_ERROR)


def _atan2(node: Node, y: Interval, x: Interval) -> Interval:
    corners = [ops.atan2(v, u) for v in _ends(y) for u in _ends(x)]
    angle = hull(*[Interval(corner, corner) for corner in corners])
    # On the negative axis the angle jumps, at the origin it is anything.
    jumps = _contains(y, 0.0) & (x.low <= 0.0)
    half_turn = _number(math.pi + 1e-6, angle.low.type)
    low, high = ops.select(jumps, -half_turn, angle.low - 1e-5), ops.select(jumps, half_turn, angle.high + 1e-5)
    return Interval(low, high)


def _pow(node: Node, a: Interval, b: Interval) -> Interval:
    corners = [ops.pow(x, y) for x in _ends(a) for y in _ends(b)]
    ends = _widened(hull(*[Interval(corner, corner, unbounded=True) for corner in corners]), 1e-5)
    exponent = _constant_value(node.operands[1])
    if exponent is not None and exponent == math.floor(exponent) and exponent > 0:
        if exponent % 2:
            return ends
        inside = _contains(a, 0.0)
        return Interval(ops.select(inside, _number(0.0, ends.low.type), ends.low), ends.high)
    undefined = (a.low <= 0.0) | ops.is_nan(ends.low) | ops.is_nan(ends.high)
    return _or_undefined(undefined, ends)


def _fract(node: Node, a: Interval) -> Interval:
    first, last = ops.floor(a.low), ops.floor(a.high)
    same = ops.equal(first, last)
    nothing, one = _number(0.0, first.type), _number(1.0, first.type)
    return Interval(ops.select(same, a.low - first, nothing), ops.select(same, a.high - last, one))


def _fmod(node: Node, a: Interval, b: Interval) -> Interval:
    size = ops.max(ops.abs(b.low), ops.abs(b.high))
    nothing = _number(0.0, size.type)
    low, high = ops.select(a.low < 0.0, -size, nothing), ops.select(a.high > 0.0, size, nothing)
    if not b.is_point:
        return _or_undefined(_contains(b, 0.0), Interval(low, high))
    whole = ops.trunc(a.low / b.low)
    same = ops.equal(whole, ops.trunc(a.high / b.low)) & (a.low * a.high > 0.0)
    inner = _widened(Interval(ops.fmod(a.low, b.low), ops.fmod(a.high, b.low)), _FUNCTION_ERROR)
    inner = Interval(ops.select(same, inner.low, low), ops.select(same, inner.high, high))
    return _or_undefined(ops.equal(b.low, 0.0), inner)


def _length(node: Node, a: Interval) -> Interval:
    """The root of a sum of squares, not of what `length` expands to: that chooses by the value it bounds."""
    squares = _square(a)
    type = a.low.type
    assert isinstance(type, Vector)
    low, high = (
        sum((ops.get(side, index=index) for index in range(1, type.size)), ops.get(side, index=0))
        for side in (squares.low, squares.high)
    )
    return _widened(Interval(ops.sqrt(low), ops.sqrt(high)), _PRODUCT_ERROR)


# --- conditions and choices ------------------------------------------------------------------------------------------


def _less(node: Node, a: Interval, b: Interval) -> Interval:
    return Interval(a.high < b.low, ~(a.low >= b.high))


def _less_equal(node: Node, a: Interval, b: Interval) -> Interval:
    return Interval(a.high <= b.low, ~(a.low > b.high))


def _equal(node: Node, a: Interval, b: Interval) -> Interval:
    if scalar_of(node.operands[0].type) is bool_:
        return anything(node.type)
    must = ops.equal(a.low, a.high) & ops.equal(b.low, b.high) & ops.equal(a.low, b.low)
    return Interval(must, (a.low <= b.high) & (b.low <= a.high))


def _opposite(rule: Rule) -> Rule:
    def opposite(node: Node, *operands: Interval) -> Interval:
        holds = rule(node, *operands)
        return Interval(~holds.high, ~holds.low)

    return opposite


def _swapped(rule: Rule) -> Rule:
    return lambda node, a, b: rule(node, b, a)


def _bits(op: Callable[[Node, Node], Node]) -> Rule:
    def rule(node: Node, a: Interval, b: Interval) -> Interval:
        if scalar_of(node.type) is not bool_:
            return anything(node.type)
        return Interval(op(a.low, b.low), op(a.high, b.high))

    return rule


def _select(node: Node, condition: Interval, then: Interval, otherwise: Interval) -> Interval:
    scalar = scalar_of(node.type)
    if scalar is bool_:
        low = ops.select(condition.low, then.low, ops.select(condition.high, then.low & otherwise.low, otherwise.low))
        high = ops.select(
            condition.low, then.high, ops.select(condition.high, then.high | otherwise.high, otherwise.high)
        )
        return Interval(low, high)
    either = hull(then, otherwise)
    low = ops.select(condition.low, then.low, ops.select(condition.high, either.low, otherwise.low))
    high = ops.select(condition.low, then.high, ops.select(condition.high, either.high, otherwise.high))
    return Interval(low, high)


def _perhaps_undefined(node: Node, a: Interval) -> Interval:
    """Values that may be NaN have no finite bounds."""
    return Interval(filled(False, node.type), ~(ops.is_finite(a.low) & ops.is_finite(a.high)))


def _undecided(node: Node, *operands: Interval) -> Interval:
    return anything(node.type)


# --- structure -------------------------------------------------------------------------------------------------------


def _structural(node: Node, *operands: Interval) -> Interval:
    attributes = dict(node.attributes)
    low = node.op(*[operand.low for operand in operands], **attributes)
    return Interval(low, node.op(*[operand.high for operand in operands], **attributes))


def _sign(node: Node, a: Interval) -> Interval:
    return Interval(ops.sign(a.low), ops.sign(a.high))


RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "abs": _abs,
    "min": _pairwise(ops.min, ops.minimum),
    "max": _pairwise(ops.max, ops.maximum),
    "minimum": _pairwise(ops.minimum, ops.minimum),
    "maximum": _pairwise(ops.maximum, ops.maximum),
    "clamp": _clamp,
    "sqrt": _sqrt,
    "length": _length,
    "floor": _monotone(ops.floor),
    "ceil": _monotone(ops.ceil),
    "trunc": _monotone(ops.trunc),
    "round": _monotone(ops.round),
    "sign": _sign,
    "fract": _fract,
    "fmod": _fmod,
    "exp": _monotone(ops.exp, _FUNCTION_ERROR),
    "exp2": _monotone(ops.exp2, _FUNCTION_ERROR),
    "sinh": _monotone(ops.sinh, _FUNCTION_ERROR),
    "tanh": _monotone(ops.tanh, _FUNCTION_ERROR),
    "atan": _monotone(ops.atan, _FUNCTION_ERROR),
    "cbrt": _monotone(ops.cbrt, _FUNCTION_ERROR),
    "cosh": _cosh,
    "log": _logarithm(ops.log),
    "log2": _logarithm(ops.log2),
    "log10": _logarithm(ops.log10),
    "asin": _inverse_of_bounded(ops.asin, falling=False),
    "acos": _inverse_of_bounded(ops.acos, falling=True),
    "sin": _periodic(ops.sin, math.pi / 2, -math.pi / 2),
    "cos": _periodic(ops.cos, 0.0, math.pi),
    "tan": _tan,
    "atan2": _atan2,
    "pow": _pow,
    "less": _less,
    "less_equal": _less_equal,
    "greater": _swapped(_less),
    "greater_equal": _swapped(_less_equal),
    "equal": _equal,
    "not_equal": _opposite(_equal),
    "is_nan": _perhaps_undefined,
    "is_finite": _opposite(_perhaps_undefined),
    "is_infinite": _perhaps_undefined,
    "bit_and": _bits(ops.bit_and),
    "bit_or": _bits(ops.bit_or),
    "bit_xor": _undecided,
    "bit_not": _opposite(lambda node, a: a),
    "select": _select,
    "detach": lambda node, a: a,
    "make": _structural,
    "get": _structural,
    "splat": _structural,
}
