"""Tapes: the residuals of loops by iteration, zero where none was set. Created only by reverse mode.

A tape grows as it is written. Reading an index that was never set gives zero, so the transpose of a read is an addition
into an empty tape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Dimension, Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.persistent_array import Entries
from livegrad.ir.types import (
    Matrix,
    Scalar,
    Tensor,
    Trace,
    Type,
    Vector,
    components,
    differential_of,
    i64,
    is_differentiable,
)
from livegrad.ops.rules import or_zero, zero, zero_tangent


def zero_value(type: Type) -> Any:
    """The zero of a type, as the reference holds it."""
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
        case Trace():
            return Entries()
    return tuple(map(zero_value, components(type)))


def add_plain(first: Any, second: Any) -> Any:
    """The sum of two values as the reference holds them."""
    if isinstance(first, tuple):
        return tuple(map(add_plain, first, second))
    if isinstance(first, Mapping):
        return Entries({key: _sum_entries(first.get(key), second.get(key)) for key in {**first, **second}})
    return first + second


def _sum_entries(first: Any, second: Any) -> Any:
    return second if first is None else (first if second is None else add_plain(first, second))


def _element(trace: Type) -> Type:
    if not isinstance(trace, Trace):
        raise TypeRuleError("operand must be a trace", found=str(trace))
    return trace.element


def _new_type(*, type: Type) -> Type:
    _element(type)
    return type


trace_new = Op("trace_new", type_of=_new_type, evaluate=lambda *, type: Entries(), jvp=zero_tangent)


def _set_type(trace: Type, index: Type, value: Type) -> Type:
    if index is not i64 or _element(trace) is not value:
        raise TypeRuleError("a trace is set at an i64 to a value of its element type")
    return trace


def _set_jvp(y: Node, dtrace: Node | None, dindex: None, dvalue: Node | None) -> Node | None:
    if dtrace is None and dvalue is None:
        return None
    trace, index, value = y.operands
    type = differential_of(trace.type)
    return trace_set(or_zero(dtrace, type), index, or_zero(dvalue, differential_of(value.type)))


def _set_transpose(y: Node, ct: Node, trace: bool, index: bool, value: bool) -> tuple[Node | None, ...]:
    position = y.operands[1]
    below = trace_set(ct, position, zero(y.operands[2].type)) if trace else None
    return below, None, trace_get(ct, position) if value else None


trace_set = Op(
    "trace_set",
    type_of=_set_type,
    evaluate=lambda trace, index, value: trace.with_entry(int(index), value),
    jvp=_set_jvp,
    transpose=_set_transpose,
    linear_in=(0, 2),
)


def _get_type(trace: Type, index: Type) -> Type:
    if index is not i64:
        raise TypeRuleError("a trace is read at an i64", found=str(index))
    return _element(trace)


def _get_jvp(y: Node, dtrace: Node | None, dindex: None) -> Node | None:
    return None if dtrace is None or not is_differentiable(y.type) else trace_get(dtrace, y.operands[1])


trace_get = Op(
    "trace_get",
    type_of=_get_type,
    evaluate=None,  # the reference fills in the zero of the node's own type
    jvp=_get_jvp,
    transpose=lambda y, ct, trace, index: (
        trace_add(Op.named("trace_new")(type=y.operands[0].type), y.operands[1], ct),
        None,
    ),
    linear_in=(0,),
)


def _add_transpose(y: Node, ct: Node, trace: bool, index: bool, value: bool) -> tuple[Node | None, ...]:
    return (ct if trace else None), None, trace_get(ct, y.operands[1]) if value else None


def _evaluate_add(trace: Any, index: Any, value: Any) -> Any:
    known = trace.get(int(index))
    return trace.with_entry(int(index), value if known is None else add_plain(known, value))


def _add_jvp(y: Node, dtrace: Node | None, dindex: None, dvalue: Node | None) -> Node | None:
    if dtrace is None and dvalue is None:
        return None
    trace, index, value = y.operands
    type = differential_of(trace.type)
    return trace_add(or_zero(dtrace, type), index, or_zero(dvalue, differential_of(value.type)))


trace_add = Op(
    "trace_add",
    type_of=_set_type,
    evaluate=_evaluate_add,
    jvp=_add_jvp,
    transpose=_add_transpose,
    linear_in=(0, 2),
)


def _sum_type(first: Type, second: Type) -> Type:
    _element(first)
    if first is not second:
        raise TypeRuleError("traces of different types")
    return first


def _sum_jvp(y: Node, da: Node | None, db: Node | None) -> Node | None:
    if da is None or db is None:
        return db if da is None else da
    return trace_sum(da, db)


trace_sum = Op(
    "trace_sum",
    type_of=_sum_type,
    evaluate=add_plain,
    jvp=_sum_jvp,
    transpose=lambda y, ct, a, b: (ct if a else None, ct if b else None),
    linear_in=(0, 1),
)


# --- traces of tensors as one tensor ---------------------------------------------------------------------------------


def _stack_type(trace: Type, *, size: Size) -> Type:
    element = _element(trace)
    if not isinstance(element, Tensor):
        raise TypeRuleError("only a trace of tensors can be stacked", found=str(trace))
    return Tensor(element.element, (size, *element.shape))


def _unstack_type(stacked: Type) -> Type:
    if not isinstance(stacked, Tensor) or not stacked.rank:
        raise TypeRuleError("only a tensor with a first dimension can be unstacked", found=str(stacked))
    return Trace(Tensor(stacked.element, stacked.shape[1:]))


def _stack_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    return (trace_unstack(ct),)


def _unstack_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    stacked = y.operands[0].type
    assert isinstance(stacked, Tensor)
    return (trace_stack(ct, size=stacked.shape[0]),)


# trace_stack(trace, size=n) is the tensor of entries 0 to n - 1, zero where none was set; trace_unstack is its inverse.
trace_stack = Op(
    "trace_stack",
    type_of=_stack_type,
    evaluate=None,  # the reference fills in zeros of the node's own type
    jvp=lambda y, dtrace: None if dtrace is None else trace_stack(dtrace, size=y.attribute("size")),
    transpose=_stack_transpose,
    linear_in=(0,),
)
trace_unstack = Op(
    "trace_unstack",
    type_of=_unstack_type,
    evaluate=lambda stacked: Entries(dict(enumerate(stacked))),
    jvp=lambda y, dx: None if dx is None else trace_unstack(dx),
    transpose=_unstack_transpose,
    linear_in=(0,),
)
