"""Tapes: the residuals of loops, by iteration. Only reverse mode creates them.

A tape grows as it is written. An entry that was never set reads as zero, so the transpose of a read is an addition to
an empty tape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.persistent_array import PersistentArray
from livegrad.ir.types import (
    Matrix,
    Scalar,
    Tape,
    Tensor,
    Type,
    Vector,
    components,
    differential_of,
    i64,
    is_differentiable,
)
from livegrad.ops.rules import or_zero, zero, zero_tangent


def zero_value(type: Type) -> Any:
    """The zero of a type as a value of the reference evaluator."""
    match type:
        case Scalar():
            return type(0)
        case Vector(element=element, size=size):
            return np.zeros(size, element.dtype)
        case Matrix(element=element, rows=rows, columns=columns):
            return np.zeros((rows, columns), element.dtype)
        case Tensor(element=element, shape=shape):
            if any(isinstance(size, Dimension) for size in shape):
                raise TypeRuleError(f"{type} has no zero before its sizes are known")
            return np.zeros(shape, element.dtype)  # type: ignore[arg-type]
        case Tape():
            return PersistentArray()
    return tuple(map(zero_value, components(type)))


def add_plain(first: Any, second: Any) -> Any:
    """The sum of two values of the reference evaluator."""
    if isinstance(first, tuple):
        return tuple(map(add_plain, first, second))
    if isinstance(first, Mapping):
        return PersistentArray({key: _sum_entries(first.get(key), second.get(key)) for key in {**first, **second}})
    return first + second


def _sum_entries(first: Any, second: Any) -> Any:
    return second if first is None else (first if second is None else add_plain(first, second))


def _element(tape: Type) -> Type:
    if not isinstance(tape, Tape):
        raise TypeRuleError("operand must be a tape", found=str(tape))
    return tape.element


def _new_type(*, type: Type, residuals: bool = False) -> Type:
    _element(type)
    return type


# `residuals` promises that only entries that were set are read.
tape_new = Op(
    "tape_new", type_of=_new_type, evaluate=lambda *, type, residuals=False: PersistentArray(), jvp=zero_tangent
)


def _set_type(tape: Type, index: Type, value: Type) -> Type:
    if index is not i64 or _element(tape) is not value:
        raise TypeRuleError("tape_set takes an i64 index and a value of the element type")
    return tape


def _set_jvp(y: Node, dtape: Node | None, dindex: None, dvalue: Node | None) -> Node | None:
    if dtape is None and dvalue is None:
        return None
    tape, index, value = y.operands
    type = differential_of(tape.type)
    return tape_set(or_zero(dtape, type), index, or_zero(dvalue, differential_of(value.type)))


def _set_transpose(y: Node, ct: Node, tape: bool, index: bool, value: bool) -> tuple[Node | None, ...]:
    position = y.operands[1]
    ct_tape = tape_set(ct, position, zero(y.operands[2].type)) if tape else None
    return ct_tape, None, tape_get(ct, position) if value else None


tape_set = Op(
    "tape_set",
    type_of=_set_type,
    evaluate=lambda tape, index, value: tape.with_item(int(index), value),
    jvp=_set_jvp,
    transpose=_set_transpose,
    linear_in=(0, 2),
)


def _get_type(tape: Type, index: Type) -> Type:
    if index is not i64:
        raise TypeRuleError("tape_get takes an i64 index", found=str(index))
    return _element(tape)


def _get_jvp(y: Node, dtape: Node | None, dindex: None) -> Node | None:
    return None if dtape is None or not is_differentiable(y.type) else tape_get(dtape, y.operands[1])


tape_get = Op(
    "tape_get",
    type_of=_get_type,
    evaluate=None,  # the reference evaluator needs the node's type for the zero
    jvp=_get_jvp,
    transpose=lambda y, ct, tape, index: (
        tape_add(Op.named("tape_new")(type=y.operands[0].type), y.operands[1], ct),
        None,
    ),
    linear_in=(0,),
)


def _add_transpose(y: Node, ct: Node, tape: bool, index: bool, value: bool) -> tuple[Node | None, ...]:
    return (ct if tape else None), None, tape_get(ct, y.operands[1]) if value else None


def _evaluate_add(tape: Any, index: Any, value: Any) -> Any:
    entry = tape.get(int(index))
    return tape.with_item(int(index), value if entry is None else add_plain(entry, value))


def _add_jvp(y: Node, dtape: Node | None, dindex: None, dvalue: Node | None) -> Node | None:
    if dtape is None and dvalue is None:
        return None
    tape, index, value = y.operands
    type = differential_of(tape.type)
    return tape_add(or_zero(dtape, type), index, or_zero(dvalue, differential_of(value.type)))


tape_add = Op(
    "tape_add",
    type_of=_set_type,
    evaluate=_evaluate_add,
    jvp=_add_jvp,
    transpose=_add_transpose,
    linear_in=(0, 2),
)


def _sum_type(first: Type, second: Type) -> Type:
    _element(first)
    if first is not second:
        raise TypeRuleError("tapes of different types")
    return first


def _sum_jvp(y: Node, da: Node | None, db: Node | None) -> Node | None:
    if da is None or db is None:
        return db if da is None else da
    return tape_sum(da, db)


tape_sum = Op(
    "tape_sum",
    type_of=_sum_type,
    evaluate=add_plain,
    jvp=_sum_jvp,
    transpose=lambda y, ct, a, b: (ct if a else None, ct if b else None),
    linear_in=(0, 1),
)


# --- tapes of tensors as one tensor ---------------------------------------------------------------------------------


def _stack_type(tape: Type, *, size: Size) -> Type:
    element = _element(tape)
    if not isinstance(element, Tensor):
        raise TypeRuleError("only a tape of tensors can be stacked", found=str(tape))
    return Tensor(element.element, (size, *element.shape))


def _unstack_type(stacked: Type) -> Type:
    if not isinstance(stacked, Tensor) or not stacked.rank:
        raise TypeRuleError("only a tensor with a first dimension can be unstacked", found=str(stacked))
    return Tape(Tensor(stacked.element, stacked.shape[1:]))


def _stack_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    return (tape_unstack(ct),)


def _unstack_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    stacked = y.operands[0].type
    assert isinstance(stacked, Tensor)
    return (tape_stack(ct, size=stacked.shape[0]),)


# tape_stack(tape, size=n) is the tensor of entries 0 to n - 1, zero where none was set; tape_unstack is its inverse.
tape_stack = Op(
    "tape_stack",
    type_of=_stack_type,
    evaluate=None,  # the reference evaluator needs the node's type for zeros
    jvp=lambda y, dtape: None if dtape is None else tape_stack(dtape, size=y.attribute("size")),
    transpose=_stack_transpose,
    linear_in=(0,),
)
tape_unstack = Op(
    "tape_unstack",
    type_of=_unstack_type,
    evaluate=lambda stacked: PersistentArray(dict(enumerate(stacked))),
    jvp=lambda y, dx: None if dx is None else tape_unstack(dx),
    transpose=_unstack_transpose,
    linear_in=(0,),
)


# --- memory for tapes -----------------------------------------------------------------------------------------------


def _unwritten_type(*, type: Type, slot: int) -> Type:
    if not isinstance(type, Tensor):
        raise TypeRuleError("only tensors have memory", found=str(type))
    return type


# Uninitialised memory for a tensor that a loop fills, for instance in place of a tape. No element is read before it is
# written, so a loop that writes in place needs no initial value. `slot` distinguishes tensors of the same type.
unwritten = Op(
    "unwritten",
    type_of=_unwritten_type,
    evaluate=lambda *, type, slot: zero_value(type),
    jvp=zero_tangent,
    expand=lambda y: zero(y.type),
)
