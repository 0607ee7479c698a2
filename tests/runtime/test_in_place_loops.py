"""Loops that read and write elements of tensors: one kernel writes in place, in derivatives too."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f64, i64
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import HostStep, KernelStep, Plan
from livegrad.tensors.tracing import trace_call
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
    """The backward pass carries no scalars, only the tensors."""
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
    """The operands of the branches are read outside of them."""

    def step(i: Node, s: Node) -> Node:
        first, second = ops.lookup(x, i), ops.lookup(y, i) * ops.lookup(y, whole(0))
        return ops.make_cond(s > 0.5, lambda v, a, b: a * v, lambda v, a, b: v + b, s, first, second)

    return loop(5, step, number(0.1))[0]


def by_value(x: Node, y: Node) -> Node:
    """Its indices depend on elements that it has read."""

    def step(i: Node, s: Node) -> Node:
        place = ops.cast(ops.floor(ops.abs(s)), type=i64) % 5
        return s * 0.5 + ops.lookup(x, place) * ops.lookup(y, i)

    return loop(5, step, number(0.1))[0]


def again(x: Node, y: Node) -> Node:
    """The same element in each iteration; the tensor is also used outside the loop."""
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


def host_steps(plan: Plan) -> list[str]:
    return [step.op.name for step in plan.steps if isinstance(step, HostStep)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_whole_backward_pass_is_kernels(name: str) -> None:
    program, *types = PROGRAMS[name]
    assert host_steps(CpuFunction(vjp(trace(program, *types))).schedule()) == []  # type: ignore[arg-type]


def random_reads(random: Random) -> Callable[[Node, Node], Node]:
    """A loop with inner branches and loops, some of which read the tensors."""

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
    assert host_steps(source.schedule()) == []


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


def test_updates_are_added_to_a_copy() -> None:
    """The sum of a loop starts from the caller's tensor, which does not change."""

    def added(x: Node) -> Node:
        return ops.make_for_loop(whole(3), lambda i, t: ops.scatter_add(t, number(2.0), i), x)[0]

    x = np.arange(5.0)
    compiled = CpuFunction(trace(added, LINE))
    np.testing.assert_array_equal(compiled(x), [2.0, 3.0, 4.0, 3.0, 4.0])
    np.testing.assert_array_equal(x, np.arange(5.0))
    assert host_steps(CpuFunction(trace(added, LINE)).schedule()) == []


def test_a_loop_reads_what_it_adds_to_before_it_adds() -> None:
    def mixed(x: Node) -> Node:
        def step(i: Node, t: Node) -> Node:
            return ops.scatter_add(t, ops.lookup(t, whole(0)), i)

        return ops.make_for_loop(whole(3), step, x)[0]

    function = trace(mixed, LINE)
    assert host_steps(CpuFunction(function).schedule()) == []
    x = np.arange(1.0, 6.0)
    np.testing.assert_array_equal(CpuFunction(function)(x), evaluate(function, x))


# --- lazy tensors in loops --------------------------------------------------------------------------------------------


def plan_of(function: Callable[..., Any], *arguments: Any) -> Plan:
    types = [lg.asarray(argument).type for argument in arguments]
    return CpuFunction(trace_call(function, types, "program").function).schedule()


def edit_distance(a: Any) -> Any:
    size = a.shape[0]

    def row(i: Any, table: Any) -> Any:
        def cell(j: Any, table: Any) -> Any:
            below, left, corner = table[i - 1, j] + 1.0, table[i, j - 1] + 1.0, table[i - 1, j - 1]
            table[i, j] = lg.minimum(below, lg.minimum(left, corner + lg.abs(a[i - 1] - a[j - 1])))
            return table

        return lg.fori_loop(1, size + 1, cell, table)

    return lg.fori_loop(1, size + 1, row, lg.zeros((size + 1, size + 1), dtype=lg.float64))[size, size]


def eliminate(a: Any) -> Any:
    """LU by three loops; the inner ones get shorter."""
    size = a.shape[0]

    def step(k: Any, a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            a[i, k] = a[i, k] / a[k, k]

            def column(j: Any, a: Any) -> Any:
                a[i, j] = a[i, j] - a[i, k] * a[k, j]
                return a

            return lg.fori_loop(k + 1, size, column, a)

        return lg.fori_loop(k + 1, size, row, a)

    return lg.fori_loop(0, size, step, a + 0.0)


def sieve(limit: Any) -> Any:
    """A while loop and a branch inside a loop, which write a tensor of truth values."""

    def mark(i: Any, prime: Any) -> Any:
        def multiples(prime: Any) -> Any:
            def clear(state: Any) -> Any:
                j, prime = state
                prime[j] = False
                return j + i, prime

            return lg.while_loop(lambda state: state[0] < limit, clear, (i * i, prime))[1]

        return lg.cond(prime[i], multiples, lambda prime: prime, prime)

    return lg.fori_loop(2, 8, mark, lg.ones((50,), dtype=lg.bool))


WORDS = np.asarray([0.3, 1.4, 0.2, 2.0])
MATRIX = np.sin(np.arange(25.0)).reshape(5, 5) + 5.0 * np.eye(5)


@pytest.mark.parametrize(
    ("program", "argument"),
    [
        (edit_distance, WORDS),
        (lg.grad(edit_distance), WORDS),
        (eliminate, MATRIX),
        (lg.grad(lambda a: lg.sum(eliminate(a) ** 2)), MATRIX),
        (sieve, np.int64(50)),
    ],
    ids=["edit distance", "its gradient", "elimination", "its gradient too", "sieve"],
)
def test_a_nest_of_loops_that_writes_elements_is_kernels(program: Callable[..., Any], argument: Any) -> None:
    assert host_steps(plan_of(program, argument)) == []


def test_nests_compute_what_plain_python_computes() -> None:
    lower, upper = np.tril(e := lg.jit(eliminate)(lg.asarray(MATRIX)).numpy(), -1) + np.eye(5), np.triu(e)
    np.testing.assert_allclose(lower @ upper, MATRIX, rtol=1e-12)
    prime = lg.jit(sieve)(lg.asarray(50)).numpy()
    assert [n for n in range(2, 50) if prime[n]] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47]
    lg.check_gradients(edit_distance, lg.asarray(WORDS))
    lg.check_gradients(lambda a: lg.sum(eliminate(a) ** 2), lg.asarray(MATRIX))


