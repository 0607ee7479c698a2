"""Loops over tensors: one native call for all iterations, state and rows in place, values of the reference."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from livegrad import ops
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, f32, f64, i64
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.loop_body import LoopBody
from livegrad.runtime.cpu.tensor_loops import LoopCall
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import assert_same, differentiated, random_differentials

ROW = Tensor(f64, (3,))


def whole(number: int) -> Node:
    return constant(number, i64)


def summed(x: Node) -> Node:
    return ops.lookup(ops.reduce(x, kind="sum", axes=tuple(range(len(x.type.shape)))))  # type: ignore[attr-defined]


def decaying(x: Node, w: Node) -> Node:
    """Elements interact, so the loop runs over whole tensors."""
    return ops.make_for_loop(whole(7), lambda i, y: ops.tanh(ops.flip(y, axes=(0,)) * w) + x, x)[0]


def growing_while(x: Node, w: Node) -> Node:
    """More iterations than the initial rows of tapes."""

    def step(index: Node, y: Node, n: Node) -> tuple[Node, Node]:
        return ops.sin(y) * w + x, n + 1

    return ops.make_while_loop(lambda y, n: n < 41, step, x, whole(0))[0]


def nested(x: Node, w: Node) -> Node:
    def outer(index: Node, y: Node) -> Node:
        (inner,) = ops.make_for_loop(index + 1, lambda i, z: ops.sin(z) * w, y)
        return inner + y * x

    return ops.make_for_loop(whole(4), outer, x)[0]


def branching(x: Node, w: Node) -> Node:
    def step(index: Node, y: Node) -> Node:
        return ops.make_cond(summed(y) > 0.5, lambda v: ops.sin(v) * w, lambda v: v * v + x, y)

    return ops.make_for_loop(whole(5), step, x)[0]


def swapping(x: Node, w: Node) -> Node:
    """State that is swapped, state that does not change, and a scalar."""

    def step(index: Node, a: Node, b: Node, still: Node, s: Node) -> tuple[Node, ...]:
        return b, a * still + w, still, s + summed(a)

    a, b, still, s = ops.make_for_loop(whole(5), step, x, w, x * 2.0, constant(0.0, f64))
    return a + b * still + ops.broadcast(s, shape=(3,), axes=())


def multiplying(x: Node, w: Node) -> Node:
    square = ops.reshape(ops.concatenate(x, w, x * w, axis=0), shape=(3, 3))

    def step(index: Node, y: Node) -> Node:
        return ops.tanh(ops.reshape(ops.matmul(ops.reshape(y, shape=(1, 3)), square), shape=(3,)))

    return ops.make_for_loop(whole(6), step, x)[0]


def scanning(x: Node, w: Node) -> Node:
    """A reverse loop that reads and writes rows."""
    stacked = ops.reshape(ops.concatenate(x, w, x * w, w + x, axis=0), shape=(4, 3))
    rows = ops.tape_unstack(stacked)

    def step(index: Node, y: Node, tape: Node) -> tuple[Node, Node]:
        after = ops.sin(y) * ops.tape_get(rows, index)
        return after, ops.tape_set(tape, index, after * y)

    last, tape = ops.make_for_loop(whole(4), step, x, ops.tape_new(type=rows.type), reverse=True)
    return last + ops.reduce(ops.tape_stack(tape, size=4), kind="sum", axes=(0,))


def elsewhere(x: Node, w: Node) -> Node:
    """A tape that is read at another index than the loop index."""
    kind = ops.tape_unstack(ops.reshape(x, shape=(1, 3))).type

    def step(index: Node, y: Node, tape: Node) -> tuple[Node, Node]:
        before = ops.tape_get(tape, index - 1)
        return ops.sin(y) * w + before, ops.tape_set(tape, index, y)

    return ops.make_for_loop(whole(5), step, x, ops.tape_new(type=kind))[0]


def no_iterations(x: Node, w: Node) -> Node:
    return ops.make_for_loop(whole(-2), lambda i, y: y * w, x)[0]


PROGRAMS = (
    decaying, growing_while, nested, branching, swapping, multiplying, scanning, elsewhere, no_iterations,
)  # fmt: skip
DERIVATIVES = ("", "f", "r", "rf", "rr")  # modes, the first innermost


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_loop_computes_what_the_reference_computes(program: Callable[..., Node], name: str) -> None:
    function = differentiated(trace(program, ROW, ROW), name)
    compiled = CpuFunction(function)
    rng = np.random.default_rng(7)
    for _ in range(2):  # the second run must not depend on the first
        arguments = random_differentials(function.parameter_types, rng)
        assert_same(compiled(*arguments), evaluate(function, *arguments))


def bodies(function: Function) -> list[LoopBody]:
    plan = CpuFunction(function).plan({})
    return [call._body for call in plan._calls if isinstance(call, LoopCall)]


@pytest.mark.parametrize(
    "program", [decaying, growing_while, swapping, scanning], ids=lambda function: function.__name__
)
def test_all_iterations_of_kernels_are_one_native_call_in_both_directions(program: Callable[..., Node]) -> None:
    for body in bodies(vjp(trace(program, ROW, ROW))):
        assert body.iterations is not None
        assert not body.host_keys


def test_swapped_tapes_are_carried_by_the_host() -> None:
    def exchange(index: Node, y: Node, a: Node, b: Node) -> tuple[Node, ...]:
        return y + 1.0, b, a

    def program(x: Node) -> Node:
        first = ops.tape_unstack(ops.reshape(x, shape=(1, 3)))
        y, a, _ = ops.make_for_loop(whole(3), exchange, x, first, ops.tape_new(type=first.type))
        return y + ops.tape_get(a, whole(0))

    function = trace(program, ROW)
    (body,) = bodies(function)
    assert body.iterations is None
    np.testing.assert_array_equal(CpuFunction(function)(np.ones(3)), evaluate(function, np.ones(3)))


def test_tapes_are_written_and_read_in_place() -> None:
    forward, backward = bodies(vjp(trace(decaying, ROW, ROW)))
    assert [row.writes for row in forward.loop.rows] == [True]
    assert not forward.loop.rows[0].reads
    assert backward.loop.rows[0].reads
    assert not backward.loop.rows[0].writes


def test_unread_rows_are_not_written() -> None:
    """The backward pass of a scan clears the cotangents of its outputs, which are unused."""
    backward = bodies(vjp(trace(scanning, ROW, ROW)))[-1]
    assert sum(row.writes for row in backward.loop.rows) == 1  # the cotangents of the inputs


def test_running_past_the_limit_is_an_error_with_the_line() -> None:
    def endless(x: Node) -> Node:
        return ops.make_while_loop(lambda y: summed(y) > -1.0, lambda i, y: y + 1.0, x, limit=5)[0]

    compiled = CpuFunction(trace(endless, ROW))
    with pytest.raises(KernelCheckError, match="ran past its limit of 5") as error:
        compiled(np.ones(3))
    assert re.search(r"test_loops\.py:\d+", str(error.value))
    np.testing.assert_array_equal(compiled(np.full(3, -2.0)), np.full(3, -2.0))


def test_a_failed_check_inside_an_iteration_names_its_element_and_does_not_affect_later_runs() -> None:
    def checked(x: Node) -> Node:
        def step(index: Node, y: Node) -> Node:
            return ops.lookup(y, ops.cast(y, type=i64)) + 1.0

        return ops.make_for_loop(whole(3), step, x)[0]

    compiled = CpuFunction(trace(checked, ROW))
    with pytest.raises(KernelCheckError, match="at element 0") as error:
        compiled(np.ones(3))
    assert re.search(r"test_loops\.py:\d+", str(error.value))
    np.testing.assert_array_equal(compiled(np.zeros(3)), np.full(3, 3.0))


def test_results_belong_to_the_caller() -> None:
    compiled = CpuFunction(trace(decaying, ROW, ROW))
    first = compiled(np.ones(3), np.ones(3))
    copy = first.copy()
    compiled(np.zeros(3), np.zeros(3))
    np.testing.assert_array_equal(first, copy)


def test_sizes_known_at_run_time() -> None:
    def total(x: Node) -> Node:
        return ops.make_for_loop(whole(3), lambda i, y: y * 2.0, x)[0]

    compiled = CpuFunction(trace(total, Tensor(f32, (Dimension.symbol("n"),))))
    for size in (1, 5, 1000):
        np.testing.assert_array_equal(compiled(np.ones(size, np.float32)), np.full(size, 8.0, np.float32))
