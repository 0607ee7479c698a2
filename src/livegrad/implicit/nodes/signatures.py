"""Edits of function signatures: adds, removes, renames and retypes inputs and outputs, and updates callers.

`Assembly` derives from this class and adds edits of nodes and links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.checks import called_function
from livegrad.implicit.nodes.contents import AssemblyContents, FunctionName
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode
from livegrad.implicit.nodes.ports import INPUTS, OUTPUTS, PortType, Reference, Source
from livegrad.implicit.nodes.resources import LevelSet, Resource, VolumeChannel, VolumeData


class SignatureEdits(AssemblyContents):
    """The edits of an assembly that change inputs and outputs of functions."""

    def add_input(self, function: FunctionName, name: str, type: PortType | str, *, force: bool = False) -> Self:
        """Adds an input to a function. If the function has callers, pass `force`: their calls then lack an argument."""
        graph = self.graph(function)
        require_new(require_name(name, "an input"), graph.inputs, "input")
        return self.checked_signature(replace(graph, inputs={**graph.inputs, name: PortType(type)}), force)

    def add_output(self, function: FunctionName, name: str, type: PortType | str, source: Any = None) -> Self:
        """Adds an output to a function and connects it to `source`, if given."""
        graph = self.graph(function)
        require_new(require_name(name, "an output"), graph.outputs, "output")
        edited = self.with_function(replace(graph, outputs={**graph.outputs, name: PortType(type)}))
        return edited if source is None else edited.link(graph.id, source, f"{OUTPUTS}.{name}")  # type: ignore[attr-defined]

    def remove_input(self, function: FunctionName, name: str, *, force: bool = False) -> Self:
        """Removes an input of a function. If links use it, pass `force`."""
        graph = self.graph(function)
        require_existing(name, graph.inputs, "input")
        inputs = {port: type for port, type in graph.inputs.items() if port != name}
        return self.checked_signature(replace(graph, inputs=inputs), force)

    def remove_output(self, function: FunctionName, name: str, *, force: bool = False) -> Self:
        """Removes an output of a function. If links or callers use it, pass `force`."""
        graph = self.graph(function)
        require_existing(name, graph.outputs, "output")
        outputs = {port: type for port, type in graph.outputs.items() if port != name}
        results = {port: source for port, source in graph.results.items() if port != name}
        return self.checked_signature(replace(graph, outputs=outputs, results=results), force)

    def retype_input(self, function: FunctionName, name: str, type: PortType | str, *, force: bool = False) -> Self:
        """Changes the type of an input. If this breaks links of the function or of its callers, pass `force`."""
        graph = self.graph(function)
        require_existing(name, graph.inputs, "input")
        return self.checked_signature(replace(graph, inputs={**graph.inputs, name: PortType(type)}), force)

    def checked_signature(self, graph: GraphFunction, force: bool) -> Self:
        """Replaces a function. Unless `force`, raises if this causes new problems anywhere."""
        edited = self.with_function(graph)
        if not force:
            old_problems = set(self.problems())
            new_problems = [problem for problem in edited.problems() if problem not in old_problems]
            if new_problems:
                raise AssemblyError(
                    f"this would break: {new_problems[0]}",
                    where=caller_origin(),
                    help="change that first, or pass force=True",
                )
        return edited

    def retype_output(self, function: FunctionName, name: str, type: PortType | str, *, force: bool = False) -> Self:
        """Changes the type of an output. If this breaks links of the function or of its callers, pass `force`."""
        graph = self.graph(function)
        require_existing(name, graph.outputs, "output")
        return self.checked_signature(replace(graph, outputs={**graph.outputs, name: PortType(type)}), force)

    def rename_input(self, function: FunctionName, name: str, new_name: str) -> Self:
        """Renames an input of a function, and updates the links in the function and in its callers."""
        graph = self.graph(function)
        require_existing(name, graph.inputs, "input")
        require_new(require_name(new_name, "an input"), graph.inputs, "input")
        names = {name: new_name}
        inputs = {names.get(port, port): type for port, type in graph.inputs.items()}
        renamed = _move_links(replace(graph, inputs=inputs), Reference(INPUTS, name), Reference(INPUTS, new_name))

        def update_call(node: GraphNode) -> GraphNode:
            inputs_by_new_name = {names.get(port, port): source for port, source in node.inputs.items()}
            vector_input = new_name if node.vector_input == name else node.vector_input
            return replace(node, inputs=inputs_by_new_name, vector_input=vector_input)

        return self._replace_with_callers(renamed, lambda caller, node: caller.with_node(update_call(node)))

    def rename_output(self, function: FunctionName, name: str, new_name: str) -> Self:
        """Renames an output of a function, and updates the links in its callers and the resources that use it."""
        graph = self.graph(function)
        require_existing(name, graph.outputs, "output")
        require_new(require_name(new_name, "an output"), graph.outputs, "output")
        names = {name: new_name}
        renamed = replace(
            graph,
            outputs={names.get(port, port): type for port, type in graph.outputs.items()},
            results={names.get(port, port): source for port, source in graph.results.items()},
        )

        def update_call(caller: GraphFunction, node: GraphNode) -> GraphFunction:
            if node.scalar_output == name:
                return caller.with_node(replace(node, scalar_output=new_name))
            if node.type.name != "FunctionCall":
                return caller
            return _move_links(caller, Reference(node.identifier, name), Reference(node.identifier, new_name))

        resources = {
            resource_id: _rename_channel(r, graph.id, name, new_name) for resource_id, r in self.resources.items()
        }
        return replace(self._replace_with_callers(renamed, update_call), resources=resources)

    def _replace_with_callers(
        self, graph: GraphFunction, rule: Callable[[GraphFunction, GraphNode], GraphFunction]
    ) -> Self:
        """Replaces a function, and applies `rule` to each node that calls it."""
        functions: dict[int, AnyFunction] = {}
        for function_id, function in self.functions.items():
            edited = graph if function_id == graph.id else function
            if isinstance(function, GraphFunction) and isinstance(edited, GraphFunction):
                for node in function.nodes.values():
                    callee = called_function(self, function, node) if "functionID" in node.inputs else None
                    if callee is not None and callee.id == graph.id:
                        edited = rule(edited, edited.nodes[node.identifier])
            functions[function_id] = edited
        return replace(self, functions=functions)


def _move_links(graph: GraphFunction, old: Reference, new: Reference) -> GraphFunction:
    """Reconnects all links that start at `old` to start at `new`."""

    def redirect(source: Source) -> Source:
        return new if source == old else source

    nodes = {
        name: replace(node, inputs={port: redirect(source) for port, source in node.inputs.items()})
        if old in node.inputs.values()
        else node
        for name, node in graph.nodes.items()
    }
    return replace(graph, nodes=nodes, results={port: redirect(source) for port, source in graph.results.items()})


def _rename_channel(resource: Resource, function: int, name: str, new_name: str) -> Resource:
    """Renames an output of a function in the level set or volume data that uses it."""

    def rename(owner: Any) -> Any:
        return replace(owner, channel=new_name) if (owner.function, owner.channel) == (function, name) else owner

    match resource:
        case LevelSet():
            return rename(resource)
        case VolumeData(channels=channels):
            edited: tuple[VolumeChannel, ...] = tuple(map(rename, channels))
            return replace(resource, channels=edited)
    return resource


def require_name(name: str, role: str) -> str:
    """Raises unless a name can be part of a reference `node.port`: no dots, no spaces."""
    if not isinstance(name, str) or not name or any(c == "." or c.isspace() or not c.isprintable() for c in name):
        raise AssemblyError(
            f"`{name}` is not a valid name for {role}", where=caller_origin(), expected="a name without dots and spaces"
        )
    return name


def require_new(name: str, existing: Mapping[str, Any], role: str) -> None:
    if name in existing:
        raise AssemblyError(f"{role} `{name}` already exists", where=caller_origin())


def require_existing(name: str, existing: Mapping[str, Any], role: str) -> None:
    if name not in existing:
        raise AssemblyError(
            f"the function has no {role} `{name}`",
            where=caller_origin(),
            expected="one of " + (", ".join(existing) or "none"),
        )
