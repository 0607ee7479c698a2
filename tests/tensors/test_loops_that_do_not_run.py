"""Loops whose number of iterations is known only at run time: with none, what the body computes from captured tensors
has no effect on values, checks and derivatives; with some, it is computed once."""

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.node import Node
from livegrad.ir.walk import nodes_of, toposort
from livegrad.ops.control import cond, for_loop, while_loop

START = lg.asarray([3.0, 4.0], dtype=lg.float64)


def by_count(iterations, body, start):
    return lg.fori_loop(0, iterations, lambda i, s: body(s), start)


def by_test(iterations, body, start):
    return lg.while_loop(lambda t: t[0] < iterations, lambda t: (t[0] + 1, body(t[1])), (lg.asarray(0), start))[1]


LOOPS = {
    "fori_loop": by_count,
    "fori_loop from a number of iterations": lambda iterations, body, start: lg.fori_loop(
        iterations, lg.asarray(0), lambda i, s: body(s), start
    ),
    "fori_loop of no iterations": lambda iterations, body, start: by_count(0, body, start),
    "while_loop": by_test,
    "scan of no rows": lambda iterations, body, start: lg.scan(lambda s, r: (body(s), s), start, lg.zeros((0, 3)))[0],
    "scan of length 0": lambda iterations, body, start: lg.scan(lambda s, r: (body(s), s), start, length=0)[0],
    "in a loop that runs": lambda iterations, body, start: lg.fori_loop(
        0, 2, lambda i, s: by_count(iterations, body, s), start
    ),
    "around a loop that runs": lambda iterations, body, start: by_count(
        iterations, lambda s: lg.fori_loop(0, 2, lambda i, s: body(s), s), start
    ),
    "in a branch": lambda iterations, body, start: lg.cond(
        iterations < 5, lambda: by_count(iterations, body, start), lambda: START
    ),
    "around a branch": lambda iterations, body, start: by_count(
        iterations, lambda s: lg.cond(s[0] < 1e9, body, lambda s: s, s), start
    ),
}
BODIES = {
    "sqrt": lambda k: lambda s: s * lg.sqrt(k),
    "log": lambda k: lambda s: s + lg.log(k),
    "division": lambda k: lambda s: s / k,
    "sum of a tensor": lambda k: lambda s: s * lg.sum(lg.sqrt(k * START)),
}
DERIVATIVES = {
    "grad": lg.grad,
    "jacfwd": lg.jacfwd,
    "grad of grad": lambda f: lg.grad(lg.grad(f)),
    "jacfwd of grad": lambda f: lg.jacfwd(lg.grad(f)),
    "grad of jacfwd": lambda f: lg.grad(lg.jacfwd(f)),
    "compiled grad of grad": lambda f: lg.jit(lg.grad(lg.grad(f))),
}


CASES = {name: (loop, BODIES["sqrt"]) for name, loop in LOOPS.items()}
CASES |= {name: (by_count, body) for name, body in BODIES.items() if name != "sqrt"}


@pytest.mark.parametrize(("loop", "body"), CASES.values(), ids=CASES)
def test_a_body_that_does_not_run_has_zero_derivatives_even_where_they_are_infinite(loop, body):
    zero, none = lg.asarray(0.0, dtype=lg.float64), lg.asarray(0)

    def loss(k):
        return lg.sum(loop(none, body(k), START))

    assert float(loss(zero)) == 7.0
    whole = loop in (by_count, by_test) and body is BODIES["sqrt"]
    names = list(DERIVATIVES) if whole else ["grad", "jacfwd of grad"]
    assert [float(DERIVATIVES[name](loss)(zero)) for name in names] == [0.0] * len(names)


def test_a_body_computes_its_values_even_if_an_equal_value_exists_outside():
    def loss(k, loop):
        held = lg.sqrt(k)
        value = lg.sum(loop(lambda s: s * lg.sqrt(k)))
        del held
        return value

    zero = lg.asarray(0.0)
    for loop in (
        lambda body: by_count(lg.asarray(0), body, START),
        lambda body: lg.cond(lg.asarray(False), body, lambda s: s, START),
    ):
        assert float(lg.grad(loss)(zero, loop)) == 0.0


