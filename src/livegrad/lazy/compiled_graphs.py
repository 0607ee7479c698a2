"""Caches compiled programs by graph structure, so graphs that differ only in data and numbers share code.

`lazy.execution` requests the program for a graph. The number of cached programs is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, Mark, SourceLocation
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant_op
from livegrad.ir.line_sites import SourceLocations, mark_locations, replace_locations, resolve_location
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Function, Node, attribute_key
from livegrad.ir.types import Scalar, Tensor, bf16
from livegrad.ir.walk import exchanged_functions
from livegrad.lazy.lazy_values import Array
from livegrad.ops.conversion import cast
from livegrad.runtime.cpu import compile_function
from livegrad.state import Owned, renew_lock_after_fork

_MAX_PROGRAMS = 512


Compile = Callable[[Function], Any]  # the compile function of a backend


class Program:
    """The compiled function of a graph; its parameters are the data of the graph."""

    __slots__ = ("_compiled", "_only_arrays", "kernels", "library_calls", "plan")

    def __init__(self, function: Function, compile: Compile) -> None:
        self._compiled = compile(function)
        types = (*function.parameter_types, *function.result_types)
        self._only_arrays = all(isinstance(type, Tensor | Scalar) for type in types)
        self.plan = self._compiled.plan()
        self.kernels, self.library_calls = self.plan.step_counts

    def run_on_device(self, arguments: Sequence[Any]) -> list[Any]:
        """Computes the results as arrays on the device. Arguments are host arrays, numbers or device arrays."""
        if self._only_arrays:
            return self.plan.run_on_device(arguments)
        results = self._compiled.on_device(*arguments)
        return list(results) if len(self._compiled.function.results) > 1 else [results]

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Computes the results on the host. Arguments are dense arrays and numbers of exactly the parameter types."""
        if self._only_arrays:
            return [np.asarray(result) for result in self.plan.run(arguments)]
        results = self._compiled(*arguments)
        return list(results) if len(self._compiled.function.results) > 1 else [results]


