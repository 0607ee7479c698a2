"""Builds kernels that fusion does not: scans, and placements of tensors into parts of a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from operator import mul

from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Scalar, shape_of
from livegrad.ops.assignment import assign
from livegrad.ops.elementwise import maximum, minimum
from livegrad.ops.movement import concatenate, reshape, sizes, slice_
from livegrad.ops.reduction import cumulative, fold_start
from livegrad.schedule.fuse import Group
from livegrad.schedule.indexed_writes import assigned_box
from livegrad.schedule.kernel import Scan, Stage, StridedAccess
from livegrad.schedule.kernels import NewBuffer, StageBuilder, StepBuilder
from livegrad.schedule.plan import Buffer, KernelStep, View
from livegrad.schedule.space import space_over
from livegrad.schedule.work import KernelBuilder, Work

_MOST_PARTS = 16  # parts of a concatenation that one kernel writes


def build_scan(root: Node, stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> KernelStep:
    """Builds a scan: serial along the axis, with lanes across the other dimensions."""
    group = Group("scan", space_over(sizes(root), (root.attribute("axis"),)), [root])
    builder = KernelBuilder(group, stored)
    operands = [builder.expressions.element(operand, group.space.point) for operand in root.operands]
    scalar = operands[0].type
    assert isinstance(scalar, Scalar)
    before = input_node(Key("before"), scalar)
    result, start = _build_scan_rule(root, before, operands, scalar)
    step = StepBuilder(builder, stored, new_buffer)
    stage = StageBuilder("point")
    step.store_values(stage, Work(root, [result], None), row_level=False)
    body, sources = builder.expressions.stage_function("scan", [result], first=(before,))
    exclusive = root.op is cumulative and root.attribute("exclusive")
    kind = root.attribute("kind") if root.op is cumulative else None
    scan = Scan(start, root.attribute("reverse"), exclusive, kind)
    scan_stage = Stage("point", body, sources, tuple(stage.sinks), scan)
    reads = [
        (StridedAccess(buffer.element, "point"), View(buffer, offset, strides))
        for buffer, offset, strides in builder.expressions.reads
    ]
    return step.build_step([scan_stage], reads)


def _build_scan_rule(root: Node, before: Node, operands: list[Node], scalar: Scalar) -> tuple[Node, bool | int | float]:
    """The result at a point from the previous result, and the initial value."""
    if root.op is not cumulative:
        return operands[0] * before + operands[1], 0
    kind = root.attribute("kind")
    (value,) = operands
    if kind in ("sum", "prod"):
        combined = before + value if kind == "sum" else before * value
    else:
        combined = (maximum if kind == "max" else minimum)(before, value)
    return combined, fold_start(kind, scalar)


def build_placements(root: Node, stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> list[KernelStep]:
    """Builds `concatenate`, `pad` and assignments to slices: each part is written directly to its final memory."""
    target = stored[root]
    if root.op is concatenate:
        parts: dict[tuple[int, ...], list[tuple[Node, int]]] = {}  # one kernel writes parts of one shape
        for operand, offset in _concatenated_parts(root, target.strides, stored):
            parts.setdefault(sizes(operand), []).append((operand, offset))
        return [
            _build_placement(batch, shape, target.strides, target, stored, new_buffer)
            for shape, group in parts.items()
            for batch in (group[first : first + _MOST_PARTS] for first in range(0, len(group), _MOST_PARTS))
        ]
    if root.op is assign:
        return _fill_box(root, stored, new_buffer)
    source, fill = root.operands
    low, interior = root.attribute("low"), root.attribute("interior")
    start = sum(a * stride for a, stride in zip(low, target.strides, strict=True))
    strides = tuple((i + 1) * stride for i, stride in zip(interior, target.strides, strict=True))
    borders = _border_boxes(target.shape, low, sizes(source), interior)
    fills = [
        _build_placement(
            [(fill, sum(map(mul, first, target.strides)))], shape, target.strides, target, stored, new_buffer
        )
        for first, shape in borders
    ]
    return [*fills, _build_placement([(source, start)], sizes(source), strides, target, stored, new_buffer)]


def _fill_box(root: Node, stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> list[KernelStep]:
    """Builds an assignment to a box: a copy of the surrounding elements, unless they are in place, and a write."""
    target, box = stored[root], assigned_box(root)
    assert box is not None
    base, updates = root.operands[:2]
    steps: list[KernelStep] = []
    if stored.get(base) is not target:
        interior = tuple(step - 1 for step in box.step)
        for first, shape in _border_boxes(target.shape, box.start, box.size, interior):
            part = slice_(base, start=first, size=shape, step=(1,) * len(shape))
            offset = sum(map(mul, first, target.strides))
            steps.append(_build_placement([(part, offset)], shape, target.strides, target, stored, new_buffer))
    strides = tuple(map(mul, box.step, target.strides))
    offset = sum(map(mul, box.start, target.strides))
    values = updates if sizes(updates) == box.size else reshape(updates, shape=box.size)
    return [*steps, _build_placement([(values, offset)], box.size, strides, target, stored, new_buffer)]


def _concatenated_parts(
    root: Node, strides: tuple[int, ...], stored: Mapping[Node, Buffer]
) -> Iterator[tuple[Node, int]]:
    """The parts of a concatenation with their offsets. Nested concatenations that are not stored are flattened."""
    axis, offset = root.attribute("axis"), 0
    for operand in root.operands:
        if operand.op is concatenate and operand not in stored:
            yield from ((part, offset + inside) for part, inside in _concatenated_parts(operand, strides, stored))
        else:
            yield operand, offset
        offset += sizes(operand)[axis] * strides[axis]


def _border_boxes(
    shape: tuple[int, ...], low: tuple[int, ...], inner: tuple[int, ...], interior: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The boxes that `pad` fills, as (start, shape): the borders if they are small, else the whole tensor."""
    borders = []
    for axis, extent in enumerate(shape):
        end = low[axis] + inner[axis]
        for first, last in ((0, low[axis]), (end, extent)):
            if last > first:
                start = tuple(first if a == axis else 0 for a in range(len(shape)))
                borders.append((start, tuple(last - first if a == axis else size for a, size in enumerate(shape))))
    are_small = 2 * sum(prod(border) for _, border in borders) <= prod(shape)
    return borders if are_small and not any(interior) else [((0,) * len(shape), shape)]


def _build_placement(
    parts: Sequence[tuple[Node, int]],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    target: Buffer,
    stored: Mapping[Node, Buffer],
    new_buffer: NewBuffer,
) -> KernelStep:
    """Writes tensors of one shape, or a scalar, to strided elements of a buffer that start at given offsets."""
    builder = KernelBuilder(Group("fused", space_over(shape, None)), stored)
    step = StepBuilder(builder, stored, new_buffer)
    stage = StageBuilder("row")
    for source, offset in parts:
        index = builder.group.space.point if shape_of(source.type) or not shape else ()
        value = builder.expressions.element(source, index)
        stage.add(value, step.output(StridedAccess(target.element, "row"), View(target, offset, strides)))
    step.stages.append(stage)
    return step.finish()


def build_copy(source: Node, target: Buffer, stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> KernelStep:
    """Copies a stored tensor to another buffer of the same shape."""
    return _build_placement([(source, 0)], target.shape, target.strides, target, stored, new_buffer)
