"""Validates node graphs: port types, links, and cycles of links and of calls.

`Assembly` validates each edit with these functions; `problems` lists all problems, for tools and file readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from livegrad.implicit.nodes.errors import Problem
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode
from livegrad.implicit.nodes.node_types import CALLING_TYPES, GRADIENT_TYPES, MESH_TYPES
from livegrad.implicit.nodes.ports import INPUTS, PortType, Reference, Source, type_of_literal
from livegrad.implicit.nodes.resources import BeamLattice, TriangleMesh

if TYPE_CHECKING:
    from livegrad.implicit.nodes.contents import AssemblyContents


def resource_id(function: GraphFunction, source: Source | None) -> int | None:
    """The resource id that an input gets from a literal or from a ResourceId node, or None."""
    if isinstance(source, int):
        return source
    if isinstance(source, Reference):
        constant = function.nodes.get(source.node)
        if constant is not None and constant.type.name == "ResourceId" and isinstance(constant.value, int):
            return constant.value
    return None


def called_function(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> AnyFunction | None:
    """The function that a calling node refers to, or None if there is no such function."""
    if node.type.name not in CALLING_TYPES:
        return None
    function_id = resource_id(function, node.inputs.get("functionID"))
    return None if function_id is None else assembly.functions.get(function_id)


def input_types(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> dict[str, PortType]:
    """The inputs of a node with their types. A calling node also has the inputs of its callee."""
    types: dict[str, PortType] = {}
    for name, type in node.type.inputs:
        port_type = type or node.kind
        if port_type is not None:
            types[name] = port_type
    callee = called_function(assembly, function, node)
    if callee is not None:
        types.update((name, type) for name, type in callee.inputs.items() if name not in types)
    return types


def output_types(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> dict[str, PortType]:
    """The outputs of a node with their types."""
    if node.type.name == "FunctionCall":
        callee = called_function(assembly, function, node)
        return {} if callee is None else dict(callee.outputs)
    return {name: port_type for name, type in node.type.outputs if (port_type := type or node.kind) is not None}


def source_type(assembly: AssemblyContents, function: GraphFunction, source: Source) -> PortType | str:
    """The type of an input's source, or a message that explains why the source is invalid."""
    if not isinstance(source, Reference):
        return type_of_literal(source)
    if source.node == INPUTS:
        input_type = function.inputs.get(source.port)
        return input_type or f"the function has no input `{source.port}`"
    node = function.nodes.get(source.node)
    if node is None:
        return f"there is no node `{source.node}`"
    if node.type.name == "FunctionCall" and called_function(assembly, function, node) is None:
        return f"node `{source.node}` calls a function that does not exist"
    type = output_types(assembly, function, node).get(source.port)
    return type or f"node `{source.node}` has no output `{source.port}`"


def link_problem(assembly: AssemblyContents, function: GraphFunction, source: Source, expected: PortType) -> str | None:
    """Explains why an input of type `expected` cannot be connected to `source`; None if it can."""
    actual = source_type(assembly, function, source)
    if isinstance(actual, str):
        return actual
    return None if actual is expected else f"a {actual.value} cannot be connected to a {expected.value}"


def depends_on(function: GraphFunction, start: str, target: str) -> bool:
    """Whether node `start` is node `target` or depends on it."""
    pending, visited = [start], set()
    while pending:
        identifier = pending.pop()
        if identifier == target:
            return True
        if identifier in visited or identifier not in function.nodes:
            continue
        visited.add(identifier)
        sources = function.nodes[identifier].inputs.values()
        pending.extend(source.node for source in sources if isinstance(source, Reference))
    return False


def node_order(function: GraphFunction) -> list[GraphNode] | None:
    """The nodes in a deterministic topological order; None if links form a cycle."""
    order: list[GraphNode] = []
    state: dict[str, bool] = {}  # False while the inputs of a node are visited, True when it is in the order
    for root in function.nodes:
        pending = [root]
        while pending:
            identifier = pending[-1]
            if state.get(identifier) or identifier not in function.nodes:
                pending.pop()
                continue
            node = function.nodes[identifier]
            sources = [source.node for source in node.inputs.values() if isinstance(source, Reference)]
            if identifier in state:
                state[identifier] = True
                order.append(node)
                pending.pop()
                continue
            state[identifier] = False
            unvisited = [name for name in sources if name in function.nodes and state.get(name) is not True]
            if any(name in state for name in unvisited):
                return None
            pending.extend(reversed(unvisited))
    return order


def callees(assembly: AssemblyContents, function: AnyFunction) -> Iterator[int]:
    """The ids of the functions that a function refers to, once per reference, even if they do not exist."""
    if isinstance(function, GraphFunction):
        for node in function.nodes.values():
            if node.type.name in CALLING_TYPES:
                callee = resource_id(function, node.inputs.get("functionID"))
                if callee is not None:
                    yield callee


def calls(assembly: AssemblyContents, start: int, target: int) -> bool:
    """Whether function `start` is function `target` or calls it, directly or indirectly."""
    pending, visited = [start], set()
    while pending:
        function_id = pending.pop()
        if function_id == target:
            return True
        function = assembly.functions.get(function_id)
        if function_id in visited or function is None:
            continue
        visited.add(function_id)
        pending.extend(callees(assembly, function))
    return False


