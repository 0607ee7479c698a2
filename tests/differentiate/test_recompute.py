"""What reverse mode computes again and what it remembers, where the program says so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.compiler import lower
from livegrad.diagnostics import KernelCheckError, UsageError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import UNIT, Struct, Tape, Tensor, Tuple, f64, i64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import get, make
from livegrad.ops.control import call, make_cond, make_for_loop, make_while_loop
from livegrad.ops.conversion import cast
from livegrad.ops.custom import recompute_call
from livegrad.ops.differential import bwd_diff
from livegrad.ops.elementwise import detach
from livegrad.ops.indexing import lookup
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import make_map
from livegrad.ops.order import kept
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import cos, exp, sin
from livegrad.passes.differentiate.budget import within_budget
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.report import storage_report
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate
from tests.conformance.values import plain_shape
from tests.differentiate.checks import check_orders, flat, op_names, results_of

ROW = Tensor(f64, (4,))
SQUARE = Tensor(f64, (16, 16))
LAYER = trace(lambda x, w: sin(matmul(x, w)), SQUARE, SQUARE, name="layer")
STEP = trace(lambda a, x: exp(sin(a) * 0.3) * x + cos(a), f64, f64, name="step")
STATE = Struct("State", (("place", f64), ("count", i64)))


def again(function: Function) -> Callable[..., Node]:
    return lambda *operands: recompute_call(*operands, function=function)


def loop(x: Node, y: Node) -> Node:
    return make_for_loop(constant(3, i64), lambda i, a: again(STEP)(a, y), x)[0]


def around_a_loop(x: Node, y: Node) -> Node:
    inner = trace(lambda x, y: make_for_loop(constant(4, i64), lambda i, a: call(a, y, function=STEP), x)[0], f64, f64)
    return again(inner)(x * y, y) * x


def while_loop(x: Node, y: Node) -> Node:
    return make_while_loop(lambda a, n: n < 3, lambda i, a, n: (again(STEP)(a, y), n + 1), x, constant(0, i64))[0]


def branch(x: Node, y: Node) -> Node:
    return make_cond(x > y, lambda a: again(STEP)(a, y), lambda a: again(STEP)(y, a) * 2.0, x)


def mapped(x: Node, y: Node) -> Node:
    return make_map(trace(lambda a, b: again(STEP)(a, b) * a, f64, f64), x, y)


def nested(x: Node, y: Node) -> Node:
    inner = trace(lambda a, b: again(STEP)(again(STEP)(a, b), b), f64, f64)
    return again(inner)(x, y) + y


def aggregate(x: Node, y: Node) -> Node:
    move = trace(lambda s, y: make(sin(get(s, index=0)) * y, get(s, index=1) + 1, type=STATE), STATE, f64)
    state = again(move)(make(x, constant(2, i64), type=STATE), y)
    return get(state, index=0) * cast(get(state, index=1), type=f64)


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "call": (lambda x, y: again(STEP)(x, y) * y, (f64, f64)),
    "loop": (loop, (f64, f64)),
    "around_a_loop": (around_a_loop, (f64, f64)),
    "while": (while_loop, (f64, f64)),
    "branch": (branch, (f64, f64)),
    "map": (mapped, (ROW, f64)),
    "nested": (nested, (f64, f64)),
    "aggregate": (aggregate, (f64, f64)),
    "tensor": (lambda x, w: again(LAYER)(again(LAYER)(x, w), w), (Tensor(f64, (16, 16)),) * 2),
}


def drawn(function: Function) -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.uniform(0.3, 1.1, plain_shape(type)) for type in function.parameter_types]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_computed_again_has_the_right_derivative_in_both_modes_nested(name: str) -> None:
    callable, types = PROGRAMS[name]
    function = trace(callable, *types)
    check_orders(function, drawn(function), order=1 if name == "tensor" else 2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_native_code_gives_the_reference_s_gradient(name: str) -> None:
    callable, types = PROGRAMS[name]
    function = trace(callable, *types)
    gradient = vjp(function, with_value=True)
    arguments = [*drawn(function), *(np.ones(plain_shape(type)) for type in function.result_types)]
    found = results_of(gradient, compile_function(gradient)(*arguments))
    for a, b in zip(found, results_of(gradient, evaluate(gradient, *arguments)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)


def trace_elements(function: Function) -> list[tuple[Any, ...]]:
    """What each trace of a function remembers of an iteration."""
    nodes = {node for inner in reachable_functions([function]) for node in nodes_of(inner)}
    found = {node.type for node in nodes if isinstance(node.type, Tape)}
    return [type.element.elements for type in found if isinstance(type.element, Tuple)]


def test_a_loop_remembers_the_arguments_of_what_is_computed_again() -> None:
    remembered = trace_elements(vjp(trace(loop, f64, f64)))
    plain = trace(lambda x, y: make_for_loop(constant(3, i64), lambda i, a: call(a, y, function=STEP), x)[0], f64, f64)
    assert remembered == [(f64,)]
    assert max(map(len, trace_elements(vjp(plain)))) > 1


def net(mark: Any, layers_together: int, layers: int = 12) -> Function:
    def segment(x: Node, w: Node) -> Node:
        for _ in range(layers_together):
            x = call(x, w, function=LAYER)
        return x

    def whole(x: Node, w: Node) -> Node:
        w = detach(w)
        for _ in range(layers // layers_together):
            x = mark(x, w, function=trace(segment, SQUARE, SQUARE))
        return lookup(reduce(x, kind="sum", axes=(0, 1)))

    return trace(whole, SQUARE, SQUARE)


def test_less_memory_is_used_where_layers_are_computed_again() -> None:
    """Twelve layers store twelve tensors; four groups of three store four and the three of the group at work."""
    bytes_of = {}
    for name, mark in (("stored", call), ("again", recompute_call)):
        plan = compile_function(vjp(net(mark, 3))).plan().plan
        assert plan is not None
        bytes_of[name] = plan.arena_bytes
    assert bytes_of["again"] < 0.6 * bytes_of["stored"]


def test_what_is_computed_again_is_not_made_one_with_what_was_computed_before() -> None:
    def products(mark: Any) -> int:
        lowered = lower(vjp(net(mark, 3)))
        return sum(node.op is matmul for node in nodes_of(lowered))

    assert products(call) == 24, "twelve there, twelve back"
    assert products(recompute_call) == 33, "nine there, twelve again, twelve back"


def test_a_result_that_nobody_reads_has_no_part_in_the_gradient() -> None:
    """It overflows, and infinity times a cotangent of zero would be NaN."""
    both = trace(lambda x: (sin(x), exp(x * 1000.0) * x), f64)
    inner = trace(lambda x: get(recompute_call(x, function=both), index=0), f64)
    assert evaluate(vjp(inner), 2.0, 1.0) == np.cos(2.0)
    function = trace(lambda x: bwd_diff(x, x - x + 1.0, function=inner), f64)
    assert evaluate(function, 2.0) == np.cos(2.0)


def test_forward_mode_computes_nothing_twice() -> None:
    lowered = lower(jvp(net(recompute_call, 3)))
    assert sum(node.op is matmul for node in nodes_of(lowered)) == 24


# --- what is to be kept ----------------------------------------------------------------------------------------------


def wave(i: Node, y: Node) -> Node:
    return exp(sin(cast(i, type=f64) * y))


def from_the_index(mark: Callable[[Node], Node]) -> Function:
    def whole(n: Node, x: Node, y: Node) -> Node:
        return make_for_loop(n, lambda i, a: a * mark(wave(i, y)) * 0.5, x)[0]

    return trace(whole, i64, f64, f64)


def in_a_map(mark: Callable[[Node], Node]) -> Function:
    point = trace(lambda a, b: sin(mark(exp(a * b))) * a, f64, f64)
    return trace(lambda x, y: make_map(point, x, y, summed=(True,)), ROW, f64)


@pytest.mark.parametrize("order", [2])
def test_what_is_kept_has_the_right_derivative(order: int) -> None:
    check_orders(from_the_index(kept), (3, 0.7, 1.1), order=order)
    check_orders(in_a_map(kept), (np.array([0.3, -0.2, 0.5, 0.9]), 0.8), order=order)


def test_a_loop_keeps_what_it_would_compute_from_its_index() -> None:
    plain, marked = (trace_elements(vjp(from_the_index(mark))) for mark in (lambda v: v, kept))
    assert sorted(map(len, marked)) == [length + 1 for length in sorted(map(len, plain))]


def count_in_linear_part(function: Function, name: str) -> int:
    gradient = lower(vjp(function, with_value=True))
    return sum(node.op.name == name for inner in reachable_functions([gradient]) for node in nodes_of(inner))


def test_a_map_keeps_what_it_would_compute_at_each_point() -> None:
    assert count_in_linear_part(in_a_map(lambda v: v), "exp") == 2
    assert count_in_linear_part(in_a_map(kept), "exp") == 1


def test_what_is_kept_inside_is_not_computed_again() -> None:
    def products(mark: Callable[[Node], Node]) -> tuple[Function, int]:
        inner = trace(lambda x, w: sin(mark(matmul(x, w)) * 0.1), SQUARE, SQUARE)
        whole = trace(lambda x, w: sin(recompute_call(x, w, function=inner)), SQUARE, SQUARE)
        lowered = lower(vjp(whole, with_value=True))
        return whole, sum(node.op is matmul for node in nodes_of(lowered))

    assert products(lambda v: v)[1] == 4
    function, number = products(kept)
    assert number == 3
    check_orders(function, drawn(function), order=1)


def test_marks_are_gone_after_the_passes() -> None:
    for function in (from_the_index(kept), in_a_map(kept), trace(loop, f64, f64)):
        lowered = lower(vjp(function))
        assert op_names(lowered).isdisjoint({"kept", "recompute_call", "recompute_linear"})


# --- what is remembered, and a budget for it -------------------------------------------------------------------------


def power(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: sin(a) * x + cast(i, type=f64) * 0.1, x)[0]


def power_backwards(n: Node, x: Node) -> Node:
    return make_for_loop(n, lambda i, a: sin(a) * x + cast(i, type=f64) * 0.1, x, reverse=True)[0]


def halving(n: Node, x: Node) -> Node:
    def step(i: Node, a: Node, left: Node) -> tuple[Node, Node]:
        return sin(a) * x + cast(i, type=f64) * 0.1, left - 1

    return make_while_loop(lambda a, left: left > 0, step, x, n, limit=100)[0]


def known(n: Node, x: Node) -> Node:
    return make_for_loop(constant(37, i64), lambda i, a: sin(a) * x + cast(i + n, type=f64) * 0.1, x)[0]


LOOPS = {"for": power, "reversed": power_backwards, "while": halving, "known": known}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_within_a_budget_computes_the_same(name: str) -> None:
    function = trace(LOOPS[name], i64, f64)
    for budget in (1, 64, 1000, 10**9):
        made = within_budget(function, budget)
        for own, other in ((function, made), (vjp(function), vjp(made)), (vjp(vjp(function)), vjp(vjp(made)))):
            given = [() if type is UNIT else 1.0 for type in own.parameter_types[2:]]
            for iterations in (0, 1, 7, 40):
                found, expected = (flat(evaluate(f, iterations, 0.7, *given)) for f in (other, own))
                np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("name", LOOPS)
def test_native_code_of_a_loop_within_a_budget_gives_its_gradient(name: str) -> None:
    function = trace(LOOPS[name], i64, f64)
    compiled = compile_function(vjp(within_budget(function, 64)))
    for iterations in (0, 7, 40):
        expected = evaluate(vjp(function), iterations, 0.7, 1.0)[1]
        np.testing.assert_allclose(compiled(iterations, 0.7, 1.0)[1], expected, rtol=1e-12)


def test_a_loop_past_its_limit_still_fails_within_a_budget() -> None:
    made = within_budget(trace(halving, i64, f64), 64)
    with pytest.raises(KernelCheckError, match="limit of 100"):
        evaluate(made, 101, 0.7)


def test_a_loop_of_known_length_goes_in_segments_only_past_the_budget() -> None:
    function = trace(known, i64, f64)
    (per_iteration,) = storage_report(function).bytes_per_iteration.values()
    assert isinstance(per_iteration, int)
    assert within_budget(function, 37 * per_iteration) == function
    parted = storage_report(within_budget(function, 36 * per_iteration))
    assert any(value.op == "recompute_call" for value in parted.values)
    assert list(parted.bytes_per_iteration.values()) == [8], "of each segment, where it starts"


def test_a_report_tells_what_is_stored_and_why() -> None:
    def two_layers(x: Node, w: Node) -> Node:
        return call(call(x, w, function=LAYER), w, function=LAYER)

    report = storage_report(trace(two_layers, SQUARE, SQUARE))
    assert report.bytes == 3 * 16 * 16 * 8
    assert [value.op for value in report.values if value.kind == "stored"] == ["sin", "cos", "cos"]
    assert [value.op for value in report.values if value.kind == "argument"] == ["argument", "argument"]
    assert all("test_recompute.py" in value.because for value in report.values)
    again_report = storage_report(net(recompute_call, 3, 6))
    assert again_report.bytes == 2 * 16 * 16 * 8, "the detached weights and what goes from group to group"
    assert str(again_report).startswith("the gradient of `whole` stores 4096 bytes\n")


def test_a_report_tells_what_loops_store_at_each_iteration() -> None:
    report = storage_report(trace(power, i64, f64))
    assert report.bytes == 0
    ((loop, size),) = report.bytes_per_iteration.items()
    assert size == 16, "the sine and the cosine"
    assert loop is not None
    assert "test_recompute.py" in str(loop)
    summing = trace(lambda n, x: make_for_loop(n, lambda i, a: a + sin(x), x)[0], i64, f64)
    assert storage_report(summing).bytes_per_iteration == {}, "a sum needs no tape and gets none"


def test_a_report_of_symbolic_sizes_is_a_formula() -> None:
    n = Dimension.symbol("n")
    report = storage_report(trace(lambda x: sin(x) * x, Tensor(f64, (n,))))
    assert report.bytes == n * 16


def test_a_budget_must_be_positive() -> None:
    with pytest.raises(UsageError, match="must be positive"):
        within_budget(trace(power, i64, f64), 0)
