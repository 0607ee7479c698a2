"""Rewrites literals of node inputs as constant nodes, which files can store and users can edit."""

from __future__ import annotations

from dataclasses import replace

from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.node_graph import GraphFunction, GraphNode
from livegrad.implicit.nodes.node_types import VALUE_TYPES, node_type
from livegrad.implicit.nodes.ports import Literal, Reference, Source, type_of_literal

_CONSTANT_NODES = {type: name for name, type in VALUE_TYPES.items()}


def literals_to_constants(assembly: Assembly) -> Assembly:
    """Replaces literals of inputs with constant nodes. Equal literals of a function share a node.

    >>> from livegrad.implicit.nodes.ports import PortType
    >>> ball = Assembly().add_function("ball", {}, {"size": PortType.SCALAR}).link("ball", 2.0, "outputs.size")
    >>> literals_to_constants(ball).graph("ball").results["size"]
    Reference(node='Constant_1', port='value')
    """
    return assembly.map_graphs(_replace_literals)


def _replace_literals(function: GraphFunction) -> GraphFunction:
    sources = [source for node in function.nodes.values() for source in node.inputs.values()]
    if all(isinstance(source, Reference) for source in (*sources, *function.results.values())):
        return function
    constants: dict[str, Reference] = {}
    extended = function

    def link_to_constant(source: Source) -> Source:
        nonlocal extended
        if isinstance(source, Reference):
            return source
        key = repr(source)  # distinguishes 0.0 from -0.0, and integers (ids) from floats
        if key not in constants:
            node = constant_node(extended, source)
            extended = extended.with_node(node)
            constants[key] = Reference(node.identifier, node.type.outputs[0][0])
        return constants[key]

    nodes = {
        name: replace(node, inputs={port: link_to_constant(source) for port, source in node.inputs.items()})
        for name, node in function.nodes.items()
    }
    results = {port: link_to_constant(source) for port, source in function.results.items()}
    return replace(extended, nodes={**extended.nodes, **nodes}, results=results)


def constant_node(function: GraphFunction, value: Literal) -> GraphNode:
    """A constant node for a literal, under an unused identifier."""
    type = node_type(_CONSTANT_NODES[type_of_literal(value)])
    return GraphNode(function.free_identifier(type.name), type, value=value)
