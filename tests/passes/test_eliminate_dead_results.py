"""Unused results, carried values and parameters are removed; everything that is read, and every check, stays."""

import pytest

from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Tensor, bool_, f32, i64
from livegrad.ir.verify import verify_module
from livegrad.ir.walk import reachable_functions, toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import call, check, cond, make_cond, make_for_loop, make_switch, make_while_loop
from livegrad.ops.conversion import cast
from livegrad.ops.differential import fwd_diff
from livegrad.ops.elementwise import floor_div
from livegrad.ops.maps import make_map
from livegrad.ops.transcendental import exp, sin
from livegrad.passes.eliminate_dead_results import eliminate_dead_results
from livegrad.runtime.reference import evaluate


def optimized(*functions: Function) -> Module:
    module = eliminate_dead_results(Module(functions))
    verify_module(module)
    return module


def the_node(function: Function, op: str) -> Node:
    (node,) = (node for node in toposort(function.results) if node.op.name == op)
    return node


@pytest.fixture
def three() -> Function:
    """Three results, each of a different parameter."""
    return trace(lambda a, b, c: (sin(a), exp(b), c * 2.0), f32, f32, f32, name="three")


def test_a_result_that_any_caller_reads_stays_for_all(three: Function) -> None:
    readers = [
        trace(lambda x, i=index: get(call(x, x, x, function=three), index=i), f32, name=f"reader{index}")
        for index in (0, 2)
    ]
    for order in (readers, readers[::-1]):
        module = optimized(*order)
        callees = {the_node(function, "call").attribute("function") for function in module.functions}
        assert [len(callee.results) for callee in callees] == [2]
        assert [len(callee.parameters) for callee in callees] == [2]
        for before, after in zip(order, module.functions, strict=True):
            assert evaluate(before, 0.5) == evaluate(after, 0.5)


def test_what_a_dead_part_of_a_callee_reads_does_not_count(three: Function) -> None:
    middle = trace(lambda x: (get(call(x, x, x, function=three), index=0), -x), f32, name="middle")
    last = trace(lambda x: get(call(x, function=middle), index=1), f32, name="last")
    assert [function.name for function in reachable_functions(optimized(last).functions)] == ["middle", "last"]


def test_an_argument_that_the_callee_ignores_is_not_computed(three: Function) -> None:
    second = trace(lambda x, y: x + 1.0, f32, f32, name="ignores")
    function = trace(lambda x: call(x, get(call(x, x, x, function=three), index=1), function=second), f32, name="f")
    (after,) = optimized(function).functions
    assert [node.op.name for node in toposort(after.results)] == ["parameter", "call"]


def test_callers_agree_even_when_one_needs_more_because_of_the_other() -> None:
    inner = trace(lambda a, b: (a + 1.0, b + 2.0), f32, f32, name="inner")
    middle = trace(lambda a, b: (-a, sin(b)), f32, f32, name="middle")

    def first(x: Node) -> Node:  # reads result 0 of `middle`, but must give what result 1 needs, from `inner`
        both = call(x, x, function=inner)
        return get(call(get(both, index=0), get(both, index=1), function=middle), index=0)

    functions = [trace(first, f32), trace(lambda x: get(call(x, x, function=middle), index=1), f32, name="second")]
    module = optimized(*functions)
    for before, after in zip(functions, module.functions, strict=True):
        assert evaluate(before, 0.5) == evaluate(after, 0.5)


def test_an_entry_keeps_its_signature_when_it_is_called_too(three: Function) -> None:
    reader = trace(lambda x: get(call(x, x, x, function=three), index=1), f32, name="reader")
    module = optimized(three, reader)
    assert module.functions[0] == three
    assert the_node(module.functions[1], "call").attribute("function").results == (exp(parameter(0, f32)),)


def test_an_unused_parameter_of_an_entry_stays() -> None:
    function = trace(lambda x, y: x, f32, f32, name="f")
    assert optimized(function).functions == (function,)


def test_a_function_whose_derivative_is_asked_for_keeps_its_signature(three: Function) -> None:
    def f(x: Node) -> Node:
        return get(get(fwd_diff(x, x, x, x, x, x, function=three), index=1), index=0)

    assert the_node(optimized(trace(f, f32)).functions[0], "fwd_diff").attribute("function") == three


def test_a_carried_value_that_feeds_nothing_goes() -> None:
    def f(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a, b, c: (a + b, b * 2.0, c * c), x, x, x)[0]

    function = trace(f, i64, f32)
    (after,) = optimized(function).functions
    assert the_node(after, "for_loop").attribute("carried") == 2
    assert evaluate(function, 3, 1.0) == evaluate(after, 3, 1.0)


def test_a_carried_value_that_feeds_only_itself_goes_with_its_captures() -> None:
    def f(n: Node, x: Node, k: Node) -> Node:
        return make_for_loop(n, lambda i, a, b: (a * 2.0, b * k), x, x)[0]

    loop = the_node(optimized(trace(f, i64, f32, f32)).functions[0], "for_loop")
    assert len(loop.operands) == 2


def test_the_condition_of_a_while_loop_keeps_what_it_reads() -> None:
    def f(n: Node, x: Node) -> Node:
        return make_while_loop(lambda k, a, b: k < n, lambda i, k, a, b: (k + 1, a * 2.0, b * b), n - 3, x, x)[1]

    function = trace(f, i64, f32)
    (after,) = optimized(function).functions
    assert the_node(after, "while_loop").attribute("carried") == 2
    assert evaluate(after, 5, 1.0) == 8.0


