"""The order of nodes that `make_function` remembers is that of a walk from the results."""

import random

import pytest

import livegrad as lg
from livegrad.ir.function import inline, make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import f32
from livegrad.ir.walk import nodes_of, toposort


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_a_new_function_depends_on_its_structure_alone(seed: int) -> None:
    source = random.Random(seed)
    inputs = [input_node(Key(f"input{index}"), f32) for index in range(4)]
    nodes: list[Node] = [*inputs, constant(2.0, f32)]
    for _ in range(40):
        operation = source.choice([lg.ops.add, lg.ops.mul, lg.ops.max])
        nodes.append(operation(*source.choices(nodes, k=2)))
    results = source.sample(nodes, 3)
    chosen = [*inputs, *source.sample(nodes[5:], 2)]  # inner nodes may be inputs too
    function = make_function("random", chosen, results)
    assert nodes_of(function) == tuple(toposort(function.results))


def test_inputs_that_become_equal_nodes_leave_no_node_twice() -> None:
    first, second = (input_node(Key(name), f32) for name in ("first", "second"))
    inner = make_function("inner", [first, second], [lg.ops.sin(first) + lg.ops.sin(second)])
    function = make_function("outer", [first], inline(inner, [first, first]))
    assert nodes_of(function) == tuple(toposort(function.results))
    assert len(nodes_of(function)) == 3
