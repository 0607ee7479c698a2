"""PyTorch on the gradient suite: torch.func on eager code for GradBench, torch.compile for distances."""
# pyright: reportMissingImports=false

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import sdf
from benchmarks.gradbench.inputs import arrays
from benchmarks.gradbench.programs import PROGRAMS, Program
from benchmarks.problems import Problem, Run, gradbench_name, inputs, parameters, program

WITH_LOOPS = ("particle", "saddle")  # torch.func does not follow Python's control flow; autograd does


class TorchArrays:
    """The array interface of the programs, in PyTorch."""

    exp, log, sqrt, sin, cos, zeros_like = map(
        staticmethod, (torch.exp, torch.log, torch.sqrt, torch.sin, torch.cos, torch.zeros_like)
    )
    where = staticmethod(torch.where)
    array = staticmethod(torch.as_tensor)

    def sum(self, x: Any, axis: int | None = None) -> Any:
        return torch.sum(x) if axis is None else torch.sum(x, axis)

    def max(self, x: Any, axis: int) -> Any:
        return torch.amax(x, axis)

    def min(self, x: Any, axis: int) -> Any:
        return torch.amin(x, axis)

    def product(self, x: Any, axis: int) -> Any:
        return torch.prod(x, axis)

    def stack(self, parts: Sequence[Any], axis: int = 0) -> Any:
        return torch.stack(list(parts), axis)

    def concatenate(self, parts: Sequence[Any], axis: int = 0) -> Any:
        return torch.cat(list(parts), axis)

    def swap(self, x: Any) -> Any:
        return x.transpose(-1, -2)

    def fixed(self, x: Any) -> Any:
        return x.detach()

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        for _ in range(count):
            start = body(start)
        return start

    def loop(self, go_on: Callable[..., Any], body: Callable[..., Any], start: Any) -> Any:
        while go_on(*start):
            start = body(*start)
        return start

    def gradient(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def at(x: Any) -> Any:
            with torch.enable_grad():
                leaf = x if x.requires_grad else x.detach().requires_grad_()
                return torch.autograd.grad(function(leaf), leaf, create_graph=True)[0]

        return at

    def choose(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        return then() if condition else otherwise()


XP = TorchArrays()


def derivative(task: Program) -> Callable[..., Any]:
    """(arguments) → everything that a derivative run returns."""
    func = torch.func

    def by_active(arguments: tuple[Any, ...]) -> tuple[Callable[..., Any], list[Any]]:
        def partial(*values: Any) -> Any:
            supply = [values[task.active.index(i)] if i in task.active else v for i, v in enumerate(arguments)]
            return task.differentiated(XP, *supply)

        return partial, [arguments[index] for index in task.active]

    def newton(points: Any, centroids: Any) -> Any:
        gradient = func.grad(lambda c: task.primal(XP, points, c))
        first, second = func.jvp(gradient, (centroids,), (torch.ones_like(centroids),))
        return (first / second,)

    def rows(*arguments: Any) -> Any:
        partial, values = by_active(arguments)
        errors, pull = func.vjp(partial, *values)
        one, none = torch.ones_like(errors[0]), torch.zeros_like(errors[0])
        return (*pull((one, none)), *pull((none, one)))

    def columns(*arguments: Any) -> Any:
        partial, (theta,) = by_active(arguments)
        moves = torch.eye(len(theta), dtype=theta.dtype)
        return (func.vmap(lambda move: func.jvp(partial, (theta,), (move,))[1])(moves),)

    def gradient(*arguments: Any) -> Any:
        partial, values = by_active(arguments)
        if task.name in WITH_LOOPS:
            with torch.enable_grad():
                leaves = [value.detach().requires_grad_() for value in values]
                return torch.autograd.grad(partial(*leaves), leaves)
        return func.grad(partial, tuple(range(len(values))))(*values)

    return {"newton": newton, "rows": rows, "columns": columns, "gradient": gradient}[task.derivative]


def build_gradbench(problem: Problem) -> Run:
    name, is_primal = gradbench_name(problem)
    task = PROGRAMS[name]
    arguments = [torch.from_numpy(value) for value in arrays(name, problem.size)]
    if is_primal:
        return lambda: task.primal(XP, *arguments)
    run = derivative(task)
    return lambda: run(*arguments)


def value_and_gradients(distance: Callable[..., Any], points: Sequence[Any], values: Any) -> Run:
    """The value, by each point's coordinates, and by parameters, summed over all points."""
    leaves = [tensor.detach().requires_grad_() for tensor in (*points, values)]
    ones = torch.ones_like(leaves[0])

    def run() -> Any:
        with torch.enable_grad():
            value = distance(*leaves)
            return value.detach(), *torch.autograd.grad(value, leaves, ones)

    return run


def build_sdf_gradient(problem: Problem, compile: Callable[[sdf.Program], Any]) -> Run:
    points = [torch.from_numpy(array) for array in inputs(problem)]
    return value_and_gradients(compile(program(problem)), points, torch.from_numpy(parameters(problem)))


def build_first_gradient(problem: Problem, compile: Callable[[sdf.Program], Any]) -> Run:
    """Each run compiles the gradient of a function that has not been seen before."""
    points = [torch.from_numpy(array) for array in inputs(problem)]
    seeds = itertools.count(1)

    def run() -> Any:
        torch.compiler.reset()
        task = program(problem, next(seeds))
        return value_and_gradients(compile(task), points, torch.tensor(np.array(task.parameters, np.float32)))()

    return run