def test_a_write_in_a_loop_moves_the_same_bytes_whatever_the_size() -> None:
    def halved(x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            x[i] = x[i] * 0.5
            return x

        return lg.fori_loop(0, 10, body, x)

    for size in (1_000, 100_000):
        plan = plan_of(halved, np.ones(size))
        *copies, loop = plan.steps
        assert [step.results[0].size for step in copies] == [size]  # the argument belongs to the caller
        assert isinstance(loop, KernelStep)
        assert loop.kernel.written
        assert plan.kernels == 2


def test_readers_of_an_old_version_after_the_write_keep_it() -> None:
    """An in-place write would change what the second read sees: the loop is not one kernel, and is right."""

    def exchange(i: Any, state: Any) -> Any:
        x, y = state
        new = x + 0.0
        new[i] = y[i]
        y[lg.astype(lg.abs(new[i]) * 3.0, lg.int64) % 4] = x[i]
        return new, y

    def plain(x: Any, y: Any) -> Any:
        for i in range(4):
            old, x = x[i], x.copy()
            x[i] = y[i]
            y[int(abs(x[i]) * 3.0) % 4] = old
        return x, y

    x, y = np.asarray([0.5, 1.5, -2.0, 3.0]), np.asarray([1.0, 0.2, 0.9, -0.4])
    actual = lg.jit(lambda x, y: lg.fori_loop(0, 4, exchange, (x, y)))(lg.asarray(x), lg.asarray(y))
    for result, expected in zip(actual, plain(x.copy(), y.copy()), strict=True):
        np.testing.assert_array_equal(result.numpy(), expected)


def test_swapped_tensors_are_not_written_in_place() -> None:
    def turn(i: Any, state: Any) -> Any:
        x, y = state
        x[i] = y[i] + 1.0
        return y, x

    actual = lg.jit(lambda x, y: lg.fori_loop(0, 3, turn, (x, y)))(lg.zeros(3), lg.ones(3))
    x, y = np.zeros(3), np.ones(3)
    for i in range(3):
        x[i] = y[i] + 1.0
        x, y = y, x
    np.testing.assert_array_equal([actual[0].numpy(), actual[1].numpy()], [x, y])


def test_an_index_out_of_range_in_a_nest_names_the_users_line() -> None:
    def beyond(x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            x[i + 3] = 1.0  # the line of the error
            return x

        return lg.fori_loop(0, 4, body, x)

    with pytest.raises(lg.LivegradError, match=r"index out of range.*test_in_place_loops\.py") as raised:
        lg.jit(beyond)(lg.zeros(5)).numpy()
    line = int(str(raised.value).split("test_in_place_loops.py:")[1].split(":")[0].split(")")[0])
    assert "the line of the error" in Path(__file__).read_text("utf-8").splitlines()[line - 1]


# --- writes of a few elements after a loop ---------------------------------------------------------------------------


def run_lengths(x: Any) -> Any:
    """The lengths of runs; the last one is written after the loop."""

    def step(i: Any, state: Any) -> Any:
        place, count, out = state
        same = x[i] == x[i - 1]
        out[place] = count
        return lg.where(same, place, place + 1), lg.where(same, count + 1, 1), out

    zero = lg.asarray(0)
    place, count, out = lg.fori_loop(1, x.shape[0], step, (zero, zero + 1, lg.zeros(x.shape[0], dtype=lg.int64)))
    out[place] = count
    return out


def test_one_element_of_what_a_loop_wrote_is_written_in_place() -> None:
    x = np.repeat(np.arange(500), 3)
    plan = plan_of(run_lengths, x)
    last = plan.steps[-1]
    assert isinstance(last, KernelStep)
    assert last.kernel.domain_rank == 0 or last.domain == (1,)
    result = lg.jit(run_lengths)(lg.asarray(x)).numpy()
    np.testing.assert_array_equal(result[:500], 3)
    assert not result[500:].any()


@pytest.mark.parametrize("seed", range(8))
def test_a_write_after_a_loop_leaves_the_version_before_it_to_its_readers(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, place = random.standard_normal(400), int(random.integers(-400, 400))

    def program(x: Any, place: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            y[i] += y[i - 1]
            return y

        before = lg.fori_loop(1, 400, step, x)
        after = before.at[place].set(7.0).at[place - 1].add(1.0)
        return before, after, after + before

    before, after, both = [part.numpy() for part in lg.jit(program)(lg.asarray(x), place)]
    expected = np.cumsum(x)
    np.testing.assert_allclose(before, expected, rtol=1e-12)
    changed = before.copy()
    changed[place] = 7.0
    changed[place - 1] += 1.0
    np.testing.assert_array_equal(after, changed)
    np.testing.assert_array_equal(both, changed + before)
