"""Seed 001, "Lazy Compute Graph Design": one test a requirement, under the heading that it comes from."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import livegrad as lg
from tests.node_counts import settled_node_count


def two() -> tuple[lg.Tensor, lg.Tensor]:
    a, b = lg.empty((3, 4)), lg.empty((3, 4))
    a.fill_random(seed=1)
    b.fill_random(seed=2)
    return a, b


def kernels(action) -> int:
    before = lg.stats().kernels_run
    action()
    return lg.stats().kernels_run - before


def test_key_concepts_lazy_evaluation():
    """Overview, Key Concepts: tensors are nodes of a graph rather than eager values."""
    a, b = two()
    c = a + b
    assert not c.is_computed
    c.execute()
    assert c.is_computed


def test_architecture_decision_graphs_merge_when_tensors_are_combined():
    """Architecture Decision: combining tensors of different graphs merges them; leaves have no dependencies."""
    a, b = two()
    left, right = lg.transpose(a, (1, 0)), lg.relu(lg.transpose(b, (1, 0)))
    merged = (left + right).graph
    parts = {node.node for graph in (left.graph, right.graph) for node in graph.nodes}
    assert parts < {node.node for node in merged.nodes}
    assert a.graph.inputs(0) == []


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a, b: a + b, lambda a, b: a + b),
        (lambda a, b: a - b, lambda a, b: a - b),
        (lambda a, b: a @ lg.transpose(b, (1, 0)), lambda a, b: a @ b.T),
        (lambda a, b: lg.transpose(a, (1, 0)), lambda a, b: a.T),
        (lambda a, b: lg.reshape(a, (2, -1)), lambda a, b: a.reshape(2, -1)),
        (lambda a, b: lg.reduce_sum(a, (1, 0)), lambda a, b: a.sum(0, keepdims=True)),
        (lambda a, b: lg.softmax(a, axis=-1), lambda a, b: np.exp(a) / np.exp(a).sum(-1, keepdims=True)),
        (lambda a, b: lg.mean(a, axis=0), lambda a, b: a.mean(0)),
        (lambda a, b: a * 2.5, lambda a, b: a * np.float32(2.5)),
    ],
    ids=["add", "sub", "gemm", "transpose", "reshape", "reduce_sum", "softmax", "mean", "scalar"],
)
def test_core_data_structures_every_operation_and_its_metadata(build, expected):
    """Core Data Structures, 1 Operation Enum and 2 Operation Metadata: each operation with its parameters."""
    a, b = two()
    np.testing.assert_allclose(build(a, b).numpy(), expected(a.numpy(), b.numpy()), rtol=1e-5)


def test_core_data_structures_a_node_knows_its_operation_layout_and_storage():
    """Core Data Structures, 3 Compute Graph Node: id, operation and metadata, layout, storage of leaves."""
    a, _ = two()
    graph = lg.transpose(a, (1, 0)).graph
    leaf, node = graph.nodes
    assert (leaf.op, leaf.is_computed, leaf.bytes) == ("data", True, 48)
    assert (node.op, node.attributes, node.shape, node.dtype) == ("permute", {"axes": (1, 0)}, (4, 3), lg.float32)
    assert not node.is_computed
    assert "test_seed_001" in str(node.origin)
    assert leaf.name != node.name


def test_core_data_structures_edges_carry_the_argument_slot():
    """Core Data Structures, 4 Compute Graph Edges: in c = a - b, a fills slot 0 and b slot 1."""
    a, b = two()
    graph = (a - b).graph
    assert [(slot, source.node) for slot, source in graph.inputs(2)] == [(0, a.node), (1, b.node)]
    assert 'label="1"' in graph.to_dot()


def test_core_data_structures_any_node_can_be_materialised_on_demand():
    """Core Data Structures, 5 Computation Graph: no fixed outputs; results are cached and reused."""
    a, b = two()
    inner = a + b
    outer = inner * 2.0
    inner.execute()
    assert kernels(outer.execute) == 1
    assert kernels(inner.execute) == 0


def test_creating_input_tensors_fill_and_fill_rand_give_fresh_results_below():
    """Operation Graph Construction, Creating Input Tensors: init, fill, fill_rand."""
    a = lg.empty((2, 2))
    doubled = a + a
    a.fill(3.0)
    assert doubled.tolist() == [[6.0, 6.0], [6.0, 6.0]]
    a.fill_random(seed=7)
    np.testing.assert_array_equal(doubled.numpy(), a.numpy() * 2)
    assert len(np.unique(a.numpy())) == 4
    with pytest.raises(lg.UsageError, match="this tensor is computed"):
        doubled.fill(0.0)


def test_binary_operations_broadcast_and_merge():
    """Binary Operations: shapes broadcast as needed; gemm is batched."""
    rows, column = lg.ones((2, 3)), lg.ones((2, 1))
    assert (rows + column).shape == (2, 3)
    assert (lg.ones((5, 1, 2, 3)) @ lg.ones((4, 3, 6))).shape == (5, 4, 2, 6)


def test_unary_operations_transpose_permutes_the_last_axes():
    """Unary Operations: (2,3,4,5) with perm={1,0} gives (2,3,5,4)."""
    assert lg.transpose(lg.ones((2, 3, 4, 5)), (1, 0)).shape == (2, 3, 5, 4)


def test_unary_operations_reshape_infers_one_size():
    """Unary Operations: one dimension may be -1; the number of elements must stay."""
    assert lg.reshape(lg.ones((2, 6)), (3, -1)).shape == (3, 4)
    with pytest.raises(lg.ShapeError):
        lg.reshape(lg.ones((2, 6)), (5, -1))


def test_unary_operations_reduce_sum_keeps_dimensions_and_its_mask_covers_the_last_axes():
    """Unary Operations: 1 sums, 0 keeps. The seed's example has two flags for three axes: ours lie over the last."""
    x = lg.ones((2, 3, 4))
    assert lg.reduce_sum(x, (1, 0, 1)).shape == (1, 3, 1)
    assert lg.reduce_sum(x, (1, 0)).shape == (2, 1, 4)


