"""Dead-code elimination: removes functions, outputs and nodes that the build, or given outputs, do not need.

Conversion to the value IR starts with it, so unused nodes may be unfinished. `blocking_problems` validates the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.checks import call_cycles, call_order, problems_of, resource_id
from livegrad.implicit.nodes.contents import AssemblyContents
from livegrad.implicit.nodes.errors import AssemblyError, Problem
from livegrad.implicit.nodes.node_graph import GraphFunction
from livegrad.implicit.nodes.node_types import CALLING_TYPES, GRADIENT_TYPES
from livegrad.implicit.nodes.ports import Reference
from livegrad.implicit.nodes.resources import Components, LevelSet, TriangleMesh, VolumeData

Outputs = Mapping[int, Iterable[str]]  # by function id
AnyAssembly = TypeVar("AnyAssembly", bound=AssemblyContents)


def outputs_of_build(assembly: AssemblyContents) -> dict[int, set[str]]:
    """The outputs of functions that the build items use."""
    outputs: dict[int, set[str]] = {}
    pending = [item.object for item in assembly.items]
    visited: set[int] = set()
    while pending:
        resource_id = pending.pop()
        if resource_id in visited:
            continue
        visited.add(resource_id)
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


def eliminate_dead_code(assembly: AnyAssembly, outputs: Outputs) -> AnyAssembly:
    """Removes the functions, outputs and nodes that `outputs` do not need. Constants of the other functions are kept.

    If calls form a cycle, the assembly is returned unchanged, and validation later reports the cycle.

    >>> from livegrad.implicit.nodes.assembly import Assembly
    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> shapes = add_expression(shapes, "slab", "abs(pos.x) - 1", {"pos": "vector"})
    >>> eliminate_dead_code(shapes, {1: ["shape"]})
    <assembly: functions ball; 0 resources, 0 items>
    """
    order = call_order(assembly, list(outputs))
    if order is None:
        return assembly
    needed_outputs = {function_id: set(names) for function_id, names in outputs.items()}
    reduced = {}
    for function_id in reversed(order):  # callers first: they determine the outputs that a callee needs
        if function_id not in needed_outputs:
            continue
        function = assembly.functions[function_id]
        if isinstance(function, GraphFunction):
            function = _reduce_function(function, needed_outputs[function_id])
            for callee, names in _used_outputs(function):
                needed_outputs.setdefault(callee, set()).update(names)
        reduced[function_id] = function
    return replace(
        assembly,
        functions={function_id: reduced[function_id] for function_id in assembly.functions if function_id in reduced},
    )


def _reduce_function(function: GraphFunction, outputs: set[str]) -> GraphFunction:
    """Removes all outputs but `outputs`, and the nodes that only the others need. Constants are kept."""
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


def _used_outputs(function: GraphFunction) -> Iterator[tuple[int, set[str]]]:
    """The callees of a function, each with the outputs that the call uses."""
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
    """Raises if a function does not have one of these outputs."""
    for function_id, names in outputs.items():
        function = assembly.functions.get(function_id)
        missing = [] if function is None else [name for name in names if name not in function.outputs]
        if function is not None and missing:
            raise AssemblyError(
                f"function `{function.name}` has no output `{missing[0]}`",
                where=caller_origin(),
                expected="one of " + ", ".join(function.outputs),
            )


def blocking_problems(assembly: AssemblyContents, outputs: Outputs | None = None) -> tuple[Problem, ...]:
    """The problems that prevent outputs, by default those of the build items, from running.

    These are contradictions anywhere and unfinished nodes that the outputs need. Unused functions, outputs and nodes
    may be unfinished.
    """
    reduced = eliminate_dead_code(assembly, outputs_of_build(assembly) if outputs is None else outputs)
    in_reduced = problems_of(assembly, reduced.functions)
    contradictions = [problem for problem in problems_of(assembly, assembly.functions) if not problem.unfinished]
    return tuple(dict.fromkeys((*in_reduced, *contradictions, *call_cycles(assembly))))
