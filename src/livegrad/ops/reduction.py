"""Reductions along axes of tensors (sums, products, extrema, arguments of extrema), scans and linear recurrences."""

from __future__ import annotations

from functools import reduce as fold_pairs
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Tensor, Type, i64, shape_of
from livegrad.ops.comparison import bit_and, bit_not, bit_or, equal, greater, is_nan, less
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import add, maximum, minimum, mul, select
from livegrad.ops.movement import are_axes_in_order, broadcast, pad, require_tensor, slice_
from livegrad.ops.rules import NUMBERS, REALS, filled, zero, zero_tangent

_KINDS = {"sum": NUMBERS, "prod": NUMBERS, "max": REALS, "min": REALS, "any": ("bool",), "all": ("bool",)}
_FOLDS: dict[str, Any] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}

# The op that combines two values, for each kind of reduction.
COMBINE = {"sum": add, "prod": mul, "max": maximum, "min": minimum, "any": bit_or, "all": bit_and}


def is_better(value: Node, best: Node, largest: bool) -> Node:
    """Whether a value replaces the best one so far in an arg-reduction. A NaN is better than every number."""
    better = greater(value, best) if largest else less(value, best)
    if value.type.kind == "float":  # type: ignore[union-attr]
        better = bit_or(better, bit_and(is_nan(value), bit_not(is_nan(best))))
    return better


def fold_start(kind: str, type: Scalar) -> bool | int | float:
    """The neutral element of a reduction.

    A sum starts from +0, like NumPy's, so a sum of -0 is +0.

    >>> from livegrad.ir.types import f32, u8
    >>> fold_start("prod", f32), fold_start("max", f32), fold_start("argmin", u8)
    (1, -inf, 255)
    """
    if kind in ("sum", "prod", "any", "all"):
        return {"sum": 0, "prod": 1, "any": False, "all": True}[kind]
    highest = kind in ("min", "argmin")
    if type.kind == "float":
        return float("inf") if highest else float("-inf")
    if type.kind == "bool":
        return highest
    if type.kind == "unsigned":
        return (1 << type.bits) - 1 if highest else 0
    return (1 << (type.bits - 1)) - 1 if highest else -(1 << (type.bits - 1))


def _drop_axes(shape: tuple[Size, ...], axes: tuple[int, ...]) -> tuple[Size, ...]:
    return tuple([size for axis, size in enumerate(shape) if axis not in axes])


def _empty_error(kind: str, tensor: Tensor) -> TypeRuleError:
    return TypeRuleError(
        f"cannot compute the {kind} of an empty tensor",
        expected="at least one element",
        found=str(tensor),
        help="check the shape first, or add a smallest value with lg.concat",
    )


def _reduce_type(source: Type, *, kind: str, axes: tuple[int, ...]) -> Type:
    tensor = require_tensor(source)
    if kind not in _KINDS:
        raise TypeRuleError(f"no reduction `{kind}`", expected="one of " + ", ".join(_KINDS))
    if tensor.element.kind not in _KINDS[kind]:
        raise TypeRuleError(f"no {kind} of {tensor.element}", expected=" or ".join(_KINDS[kind]))
    if not are_axes_in_order(axes, tensor.rank):
        raise TypeRuleError("axes must be different dimensions, in order", found=f"{axes} for {tensor}")
    if kind in ("max", "min") and any(tensor.shape[axis] == 0 for axis in axes):
        raise _empty_error(kind, tensor)
    return Tensor(tensor.element, _drop_axes(tensor.shape, axes))


def _evaluate_reduce(value: Any, *, kind: str, axes: tuple[int, ...]) -> Any:
    if not axes:
        return value  # NumPy adds a zero, which would turn -0.0 into 0.0
    if kind in ("sum", "prod"):
        # NumPy adds float16 in float32 as our backends do; integers keep their width.
        wide = np.float32 if value.dtype == np.float16 else value.dtype
        return _FOLDS[kind](value, axis=axes, dtype=wide).astype(value.dtype)
    return _FOLDS[kind](value, axis=axes)


def spread_back(value: Node, shape: tuple[Size, ...], axes: tuple[int, ...]) -> Node:
    """Broadcasts a reduced value to the shape before the reduction.

    >>> import livegrad as lg
    >>> row = lg.ir.types.Tensor(lg.f32, (3,))
    >>> lg.ir.trace(lambda x: spread_back(x, (3, 4), (1,)), row).result_type
    tensor<f32, [3, 4]>
    """
    return broadcast(value, shape=shape, axes=tuple(axis for axis in range(len(shape)) if axis not in axes))


