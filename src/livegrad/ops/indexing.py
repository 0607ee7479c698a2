"""Gathers (`lookup`) and their transpose, `scatter_add`."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Tensor, Type, i32, i64, shape_of
from livegrad.ops.comparison import greater_equal, less
from livegrad.ops.elementwise import select
from livegrad.ops.failing import lookup_can_fail, write_can_fail
from livegrad.ops.movement import broadcast, require_tensor
from livegrad.ops.rules import or_zero, zero


def _index_shape(tensor: Tensor, indices: tuple[Type, ...]) -> tuple[bool, tuple[Any, ...]]:
    """Whether the indices are tensors, and the shape they share."""
    if len(indices) != tensor.rank:
        raise TypeRuleError(f"{tensor} takes {tensor.rank} indices", found=str(len(indices)))
    for index in indices:
        scalar = index.element if isinstance(index, Tensor) else index
        if scalar not in (i32, i64):
            raise TypeRuleError("an index is an i32 or i64, or a tensor of them", found=str(index))
        if shape_of(index) != shape_of(indices[0]) or isinstance(index, Tensor) != isinstance(indices[0], Tensor):
            raise TypeRuleError("indices have different shapes", help="broadcast them to one shape")
    lifted = bool(indices) and isinstance(indices[0], Tensor)
    return lifted, shape_of(indices[0]) if indices else ()


def _require_axes(tensor: Tensor, in_range: tuple[int, ...]) -> None:
    if not all(0 <= axis < tensor.rank for axis in in_range):
        raise TypeRuleError(f"in_range names axes that {tensor} does not have", found=str(in_range))


def _lookup_type(source: Type, *indices: Type, in_range: tuple[int, ...] = ()) -> Type:
    """`in_range` are the axes whose indices were proved to be in range, which compiled code does not check."""
    tensor = require_tensor(source)
    lifted, shape = _index_shape(tensor, indices)
    _require_axes(tensor, in_range)
    return Tensor(tensor.element, shape) if lifted else tensor.element


def require_indices(shape: tuple[int, ...], indices: tuple[Any, ...]) -> None:
    for axis, (index, size) in enumerate(zip(indices, shape, strict=True)):
        outside = (np.asarray(index) < 0) | (np.asarray(index) >= size)
        if np.any(outside):
            first = np.asarray(index)[outside].reshape(-1)[0] if np.ndim(index) else index
            raise IndexError(f"index {int(first)} is out of range for axis {axis} of size {size}")


def _evaluate_lookup(tensor: Any, *indices: Any, in_range: tuple[int, ...] = ()) -> Any:
    require_indices(tensor.shape, indices)
    return tensor[tuple(np.asarray(index, np.int64) for index in indices)]


def _lookup_transpose(y: Node, ct: Node, *linear: bool) -> tuple[Node | None, ...]:
    tensor, *indices = y.operands
    if not indices:
        return (broadcast(ct, shape=(), axes=()),)
    return (scatter_add(zero(tensor.type), ct, *indices), *[None] * len(indices))


lookup = Op(
    "lookup",
    type_of=_lookup_type,
    evaluate=_evaluate_lookup,
    jvp=lambda y, dx, *_: None if dx is None else lookup(dx, *y.operands[1:]),
    transpose=_lookup_transpose,
    linear_in=(0,),
    checked=True,
    can_fail=lookup_can_fail,
    cost=4.0,
)


def _lookup_or_type(source: Type, otherwise: Type, *indices: Type) -> Type:
    element_type = _lookup_type(source, *indices)
    if otherwise is not element_type:
        raise TypeRuleError(
            "the value for elements out of bounds has the wrong type", expected=str(element_type), found=str(otherwise)
        )
    return element_type


def _evaluate_lookup_or(tensor: Any, otherwise: Any, *indices: Any) -> Any:
    positions = [np.asarray(index, np.int64) for index in indices]
    inside = np.asarray(True)
    for position, size in zip(positions, tensor.shape, strict=True):
        inside = inside & (position >= 0) & (position < size)
    if 0 in tensor.shape:
        return otherwise
    return np.where(inside, tensor[tuple(np.where(inside, position, 0) for position in positions)], otherwise)[()]


def _expand_lookup_or(node: Node) -> Node:
    tensor, otherwise, *indices = node.operands
    sizes = shape_of(tensor.type)
    if 0 in sizes:
        return otherwise
    inside: Node | None = None
    clamped: list[Node] = []
    for index, size in zip(indices, sizes, strict=True):
        in_bounds = greater_equal(index, 0) & less(index, size)
        inside = in_bounds if inside is None else inside & in_bounds
        clamped.append(select(in_bounds, index, zero(index.type)))
    element = lookup(tensor, *clamped)
    return element if inside is None else select(inside, element, otherwise)


# The element at the indices, or another value if they are out of bounds: padding that needs no memory.
lookup_or = Op("lookup_or", type_of=_lookup_or_type, evaluate=_evaluate_lookup_or, expand=_expand_lookup_or, cost=4.0)


def write_type(base: Type, updates: Type, *indices: Type, in_range: tuple[int, ...] = ()) -> Type:
    """The type rule of writes at indices, with one index per dimension for each update."""
    tensor = require_tensor(base)
    lifted, shape = _index_shape(tensor, indices)
    _require_axes(tensor, in_range)
    expected: Scalar | Tensor = Tensor(tensor.element, shape) if lifted else tensor.element
    if updates is not expected:
        raise TypeRuleError("updates and indices have incompatible shapes", expected=str(expected), found=str(updates))
    return tensor


def flat_indices(shape: tuple[int, ...], indices: tuple[Any, ...]) -> Any:
    """Row-major flat indices. NumPy writes several times faster through these than through an index per dimension."""
    require_indices(shape, indices)
    flat: Any = np.int64(0)
    for index, size in zip(indices, shape, strict=True):
        flat = flat * size + np.asarray(index, np.int64)
    return np.reshape(flat, -1)


def _evaluate_scatter_add(base: Any, updates: Any, *indices: Any, in_range: tuple[int, ...] = ()) -> Any:
    positions = flat_indices(base.shape, indices)
    result = np.array(base, order="C")
    np.add.at(result.reshape(-1), positions, np.reshape(updates, -1))
    return result


def _scatter_add_jvp(y: Node, dbase: Node | None, dupdates: Node | None, *_: None) -> Node | None:
    if dbase is None and dupdates is None:
        return None
    base, updates, *indices = y.operands
    return scatter_add(or_zero(dbase, base.type), or_zero(dupdates, updates.type), *indices)


# The order of additions to one element depends only on sizes, so the bits do not depend on the number of threads.
scatter_add = Op(
    "scatter_add",
    type_of=write_type,
    evaluate=_evaluate_scatter_add,
    jvp=_scatter_add_jvp,
    transpose=lambda y, ct, base, updates, *_: (
        ct if base else None,
        lookup(ct, *y.operands[2:]) if updates else None,
        *[None] * (len(y.operands) - 2),
    ),
    linear_in=(0, 1),
    checked=True,
    can_fail=write_can_fail,
    cost=8.0,
)
