"""Helpers for op records: type rules, derivatives and zeros, which every module of `ops/` uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import copysign

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node, make_node
from livegrad.ir.op import Op, TypeRule
from livegrad.ir.types import (
    UNIT,
    Array,
    Matrix,
    Scalar,
    Tape,
    Tensor,
    Tuple,
    Type,
    Vector,
    bool_,
    components,
    scalar_of,
    with_scalar,
)

NUMBERS = ("signed", "unsigned", "float", "complex")
REALS = ("signed", "unsigned", "float")
INTEGERS = ("signed", "unsigned")
FLOATS = ("float",)
INEXACT = ("float", "complex")
BITS = ("bool", "signed", "unsigned")
ANY = ("bool", "signed", "unsigned", "float", "complex")


def same(count: int, kinds: tuple[str, ...]) -> TypeRule:
    """A type rule for `count` operands of one type with a scalar of these kinds; the result has the same type."""

    def rule(*types: Type) -> Type:
        if len(types) != count:
            raise TypeRuleError("wrong number of operands", expected=str(count), found=str(len(types)))
        first = types[0]
        scalar = scalar_of(first)
        if scalar is None or scalar.kind not in kinds:
            raise TypeRuleError("operand of the wrong kind", expected=" or ".join(kinds))
        for other in types:
            if other is not first:
                raise TypeRuleError("operands of different types", help=_match_help(first, other))
        return first

    # Cached: every new node calls a rule, mostly for the same few types.
    return lru_cache(maxsize=1024)(rule)


def _match_help(first: Type, other: Type) -> str:
    if scalar_of(first) is not scalar_of(other):
        return "cast one of them: nothing is promoted silently"
    return "broadcast one of them to the other's shape"


def predicate(count: int, kinds: tuple[str, ...]) -> TypeRule:
    """Like `same`, with a result of bools."""
    operands = same(count, kinds)

    def rule(*types: Type) -> Type:
        return with_scalar(operands(*types), bool_)

    return lru_cache(maxsize=1024)(rule)


def scale_by(*partials: Callable[..., Node]) -> Callable[..., Node | None]:
    """A jvp rule from the partial derivatives, one per operand, as functions of (result, *operands)."""

    def jvp(node: Node, *tangents: Node | None) -> Node | None:
        total: Node | None = None
        for partial, tangent in zip(partials, tangents, strict=True):
            if tangent is not None:
                total = add_tangents(total, partial(node, *node.operands) * tangent)
        return total

    return jvp


def add_tangents(first: Node | None, second: Node | None) -> Node | None:
    """The sum of two differentials, either of which may be identically zero."""
    if first is None or second is None:
        return second if first is None else first
    return add_values(first, second)


def add_values(first: Node, second: Node) -> Node:
    """The sum of two values of one differentiable type, member by member for aggregates."""
    for value, other in ((first, second), (second, first)):
        if _adds_to_zeros(other):
            # Scatter into the other summand instead of into zeros.
            return make_node(other.op, (value, *other.operands[1:]), other.attributes)
        if _has_one_nonzero_element(other):
            # Update that element of the other summand: adding all elements would make a loop over a list quadratic.
            _, index, part = other.operands
            return make_node(other.op, (value, index, add_values(Op.named("get_at")(value, index), part)), ())
    if isinstance(first.type, Tape):
        return Op.named("tape_sum")(first, second)
    if scalar_of(first.type) is not None:
        return first + second
    if first.type is UNIT:
        return first
    get, make = Op.named("get"), Op.named("make")
    members = [
        add_values(get(first, index=index), get(second, index=index)) for index in range(len(components(first.type)))
    ]
    return make(*members, type=first.type)


def _adds_to_zeros(value: Node) -> bool:
    if value.op.name == "tape_add":
        return value.operands[0].op.name == "tape_new"
    return value.op.name == "scatter_add" and is_zero_node(value.operands[0])


def _has_one_nonzero_element(value: Node) -> bool:
    """Whether a list is zero except for one element at a computed index."""
    return isinstance(value.type, Array) and value.op.name == "set_at" and is_zero_node(value.operands[0])


def zero_tangent(node: Node, *tangents: Node | None) -> None:
    """The jvp rule of an op whose derivative is zero."""
    return None


def zero(type: Type) -> Node:
    """The zero of any type.

    >>> from livegrad.ir.types import Vector, f32
    >>> zero(Vector(f32, 3)).type
    vec<f32, 3>
    """
    match type:
        case Scalar():
            return constant(_ZEROS.get(type.kind, 0), type)
        case Vector() | Matrix():
            return Op.named("splat")(zero(type.element), type=type)
        case Tensor(element=element, shape=shape):
            return make_node(Op.named("broadcast"), (zero(element),), (("axes", ()), ("shape", shape)))
        case Tape():
            return Op.named("tape_new")(type=type)
    return Op.named("make")(*map(zero, components(type)), type=type)


_ZEROS = {"bool": False, "float": 0.0, "complex": 0j}


def is_zero_node(node: Node) -> bool:
    """Whether a node is the zero of its type as created by `zero`.

    >>> from livegrad.ir.types import Tensor, f32
    >>> is_zero_node(zero(Tensor(f32, (3,)))), is_zero_node(filled(-0.0, Tensor(f32, (3,))))
    (True, False)
    """
    match node.op.name:
        case "constant":
            value = node.attribute("value")
            return value == 0 and copysign(1.0, value.real) > 0.0 and copysign(1.0, value.imag) > 0.0
        case "splat" | "make":
            return all(map(is_zero_node, node.operands))
        case "broadcast":
            return not node.attribute("axes") and is_zero_node(node.operands[0])
        case "tape_new":
            return True
    return False


def filled(value: bool | int | float | complex, type: Type) -> Node:
    """Returns a scalar, vector, matrix or tensor filled with one number.

    >>> import livegrad as lg
    >>> filled(1.5, lg.ir.types.Tensor(lg.f32, (2, 3)))
    <broadcast: tensor<f32, [2, 3]>>
    """
    scalar = scalar_of(type)
    if scalar is None:
        raise TypeRuleError(f"{type} cannot be filled with a number")
    node = constant(value, scalar)
    if isinstance(type, Tensor):
        return Op.named("broadcast")(node, shape=type.shape, axes=())
    return node if type is scalar else Op.named("splat")(node, type=type)


def or_zero(tangent: Node | None, type: Type) -> Node:
    """Replaces None, an identically zero tangent, by a node."""
    return zero(type) if tangent is None else tangent


def tuple_of(types: tuple[Type, ...]) -> Type:
    """The type of a call with these result types: a tuple, or the type of the single result."""
    return types[0] if len(types) == 1 else Tuple(types)
