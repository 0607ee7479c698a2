"""Functions are closed: built from nodes or traced, with captured values as parameters; calls can be inlined."""

import pytest

from livegrad.diagnostics import UsageError, VerifyError
from livegrad.ir.function import inline, make_function, map_results, trace, trace_open
from livegrad.ir.leaves import constant, input_node, parameter
from livegrad.ir.node import Function, Key, Module, Node
from livegrad.ir.types import Tuple, f32, f64, i32
from livegrad.ir.verify import verify_function
from livegrad.ir.walk import reachable_functions, rewrite, toposort
from livegrad.ops.control import call, switch
from livegrad.ops.elementwise import add, mul


def leaf(name: str = "x") -> Node:
    return input_node(Key(name), f32)


def test_any_nodes_can_become_the_parameters_of_a_function() -> None:
    x, y = leaf(), leaf()
    inner = x * y
    function = make_function("f", [inner, y], [inner + y])
    p, q = parameter(0, f32), parameter(1, f32)
    assert function == Function("f", (p, q), (p + q,))
    verify_function(function)


def test_parameters_can_change_places() -> None:
    p, q = parameter(0, f32), parameter(1, f32)
    assert make_function("swap", [q, p], [p - q]).results == (q - p,)


def test_a_parameter_that_is_not_the_functions_own_is_refused() -> None:
    with pytest.raises(VerifyError, match="uses a parameter of another function"):
        make_function("f", [parameter(0, f32)], [parameter(0, f32) + parameter(1, f32)])


def test_tracing_computes_what_the_callable_computes() -> None:
    function = trace(lambda x, y: (x * y, x), f32, f32, name="f")
    p, q = parameter(0, f32), parameter(1, f32)
    assert function == Function("f", (p, q), (p * q, p))
    assert function.result_type is Tuple((f32, f32))
    assert function.parameter_types == (f32, f32)


def test_a_callable_that_uses_values_from_outside_is_refused() -> None:
    outside = leaf()
    with pytest.raises(UsageError, match="uses values that are defined outside of it"):
        trace(lambda x: x + outside, f32)


def test_a_callable_that_returns_no_node_is_refused() -> None:
    with pytest.raises(UsageError, match="must return nodes"):
        trace(lambda x: 1.0, f32)


def test_captured_values_become_additional_parameters() -> None:
    outside = leaf()
    function, captures = trace_open(lambda x: x * outside, [f32])
    assert captures == (outside,)
    assert function.results == (parameter(0, f32) * parameter(1, f32),)


def test_what_is_computed_outside_is_captured_whole() -> None:
    a, b = leaf(), leaf()
    function, captures = trace_open(lambda x: x * (a * b + 1.0), [f32])
    assert captures == (a * b + 1.0,)
    assert len(toposort(function.results)) == 3


def test_constants_are_not_captured() -> None:
    function, captures = trace_open(lambda x: x + (constant(1.0, f32) + constant(2.0, f32)), [f32])
    assert captures == ()
    verify_function(function)


def test_a_result_from_outside_is_captured() -> None:
    outside = leaf()
    function, captures = trace_open(lambda x: outside, [f32])
    assert captures == (outside,)
    assert function.results == (parameter(1, f32),)


def test_parameters_of_the_function_around_are_captured() -> None:
    def outer(x: Node) -> Node:
        inner, captures = trace_open(lambda y: y * x, [f32])
        return call(x, *captures, function=inner)

    function = trace(outer, f32)
    verify_function(function)
    assert len(function.results[0].operands) == 2


def test_inlining_computes_what_the_call_computes() -> None:
    x, y = leaf(), leaf()
    function = trace(lambda a, b: a * b + a, f32, f32)
    assert inline(function, [x, y]) == (x * y + x,)
    assert inline(function, [y, y]) == (y * y + y,)


def test_inlining_with_the_functions_own_parameters_changes_places() -> None:
    p, q = parameter(0, f32), parameter(1, f32)
    assert inline(trace(lambda a, b: a - b, f32, f32), [q, p]) == (q - p,)


@pytest.mark.parametrize("arguments", [[], [leaf()], [leaf(), parameter(0, f64)]])
def test_inlining_checks_the_arguments(arguments: list[Node]) -> None:
    with pytest.raises(UsageError, match="wrong arguments for `f`"):
        inline(trace(lambda a, b: a - b, f32, f32, name="f"), arguments)


def test_a_rule_is_applied_to_each_node_once_from_the_bottom_up() -> None:
    x = leaf()
    observed: list[Node] = []
    root = (x + 1.0) * (x + 1.0)
    assert rewrite([root], lambda node: observed.append(node)) == (root,)
    assert observed == toposort([root])


def test_a_rule_sees_rewritten_operands() -> None:
    function = trace(lambda x: (x + x) * x, f32)
    doubled = map_results(function, lambda node: mul(node.operands[0], 2.0) if node.op is add else None)
    p = parameter(0, f32)
    assert doubled.results == ((p * 2.0) * p,)


def test_operands_come_before_their_users_and_each_node_once() -> None:
    x, y = leaf(), leaf()
    a = x * y
    b = a + x
    assert toposort([b, a, b]) == [x, y, a, b]
    assert toposort([b], stop=lambda node: node is a) == [a, x, b]


def test_functions_are_found_inside_tuples_and_inside_each_other() -> None:
    def twice(x: Node) -> Node:
        return x + x

    inner = trace(lambda a: a * a, f32, name="inner")
    outer = trace(lambda x: call(x, function=inner), f32, name="outer")

    def choose(i: Node, x: Node) -> Node:
        return switch(i, x, branches=(trace(twice, f32), outer))

    chosen = trace(choose, i32, f32)
    names = [function.name for function in reachable_functions([chosen])]
    assert set(names) == {"inner", "outer", "twice", "choose"}
    assert names.index("inner") < names.index("outer") < names.index("choose")
    assert [function.name for function in chosen.results[0].functions] == ["twice", "outer"]


def test_a_module_finds_its_functions_by_name() -> None:
    function = trace(lambda a: a * a, f32, name="square")
    module = Module((function,))
    assert module.function("square") is function
    with pytest.raises(UsageError, match="no function `cube`"):
        module.function("cube")
