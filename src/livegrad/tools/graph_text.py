"""Prints functions of assemblies as text and DOT, and functions of the value IR as DOT, for `livegrad graph`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.checks import called_function, input_types, node_order, output_types
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode, ImageFunction
from livegrad.implicit.nodes.node_types import CALLING_TYPES
from livegrad.implicit.nodes.ports import INPUTS, OUTPUTS, PortType, Reference, Source
from livegrad.ir.leaves import is_constant
from livegrad.ir.node import Function
from livegrad.ir.walk import nodes_of


def graph_text(assembly: Assembly, functions: Iterable[AnyFunction]) -> str:
    """One line per node, in dependency order.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 2", {"pos": "vector"})
    >>> print(graph_text(shapes, shapes.functions.values()))
    function 1 `ball` (pos: vector) → (shape: scalar)
      Length_1 = Length(A = inputs.pos)
      Constant_2 = Constant 2.0
      Subtraction_3 = Subtraction(A = Length_1.result, B = Constant_2.value)
      outputs.shape = Subtraction_3.result
    """
    return "\n\n".join("\n".join(_describe(assembly, function)) for function in functions)


def _describe(assembly: Assembly, function: AnyFunction) -> list[str]:
    inputs, outputs = _list_ports(function.inputs), _list_ports(function.outputs)
    lines = [f"function {function.id} `{function.name}` ({inputs}) → ({outputs})"]
    if isinstance(function, ImageFunction):
        styles = ", ".join(function.tile_styles)
        return [*lines, f"  samples image {function.image}: {function.filter}, {styles}"]
    lines += [f"  {_line(assembly, function, node)}" for node in _ordered_nodes(function)]
    return lines + [f"  outputs.{name} = {_source(function.results.get(name))}" for name in function.outputs]


def _list_ports(ports: Mapping[str, PortType]) -> str:
    return ", ".join(f"{name}: {type.value}" for name, type in ports.items())


def _ordered_nodes(function: GraphFunction) -> list[GraphNode]:
    """The nodes in dependency order, or in stored order if the graph has a cycle."""
    return node_order(function) or list(function.nodes.values())


def _line(assembly: Assembly, function: GraphFunction, node: GraphNode) -> str:
    operation = node.type.name
    if node.value is not None:
        operation += f" {_literal(node.value)}"
    if node.type.name in CALLING_TYPES:
        callee = called_function(assembly, function, node)
        operation += " of " + ("nothing" if callee is None else f"`{callee.name}`")
    if node.scalar_output is not None or node.vector_input is not None:
        operation += f" ∂{node.scalar_output}/∂{node.vector_input}"
    ports = [f"{port} = {_source(node.inputs.get(port))}" for port in input_types(assembly, function, node)]
    comment = f"  # {node.display_name}" if node.display_name not in ("", node.identifier) else ""
    return f"{node.identifier} = {operation}{'(' + ', '.join(ports) + ')' if ports else ''}{comment}"


def _source(source: Source | None) -> str:
    if source is None:
        return "nothing"
    return str(source) if isinstance(source, Reference) else _literal(source)


def _literal(value: object) -> str:
    return "(" + ", ".join(f"{component:g}" for component in value) + ")" if isinstance(value, tuple) else str(value)


# --- DOT --------------------------------------------------------------------------------------------------------------


def graph_dot(assembly: Assembly, functions: Iterable[AnyFunction]) -> str:
    """The functions as a DOT graph, one cluster each; `dot -Tsvg` draws it.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 2", {"pos": "vector"})
    >>> graph_dot(shapes, shapes.functions.values()).splitlines()[0]
    'digraph assembly {'
    """
    lines = ["digraph assembly {", "  rankdir=LR;", '  node [shape=record, fontname="Helvetica", fontsize=10];']
    for function in functions:
        lines += [f"  subgraph cluster_{function.id} {{", f"    label={_quote(f'{function.name} ({function.id})')};"]
        lines += [f"    {line}" for line in _cluster(assembly, function)]
        lines.append("  }")
    return "\n".join([*lines, "}"])


def _cluster(assembly: Assembly, function: AnyFunction) -> list[str]:
    lines = [_record(function.id, INPUTS, "inputs", (), function.inputs)]
    if isinstance(function, ImageFunction):
        lines.append(_record(function.id, OUTPUTS, f"samples image {function.image}", function.outputs, ()))
        return [*lines, f"{_node_name(function.id, INPUTS)} -> {_node_name(function.id, OUTPUTS)};"]
    lines.append(_record(function.id, OUTPUTS, "outputs", function.outputs, ()))
    links: list[tuple[Source | None, str]] = []
    for node in _ordered_nodes(function):
        inputs = input_types(assembly, function, node)
        lines.append(
            _record(
                function.id,
                node.identifier,
                _title(assembly, function, node),
                inputs,
                _outputs(assembly, function, node),
            )
        )
        links += [(node.inputs.get(port), _port_name(function.id, node.identifier, "in", port)) for port in inputs]
    links += [(function.results.get(p), _port_name(function.id, OUTPUTS, "in", p)) for p in function.outputs]
    for source, target in links:
        if isinstance(source, Reference):
            lines.append(f"{_port_name(function.id, source.node, 'out', source.port)} -> {target};")
    return lines


def _outputs(assembly: Assembly, function: GraphFunction, node: GraphNode) -> Iterable[str]:
    return output_types(assembly, function, node)


def _title(assembly: Assembly, function: GraphFunction, node: GraphNode) -> str:
    title = node.type.name if node.value is None else f"{node.type.name} {_literal(node.value)}"
    if node.type.name in CALLING_TYPES and (callee := called_function(assembly, function, node)) is not None:
        title += f" {callee.name}"
    return f"{title}\n{node.display_name or node.identifier}"


def _record(function: int, node: str, title: str, inputs: Iterable[str], outputs: Iterable[str]) -> str:
    columns = ["|".join(f"<{_port_tag('in', port)}> {_record_text(port)}" for port in inputs)]
    columns += [_record_text(title), "|".join(f"<{_port_tag('out', p)}> {_record_text(p)}" for p in outputs)]
    label = "|".join("{" + column + "}" if "<" in column else column for column in columns if column)
    return f'{_node_name(function, node)} [label="{{{label}}}"];'


def _record_text(text: str) -> str:
    """Escapes record syntax and quotes in text for a record label."""
    escaped = "".join(f"\\{character}" if character in '\\{}|<>"' else character for character in text)
    return escaped.replace("\n", "\\n")


def _port_tag(side: str, port: str) -> str:
    # DOT port names are identifiers: other characters are replaced by their code points.
    return f"{side}_" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c)}_" for c in port)


def _node_name(function: int, node: str) -> str:
    return _quote(f"{function}.{node}")


def _port_name(function: int, node: str, side: str, port: str) -> str:
    return f"{_node_name(function, node)}:{_port_tag(side, port)}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def function_dot(function: Function) -> str:
    """A function of the value IR as a DOT graph; nodes are listed after their operands.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> print(function_dot(trace(lambda x: x + 1.0, f32, name="next")))
    digraph "next" {
      node [shape=box, fontname="Helvetica", fontsize=10];
      n0 [label="parameter\\nf32"];
      n1 [label="1.0\\nf32"];
      n2 [label="add\\nf32", peripheries=2];
      n0 -> n2;
      n1 -> n2;
    }
    """
    names = {node: f"n{index}" for index, node in enumerate(nodes_of(function))}
    lines = [f"digraph {_quote(function.name)} {{", '  node [shape=box, fontname="Helvetica", fontsize=10];']
    for node, name in names.items():
        title = str(node.attribute("value")) if is_constant(node) else node.op.name
        border = ", peripheries=2" if node in function.results else ""
        lines.append(f"  {name} [label={_quote(chr(10).join([title, str(node.type)]))}{border}];")
    lines += [f"  {names[operand]} -> {name};" for node, name in names.items() for operand in node.operands]
    return "\n".join([*lines, "}"])
