"""Reduces an assembly to the functions, outputs and nodes that its objects, or some outputs of functions, need.

Conversion to the value IR and its checks start here, so that unused nodes may be unfinished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.checks import call_cycles, call_order, own_problems, resource_id
from livegrad.implicit.nodes.contents import AssemblyContents
from livegrad.implicit.nodes.errors import AssemblyError, Problem
from livegrad.implicit.nodes.node_graph import GraphFunction
from livegrad.implicit.nodes.node_types import CALLING_TYPES, GRADIENT_TYPES
from livegrad.implicit.nodes.ports import Reference
from livegrad.implicit.nodes.resources import Components, LevelSet, TriangleMesh, VolumeData

Outputs = Mapping[int, Iterable[str]]  # by function id
AnyAssembly = TypeVar("AnyAssembly", bound=AssemblyContents)


def built_outputs(assembly: AssemblyContents) -> dict[int, set[str]]:
    """The function outputs that the build items use."""
    outputs: dict[int, set[str]] = {}
    pending = [item.object for item in assembly.items]
    seen: set[int] = set()
    while pending:
        resource_id = pending.pop()
        if resource_id in seen:
            continue
        seen.add(resource_id)
        match assembly.resources.get(resource_id):
            case Components(members=members):
                pending.extend(member for member, _ in members)
            case LevelSet(function=function, channel=channel, volume_data=volume):
                outputs.setdefault(function, set()).add(channel)
                pending.extend([] if volume is None else [volume])
            case TriangleMesh(volume_data=int() as volume):
                pending.append(volume)
            case VolumeData(channels=channels):
                for used_channel in channels:
                    outputs.setdefault(used_channel.function, set()).add(used_channel.channel)
    return outputs


def used_part(assembly: AnyAssembly, outputs: Outputs) -> AnyAssembly:
    """The assembly with only the functions, outputs and nodes that these outputs need; constants stay.

    Functions that call each other in a cycle are not reduced; they are rejected by name later.

    >>> from livegrad.implicit.nodes.assembly import Assembly
    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> made = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> made = add_expression(made, "slab", "abs(pos.x) - 1", {"pos": "vector"})
    >>> used_part(made, {1: ["shape"]})
    <assembly: functions ball; 0 resources, 0 items>
    """
    order = call_order(assembly, list(outputs))
    if order is None:
        return assembly
    wanted = {function_id: set(names) for function_id, names in outputs.items()}
    reduced = {}
    for function_id in reversed(order):  # callers first, so that all outputs read from a function are known
        if function_id not in wanted:
            continue
        function = assembly.functions[function_id]
        if isinstance(function, GraphFunction):
            function = _reduce_function(function, wanted[function_id])
            for callee, names in _outputs_read(function):
                wanted.setdefault(callee, set()).update(names)
        reduced[function_id] = function
    return replace(
        assembly,
        functions={function_id: reduced[function_id] for function_id in assembly.functions if function_id in reduced},
    )


def _reduce_function(function: GraphFunction, outputs: set[str]) -> GraphFunction:
    """The function with some of its outputs, the nodes that they need, and its constants."""
    results = {name: source for name, source in function.results.items() if name in outputs}
    pending = [source.node for source in results.values() if isinstance(source, Reference)]
    needed: set[str] = set()
    while pending:
        identifier = pending.pop()
        if identifier in needed or identifier not in function.nodes:
            continue
        needed.add(identifier)
        sources = function.nodes[identifier].inputs.values()
        pending.extend(source.node for source in sources if isinstance(source, Reference))
    return replace(
        function,
        outputs={name: type for name, type in function.outputs.items() if name in outputs},
        results=results,
        nodes={name: node for name, node in function.nodes.items() if name in needed or node.value is not None},
    )


def _outputs_read(function: GraphFunction) -> Iterator[tuple[int, set[str]]]:
    """The functions that a function calls, each with the outputs that it reads."""
    ports: dict[str, set[str]] = {}
    sources = [source for node in function.nodes.values() for source in node.inputs.values()]
    for source in (*sources, *function.results.values()):
        if isinstance(source, Reference):
            ports.setdefault(source.node, set()).add(source.port)
    for node in function.nodes.values():
        callee = resource_id(function, node.inputs.get("functionID")) if node.type.name in CALLING_TYPES else None
        if callee is not None:
            differentiated = {str(node.scalar_output)}
            yield callee, differentiated if node.type.name in GRADIENT_TYPES else ports.get(node.identifier, set())


def require_outputs(assembly: AssemblyContents, outputs: Outputs) -> None:
    """Raises if one of the functions lacks an output."""
    for function_id, names in outputs.items():
        function = assembly.functions.get(function_id)
        missing = [] if function is None else [name for name in names if name not in function.outputs]
        if function is not None and missing:
            raise AssemblyError(
                f"function `{function.name}` has no output `{missing[0]}`",
                where=caller_origin(),
                expected="one of " + ", ".join(function.outputs),
            )


def problems_in_the_way(assembly: AssemblyContents, outputs: Outputs | None = None) -> tuple[Problem, ...]:
    """The problems that prevent outputs (by default those of the build items) from running.

    These are contradictions anywhere, and unfinished nodes that the outputs need. Unused functions, outputs and nodes
    may be unfinished.
    """
    used = used_part(assembly, built_outputs(assembly) if outputs is None else outputs)
    ours = own_problems(assembly, used.functions)
    anywhere = [problem for problem in own_problems(assembly, assembly.functions) if not problem.unfinished]
    return tuple(dict.fromkeys((*ours, *anywhere, *call_cycles(assembly))))
