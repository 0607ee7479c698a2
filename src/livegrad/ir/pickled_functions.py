"""Functions of the value IR as flat records, for pickle: interned again on arrival, and of any depth.

Pickled node by node, they would lose the identity of equal nodes, and a long chain would exceed the recursion limit.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from typing import Any

from livegrad.diagnostics import SourceLocation
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.source_lines import created_at, distinguish_lines
from livegrad.ir.walk import toposort

Locations = tuple[SourceLocation, ...]
# A node: its op, the indices of its operands, its attributes, its locations, and whether they are part of its identity.
Record = tuple[Any, tuple[int, ...], tuple[tuple[str, Any], ...], Locations, bool]


def reduce_function(function: Function) -> tuple[Any, ...]:
    """What `Function.__reduce__` returns.

    >>> import livegrad as lg, pickle
    >>> f = lg.ir.trace(lambda x: lg.ops.sin(x) * x, lg.f32)
    >>> pickle.loads(pickle.dumps(f)).results[0] is f.results[0]
    True
    """
    order = toposort([*function.parameters, *function.results])
    index = {node: number for number, node in enumerate(order)}
    records = _records(order, index, function.origins_of)
    parameters, results = ([index[node] for node in nodes] for nodes in (function.parameters, function.results))
    return _rebuild, (function.name, records, parameters, results)


def reduce_node(node: Node) -> tuple[Any, ...]:
    """What `Node.__reduce__` returns: the node with everything below it."""
    order = toposort([node])
    index = {node: number for number, node in enumerate(order)}
    return _rebuild_node, (_records(order, index, lambda node: node.origins),)


def _records(order: Sequence[Node], index: dict[Node, int], locations_of: Callable[[Node], Locations]) -> list[Record]:
    return [
        (node.op, tuple(index[operand] for operand in node.operands), node.attributes, locations_of(node), node.located)
        for node in order
    ]


def _make_nodes(records: Sequence[Record]) -> list[Node]:
    nodes: list[Node] = []
    for op, operands, attributes, locations, is_located in records:
        nodes.append(_make(op, tuple(nodes[number] for number in operands), attributes, locations, is_located))
    return nodes


def _rebuild_node(records: Sequence[Record]) -> Node:
    return _make_nodes(records)[-1]


def _rebuild(name: str, records: Sequence[Record], parameters: Sequence[int], results: Sequence[int]) -> Function:
    nodes = _make_nodes(records)
    function = Function(name, tuple(nodes[number] for number in parameters), tuple(nodes[number] for number in results))
    for node, (_, _, _, locations, is_located) in zip(nodes, records, strict=True):
        for nested in node.functions:
            function.source_locations.update(nested.source_locations)
        if locations and not is_located:
            function.source_locations[node] = locations
    return function


def _make(op: Any, operands: tuple[Node, ...], attributes: Any, locations: Locations, is_located: bool) -> Node:
    with created_at(locations):
        if not is_located:
            return make_node(op, operands, attributes)
        with distinguish_lines():
            return make_node(op, operands, attributes)


# Not methods of the classes: they are below the walk that this needs.
copyreg.pickle(Function, reduce_function)
copyreg.pickle(Node, reduce_node)
