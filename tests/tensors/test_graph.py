"""Inspection of tensor graphs: nodes, slots, order, drawings, merging, and errors."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import livegrad as lg
from livegrad.tensors.tensor_graph import graph_of, tensor_at
from tests.node_counts import settled_node_count


def two() -> tuple[lg.Tensor, lg.Tensor]:
    return lg.asarray([[1.0, 2.0], [3.0, 4.0]]), lg.asarray([[5.0, 6.0], [7.0, 8.0]])


def test_nodes_come_operands_first_and_each_once():
    a, b = two()
    shared = a @ b
    graph = (shared + shared * 2.0).graph
    place = {node.node: node.number for node in graph.nodes}
    assert len(place) == len(graph)
    for node in graph.nodes:
        assert all(source.number < node.number for _, source in graph.inputs(node))
    assert [source.name for _, source in graph.inputs(graph.node(shared))] == ["%0", "%1"]


def test_a_graph_of_several_tensors_holds_shared_nodes_once():
    a, b = two()
    graph = graph_of(a + b, a - b)
    assert [node.op for node in graph.nodes] == ["data", "data", "add", "sub"]
    assert [node.op for node in graph.leaves] == ["data", "data"]


def test_a_node_is_found_by_number_name_tensor_or_node():
    a, b = two()
    c = a + b
    graph = c.graph
    assert graph.node(2) is graph.node("%2") is graph.node("2") is graph.node(c) is graph.node(graph.nodes[2])
    assert graph_of(c * 2.0).node(graph.nodes[2]).node is c.node


@pytest.mark.parametrize("which", [3, -1, "%9", "abc", "", "%-1", 1.5, lg.ones(2), lg.ones(2).graph.nodes[0], True])
def test_looking_up_a_missing_node_raises_without_computing(which):
    a, b = two()
    before = lg.stats().executions
    with pytest.raises(lg.UsageError, match=r"no such node in this graph \(test_graph\.py.*%0 to %2"):
        (a + b).graph.node(which)
    assert lg.stats().executions == before


def test_a_node_describes_its_state():
    a, b = two()
    c = a @ b
    node = c.graph.node(c)
    assert (node.shape, node.dtype, node.bytes, node.is_computed) == ((2, 2), lg.float32, 16, False)
    assert node.origin is not None
    assert node.origin.file == __file__
    c.execute()
    assert node.is_computed
    assert "computed" in str(node)
    reshaped = lg.reshape(a, (4,)).graph.nodes[-1]
    assert reshaped.attributes == {"shape": (4,)}


def test_a_tensor_can_be_taken_from_a_node_to_go_on_from():
    a, b = two()
    graph = ((a + b) * 2.0).graph
    middle = tensor_at(graph.node("%2"))
    np.testing.assert_array_equal((middle - a).numpy(), b.numpy())


def test_a_graph_executes_all_its_tensors():
    a, b = two()
    c, d = a + b, a - b
    assert graph_of(c, d).execute() is not None
    assert c.is_computed
    assert d.is_computed


def test_the_order_obeys_further_edges():
    a, b = two()
    graph = graph_of(a + b, a - b)
    order = [node.op for node in graph.topological_sort(edges=[("%3", "%2")])]
    assert order.index("sub") < order.index("add")
    with pytest.raises(lg.GraphOrderError, match=r"a cycle among %2, %3") as caught:
        graph.topological_sort(edges=[(3, 2), (2, 3)])
    assert caught.value.code == "graph-order"
    with pytest.raises(lg.UsageError, match="a pair of nodes"):
        graph.topological_sort(edges=[5])  # type: ignore[list-item]
    with pytest.raises(lg.UsageError, match="no such node"):
        graph.topological_sort(edges=[(0, 99)])


def test_the_order_of_a_long_chain_takes_no_stack():
    x = lg.asarray([1.0])
    y = x
    for _ in range(5_000):
        y = y + x
    assert [node.number for node in y.graph.topological_sort()] == list(range(5_001))
    assert "4,801 nodes before these" in str(y.graph)


def test_merging_keeps_both_and_rejects_other_objects():
    a, b = two()
    merged = (a + b).graph.merge((b * 2.0).graph)
    assert {node.op for node in merged.nodes} >= {"add", "mul"}
    gone = (a + 1.0).graph
    gone.free()
    for wrong in (gone, 3, None):
        with pytest.raises(lg.GraphMergeError) as caught:
            b.graph.merge(wrong)  # type: ignore[arg-type]
        assert caught.value.code == "graph-merge"


@pytest.mark.usefixtures("own_session")
def test_merging_copies_no_node():
    a, b = two()
    first, second = (a + b).graph, (a * b).graph
    assert len(first) == len(second) == 3
    before = settled_node_count()
    merged = first.merge(second)
    assert len(merged) == 4
    combined = first.tensors[0] + second.tensors[0]
    assert settled_node_count() == before + 1
    assert len(combined.graph) == 5


def test_using_a_freed_graph_raises_with_the_line():
    a, b = two()
    graph = (a + b).graph
    graph.free()
    for use in (lambda: graph.nodes, lambda: graph.tensors, graph.execute, graph.to_dot, lambda: str(graph)):
        with pytest.raises(lg.UsageError, match=r"this graph was freed \(test_graph\.py"):
            use()
    with pytest.raises(lg.UsageError, match=r"freed \(test_graph\.py"):
        a.graph.nodes


@pytest.mark.usefixtures("own_session")
def test_freeing_a_graph_lets_its_nodes_go():
    before = settled_node_count()
    a, b = two()
    graph = ((a + b) * (a - b)).graph
    assert len(graph) == 5
    graph.free()
    assert settled_node_count() == before
    assert repr(a) == "Tensor(freed)"


def test_a_graph_is_a_view_and_keeps_its_tensors():
    graph = (lg.asarray([1.0]) + lg.asarray([2.0])).graph
    gc.collect()
    assert tensor_at(graph.nodes[-1]).tolist() == [3.0]


def test_the_summary_shows_a_line_a_node():
    a, b = two()
    c = a + b
    lines = str(c.graph).splitlines()
    assert lines[0] == "graph of 3 nodes, 2 computed"
    assert "%2 = add(%0, %1)" in lines[3]
    assert "16 B" in lines[3]
    assert "test_graph.py" in lines[3]


def test_dot_is_well_formed_and_has_every_node_and_slot(tmp_path):
    a, b = two()
    graph = lg.softmax(a @ b, axis=-1).graph
    text = graph.to_dot(tmp_path / "graph.dot")
    assert text.count("[label=") == len(graph) + sum(len(graph.inputs(node)) for node in graph.nodes)
    assert text.count("{") == text.count("}") == 1
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8") == text + "\n"


def test_a_picture_has_a_box_for_every_node_and_an_arrow_for_every_pair_of_them(tmp_path):
    a, b = two()
    graph = (a * a + b).graph
    drawn = graph.to_svg(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == drawn
    assert drawn.count("<rect") == len(graph)
    assert drawn.count('class="edge"') == len(
        {(node.name, s.name) for node in graph.nodes for _, s in graph.inputs(node)}
    )
    assert graph._repr_svg_() == drawn
    assert repr(graph) == f"<graph of {len(graph)} nodes, 2 computed>"


def test_a_graph_too_large_to_draw_is_shown_as_text():
    x = lg.asarray([1.0])
    for _ in range(300):
        x = lg.sin(x)
    assert x.graph._repr_svg_() is None


def test_fill_rejects_a_computed_tensor_even_after_its_history_is_truncated():
    w = lg.asarray([1.0, 2.0])
    for _ in range(12):
        w = (w * 0.5).execute()
    assert len(w.graph) < 12
    with pytest.raises(lg.UsageError, match="this tensor is computed"):
        w.fill(3.0)


@pytest.mark.parametrize("held", [False, True])
def test_the_plan_of_a_graph_is_what_its_execution_runs(held: bool) -> None:
    x = lg.asarray(np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32))
    between = lg.exp(x) + 1.0
    y = lg.softmax(between * 2.0) @ lg.matrix_transpose(between)
    if not held:
        del between
    plan = y.graph.plan()
    lg.reset_stats()
    y.execute()
    assert plan.kernels == lg.stats().kernels_run
    assert len(plan.steps) - plan.kernels == lg.stats().library_calls
    assert len(plan.results) == (2 if held else 1)
    assert y.graph.plan().kernels == 0  # the value is cached now
