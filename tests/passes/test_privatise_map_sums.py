"""Sums of tensors that loops fill at each point of a map: private sums of workers, in lanes and on threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, f64, i64
from livegrad.ops.control import make_cond, make_for_loop, make_switch
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import floor_div, maximum, mod
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map
from livegrad.ops.rules import filled
from livegrad.ops.transcendental import cos, sin
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from tests.schedule.plans import host_ops

COEFFICIENTS = Tensor(f64, (7,))
TABLE = Tensor(f64, (3, 4))
WITHOUT = CPU.without("privatise_map_sums")


def polynomial(x: Node, c: Node) -> Node:
    return make_for_loop(filled(7, i64), lambda k, y: y * x + lookup(c, k), filled(0.0, f64))[0]


def walk(x: Node, table: Node) -> Node:
    """Each step reads an element that depends on the point, in the row of the step or, for some points, in row 0."""

    def step(k: Node, y: Node) -> Node:
        column = mod(floor_div_of(y), 4)

        def by_row(y: Node, k: Node, column: Node) -> Node:
            return y + sin(lookup(table, mod(k, 3), column)) * x

        def first_row(y: Node, k: Node, column: Node) -> Node:
            return y * cos(lookup(table, filled(0, i64), column))

        return make_cond(x > 0.2, by_row, first_row, y, k, column)

    return make_for_loop(filled(5, i64), step, x)[0]


def floor_div_of(y: Node) -> Node:

    return cast(maximum(y * y * 8.0, filled(0.0, f64)), type=i64)


def one_of_three(x: Node, table: Node) -> Node:
    """A switch over ways to read, in a loop."""

    def step(k: Node, y: Node) -> Node:
        branches = [
            lambda y: y * lookup(table, filled(1, i64), filled(2, i64)),
            lambda y: y + lookup(table, filled(2, i64), filled(0, i64)),
            lambda y: y,
        ]
        return make_switch(mod(k + floor_div_of(y), 3), branches, y)

    return make_for_loop(filled(6, i64), step, x)[0]


def mapped(point: Callable[..., Any], shape: tuple[int, ...], shared: Tensor) -> Function:
    inner = trace(point, f64, shared, name="point")
    return trace(lambda xs, *more: make_map(inner, xs, *more), Tensor(f64, shape), shared, name="mapped")


PROGRAMS = {"polynomial": (polynomial, COEFFICIENTS), "walk": (walk, TABLE), "switch": (one_of_three, TABLE)}
SHAPES = ((1024,), (8, 65), (1300,), (40,), (3, 200))


def numpy_shape(type: Tensor) -> tuple[int, ...]:
    return tuple([size for size in type.shape if isinstance(size, int)])


def arguments(shape: tuple[int, ...], shared: Tensor) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.normal(size=shape), random.normal(size=numpy_shape(shared)) * 0.5, random.normal(size=shape)]


def run(function: Function, values: list[Any], target: Any = CPU) -> list[Any]:
    plan = CpuFunction(function).schedule(target=target)
    return CompiledPlan.from_plan(plan, run_function).run(values)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_shared_tensors_are_native_and_right(name: str, shape: tuple[int, ...]) -> None:
    point, shared = PROGRAMS[name]
    function = vjp(mapped(point, shape, shared))
    assert host_ops(CpuFunction(function).schedule()) == []
    values = arguments(shape, shared)
    for own, wanted in zip(run(function, values), evaluate(function, *values), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_values_do_not_depend_on_the_pass(name: str) -> None:
    point, shared = PROGRAMS[name]
    function = vjp(mapped(point, (640,), shared))
    assert host_ops(CpuFunction(function).schedule(target=WITHOUT)) != []
    values = arguments((640,), shared)
    for own, other in zip(run(function, values), run(function, values, WITHOUT), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-11, atol=1e-11)


def test_workers_depend_on_sizes_alone() -> None:
    function = vjp(mapped(polynomial, (4096,), COEFFICIENTS))
    plan = CpuFunction(function).schedule()
    assert "for_loop [512]" in str(plan)
    values = arguments((4096,), COEFFICIENTS)
    first, *others = [run(function, values)[1].tobytes() for _ in range(5)]
    assert all(other == first for other in others)


def test_sums_of_scalars_and_values_of_points_come_from_the_same_loop() -> None:
    def point(x: Node, c: Node, s: Node) -> Node:
        return polynomial(x * s, c)

    inner = trace(point, f64, COEFFICIENTS, f64, name="point")
    function = vjp(
        trace(lambda xs, c, s: make_map(inner, xs, c, s), Tensor(f64, (700,)), COEFFICIENTS, f64, name="mapped")
    )
    x, c, cotangent = arguments((700,), COEFFICIENTS)
    values = [x, c, np.float64(0.7), cotangent]
    assert host_ops(CpuFunction(function).schedule()) == []
    for own, wanted in zip(run(function, values), evaluate(function, *values), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-11, atol=1e-11)


def test_single_precision() -> None:
    def point(x: Node, c: Node) -> Node:
        return make_for_loop(filled(7, i64), lambda k, y: y * x + lookup(c, k), filled(0.0, f32))[0]

    table = Tensor(f32, (7,))
    inner = trace(point, f32, table, name="point")
    function = vjp(trace(lambda xs, c: make_map(inner, xs, c), Tensor(f32, (5000,)), table, name="mapped"))
    values = [value.astype(np.float32) * 0.5 for value in arguments((5000,), COEFFICIENTS)]
    wanted = evaluate(vjp(mapped(polynomial, (5000,), COEFFICIENTS)), *[v.astype(np.float64) for v in values])
    for own, expected in zip(run(function, values), wanted, strict=True):
        np.testing.assert_allclose(own, expected, rtol=2e-4, atol=2e-4)


def test_a_map_without_loops_keeps_its_additions() -> None:
    function = vjp(mapped(lambda x, c: sin(lookup(c, floor_div(filled(6, i64), 2)) * x), (4096,), COEFFICIENTS))
    for target in (CPU, WITHOUT):
        assert host_ops(CpuFunction(function).schedule(target=target)) == []
    assert str(CpuFunction(function).schedule()) == str(CpuFunction(function).schedule(target=WITHOUT))
