"""Lowers node graphs to the value IR: each function becomes a `Function`, each call node a call.

Meshes, lattices and images become tensor parameters after the inputs of the function. Parts and generated C start here.
Gradient nodes are lowered before (`lower_gradient`), or differentiated analytically with `exact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.diagnostics import NodeOrigin, caller_origin
from livegrad.implicit.distances.beam_distance import BeamTables, beam_distance
from livegrad.implicit.distances.distance_call import distance_call
from livegrad.implicit.distances.image_sampling import sample_image
from livegrad.implicit.distances.mesh_distance import MeshTables
from livegrad.implicit.nodes.assembly import Assembly, require_assembly
from livegrad.implicit.nodes.checks import call_order, called_function, function_problems, node_order, resource_id
from livegrad.implicit.nodes.contents import FunctionName
from livegrad.implicit.nodes.dead_code import eliminate_dead_code, require_outputs
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.exact_gradient import exact_gradient, exact_normalized_distance
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode, ImageFunction
from livegrad.implicit.nodes.node_types import GRADIENT_TYPES, MESH_TYPES, VALUE_TYPES
from livegrad.implicit.nodes.ports import INPUTS, Literal, PortType, Reference, Source
from livegrad.implicit.nodes.resources import BeamLattice, ImageStack, TriangleMesh
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, f32, scalar_of_dtype
from livegrad.ops.aggregate import member

NodePath = tuple[int, str]  # function id, node identifier


@dataclass(frozen=True)
class Converted:
    """A function of an assembly, lowered to the value IR.

    Its parameters are the inputs, then `parameters` (constants of the graph that become arguments), then `tables`, the
    tensors of meshes, lattices and images.
    """

    function: Function
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[NodePath, ...]
    values: tuple[Literal, ...]  # the values of `parameters` in the graph
    tables: tuple[NDArray[np.generic], ...]
    table_names: tuple[str, ...]  # such as `samples_5`, the pixels of image 5


def to_function(assembly: Assembly, name: FunctionName, *, exact: bool = False, element: Scalar = f32) -> Function:
    """Converts a function of an assembly to a `Function` of the value IR, with its inputs in order.

    Lower gradient nodes first, or pass `exact` to differentiate them analytically.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> shapes = add_expression(Assembly(), "sphere", "length(pos) - radius", {"pos": "vector", "radius": "scalar"})
    >>> to_function(shapes, "sphere")
    <function sphere(vec<f32, 3>, f32) -> f32>
    """
    converted = convert(assembly, name, exact=exact, element=element)
    if converted.tables:
        raise AssemblyError(
            f"function `{converted.function.name}` reads meshes or images",
            where=caller_origin(),
            help="create a part, which contains them: lg.implicit.part_of_function(assembly, name, bounds)",
        )
    return converted.function


def convert(
    assembly: Assembly,
    name: FunctionName,
    *,
    outputs: Sequence[str] | None = None,
    parameters: Sequence[NodePath] = (),
    exact: bool = False,
    element: Scalar = f32,
) -> Converted:
    """Lowers a function of an assembly and its callees to the value IR.

    The constants `parameters` become arguments. `outputs` selects and orders the results; nodes that they do not need
    may be unfinished.
    """
    require_assembly(assembly)
    function = assembly.function(name)
    selected_outputs = tuple(function.outputs) if outputs is None else tuple(outputs)
    require_outputs(assembly, {function.id: selected_outputs})
    assembly = eliminate_dead_code(assembly, {function.id: selected_outputs})
    order = call_order(assembly, [function.id])
    if order is None:
        raise AssemblyError(f"the calls of function `{function.name}` form a cycle", where=caller_origin())
    conversion = _Conversion(assembly, tuple(parameters), exact, element)
    for function_id in order:
        conversion.add(assembly.functions[function_id])
    return conversion.finish(assembly.functions[function.id], selected_outputs)


@dataclass
class _ExtraParameters:
    """The parameters of a function besides its inputs: constants and tables, in order of first use."""

    parameters: dict[NodePath, Node] = field(default_factory=dict)
    tables: dict[tuple[int, str], Node] = field(default_factory=dict)


class _Conversion:
    """Lowers functions, callees before callers."""

    def __init__(self, assembly: Assembly, parameters: tuple[NodePath, ...], exact: bool, element: Scalar) -> None:
        self.assembly = assembly
        self.parameter_paths = frozenset(parameters)
        self.requested_parameters = parameters
        self.exact = exact
        self.element = element
        self.converted_functions: dict[int, tuple[Function, _ExtraParameters]] = {}
        self.arrays: dict[tuple[int, str], NDArray[np.generic]] = {}
        self.mesh_tables: dict[tuple[int, bool], MeshTables] = {}

    def add(self, function: AnyFunction) -> None:
        extra = _ExtraParameters()
        inputs = {
            name: input_node(Key(name), type.ir_type(self.element))
            for name, type in function.inputs.items()
            if type is not PortType.RESOURCE
        }
        if isinstance(function, ImageFunction):
            with originating_from((NodeOrigin(f"image {function.image}", function.name or f"function_{function.id}"),)):
                results = self._convert_image(function, inputs["pos"], extra)
        else:
            results = self._convert_graph(function, inputs, extra)
        arguments = [*inputs.values(), *extra.parameters.values(), *extra.tables.values()]
        converted = make_function(function.name or f"function_{function.id}", arguments, results)
        self.converted_functions[function.id] = (converted, extra)

    def finish(self, function: AnyFunction, outputs: tuple[str, ...]) -> Converted:
        converted, extra = self.converted_functions[function.id]
        names = list(function.outputs)
        unused = [path for path in self.requested_parameters if path not in extra.parameters]
        if unused:
            raise AssemblyError(
                f"function {unused[0][0]} has no constant `{unused[0][1]}` that `{function.name}` uses",
                where=caller_origin(),
            )
        results = tuple(converted.results[names.index(name)] for name in outputs)
        selected = Function(converted.name, converted.parameters, results)
        selected.source_locations.update(converted.source_locations)
        inputs = tuple(name for name, type in function.inputs.items() if type is not PortType.RESOURCE)
        values = [self.assembly.node(*path).value for path in extra.parameters]
        tables = tuple(self.arrays[key] for key in extra.tables)
        return Converted(
            selected,
            inputs,
            outputs,
            tuple(extra.parameters),
            tuple(v for v in values if v is not None),
            tables,
            tuple(f"{name}_{resource_id}" for resource_id, name in extra.tables),
        )

    # --- node-graph functions -----------------------------------------------------------------------------------------

    def _convert_graph(self, function: GraphFunction, inputs: dict[str, Node], extra: _ExtraParameters) -> list[Node]:
        for problem in function_problems(self.assembly, function):
            raise AssemblyError(str(problem), where=caller_origin())
        ports: dict[Reference, Node] = {Reference(INPUTS, name): node for name, node in inputs.items()}
        for node in node_order(function) or []:
            with originating_from((NodeOrigin(node.identifier, function.name or f"function_{function.id}"),)):
                outputs = self._convert_node(function, node, ports, extra)
            for output, value in outputs.items():
                ports[Reference(node.identifier, output)] = value
        return [self._convert_source(function.results[name], ports) for name in function.outputs]

    def _convert_source(self, source: Source, ports: dict[Reference, Node]) -> Node:
        if not isinstance(source, Reference):
            return literal_node(source, self.element)
        node = ports.get(source)
        if node is None:
            raise AssemblyError(f"resource id `{source}` must be a constant")
        return node

    def _convert_node(
        self, function: GraphFunction, node: GraphNode, ports: dict[Reference, Node], extra: _ExtraParameters
    ) -> dict[str, Node]:
        kind = node.type.name
        if kind == "ResourceId":
            return {}
        if kind in VALUE_TYPES:
            return {node.type.outputs[0][0]: self._convert_constant(function, node, extra)}
        if kind == "FunctionCall":
            return self._convert_call(function, node, ports, extra)
        if kind in GRADIENT_TYPES:
            return self._convert_gradient(function, node, ports, extra)
        if kind in MESH_TYPES:
            position = self._convert_source(node.inputs["pos"], ports)
            return {"distance": self._convert_distance(function, node, position, extra)}
        assert node.type.compute is not None
        values = node.type.compute(*[self._convert_source(node.inputs[name], ports) for name, _ in node.type.inputs])
        return {name: value for (name, _), value in zip(node.type.outputs, values, strict=True)}

    def _convert_constant(self, function: GraphFunction, node: GraphNode, extra: _ExtraParameters) -> Node:
        assert node.value is not None
        path = (function.id, node.identifier)
        if path not in self.parameter_paths:
            return literal_node(node.value, self.element)
        if path not in extra.parameters:
            type = VALUE_TYPES[node.type.name].ir_type(self.element)
            extra.parameters[path] = input_node(Key(node.identifier), type)
        return extra.parameters[path]

    def _prepare_call(
        self, callee: AnyFunction, node: GraphNode, ports: dict[Reference, Node], extra: _ExtraParameters
    ) -> tuple[Function, list[Node], int]:
        """The lowered callee, the arguments of a call, and how many of them are inputs of the callee."""
        converted, callee_extra = self.converted_functions[callee.id]
        inputs = [
            self._convert_source(node.inputs[name], ports)
            for name, type in callee.inputs.items()
            if type is not PortType.RESOURCE
        ]
        extra_arguments = [extra.parameters.setdefault(path, value) for path, value in callee_extra.parameters.items()]
        extra_arguments += [extra.tables.setdefault(key, value) for key, value in callee_extra.tables.items()]
        return converted, [*inputs, *extra_arguments], len(inputs)

    def _convert_call(
        self, function: GraphFunction, node: GraphNode, ports: dict[Reference, Node], extra: _ExtraParameters
    ) -> dict[str, Node]:
        callee = called_function(self.assembly, function, node)
        assert callee is not None
        converted, arguments, _ = self._prepare_call(callee, node, ports, extra)
        value = ops.call(*arguments, function=converted)
        if len(converted.results) == 1:
            return dict.fromkeys(callee.outputs, value)
        return {name: member(value, index) for index, name in enumerate(callee.outputs)}

    def _convert_gradient(
        self, function: GraphFunction, node: GraphNode, ports: dict[Reference, Node], extra: _ExtraParameters
    ) -> dict[str, Node]:
        if not self.exact:
            raise AssemblyError(
                f"node `{node.identifier}` of function `{function.name}` is a {node.type.name}",
                where=caller_origin(),
                help="lower it first with lower_function_gradient(assembly), or pass exact=True",
            )
        callee = called_function(self.assembly, function, node)
        assert callee is not None
        converted, arguments, _ = self._prepare_call(callee, node, ports, extra)
        inputs = [name for name, type in callee.inputs.items() if type is not PortType.RESOURCE]
        output = list(callee.outputs).index(str(node.scalar_output))
        scalar = Function(converted.name, converted.parameters, (converted.results[output],))
        position = inputs.index(str(node.vector_input))
        if node.type.name == "NormalizeDistance":
            return {"result": exact_normalized_distance(scalar, arguments, position)}
        normalized, gradient, magnitude = exact_gradient(scalar, arguments, position)
        return {"normalizedgradient": normalized, "gradient": gradient, "magnitude": magnitude}

    # --- tables -------------------------------------------------------------------------------------------------------

    def _add_table(self, resource_id: int, name: str, array: NDArray[np.generic], extra: _ExtraParameters) -> Node:
        key = (resource_id, name)
        if key not in self.arrays:
            self.arrays[key] = np.ascontiguousarray(array)
        if key not in extra.tables:
            type = Tensor(scalar_of_dtype(array.dtype), array.shape)
            extra.tables[key] = input_node(Key(name), type)
        return extra.tables[key]

    def _convert_distance(
        self, function: GraphFunction, node: GraphNode, position: Node, extra: _ExtraParameters
    ) -> Node:
        mesh_id = resource_id(function, node.inputs[MESH_TYPES[node.type.name]])
        assert mesh_id is not None
        resource = self.assembly.resources[mesh_id]
        if isinstance(resource, BeamLattice):
            beams = BeamTables.of(resource, self.element)
            return distance_call(
                beam_distance, position, [self._add_table(mesh_id, n, a, extra) for n, a in beams.arrays()]
            )
        assert isinstance(resource, TriangleMesh)
        return self._convert_mesh_distance(mesh_id, resource, position, extra, signed=node.type.name == "Mesh")

    def _convert_mesh_distance(
        self, mesh_id: int, mesh: TriangleMesh, position: Node, extra: _ExtraParameters, *, signed: bool
    ) -> Node:
        key = (mesh_id, signed)
        if key not in self.mesh_tables:
            self.mesh_tables[key] = MeshTables.of(mesh, self.element, signed=signed)
        tables = self.mesh_tables[key]
        return distance_call(tables.rule, position, [self._add_table(mesh_id, n, a, extra) for n, a in tables.arrays])

    def _convert_image(self, function: ImageFunction, position: Node, extra: _ExtraParameters) -> list[Node]:
        stack = self.assembly.resources.get(function.image)
        if not isinstance(stack, ImageStack):
            raise AssemblyError(f"function `{function.name}` samples image {function.image}, which does not exist")
        samples = stack.samples.astype(self.element.dtype)
        return sample_image(function, position, self._add_table(function.image, "samples", samples, extra))


def literal_node(value: Literal, element: Scalar) -> Node:
    """Converts a literal to a constant of the value IR."""
    if not isinstance(value, tuple):
        return constant(float(value), element)
    members = [constant(component, element) for component in value]
    type = (PortType.VECTOR if len(members) == 3 else PortType.MATRIX).ir_type(element)
    return ops.make(*members, type=type)
