"""Source lines are part of nodes that may fail, and of no others; marks replace them in shared code."""

from __future__ import annotations

import livegrad as lg
from livegrad import ops
from livegrad.compiler import lower
from livegrad.diagnostics import KernelCheckError, Mark, TextOrigin
from livegrad.ir.function import map_results, trace
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.line_sites import (
    check_lines,
    equal_but_for_lines,
    mark_locations,
    replace_locations,
    resolve_location,
)
from livegrad.ir.node import Key, Node
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.source_lines import distinguish_lines, originating_from
from livegrad.ir.types import f32, i32, i64
from livegrad.ir.verify import verify_function
from livegrad.ir.walk import nodes_of

FIRST, SECOND = TextOrigin("first.py", 3), TextOrigin("second.py", 40)


def test_a_node_that_cannot_fail_is_shared_by_all_lines() -> None:
    x, y = input_node(Key("x"), i32), input_node(Key("y"), i32)
    first = x * y + x // 3
    second = x * y + x // 3
    assert first is second


def test_a_node_that_may_fail_belongs_to_its_line() -> None:
    x, y = input_node(Key("x"), i32), input_node(Key("y"), i32)
    first = x // y
    second = x // y
    again = [x // y for _ in range(3)]
    assert first is not second
    assert [place.line for place in first.origins] == [place.line - 1 for place in second.origins]
    assert again[0] is again[1] is again[2]


def test_a_node_that_may_fail_keeps_a_single_line() -> None:
    x, y = input_node(Key("x"), i32), input_node(Key("y"), i32)
    with originating_from((FIRST, SECOND)):
        node = x // y
    assert node.origins == (FIRST,)


def divided(at: TextOrigin) -> lg.ir.Function:
    def body(i: Node, value: Node, by: Node) -> Node:
        with originating_from((at,)):
            return value // by

    return trace(lambda a, b: ops.make_for_loop(constant(3, i64), lambda i, v: body(i, v, b), a)[0] * 2, i32, i32)


def test_marks_replace_lines_inside_loops_too() -> None:
    first, second = divided(FIRST), divided(SECOND)
    assert first != second
    (marked, lines), (other, others) = mark_locations(first), mark_locations(second)
    assert marked == other
    assert (lines, others) == ((FIRST,), (SECOND,))
    assert check_lines(marked) == (Mark(0),)
    assert mark_locations(marked) == (marked, (Mark(0),)), "marking what is marked changes nothing"
    assert replace_locations(marked, {Mark(0): SECOND}) == second
    assert equal_but_for_lines(first, second)
    verify_function(marked)


def test_marking_a_function_without_checks_returns_it() -> None:
    function = trace(lambda x: x * x, f32)
    assert mark_locations(function) == (function, ())
    assert mark_locations(function)[0] is function


def test_an_error_with_a_mark_of_an_enclosing_function_is_left_to_that() -> None:
    error = KernelCheckError("no such element", where=Mark(4))
    resolve_location(error, (FIRST,))
    assert error.where == Mark(4)
    resolve_location(error, (None, None, None, None, SECOND))
    assert str(error) == "no such element (second.py:40)"


def test_passes_do_not_add_places_to_shared_nodes() -> None:
    kept = trace(lambda x, y: x * y * 1.9375, f32, f32)
    before = {node: node.local_origins for node in nodes_of(kept)}
    other = trace(lambda x, y: x * y * 1.9375, f32, f32)
    assert kept == other
    lowered = lower(other)
    map_results(lowered, lambda node: None)
    assert {node: node.local_origins for node in nodes_of(kept) if node.operands} == {
        node: origins for node, origins in before.items() if node.operands
    }
    assert kept.origins_of(kept.results[0]) != other.origins_of(other.results[0])
    assert lowered.origins_of(lowered.results[0])[0] == other.origins_of(other.results[0])[0]


def test_a_pass_finds_the_lines_of_the_function_it_was_given() -> None:
    first, second = (trace(f, f32, f32) for f in (lambda x, y: x * y + 5.0625, lambda x, y: x * y + 5.0625))
    (result,) = first.results
    assert result is second.results[0]
    for function in (first, second, first):
        with propagating_lines((function,)):
            assert result.origins == function.origins_of(result)


def test_distinguished_lines_have_separate_nodes() -> None:
    x = input_node(Key("x"), f32)
    with distinguish_lines():
        first = x * x
        second = x * x
        function = trace(lambda a: ops.sin(a) * 2.0, f32)
        verify_function(function)
    assert first is not second
    assert first is not x * x
    assert function == trace(lambda a: ops.sin(a) * 2.0, f32), "closed functions are what they are"
