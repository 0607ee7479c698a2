"""Reads functions of 3MF files: node-graph functions, and functions that sample images."""

from __future__ import annotations

from livegrad.implicit.formats.threemf.read_resources import (
    parse_choice,
    parse_number,
    parse_numbers,
    parse_resource_id,
)
from livegrad.implicit.formats.xml_tree import Element
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.node_graph import GraphFunction, GraphNode, ImageFunction
from livegrad.implicit.nodes.node_types import GRADIENT_TYPES, VALUE_TYPES, NodeType, node_type_of_tag
from livegrad.implicit.nodes.ports import INPUTS, Literal, PortType, Reference, Source, literal_for

_REFERENCE_TYPES = {
    "scalarref": PortType.SCALAR,
    "vectorref": PortType.VECTOR,
    "matrixref": PortType.MATRIX,
    "resourceref": PortType.RESOURCE,
}
_PORT_TYPES = {type.value: type for type in PortType}


def read_implicit_function(element: Element, function_id: int) -> GraphFunction:
    """Reads a node-graph function."""
    inputs: dict[str, PortType] = {}
    outputs: dict[str, PortType] = {}
    nodes: dict[str, GraphNode] = {}
    sources: dict[str, Element] = {}
    for child in element.children:
        if child.name == "in":
            for port in child.children:
                inputs[_read_port_name(port, inputs)] = _read_port_type(port)
        elif child.name == "out":
            for port in child.children:
                name = _read_port_name(port, outputs)
                outputs[name] = _read_port_type(port)
                sources[name] = port
        else:
            node = _read_node(child)
            if node.identifier in nodes or node.identifier in (INPUTS, "outputs"):
                raise child.error(f"node `{node.identifier}` is not unique")
            nodes[node.identifier] = node
    results = {name: ref for name, port in sources.items() if (ref := _read_source(port)) is not None}
    function = GraphFunction(function_id, element.attributes.get("displayname", ""), inputs, outputs, nodes, results)
    return _update_old_names(function)


def _read_port_name(port: Element, existing: dict[str, PortType]) -> str:
    name = port.require("identifier")
    if name in existing:
        raise port.error(f"port `{name}` is not unique")
    return name


def _read_port_type(port: Element) -> PortType:
    type = _PORT_TYPES.get(port.name) or _REFERENCE_TYPES.get(port.name)
    if type is None:
        raise port.error("not a port", expected=", ".join((*_PORT_TYPES, *_REFERENCE_TYPES)))
    return type


def _read_source(port: Element) -> Source | None:
    """Reads the source of a port, or None for an empty reference."""
    text = port.attributes.get("ref", "")
    if not text:
        return None
    try:
        return Reference.parse(text)
    except AssemblyError as error:
        raise port.error(error.what, expected="`node.port`", found=repr(text)[:60]) from None


def _read_node(element: Element) -> GraphNode:
    type = node_type_of_tag(element.name)
    if type is None:
        raise element.error("unknown node type")
    inputs: dict[str, Source] = {}
    kind: PortType | None = None
    polymorphic = {name for name, port_type in (*type.inputs, *type.outputs) if port_type is None}
    for section in (*element.children_named("in"), *element.children_named("out")):
        for port in section.children:
            name = port.require("identifier")
            if name in polymorphic and kind is None:
                kind = _read_port_type(port)
            if section.name == "in" and (source := _read_source(port)) is not None:
                inputs[name] = source
    if type.kinds and kind not in type.kinds:
        raise element.error("cannot determine whether the node works on scalars, vectors or matrices")
    is_gradient = type.name in GRADIENT_TYPES
    return GraphNode(
        element.require("identifier"),
        type,
        inputs,
        kind if type.kinds else None,
        _read_value(element, type),
        element.attributes.get("scalaroutput") if is_gradient else None,
        element.attributes.get("vectorinput") if is_gradient else None,
        element.attributes.get("displayname", ""),
        element.attributes.get("tag", ""),
    )


def _read_value(element: Element, type: NodeType) -> Literal | None:
    port_type = VALUE_TYPES.get(type.name)
    if port_type is None:
        return None
    match port_type:
        case PortType.RESOURCE:
            attribute = "value" if "value" in element.attributes else "resourceid"
            return parse_resource_id(element, attribute)
        case PortType.SCALAR:
            values: object = parse_number(element, "value")
        case PortType.VECTOR:
            values = [parse_number(element, axis) for axis in "xyz"]
        case PortType.MATRIX:
            values = parse_numbers(element, element.require("matrix"), 16)
    return literal_for(values, port_type)


def _update_old_names(function: GraphFunction) -> GraphFunction:
    """Replaces the output names of older files in links with the current names."""
    renamed = {
        Reference(node.identifier, old): Reference(node.identifier, new)
        for node in function.nodes.values()
        for old, new in node.type.output_aliases
    }
    if not renamed:
        return function

    def update(source: Source) -> Source:
        return renamed.get(source, source) if isinstance(source, Reference) else source

    nodes = {
        name: GraphNode(**{**vars(node), "inputs": {port: update(s) for port, s in node.inputs.items()}})
        for name, node in function.nodes.items()
    }
    results = {port: update(source) for port, source in function.results.items()}
    return GraphFunction(function.id, function.name, function.inputs, function.outputs, nodes, results)


def read_image_function(element: Element, function_id: int) -> ImageFunction:
    """Reads a function that samples an image stack."""
    attribute = "image3did" if "image3did" in element.attributes else "image3dID"
    styles = ("wrap", "mirror", "clamp")
    return ImageFunction(
        function_id,
        element.attributes.get("displayname", ""),
        parse_resource_id(element, attribute),
        parse_choice(element, "filter", ("linear", "nearest")),
        (
            parse_choice(element, "tilestyleu", styles),
            parse_choice(element, "tilestylev", styles),
            parse_choice(element, "tilestylew", styles),
        ),
        parse_number(element, "valueoffset" if "valueoffset" in element.attributes else "offset", 0.0),
        parse_number(element, "valuescale" if "valuescale" in element.attributes else "scale", 1.0),
    )
