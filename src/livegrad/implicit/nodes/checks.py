"""Validates node graphs: ports and types, links, and cycles inside functions and among calls.

`Assembly` checks each edit with it; `problems` lists all problems, for tools and files.
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
    """The resource that an input names, by a literal or by a link to a ResourceId node; None where neither."""
    if isinstance(source, int):
        return source
    if isinstance(source, Reference):
        holder = function.nodes.get(source.node)
        if holder is not None and holder.type.name == "ResourceId" and isinstance(holder.value, int):
            return holder.value
    return None


def called_function(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> AnyFunction | None:
    """The function that a calling node refers to, or None when it names none that is there."""
    if node.type.name not in CALLING_TYPES:
        return None
    number = resource_id(function, node.inputs.get("functionID"))
    return None if number is None else assembly.functions.get(number)


def input_types(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> dict[str, PortType]:
    """The inputs of a node with their types; a calling node has those of the function too."""
    types: dict[str, PortType] = {}
    for name, type in node.type.inputs:
        own = type or node.kind
        if own is not None:
            types[name] = own
    called = called_function(assembly, function, node)
    if called is not None:
        types.update((name, type) for name, type in called.inputs.items() if name not in types)
    return types


def output_types(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> dict[str, PortType]:
    """Returns the outputs of a node with their types."""
    if node.type.name == "FunctionCall":
        called = called_function(assembly, function, node)
        return {} if called is None else dict(called.outputs)
    return {name: own for name, type in node.type.outputs if (own := type or node.kind) is not None}


def source_type(assembly: AssemblyContents, function: GraphFunction, source: Source) -> PortType | str:
    """The type of what an input is connected to, or a sentence that says what is wrong with it."""
    if not isinstance(source, Reference):
        return type_of_literal(source)
    if source.node == INPUTS:
        found = function.inputs.get(source.port)
        return found or f"the function has no input `{source.port}`"
    node = function.nodes.get(source.node)
    if node is None:
        return f"there is no node `{source.node}`"
    if node.type.name == "FunctionCall" and called_function(assembly, function, node) is None:
        return f"node `{source.node}` calls a function that does not exist"
    type = output_types(assembly, function, node).get(source.port)
    return type or f"node `{source.node}` has no output `{source.port}`"


def link_problem(assembly: AssemblyContents, function: GraphFunction, source: Source, expected: PortType) -> str | None:
    """What is wrong with connecting an input of this type to `source`, or None."""
    found = source_type(assembly, function, source)
    if isinstance(found, str):
        return found
    return None if found is expected else f"a {found.value} cannot go into a {expected.value}"


def depends_on(function: GraphFunction, start: str, target: str) -> bool:
    """Whether node `start` needs node `target`, itself included."""
    pending, seen = [start], set()
    while pending:
        identifier = pending.pop()
        if identifier == target:
            return True
        if identifier in seen or identifier not in function.nodes:
            continue
        seen.add(identifier)
        sources = function.nodes[identifier].inputs.values()
        pending.extend(source.node for source in sources if isinstance(source, Reference))
    return False


def node_order(function: GraphFunction) -> list[GraphNode] | None:
    """The nodes with every one after those it needs, in an order that depends on the graph alone; None for a cycle."""
    order: list[GraphNode] = []
    state: dict[str, bool] = {}  # False: its inputs are being visited, True: done
    for root in function.nodes:
        pending = [root]
        while pending:
            identifier = pending[-1]
            if state.get(identifier) or identifier not in function.nodes:
                pending.pop()
                continue
            node = function.nodes[identifier]
            needs = [source.node for source in node.inputs.values() if isinstance(source, Reference)]
            if identifier in state:
                state[identifier] = True
                order.append(node)
                pending.pop()
                continue
            state[identifier] = False
            waiting = [name for name in needs if name in function.nodes and state.get(name) is not True]
            if any(name in state for name in waiting):
                return None
            pending.extend(reversed(waiting))
    return order


def callees(assembly: AssemblyContents, function: AnyFunction) -> Iterator[int]:
    """The functions that a function refers to, as often as it does, whether they are there or not."""
    if isinstance(function, GraphFunction):
        for node in function.nodes.values():
            if node.type.name in CALLING_TYPES:
                number = resource_id(function, node.inputs.get("functionID"))
                if number is not None:
                    yield number


def calls(assembly: AssemblyContents, start: int, target: int) -> bool:
    """Whether function `start` calls function `target`, directly or through others; a function reaches itself."""
    pending, seen = [start], set()
    while pending:
        number = pending.pop()
        if number == target:
            return True
        function = assembly.functions.get(number)
        if number in seen or function is None:
            continue
        seen.add(number)
        pending.extend(callees(assembly, function))
    return False


def call_order(assembly: AssemblyContents, roots: list[int]) -> list[int] | None:
    """Functions that the roots need, callees first; None when calls form a cycle."""
    order: list[int] = []
    state: dict[int, bool] = {}
    pending = list(reversed(roots))
    while pending:
        number = pending[-1]
        if state.get(number) or number not in assembly.functions:
            pending.pop()
        elif number in state:
            state[number] = True
            order.append(number)
            pending.pop()
        else:
            state[number] = False
            needs = [n for n in dict.fromkeys(callees(assembly, assembly.functions[number])) if not state.get(n)]
            if any(n in state for n in needs):
                return None
            pending.extend(reversed(needs))
    return order


def problems(assembly: AssemblyContents) -> tuple[Problem, ...]:
    """Everything that keeps an assembly from running."""
    return (*own_problems(assembly, assembly.functions), *call_cycles(assembly))


def own_problems(assembly: AssemblyContents, functions: Mapping[int, AnyFunction]) -> Iterator[Problem]:
    """Everything that is wrong in some functions, each by itself."""
    for function in functions.values():
        if isinstance(function, GraphFunction):
            yield from function_problems(assembly, function)


def call_cycles(assembly: AssemblyContents) -> Iterator[Problem]:
    """The functions that call themselves, directly or through others."""
    if call_order(assembly, list(assembly.functions)) is None:
        for function in assembly.functions.values():
            for number in dict.fromkeys(callees(assembly, function)):
                if calls(assembly, number, function.id):
                    yield Problem(function.name, None, f"it calls itself through function {number}")


def function_problems(assembly: AssemblyContents, function: GraphFunction) -> Iterator[Problem]:
    """Everything that is wrong in one function by itself."""
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
    """Everything that is wrong with one node."""

    def problem(message: str, *, unfinished: bool = False) -> Problem:
        return Problem(function.name, node.identifier, message, unfinished)

    types = input_types(assembly, function, node)
    calling = node.type.name in CALLING_TYPES
    if calling and "functionID" in node.inputs and called_function(assembly, function, node) is None:
        number = resource_id(function, node.inputs.get("functionID"))
        yield problem(_missing_function(number), unfinished=number is None)
        return  # without the function its ports are not known
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
    """Whether an input may be left open: the step of a gradient, which is then `DEFAULT_STEP`."""
    return port == "step" and node.type.name in GRADIENT_TYPES


def _missing_function(number: int | None) -> str:
    if number is None:
        return "no function is chosen: `functionID` must be a number or come from a ResourceId node"
    return f"function {number} does not exist"


def gradient_problems(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> Iterator[str]:
    """What is wrong with the choice of output and input of a gradient node."""
    called = called_function(assembly, function, node)
    if called is None:
        return
    yield from _choice_problem(called.outputs, node.scalar_output, PortType.SCALAR, "output")
    yield from _choice_problem(called.inputs, node.vector_input, PortType.VECTOR, "input")


def _choice_problem(ports: Mapping[str, PortType], name: str | None, type: PortType, role: str) -> Iterator[str]:
    if name is None:
        yield f"no {role} of the function is chosen"
    elif name not in ports:
        yield f"the function has no {role} `{name}`"
    elif ports[name] is not type:
        yield f"{role} `{name}` of the function is a {ports[name].value}, not a {type.value}"


def _mesh_problems(assembly: AssemblyContents, function: GraphFunction, node: GraphNode) -> Iterator[str]:
    number = resource_id(function, node.inputs.get(MESH_TYPES[node.type.name]))
    wanted = BeamLattice if node.type.name == "BeamLattice" else TriangleMesh
    if number is None or not isinstance(assembly.resources.get(number), wanted):
        yield f"resource {number} is no {'beam lattice' if wanted is BeamLattice else 'mesh'} that is there"
