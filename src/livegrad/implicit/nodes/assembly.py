"""`Assembly`: an immutable set of node-graph functions and their resources. Each edit is validated and returns a new
assembly.

Users, builders and file readers create it. `lower_function_gradient` rewrites it, and `to_ir` converts it to functions
of the value IR. To undo an edit, keep the old object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.checks import (
    called_function,
    callees,
    calls,
    depends_on,
    input_types,
    link_problem,
    source_type,
)
from livegrad.implicit.nodes.contents import FunctionName
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.node_graph import GraphFunction, GraphNode, ImageFunction
from livegrad.implicit.nodes.node_types import CALLING_TYPES, VALUE_TYPES, node_type
from livegrad.implicit.nodes.ports import (
    INPUTS,
    OUTPUTS,
    Literal,
    PortType,
    Reference,
    Source,
    literal_for,
    source_for,
)
from livegrad.implicit.nodes.resources import BeamLattice, BuildItem, Components, LevelSet, Resource, VolumeData
from livegrad.implicit.nodes.signatures import SignatureEdits, require_existing, require_name, require_new
from livegrad.ir.types import Scalar, f32


def _import_to_c() -> Any:
    """Imports the module that writes C. It imports this module, so it cannot be imported at the top."""
    return import_module("livegrad.implicit.nodes.to_c")


class Assembly(SignatureEdits):
    """An immutable set of functions, the resources they refer to, and the objects to build.

    Refer to a function by its id or, if that is unambiguous, by its name; and to a port by `node.port`, with `inputs`
    and `outputs` for the function's own ports.

    >>> empty = Assembly()
    >>> sphere = empty.add_function("sphere", {"pos": PortType.VECTOR}, {"shape": PortType.SCALAR})
    >>> sphere = sphere.add_node("sphere", "Length", "distance", A="inputs.pos")
    >>> sphere = sphere.add_node("sphere", "Subtraction", "offset", A="distance.result", B=1.0)
    >>> sphere = sphere.link("sphere", "offset.result", "outputs.shape")
    >>> sphere.problems(), len(empty.functions)
    ((), 0)
    """

    # --- functions and resources --------------------------------------------------------------------------------------

    def add_function(
        self,
        name: str,
        inputs: Mapping[str, PortType | str] | None = None,
        outputs: Mapping[str, PortType | str] | None = None,
        *,
        id: int | None = None,
        managed: bool = False,
    ) -> Assembly:
        """Adds a function without nodes. Port types may be names: "scalar", "vector", "matrix"."""
        function_id = self._allocate_id(id)
        for port in (*(inputs or {}), *(outputs or {})):
            require_name(port, "a port")
        input_types = {port: PortType(type) for port, type in (inputs or {}).items()}
        output_types = {port: PortType(type) for port, type in (outputs or {}).items()}
        return self.with_function(GraphFunction(function_id, name, input_types, output_types, managed=managed))

    def add_image_function(self, name: str, image: int, *, id: int | None = None, **settings: Any) -> Assembly:
        """Adds a function that samples an image stack. Settings are the fields of `ImageFunction`."""
        return self.with_function(ImageFunction(self._allocate_id(id), name, image, **settings))

    def remove_function(self, name: FunctionName, *, force: bool = False) -> Assembly:
        """Removes a function. If other functions call it, pass `force`; their calls then become problems."""
        function_id = self.function(name).id
        users = [f.name for f in self.functions.values() if f.id != function_id and function_id in callees(self, f)]
        if users and not force:
            raise AssemblyError(
                f"function `{self.functions[function_id].name}` is called by {', '.join(users[:5])}",
                where=caller_origin(),
                help="remove the calls first, or pass force=True",
            )
        return replace(self, functions={id: f for id, f in self.functions.items() if id != function_id})

    def rename_function(self, name: FunctionName, new_name: str) -> Assembly:
        """Renames a function. Its id, which calls refer to, does not change."""
        return self.with_function(replace(self.function(name), name=new_name))

    def add_resource(self, resource: Resource, *, id: int | None = None) -> Assembly:
        """Adds a mesh, lattice, image stack, level set or volume data under a new id."""
        return replace(self, resources={**self.resources, self._allocate_id(id): resource})

    def remove_resource(self, number: int, *, force: bool = False) -> Assembly:
        """Removes a resource and the build items that use it. If other resources or functions use it, pass `force`."""
        if number not in self.resources:
            raise AssemblyError(f"no resource {number}", where=caller_origin())
        users = [
            str(other_id) for other_id, resource in self.resources.items() if number in _referenced_resources(resource)
        ]
        edited = replace(
            self,
            resources={other_id: resource for other_id, resource in self.resources.items() if other_id != number},
            items=tuple(item for item in self.items if item.object != number),
        )
        old_problems = set(self.problems())
        users += [problem.function for problem in edited.problems() if problem not in old_problems]
        if users and not force:
            raise AssemblyError(
                f"resource {number} is used by {', '.join(users[:5])}",
                where=caller_origin(),
                help="remove those first, or pass force=True",
            )
        return edited

    def build(self, object: int, **settings: Any) -> Assembly:
        """Adds an object to the build. Settings are the fields of `BuildItem`."""
        if object not in self.resources:
            raise AssemblyError(f"no resource {object}", where=caller_origin())
        return replace(self, items=(*self.items, BuildItem(object, **settings)))

    def _allocate_id(self, id: int | None) -> int:
        if id is None:
            return self.free_id()
        new_id = int(literal_for(id, PortType.RESOURCE))  # type: ignore[arg-type]
        if new_id in self.functions or new_id in self.resources or new_id == 0:
            raise AssemblyError(f"resource id {new_id} is taken", where=caller_origin(), help="omit the id")
        return new_id

    # --- nodes --------------------------------------------------------------------------------------------------------

    def add_node(
        self,
        function: FunctionName,
        type: str,
        identifier: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        kind: PortType | str | None = None,
        value: Any = None,
        scalar_output: str | None = None,
        vector_input: str | None = None,
        display_name: str = "",
        tag: str = "",
        position: tuple[float, float] | None = None,
        **more_inputs: Any,
    ) -> Assembly:
        """Adds a node to a function.

        Connect inputs with `port="node.port"` or a literal, as keywords or in the mapping. For a node that accepts
        scalars, vectors and matrices, the default `kind` is that of the first input with a known type.
        """
        connected = {**(inputs or {}), **more_inputs}
        graph = self.graph(function)
        kind_of_node = node_type(type)
        name = graph.free_identifier(type) if identifier is None else require_name(identifier, "a node")
        require_new(name, graph.nodes, "node")
        if name in (INPUTS, OUTPUTS):
            raise AssemblyError(f"`{name}` is reserved for the ports of the function", where=caller_origin())
        if kind is not None:
            kind = PortType(kind)
        elif kind_of_node.kinds:
            kind = self._infer_kind(graph, connected)
        if bool(kind_of_node.kinds) != (kind is not None) or (kind_of_node.kinds and kind not in kind_of_node.kinds):
            raise AssemblyError(f"a {type} node cannot have the kind {kind}", where=caller_origin())
        node = GraphNode(
            name,
            kind_of_node,
            kind=kind,
            value=self._convert_value(type, value),
            scalar_output=scalar_output,
            vector_input=vector_input,
            display_name=display_name,
            tag=tag,
            position=position,
        )
        edited = self.with_function(graph.with_node(node))
        # The function to call comes first, because it determines the other inputs.
        for port in sorted(connected, key=lambda port: port != "functionID"):
            edited = edited.link(graph.id, connected[port], f"{name}.{port}")
        return edited

    def _infer_kind(self, graph: GraphFunction, inputs: Mapping[str, Any]) -> PortType:
        """The port type of the first input that has one; links come before literals."""
        for connected in sorted(inputs.values(), key=lambda connected: not isinstance(connected, str | Reference)):
            type = source_type(self, graph, source_for(connected, None))
            if isinstance(type, PortType):
                return type
        return PortType.SCALAR

    @staticmethod
    def _convert_value(type: str, value: Any) -> Literal | None:
        """The value of a constant node as a literal. Raises if the type does not take the value."""
        if type in VALUE_TYPES:
            if value is None:
                raise AssemblyError(f"a {type} node needs a value", where=caller_origin())
            return literal_for(value, VALUE_TYPES[type])
        if value is not None:
            raise AssemblyError(f"a {type} node does not take a value", where=caller_origin())
        return None

    def remove_node(self, function: FunctionName, identifier: str) -> Assembly:
        """Removes a node and all links that start at it."""
        graph = self.graph(function)
        self.node(function, identifier)
        nodes = {name: _without_source(node, identifier) for name, node in graph.nodes.items() if name != identifier}
        results = {port: source for port, source in graph.results.items() if not _is_from(source, identifier)}
        return self.with_function(replace(graph, nodes=nodes, results=results))

    def rename_node(self, function: FunctionName, identifier: str, new_identifier: str) -> Assembly:
        """Renames a node and updates the links that start at it."""
        graph = self.graph(function)
        node = self.node(function, identifier)
        require_new(require_name(new_identifier, "a node"), graph.nodes, "node")

        def redirect(source: Source) -> Source:
            return Reference(new_identifier, source.port) if _is_from(source, identifier) else source  # type: ignore[union-attr]

        nodes = {
            (new_identifier if name == identifier else name): replace(
                old_node, inputs={port: redirect(source) for port, source in old_node.inputs.items()}
            )
            for name, old_node in graph.nodes.items()
        }
        nodes[new_identifier] = replace(nodes[new_identifier], identifier=new_identifier, type=node.type)
        results = {port: redirect(source) for port, source in graph.results.items()}
        return self.with_function(replace(graph, nodes=nodes, results=results))

    def retype_node(self, function: FunctionName, identifier: str, kind: PortType | str) -> Assembly:
        """Changes the kind of value that a node works on. Remove links that no longer fit first."""
        node, kind = self.node(function, identifier), PortType(kind)
        if kind not in node.type.kinds:
            raise AssemblyError(f"a {node.type.name} node cannot have the kind {kind.value}", where=caller_origin())
        graph = self.graph(function)
        return self.checked_signature(graph.with_node(replace(node, kind=kind)), force=False)

    def set_value(self, function: FunctionName, identifier: str, value: Any) -> Assembly:
        """Sets the value of a constant node."""
        node = self.node(function, identifier)
        changed = replace(node, value=self._convert_value(node.type.name, value))
        edited = self.with_function(self.graph(function).with_node(changed))
        if node.type.name == "ResourceId":
            edited._require_no_call_cycle(self.graph(function).id)
        return edited

    def describe_node(self, function: FunctionName, identifier: str, **attributes: Any) -> Assembly:
        """Sets `display_name`, `tag`, `position`, `scalar_output` or `vector_input` of a node."""
        allowed = {"display_name", "tag", "position", "scalar_output", "vector_input"}
        if not attributes.keys() <= allowed:
            raise AssemblyError("unknown node attribute", where=caller_origin(), expected=", ".join(sorted(allowed)))
        node = self.node(function, identifier)
        return self.with_function(self.graph(function).with_node(replace(node, **attributes)))

    # --- links --------------------------------------------------------------------------------------------------------

    def link(self, function: FunctionName, source: Any, target: str | Reference) -> Assembly:
        """Connects an input to an output (`node.port`) or to a literal.

        `target` is `node.port`, or `outputs.name` for an output of the function.
        """
        graph = self.graph(function)
        input_port = target if isinstance(target, Reference) else Reference.parse(target)
        expected = self._target_type(graph, input_port)
        input_source = source_for(source, expected)
        message = link_problem(self, graph, input_source, expected)
        if (
            message is None
            and isinstance(input_source, Reference)
            and depends_on(graph, input_source.node, input_port.node)
        ):
            message = f"node `{input_source.node}` depends on node `{input_port.node}`; the link would form a cycle"
        if message is not None:
            raise AssemblyError(
                f"cannot connect `{input_port}` of function `{graph.name}`: {message}",
                where=caller_origin(),
                found=str(source),
            )
        if input_port.node == OUTPUTS:
            return self.with_function(replace(graph, results={**graph.results, input_port.port: input_source}))
        edited = self.with_function(
            graph.with_node(graph.nodes[input_port.node].with_input(input_port.port, input_source))
        )
        if input_port.port == "functionID":
            edited._require_no_call_cycle(graph.id)
        return edited

    def _target_type(self, graph: GraphFunction, target: Reference) -> PortType:
        if target.node == OUTPUTS:
            require_existing(target.port, graph.outputs, "output")
            return graph.outputs[target.port]
        node = self.node(graph.id, target.node)
        types = input_types(self, graph, node)
        if target.port not in types:
            lacks_callee = node.type.name in CALLING_TYPES and called_function(self, graph, node) is None
            raise AssemblyError(
                f"node `{node.identifier}` of function `{graph.name}` has no input `{target.port}`",
                where=caller_origin(),
                expected="one of " + (", ".join(types) or "none"),
                help="connect `functionID` first" if lacks_callee else None,
            )
        return types[target.port]

    def unlink(self, function: FunctionName, target: str | Reference) -> Assembly:
        """Disconnects an input."""
        graph = self.graph(function)
        input_port = target if isinstance(target, Reference) else Reference.parse(target)
        self._target_type(graph, input_port)
        if input_port.node == OUTPUTS:
            return self.with_function(
                replace(graph, results={p: s for p, s in graph.results.items() if p != input_port.port})
            )
        return self.with_function(graph.with_node(graph.nodes[input_port.node].with_input(input_port.port, None)))

    def _require_no_call_cycle(self, function: int) -> None:
        for callee in callees(self, self.functions[function]):
            if calls(self, callee, function):
                raise AssemblyError(
                    f"function `{self.functions[function].name}` would call itself through function {callee}",
                    where=caller_origin(),
                )

    # --- rewriting ----------------------------------------------------------------------------------------------------

    def map_graphs(self, rule: Callable[[GraphFunction], GraphFunction]) -> Assembly:
        """Applies `rule` to each node-graph function, without validation."""
        return replace(
            self,
            functions={id: rule(f) if isinstance(f, GraphFunction) else f for id, f in self.functions.items()},
        )

    def to_opencl(self, name: FunctionName, *, exact: bool = False, element: Scalar = f32) -> str:
        """Returns a function and its callees as OpenCL C; see `livegrad.implicit.nodes.to_c.to_opencl`."""
        return _import_to_c().to_opencl(self, name, exact=exact, element=element)

    def to_cuda(self, name: FunctionName, *, exact: bool = False, element: Scalar = f32) -> str:
        """Returns a function and its callees as CUDA C; see `livegrad.implicit.nodes.to_c.to_cuda`."""
        return _import_to_c().to_cuda(self, name, exact=exact, element=element)


def require_assembly(assembly: Any) -> None:
    """Raises unless the argument is an assembly."""
    if not isinstance(assembly, Assembly):
        raise AssemblyError(
            "not an assembly",
            where=caller_origin(),
            expected="an Assembly",
            found=type(assembly).__name__,
            help="pass it as the first argument: lg.load_3mf(file) reads an assembly, "
            "lg.implicit.assembly_of_part(part) converts a part, lg.Assembly() is empty",
        )


def _referenced_resources(resource: Resource) -> set[int]:
    """The ids of the resources that a resource refers to."""
    match resource:
        case LevelSet(mesh=mesh, volume_data=volume):
            return {mesh} if volume is None else {mesh, volume}
        case Components(members=members):
            return {resource_id for resource_id, _ in members}
        case VolumeData(material_group=group):
            return set() if group is None else {group}
        case BeamLattice(clipping_mesh=clip, representation_mesh=representation):
            return {resource_id for resource_id in (clip, representation) if resource_id is not None}
    volume = getattr(resource, "volume_data", None)
    return set() if volume is None else {volume}


def _is_from(source: Source, identifier: str) -> bool:
    return isinstance(source, Reference) and source.node == identifier


def _without_source(node: GraphNode, identifier: str) -> GraphNode:
    if not any(_is_from(source, identifier) for source in node.inputs.values()):
        return node
    return replace(node, inputs={port: s for port, s in node.inputs.items() if not _is_from(s, identifier)})
