"""Reverse mode of loops over points that never meet: maps of loops, whose tapes are those of a few points."""

from typing import Any

import numpy as np

import livegrad as lg
from livegrad.compiler import compile_plan
from livegrad.ir.node import Function
from livegrad.ir.types import inner_types
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.control import for_loop, map_
from livegrad.ops.tape import tape_new, tape_set
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import HostStep
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
