"""The steps of a scatter: the tensor is written to memory, and a kernel updates it in place.

In: a root that is `scatter_add` or `assign`. Called by `schedule`. The axes along which an index varies are the domain
of the kernel: different points there write different elements, so threads and lanes can share them. The other axes are
swept in order.
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
from livegrad.schedule.kernels import NewBuffer, OpenStage, StepBuilder
from livegrad.schedule.loops.cost_model import ADDITIONS_EACH, MANY_ADDITIONS, MOST_ADDED_CHUNKS
from livegrad.schedule.plan import Buffer, KernelStep
from livegrad.schedule.space import Space, space_over
from livegrad.schedule.special import build_copy
from livegrad.schedule.work import KernelBuilder

Stored = Mapping[Node, Buffer]


def build_writes(root: Node, stored: Stored, new_buffer: NewBuffer) -> list[KernelStep]:
    """The steps after which the root's buffer holds it."""
    base, target = root.operands[0], stored[root]
    chunks = count_chunks(root)
    if chunks > 1:
        return _in_chunks(root, chunks, stored, new_buffer)
    before = [] if stored.get(base) is target else [build_copy(base, target, stored, new_buffer)]
    return [*before, _writing(root, target, stored, new_buffer)]


def _in_chunks(root: Node, chunks: int, stored: Stored, new_buffer: NewBuffer) -> list[KernelStep]:
    """Sums of chunks, and these added to what the tensor was before."""
    base, shape = root.operands[0], sizes(root)
    partial = new_buffer("partial", stored[root].element, (chunks, *shape))
    sums = input_node(Key("partial"), Tensor(partial.element, partial.shape))
    size, step = (1, *shape), (1,) * len(partial.shape)
    parts = [slice_(sums, start=(number, *[0] * len(shape)), size=size, step=step) for number in range(chunks)]
    total = fold(lambda a, b: a + b, [reshape(part, shape=shape) for part in parts])
    return [
        build_copy(zero(sums.type), partial, stored, new_buffer),
        _writing(root, partial, stored, new_buffer, chunks),
        build_copy(base + total, stored[root], {**stored, sums: partial}, new_buffer),
    ]


def _writing(root: Node, target: Buffer, stored: Stored, new_buffer: NewBuffer, chunks: int = 1) -> KernelStep:
    space = _space(root)
    builder = KernelBuilder(Group("write", space, [root]), stored)
    step = StepBuilder(builder, stored, new_buffer)
    expressions = builder.expressions
    value, *indices = [expressions.element(operand, space.point) for operand in root.operands[1:]]
    if chunks > 1:
        step.chunk = -(-space.inner[0] // chunks)
        indices = [expressions.placeholder(Source("index", -1), i64), *indices]  # the chunk, put before all dimensions
    whole = expressions.indexed_buffer(target)
    with originating_from(root.origins):
        changed = root.op(whole, value, *indices)
    stage = OpenStage("point" if space.axes else "row")
    stage.add(changed, Sink("indexed", expressions.indexed_buffers[target]))
    step.stages.append(stage)
    return step.finish("inner" if _runs_along(root, space) else "domain")


def _space(root: Node) -> Space:
    """The points, those along which no index moves being swept in order."""
    shape = sizes(root.operands[1])
    moving = separating_axes(root.operands[2:])
    return space_over(shape, tuple(axis for axis in range(len(shape)) if axis not in moving) or None)


def _runs_along(root: Node, space: Space) -> bool:
    """Whether lanes take points in order, one after the other: unless they write to neighbours."""
    if not space.domain:
        return True
    last = motion_of(root.operands[-1])
    lanes = [axis for axis in range(len(space.shape)) if axis not in (space.axes or ())][-1]
    return bool(space.axes) and not (last.axis == lanes and last.step == 1)


def count_chunks(root: Node) -> int:
    """How many parts of a sum are made apart: sizes alone decide, so that the bits are the same for any threads."""
    space = _space(root)
    additions = prod(space.shape)
    if root.op is not scatter_add or not space.inner or additions < MANY_ADDITIONS:
        return 1
    each = ADDITIONS_EACH * max(1, prod(shape_of(root.type)))  # type: ignore[arg-type]
    return max(1, min(MOST_ADDED_CHUNKS, additions // each, space.inner[0]))
