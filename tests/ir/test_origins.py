"""A node stores the user's lines that created it, with file, line and column; rewrites propagate them."""

import os

from livegrad.diagnostics import TextOrigin, caller_origin
from livegrad.ir.function import map_results, trace
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.source_lines import add_origins, originating_from
from livegrad.ir.types import f32
from livegrad.ir.walk import substitute
from livegrad.ops.elementwise import add, sub


def fresh(name: str = "x") -> Node:
    return input_node(Key(name), f32)


def test_an_origin_is_the_file_line_and_column_of_the_expression() -> None:
    x, y = fresh(), fresh()
    here = caller_origin()
    total = add(x, 2.0) * y
    assert here is not None
    assert total.origin is not None
    assert total.origin.file == os.path.abspath(__file__)
    assert str(total.origin) == f"test_origins.py:{here.line + 1}:13"
    assert str(total.operands[0].origin) == f"test_origins.py:{here.line + 1}:13"
    assert total.origin.function == "test_an_origin_is_the_file_line_and_column_of_the_expression"


def test_each_part_of_a_line_has_its_own_column() -> None:
    x, y = fresh(), fresh()
    product = (x + y) * (x - y)
    columns = [operand.origin.column for operand in product.operands if operand.origin is not None]
    assert columns == [16, 26]


def test_two_sites_of_one_expression_are_merged() -> None:
    x = fresh()
    first = x * x
    second = x * x
    assert first is second
    last, before = [origin.line for origin in first.origins]
    assert last == before + 1, "the line that was written last comes first"


def test_a_line_that_runs_again_is_one_site() -> None:
    x = fresh()
    nodes = [x * x for _ in range(5)]
    assert len(nodes[0].origins) == 1


def test_a_node_keeps_its_first_sites_when_there_are_many() -> None:
    node = fresh() + 1.0
    first = node.origin
    for line in range(100):
        add_origins(node, (TextOrigin("many.ir", line),))
    assert node.origin is first
    assert len(node.origins) == 8


def test_tracing_keeps_the_lines_of_the_body() -> None:
    def body(x: Node, y: Node) -> Node:
        return x * y + y

    function = trace(body, f32, f32, name="body")
    (result,) = function.results
    line = body.__code__.co_firstlineno + 1
    assert f"test_origins.py:{line}:16" in {str(origin) for origin in function.origins_of(result)}


def test_a_rewritten_node_stands_for_the_lines_of_the_old_one() -> None:
    def body(x: Node, y: Node) -> Node:
        return (x + y) * x

    def swap(node: Node) -> Node | None:
        return sub(*node.operands) if node.op is add else None

    rewritten = map_results(trace(body, f32, f32), swap)
    line = body.__code__.co_firstlineno + 1
    difference = rewritten.results[0].operands[0]
    assert difference.op is sub
    assert f"test_origins.py:{line}:17" in {str(origin) for origin in rewritten.origins_of(difference)}
    assert f"test_origins.py:{line}:16" in {str(origin) for origin in rewritten.origins_of(rewritten.results[0])}


def test_two_nodes_that_become_one_give_it_both_their_lines() -> None:
    x, y, z = fresh("x"), fresh("y"), fresh("z")
    first = x * z
    second = y * z
    merged = substitute([first, second], {y: x})
    assert merged[0] is merged[1]
    lines = {origin.line for origin in merged[0].origins}
    assert {first.origins[0].line, second.origins[0].line} <= lines


def test_nodes_made_inside_a_rewrite_do_not_point_at_the_pass() -> None:
    place = TextOrigin("scene.py", 41, 12)
    with originating_from((place,)):
        node = fresh() * 2.0
    assert node.origins == (place,)


def test_an_origin_without_a_column_prints_its_line() -> None:
    assert str(TextOrigin("/home/me/scene.py", 41)) == "scene.py:41"
    assert str(TextOrigin("/home/me/scene.py", 41, 12)) == "scene.py:41:12"