def test_graph_execution_stops_at_what_is_cached():
    """Graph Execution, Materialization: traversal stops at cached nodes, results are cached for later executions."""
    a, b = two()
    shared = lg.exp(a @ lg.transpose(b, (1, 0)))
    shared.execute()
    calls = lg.stats().library_calls
    (shared + 1.0).execute()
    assert lg.stats().library_calls == calls


def test_graph_management_merge_get_node_inputs_and_sort():
    """Graph Management and Introspection: merge, get_node, get_inputs, topological_sort, free."""
    a, b = two()
    first, second = (a + b).graph, (a * b).graph
    merged = first.merge(second)
    assert len(merged) == 4
    assert merged.node(a).op == "data"
    assert [source.op for _, source in merged.inputs(merged.nodes[-1])] == ["data", "data"]
    position = {node.number: index for index, node in enumerate(merged.topological_sort())}
    for node in merged.nodes:
        assert all(position[source.number] < position[node.number] for _, source in merged.inputs(node))


def test_graph_management_freed_tensors_and_graphs_raise():
    """Graph Management: freeing a tensor does not free its graph; freeing a graph frees its tensors."""
    a, b = two()
    c = a + b
    a.free()
    with pytest.raises(lg.UsageError, match="freed"):
        a + b
    assert c.shape == (3, 4)
    c.execute()
    graph = c.graph
    graph.free()
    for tensor in (b, c):
        with pytest.raises(lg.UsageError, match="freed"):
            tensor.execute()
    with pytest.raises(lg.UsageError, match="freed"):
        graph.nodes


