"""Assignment at computed indices (scatter). If several values are assigned to one element, the last one wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.ir.dimension import size_product
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, i32, i64, shape_of
from livegrad.ops.comparison import equal
from livegrad.ops.elementwise import select
from livegrad.ops.failing import Attributes, write_can_fail
from livegrad.ops.index_motion import Box, are_distinct, box_of
from livegrad.ops.indexing import flat_indices, lookup, lookup_or, scatter_add, write_type
from livegrad.ops.movement import iota, reshape, slice_
from livegrad.ops.rules import or_zero, zero


def indices_of(node: Node) -> tuple[Node, ...]:
    """The indices at which a node reads or writes a tensor, its first operand; none for other ops."""
    if node.op is lookup:
        return node.operands[1:]
    return node.operands[2:] if node.op in (lookup_or, *UPDATES) else ()


def _evaluate_assign(base: Any, updates: Any, *indices: Any, in_range: tuple[int, ...] = ()) -> Any:
    positions = flat_indices(base.shape, indices)
    result = np.array(base, order="C")
    result.reshape(-1)[positions] = np.reshape(updates, -1)  # NumPy assigns in order
    return result


def _assign_jvp(y: Node, dbase: Node | None, dupdates: Node | None, *_: None) -> Node | None:
    if dbase is None and dupdates is None:
        return None
    base, updates, *indices = y.operands
    return assign(or_zero(dbase, base.type), or_zero(dupdates, updates.type), *indices)


def _assign_transpose(y: Node, ct: Node, base: bool, updates: bool, *others: bool) -> tuple[Node | None, ...]:
    _, update, *indices = y.operands
    to_base = assign(ct, zero(update.type), *indices) if base else None
    to_updates = _update_cotangent(ct, update, indices) if updates else None
    return (to_base, to_updates, *[None] * len(indices))


def _update_cotangent(ct: Node, update: Node, indices: list[Node]) -> Node:
    """The cotangent of the assigned values."""
    box = written_box(ct, update, indices)
    if box is None:
        return _drop_overwritten(lookup(ct, *indices), indices, shape_of(ct.type))
    return reshape(slice_(ct, start=box.start, size=box.size, step=box.step), shape=shape_of(update.type))


def written_box(base: Node, updates: Node, indices: Sequence[Node]) -> Box | None:
    """The box of elements that a tensor of updates is assigned to; None for a scalar or for computed indices."""
    return box_of(shape_of(base.type), indices) if isinstance(updates.type, Tensor) else None


def _assign_can_fail(operands: tuple[Node, ...], attributes: Attributes) -> bool:
    is_box = len(operands) > 2 and written_box(operands[0], operands[1], operands[2:]) is not None
    return not is_box and write_can_fail(operands, attributes)


def _drop_overwritten(values: Node, indices: list[Node], shape: tuple[Any, ...]) -> Node:
    """Zeroes the values of assignments that a later assignment to the same element overwrites."""
    points = shape_of(values.type)
    if are_distinct(indices):
        return values  # each element is assigned once
    count = size_product(points)
    type = i32 if isinstance(count, int) and count < 1 << 31 else i64
    order = iota(shape=(count,), axis=0, type=type)
    order = order if len(points) == 1 else reshape(order, shape=points)
    last = lookup(assign(zero(Tensor(type, shape)), order, *indices), *indices)
    return select(equal(last, order), values, zero(values.type))


assign = Op(
    "assign",
    type_of=write_type,
    evaluate=_evaluate_assign,
    jvp=_assign_jvp,
    transpose=_assign_transpose,
    linear_in=(0, 1),
    checked=True,
    can_fail=_assign_can_fail,
    cost=8.0,
)

UPDATES = (scatter_add, assign)  # ops that return an updated version of their first operand
