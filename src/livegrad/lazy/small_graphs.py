"""Executes small graphs whose structure ran before. In: a node. Out: its value, or None for the general way.

`execution` calls this first. A program that reads each result runs thousands of graphs of a few nodes over small
arrays: to claim, order and describe such a graph as `execution` does takes ten times as long as to compute it. Here one
walk gives a key, and the key the compiled program. Whatever is not plain (devices, tuples, checks that fail, values
that somebody else waits for, threads that compute the same) is left to the general way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError
from livegrad.ir.leaves import constant_op, input_op
from livegrad.ir.node import Node, attributes_key
from livegrad.ir.types import Scalar, Tensor, scalar_of, shape_of
from livegrad.ir.walk import toposort
from livegrad.lazy import lazy_values
from livegrad.lazy.compiled_graphs import Program, known_program, may_change, programs_of_session
from livegrad.lazy.counts import RepeatedRun
from livegrad.lazy.devices import DEFAULT_DEVICE, TRIVIAL, is_made_of_constants
from livegrad.lazy.layout import LAYOUT, lay_out
from livegrad.lazy.lazy_values import MOST_GENERATIONS, Array, Cell, Leaf, is_held, read_leaf, value_store
from livegrad.lazy.truncate_history import truncate_histories
from livegrad.ops.movement import broadcast, slice_
from livegrad.ops.placement import transfer

_MOST_NODES = 16
_MOST_BYTES = 1 << 16  # of one array: what larger ones hold must be let go of as soon as it can be
_MOST_DROPPED = 1000
# Of a node that one other node uses: the operands of that, the caller's variable, the parameter, and the argument of
# `getrefcount`. More of them tell that another graph may use the node. To be wrong here costs time and nothing else.
_OWN_REFERENCES = 4


@dataclass(frozen=True, slots=True)
class _Entry:
    """What runs the graphs of a structure."""

    program: Program | None  # None: NumPy lays the data out
    positions: tuple[int, ...] | None  # of the program's arguments among those of the graph; None: as they come
    fixed: tuple[Any, ...]  # constants that the program takes as arguments, counted after those of the graph
    costs: tuple[float, ...]  # of recomputing each value that is kept
    runs: RepeatedRun


class _NotSmall(Exception):
    """Ends the walk over a graph that the general path must run."""


class SmallGraph:
    """One walk over a graph: its structure as a key, the arguments, and the nodes whose values are kept."""

    __slots__ = (
        "arguments",
        "generation",
        "hits",
        "inputs",
        "kept",
        "key",
        "layout_only",
        "numbers",
        "parts",
        "shared",
        "stamp",
        "visited",
    )

    def __init__(self, root: Node) -> None:
        self.numbers: dict[Node, int] = {}
        self.parts: list[Any] = []
        self.inputs: list[Node] = []
        self.arguments: list[Any] = []
        self.kept: list[Node] = []  # in the order of the program's results
        self.generation, self.hits, self.visited, self.shared, self.layout_only = 0, 0, 0, False, True
        self.stamp = lazy_values.changes()
        self._visit(root)
        self.kept.append(root)
        self.key = (*self.parts, self.hits)

    def _visit(self, node: Node) -> None:
        """Describes a node that has no value yet, after its operands."""
        self.visited += 1
        if self.visited > _MOST_NODES:
            raise _NotSmall
        numbers, op = self.numbers, node.op
        part: list[Any] = [op, attributes_key(node.attributes) if node.attributes else None]
        for operand in node.operands:
            number = numbers.get(operand)
            if number is None:
                # Most operands are data or computed.
                array = self._value(operand) if operand.op is input_op or operand.cell is not None else None
                if array is None:
                    self._describe(operand)
                    number = numbers[operand]
                elif array.__class__ is np.ndarray and array.nbytes <= _MOST_BYTES:
                    number = numbers[operand] = len(numbers)
                    self.inputs.append(operand)
                    self.arguments.append(array)
                    self.parts.append(operand.type)
                else:
                    raise _NotSmall
            part.append(number)
        numbers[node] = len(numbers)
        if op not in LAYOUT:
            self.layout_only = False
        self.parts.append(tuple(part))

    def _describe(self, node: Node) -> None:
        """Describes an operand that has no value yet."""
        op = node.op
        if op is broadcast and node.operands[0].op is constant_op:
            self._add_number(node, node.operands[0])
        elif op is constant_op:
            raise _NotSmall
        elif is_held(node):
            if op in TRIVIAL:
                raise _NotSmall
            self._visit(node)
            self.kept.append(node)
            self.parts.append(True)
        elif op is slice_ and (whole := self._value(node.operands[0])) is not None:
            if whole.__class__ is not np.ndarray or whole.nbytes > _MOST_BYTES:
                raise _NotSmall
            part = slice_.evaluate(whole, **dict(node.attributes))  # type: ignore[misc]
            self.numbers[node] = len(self.numbers)
            self.inputs.append(node)
            self.arguments.append(np.ascontiguousarray(part).reshape(part.shape))
            self.parts.append(node.type)
        else:
            if getrefcount(node) > _OWN_REFERENCES:
                self.shared = True
            self._visit(node)

    def _value(self, node: Node) -> Any:
        """The value of a node; None if it has none."""
        if node.op is input_op:
            leaf = node.attributes[0][1]
            if leaf.__class__ is not Leaf or leaf.external:
                raise _NotSmall
            return read_leaf(leaf) if leaf.ancestors else leaf.array
        cell: Cell | None = node.cell
        if cell is None:
            return None
        if cell.value is None:
            if cell.pending is not None or cell.companions:
                raise _NotSmall
            return None
        if node.op in TRIVIAL and is_made_of_constants(node):
            return None  # it is made anew, as in the general way
        if cell.volatile or cell.device != DEFAULT_DEVICE or cell.stamp != self.stamp:
            raise _NotSmall
        if cell.generation > self.generation:
            self.generation = cell.generation
        self.hits += 1
        return cell.value

    def _add_number(self, node: Node, constant: Node) -> None:
        """A number that is spread over a shape: an argument if it may change, else a part of the structure."""
        numbers = self.numbers
        if constant in numbers or not may_change(constant):
            self.parts.append((node, numbers.get(constant)))
        else:
            numbers[constant] = len(numbers)
            self.inputs.append(constant)
            self.arguments.append(constant.attributes[1][1])
            self.parts.append((None, node.type))
        numbers[node] = len(numbers)
        self.layout_only = False

    def run(self, entry: _Entry) -> Sequence[Array]:
        """The values of the nodes that are kept."""
        if entry.program is None:
            results = lay_out(list(self.numbers), dict(zip(self.inputs, self.arguments, strict=True)), self.kept)
            assert results is not None
            return results
        if entry.positions is None:
            return entry.program.plan.run(self.arguments)
        arguments = [*self.arguments, *entry.fixed]
        return entry.program.plan.run([arguments[position] for position in entry.positions])

    def keep(self, entry: _Entry, results: Sequence[Array]) -> None:
        """Caches the values, and truncates a long history."""
        for node, value, cost in zip(self.kept, results, entry.costs, strict=True):
            cell: Cell | None = node.cell
            if cell is None:
                cell = node.cell = Cell()
            lazy_values.keep(cell, value, cost, volatile=False, stamp=self.stamp)
            cell.generation, cell.device = self.generation + 1, DEFAULT_DEVICE
        store = value_store.current
        if store.cached_bytes > store.budget or len(store.dropped) > _MOST_DROPPED:
            lazy_values.enforce_budget([self.kept[-1].cell])
        if self.generation and self.generation % MOST_GENERATIONS == 0:
            truncate_histories(self.kept, len(self.numbers))


def run_small_graph(root: Node) -> tuple[Array | None, SmallGraph | None]:
    """The value of a node if a graph of its structure ran before; else the graph, for `remember`.

    Neither if the graph is not small or not plain.
    """
    cell: Cell | None = root.cell
    if not root.operands or (cell is not None and (cell.value is not None or cell.pending or cell.companions)):
        return None, None
    with value_store.current.lock:
        try:
            graph = SmallGraph(root)
        except _NotSmall:
            return None, None
        entry = programs_of_session.current.of_small_graphs.get(graph.key)
        if entry is None:
            return None, graph
        if graph.shared and _others_wait(graph):
            return None, None
        try:
            results = graph.run(entry)
        except LivegradError:
            return None, None  # the general way says which line it was
        entry.runs.times += 1
        graph.keep(entry, results)
        return results[-1], None


def _others_wait(graph: SmallGraph) -> bool:
    """Whether a tensor outside of the graph has no value: it may need one that is computed here."""
    return any(holder._node not in graph.numbers for holder in lazy_values.waiting_holders())


def remember(graph: SmallGraph) -> None:
    """Keeps the program of a graph that was just executed in the general way, for the next one of its structure."""
    root = graph.kept[-1]
    known = {
        node: array for node, array in zip(graph.inputs, graph.arguments, strict=True) if node.op is not constant_op
    }
    order = toposort([root], stop=known.__contains__)
    if not all(_is_plain(node) for node in order):
        return
    each = {"executions": 1, "cache_hits": graph.hits}
    # What was cut out of data counts as computed.
    each["nodes_computed"] = len(order) - sum(node.op is not slice_ or _has_value(node) for node in known)
    costs = lazy_values.recomputation_costs(order, known, set(graph.kept))
    program, positions, fixed = None, None, ()
    if not graph.layout_only:
        wanted = [node for node in order if node in graph.kept]
        found = known_program(order, known, wanted) if wanted == graph.kept else None
        if found is None or not found[0].plan.only_kernels:
            return
        program, described = found
        places = {node: place for place, node in enumerate(graph.inputs)}
        others = [node for node in described.inputs if node not in places]
        fixed = tuple(node.attribute("value") for node in others)
        places.update((node, len(graph.inputs) + place) for place, node in enumerate(others))
        order_of_arguments = tuple(places[node] for node in described.inputs)
        positions = None if order_of_arguments == tuple(range(len(graph.inputs))) else order_of_arguments
        each |= {"kernels_run": program.kernels, "library_calls": program.library_calls, "programs_reused": 1}
    entry = _Entry(program, positions, fixed, tuple(costs[node] for node in graph.kept), RepeatedRun(each, each))
    programs = programs_of_session.current
    with programs.lock:
        programs.of_small_graphs.keep(graph.key, entry)


def _is_plain(node: Node) -> bool:
    if node.functions or node.op is transfer or not isinstance(node.type, Tensor | Scalar):
        return False
    scalar = scalar_of(node.type)
    assert scalar is not None
    return scalar.dtype.itemsize * prod(shape_of(node.type)) <= _MOST_BYTES  # type: ignore[arg-type]


def _has_value(node: Node) -> bool:
    return node.cell is not None and node.cell.value is not None