def test_graph_visualisation_dot_print_and_node_summaries(tmp_path, capsys):
    """Graph Visualization and Debugging: DOT export, a summary for people, a line for a node."""
    a, b = two()
    c = a + b
    text = c.graph.to_dot(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text().strip() == text
    assert text.startswith("digraph {")
    c.graph.print()
    assert "graph of 3 nodes, 2 computed" in capsys.readouterr().out
    assert "48 bytes, not computed" in str(c.graph.nodes[-1])


def test_usage_example():
    """Usage Example: the whole of it, in our words."""
    a, b = two()
    c = a + b
    d = lg.transpose(c, (1, 0))
    d.execute()
    np.testing.assert_array_equal(d.numpy(), (a.numpy() + b.numpy()).T)
    for tensor in (a, b, c, d):
        tensor.free()


@pytest.mark.usefixtures("own_session")
def test_memory_management_graphs_are_dropped_with_their_tensors():
    """Memory Management: nothing outlives the tensors that need it."""

    def build_and_drop() -> None:
        a, b = two()
        ((a + b) * a).execute()

    build_and_drop()  # the compiled program keeps its own graph
    before = settled_node_count()
    for _ in range(50):
        build_and_drop()
    assert settled_node_count() <= before + 5


def test_shape_inference_is_immediate():
    """Shape Inference: shapes are known as soon as the operation is written."""
    assert lg.sum(lg.ones((4, 5)) @ lg.ones((5, 6)), axis=0).shape == (6,)


@pytest.mark.parametrize("order", ["first", "second"])
def test_graph_merging_strategy(order):
    """Graph Merging Strategy: add(transpose(A), relu(B)) has both inputs as roots."""
    a, b = two()
    left, right = lg.transpose(a, (1, 0)), lg.relu(lg.transpose(b, (1, 0)))
    graph = (left + right if order == "first" else right + left).graph
    assert {node.node for node in graph.leaves} >= {a.node, b.node}


def test_future_extensions_gradients():
    """Future Extensions, 1: automatic differentiation through the graph."""
    a, _ = two()
    np.testing.assert_allclose(lg.grad(lambda a: lg.sum(a * a))(a).numpy(), 2 * a.numpy(), rtol=1e-6)


def test_future_extensions_optimisation_and_fusion():
    """Future Extensions, 2 and 3: constants fold, dead code goes, and a chain with a reduction is one kernel."""
    a, b = two()
    y = lg.sum(lg.exp(a * 1.0 + 0.0) * b, axis=1)
    assert kernels(y.execute) == 1


def test_future_extensions_memory_is_reused():
    """Future Extensions, 4: temporaries that are not alive together share memory."""
    x = lg.asarray(np.ones((64, 64), np.float32))

    def chain(x):
        for _ in range(6):
            x = lg.cumulative_sum(lg.flip(x, axis=0), axis=0) * 0.5
        return x

    function = lg.ir.trace(lambda node: chain(_wrap(node)).node, lg.ir.types.Tensor(lg.f32, (64, 64)))
    plan = lg.ir.compile(function).plan().serialised
    assert plan.arena_bytes <= 2 * 64 * 64 * 4
    np.testing.assert_allclose(lg.ir.compile(function)(x.numpy()), chain(x).numpy())


def _wrap(node):
    from livegrad.tensors.handle import wrap

    return wrap(node)


def test_future_extensions_device_placement():
    """Future Extensions, 5: computation spread over devices, with copies where it crosses."""
    a, b = two()
    before = lg.stats().copies_between_devices
    result = (a.to("reference") + b).to("cpu") * 2.0
    np.testing.assert_allclose(result.numpy(), (a.numpy() + b.numpy()) * 2.0)
    assert lg.stats().copies_between_devices > before


def test_future_extensions_independent_subgraphs_run_at_the_same_time():
    """Future Extensions, 6: graphs that share nothing are run by several threads."""
    tensors = [lg.asarray(np.full((200, 200), 1.0 + index, np.float32)) for index in range(2)]
    results = [lg.exp(x @ x * 1e-4) for x in tensors]
    before = lg.stats().parallel_groups
    lg.execute(*results, lg.ones(3))
    assert lg.stats().parallel_groups == before + 2


def test_future_extensions_dynamic_shapes():
    """Future Extensions, 7: sizes that are known only when the graph runs."""
    n = lg.ir.Dimension.symbol("n")
    function = lg.ir.trace(lambda node: lg.sum(_wrap(node) * 2.0, axis=0).node, lg.ir.types.Tensor(lg.f32, (n, 3)))
    run = lg.ir.compile(function)
    for size in (1, 7, 32):
        np.testing.assert_allclose(run(np.ones((size, 3), np.float32)), np.full(3, 2.0 * size))
    x = lg.asarray([1.0, -2.0, 3.0])
    assert x[x > 0.0].tolist() == [1.0, 3.0]


def test_error_handling_every_code_is_an_exception():
    """Error Handling: each error code of the seed is an exception with a code of ours, raised by a reachable path."""
    with pytest.raises(lg.ShapeError, match=r"\(2,\).*\(3,\)") as mismatch:
        lg.ones(2) + lg.ones(3)
    with pytest.raises(lg.TypeRuleError) as invalid:
        lg.ones(2) & lg.ones(2)
    a, b = two()
    freed = (a + 1.0).graph
    freed.free()
    with pytest.raises(lg.GraphMergeError) as merge:
        b.graph.merge(freed)
    with pytest.raises(lg.GraphOrderError, match="cycle") as order:
        (b + b).graph.topological_sort(edges=[(1, 0)])
    with pytest.raises(lg.KernelCheckError, match=r"test_seed_001") as execution:
        (lg.asarray([1, 2]) // lg.asarray([1, 0])).execute()
    codes = [caught.value.code for caught in (mismatch, invalid, merge, order, execution)]
    assert codes == ["shape", "type", "graph-merge", "graph-order", "check"]


def test_thread_safety():
    """Thread Safety: the seed has none; here any thread may read, extend and execute any tensor."""
    a, b = two()
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(float(lg.sum(a + b)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 8


@pytest.mark.parametrize("depth", [10, 10_000])
@pytest.mark.usefixtures("own_session")
def test_performance_characteristics_operations_are_constant_time(depth):
    """Performance Characteristics: an operation adds its own nodes, however large the graph below it is."""
    x = lg.asarray(np.ones(2000))  # ops over small data have no nodes until something asks for them
    y = x
    for _ in range(depth):
        y = y + x
    before = settled_node_count()
    z = y + x
    assert settled_node_count() == before + 1
    assert len(z.graph.topological_sort()) == depth + 2