def _reduce_jvp(y: Node, dx: Node | None) -> Node | None:
    if dx is None:
        return None
    (x,) = y.operands
    kind, axes = y.attribute("kind"), y.attribute("axes")
    if kind == "sum":
        return reduce(dx, kind="sum", axes=axes)
    if kind == "prod":
        return reduce(dx * _product_of_others(x, axes), kind="sum", axes=axes)
    if kind in ("any", "all"):
        return None
    # Elements that tie for the extremum share the derivative evenly.
    element = x.type.element if isinstance(x.type, Tensor) else None
    ties = cast(equal(x, spread_back(y, shape_of(x.type), axes)), type=element)
    return reduce(dx * ties, kind="sum", axes=axes) / reduce(ties, kind="sum", axes=axes)


def _product_of_others(x: Node, axes: tuple[int, ...]) -> Node:
    """For each element, the product of all others, without a division, so that zeros are allowed."""
    shape = shape_of(x.type)
    result: Node | None = None
    rest = x
    for axis in axes:
        before = cumulative(rest, kind="prod", axis=axis, reverse=False, exclusive=True)
        after = cumulative(rest, kind="prod", axis=axis, reverse=True, exclusive=True)
        part = before * after
        result = part if result is None else result * part
        reduced = reduce(rest, kind="prod", axes=(axis,))
        rest = spread_back(reduced, shape, (axis,))
    return filled(1.0, x.type) if result is None else result


def _reduce_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    return (spread_back(ct, shape_of(y.operands[0].type), y.attribute("axes")),)


reduce = Op(
    "reduce",
    type_of=_reduce_type,
    evaluate=_evaluate_reduce,
    jvp=_reduce_jvp,
    transpose=_reduce_transpose,
    linear_in=(0,),
)


def _extremum_of_all(name: str, fold: Any, pair: Op) -> Op:
    """An elementwise extremum of three or more operands. Operands that tie share the derivative evenly."""

    def type_of(*types: Type) -> Type:
        if len(types) < 3 or any(type is not types[0] for type in types):
            raise TypeRuleError("takes three or more operands of one type")
        return pair.type_of(types[0], types[0])

    def jvp(y: Node, *tangents: Node | None) -> Node | None:
        active = [(x, dx) for x, dx in zip(y.operands, tangents, strict=True) if dx is not None]
        if not active:
            return None
        ties = [select(equal(x, y), filled(1.0, y.type), zero(y.type)) for x in y.operands]
        parts = [select(equal(x, y), dx, zero(y.type)) for x, dx in active]
        return fold_pairs(add, parts) / fold_pairs(add, ties)

    return Op(
        name,
        type_of=type_of,
        evaluate=lambda *values: fold(values, axis=0),
        jvp=jvp,
        expand=lambda y: fold_pairs(pair, y.operands),
        elementwise=True,
        cost=4.0,
    )


greatest = _extremum_of_all("greatest", np.max, maximum)
least = _extremum_of_all("least", np.min, minimum)


def _arg_reduce_type(source: Type, *, kind: str, axis: int) -> Type:
    tensor = require_tensor(source)
    if kind not in ("argmax", "argmin"):
        raise TypeRuleError(f"no reduction `{kind}`", expected="argmax or argmin")
    if tensor.element.kind not in (*REALS, "bool") or not 0 <= axis < tensor.rank:
        raise TypeRuleError(f"no {kind} of {tensor} along axis {axis}")
    if tensor.shape[axis] == 0:
        raise _empty_error(kind, tensor)
    return Tensor(i64, _drop_axes(tensor.shape, (axis,)))


arg_reduce = Op(
    "arg_reduce",
    type_of=_arg_reduce_type,
    evaluate=lambda value, *, kind, axis: (np.argmax if kind == "argmax" else np.argmin)(value, axis=axis),
    jvp=zero_tangent,
    differentiable=False,
)

_SCANS: dict[str, Any] = {
    "sum": np.add.accumulate,
    "prod": np.multiply.accumulate,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
}


def _cumulative_type(source: Type, *, kind: str, axis: int, reverse: bool, exclusive: bool) -> Type:
    tensor = require_tensor(source)
    if kind not in _SCANS or tensor.element.kind not in _KINDS[kind] or not 0 <= axis < tensor.rank:
        raise TypeRuleError(f"no cumulative {kind} of {tensor} along axis {axis}")
    if exclusive and kind not in ("sum", "prod"):
        raise TypeRuleError(f"an exclusive cumulative {kind} has no first value")
    return tensor


