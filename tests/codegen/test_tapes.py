"""Tapes of loops: bounded in memory, freed after the run, and an error if they exceed the limit."""

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.llvm import tape_runtime
from livegrad.ir.types import Tape, Tensor


def endless(x: lg.ir.Node) -> lg.ir.Node:
    return ops.make_while_loop(lambda y: y > -1.0, lambda index, y: ops.sin(y) * x + 1.0, x)[0]


def repeated(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
    return ops.make_for_loop(n, lambda index, y: ops.sin(y) * x + 1.0, x)[0]


def one_side(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
    return ops.make_cond(x > 0.0, lambda x: 5.0 * x, lambda x: repeated(x, n), x)


def both_sides(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
    return ops.make_cond(x > 0.0, lambda x: repeated(x * x, n), lambda x: repeated(x, n + 1), x)


def three_ways(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
    branches = [lambda x: repeated(x, n), lambda x: 5.0 * x, lambda x: repeated(x * x, n + 1)]
    which = ops.cast(x > -0.5, type=lg.i64) + ops.cast(x > 0.5, type=lg.i64)
    return ops.make_switch(which, branches, x)


def loops_in_loops(x: lg.ir.Node, n: lg.ir.Node) -> lg.ir.Node:
    return ops.make_for_loop(n, lambda index, y: both_sides(y - 0.5, index + 1), x)[0]


@pytest.mark.parametrize("function", [one_side, both_sides, three_ways, loops_in_loops])
def test_points_that_take_different_branches_read_their_own_residuals(function) -> None:
    gradient = lg.ir.map_over(lg.vjp(lg.ir.trace(function, lg.f64, lg.i64)), lifted=(True, False, False))
    x = np.linspace(-1.0, 1.0, 21)
    native, expected = lg.ir.compile(gradient)(x, 2, 1.0)[0], lg.ir.evaluate(gradient, x, 2, 1.0)[0]
    np.testing.assert_allclose(native, expected, rtol=1e-10, atol=1e-14)


def test_a_tape_above_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape_runtime, "MOST_BYTES", 1 << 22)
    gradient = lg.ir.compile(lg.ir.map_over(lg.vjp(lg.ir.trace(endless, lg.f64)), lifted=(True, False)))
    with pytest.raises(lg.KernelCheckError, match="the tape of a loop's derivative needs more than"):
        gradient(np.full(37, 0.5), 1.0)


SCARCE = """
define internal ptr @scarce(i64 %bytes) noinline {
  %much = icmp ugt i64 %bytes, LIMIT
  br i1 %much, label %no, label %yes
no:
  ret ptr null
yes:
  %memory = call ptr @malloc(i64 %bytes)
  ret ptr %memory
}
"""


@pytest.mark.parametrize("function", [endless, lambda x: loops_in_loops(x, ops.cast(x * 0.0, type=lg.i64) + 5000)])
@pytest.mark.parametrize("most", [0, 200, 1 << 12, 1 << 18])
@pytest.mark.usefixtures("without_caches")  # this test changes the code of kernels, which caches would not notice
def test_a_system_without_memory_for_a_tape_ends_the_run_with_an_error(monkeypatch, function, most) -> None:
    text = tape_runtime._RUNTIME.replace("call ptr @malloc", "call ptr @scarce")
    monkeypatch.setattr(tape_runtime, "_RUNTIME", text + SCARCE.replace("LIMIT", str(most)))
    gradient = lg.ir.compile(lg.ir.map_over(lg.vjp(lg.ir.trace(function, lg.f64)), lifted=(True, False)))
    with pytest.raises(lg.KernelCheckError, match="or more than the available memory"):
        gradient(np.linspace(-0.9, 0.9, 37), 1.0)


def test_each_group_of_lanes_starts_with_empty_memory() -> None:
    """The limit applies to one group: together, the tapes of thousands of groups may exceed it."""
    gradient = lg.ir.compile(lg.ir.map_over(lg.vjp(lg.ir.trace(repeated, lg.f64, lg.i64)), lifted=(True, False, False)))
    x = np.linspace(0.1, 0.9, 20_000)
    by_x, _ = gradient(x, 50, 1.0)
    _, tangent, *_ = lg.ir.compile(
        lg.ir.map_over(lg.jvp(lg.ir.trace(repeated, lg.f64, lg.i64)), (True, False, False, False))
    )(x, 50, 1.0, ())
    np.testing.assert_allclose(by_x, tangent, rtol=1e-10)


def test_a_tape_that_is_read_after_it_was_overwritten_is_copied() -> None:
    """The index of the last read depends on the written tape, so no order has all reads before the write."""

    def old_and_new(x: lg.ir.Node, i: lg.ir.Node, j: lg.ir.Node) -> lg.ir.Node:
        old = ops.tape_set(ops.tape_set(ops.tape_new(type=Tape(lg.f64)), i, x), j, x * 3.0)
        new = ops.tape_set(old, i, x + 10.0)
        found = ops.tape_get(new, j + 0 * i)
        late = ops.tape_get(old, ops.cast(found < 0.0, type=lg.i64))
        return late + 100.0 * ops.tape_get(new, i)

    function = lg.ir.trace(old_and_new, lg.f64, lg.i64, lg.i64)
    for x in (2.0, -20.0):
        expected = (x if x > 0.0 else 3.0 * x) + 100.0 * (x + 10.0)
        assert lg.ir.compile(function)(x, 0, 1) == lg.ir.evaluate(function, x, 0, 1) == expected


def test_empty_tapes_of_one_loop_are_distinct() -> None:
    """The second derivative writes two tapes in one loop, which also reads a table by index."""

    def weighted(n: lg.ir.Node, x: lg.ir.Node, table: lg.ir.Node) -> lg.ir.Node:
        return ops.make_for_loop(n, lambda i, y: ops.sin(y) * ops.lookup(table, i) + x, x)[0]

    function = lg.jvp(lg.vjp(lg.ir.trace(weighted, lg.i64, lg.f64, Tensor(lg.f64, (5,)))))
    values = [3, 0.3, np.linspace(0.2, 0.9, 5), 0.7, (), 0.6, np.linspace(0.9, 0.1, 5), 0.4]
    for native, expected in zip(lg.ir.compile(function)(*values), lg.ir.evaluate(function, *values), strict=True):
        for own, right in zip(native, expected, strict=True) if isinstance(native, tuple) else [(native, expected)]:
            np.testing.assert_allclose(own, right, rtol=1e-13)