class _Programs:
    """The program caches of a session, keyed by graph structure."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")
        self.by_key: LruCache[tuple[Any, ...], Program] = LruCache(_MAX_PROGRAMS)
        self.small_graph_runners: LruCache[Any, Any] = LruCache(_MAX_PROGRAMS)  # see `small_graphs`
        # Keys of executed graphs, with integer constants treated as arguments.
        self.executed_keys: LruCache[tuple[Any, ...], bool] = LruCache(_MAX_PROGRAMS)


programs_of_session = Owned(_Programs)


def forget_programs() -> None:
    """Drops all programs from memory; their code may still be on disk."""
    programs = programs_of_session.current
    with programs.lock:
        programs.by_key.clear()
        programs.executed_keys.clear()
        programs.small_graph_runners.clear()


def find_program(
    order: Sequence[Node],
    values: Mapping[Node, Array],
    outputs: Sequence[Node],
    compile: Compile = compile_function,
) -> tuple[Program, Graph, bool]:
    """Finds or compiles the program for `wanted`; returns it with its graph, and whether it was compiled now.

    Integer constants are first compiled into the code, where they help most: divisors, shifts, bounds. A graph that
    recurs with different integers is counting something, so its next program takes the integers as arguments.
    """
    graph = _describe_graph(order, values, outputs, may_change)
    program = _get_program((compile, graph.key))
    if program is not None:
        return program, graph, False
    general = _describe_graph(order, values, outputs, _can_be_argument)
    if general.key != graph.key:
        programs = programs_of_session.current
        with programs.lock:
            integers_vary = general.key in programs.executed_keys
            programs.executed_keys.keep(general.key, True)
        if integers_vary:
            graph, program = general, _get_program((compile, general.key))
            if program is not None:
                return program, graph, False
    try:
        compiled = Program(replace_locations(make_function("tensors", graph.inputs, outputs), graph.marks), compile)
    except LivegradError as error:
        resolve_location(error, graph.source_locations)
        raise
    programs = programs_of_session.current
    with programs.lock:
        programs.by_key.keep((compile, graph.key), compiled)
    return compiled, graph, True


def find_cached_program(
    order: Sequence[Node], values: Mapping[Node, Array], outputs: Sequence[Node]
) -> tuple[Program, Graph] | None:
    """Returns the cached CPU program for a graph, and the graph; None if this structure has not run before."""
    for is_argument in (may_change, _can_be_argument):
        graph = _describe_graph(order, values, outputs, is_argument)
        program = _get_program((compile_function, graph.key))
        if program is not None:
            return program, graph
    return None


def _get_program(key: tuple[Any, ...]) -> Program | None:
    programs = programs_of_session.current
    with programs.lock:
        return programs.by_key.use(key)


@dataclass(frozen=True)
class Graph:
    """The structure of a graph as a cache key, and its arguments: data, and numbers that are likely to change."""

    key: tuple[Any, ...]
    inputs: list[Node]
    arguments: list[Any]
    marks: dict[SourceLocation | None, Mark]  # stand in for source locations: programs of several graphs share code

    @property
    def source_locations(self) -> SourceLocations:
        return tuple(self.marks)


def _describe_graph(
    order: Sequence[Node], values: Mapping[Node, Array], outputs: Sequence[Node], is_argument: Callable[[Node], bool]
) -> Graph:
    indices: dict[Node, int] = {}
    parts: list[Any] = []
    inputs: list[Node] = []
    arguments: list[Any] = []
    marks: dict[SourceLocation | None, Mark] = {}
    for node in order:
        indices[node] = len(indices)
        if node in values:
            inputs.append(node)
            arguments.append(values[node])
            parts.append(node.type)
        elif node.op is constant_op and is_argument(node):
            inputs.append(node)
            arguments.append(node.attribute("value"))
            parts.append(node.type)
        else:
            attributes, locations = _split_locations(node)
            for location in locations:
                marks.setdefault(location, Mark(len(marks)))
            mark_numbers = tuple([marks[location].number for location in locations])
            parts.append((node.op, attributes, mark_numbers, *[indices[operand] for operand in node.operands]))
    return Graph((tuple(parts), tuple(indices[node] for node in outputs)), inputs, arguments, marks)


def _split_locations(node: Node) -> tuple[Any, SourceLocations]:
    """Splits a node's attributes into a key without source locations, and the locations that its errors may report.

    Functions among the attributes are treated the same way.
    """
    # Every checked op counts: a division that cannot fail may fail once its divisor becomes an argument.
    node_locations: SourceLocations = (
        (node.origin,) if node.op.checked and (node.op is not cast or node.may_fail) else ()
    )
    attributes = node.attributes
    if not attributes:
        return (), node_locations
    for _, value in attributes:
        # Runs for every node of every executed graph; most tuples are shapes and axes.
        if value.__class__ is Function or (value.__class__ is tuple and value and value[0].__class__ is not int):
            break
    else:
        return attribute_key(attributes), node_locations
    marked = {function: mark_locations(function) for function in node.functions}
    if not any(locations for _, locations in marked.values()):
        return attribute_key(attributes), node_locations
    inner_locations = [location for _, locations in marked.values() for location in locations]
    without_locations = exchanged_functions(attributes, {function: plain for function, (plain, _) in marked.items()})
    return attribute_key(without_locations), (*node_locations, *inner_locations)


@lru_cache(maxsize=2048)
def may_change(node: Node) -> bool:
    """Whether a constant is likely a hot parameter, such as a step size or a time, and not part of a formula.

    Small integers and halves stay in the code, because the compiler simplifies squares, signs and zeros.
    """
    if node.type.kind != "float" or node.type is bf16:  # type: ignore[attr-defined]
        return False
    value: float = node.attribute("value")
    return not (abs(value) <= 16.0 and value * 2.0 == int(value * 2.0))


def _can_be_argument(node: Node) -> bool:
    """Whether a constant can be an argument: a float that may change, or an integer."""
    return node.type.kind in ("signed", "unsigned") or may_change(node)  # type: ignore[attr-defined]
