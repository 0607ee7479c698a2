"""Steps with a shape of their own: running folds, and writing tensors into parts of a buffer."""

from __future__ import annotations

from collections.abc import Mapping

from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Scalar, shape_of
from livegrad.ops.elementwise import maximum, minimum
from livegrad.ops.reduction import cumulative
from livegrad.schedule.fuse import Group
from livegrad.schedule.kernel import Port, Scan, Stage
from livegrad.schedule.kernels import NewBuffer, OpenStage, StepBuilder
from livegrad.schedule.plan import Buffer, KernelStep, View
from livegrad.schedule.roots import sizes
from livegrad.schedule.work import KernelBuilder, Work, point_index


def build_scan(root: Node, stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> KernelStep:
    """A running fold: lanes across the other dimensions, one element after the other along the axis."""
    group = Group("scan", sizes(root), (root.attribute("axis"),), [root])
    builder = KernelBuilder(group, stored)
    operands = [builder.expressions.element(operand, point_index(group)) for operand in root.operands]
    scalar = operands[0].type
    assert isinstance(scalar, Scalar)
    before = input_node(Key("before"), scalar)
    following, start = _scan_rule(root, before, operands, scalar)
    step = StepBuilder(builder, stored, new_buffer)
    stage = OpenStage("point")
    step.store_values(stage, Work(root, [following], None), row_level=False)
    body, sources = builder.expressions.stage_function("scan", [following], first=(before,))
    exclusive = root.op is cumulative and root.attribute("exclusive")
    scan = Scan(start, root.attribute("reverse"), exclusive)
    closed = Stage("point", body, sources, tuple(stage.targets), scan)
    reads = [
        (Port(buffer.element, "point"), View(buffer, offset, strides))
        for buffer, offset, strides in builder.expressions.reads
    ]
    return step.step_of([closed], reads, along=False)


def _scan_rule(root: Node, before: Node, operands: list[Node], scalar: Scalar) -> tuple[Node, bool | int | float]:
    if root.op is not cumulative:
        return operands[0] * before + operands[1], 0
    kind = root.attribute("kind")
    (value,) = operands
    if kind in ("sum", "prod"):
        return (before + value if kind == "sum" else before * value), int(kind == "prod")
    return (maximum if kind == "max" else minimum)(before, value), _limit(scalar, low=kind == "max")


def _limit(scalar: Scalar, low: bool) -> int | float:
    if scalar.kind == "float":
        return -float("inf") if low else float("inf")
    if scalar.kind == "unsigned":
        return 0 if low else (1 << scalar.bits) - 1
    return -(1 << (scalar.bits - 1)) if low else (1 << (scalar.bits - 1)) - 1


def build_placements(root: Node, stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> list[KernelStep]:
    """`concatenate` and `pad`: each part is written straight to where it belongs."""
    target = stored[root]
    if root.op.name == "concatenate":
        steps, offset = [], 0
        axis = root.attribute("axis")
        for operand in root.operands:
            start = offset * target.strides[axis]
            steps.append(_placement(operand, sizes(operand), start, target.strides, target, stored, new_buffer))
            offset += sizes(operand)[axis]
        return steps
    source, fill = root.operands
    low, interior = root.attribute("low"), root.attribute("interior")
    start = sum(a * stride for a, stride in zip(low, target.strides, strict=True))
    strides = tuple((i + 1) * stride for i, stride in zip(interior, target.strides, strict=True))
    return [
        _placement(fill, target.shape, 0, target.strides, target, stored, new_buffer),
        _placement(source, sizes(source), start, strides, target, stored, new_buffer),
    ]


def _placement(
    source: Node,
    shape: tuple[int, ...],
    offset: int,
    strides: tuple[int, ...],
    target: Buffer,
    stored: Mapping[Node, Buffer],
    new_buffer: NewBuffer,
) -> KernelStep:
    """Writes a tensor's elements, or one scalar everywhere, to evenly spaced places of a buffer."""
    group = Group("fused", shape, None, [source])
    builder = KernelBuilder(Group("fused", shape, None), stored)
    index = point_index(group) if shape_of(source.type) or not shape else ()
    step = StepBuilder(builder, stored, new_buffer)
    stage = OpenStage("row")
    value = builder.expressions.element(source, index)
    stage.add(value, step.output(Port(target.element, "row"), View(target, offset, strides)))
    step.stages.append(stage)
    return step.finish(along=False)


def build_copy(source: Node, target: Buffer, stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> KernelStep:
    """A stored tensor written to another buffer of the same shape."""
    return _placement(source, target.shape, 0, target.strides, target, stored, new_buffer)
