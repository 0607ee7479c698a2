"""Plans for other lengths: a map over one axis of a size known at run time is scheduled once, for all lengths.

A runtime comes here with the plan that it has for one length. Nothing that the plan passes decide about such a map
depends on the length; how its kernel loops does, and is decided for each by the loop passes.
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
from livegrad.ops.control import map_
from livegrad.passes.bind_sizes import bind_sizes, has_symbols
from livegrad.schedule.plan import Buffer, KernelStep, Plan, View
from livegrad.schedule.verify import verify_plan

_FEWEST = 2  # along an axis of one element, indices are constants


def resize_plan(plan: Plan, lowered: Function, sizes: Mapping[str, int]) -> Plan | None:
    """The plan of a lowered function, made for some sizes, for other ones; None where it must be scheduled anew."""
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
    other = {
        buffer: _resized(buffer, length) if moves else buffer for buffer, moves in zip(slots, symbolic, strict=True)
    }
    resized = replace(
        plan,
        steps=(_resized_step(step, length, other),),
        buffers=tuple([other[buffer] for buffer in plan.buffers]),
        arguments=tuple([other[slot] for slot in slots[: len(plan.arguments)]]),
        results=tuple([other[slot] for slot in slots[len(plan.arguments) :]]),
        function=bind_sizes(lowered, sizes),
    )
    verify_plan(resized)
    return resized


def _is_map_over(lowered: Function, length: Dimension) -> bool:
    """Whether a function is one map over an axis of this length, of its parameters as they are."""
    mapped = [node for node in nodes_of(lowered) if node.op is not parameter_op and node.op is not get]
    if len(mapped) != 1 or mapped[0].op is not map_ or any(mapped[0].attribute("summed")):
        return False
    (node,) = mapped
    # A closed function has no symbolic sizes but those of its parameters: then the length is no number in it.
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
    """Whether a value is one array: of numbers alone if no length is given, or else with that first."""
    if length is None:
        return isinstance(type, Scalar | Vector | Matrix | Tensor) and not has_symbols(type)
    return isinstance(type, Tensor) and type.shape[:1] == (length,) and all(isinstance(s, int) for s in type.shape[1:])


def _resized(buffer: Buffer, length: int) -> Buffer:
    return replace(buffer, shape=(length, *buffer.shape[1:]))


def _resized_step(step: KernelStep, length: int, other: Mapping[Buffer, Buffer]) -> KernelStep:
    def views(old: tuple[View, ...]) -> tuple[View, ...]:
        return tuple([view._replace(buffer=other[view.buffer]) for view in old])

    return replace(
        step,
        domain=(length,),
        reads=views(step.reads),
        indexed_buffers=tuple([other[buffer] for buffer in step.indexed_buffers]),
        scalar_arguments=views(step.scalar_arguments),
        outputs=views(step.outputs),
    )
