"""Index maps of movement ops: each dimension of a tensor is read at an affine function of one kernel dimension."""

from __future__ import annotations

from typing import NamedTuple

from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.movement import squeezed_axes


class Affine(NamedTuple):
    """start + step * (index along kernel dimension `axis`); without an axis, just start.

    A loose index may be out of bounds; the value read there does not matter.
    """

    axis: int | None
    start: int
    step: int
    loose: bool = False


Index = Affine | Node  # a Node is an i64 that is computed at each point

FIXED_ZERO = Affine(None, 0, 0)


def shifted(index: Index, start: int, step: int) -> Index:
    """The index of element `start + step * i`, where `index` is i."""
    if isinstance(index, Node):
        return index * step + start
    return Affine(index.axis, start + step * index.start, step * index.step, index.loose)


def bounded(index: Affine, size: int) -> Affine | None:
    """An index that may lie outside of a dimension of that size: loose, unless it is fixed; None if it is outside.

    >>> bounded(Affine(None, 2, 0), 3), bounded(Affine(None, 3, 0), 3)
    (Affine(axis=None, start=2, step=0, loose=False), None)
    """
    if index.axis is not None:
        return index._replace(loose=True)
    return index if 0 <= index.start < size else None


def operand_index(node: Node, index: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The index into a movement op's operand; None when the op is none that only moves indices."""
    match node.op.name:
        case "broadcast":
            sizes, axes = shape_of(node.operands[0].type), node.attribute("axes")
            return tuple(FIXED_ZERO if size == 1 else index[axis] for size, axis in zip(sizes, axes, strict=True))
        case "permute":
            axes = node.attribute("axes")
            return tuple(index[axes.index(axis)] for axis in range(len(axes)))
        case "slice":
            starts, steps = node.attribute("start"), node.attribute("step")
            return tuple(shifted(i, a, s) for i, a, s in zip(index, starts, steps, strict=True))
        case "flip":
            sizes = shape_of(node.type)
            return tuple(
                shifted(i, sizes[axis] - 1, -1) if axis in node.attribute("axes") else i  # type: ignore[arg-type]
                for axis, i in enumerate(index)
            )
        case "reshape":
            axes = squeezed_axes(shape_of(node.operands[0].type), shape_of(node.type))  # type: ignore[arg-type]
            if axes is None:
                return None
            return tuple(FIXED_ZERO if axis is None else index[axis] for axis in axes)
    return None
