"""Builds the kernel of a scalar loop that adds to tensors: it runs all iterations and adds in place.

The plan pass `accumulate_in_place` calls `in_place_loop` for the loops that `accumulating.py` finds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, components, i64
from livegrad.ir.walk import substitute
from livegrad.ops.aggregate import get, member
from livegrad.ops.control import for_loop, parameters_of
from livegrad.passes.flatten_signature import leaves_of
from livegrad.schedule.fuse import Group
from livegrad.schedule.kernel import Port
from livegrad.schedule.kernels import OpenStage, StepBuilder
from livegrad.schedule.plan import Buffer, InPlaceLoop, KernelStep, Lifetime, Plan, View, storage
from livegrad.schedule.space import space_over
from livegrad.schedule.work import KernelBuilder


def in_place_loop(function: Function) -> InPlaceLoop:
    """The kernel of a function whose only result is such a loop."""
    return _Builder(function).build()


@dataclass
class _Builder:
    """The kernel of a function whose one result is such a loop: from its parameters and the tensors to add to."""

    function: Function
    buffers: list[Buffer] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # for each tensor that is added to, the parameter it starts as

    def build(self) -> InPlaceLoop:
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
        plan = Plan(function.name, (step,), tuple(self.buffers), arguments, tuple(results), {}, 0, function)
        return InPlaceLoop(plan, tuple(self.starts))

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
        return results, step.finish()


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
