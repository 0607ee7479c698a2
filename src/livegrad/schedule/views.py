"""Index maps of movement ops: each dimension of a tensor is indexed by an affine function of one kernel dimension."""

from __future__ import annotations

from typing import NamedTuple

from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.movement import squeezed_axes


class Affine(NamedTuple):
    """`start + step * i`, where i is the index along kernel dimension `axis`; just `start` without an axis.

    An index that `may_exceed` the bounds is allowed to do so; the value read there is not used.
    """

    axis: int | None
    start: int
    step: int
    may_exceed: bool = False


Index = Affine | Node  # a node is an i64 computed at each point

FIXED_ZERO = Affine(None, 0, 0)


def compose_affine(index: Index, start: int, step: int) -> Index:
    """Returns `start + step * index`."""
    if isinstance(index, Node):
        return index * step + start
    return Affine(index.axis, start + step * index.start, step * index.step, index.may_exceed)


def bound_index(index: Affine, size: int) -> Affine | None:
    """Marks an index that may be out of bounds. A fixed index is returned unchanged, or None if it is out of bounds.

    >>> bound_index(Affine(None, 2, 0), 3), bound_index(Affine(None, 3, 0), 3)
    (Affine(axis=None, start=2, step=0, may_exceed=False), None)
    """
    if index.axis is not None:
        return index._replace(may_exceed=True)
    return index if 0 <= index.start < size else None


def operand_index(node: Node, index: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The index into a movement op's operand; None for other ops."""
    match node.op.name:
        case "broadcast":
            sizes, axes = shape_of(node.operands[0].type), node.attribute("axes")
            return tuple(FIXED_ZERO if size == 1 else index[axis] for size, axis in zip(sizes, axes, strict=True))
        case "permute":
            axes = node.attribute("axes")
            return tuple(index[axes.index(axis)] for axis in range(len(axes)))
        case "slice":
            starts, steps = node.attribute("start"), node.attribute("step")
            return tuple(compose_affine(i, a, s) for i, a, s in zip(index, starts, steps, strict=True))
        case "flip":
            sizes = shape_of(node.type)
            return tuple(
                compose_affine(i, sizes[axis] - 1, -1) if axis in node.attribute("axes") else i  # type: ignore[arg-type]
                for axis, i in enumerate(index)
            )
        case "reshape":
            axes = squeezed_axes(shape_of(node.operands[0].type), shape_of(node.type))  # type: ignore[arg-type]
            if axes is None:
                return None
            return tuple(FIXED_ZERO if axis is None else index[axis] for axis in axes)
    return None
