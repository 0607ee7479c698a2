"""Resizes the plan of a map over one symbolic axis to another length, so that the map is scheduled only once.

No decision of the plan passes about such a map depends on its length. The loop passes run for each length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from livegrad.ir.dimension import Dimension
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get
from livegrad.ops.maps import map_
from livegrad.passes.bind_sizes import bind_sizes, has_symbols
from livegrad.schedule.plan import Buffer, KernelStep, Plan, View
from livegrad.schedule.verify import verify_plan

_FEWEST = 2  # along an axis of size 1, indices are constants


def resize_plan(plan: Plan, lowered: Function, sizes: Mapping[str, int]) -> Plan | None:
    """Converts the plan of a lowered function to other sizes; None if the function must be scheduled again."""
    if len(sizes) != 1 or len(plan.steps) != 1 or not _is_map_over(lowered, Dimension.symbol(next(iter(sizes)))):
        return None
    (step,), (length,) = plan.steps, sizes.values()
    if not isinstance(step, KernelStep) or len(step.domain) != 1 or step.chunk or plan.arena_bytes:
        return None
    if min(step.domain[0], length) < _FEWEST:
        return None
    symbolic = [*map(has_symbols, lowered.parameter_types), *map(has_symbols, lowered.result_types)]
    slots = [slot for slot in (*plan.arguments, *plan.results) if isinstance(slot, Buffer)]
    if len(slots) != len(symbolic) or set(slots) != set(plan.buffers):
        return None
    resized_buffers = {
        buffer: _resize_buffer(buffer, length) if is_symbolic else buffer
        for buffer, is_symbolic in zip(slots, symbolic, strict=True)
    }
    resized = replace(
        plan,
        steps=(_resize_step(step, length, resized_buffers),),
        buffers=tuple([resized_buffers[buffer] for buffer in plan.buffers]),
        arguments=tuple([resized_buffers[slot] for slot in slots[: len(plan.arguments)]]),
        results=tuple([resized_buffers[slot] for slot in slots[len(plan.arguments) :]]),
        function=bind_sizes(lowered, sizes),
    )
    verify_plan(resized)
    return resized


def _is_map_over(lowered: Function, length: Dimension) -> bool:
    """Whether a function is a single map over an axis of this length, applied to its parameters."""
    maps = [node for node in nodes_of(lowered) if node.op is not parameter_op and node.op is not get]
    if len(maps) != 1 or maps[0].op is not map_ or any(maps[0].attribute("summed")):
        return False
    (node,) = maps
    # A closed function has only the symbolic sizes of its parameters, so its code cannot depend on the length.
    if any(map(has_symbols, node.attribute("function").parameter_types)):
        return False
    for operand, flag in zip(node.operands, node.attribute("lifted"), strict=True):
        if operand.op is not parameter_op or not _is_dense(operand.type, length if flag else None):
            return False
    if not all(_is_dense(type, None) or _is_dense(type, length) for type in lowered.parameter_types):
        return False
    return all(_is_result_of(result, node) and _is_dense(result.type, length) for result in lowered.results)


def _is_result_of(result: Node, node: Node) -> bool:
    return result is node or (result.op is get and result.operands[0] is node)


def _is_dense(type: Type, length: Dimension | None) -> bool:
    """Whether a value is one array: with this symbolic length as its first size, or without symbolic sizes if None."""
    if length is None:
        return isinstance(type, Scalar | Vector | Matrix | Tensor) and not has_symbols(type)
    return isinstance(type, Tensor) and type.shape[:1] == (length,) and all(isinstance(s, int) for s in type.shape[1:])


def _resize_buffer(buffer: Buffer, length: int) -> Buffer:
    return replace(buffer, shape=(length, *buffer.shape[1:]))


def _resize_step(step: KernelStep, length: int, resized: Mapping[Buffer, Buffer]) -> KernelStep:
    def resize_views(views: tuple[View, ...]) -> tuple[View, ...]:
        return tuple([view._replace(buffer=resized[view.buffer]) for view in views])

    return replace(
        step,
        domain=(length,),
        reads=resize_views(step.reads),
        indexed_buffers=tuple([resized[buffer] for buffer in step.indexed_buffers]),
        scalar_arguments=resize_views(step.scalar_arguments),
        outputs=resize_views(step.outputs),
    )
