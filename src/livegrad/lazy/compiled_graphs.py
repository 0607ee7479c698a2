"""Compiled programs by graph structure: graphs that differ only in data and numbers share code.

`lazy.execution` requests the program of a graph. The number of cached programs is bounded.
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

_MOST_PROGRAMS = 512


Compile = Callable[[Function], Any]  # the compile function of a backend


class Program:
    """A compiled function of the data of a graph."""

    __slots__ = ("_compiled", "_plain", "kernels", "library_calls", "plan")

    def __init__(self, function: Function, compile: Compile) -> None:
        self._compiled = compile(function)
        types = (*function.parameter_types, *function.result_types)
        self._plain = all(isinstance(type, Tensor | Scalar) for type in types)
        self.plan = self._compiled.plan()
        self.kernels, self.library_calls = self.plan.step_counts

    def run_on_device(self, arguments: Sequence[Any]) -> list[Any]:
        """The results for the same kinds of arguments, or arrays of the device, as arrays that stay on it."""
        if self._plain:
            return self.plan.run_on_device(arguments)
        results = self._compiled.on_device(*arguments)
        return list(results) if len(self._compiled.function.results) > 1 else [results]

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The results for dense arrays and numbers of exactly the right types."""
        if self._plain:
            return [np.asarray(result) for result in self.plan.run(arguments)]
        results = self._compiled(*arguments)
        return list(results) if len(self._compiled.function.results) > 1 else [results]


class _Programs:
    """The programs of a session by the structure of their graphs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")
        self.by_key: LruCache[tuple[Any, ...], Program] = LruCache(_MOST_PROGRAMS)
        self.of_small_graphs: LruCache[Any, Any] = LruCache(_MOST_PROGRAMS)  # see `small_graphs`
        # Keys of graphs that ran, without their whole numbers.
        self.executed: LruCache[tuple[Any, ...], bool] = LruCache(_MOST_PROGRAMS)


programs_of_session = Owned(_Programs)


def forget_programs() -> None:
    """Drops all programs from memory; their code may still be on disk."""
    programs = programs_of_session.current
    with programs.lock:
        programs.by_key.clear()
        programs.executed.clear()
        programs.of_small_graphs.clear()


def find_program(
    order: Sequence[Node],
    values: Mapping[Node, Array],
    wanted: Sequence[Node],
    compile: Compile = compile_function,
) -> tuple[Program, Graph, bool]:
    """Finds or compiles the program for `wanted`; returns it with its graph, and whether it was compiled now.

    Whole numbers are part of the code, where they are worth much: divisors, shifts, bounds. A graph that comes again
    with other whole numbers is counting something: the program that is made then takes them as arguments.
    """
    graph = _describe(order, values, wanted, may_change)
    program = _look_up((compile, graph.key))
    if program is not None:
        return program, graph, False
    general = _describe(order, values, wanted, _is_number)
    if general.key != graph.key:
        programs = programs_of_session.current
        with programs.lock:
            counts = general.key in programs.executed
            programs.executed.keep(general.key, True)
        if counts:
            graph, program = general, _look_up((compile, general.key))
            if program is not None:
                return program, graph, False
    try:
        compiled = Program(replace_locations(make_function("tensors", graph.inputs, wanted), graph.marks), compile)
    except LivegradError as error:
        resolve_location(error, graph.source_locations)
        raise
    programs = programs_of_session.current
    with programs.lock:
        programs.by_key.keep((compile, graph.key), compiled)
    return compiled, graph, True


def find_cached_program(
    order: Sequence[Node], values: Mapping[Node, Array], wanted: Sequence[Node]
) -> tuple[Program, Graph] | None:
    """The cached CPU program for a graph, with the graph; None if this structure has not run before."""
    for is_argument in (may_change, _is_number):
        graph = _describe(order, values, wanted, is_argument)
        program = _look_up((compile_function, graph.key))
        if program is not None:
            return program, graph
    return None


def _look_up(key: tuple[Any, ...]) -> Program | None:
    programs = programs_of_session.current
    with programs.lock:
        return programs.by_key.use(key)


@dataclass(frozen=True)
class Graph:
    """A graph's structure as a key, and its arguments: data, and numbers that are likely to change."""

    key: tuple[Any, ...]
    inputs: list[Node]
    arguments: list[Any]
    marks: dict[SourceLocation | None, Mark]  # for the lines that its nodes may blame: the program has the marks

    @property
    def source_locations(self) -> SourceLocations:
        return tuple(self.marks)


def _describe(
    order: Sequence[Node], values: Mapping[Node, Array], wanted: Sequence[Node], is_argument: Callable[[Node], bool]
) -> Graph:
    numbers: dict[Node, int] = {}
    parts: list[Any] = []
    inputs: list[Node] = []
    arguments: list[Any] = []
    marks: dict[SourceLocation | None, Mark] = {}
    for node in order:
        numbers[node] = len(numbers)
        if node in values:
            inputs.append(node)
            arguments.append(values[node])
            parts.append(node.type)
        elif node.op is constant_op and is_argument(node):
            inputs.append(node)
            arguments.append(node.attribute("value"))
            parts.append(node.type)
        else:
            attributes, lines = _attributes_and_lines(node)
            for line in lines:
                marks.setdefault(line, Mark(len(marks)))
            named = tuple([marks[line].number for line in lines])
            parts.append((node.op, attributes, named, *[numbers[operand] for operand in node.operands]))
    return Graph((tuple(parts), tuple(numbers[node] for node in wanted)), inputs, arguments, marks)


def _attributes_and_lines(node: Node) -> tuple[Any, SourceLocations]:
    """A node's attributes without the lines that it, and functions among them, may blame; and those lines.

    A division that cannot fail may do so when its divisor becomes an argument.
    """
    own: SourceLocations = (node.origin,) if node.op.checked and (node.op is not cast or node.may_fail) else ()
    attributes = node.attributes
    if not attributes:
        return (), own
    for _, value in attributes:
        # Asked for every node of every graph that runs; most tuples are shapes and axes.
        if value.__class__ is Function or (value.__class__ is tuple and value and value[0].__class__ is not int):
            break
    else:
        return attribute_key(attributes), own
    marked = {function: mark_locations(function) for function in node.functions}
    if not any(lines for _, lines in marked.values()):
        return attribute_key(attributes), own
    inner = [line for _, lines in marked.values() for line in lines]
    shared = exchanged_functions(attributes, {function: plain for function, (plain, _) in marked.items()})
    return attribute_key(shared), (*own, *inner)


@lru_cache(maxsize=2048)
def may_change(node: Node) -> bool:
    """Whether a number is likely a step size or a time, and not part of a formula.

    Small whole numbers and halves are worth knowing when code is made: squares, signs, zeros.
    """
    if node.type.kind != "float" or node.type is bf16:  # type: ignore[attr-defined]
        return False
    value: float = node.attribute("value")
    return not (abs(value) <= 16.0 and value * 2.0 == int(value * 2.0))


def _is_number(node: Node) -> bool:
    """Whether a constant can be an argument: a float that may change, or a whole number."""
    return node.type.kind in ("signed", "unsigned") or may_change(node)  # type: ignore[attr-defined]
