"""Slot layout of tagged unions: assigns each scalar of a value to a slot, and rebuilds values from slots.

Interfaces store their values and differentials in such slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.ir import types as ir
from livegrad.ir.node import Node
from livegrad.ops.aggregate import make, member


def scalar_leaves(type: ir.Type) -> list[ir.Scalar]:
    """The scalar types of a value, in order."""
    if isinstance(type, ir.Scalar):
        return [type]
    return [leaf for part in ir.components(type) for leaf in scalar_leaves(part)]


def slots_for(types: Sequence[ir.Type]) -> list[tuple[str, ir.Scalar]]:
    """Slots that can store the scalars of any of the types: for each scalar type, the maximum count."""
    counts: Counter[ir.Scalar] = Counter()
    for type in types:
        counts |= Counter(scalar_leaves(type))
    return [(f"{scalar}_{k}", scalar) for scalar, count in sorted(counts.items(), key=str) for k in range(count)]


def slot_indices(slots: Sequence[tuple[str, ir.Scalar]], type: ir.Type) -> list[int]:
    """The slot of each of a type's scalars."""
    free = {element: [k for k, (_, scalar) in enumerate(slots) if scalar is element] for _, element in slots}
    return [free[leaf].pop(0) for leaf in scalar_leaves(type)]


def leaf_nodes(node: Node) -> list[Node]:
    """The scalars of a value as nodes, in order."""
    if isinstance(node.type, ir.Scalar):
        return [node]
    count = len(ir.components(node.type))
    return [leaf for index in range(count) for leaf in leaf_nodes(member(node, index))]


def rebuild_node(type: ir.Type, supply: Any) -> Node:
    """Rebuilds a value from its scalars."""
    if isinstance(type, ir.Scalar):
        return next(supply)
    return make(*[rebuild_node(part, supply) for part in ir.components(type)], type=type)


def python_leaves(value: Any, type: ir.Type) -> list[Any]:
    """The scalars of a Python value, in order."""
    if isinstance(type, ir.Scalar):
        return [value]
    if isinstance(type, ir.Vector | ir.Matrix):
        return list(np.asarray(value).reshape(-1))
    return [
        leaf
        for part, part_type in zip(value, ir.components(type), strict=True)
        for leaf in python_leaves(part, part_type)
    ]


def rebuild_python_value(type: ir.Type, supply: Any) -> Any:
    """Rebuilds a Python value from its scalars."""
    if isinstance(type, ir.Scalar):
        return next(supply)
    parts = [rebuild_python_value(part, supply) for part in ir.components(type)]
    if isinstance(type, ir.Vector):
        return np.array(parts, type.element.dtype)
    if isinstance(type, ir.Matrix):
        return np.array(parts, type.element.dtype).reshape(type.rows, type.columns)
    return tuple(parts)
