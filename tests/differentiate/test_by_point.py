"""Reverse mode of loops over points that never meet: maps of loops, whose tapes are those of a few points."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan, lower
from livegrad.ir.node import Function
from livegrad.ir.types import inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.control import for_loop
from livegrad.ops.maps import map_
from livegrad.ops.members import members_call
from livegrad.ops.tape import tape_new, tape_set
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep
from livegrad.schedule.target import PORTABLE
from livegrad.tensors.tracing import trace_call

POINTS, STEPS = 200, 30


def orbits(state: Any) -> Any:
    """Points that turn around the centre, each at a pace of its own."""

    def step(_: Any, state: Any) -> Any:
        x, y = state[0], state[1]
        pace = 0.01 * lg.exp(-(x * x + y * y))
        return lg.stack([x - pace * y, y + pace * x])

    return lg.fori_loop(0, STEPS, step, state)


def paced_orbits(state: Any, pace: Any) -> Any:
    """The same with a pace for each step, which all points share."""

    def step(k: Any, state: Any) -> Any:
        return lg.stack([state[0] - pace[k] * state[1], state[1] + pace[k] * lg.sin(state[0])])

    return lg.fori_loop(0, STEPS, step, state)


def gradient_of(program: Any, *arrays: Any) -> Function:
    gradient = lg.grad(lambda *given: lg.sum(program(*given) ** 2), argnums=tuple(range(len(arrays))))
    return trace_call(gradient, [lg.asarray(array).type for array in arrays], "gradient").function


def test_a_gradient_of_points_that_never_meet_is_one_map() -> None:
    function = gradient_of(orbits, np.ones((2, POINTS)))
    ops = [node.op for node in nodes_of(function)]
    assert for_loop not in ops
    assert map_ in ops
    assert not any(isinstance(step, HostStep) for step in compile_plan(function, CPU).steps)


def test_its_tapes_hold_numbers() -> None:
    functions = reachable_functions([gradient_of(orbits, np.ones((2, POINTS)))])
    tapes = [node.type for inner in functions for node in nodes_of(inner) if node.op is tape_new]
    assert tapes
    assert not any(getattr(inner, "shape", ()) for tape in tapes for inner in inner_types(tape))


def test_loops_whose_points_share_a_tensor_stay_loops() -> None:
    """As a map, each point would add to the cotangents of all steps."""
    function = gradient_of(paced_orbits, np.ones((2, POINTS)), np.ones(STEPS))
    assert map_ not in [node.op for node in nodes_of(function)]


def test_gradients_by_point_are_those_of_forward_mode_and_of_differences() -> None:
    generator = np.random.default_rng(0)
    state, along = generator.standard_normal((2, 2, POINTS))

    def total(state: Any) -> Any:
        return lg.sum(orbits(state) ** 2)

    gradient = lg.jit(lg.grad(total))(lg.asarray(state))
    _, forward = lg.jvp(total, (lg.asarray(state),), (lg.asarray(along),))
    np.testing.assert_allclose(np.vdot(np.asarray(gradient), along), float(forward), rtol=1e-12)
    above, below = (float(total(lg.asarray(state + sign * 1e-6 * along))) for sign in (1.0, -1.0))
    np.testing.assert_allclose(float(forward), (above - below) / 2e-6, rtol=1e-6)


def test_second_derivatives_of_points_that_never_meet_agree_in_both_modes() -> None:
    generator = np.random.default_rng(1)
    state, along = generator.standard_normal((2, 2, 80))

    def slope(state: Any) -> Any:
        return lg.sum(lg.grad(lambda s: lg.sum(orbits(s) ** 2))(state) * along)

    reverse = lg.grad(slope)(lg.asarray(state))
    _, forward = lg.jvp(slope, (lg.asarray(state),), (lg.asarray(along),))
    np.testing.assert_allclose(np.vdot(np.asarray(reverse), along), float(forward), rtol=1e-11)


def test_a_value_that_is_read_twice_is_stored_once() -> None:
    def column(j: Any, a: Any) -> Any:
        a[:, j + 1] = a[:, j + 1] - a[:, j] * lg.sum(a[:, j] * a[:, j + 1])
        return a

    function = gradient_of(lambda a: lg.fori_loop(0, 8, column, a), np.ones((9, 9)))
    reached = [node for inner in reachable_functions([function]) for node in nodes_of(inner)]
    (tape,) = [node for node in reached if node.op is tape_set]
    stored = tape.operands[2].operands
    assert len(stored) == len(set(stored)) == 3  # two columns and their product


def scattered(table: Any, points: Any) -> Any:
    """Points that bounce between rows of a table, which each chooses for itself."""

    def bounce(_: Any, state: Any) -> Any:
        def nearest(k: Any, best: Any) -> Any:
            distance, row = best
            own = (points[0] - table[k, 0]) ** 2 + (state - table[k, 1]) ** 2
            return lg.where(own < distance, own, distance), lg.where(own < distance, k, row)

        _, row = lg.fori_loop(
            0, 5, nearest, (lg.full(state.shape, 1e9, dtype=state.dtype), lg.zeros(state.shape, dtype=lg.int64))
        )
        return lg.where(row == 2, state * 0.9, lg.sin(state) * table[row, 2] + points[1])

    return lg.fori_loop(0, 4, bounce, points[0] * 0.5)


SHARING = {
    "rows of steps": (paced_orbits, (2, 600), (STEPS,)),
    "chosen rows": (lambda points, table: scattered(table, points), (2, 700), (5, 3)),
}


@pytest.mark.parametrize("name", SHARING)
def test_points_that_share_a_small_tensor_have_private_sums_on_the_cpu(name: str) -> None:
    program, *shapes = SHARING[name]
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal(shape) for shape in shapes]
    function = gradient_of(program, *arrays)
    assert members_call in [node.op for node in nodes_of(function)]
    plan = compile_plan(lower(function, CPU), CPU)
    assert not any(isinstance(step, HostStep) for step in plan.steps)
    assert not any(node.op is map_ for node in nodes_of(lower(function, PORTABLE)))  # devices run loops of kernels
    outcomes = [
        CompiledPlan.from_plan(CpuFunction(function).schedule(target=target), run_function).run(arrays)
        for target in (CPU, CPU.without("run_members_in_turn"))
    ]
    for own, other in zip(*outcomes, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SHARING)
def test_gradients_of_points_that_share_a_tensor_are_right(name: str) -> None:
    program, *shapes = SHARING[name]
    generator = np.random.default_rng(4)
    tensors = [lg.asarray(generator.standard_normal(shape)) for shape in shapes]
    along = [lg.asarray(generator.standard_normal(shape)) for shape in shapes]

    def total(*given: Any) -> Any:
        return lg.sum(program(*given) ** 2)

    parts = lg.jit(lg.grad(total, argnums=(0, 1)))(*tensors)
    slope = sum(float(lg.sum(part * direction)) for part, direction in zip(parts, along, strict=True))
    _, forward = lg.jvp(total, tuple(tensors), tuple(along))
    np.testing.assert_allclose(slope, float(forward), rtol=1e-10)

    def turned(pace: Any) -> Any:
        return lg.sum(lg.grad(total, argnums=1)(tensors[0], pace) * along[1])

    second = lg.grad(turned)(tensors[1])
    _, forward = lg.jvp(turned, (tensors[1],), (along[1],))
    np.testing.assert_allclose(float(lg.sum(second * along[1])), float(forward), rtol=1e-9)


def test_a_batch_of_gradients_with_private_sums() -> None:
    generator = np.random.default_rng(5)
    states, pace = lg.asarray(generator.standard_normal((3, 2, 600))), lg.asarray(generator.standard_normal(STEPS))
    gradient = lg.grad(lambda p, s: lg.sum(paced_orbits(s, p) ** 2))
    together = np.asarray(lg.vmap(lambda s: gradient(pace, s))(states))
    for own, member in zip(together, (0, 1, 2), strict=True):
        np.testing.assert_allclose(own, np.asarray(gradient(pace, states[member])), rtol=1e-9)
