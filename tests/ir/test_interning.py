"""Equal expressions are the same object; expressions that differ in any bit are not."""

import sys
import threading
from collections.abc import Iterator

import pytest

from livegrad.diagnostics import UsageError
from livegrad.ir.function import make_function
from livegrad.ir.interning import InternTable
from livegrad.ir.leaves import constant, input_node, is_constant, parameter
from livegrad.ir.node import Key, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.types import c128, f32, f64, i32
from livegrad.ops.elementwise import add, mul


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_the_same_expression_is_the_same_object() -> None:
    x, y = parameter(0, f32), parameter(1, f32)
    assert x * y + x is add(mul(x, y), x)
    assert x * y is not y * x


def test_nodes_differ_by_operands_ops_and_attributes(annotate: Op) -> None:
    x = parameter(0, f32)
    assert x + x is not x * x
    assert annotate(x, a=1) is not annotate(x, b=1)
    assert annotate(x, a=1) is not annotate(x, a=2)
    assert annotate(x, a=1, b=2) is annotate(x, b=2, a=1)


def test_zero_and_minus_zero_are_different_constants() -> None:
    assert constant(0.0, f32) is not constant(-0.0, f32)
    assert constant(0.0, f32) is constant(0.0, f32)
    assert constant(complex(0.0, 0.0), c128) is not constant(complex(0.0, -0.0), c128)


def test_one_and_true_are_different_attributes(annotate: Op) -> None:
    x = parameter(0, f32)
    assert annotate(x, a=1) is not annotate(x, a=True)
    assert annotate(x, a=1) is not annotate(x, a=1.0)
    assert annotate(x, a=(1,)) is not annotate(x, a=(True,))
    assert annotate(x, a=0) is not annotate(x, a=None)
    assert annotate(x, a=()) is not annotate(x, a=((),))
    assert annotate(x, a="f32") is not annotate(x, a=f32)


def test_nan_interns() -> None:
    assert constant(float("nan"), f64) is constant(float("nan"), f64)


def test_constants_of_different_types_differ() -> None:
    assert constant(1.0, f32) is not constant(1.0, f64)
    assert constant(1, f32) is constant(1.0, f32)


def test_a_constant_is_rounded_to_its_type_before_it_interns() -> None:
    assert constant(0.1, f32) is constant(0.1 + 1e-12, f32)
    assert constant(0.1, f64) is not constant(0.1 + 1e-12, f64)


def test_is_constant_distinguishes_signed_zeros() -> None:
    assert is_constant(constant(-0.0, f32), -0.0)
    assert not is_constant(constant(-0.0, f32), 0.0)
    assert not is_constant(parameter(0, f32))


def test_keys_compare_by_identity_not_by_name() -> None:
    first, second = Key("time"), Key("time")
    assert input_node(first, f32) is input_node(first, f32)
    assert input_node(first, f32) is not input_node(second, f32)


def test_a_function_is_equal_by_parameters_and_results_whatever_its_name() -> None:
    x = parameter(0, f32)
    first, second = make_function("first", [x], [x * x]), make_function("second", [x], [x * x])
    assert first == second
    assert hash(first) == hash(second)
    assert first != make_function("first", [x], [x + x])
    assert len({first, second}) == 1


def test_calls_of_equal_functions_are_the_same_node(annotate: Op) -> None:
    x = parameter(0, f32)
    first, second = make_function("first", [x], [x * x]), make_function("second", [x], [x * x])
    assert annotate(x, body=first) is annotate(x, body=second)


def test_a_node_cannot_be_constructed_directly() -> None:
    with pytest.raises(UsageError):
        Node()


def test_a_mutable_attribute_is_rejected(annotate: Op) -> None:
    with pytest.raises(UsageError):
        annotate(parameter(0, f32), a=[1, 2])


def test_a_node_is_created_again_after_an_equal_node_has_died() -> None:
    key = Key("fleeting")
    for _ in range(100):
        node = input_node(key, f32) + 1.0
        assert node.operands[0] is input_node(key, f32)
        del node


@pytest.mark.usefixtures("frequent_switches")
def test_threads_that_build_the_same_graph_get_the_same_nodes() -> None:
    leaf = input_node(Key("shared"), f32)
    workers, results = 8, dict[int, list[Node]]()
    barrier = threading.Barrier(workers)

    def build(worker: int) -> None:
        barrier.wait()
        nodes = [leaf]
        for index in range(400):
            nodes.append(nodes[-1] * nodes[index // 2] + float(index))
        results[worker] = nodes

    threads = [threading.Thread(target=build, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == workers
    for nodes in results.values():
        assert all(mine is first for mine, first in zip(nodes, results[0], strict=True))


@pytest.mark.usefixtures("frequent_switches")
def test_threads_that_create_and_drop_nodes_never_get_a_wrong_node() -> None:
    leaf = input_node(Key("shared"), i32)
    failures: list[str] = []

    def churn() -> None:
        for index in range(2000):
            node = leaf + index % 7
            if node.op is not add or node.operands[0] is not leaf or not is_constant(node.operands[1], index % 7):
                failures.append(repr(node))
            if make_node(node.op, node.operands) is not node:
                failures.append("not interned")

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_table_keeps_referenced_objects_and_nothing_else() -> None:
    table: InternTable[Key] = InternTable()
    first, second = Key("first"), Key("second")
    assert table.enter(("a",), first) is first
    assert table.enter(("a",), second) is first
    del first
    entry = table.get(("a",))
    assert entry is not None
    assert entry() is None
    assert table.enter(("a",), second) is second
    table.enter(("b",), Key("dropped"))
    table.enter(("c",), second)
    table.clear_up()
    assert set(table) == {("a",), ("c",)}
    for number in range(1000):
        table.enter((number,), Key("dropped"))
    assert len(table) < 100  # without being asked, it clears up now and then
