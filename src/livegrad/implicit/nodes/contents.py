"""The data of an assembly and read access to it: functions and nodes by name, ports, problems.

`SignatureEdits` and `Assembly` derive from this class and add edits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.checks import called_function, input_types, output_types, problems
from livegrad.implicit.nodes.errors import AssemblyError, Problem
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode, ReadOnly, freeze_mapping
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import BuildItem, Document, Resource

FunctionName = int | str


@dataclass(frozen=True)
class AssemblyContents(ReadOnly):
    """Functions by resource id, the resources that they refer to, and the build items."""

    functions: Mapping[int, AnyFunction] = field(default_factory=dict)
    resources: Mapping[int, Resource] = field(default_factory=dict)
    items: tuple[BuildItem, ...] = ()
    document: Document = field(default_factory=Document)

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", freeze_mapping(self.functions))
        object.__setattr__(self, "resources", freeze_mapping(self.resources))

    def __repr__(self) -> str:
        names = [function.name for function in self.functions.values()]
        listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return f"<assembly: functions {listed or '(none)'}; {len(self.resources)} resources, {len(self.items)} items>"

    def with_function(self, function: AnyFunction) -> Self:
        """Adds or replaces a function without validation; `problems` lists the contradictions."""
        return replace(self, functions={**self.functions, function.id: function})

    def function(self, name: FunctionName) -> AnyFunction:
        """Returns a function by id or name."""
        if isinstance(name, int):
            by_id = self.functions.get(name)
            matches = [] if by_id is None else [by_id]
        else:
            matches = [function for function in self.functions.values() if function.name == name]
        if len(matches) != 1:
            available = ", ".join(f"{f.name} ({f.id})" for f in list(self.functions.values())[:20]) or "none"
            message = f"no function `{name}`" if not matches else f"{len(matches)} functions are named `{name}`"
            raise AssemblyError(message, where=caller_origin(), expected=f"one of {available}")
        return matches[0]

    def graph(self, name: FunctionName) -> GraphFunction:
        """Returns a node-graph function by id or name."""
        function = self.function(name)
        if not isinstance(function, GraphFunction):
            raise AssemblyError(f"function `{function.name}` samples an image and has no nodes", where=caller_origin())
        return function

    def node(self, function: FunctionName, identifier: str) -> GraphNode:
        """Returns a node of a function."""
        graph = self.graph(function)
        node = graph.nodes.get(identifier)
        if node is None:
            raise AssemblyError(
                f"function `{graph.name}` has no node `{identifier}`",
                where=caller_origin(),
                expected="one of " + (", ".join(list(graph.nodes)[:20]) or "none"),
            )
        return node

    def inputs_of(self, function: FunctionName, identifier: str) -> dict[str, PortType]:
        """Returns the inputs of a node with their types."""
        return input_types(self, self.graph(function), self.node(function, identifier))

    def outputs_of(self, function: FunctionName, identifier: str) -> dict[str, PortType]:
        """Returns the outputs of a node with their types."""
        return output_types(self, self.graph(function), self.node(function, identifier))

    def problems(self) -> tuple[Problem, ...]:
        """Lists everything that prevents the assembly from running."""
        return problems(self)

    def check(self) -> Self:
        """Returns the assembly, or raises an error that lists its problems."""
        problems = self.problems()
        if problems:
            summary = "; ".join(map(str, problems[:5])) + (
                f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            )
            raise AssemblyError(f"the assembly has problems: {summary}", where=caller_origin())
        return self

    def free_id(self) -> int:
        """Returns the resource id after the highest id in use."""
        return max([0, *self.functions, *self.resources]) + 1

    def called_by(self, function: FunctionName, identifier: str) -> AnyFunction | None:
        """Returns the function that a node calls, or None."""
        return called_function(self, self.graph(function), self.node(function, identifier))
