"""Nothing in the IR recurses, every algorithm is linear, and dropped graphs are freed, at any size and depth."""

import gc
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

import livegrad.ir.node as node_module
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node, parameter
from livegrad.ir.node import Function, Key, Node, live_node_count
from livegrad.ir.source_lines import originating_from
from livegrad.ir.text import parse_function, print_function, summarize
from livegrad.ir.types import f32
from livegrad.ir.verify import verify_function
from livegrad.ir.walk import reachable_functions, rewrite, toposort
from livegrad.ops.control import call
from livegrad.ops.elementwise import add, sub
from livegrad.state import fresh_session
from tests.long_forms import LONG


@pytest.fixture
def without_collector() -> Iterator[None]:
    """No cycle collector: what the test frees is freed by reference counts alone, and at once."""
    with fresh_session():  # whose background thread has nothing to do
        gc.collect()
        gc.disable()
        yield
        gc.enable()


def chain(length: int, leaf: Node) -> Node:
    """`length` additions, each of the one before."""
    node = leaf
    with originating_from(()):
        for _ in range(length):
            node = add(node, leaf)
    return node


def settled_count() -> int:
    """The nodes alive, after the table has cleared away what died."""
    input_node(Key("broom"), f32)
    return live_node_count()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.own_process  # other tests leave nodes that go later
def test_a_chain_of_any_length_builds_verifies_prints_a_summary_and_is_freed() -> None:
    before, length = settled_count(), 1_000_000 if LONG else 150_000
    leaf = parameter(0, f32)
    function = Function("chain", (leaf,), (chain(length, leaf),))
    size = f"nodes: {length + 1:,}, depth {length + 1:,}"
    assert f"{size}\n  ops: add {length:,}, parameter 1" in summarize(function)
    verify_function(function)
    del function
    assert settled_count() <= before + 1


@pytest.mark.usefixtures("without_collector")
@pytest.mark.own_process  # other tests leave nodes that go later
def test_a_chain_of_many_nodes_prints_parses_and_is_freed() -> None:
    before, length = settled_count(), 200_000 if LONG else 40_000
    leaf = parameter(0, f32)
    function = Function("chain", (leaf,), (chain(length, leaf),))
    text = print_function(function)
    assert text.count("\n") == length + 3
    parsed = parse_function(text)
    assert parsed == function
    del function, parsed
    assert settled_count() <= before + 1


def test_a_long_chain_is_rewritten_and_parsed_anew() -> None:
    leaf = input_node(Key("x"), f32)
    function = make_function("chain", [leaf], [chain(20_000, leaf)])
    text = print_function(function)
    (result,) = rewrite(function.results, lambda node: sub(*node.operands) if node.op is add else None)
    assert len(toposort([result])) == 20_001
    del function, result
    parsed = parse_function(text)
    assert len(toposort(parsed.results)) == 20_001
    assert print_function(parsed) == text


def test_thousands_of_functions_inside_each_other() -> None:
    x, depth = parameter(0, f32), 10_000 if LONG else 3_000
    function = Function("body", (x,), (x * x,))
    for _ in range(depth):
        function = Function("body", (x,), (call(x, function=function),))
    assert len(reachable_functions([function])) == depth + 1
    verify_function(function)
    text = print_function(function)
    assert parse_function(text) == function
    assert f"and {depth - 8:,} more" in summarize(function)
    del function
    assert print_function(parse_function(text)) == text


def test_a_node_with_many_operands_and_a_function_with_many_parameters() -> None:
    parameters = tuple(parameter(index, f32) for index in range(5_000))
    total = parameters[0]
    for each in parameters[1:]:
        total = total + each
    inner = Function("wide", parameters, (total, *parameters))
    function = Function("caller", parameters, (call(*parameters, function=inner),))
    verify_function(function)
    assert parse_function(print_function(function)) == function


def test_shared_parts_are_walked_once() -> None:
    leaf = parameter(0, f32)
    node = leaf
    for _ in range(200):  # 2**200 ways from the root to the leaf
        node = node + node
    function = Function("doubling", (leaf,), (node,))
    assert len(toposort([node])) == 201
    verify_function(function)
    assert parse_function(print_function(function)) == function


def test_functions_that_share_functions_are_walked_once() -> None:
    x = parameter(0, f32)
    function = Function("f", (x,), (x + 1.0,))
    for _ in range(200):
        function = Function("f", (x,), (call(call(x, function=function), function=function) * 2.0,))
    verify_function(function)
    assert len(reachable_functions([function])) == 201
    assert parse_function(print_function(function)) == function


@pytest.mark.own_process  # other tests leave nodes that go later
def test_the_number_of_nodes_stays_flat_when_graphs_are_built_and_dropped() -> None:
    leaf = input_node(Key("x"), f32)
    counts = set[int]()
    for _ in range(20):
        function = make_function("chain", [leaf], [chain(500, leaf)])
        verify_function(function)
        parse_function(print_function(function))
        del function
        counts.add(settled_count())
    assert len(counts) == 1


def test_functions_inside_dropped_functions_are_dropped_too() -> None:
    x = parameter(0, f32)
    before = settled_count()
    function = Function("f", (x,), (x * 0.123,))
    for index in range(100):
        function = Function("f", (x,), (call(x, function=function) + float(index),))
    assert settled_count() > before + 200
    verify_function(function)
    del function
    gc.collect()
    settled_count()
    assert settled_count() <= before + 1


@pytest.mark.own_process
def test_memory_stays_flat_when_graphs_are_built_and_dropped() -> None:
    leaf = input_node(Key("x"), f32)

    def build() -> None:
        for index in range(100):
            make_function("f", [leaf], [(leaf * float(index) + 1.0) * leaf])
            chain(20, leaf * float(index))

    def memory_after(rounds: int) -> int:
        for _ in range(rounds):
            build()
        settled_count()
        gc.collect()  # empties the interpreter's own free lists
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first, last = memory_after(1), memory_after(12)
    finally:
        tracemalloc.stop()
    # A round makes about 4,000 nodes, more than a megabyte in all. The table of nodes is moved now and then, and counts
    # as new memory when it is.
    assert last - first < 8_000 + sys.getsizeof(node_module._table) < 20_000_000


def test_nothing_needs_more_than_a_small_stack() -> None:
    leaf = parameter(0, f32)
    limit = sys.getrecursionlimit()
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    function = Function("chain", (leaf,), (chain(3_000, leaf),))
    sys.setrecursionlimit(depth + 60)
    try:
        text = print_function(function)
        parsed = parse_function(text)
        verify_function(parsed)
        summarize(parsed)
    finally:
        sys.setrecursionlimit(limit)
    assert parsed == function
