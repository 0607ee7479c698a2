"""Gradients of functions that read tensors by index in loops: additions at indices, made in place by one kernel."""

from collections.abc import Callable
from random import Random
from typing import Literal

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f64, i64
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.accumulate import AccumulatingCall
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.tensor_loops import LoopCall
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import assert_same, differentiated, random_differentials

LINE, GRID = Tensor(f64, (5,)), Tensor(f64, (3, 4))


def whole(number: int) -> Node:
    return constant(number, i64)


def loop(iterations: int, body: Callable[..., Node | tuple[Node, ...]], *start: Node) -> tuple[Node, ...]:
    return ops.make_for_loop(whole(iterations), body, *start)


def number(value: float) -> Node:
    return constant(value, f64)


def folded(x: Node, y: Node) -> Node:
    """Each iteration depends on the one before, and reads two tensors."""
    return loop(5, lambda i, s: ops.sin(s) * ops.lookup(x, i) + ops.lookup(y, whole(4) - i), number(0.3))[0]


def summed(x: Node, y: Node) -> Node:
    """No number is carried in the backward pass: only the tensors are."""
    return loop(5, lambda i, s: s + ops.lookup(x, i) * ops.lookup(y, i), number(0.0))[0]


def nested(x: Node, y: Node) -> Node:
    def row(i: Node, s: Node) -> Node:
        return loop(4, lambda j, t: ops.sin(t) * ops.lookup(y, i, j) + ops.lookup(x, i + 1), s)[0]

    return loop(3, row, number(0.2))[0]


def branching(x: Node, y: Node) -> Node:
    def step(i: Node, s: Node) -> Node:
        return ops.make_cond(
            s > 0.5, lambda v: ops.lookup(x, i) * v, lambda v: v + ops.lookup(y, i) * ops.lookup(y, whole(0)), s
        )

    return loop(5, step, number(0.1))[0]


def choosing(x: Node, y: Node) -> Node:
    """What the branches use is read outside of them."""

    def step(i: Node, s: Node) -> Node:
        first, second = ops.lookup(x, i), ops.lookup(y, i) * ops.lookup(y, whole(0))
        return ops.make_cond(s > 0.5, lambda v, a, b: a * v, lambda v, a, b: v + b, s, first, second)

    return loop(5, step, number(0.1))[0]


def by_value(x: Node, y: Node) -> Node:
    """Where it reads depends on what it has read."""

    def step(i: Node, s: Node) -> Node:
        place = ops.cast(ops.floor(ops.abs(s)), type=i64) % 5
        return s * 0.5 + ops.lookup(x, place) * ops.lookup(y, i)

    return loop(5, step, number(0.1))[0]


def again(x: Node, y: Node) -> Node:
    """The same element in every iteration, and the tensor used outside of the loop too."""
    (s,) = loop(4, lambda i, s: s * ops.lookup(x, whole(2)) + ops.lookup(y, i), number(1.0))
    return s * ops.lookup(ops.reduce(x * x, kind="sum", axes=(0,)))


def neighbours(x: Node, y: Node) -> Node:
    """Several reads of one tensor in an iteration, in loops after and inside each other."""

    def bend(i: Node, s: Node) -> Node:
        d = ops.lookup(x, i) - ops.lookup(x, i + 1) * 2.0 + ops.lookup(x, i + 2)
        return s + d * d * ops.lookup(y, i)

    first = loop(3, bend, number(0.0))[0]
    second = loop(2, lambda k, s: s * 0.5 + loop(3, bend, s)[0], first)[0]
    return first * second + ops.lookup(x, whole(1)) * ops.lookup(y, whole(3))


def until(x: Node, y: Node) -> Node:
    """A loop whose iterations are counted in the forward pass."""

    def step(index: Node, s: Node, i: Node) -> tuple[Node, Node]:
        return s * 1.5 + ops.lookup(x, i % 5) * ops.lookup(y, i % 5), i + 1

    return ops.make_while_loop(lambda s, i: ops.abs(s) + ops.cast(i, type=f64) < 9.0, step, number(0.2), whole(0))[0]


PROGRAMS = {
    "folded": (folded, LINE, LINE), "summed": (summed, LINE, LINE), "nested": (nested, LINE, GRID),
    "branching": (branching, LINE, LINE), "choosing": (choosing, LINE, LINE), "by_value": (by_value, LINE, LINE),
    "again": (again, LINE, LINE),
    "until": (until, LINE, LINE), "neighbours": (neighbours, LINE, LINE),
}  # fmt: skip
DERIVATIVES = ("r", "rf", "rr")  # modes, the first innermost


