"""GradBench's functions in livegrad's IR: each function, its derivative, and its argument conversion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gradbench.inputs import arrays
from benchmarks.gradbench.ir_arrays import gmm, ht, kmeans, llsq, lse, ode, ode_last
from benchmarks.gradbench.ir_numbers import det, number, particle, reprojection, saddle
from benchmarks.gradbench.programs import PROGRAMS
from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Matrix, Tensor, Vector, f64
from livegrad.passes.batch import batch


@dataclass(frozen=True)
class Task:
    """A function and its derivative over the same arguments."""

    primal: Function
    derivative: Function
    arguments: tuple[Any, ...]


def types_of(inputs: Sequence[Any]) -> list[Tensor]:
    return [Tensor(f64, value.shape) for value in inputs]


# --- derivatives -----------------------------------------------------------------------------------------------------


def gradient_of(function: Function, active: Sequence[int]) -> Function:
    """The gradient of a number by some arguments."""

    def gradient(*arguments: Node) -> tuple[Node, ...]:
        pulled = ops.bwd_diff(*arguments, number(1.0), function=function)
        return tuple(pulled if len(arguments) == 1 else ops.get(pulled, index=index) for index in active)

    return trace(gradient, *function.parameter_types)


def newton_of(function: Function) -> Function:
    """The gradient by the second argument over the diagonal of its Hessian."""
    by_second = trace(lambda x, y: ops.call(ops.detach(x), y, function=function), *function.parameter_types)
    gradient = gradient_of(by_second, (1,))

    def direction(points: Node, centroids: Node) -> Node:
        still, ones = ops.zero(points.type), ops.filled(1.0, centroids.type)
        both = ops.fwd_diff(points, centroids, still, ones, function=gradient)
        return ops.get(both, index=0) / ops.get(both, index=1)

    return trace(direction, *function.parameter_types)


def column_of(function: Function) -> Function:
    """The jvp with respect to the first argument: (arguments, a direction) → a column of the Jacobian."""
    types = function.parameter_types
    by_first = trace(lambda x, *others: ops.call(x, *map(ops.detach, others), function=function), *types)

    def column(*arguments: Node) -> Node:
        *values, direction = arguments
        still = [ops.zero(type) for type in types[1:]]
        return ops.get(ops.fwd_diff(*values, direction, *still, function=by_first), index=1)

    return trace(column, *types, types[0])


BA_TYPES = (Vector(f64, 11), Vector(f64, 3), f64, Vector(f64, 2))


def over_observations(each: Function, inputs: Sequence[Any]) -> Function:
    def mapped(*arguments: Node) -> tuple[Node, ...]:
        value = ops.make_map(each, *arguments)
        return tuple(ops.get(value, index=index) for index in range(len(each.results)))

    return trace(mapped, *types_of(inputs))


def ba_rows(*arguments: Node) -> tuple[Node, ...]:
    """The gradients of both components of the error by camera, point and weight."""
    function = trace(reprojection, *BA_TYPES)
    gradients: list[Node] = []
    for one, other in ((1.0, 0.0), (0.0, 1.0)):
        pulled = ops.bwd_diff(*arguments, number(one), number(other), function=function)
        gradients += [ops.get(pulled, index=index) for index in range(3)]
    return tuple(gradients)


# --- tasks -----------------------------------------------------------------------------------------------------------


def of_arrays(name: str, size: int, program: Callable[..., Node], objective: Callable[..., Node] | None = None) -> Task:
    inputs = arrays(name, size)
    primal = trace(program, *types_of(inputs))
    differentiated = primal if objective is None else trace(objective, *types_of(inputs))
    return Task(primal, gradient_of(differentiated, PROGRAMS[name].active), inputs)


def of_numbers(name: str, size: int, program: Callable[..., Node]) -> Task:
    inputs = tuple(float(value) for value in arrays(name, size)[0])
    primal = trace(program, *[f64] * len(inputs))
    return Task(primal, gradient_of(primal, range(len(inputs))), inputs)


def make_kmeans(size: int) -> Task:
    task = of_arrays("kmeans", size, kmeans)
    return Task(task.primal, newton_of(task.primal), task.arguments)


def make_ba(size: int) -> Task:
    inputs = arrays("ba", size)
    error, rows = trace(reprojection, *BA_TYPES), trace(ba_rows, *BA_TYPES)
    return Task(over_observations(error, inputs), over_observations(rows, inputs), inputs)


def make_ht(size: int) -> Task:
    inputs = arrays("ht", size)
    primal = trace(ht, *types_of(inputs))
    columns = batch(column_of(primal), [None] * len(inputs) + [0], size=len(inputs[0]))
    return Task(primal, columns, inputs)


def make_det(size: int) -> Task:
    inputs = arrays("det", size)
    primal = trace(det, Matrix(f64, size, size))
    return Task(primal, gradient_of(primal, (0,)), inputs)


TASKS: dict[str, Callable[[int], Task]] = {
    "hello": lambda size: of_numbers("hello", size, lambda x: x * x),
    "llsq": lambda size: of_arrays("llsq", size, llsq),
    "lse": lambda size: of_arrays("lse", size, lse),
    "ode": lambda size: of_arrays("ode", size, ode, ode_last),
    "gmm": lambda size: of_arrays("gmm", size, gmm),
    "ba": make_ba,
    "kmeans": make_kmeans,
    "ht": make_ht,
    "particle": lambda size: of_numbers("particle", size, particle),
    "saddle": lambda size: of_numbers("saddle", size, saddle),
    "det": make_det,
}


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def runner(
    name: str, size: int, is_primal: bool, compile: Callable[[Function], Callable[..., Any]]
) -> Callable[[], Any]:
    """A run of the function or its derivative; the result has the form that `expected` describes."""
    task = TASKS[name](size)
    run = compile(task.primal if is_primal else task.derivative)
    if is_primal:
        return lambda: run(*task.arguments)
    if PROGRAMS[name].derivative == "columns":
        moves = np.eye(len(task.arguments[0]))
        return lambda: (run(*task.arguments, moves),)
    if name in ("hello", "particle", "saddle"):
        return lambda: (np.array(run(*task.arguments)).reshape(-1),)
    return lambda: as_tuple(run(*task.arguments))
