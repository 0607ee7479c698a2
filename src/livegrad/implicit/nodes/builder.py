"""Builds node graphs in Python. Arithmetic on a `Wire` adds one node per operation.

`FunctionBuilder` is public; `expression` and `from_ir` use it. It collects nodes and returns the extended assembly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.assembly import Assembly, require_assembly
from livegrad.implicit.nodes.checks import (
    function_problems,
    input_types,
    link_problem,
    output_types,
    source_type,
)
from livegrad.implicit.nodes.contents import FunctionName
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.node_graph import GraphFunction, GraphNode
from livegrad.implicit.nodes.node_types import VALUE_TYPES, node_type
from livegrad.implicit.nodes.ports import INPUTS, Literal, PortType, Reference, Source, literal_for
from livegrad.implicit.nodes.signatures import require_name

_CONSTANTS = {type: name for name, type in VALUE_TYPES.items()}


@dataclass(frozen=True, eq=False)
class Wire:
    """The output of a node while a function is built. Arithmetic adds nodes; numbers take the other operand's type."""

    builder: FunctionBuilder
    source: Reference
    type: PortType

    def __add__(self, other: Any) -> Wire:
        return self.builder.apply("Addition", self, other)

    def __radd__(self, other: Any) -> Wire:
        return self.builder.apply("Addition", other, self)

    def __sub__(self, other: Any) -> Wire:
        return self.builder.apply("Subtraction", self, other)

    def __rsub__(self, other: Any) -> Wire:
        return self.builder.apply("Subtraction", other, self)

    def __mul__(self, other: Any) -> Wire:
        return self.builder.apply("Multiplication", self, other)

    def __rmul__(self, other: Any) -> Wire:
        return self.builder.apply("Multiplication", other, self)

    def __truediv__(self, other: Any) -> Wire:
        return self.builder.apply("Division", self, other)

    def __rtruediv__(self, other: Any) -> Wire:
        return self.builder.apply("Division", other, self)

    def __mod__(self, other: Any) -> Wire:
        return self.builder.apply("Mod", self, other)

    def __pow__(self, other: Any) -> Wire:
        return self.builder.apply("Pow", self, other)

    def __neg__(self) -> Wire:
        return self.builder.apply("Multiplication", self, -1.0)

    def __abs__(self) -> Wire:
        return self.builder.apply("Abs", self)

    @property
    def x(self) -> Wire:
        """The first component of a vector."""
        return self.builder.component(self, "x")

    @property
    def y(self) -> Wire:
        """The second component of a vector."""
        return self.builder.component(self, "y")

    @property
    def z(self) -> Wire:
        """The third component of a vector."""
        return self.builder.component(self, "z")