@pytest.mark.parametrize("modes", DERIVATIVES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_by_tensors_that_loops_read_are_those_of_the_reference(name: str, modes: str) -> None:
    program, *types = PROGRAMS[name]
    function = differentiated(trace(program, *types), modes)  # type: ignore[arg-type]
    compiled = CpuFunction(function)
    rng = np.random.default_rng(11)
    for _ in range(2):
        arguments = random_differentials(function.parameter_types, rng)
        assert_same(compiled(*arguments), evaluate(function, *arguments))


def accumulating(function: Function) -> int:
    return sum(isinstance(call, AccumulatingCall) for call in CpuFunction(function).plan({})._calls)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_whole_way_back_is_one_step(name: str) -> None:
    program, *types = PROGRAMS[name]
    loops = 2 if program is neighbours else 1
    assert accumulating(vjp(trace(program, *types))) == loops  # type: ignore[arg-type]


def random_reads(random: Random) -> Callable[[Node, Node], Node]:
    """A loop with branches and loops inside, each of which reads the tensors somewhere, or does not."""

    def value(depth: int, i: Node, s: Node, x: Node, y: Node) -> Node:
        def inner(s: Node) -> Node:
            return value(depth - 1, i, s, x, y)

        kind = random.choice(["read", "keep", "sum", "cond", "switch", "loop"] if depth else ["read", "keep"])
        if kind == "read":
            place = random.choice([i, whole(random.randrange(5)), (i + whole(random.randrange(5))) % 5])
            return ops.sin(s) * ops.lookup(random.choice((x, y)), place) + random.random()
        if kind == "sum":
            return inner(s) * 0.5 + inner(s)
        if kind == "cond":
            return ops.make_cond(s > random.random(), inner, inner, s)
        if kind == "switch":
            return ops.make_switch((i + whole(random.randrange(3))) % 3, [inner, inner, inner], s)
        if kind == "loop":
            iterations = random.choice([whole(2), i])
            return ops.make_for_loop(iterations, lambda j, s: value(depth - 1, (i + j) % 5, s, x, y), s)[0]
        return s * 0.9

    return lambda x, y: loop(5, lambda i, s: value(3, i, s, x, y), number(0.3))[0]


@pytest.mark.parametrize("seed", [0, 1, 2, 5, 105, 126])
def test_gradients_of_random_loops_and_branches_are_those_without_threaded_accumulators(seed: int) -> None:
    function = vjp(trace(random_reads(Random(seed)), LINE, LINE))
    arguments = random_differentials(function.parameter_types, np.random.default_rng(seed))
    source = CpuFunction(function)
    expected = evaluate(function, *arguments)
    assert_same(source(*arguments), expected)
    without = source.schedule(target=CPU.without("thread_accumulators"))
    assert_same(tuple(CompiledPlan.from_plan(without, run_function).run(list(arguments))), expected)
    assert not any(isinstance(call, LoopCall) for call in source.plan({})._calls)


def test_an_index_out_of_range_is_an_error_and_adds_nothing_elsewhere() -> None:
    def powers(x: Node, n: Node) -> Node:
        return ops.make_for_loop(n, lambda i, s: s * 2.0 + ops.lookup(x, i), number(0.0))[0]

    gradient = CpuFunction(vjp(trace(powers, LINE, i64)))
    with pytest.raises(KernelCheckError, match="index out of range"):
        gradient(np.ones(5), 6, 1.0)
    by_x, _ = gradient(np.ones(5), 5, 1.0)
    np.testing.assert_array_equal(by_x, [16.0, 8.0, 4.0, 2.0, 1.0])


def test_captured_functions_of_arrays() -> None:
    @lg.differentiable
    def smooth(x: lg.tensor[float, Literal[1]], w: lg.tensor[float, Literal[2]], n: int) -> float:
        total = 0.0
        for k in range(n):
            for i in range(1, len(x)):
                if x[i] > x[i - 1]:
                    total = total * 0.5 + w[k, i] * x[i] * x[i - 1]
                else:
                    continue
        return total

    rng = np.random.default_rng(5)
    x, w = rng.standard_normal(7), rng.standard_normal((3, 7))
    by_x, by_w, _ = lg.bwd_diff(smooth)(x, w, 3, 1.0)
    for array, gradient in ((x, by_x), (w, by_w)):
        for place in np.ndindex(array.shape):
            kept = array[place]
            values = []
            for move in (1e-6, -1e-6):
                array[place] = kept + move
                values.append(smooth.python(x, w, 3))
            array[place] = kept
            assert abs((values[0] - values[1]) / 2e-6 - gradient[place]) < 1e-7


def test_what_is_added_to_is_a_copy() -> None:
    """The sum of a loop starts as a tensor of the caller's, which stays what it was."""

    def added(x: Node) -> Node:
        return ops.make_for_loop(whole(3), lambda i, t: ops.scatter_add(t, number(2.0), i), x)[0]

    x = np.arange(5.0)
    compiled = CpuFunction(trace(added, LINE))
    np.testing.assert_array_equal(compiled(x), [2.0, 3.0, 4.0, 3.0, 4.0])
    np.testing.assert_array_equal(x, np.arange(5.0))
    assert accumulating(trace(added, LINE)) == 1


def test_a_loop_that_also_reads_what_it_adds_to_is_left_alone() -> None:
    def mixed(x: Node) -> Node:
        def step(i: Node, t: Node) -> Node:
            return ops.scatter_add(t, ops.lookup(t, whole(0)), i)

        return ops.make_for_loop(whole(3), step, x)[0]

    function = trace(mixed, LINE)
    assert accumulating(function) == 0
    x = np.arange(1.0, 6.0)
    np.testing.assert_array_equal(CpuFunction(function)(x), evaluate(function, x))
