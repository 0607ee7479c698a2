"""Calls are inlined everywhere, in linear time."""

from livegrad.diagnostics import TextOrigin
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant, parameter
from livegrad.ir.node import Function, Module, Node, live_node_count
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, bool_, f32, i64
from livegrad.ir.verify import verify_module
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import call, make_cond, make_for_loop
from livegrad.ops.maps import make_map
from livegrad.ops.transcendental import sin
from livegrad.passes.inline_calls import inline_calls
from livegrad.runtime.reference import evaluate


def flattened(*functions: Function) -> tuple[Function, ...]:
    module = inline_calls(Module(functions))
    verify_module(module, forbidden=[call])
    return module.functions


def test_a_call_becomes_the_callees_body() -> None:
    square = trace(lambda x: x * x, f32)
    (after,) = flattened(trace(lambda x: call(x + 1.0, function=square), f32))
    x = parameter(0, f32)
    assert after.results == ((x + 1.0) * (x + 1.0),)


def test_several_results_are_read_one_by_one_or_as_a_tuple() -> None:
    both = trace(lambda x: (x * x, -x), f32)
    (after,) = flattened(trace(lambda x: (get(call(x, function=both), index=1), call(x, function=both)), f32))
    assert evaluate(after, 3.0) == (-3.0, (9.0, -3.0))


def test_a_result_that_is_not_read_leaves_nothing_behind() -> None:
    both = trace(lambda x: (sin(x), -x), f32)
    (after,) = flattened(trace(lambda x: get(call(x, function=both), index=1), f32))
    assert after.results == (-parameter(0, f32),)


def test_bodies_lose_their_calls_and_stay() -> None:
    square = trace(lambda x: x * x, f32, name="square")

    def f(n: Node, c: Node, x: Node, xs: Node) -> tuple[Node, Node]:
        def body(i: Node, a: Node) -> Node:
            return make_cond(c, lambda b: call(b, function=square), lambda b: -b, a)

        mapped = make_map(trace(lambda a: call(a, function=square) + 1.0, f32), xs)
        return make_for_loop(n, body, x)[0], mapped

    function = trace(f, i64, bool_, f32, Tensor(f32, (2,)))
    (after,) = flattened(function)
    assert [node.op.name for node in toposort(after.results) if node.op.name in ("for_loop", "map")] == [
        "for_loop",
        "map",
    ]
    value, mapped = evaluate(after, 3, True, 2.0, [1.0, 2.0])
    assert value == 256.0
    assert mapped.tolist() == [2.0, 5.0]


def test_an_entry_that_another_one_calls_stays_an_entry() -> None:
    square = trace(lambda x: x * x, f32, name="square")
    fourth = trace(lambda x: call(call(x, function=square), function=square), f32, name="fourth")
    assert [function.name for function in flattened(square, fourth)] == ["square", "fourth"]
    assert [evaluate(function, 2.0) for function in flattened(square, fourth)] == [4.0, 16.0]


def test_calls_that_double_at_every_level_cost_what_the_result_does() -> None:
    """Two calls on each of thirty levels: a billion calls, of which all but a few hundred are equal."""
    function = trace(lambda x, y: x * y, f32, f32)
    for _ in range(30):
        function = trace(
            lambda x, y, inner=function: call(x, y, function=inner) + call(y, x, function=inner), f32, f32, name="level"
        )
    (after,) = flattened(function)
    assert len(toposort(after.results)) < 100


def test_a_chain_of_calls_makes_no_nodes_but_those_of_the_result() -> None:
    function = trace(sin, f32, name="f0")
    for index in range(1, 600):
        function = trace(
            lambda x, inner=function, k=index: sin(call(x * float(k), function=inner)), f32, name=f"f{index}"
        )
    before = live_node_count()
    (after,) = flattened(function)
    made = live_node_count() - before
    assert made <= len(toposort(after.results))


def test_what_depends_on_no_parameter_is_walked_once() -> None:
    node = constant(0.5, f32)
    for _ in range(1_000):
        node = sin(node)
    callee = trace(lambda x: x + node, f32, name="callee")
    total = trace(lambda x: sum((call(x * float(k), function=callee) for k in range(1_000)), x), f32, name="total")
    (after,) = flattened(total)
    assert len(toposort(after.results)) < 11_000


def test_a_value_knows_where_it_was_written_and_where_it_was_called() -> None:
    x = parameter(0, f32)
    with originating_from((TextOrigin("shapes.py", 3),)):
        body = sin(x * 0.125)
    with originating_from((TextOrigin("scene.py", 8),)):
        node = call(x * 0.375, function=Function("shape", (x,), (body,)))
    (after,) = flattened(Function("scene", (x,), (node,)))
    assert [str(place) for place in after.origins_of(after.results[0])] == ["shapes.py:3", "scene.py:8"]