def _evaluate_cumulative(value: Any, *, kind: str, axis: int, reverse: bool, exclusive: bool) -> Any:
    ordered = np.flip(value, axis) if reverse else value
    running = _SCANS[kind](ordered, axis=axis, dtype=value.dtype)
    if exclusive:
        first = np.full_like(np.take(running, [0], axis) if running.shape[axis] else running, 0 if kind == "sum" else 1)
        running = np.concatenate([first, np.delete(running, -1, axis)], axis) if running.shape[axis] else running
    return np.flip(running, axis) if reverse else running


def shifted(x: Node, axis: int, reverse: bool, first: float) -> Node:
    """Each element's predecessor along an axis, and `first` where there is none."""
    shape = shape_of(x.type)
    rank = len(shape)
    assert isinstance(x.type, Tensor)
    nothing, one = (0,) * rank, tuple(int(i == axis) for i in range(rank))
    # Pad first and crop then, so that an axis of size zero keeps its size.
    low, high = (nothing, one) if reverse else (one, nothing)
    padded = pad(x, filled(first, x.type.element), low=low, high=high, interior=nothing)
    return slice_(padded, start=high, size=shape, step=(1,) * rank)


def _cumulative_jvp(y: Node, dx: Node | None) -> Node | None:
    if dx is None:
        return None
    (x,) = y.operands
    kind, axis, reverse = y.attribute("kind"), y.attribute("axis"), y.attribute("reverse")
    if kind == "sum":
        return cumulative(dx, **dict(y.attributes))
    if shape_of(x.type)[axis] == 0:
        return zero(x.type)
    if kind == "prod":
        full = (
            y if not y.attribute("exclusive") else cumulative(x, kind=kind, axis=axis, reverse=reverse, exclusive=False)
        )
        tangent = recurrence(x, dx * shifted(full, axis, reverse, 1.0), axis=axis, reverse=reverse)
        return shifted(tangent, axis, reverse, 0.0) if y.attribute("exclusive") else tangent
    # Keep the running derivative while the extremum is unchanged, take the new one where it changes, and half of each
    # at a tie. Comparisons with the NaN before the first element are false, so the first element is always taken.
    before = shifted(y, axis, reverse, float("nan"))
    is_unchanged = x < before if kind == "max" else x > before
    half, one, nothing = (filled(v, x.type) for v in (0.5, 1.0, 0.0))
    weight = select(equal(x, before), half, select(is_unchanged, nothing, one))
    return recurrence(1.0 - weight, weight * dx, axis=axis, reverse=reverse)


def _cumulative_transpose(y: Node, ct: Node, linear: bool) -> tuple[Node | None, ...]:
    return (
        cumulative(
            ct,
            kind="sum",
            axis=y.attribute("axis"),
            reverse=not y.attribute("reverse"),
            exclusive=y.attribute("exclusive"),
        ),
    )


cumulative = Op(
    "cumulative",
    type_of=_cumulative_type,
    evaluate=_evaluate_cumulative,
    jvp=_cumulative_jvp,
    transpose=_cumulative_transpose,
    linear_in=(0,),
)


def _recurrence_type(a: Type, b: Type, *, axis: int, reverse: bool) -> Type:
    tensor = require_tensor(a)
    if a is not b or tensor.element.kind not in NUMBERS or not 0 <= axis < tensor.rank:
        raise TypeRuleError("factors and terms must be tensors of the same type, with that axis")
    return tensor


def _evaluate_recurrence(a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    factors, terms = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    result = np.empty_like(terms)
    running = np.zeros_like(terms[0]) if len(terms) else None
    for index in reversed(range(len(terms))) if reverse else range(len(terms)):
        running = factors[index] * running + terms[index]
        result[index] = running
    return np.moveaxis(result, 0, axis)


def _recurrence_jvp(y: Node, da: Node | None, db: Node | None) -> Node | None:
    if da is None and db is None:
        return None
    a, _ = y.operands
    axis, reverse = y.attribute("axis"), y.attribute("reverse")
    term = db
    if da is not None:
        product = da * shifted(y, axis, reverse, 0.0)
        term = product if db is None else product + db
    assert term is not None
    return recurrence(a, term, axis=axis, reverse=reverse)


def _recurrence_transpose(y: Node, ct: Node, a: bool, b: bool) -> tuple[Node | None, ...]:
    factors, _ = y.operands
    axis, reverse = y.attribute("axis"), y.attribute("reverse")
    # In reverse, element i takes the factor of its successor.
    return None, recurrence(shifted(factors, axis, not reverse, 0.0), ct, axis=axis, reverse=not reverse)


# y[i] = a[i] * y[i-1] + b[i], with y[-1] = 0: the derivative of cumulative products and extrema.
recurrence = Op(
    "recurrence",
    type_of=_recurrence_type,
    evaluate=_evaluate_recurrence,
    jvp=_recurrence_jvp,
    transpose=_recurrence_transpose,
    linear_in=(1,),
)
