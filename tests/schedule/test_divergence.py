"""The number of lanes: uniform values take no vector registers, and loops need more lanes to hide latency."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from livegrad import ops
from livegrad.compiler import lower_loops
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, f32, f64, i64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops import divergence, vectorise
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep

TABLE = Tensor(f32, (7,))


def lanes_of(function: Function, length: int = 1000, vector_bytes: int = 64) -> int:
    """How many lanes its only kernel has."""
    (step,) = CpuFunction(function).schedule({"n": length}).steps
    assert isinstance(step, KernelStep)
    return lower_loops(for_cpu(step, CPU, vector_bytes)).lanes


def number(index: Node) -> Node:
    return ops.cast(index, type=f32)


def loop(iterations: Node, body: Callable[..., Any], *start: Node) -> Node:
    return ops.make_for_loop(iterations, body, *start)[0]


def counted(x: Node, n: Node, table: Node) -> Node:
    return loop(n, lambda i, y: y * 0.5 + number(i), x)


def counted_from(x: Node, n: Node, table: Node) -> Node:
    """A count of its own beside the loop's."""
    return ops.make_for_loop(n, lambda i, y, k: (y * 0.5 + number(k + i), k + 2), x, n)[0]


def read_in_turn(x: Node, n: Node, table: Node) -> Node:
    return loop(n, lambda i, y: y * 0.5 + ops.lookup(table, i % 7), x)


def nested(x: Node, n: Node, table: Node) -> Node:
    return loop(n, lambda i, y: loop(i, lambda j, z: z * 0.5 + number(i * j), y), x)


def branching(x: Node, n: Node, table: Node) -> Node:
    def body(i: Node, y: Node) -> Node:
        return ops.make_cond(i > 3, lambda y: y + number(i), lambda y: y * 0.5, y)

    return loop(n, body, x)


def counted_while(x: Node, n: Node, table: Node) -> Node:
    def body(i: Node, y: Node, k: Node) -> tuple[Node, Node]:
        return y * 0.5 + number(k), k + 1

    return ops.make_while_loop(lambda y, k: k < n, body, x, constant(0, i64))[0]


def ends_by_element(x: Node, n: Node, table: Node) -> Node:
    """Each element has iterations of its own: lanes have counts to compare with."""
    return loop(ops.cast(ops.abs(x), type=i64) % 5, lambda i, y: y * 0.5, x)


def read_by_element(x: Node, n: Node, table: Node) -> Node:
    return loop(n, lambda i, y: y + ops.lookup(table, ops.cast(ops.abs(y), type=i64) % 7), x)


def in_double(x: Node, n: Node, table: Node) -> Node:
    return ops.cast(loop(n, lambda i, y: y * 0.5 + ops.cast(i, type=f64), ops.cast(x, type=f64)), type=f32)


def over_points(program: Callable[..., Node]) -> Function:
    return map_over(trace(program, f32, i64, TABLE), (True, False, False))


def one_step(x: Node, n: Node, table: Node) -> Node:
    return x * 0.5 + number(n)


def turning(x: Node, n: Node, table: Node) -> Node:
    return ops.make_for_loop(n, lambda i, a, b: (a + b * 0.5, b - a * 0.5), x, x)[0]


def many_numbers(x: Node, n: Node, table: Node) -> Node:
    return ops.make_for_loop(n, lambda i, *state: (*state[1:], state[0] * 0.5), x, x, x, x)[0]


def long_body(x: Node, n: Node, table: Node) -> Node:
    def body(i: Node, y: Node) -> Node:
        total = y
        for place in range(20):
            total = total + ops.sqrt(y * y + float(place))
        return total

    return loop(n, body, x)


# Vectors have 64 bytes: a register holds 16 single numbers, and 8 that are as wide as an index.
LANES: dict[Callable[..., Node], int] = {
    one_step: 2 * 16,
    counted: 8 * 16, counted_from: 8 * 16, nested: 8 * 16, branching: 8 * 16,
    counted_while: 4 * 16, turning: 4 * 16, long_body: 4 * 16,
    many_numbers: 2 * 16, read_in_turn: 2 * 16,
    ends_by_element: 8 * 8, in_double: 8 * 8, read_by_element: 2 * 8,
}  # fmt: skip


@pytest.mark.parametrize("program", LANES)
def test_lanes_hide_the_latency_of_loops_and_only_numbers_that_differ_take_registers(
    program: Callable[..., Node],
) -> None:
    assert lanes_of(over_points(program)) == LANES[program]


def test_a_loop_leaves_registers_for_what_stays_the_same() -> None:
    alone = over_points(counted)
    beside = over_points(lambda x, n, table: loop(n, lambda i, y: y * 0.5 + x * 0.25, x))
    assert [lanes_of(alone, vector_bytes=size) for size in (32, 64)] == [8 * 8, 8 * 16]
    assert [lanes_of(beside, vector_bytes=size) for size in (32, 64)] == [4 * 8, 8 * 16]


def test_short_arrays_have_no_lanes_that_idle_in_loops() -> None:
    assert [lanes_of(over_points(counted), length) for length in (3, 127, 128)] == [32, 32, 128]


# --- the same bits with any number of lanes ---------------------------------------------------------------------------


def all_types_of(node: Node, operands: tuple[bool, ...]) -> frozenset[Type]:
    """As if all that a loop computes differed between lanes."""
    inside = [inner.type for function in reachable_functions(node.functions) for inner in nodes_of(function)]
    return frozenset((node.type, *inside))


def random_loops(random: Random) -> Callable[[Node, Node, Node], Node]:
    def value(depth: int, i: Node, y: Node, n: Node, table: Node) -> Node:
        def inner(y: Node) -> Node:
            return value(depth - 1, i, y, n, table)

        kind = random.choice(["count", "read", "branch", "loop", "while"] if depth else ["count", "read", "sine"])
        if kind == "count":
            return y * 0.5 + number(i * random.randint(1, 3))
        if kind == "read":
            return y * 0.25 + ops.lookup(table, (i + random.randint(0, 9)) % 7)
        if kind == "sine":
            return ops.sin(y + number(i))
        if kind == "branch":
            test = random.choice([i > random.randint(0, 3), y > 0.5])
            return ops.make_cond(test, inner, inner, y)
        if kind == "while":
            most = random.choice([n, ops.cast(ops.abs(y), type=i64) % 4])

            def body(_: Node, y: Node, k: Node) -> tuple[Node, Node]:
                return value(depth - 1, k, y, n, table), k + 1

            return ops.make_while_loop(lambda y, k: k < most, body, y, constant(0, i64))[0]
        return loop(random.choice([n, i]), lambda j, z: value(depth - 1, i + j, z, n, table), y)

    return lambda x, n, table: loop(n, lambda i, y: value(2, i, y, n, table), x)


@pytest.mark.parametrize("seed", range(8))
def test_random_loops_have_the_same_bits_with_the_lanes_that_all_numbers_would_leave(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = over_points(random_loops(Random(seed)))
    values = np.linspace(-2.0, 3.0, 131, dtype=np.float32)
    table = np.cos(np.arange(7)).astype(np.float32)
    arguments = [values, np.int64(4), table]
    plan = CpuFunction(function).schedule({"n": len(values)})
    actual = CompiledPlan.from_plan(plan, run_function).run(arguments)
    monkeypatch.setattr(divergence, "divergent_types", all_types_of)
    monkeypatch.setattr(vectorise, "_loop_registers", lambda node, vector_bytes: 1)
    expected = CompiledPlan.from_plan(plan, run_function).run(arguments)
    np.testing.assert_array_equal(actual[0], expected[0])
