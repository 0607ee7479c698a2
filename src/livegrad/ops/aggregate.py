"""Constructs, reads and updates aggregates: vectors, matrices, arrays, structs and tuples.

`make`, `get` and `set` work on all of them. Members are numbered in order; those of a matrix row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import ALL_OPERANDS, Op
from livegrad.ir.types import (
    UNIT,
    Array,
    Matrix,
    Scalar,
    Struct,
    Tuple,
    Type,
    Vector,
    components,
    differential_of,
    i32,
    i64,
    is_differentiable,
)
from livegrad.ops.failing import member_can_fail
from livegrad.ops.rules import or_zero, zero

Aggregate = Vector | Matrix | Array | Struct | Tuple


def _make_type(*members: Type, type: Type) -> Type:
    expected = components(type)
    if not isinstance(type, Aggregate) or members != expected:
        raise TypeRuleError(f"wrong members for {type}", expected=", ".join(map(str, expected)) or "no members")
    return type


def _evaluate_make(*members: Any, type: Type) -> Any:
    match type:
        case Vector(element=element):
            return np.array(members, element.dtype)
        case Matrix(element=element, rows=rows, columns=columns):
            return np.array(members, element.dtype).reshape(rows, columns)
    return tuple(members)


def _make_jvp(y: Node, *tangents: Node | None) -> Node | None:
    if all(tangent is None for tangent in tangents):
        return None
    type = differential_of(y.type)
    members = [or_zero(t, differential_of(operand.type)) for t, operand in zip(tangents, y.operands, strict=True)]
    if isinstance(y.type, Struct):
        members = [m for m, (_, field) in zip(members, y.type.fields, strict=True) if is_differentiable(field)]
    return make(*members, type=type)


def _make_transpose(y: Node, ct: Node, *linear: bool) -> tuple[Node | None, ...]:
    return tuple(get(ct, index=index) if flag else None for index, flag in enumerate(linear))


make = Op(
    "make",
    type_of=_make_type,
    evaluate=_evaluate_make,
    jvp=_make_jvp,
    transpose=_make_transpose,
    linear_in=ALL_OPERANDS,
    cost=0.0,
)


def member_type(type: Type, index: int) -> Type:
    """The type of one member of an aggregate."""
    members = components(type)
    if not members or not 0 <= index < len(members):
        raise TypeRuleError(f"{type} has no member {index}", expected=f"0 to {len(members) - 1}" if members else None)
    return members[index]


def _evaluate_get(value: Any, *, index: int) -> Any:
    return value[index] if isinstance(value, tuple) else value.reshape(-1)[index]


def differential_index(type: Type, index: int) -> int:
    """The index of member `index` in the differential, which omits the non-differentiable fields of a struct."""
    if not isinstance(type, Struct):
        return index
    return sum(is_differentiable(field) for _, field in type.fields[:index])


def _get_jvp(y: Node, dx: Node | None) -> Node | None:
    (x,) = y.operands
    if dx is None or not is_differentiable(y.type):
        return None
    return get(dx, index=differential_index(x.type, y.attribute("index")))


def _get_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    (x,) = y.operands
    position = y.attribute("index")
    members = [ct if index == position else zero(member) for index, member in enumerate(components(x.type))]
    return (make(*members, type=x.type),)


get = Op(
    "get",
    type_of=lambda type, *, index: member_type(type, index),
    evaluate=_evaluate_get,
    jvp=_get_jvp,
    transpose=_get_transpose,
    linear_in=(0,),
    cost=0.0,
)


def _set_type(type: Type, value: Type, *, index: int) -> Type:
    if member_type(type, index) is not value:
        raise TypeRuleError("the value has the wrong type for this member", expected=str(member_type(type, index)))
    return type


def _expand_set(y: Node) -> Node:
    target, value = y.operands
    position = y.attribute("index")
    members = [value if i == position else get(target, index=i) for i in range(len(components(y.type)))]
    return make(*members, type=y.type)


set_ = Op(
    "set",
    type_of=_set_type,
    evaluate=lambda target, value, *, index: _replace(target, value, index),
    expand=_expand_set,
    cost=0.0,
)


def _replace(target: Any, value: Any, index: int) -> Any:
    if isinstance(target, tuple):
        return (*target[:index], value, *target[index + 1 :])
    copy = np.array(target)
    copy.reshape(-1)[index] = value
    return copy


def _splat_type(value: Type, *, type: Type) -> Type:
    if not isinstance(type, Vector | Matrix) or type.element is not value:
        raise TypeRuleError("splat fills a vector or matrix with a scalar", expected=f"a scalar of {type}")
    return type


splat = Op(
    "splat",
    type_of=_splat_type,
    evaluate=lambda value, *, type: np.broadcast_to(
        value, (type.size,) if isinstance(type, Vector) else (type.rows, type.columns)
    ),
    expand=lambda y: make(*[y.operands[0]] * len(components(y.type)), type=y.type),
    cost=0.0,
)

# --- members at a computed index -------------------------------------------------------------------------------------


def _index_type(type: Type, index: Type) -> Type:
    if not isinstance(type, Vector | Array) or not components(type):
        raise TypeRuleError("only vectors and arrays take a computed index")
    if index not in (i32, i64):
        raise TypeRuleError("an index is an i32 or i64")
    return components(type)[0]


def _require_index(index: Any, size: int) -> int:
    if not 0 <= int(index) < size:
        raise IndexError(f"index {int(index)} is out of range for {size} members")
    return int(index)


def _evaluate_at(value: Any, index: Any) -> Any:
    return value[_require_index(index, len(value))]


def _at_transpose(y: Node, ct: Node, *linear: bool) -> tuple[Node | None, ...]:
    target, index = y.operands
    return set_at(zero(target.type), index, ct), None


get_at = Op(
    "get_at",
    type_of=_index_type,
    evaluate=_evaluate_at,
    jvp=lambda y, dx, di: None if dx is None or dx.type is UNIT else get_at(dx, y.operands[1]),
    transpose=_at_transpose,
    linear_in=(0,),
    checked=True,
    can_fail=member_can_fail,
    cost=4.0,
)


def _set_at_type(type: Type, index: Type, value: Type) -> Type:
    if _index_type(type, index) is not value:
        raise TypeRuleError("the value has the wrong type for this member")
    return type


def _set_at_jvp(y: Node, dx: Node | None, di: None, dv: Node | None) -> Node | None:
    if dx is None and dv is None:
        return None
    x, index, value = y.operands
    return set_at(or_zero(dx, differential_of(x.type)), index, or_zero(dv, differential_of(value.type)))


def _set_at_transpose(y: Node, ct: Node, x: bool, i: bool, v: bool) -> tuple[Node | None, ...]:
    _, index, value = y.operands
    ct_target = set_at(ct, index, zero(value.type)) if x else None
    return ct_target, None, get_at(ct, index) if v else None


set_at = Op(
    "set_at",
    type_of=_set_at_type,
    evaluate=lambda target, index, value: _replace(target, value, _require_index(index, len(target))),
    jvp=_set_at_jvp,
    transpose=_set_at_transpose,
    linear_in=(0, 2),
    checked=True,
    can_fail=member_can_fail,
    cost=4.0,
)


def make_vector(*members: Node) -> Node:
    """Creates a vector from its components.

    >>> from livegrad.ir.leaves import constant
    >>> from livegrad.ir.types import f32
    >>> make_vector(constant(1.0, f32), constant(2.0, f32)).type
    vec<f32, 2>
    """
    element = members[0].type
    if not isinstance(element, Scalar):
        raise TypeRuleError("a vector can only be made of scalars", found=str(element))
    return make(*members, type=Vector(element, len(members)))


def make_tuple(*members: Node) -> Node:
    """Creates a tuple.

    >>> import livegrad as lg
    >>> lg.ir.trace(lambda x: make_tuple(x, x * 2.0), lg.f32).result_type
    (f32, f32)
    """
    return make(*members, type=Tuple(tuple(member.type for member in members)))


def get_field(value: Node, name: str) -> Node:
    """Returns a field of a struct by name.

    >>> import livegrad as lg
    >>> spring = lg.ir.Struct("Spring", (("stiffness", lg.f32), ("rest", lg.f64)))
    >>> lg.ir.trace(lambda s: get_field(s, "rest"), spring).result_type
    f64
    """
    if not isinstance(value.type, Struct):
        raise TypeRuleError(f"{value.type} has no fields")
    value.type.field(name)
    return get(value, index=[field for field, _ in value.type.fields].index(name))


def member(value: Node, index: int) -> Node:
    """A member of an aggregate; for an aggregate built by `make`, the operand itself."""
    return value.operands[index] if value.op is make else get(value, index=index)


def members_of(value: Node) -> list[Node]:
    """All members of an aggregate."""
    return [member(value, index) for index in range(len(components(value.type)))]