@pytest.mark.parametrize("loop", ["fori_loop", "while_loop", "scan of no rows"])
def test_a_check_in_a_loop_that_does_not_run_does_not_fail(loop):
    rows, row = lg.asarray([1.0, 2.0]), lg.asarray(5)

    def looped(rows, iterations):
        return lg.sum(LOOPS[loop](iterations, lambda s: s * lg.sin(rows[row]), START))

    assert float(looped(rows, lg.asarray(0))) == 7.0
    np.testing.assert_array_equal(lg.grad(looped)(rows, lg.asarray(0)), [0.0, 0.0])
    if loop != "scan of no rows":
        with pytest.raises(lg.LivegradError, match=r"test_loops_that_do_not_run.*expected 0 to 1, found 5"):
            float(looped(rows, lg.asarray(1)))


@pytest.mark.parametrize("loop", [by_count, by_test], ids=["fori_loop", "while_loop"])
def test_each_element_of_a_batch_has_its_own_iterations(loop):
    values, iterations = lg.asarray([0.0, 1.0, 0.0, 4.0], dtype=lg.float64), lg.asarray([0, 2, -1, 1])

    def loss(k, iterations):
        return lg.sum(loop(iterations, lambda s: s * lg.sqrt(k), START))

    np.testing.assert_allclose(lg.vmap(loss)(values, iterations), [7.0, 7.0, 7.0, 14.0])
    np.testing.assert_allclose(lg.vmap(lg.grad(loss))(values, iterations), [0.0, 7.0, 0.0, 1.75])
    np.testing.assert_allclose(lg.vmap(lg.grad(lg.grad(loss)))(values, iterations), [0.0, 0.0, 0.0, -7.0 / 32.0])
    together = lg.grad(lambda values: lg.sum(lg.vmap(loss)(values, iterations)))
    np.testing.assert_allclose(together(values), [0.0, 7.0, 0.0, 1.75])


def test_a_compiled_scan_may_have_no_rows():
    @lg.jit
    def slope(k, rows):
        return lg.grad(lambda k: lg.sum(lg.scan(lambda s, r: (s * lg.sqrt(k) + r, s), START, rows)[0]))(k)

    for number, k, expected in ((0, 0.0, 0.0), (1, 4.0, 1.75), (2, 1.0, 8.0)):
        found = slope(lg.asarray(k, dtype=lg.float64), lg.ones((number, 2), dtype=lg.float64))
        assert float(found) == pytest.approx(expected)


# --- what runs, runs once --------------------------------------------------------------------------------------------


def loop_of(tensor: lg.Tensor) -> Node:
    (found,) = [node for node in toposort([tensor.node]) if node.op in (for_loop, while_loop)]
    return found


def names_inside(loop: Node) -> set[str]:
    return {node.op.name for node in nodes_of(loop.attribute("body"))}


@pytest.mark.parametrize("iterations", [5, lg.asarray(5)], ids=["known", "unknown"])
@pytest.mark.parametrize("loop", [by_count, by_test], ids=["fori_loop", "while_loop"])
def test_tensors_that_are_the_same_in_each_iteration_are_computed_before_the_loop(loop, iterations):
    k = lg.asarray(np.linspace(0.1, 1.0, 6))
    value = loop(iterations, lambda s: s * 0.5 + lg.sum(lg.sin(k)), START)
    assert names_inside(loop_of(value)).isdisjoint({"sin", "reduce"})
    expected = START.numpy()
    for _ in range(5):
        expected = expected * 0.5 + np.sin(k.numpy()).sum()
    np.testing.assert_allclose(value, expected)
    slope = lg.grad(lambda k: lg.sum(loop(iterations, lambda s: s * 0.5 + lg.sum(lg.sin(k)), START)))(k)
    np.testing.assert_allclose(slope, np.cos(k.numpy()) * 2.0 * sum(0.5**i for i in range(5)))


def test_a_loop_that_always_runs_needs_no_check():
    k = lg.asarray(2.0, dtype=lg.float64)
    for value in (
        lg.fori_loop(0, 3, lambda i, s: s * lg.sin(k), START),
        lg.fori_loop(lg.asarray(3) * 0, 3, lambda i, s: s * k, START),  # a view of a captured value
        lg.scan(lambda s, _: (s * lg.sin(k), s), START, length=3)[0],
    ):
        assert not [node for node in toposort([value.node]) if node.op is cond]
