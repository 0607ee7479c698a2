"""Builds the steps of a loop that writes tensors in place: copies of the initial tensors, and one kernel.

In: the stored results of a loop that `in_place_loops` accepts. Called by the plan pass `build_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from livegrad.ir.function import inline
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Matrix, Scalar, Tensor, Vector, components, i64
from livegrad.ops.aggregate import get, member
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.tape import unwritten
from livegrad.passes.regions import first_argument
from livegrad.schedule.fuse import Group
from livegrad.schedule.kernel import Sink, StridedAccess
from livegrad.schedule.kernels import NewBuffer, StageBuilder, StepBuilder
from livegrad.schedule.plan import Buffer, KernelStep, View, storage
from livegrad.schedule.space import space_over
from livegrad.schedule.special import build_copy
from livegrad.schedule.work import KernelBuilder


def build_loop(roots: Sequence[Node], stored: Mapping[Node, Buffer], new_buffer: NewBuffer) -> list[KernelStep]:
    """Builds the steps that compute the roots, all results of one loop, in their buffers."""
    (loop,) = {root.operands[0] for root in roots}
    targets = {root.attribute("index"): stored[root] for root in roots}
    operands, memory, copies = list(loop.operands), dict(stored), list[KernelStep]()
    discarded: set[Buffer] = set()
    for index, type in enumerate(components(loop.type)):
        if not isinstance(type, Tensor):
            continue
        operand_index = first_argument(loop) + index
        if index not in targets:
            targets[index] = new_buffer("carried", *storage(type))
            discarded.add(targets[index])
        target = targets[index]
        if operands[operand_index].op is not unwritten and stored.get(operands[operand_index]) is not target:
            copies.append(build_copy(operands[operand_index], target, stored, new_buffer))
        operands[operand_index] = input_node(Key("carried"), type)
        memory[operands[operand_index]] = target
    with originating_from(loop.origins):
        loop_in_place = make_node(loop.op, tuple(operands), loop.attributes)
    step = _build_kernel(loop_in_place, targets, memory, new_buffer)
    unread = frozenset([index for index, buffer in enumerate(step.indexed_buffers) if buffer in discarded])
    return [*copies, replace(step, kernel=replace(step.kernel, discarded=unread))]


def _build_kernel(
    loop: Node, targets: Mapping[int, Buffer], memory: Mapping[Node, Buffer], new_buffer: NewBuffer
) -> KernelStep:
    """A kernel with a single point, which runs the loop and stores its results; or with a row for each iteration."""
    domain = _rows_of(loop)
    builder = KernelBuilder(Group("loop", space_over(domain, None), [loop]), memory)
    step = StepBuilder(builder, memory, new_buffer)
    stage = StageBuilder("row")
    value = builder.expressions.scalar(_iteration(loop, builder.expressions.index(0)) if domain else loop)
    for index, target in targets.items():
        result = get(value, index=index)
        if isinstance(result.type, Tensor):
            stage.add(result, Sink("indexed", builder.expressions.indexed_buffers[target]))
            continue
        for offset, part in enumerate(_parts(result)):
            stage.add(part, step.output(StridedAccess(target.element, "row"), View(target, offset, ())))
    step.stages.append(stage)
    return step.finish()


def _rows_of(loop: Node) -> tuple[int, ...]:
    """The iterations of a loop that are the rows of a kernel, for its threads and lanes: of one that promises so."""
    attributes = dict(loop.attributes)
    return (attributes["lanes"],) if attributes.get("independent") and attributes.get("lanes", 1) > 1 else ()


def _iteration(loop: Node, index: Node) -> Node:
    """One iteration of a loop with independent iterations, as a loop that runs once."""
    body: Function = loop.attribute("body")
    parameters = parameters_of([i64, *[node.type for node in loop.operands[1:]], i64])
    once = Function(body.name, parameters, inline(body, [parameters[-1], *parameters[1:-1]]))
    carried = loop.attribute("carried")
    return for_loop(constant(1, i64), *loop.operands[1:], index, body=once, carried=carried, reverse=False)


def _parts(value: Node) -> list[Node]:
    if isinstance(value.type, Scalar):
        return [value]
    assert isinstance(value.type, Vector | Matrix)
    return [member(value, index) for index in range(len(components(value.type)))]