class FunctionBuilder:
    """Builds one function of an assembly, node by node.

    >>> build = FunctionBuilder(Assembly(), "sphere")
    >>> pos, radius = build.input("pos", PortType.VECTOR), build.input("radius", PortType.SCALAR)
    >>> assembly = build.finish(shape=build.apply("Length", pos) - radius)
    >>> list(assembly.graph("sphere").nodes)
    ['Length_1', 'Subtraction_2']
    """

    def __init__(self, assembly: Assembly, name: str, *, id: int | None = None) -> None:
        require_assembly(assembly)
        extended = assembly.add_function(name, id=id)
        self.base = assembly
        self.id = next(function_id for function_id in extended.functions if function_id not in assembly.functions)
        self.name = name
        self._inputs: dict[str, PortType] = {}
        self._nodes: dict[str, GraphNode] = {}
        self._components: dict[Reference, str] = {}
        self._constants: dict[tuple[PortType, Literal], Reference] = {}

    def __repr__(self) -> str:
        return f"<function builder {self.name}({', '.join(self._inputs)}), {len(self._nodes)} nodes>"

    def input(self, name: str, type: PortType | str) -> Wire:
        """Adds an input to the function."""
        type = PortType(type)
        if require_name(name, "an input") in self._inputs:
            raise AssemblyError(f"input `{name}` already exists", where=caller_origin())
        self._inputs[name] = type
        return Wire(self, Reference(INPUTS, name), type)

    def inputs(self, types: Mapping[str, PortType | str]) -> dict[str, Wire]:
        """Adds inputs by name."""
        return {name: self.input(name, type) for name, type in types.items()}

    def constant(self, value: Any, type: PortType = PortType.SCALAR) -> Wire:
        """Returns a constant. Equal constants share a node."""
        literal = literal_for(value, type)
        key = (type, literal)
        # 0.0 equals -0.0 as a key, but not as a value.
        if key not in self._constants or repr(self._nodes[self._constants[key].node].value) != repr(literal):
            kind = node_type(_CONSTANTS[type])
            node = GraphNode(self._free_identifier(kind.name), kind, value=literal)
            self._nodes[node.identifier] = node
            self._constants[key] = Reference(node.identifier, kind.outputs[0][0])
        return Wire(self, self._constants[key], type)

    def named_constant(self, name: str, value: Any, type: PortType = PortType.SCALAR) -> Wire:
        """Returns a constant under its own identifier. It is never shared, so that users can edit it."""
        if require_name(name, "a node") in self._nodes:
            raise AssemblyError(f"node `{name}` already exists", where=caller_origin())
        kind = node_type(_CONSTANTS[type])
        self._nodes[name] = GraphNode(name, kind, value=literal_for(value, type), display_name=name)
        return Wire(self, Reference(name, kind.outputs[0][0]), type)

    def apply(self, name: str, *operands: Any) -> Wire:
        """Adds a node of type `name` with inputs in port order; returns its first output."""
        return self.outputs(name, *operands)[0]

    def outputs(self, name: str, *operands: Any) -> tuple[Wire, ...]:
        """Adds a node of type `name` with inputs in port order; returns all outputs."""
        kind = node_type(name)
        if len(operands) != len(kind.inputs):
            raise AssemblyError(
                f"`{name}` takes {len(kind.inputs)} inputs", where=caller_origin(), found=str(len(operands))
            )
        node_kind = (
            _widest_type([operand.type for operand in operands if isinstance(operand, Wire)]) if kind.kinds else None
        )
        wires = [
            operand if isinstance(operand, Wire) else self._literal(operand, type or node_kind)
            for operand, (_, type) in zip(operands, kind.inputs, strict=True)
        ]
        inputs = {port: wire.source for wire, (port, _) in zip(wires, kind.inputs, strict=True)}
        return self._add_node(GraphNode(self._free_identifier(name), kind, inputs, node_kind))

    def call(
        self, function: FunctionName, arguments: Mapping[str, Any] | None = None, **keyword_arguments: Any
    ) -> dict[str, Wire]:
        """Adds a call of another function of the assembly; returns its outputs by name."""
        arguments = {**(arguments or {}), **keyword_arguments}
        callee = self.base.function(function)
        wires = {
            name: argument if isinstance(argument, Wire) else self._literal(argument, callee.inputs.get(name))
            for name, argument in arguments.items()
        }
        callee_id = self.constant(callee.id, PortType.RESOURCE)
        inputs: dict[str, Source] = {"functionID": callee_id.source}
        inputs |= {name: wire.source for name, wire in wires.items()}
        wires_out = self._add_node(GraphNode(self._free_identifier("FunctionCall"), node_type("FunctionCall"), inputs))
        return dict(zip(callee.outputs, wires_out, strict=True))

    def component(self, vector: Wire, axis: str) -> Wire:
        """Returns one component of a vector. Adds at most one DecomposeVector node for each vector."""
        if vector.source not in self._components:
            self._components[vector.source] = self.outputs("DecomposeVector", vector)[0].source.node
        return Wire(self, Reference(self._components[vector.source], axis), PortType.SCALAR)

    def finish(self, **outputs: Any) -> Assembly:
        """Returns the assembly with the function added; `outputs` are wires or numbers."""
        wires = {name: w if isinstance(w, Wire) else self._literal(w, PortType.SCALAR) for name, w in outputs.items()}
        types = {require_name(name, "an output"): wire.type for name, wire in wires.items()}
        results = {name: wire.source for name, wire in wires.items()}
        function = GraphFunction(self.id, self.name, self._inputs, types, self._nodes, results)
        assembly = self.base.with_function(function)
        for problem in function_problems(assembly, function):
            raise AssemblyError(str(problem), where=caller_origin())
        return assembly

    def _literal(self, value: Any, type: PortType | None) -> Wire:
        """A constant of a port type. A number fills all components of a vector or matrix."""
        if type is None:
            raise AssemblyError("no such input", where=caller_origin(), found=repr(value)[:80])
        components = value
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and type in (PortType.VECTOR, PortType.MATRIX)
        ):
            components = [float(value)] * type.size
        return self.constant(components, type)

    def _free_identifier(self, stem: str) -> str:
        index = len(self._nodes) + 1
        while f"{stem}_{index}" in self._nodes:
            index += 1
        return f"{stem}_{index}"

    def _add_node(self, node: GraphNode) -> tuple[Wire, ...]:
        function = GraphFunction(self.id, self.name, self._inputs, {}, self._nodes)
        types = input_types(self.base, function, node)
        for port, type in types.items():
            source = node.inputs.get(port)
            message = "it is not connected" if source is None else link_problem(self.base, function, source, type)
            if message is not None:
                raise AssemblyError(
                    f"input `{port}` of `{node.type.name}`: {message}",
                    where=caller_origin(),
                    help=_promotion_help(self.base, function, source, type),
                )
        for port in node.inputs:
            if port not in types:
                raise AssemblyError(f"`{node.type.name}` has no input `{port}`", where=caller_origin())
        self._nodes[node.identifier] = node
        outputs = output_types(self.base, function, node)
        return tuple(Wire(self, Reference(node.identifier, port), type) for port, type in outputs.items())


def _widest_type(types: list[PortType]) -> PortType:
    return max(types, key=lambda type: type.size, default=PortType.SCALAR)


def _promotion_help(base: Assembly, function: GraphFunction, source: Source | None, type: PortType) -> str | None:
    if type is PortType.VECTOR and source is not None and source_type(base, function, source) is PortType.SCALAR:
        return "spread the scalar with VectorFromScalar (in an expression: vector(s))"
    return None
