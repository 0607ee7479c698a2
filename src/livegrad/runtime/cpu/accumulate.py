"""Runs scalar loops that add to tensors as one kernel with in-place accumulation, for gradients of functions that read
by index.

`execute.py` creates an `AccumulatingCall` for each such loop of a plan (`schedule/accumulating.py` finds them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, components, i64
from livegrad.ir.walk import substitute
from livegrad.ops.aggregate import get, member
from livegrad.ops.control import for_loop, parameters_of
from livegrad.passes.flatten_signature import assemble_value, leaves_of
from livegrad.runtime.cpu.branches import RunnablePlan
from livegrad.runtime.cpu.loop_body import Memory, reader
from livegrad.schedule.fuse import Group
from livegrad.schedule.kernel import Port
from livegrad.schedule.kernels import OpenStage, StepBuilder
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, Lifetime, Plan, View, storage
from livegrad.schedule.space import space_over
from livegrad.schedule.work import KernelBuilder


class AccumulatingCall:
    """One loop of a plan, run in place on copies of the tensors that it adds to."""

    def __init__(self, step: HostStep, owner: Memory, make_plan: Callable[[Plan], RunnablePlan]) -> None:
        self._step = step
        self._given = reader(step.operands, owner)
        (loop,) = step.function.results
        self._types = components(loop.type)
        self._kernel = _Builder(step.function)
        self._plan = make_plan(self._kernel.plan())

    def run(self, values: dict[Any, Any]) -> None:
        given = self._given(values)
        tensors = [np.array(given[place]) for place in self._kernel.starts]
        numbers = iter(self._plan.run([*given, *tensors]))
        totals = iter(tensors)
        values[self._step.result] = tuple(
            next(totals) if isinstance(type, Tensor) else assemble_value(numbers, type) for type in self._types
        )


@dataclass
class _Builder:
    """The kernel of a function whose one result is such a loop: from its parameters and the tensors to add to."""

    function: Function
    buffers: list[Buffer] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # for each tensor that is added to, the parameter it starts as

    def plan(self) -> Plan:
        function = self.function
        stored = {own: self._buffer(own.type, "argument") for own in function.parameters}
        (loop,) = function.results
        operands = list(loop.operands)
        for place, type in enumerate(components(loop.type), 1):
            if isinstance(type, Tensor):
                self.starts.append(function.parameters.index(operands[place]))
                operands[place] = input_node(Key("total"), type)
                stored[operands[place]] = self._buffer(type, "total")
        arguments = tuple(self.buffers)
        results, step = self._step(_with_counter(loop, operands), components(loop.type), stored)
        return Plan(function.name, (step,), tuple(self.buffers), arguments, tuple(results), {}, 0, function)

    def _buffer(self, type: Type, name: str, lifetime: Lifetime = "external") -> Buffer:
        element, shape = storage(type)
        return self.new_buffer(name, element, shape, lifetime)

    def new_buffer(self, name: str, element: Scalar, shape: tuple[int, ...], lifetime: Lifetime = "graph") -> Buffer:
        buffer = Buffer(len(self.buffers), name, element, shape, lifetime)
        self.buffers.append(buffer)
        return buffer

    def _step(self, loop: Node, types: tuple[Type, ...], stored: dict[Node, Buffer]) -> tuple[list[Buffer], KernelStep]:
        """The kernel, and the buffers of all numbers that the loop ends with; a count of its iterations comes last."""
        builder = KernelBuilder(Group("fused", space_over((), None)), stored)
        step = StepBuilder(builder, stored, self.new_buffer)
        stage = OpenStage("row")
        results: list[Buffer] = []
        ends = [get(loop, index=place) for place, type in enumerate(types) if not isinstance(type, Tensor)]
        leaves = [leaf for end in ends for leaf in leaves_of(end)]
        for leaf in (*leaves, get(loop, index=len(types))):
            results.append(self._buffer(leaf.type, "result"))
            whole = isinstance(leaf.type, Vector | Matrix)
            parts = [member(leaf, i) for i in range(len(components(leaf.type)))] if whole else [leaf]
            for offset, part in enumerate(parts):
                value = builder.expressions.element(part, ())
                stage.add(value, step.output(Port(results[-1].element, "row"), View(results[-1], offset, ())))
        step.stages.append(stage)
        return results, step.finish(along=False)


def _with_counter(loop: Node, operands: list[Node]) -> Node:
    """The loop from other operands, with a count of its iterations as a last carried value: a kernel needs a result."""
    carried, body = loop.attribute("carried"), loop.attribute("body")
    types = list(body.parameter_types)
    fresh = parameters_of([*types[: 1 + carried], i64, *types[1 + carried :]])
    own = [*fresh[: 1 + carried], *fresh[2 + carried :]]
    results = substitute(body.results, dict(zip(body.parameters, own, strict=True)))
    counted = Function(body.name, fresh, (*results, fresh[1 + carried] + 1))
    counted.places.update(body.places)
    values = [*operands[: 1 + carried], constant(0, i64), *operands[1 + carried :]]
    return for_loop(*values, body=counted, carried=carried + 1, reverse=loop.attribute("reverse"))
