"""Helpers for tests of the scheduler: plans of traced functions, and common row computations."""

from collections.abc import Callable
from typing import Any

from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, shape_of
from livegrad.ops.movement import broadcast
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import exp, log, sqrt
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep, KernelStep, Plan
from livegrad.schedule.target import Target


def plan_of(callable: Callable[..., Any] | Function, *types: Type, target: Target = CPU) -> Plan:
    """The plan of a function after all passes, without chains of rows that run tile by tile."""
    function = callable if isinstance(callable, Function) else trace(callable, *types)
    return compile_plan(function, target.without("tile_row_chains"))


def host_ops(plan: Plan) -> list[str]:
    return [step.op.name for step in plan.steps if isinstance(step, HostStep)]


def writing_kernels(plan: Plan) -> list[str]:
    """The names of the kernels that change memory by computed index."""
    return [step.kernel.name for step in plan.steps if isinstance(step, KernelStep) and step.kernel.written]


def along(value: Node, like: Node, axis: int) -> Node:
    """A reduced tensor spread again along the axis it lost."""
    shape = shape_of(like.type)
    kept = tuple(place for place in range(len(shape)) if place != axis)
    return broadcast(value, shape=shape, axes=kept)


def total(x: Node, axis: int, kind: str = "sum") -> Node:
    return reduce(x, kind=kind, axes=(axis,))


def softmax(x: Node, axis: int) -> Node:
    powers = exp(x - along(total(x, axis, "max"), x, axis))
    return powers / along(total(powers, axis), x, axis)


def layer_norm(x: Node, axis: int) -> Node:
    assert isinstance(x.type, Tensor)
    share = 1.0 / int(x.type.shape[axis])  # type: ignore[arg-type]
    centred = x - along(total(x, axis) * share, x, axis)
    return centred / along(sqrt(total(centred * centred, axis) * share + 1e-5), x, axis)


def logsumexp(x: Node, axis: int) -> Node:
    most = total(x, axis, "max")
    return log(total(exp(x - along(most, x, axis)), axis)) + most
