"""Assignment at computed indices. If several values are assigned to one element, the last one wins."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.ir.dimension import size_product
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, i32, i64, shape_of
from livegrad.ops.comparison import equal
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import flat_indices, lookup, write_type
from livegrad.ops.movement import iota, reshape
from livegrad.ops.rules import or_zero, zero


def _evaluate_assign(base: Any, updates: Any, *indices: Any) -> Any:
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
    to_updates = _drop_overwritten(lookup(ct, *indices), indices, shape_of(y.type)) if updates else None
    return (to_base, to_updates, *[None] * len(indices))


def _drop_overwritten(values: Node, indices: list[Node], shape: tuple[Any, ...]) -> Node:
    """The values of the assignments that no later one overwrites; zero elsewhere."""
    points = shape_of(values.type)
    if not isinstance(values.type, Tensor) or not points or not indices:
        return values  # there is only one
    count = size_product(points)
    type = i32 if isinstance(count, int) and count < 1 << 31 else i64
    numbers = iota(shape=(count,), axis=0, type=type)
    numbers = numbers if len(points) == 1 else reshape(numbers, shape=points)
    last = lookup(assign(zero(Tensor(type, shape)), numbers, *indices), *indices)
    return select(equal(last, numbers), values, zero(values.type))


assign = Op(
    "assign",
    type_of=write_type,
    evaluate=_evaluate_assign,
    jvp=_assign_jvp,
    transpose=_assign_transpose,
    linear_in=(0, 1),
    checked=True,
    cost=8.0,
)