def test_a_check_in_a_loop_that_remains_is_kept_though_its_value_is_unread() -> None:
    def f(n: Node, x: Node) -> Node:
        def body(i: Node, a: Node, b: Node) -> tuple[Node, Node]:
            return a * 2.0, check(b - 1.0, b > 0.0, message="b ran out")

        return make_for_loop(n, body, x, x)[0]

    (after,) = optimized(trace(f, i64, f32)).functions
    with pytest.raises(KernelCheckError, match="b ran out"):
        evaluate(after, 3, 1.0)


def test_a_check_in_a_callee_of_the_body_counts_as_the_bodys_own() -> None:
    halve = trace(lambda k: floor_div(k, k - 2), i64, name="halve")

    def f(n: Node, x: Node) -> Node:
        return make_for_loop(n, lambda i, a, k: (a * 2.0, call(k, function=halve)), x, n)[0]

    (after,) = optimized(trace(f, i64, f32)).functions
    with pytest.raises(KernelCheckError, match="division by zero"):
        evaluate(after, 2, 1.0)


def test_casts_and_divisions_that_cannot_fail_hold_nothing_back() -> None:
    def f(n: Node, x: Node) -> Node:
        def body(i: Node, a: Node, k: Node, y: Node) -> tuple[Node, Node, Node]:
            return a * 2.0, floor_div(k, 3), floor_div(y, y) + cast(k, type=f32)

        return make_for_loop(n, body, x, n, x)[0]

    assert the_node(optimized(trace(f, i64, f32)).functions[0], "for_loop").attribute("carried") == 1


def test_a_result_of_a_branch_that_nobody_reads_goes_from_both() -> None:
    def f(c: Node, x: Node, y: Node) -> Node:
        return get(make_cond(c, lambda a, b: (sin(a), b), lambda a, b: (a, exp(b)), x, y), index=0)

    (after,) = optimized(trace(f, bool_, f32, f32)).functions
    branch = the_node(after, "cond")
    assert branch.type is f32
    assert len(branch.operands) == 2
    assert evaluate(after, False, 2.0, 3.0) == 2.0


def test_a_result_of_a_switch_that_nobody_reads_goes_from_all() -> None:
    def f(k: Node, x: Node, y: Node) -> Node:
        branches = [lambda a, b: (a, b, a), lambda a, b: (-a, b, b), lambda a, b: (a * a, sin(b), b)]
        value = make_switch(k, branches, x, y)
        return get(value, index=0) + get(value, index=2)

    function = trace(f, i64, f32, f32)
    (after,) = optimized(function).functions
    assert [len(branch.results) for branch in the_node(after, "switch").attribute("branches")] == [2, 2, 2]
    assert evaluate(function, 2, 3.0, 4.0) == evaluate(after, 2, 3.0, 4.0)


def test_a_branch_and_a_call_of_one_function_are_narrowed_each_for_itself(three: Function) -> None:
    def f(c: Node, x: Node) -> Node:
        branch = cond(c, x, x, x, then=three, otherwise=three)
        return get(branch, index=0) + get(call(x, x, x, function=three), index=1)

    function = trace(f, bool_, f32)
    (after,) = optimized(function).functions
    assert the_node(after, "cond").attribute("then").results == (sin(parameter(0, f32)),)
    assert the_node(after, "call").attribute("function").results == (exp(parameter(0, f32)),)
    assert evaluate(function, True, 0.5) == evaluate(after, True, 0.5)


def test_a_map_keeps_an_argument_that_spans_its_domain() -> None:
    point = trace(lambda a, b, k: (k * 2.0, a + b), f32, f32, f32, name="point")
    row = Tensor(f32, (4,))

    def f(a: Node, b: Node, k: Node) -> Node:
        return get(make_map(point, a, b, k, summed=(True, False)), index=0)

    (after,) = optimized(trace(f, row, row, f32)).functions
    node = the_node(after, "map")
    assert (len(node.operands), node.attribute("lifted"), node.attribute("summed")) == (2, (True, False), (True,))
    assert evaluate(after, [1, 2, 3, 4], [0, 0, 0, 0], 0.5) == 4.0


def test_loops_within_loops_lose_what_only_the_outer_one_passed_through() -> None:
    def f(n: Node, x: Node) -> Node:
        def outer(i: Node, a: Node, b: Node) -> tuple[Node, ...]:
            return make_for_loop(n, lambda j, c, d: (c * 2.0, d * c), a, b)

        return make_for_loop(n, outer, x, x)[0]

    function = trace(f, i64, f32)
    (after,) = optimized(function).functions
    outer = the_node(after, "for_loop")
    inner = the_node(outer.attribute("body"), "for_loop")
    assert (outer.attribute("carried"), inner.attribute("carried")) == (1, 1)
    assert evaluate(function, 2, 1.0) == evaluate(after, 2, 1.0)


def test_nested_calls_of_any_depth_are_optimized() -> None:
    function = trace(lambda x, y: (x, sin(y)), f32, f32, name="f0")
    for index in range(1, 500):

        def step(x: Node, y: Node, inner: Function = function) -> tuple[Node, Node]:
            both = call(x, y, function=inner)
            return get(both, index=0) + 1.0, get(both, index=1) * 2.0

        function = trace(step, f32, f32, name=f"f{index}")
    entry = trace(lambda x: get(call(x, x, function=function), index=0), f32, name="entry")
    module = optimized(entry)
    assert all(len(f.parameters) == 1 for f in reachable_functions(module.functions))