def call_order(assembly: AssemblyContents, roots: list[int]) -> list[int] | None:
    """The roots and all their callees, callees before callers; None if calls form a cycle."""
    order: list[int] = []
    state: dict[int, bool] = {}
    pending = list(reversed(roots))
    while pending:
        function_id = pending[-1]
        if state.get(function_id) or function_id not in assembly.functions:
            pending.pop()
        elif function_id in state:
            state[function_id] = True
            order.append(function_id)
            pending.pop()
        else:
            state[function_id] = False
            pending_callees = [
                n for n in dict.fromkeys(callees(assembly, assembly.functions[function_id])) if not state.get(n)
            ]
            if any(n in state for n in pending_callees):
                return None
            pending.extend(reversed(pending_callees))
    return order


def problems(assembly: AssemblyContents) -> tuple[Problem, ...]:
    """All problems that prevent an assembly from running."""
    return (*problems_of(assembly, assembly.functions), *call_cycles(assembly))


def problems_of(assembly: AssemblyContents, functions: Mapping[int, AnyFunction]) -> Iterator[Problem]:
    """The problems inside functions, without call cycles."""
    for function in functions.values():
        if isinstance(function, GraphFunction):
            yield from function_problems(assembly, function)


def call_cycles(assembly: AssemblyContents) -> Iterator[Problem]:
    """One problem for each function that calls itself, directly or indirectly."""
    if call_order(assembly, list(assembly.functions)) is None:
        for function in assembly.functions.values():
            for callee in dict.fromkeys(callees(assembly, function)):
                if calls(assembly, callee, function.id):
                    yield Problem(function.name, None, f"it calls itself through function {callee}")


def function_problems(assembly: AssemblyContents, function: GraphFunction) -> Iterator[Problem]:
    """The problems inside one function."""
    for node in function.nodes.values():
        yield from node_problems(assembly, function, node)
    yield from _result_problems(assembly, function)
    if node_order(function) is None:
        yield Problem(function.name, None, "its links form a cycle")


def _result_problems(assembly: AssemblyContents, function: GraphFunction) -> Iterator[Problem]:
    for name, type in function.outputs.items():
        source = function.results.get(name)
        if source is None:
            yield Problem(function.name, None, f"output `{name}` is not connected", unfinished=True)
        elif message := link_problem(assembly, function, source, type):
            yield Problem(function.name, None, f"output `{name}`: {message}")


def node_problems(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> Iterator[Problem]:
    """The problems of one node."""

    def problem(message: str, *, unfinished: bool = False) -> Problem:
        return Problem(function.name, node.identifier, message, unfinished)

    types = input_types(assembly, function, node)
    calling = node.type.name in CALLING_TYPES
    if calling and "functionID" in node.inputs and called_function(assembly, function, node) is None:
        function_id = resource_id(function, node.inputs.get("functionID"))
        yield problem(_describe_missing_function(function_id), unfinished=function_id is None)
        return  # the ports of the callee are unknown
    for name, type in types.items():
        source = node.inputs.get(name)
        if source is None:
            if not has_default(node, name):
                yield problem(f"input `{name}` is not connected", unfinished=True)
        elif message := link_problem(assembly, function, source, type):
            yield problem(f"input `{name}`: {message}")
    for name in node.inputs:
        if name not in types:
            yield problem(f"it has no input `{name}`")
    if node.type.name in GRADIENT_TYPES:
        unfinished = node.scalar_output is None or node.vector_input is None
        yield from (problem(message, unfinished=unfinished) for message in gradient_problems(assembly, function, node))
    if node.type.name in MESH_TYPES:
        yield from map(problem, _mesh_problems(assembly, function, node))


def has_default(node: GraphNode, port: str) -> bool:
    """Whether an input may stay unconnected: only the step of a gradient node, which defaults to `DEFAULT_STEP`."""
    return port == "step" and node.type.name in GRADIENT_TYPES


def _describe_missing_function(function_id: int | None) -> str:
    if function_id is None:
        return "no function is chosen: `functionID` must be a literal or a link to a ResourceId node"
    return f"function {function_id} does not exist"


def gradient_problems(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> Iterator[str]:
    """The problems with the output and the input that a gradient node differentiates."""
    callee = called_function(assembly, function, node)
    if callee is None:
        return
    yield from _port_problem(callee.outputs, node.scalar_output, PortType.SCALAR, "output")
    yield from _port_problem(callee.inputs, node.vector_input, PortType.VECTOR, "input")


def _port_problem(ports: Mapping[str, PortType], name: str | None, type: PortType, role: str) -> Iterator[str]:
    if name is None:
        yield f"no {role} of the function is chosen"
    elif name not in ports:
        yield f"the function has no {role} `{name}`"
    elif ports[name] is not type:
        yield f"{role} `{name}` of the function is a {ports[name].value}, not a {type.value}"


def _mesh_problems(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> Iterator[str]:
    mesh_id = resource_id(function, node.inputs.get(MESH_TYPES[node.type.name]))
    resource_type = BeamLattice if node.type.name == "BeamLattice" else TriangleMesh
    if mesh_id is None or not isinstance(assembly.resources.get(mesh_id), resource_type):
        yield f"there is no {'beam lattice' if resource_type is BeamLattice else 'mesh'} with resource id {mesh_id}"
