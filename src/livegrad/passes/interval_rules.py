"""Interval arithmetic: a rule for each op that computes the bounds of its result from those of its operands.

Applied by `bound_intervals`. Rounding of the four operations and of square roots is monotone, so bounds computed with
the same operations hold for computed values. Products are widened, because a compiler may fuse them into sums;
functions that are not correctly rounded are widened by their error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from livegrad import ops
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type, Vector, bool_, scalar_of
from livegrad.ops.control import parameters_of
from livegrad.ops.rules import filled
from livegrad.passes.intervals import Interval, contains, entire_interval, entire_where, hull, widen

_PRODUCT_ERROR = 2.0**-22
_FUNCTION_ERROR = 2.0**-19
_ANGLE_ERROR = 1e-5  # relative: argument reduction loses the digits of large angles

Rule = Callable[..., Interval]


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
    smaller = ops.select(inside, filled(0.0, low.type), ops.min(low, high))
    larger = ops.max(low, high)
    low, high = smaller - smaller * _PRODUCT_ERROR, larger + larger * _PRODUCT_ERROR
    return Interval(low, high, nonnegative=True)


def _finite_product(a: Node, b: Node) -> Node:
    """The product with 0 × ∞ = 0: a zero bound times finite values that are only bounded by infinity."""
    product = a * b
    return ops.select(ops.is_nan(product), filled(0.0, product.type), product)


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
            return widen(Interval(low, high), _PRODUCT_ERROR)
    if a.is_point or b.is_point:
        point, other = (a, b) if a.is_point else (b, a)
        corners = [_finite_product(point.low, end) for end in (other.low, other.high)]
    else:
        corners = [_finite_product(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return widen(hull(*[Interval(corner, corner) for corner in corners]), _PRODUCT_ERROR)


def _div(node: Node, a: Interval, b: Interval) -> Interval:
    if node.operands[0] is node.operands[1]:
        one = filled(1.0, a.low.type)
        return entire_where(contains(b, 0.0), Interval(one, one))
    corners = [x / y for x in a.ends for y in b.ends]
    quotient = hull(*[Interval(corner, corner, unbounded=True) for corner in corners])
    value = _constant_value(node.operands[1])
    if value is not None and value != 0.0:
        return Interval(quotient.low, quotient.high, unbounded=a.unbounded)
    wrong = contains(b, 0.0) | ops.is_nan(quotient.low) | ops.is_nan(quotient.high)
    return entire_where(wrong, quotient)


def _neg(node: Node, a: Interval) -> Interval:
    return Interval(-a.high, -a.low)


def _abs(node: Node, a: Interval) -> Interval:
    low, high = ops.abs(a.low), ops.abs(a.high)
    smaller = ops.select(contains(a, 0.0), filled(0.0, low.type), ops.min(low, high))
    return Interval(smaller, ops.max(low, high), nonnegative=True)


def _monotone_rule(op: Callable[[Node], Node], error: float = 0.0, *, decreasing: bool = False) -> Rule:
    def rule(node: Node, a: Interval) -> Interval:
        low, high = (op(a.high), op(a.low)) if decreasing else (op(a.low), op(a.high))
        return widen(Interval(low, high), error) if error else Interval(low, high)

    return rule


def _extremum_rule(op: Callable[[Node, Node], Node], nan_safe_op: Callable[[Node, Node], Node]) -> Rule:
    """min and max: `nan_safe_op` keeps bounds that may be NaN; for others, `op` is one instruction."""

    def rule(node: Node, a: Interval, b: Interval) -> Interval:
        chosen_op = nan_safe_op if a.unbounded or b.unbounded else op
        return Interval(chosen_op(a.low, b.low), chosen_op(a.high, b.high), nonnegative=a.nonnegative and b.nonnegative)

    return rule


def _clamp(node: Node, a: Interval, low: Interval, high: Interval) -> Interval:
    return Interval(ops.clamp(a.low, low.low, high.low), ops.clamp(a.high, low.high, high.high))


def _sqrt(node: Node, a: Interval) -> Interval:
    if a.nonnegative:
        return Interval(ops.sqrt(a.low), ops.sqrt(a.high), nonnegative=True)
    nothing = filled(0.0, a.low.type)
    ends = Interval(ops.sqrt(ops.max(nothing, a.low)), ops.sqrt(ops.max(nothing, a.high)))
    return entire_where(a.low < 0.0, ends)


def _logarithm_rule(op: Callable[[Node], Node]) -> Rule:
    def rule(node: Node, a: Interval) -> Interval:
        positive = ops.max(filled(1e-37, a.low.type), a.low), ops.max(filled(1e-37, a.low.type), a.high)
        ends = widen(Interval(op(positive[0]), op(positive[1])), _FUNCTION_ERROR)
        return entire_where(a.low <= 0.0, Interval(ends.low - 1e-6, ends.high + 1e-6))

    return rule


def _inverse_trigonometric_rule(op: Callable[[Node], Node], *, decreasing: bool) -> Rule:
    def rule(node: Node, a: Interval) -> Interval:
        one = filled(1.0, a.low.type)
        low, high = (op(ops.clamp(end, -one, one)) for end in (a.low, a.high))
        ends = Interval(high, low) if decreasing else Interval(low, high)
        ends = Interval(ends.low - 1e-5, ends.high + 1e-5)
        return entire_where((a.low < -1.0) | (a.high > 1.0), ends)

    return rule


def _share_as_function(rule: Callable[[Interval], Interval]) -> Rule:
    """Turns a rule into calls of one shared function: a part may have thousands of sines."""

    @lru_cache(maxsize=64)
    def function_for(type: Type) -> Function:
        low, high = parameters_of([type, type])
        bounds = rule(Interval(low, high))
        return Function(rule.__name__, (low, high), (bounds.low, bounds.high))

    def call_shared(node: Node, a: Interval) -> Interval:
        bounds = ops.call(a.low, a.high, function=function_for(a.low.type))
        return Interval(ops.get(bounds, index=0), ops.get(bounds, index=1))

    return call_shared


def _periodic_rule(op: Callable[[Node], Node], top: float, bottom: float) -> Rule:
    """sin and cos: the values at the ends, unless a maximum at `top` or a minimum at `bottom` lies between them."""

    def wave_bounds(a: Interval) -> Interval:
        ends = [op(a.low), op(a.high)]
        low, high = ops.min(*ends) - 1e-6, ops.max(*ends) + 1e-6
        one = filled(1.0, low.type)
        high = ops.select(_contains_phase(a, top), one, ops.min(high, one))
        low = ops.select(_contains_phase(a, bottom), -one, ops.max(low, -one))
        endless = ~(ops.is_finite(a.low) & ops.is_finite(a.high))
        return Interval(ops.select(endless, -one, low), ops.select(endless, one, high))

    return _share_as_function(wave_bounds)


def _contains_phase(a: Interval, phase: float) -> Node:
    """Whether the interval contains phase + 2πk for some integer k, or may by rounding."""
    turn = 1.0 / math.tau
    margin = _ANGLE_ERROR * (1.0 + ops.max(ops.abs(a.low), ops.abs(a.high)))
    return ops.floor((a.high + margin - phase) * turn) > ops.floor((a.low - margin - phase) * turn)


def _tan(node: Node, a: Interval) -> Interval:
    half = Interval(a.low * 2.0, a.high * 2.0)
    crosses = _contains_phase(half, math.pi) | ~(ops.is_finite(a.low) & ops.is_finite(a.high))
    return entire_where(crosses, widen(Interval(ops.tan(a.low), ops.tan(a.high)), 1e-4))


def _cosh(node: Node, a: Interval) -> Interval:
    size = _abs(node, a)
    return widen(Interval(ops.cosh(size.low), ops.cosh(size.high)), _FUNCTION_ERROR)


def _atan2(node: Node, y: Interval, x: Interval) -> Interval:
    corners = [ops.atan2(v, u) for v in y.ends for u in x.ends]
    angle = hull(*[Interval(corner, corner) for corner in corners])
    # The angle jumps on the negative x axis, and is undefined at the origin.
    jumps = contains(y, 0.0) & (x.low <= 0.0)
    half_turn = filled(math.pi + 1e-6, angle.low.type)
    low, high = ops.select(jumps, -half_turn, angle.low - 1e-5), ops.select(jumps, half_turn, angle.high + 1e-5)
    return Interval(low, high)


def _pow(node: Node, a: Interval, b: Interval) -> Interval:
    corners = [ops.pow(x, y) for x in a.ends for y in b.ends]
    ends = widen(hull(*[Interval(corner, corner, unbounded=True) for corner in corners]), 1e-5)
    exponent = _constant_value(node.operands[1])
    if exponent is not None and exponent == math.floor(exponent) and exponent > 0:
        if exponent % 2:
            return ends
        inside = contains(a, 0.0)
        return Interval(ops.select(inside, filled(0.0, ends.low.type), ends.low), ends.high)
    undefined = (a.low <= 0.0) | ops.is_nan(ends.low) | ops.is_nan(ends.high)
    return entire_where(undefined, ends)


def _fract(node: Node, a: Interval) -> Interval:
    first, last = ops.floor(a.low), ops.floor(a.high)
    same = ops.equal(first, last)
    nothing, one = filled(0.0, first.type), filled(1.0, first.type)
    return Interval(ops.select(same, a.low - first, nothing), ops.select(same, a.high - last, one))


def _fmod(node: Node, a: Interval, b: Interval) -> Interval:
    size = ops.max(ops.abs(b.low), ops.abs(b.high))
    nothing = filled(0.0, size.type)
    low, high = ops.select(a.low < 0.0, -size, nothing), ops.select(a.high > 0.0, size, nothing)
    if not b.is_point:
        return entire_where(contains(b, 0.0), Interval(low, high))
    whole = ops.trunc(a.low / b.low)
    same = ops.equal(whole, ops.trunc(a.high / b.low)) & (a.low * a.high > 0.0)
    inner = widen(Interval(ops.fmod(a.low, b.low), ops.fmod(a.high, b.low)), _FUNCTION_ERROR)
    inner = Interval(ops.select(same, inner.low, low), ops.select(same, inner.high, high))
    return entire_where(ops.equal(b.low, 0.0), inner)


def _length(node: Node, a: Interval) -> Interval:
    """The square root of a sum of squares. The expansion of `length` has a select on that sum, with looser bounds."""
    squares = _square(a)
    type = a.low.type
    assert isinstance(type, Vector)
    low, high = (
        sum((ops.get(side, index=index) for index in range(1, type.size)), ops.get(side, index=0))
        for side in (squares.low, squares.high)
    )
    return widen(Interval(ops.sqrt(low), ops.sqrt(high)), _PRODUCT_ERROR)


# --- conditions and selection ----------------------------------------------------------------------------------------


def _less(node: Node, a: Interval, b: Interval) -> Interval:
    return Interval(a.high < b.low, ~(a.low >= b.high))


def _less_equal(node: Node, a: Interval, b: Interval) -> Interval:
    return Interval(a.high <= b.low, ~(a.low > b.high))


def _equal(node: Node, a: Interval, b: Interval) -> Interval:
    if scalar_of(node.operands[0].type) is bool_:
        return entire_interval(node.type)
    must = ops.equal(a.low, a.high) & ops.equal(b.low, b.high) & ops.equal(a.low, b.low)
    return Interval(must, (a.low <= b.high) & (b.low <= a.high))


def _negate_rule(rule: Rule) -> Rule:
    def negate(node: Node, *operands: Interval) -> Interval:
        holds = rule(node, *operands)
        return Interval(~holds.high, ~holds.low)

    return negate


def _swap_operands(rule: Rule) -> Rule:
    return lambda node, a, b: rule(node, b, a)


def _logical_rule(op: Callable[[Node, Node], Node]) -> Rule:
    def rule(node: Node, a: Interval, b: Interval) -> Interval:
        if scalar_of(node.type) is not bool_:
            return entire_interval(node.type)
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


def _not_finite(node: Node, a: Interval) -> Interval:
    """is_nan and is_infinite: they can only hold if a bound is not finite."""
    return Interval(filled(False, node.type), ~(ops.is_finite(a.low) & ops.is_finite(a.high)))


def _always_undecided(node: Node, *operands: Interval) -> Interval:
    return entire_interval(node.type)


# --- aggregates ------------------------------------------------------------------------------------------------------


def _apply_to_bounds(node: Node, *operands: Interval) -> Interval:
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
    "min": _extremum_rule(ops.min, ops.minimum),
    "max": _extremum_rule(ops.max, ops.maximum),
    "minimum": _extremum_rule(ops.minimum, ops.minimum),
    "maximum": _extremum_rule(ops.maximum, ops.maximum),
    "clamp": _clamp,
    "sqrt": _sqrt,
    "length": _length,
    "floor": _monotone_rule(ops.floor),
    "ceil": _monotone_rule(ops.ceil),
    "trunc": _monotone_rule(ops.trunc),
    "round": _monotone_rule(ops.round),
    "sign": _sign,
    "fract": _fract,
    "fmod": _fmod,
    "exp": _monotone_rule(ops.exp, _FUNCTION_ERROR),
    "exp2": _monotone_rule(ops.exp2, _FUNCTION_ERROR),
    "sinh": _monotone_rule(ops.sinh, _FUNCTION_ERROR),
    "tanh": _monotone_rule(ops.tanh, _FUNCTION_ERROR),
    "atan": _monotone_rule(ops.atan, _FUNCTION_ERROR),
    "cbrt": _monotone_rule(ops.cbrt, _FUNCTION_ERROR),
    "cosh": _cosh,
    "log": _logarithm_rule(ops.log),
    "log2": _logarithm_rule(ops.log2),
    "log10": _logarithm_rule(ops.log10),
    "asin": _inverse_trigonometric_rule(ops.asin, decreasing=False),
    "acos": _inverse_trigonometric_rule(ops.acos, decreasing=True),
    "sin": _periodic_rule(ops.sin, math.pi / 2, -math.pi / 2),
    "cos": _periodic_rule(ops.cos, 0.0, math.pi),
    "tan": _tan,
    "atan2": _atan2,
    "pow": _pow,
    "less": _less,
    "less_equal": _less_equal,
    "greater": _swap_operands(_less),
    "greater_equal": _swap_operands(_less_equal),
    "equal": _equal,
    "not_equal": _negate_rule(_equal),
    "is_nan": _not_finite,
    "is_finite": _negate_rule(_not_finite),
    "is_infinite": _not_finite,
    "bit_and": _logical_rule(ops.bit_and),
    "bit_or": _logical_rule(ops.bit_or),
    "bit_xor": _always_undecided,
    "bit_not": _negate_rule(lambda node, a: a),
    "select": _select,
    "detach": lambda node, a: a,
    "make": _apply_to_bounds,
    "get": _apply_to_bounds,
    "splat": _apply_to_bounds,
}

# A value that may be NaN has a bound that is not finite. These rules keep such a bound where the result may be NaN too;
# others, such as that of a minimum, would return finite bounds.
KEEP_INFINITY = frozenset(
    {
        *("add", "neg", "abs", "length", "floor", "ceil", "trunc", "round", "sinh", "cosh", "cbrt", "select"),
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "is_nan", "is_finite", "is_infinite"),
        *("bit_and", "bit_or", "bit_xor", "bit_not", "detach", "make", "get", "splat"),
    }
)
