"""JAX on the gradient suite: one jit around each run; float64 for GradBench, float32 for distances."""
# pyright: reportMissingImports=false

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import sdf
from benchmarks.gradbench.inputs import arrays
from benchmarks.gradbench.programs import PROGRAMS, Program
from benchmarks.problems import Problem, Run, gradbench_name, inputs, parameters, program

WITH_LOOPS = ("particle", "saddle")  # JAX has no reverse mode through loops of dynamic length


class JaxArrays:
    """The array interface of the programs, in JAX."""

    exp, log, sqrt, sin, cos = map(staticmethod, (jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.cos))
    where, array, sum, max, min, product, stack, concatenate, zeros_like = map(
        staticmethod,
        (jnp.where, jnp.asarray, jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.stack, jnp.concatenate, jnp.zeros_like),
    )
    fixed = staticmethod(jax.lax.stop_gradient)
    gradient = staticmethod(jax.grad)

    def swap(self, x: Any) -> Any:
        return jnp.swapaxes(x, -1, -2)

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        return jax.lax.scan(lambda state, _: (body(state), None), start, None, length=count)[0]

    def loop(self, go_on: Callable[..., Any], body: Callable[..., Any], start: Any) -> Any:
        return jax.lax.while_loop(lambda state: go_on(*state), lambda state: body(*state), start)

    def choose(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        return jax.lax.cond(condition, then, otherwise)


XP = JaxArrays()


def derivative(task: Program) -> Callable[..., Any]:
    """(arguments) → everything that a derivative run returns."""

    def function(*arguments: Any) -> Any:
        return task.differentiated(XP, *arguments)

    def by_active(arguments: tuple[Any, ...]) -> tuple[Callable[..., Any], list[Any]]:
        def partial(*values: Any) -> Any:
            return function(*(values[task.active.index(i)] if i in task.active else v for i, v in enumerate(arguments)))

        return partial, [arguments[index] for index in task.active]

    def newton(points: Any, centroids: Any) -> Any:
        first, second = jax.jvp(jax.grad(lambda c: function(points, c)), [centroids], [jnp.ones_like(centroids)])
        return (first / second,)

    def rows(*arguments: Any) -> Any:
        partial, values = by_active(arguments)
        errors, pull = jax.vjp(partial, *values)
        one, none = jnp.ones_like(errors[0]), jnp.zeros_like(errors[0])
        return (*pull((one, none)), *pull((none, one)))

    def columns(*arguments: Any) -> Any:
        partial, (theta,) = by_active(arguments)
        return (jax.vmap(lambda move: jax.jvp(partial, [theta], [move])[1])(jnp.eye(len(theta))),)

    def gradient(*arguments: Any) -> Any:
        partial, values = by_active(arguments)
        how = jax.jacfwd if task.name in WITH_LOOPS else jax.grad
        return how(partial, tuple(range(len(values))))(*values)

    return {"newton": newton, "rows": rows, "columns": columns, "gradient": gradient}[task.derivative]


def build_gradbench(problem: Problem) -> Run:
    jax.config.update("jax_enable_x64", True)
    name, is_primal = gradbench_name(problem)
    task = PROGRAMS[name]
    arguments = [jnp.asarray(value) for value in arrays(name, problem.size)]
    jitted = jax.jit((lambda *values: task.primal(XP, *values)) if is_primal else derivative(task))
    return lambda: jax.block_until_ready(jitted(*arguments))


def distance_of(task: sdf.Program, operations: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The distance, with square roots kept away from zero; else each point inside a box has the gradient NaN in JAX."""
    safe = operations | {"sqrt": lambda x: jnp.sqrt(jnp.maximum(x, 1e-24))}
    return lambda x, y, z, p: sdf.evaluate(task, (x, y, z), p, safe)


def value_and_gradients(distance: Callable[..., Any]) -> Callable[..., Any]:
    """The value, by each point's coordinates, and by parameters, summed over all points."""

    def both(*arguments: Any) -> Any:
        value, pull = jax.vjp(distance, *arguments)
        return value, *pull(jnp.ones_like(value))

    return both


def build_sdf_gradient(problem: Problem, operations: dict[str, Callable[..., Any]]) -> Run:
    arguments = [jnp.asarray(array) for array in (*inputs(problem), parameters(problem))]
    jitted = jax.jit(value_and_gradients(distance_of(program(problem), operations)))
    return lambda: jax.block_until_ready(jitted(*arguments))


def build_first_gradient(problem: Problem, operations: dict[str, Callable[..., Any]]) -> Run:
    """Each run compiles the gradient of a function that has not been seen before."""
    points = [jnp.asarray(array) for array in inputs(problem)]
    seeds = itertools.count(1)

    def run() -> Any:
        task = program(problem, next(seeds))
        jitted = jax.jit(value_and_gradients(distance_of(task, operations)))
        return jax.block_until_ready(jitted(*points, jnp.asarray(np.array(task.parameters, np.float32))))

    return run
