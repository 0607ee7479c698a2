"""Builds the steps of a scatter: a copy of the tensor, and a kernel that updates it in place.

In: a root that is `scatter_add` or `assign`. Axes along which different points write different elements are the domain
of the kernel, which threads and lanes share. The other axes are swept in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce as fold
from math import prod

from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, i64, shape_of
from livegrad.ops.index_motion import motion_of, separating_axes
from livegrad.ops.indexing import scatter_add
from livegrad.ops.movement import reshape, sizes, slice_
from livegrad.ops.rules import zero
from livegrad.schedule.fuse import Group
from livegrad.schedule.kernel import Sink, Source
from livegrad.schedule.kernels import NewBuffer, StageBuilder, StepBuilder
from livegrad.schedule.loops.cost_model import ADDITIONS_EACH, MANY_ADDITIONS, MOST_ADDED_CHUNKS
from livegrad.schedule.plan import Buffer, KernelStep
from livegrad.schedule.space import Space, space_over
from livegrad.schedule.special import build_copy
from livegrad.schedule.work import KernelBuilder

Stored = Mapping[Node, Buffer]


def build_writes(root: Node, stored: Stored, new_buffer: NewBuffer) -> list[KernelStep]:
    """Builds the steps that compute a root in its buffer."""
    base, target = root.operands[0], stored[root]
    chunks = count_chunks(root)
    if chunks > 1:
        return _build_chunked(root, chunks, stored, new_buffer)
    copies = [] if stored.get(base) is target else [build_copy(base, target, stored, new_buffer)]
    return [*copies, _build_write(root, target, stored, new_buffer)]


def _build_chunked(root: Node, chunks: int, stored: Stored, new_buffer: NewBuffer) -> list[KernelStep]:
    """Sums the updates in chunks with private tensors, and adds these to the old value."""
    base, shape = root.operands[0], sizes(root)
    partial = new_buffer("partial", stored[root].element, (chunks, *shape))
    sums = input_node(Key("partial"), Tensor(partial.element, partial.shape))
    size, step = (1, *shape), (1,) * len(partial.shape)
    parts = [slice_(sums, start=(chunk, *[0] * len(shape)), size=size, step=step) for chunk in range(chunks)]
    total = fold(lambda a, b: a + b, [reshape(part, shape=shape) for part in parts])
    return [
        build_copy(zero(sums.type), partial, stored, new_buffer),
        _build_write(root, partial, stored, new_buffer, chunks),
        build_copy(base + total, stored[root], {**stored, sums: partial}, new_buffer),
    ]


def _build_write(root: Node, target: Buffer, stored: Stored, new_buffer: NewBuffer, chunks: int = 1) -> KernelStep:
    space = _write_space(root)
    builder = KernelBuilder(Group("write", space, [root]), stored)
    step = StepBuilder(builder, stored, new_buffer)
    expressions = builder.expressions
    value, *indices = [expressions.element(operand, space.point) for operand in root.operands[1:]]
    if chunks > 1:
        step.chunk = -(-space.inner[0] // chunks)
        indices = [
            expressions.placeholder(Source("index", -1), i64),
            *indices,
        ]  # the index of the chunk, before all dimensions
    base = expressions.indexed_buffer(target)
    with originating_from(root.origins):
        updated = root.op(base, value, *indices)
    stage = StageBuilder("point" if space.axes else "row")
    stage.add(updated, Sink("indexed", expressions.indexed_buffers[target]))
    step.stages.append(stage)
    return step.finish("inner" if _vectorises_inner(root, space) else "domain")


def _write_space(root: Node) -> Space:
    """The space of the points of a write; axes that do not separate elements are swept in order."""
    shape = sizes(root.operands[1])
    separating = separating_axes(root.operands[2:])
    return space_over(shape, tuple(axis for axis in range(len(shape)) if axis not in separating) or None)


def _vectorises_inner(root: Node, space: Space) -> bool:
    """Whether lanes run along the swept points, in order, rather than across rows that write adjacent elements."""
    if not space.domain:
        return True
    last = motion_of(root.operands[-1])
    lane_axis = [axis for axis in range(len(space.shape)) if axis not in (space.axes or ())][-1]
    return bool(space.axes) and not (last.axis == lane_axis and last.step == 1)


def count_chunks(root: Node) -> int:
    """The number of chunks of a sum. It depends on sizes alone, so that the bits do not depend on threads."""
    space = _write_space(root)
    additions = prod(space.shape)
    if root.op is not scatter_add or not space.inner or additions < MANY_ADDITIONS:
        return 1
    each = ADDITIONS_EACH * max(1, prod(shape_of(root.type)))  # type: ignore[arg-type]
    return max(1, min(MOST_ADDED_CHUNKS, additions // each, space.inner[0]))
