"""Executes small graphs whose structure ran before. In: a node. Out: its value, or None for the general way.

`execution` calls this first. A program that reads each result runs thousands of graphs of one or a few nodes over small
arrays: to claim, order and describe such a graph as `execution` does takes ten times as long as to compute it. Here one
walk gives a key, and the key what runs the graph: one native call. Whatever is not plain (devices, tuples, checks that
fail, values that somebody else waits for, threads that compute the same) is left to the general way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from sys import getrefcount
from typing import Any
from weakref import ref

import numpy as np

from livegrad.diagnostics import LivegradError
from livegrad.ir.leaves import constant_op, input_op
from livegrad.ir.node import Node, attributes_key
from livegrad.ir.types import Scalar, Tensor, scalar_of, shape_of
from livegrad.ir.walk import toposort
from livegrad.lazy import lazy_values
from livegrad.lazy.compiled_graphs import Program, find_cached_program, may_change, programs_of_session
from livegrad.lazy.counts import RepeatedRun
from livegrad.lazy.deferred_ops import DeferredOp, current_value, held_by, truncate_deferred
from livegrad.lazy.devices import DEFAULT_DEVICE, TRIVIAL, is_broadcast_constant
from livegrad.lazy.eviction import enforce_budget, recomputation_costs
from livegrad.lazy.holders import is_held, waiting_holders
from livegrad.lazy.layout import LAYOUT, dense_value, lay_out
from livegrad.lazy.lazy_values import MOST_GENERATIONS, NO_ANCESTORS, Array, Cell, Leaf, ValueStore, clock, value_store
from livegrad.lazy.truncate_history import truncate_history
from livegrad.ops.movement import broadcast, slice_
from livegrad.ops.placement import transfer
from livegrad.runtime.cpu.plan_entry import PlanEntry, make_plan_entry

_MOST_NODES = 16
_MOST_BYTES = 1 << 16  # of one array: what larger ones hold must be let go of as soon as it can be
_MOST_DROPPED = 1000
# Of a node that one other node uses: the operands of that, the caller's variable, the parameter, and the argument of
# `getrefcount`. More of them tell that another graph may use the node. To be wrong here costs time and nothing else.
_OWN_REFERENCES = 4


@dataclass(frozen=True, slots=True)
class _Runner:
    """What runs the graphs of a structure."""

    program: Program | None  # None: NumPy lays the data out
    entry: PlanEntry | None  # the program as one native call, if it has one
    positions: tuple[int, ...] | None  # of the program's arguments among those of the graph; None: as they come
    fixed: tuple[Any, ...]  # constants that the program takes as arguments, counted after those of the graph
    costs: tuple[float, ...]  # of recomputing each value that is kept
    runs: RepeatedRun
    named: tuple[Any, ...]  # types and constants that the key names by their ids: kept alive

    def run(self, graph: SmallGraph) -> Any:
        """The values of the nodes that are kept: an array, or a list of several. Nobody can write to them."""
        arguments = graph.arguments
        if self.positions is not None:
            arguments = [*arguments, *self.fixed]
            arguments = [arguments[position] for position in self.positions]
        results = None if self.entry is None else self.entry(*arguments)
        if results is None:
            results = self._lay_out(graph) if self.program is None else self.program.plan.run(arguments)
            for array in results:
                array.setflags(write=False)
            return results[0] if len(results) == 1 else results
        return results

    def _lay_out(self, graph: SmallGraph) -> list[Array]:
        root = graph.kept[-1]
        if len(graph.numbers) == len(graph.inputs) + 1:
            op: Any = root.op
            data = dict(zip(graph.inputs, graph.arguments, strict=True))
            laid_out = op.evaluate(*[data[operand] for operand in root.operands], **dict(root.attributes))
            return [dense_value(laid_out, root)]
        results = lay_out(list(graph.numbers), dict(zip(graph.inputs, graph.arguments, strict=True)), graph.kept)
        assert results is not None
        return results


class _NotSmall(Exception):
    """Ends the walk over a graph that the general path must run."""


class SmallGraph:
    """One walk over a graph: its structure as a key, the arguments, and the nodes whose values are kept."""

    __slots__ = (
        "arguments",
        "constants",
        "generation",
        "hits",
        "inputs",
        "is_deferred",
        "kept",
        "key",
        "numbers",
        "parts",
        "shared",
        "stamp",
        "visited",
    )

    def __init__(self, root: Any) -> None:
        self.is_deferred = root.__class__ is DeferredOp
        self.numbers: dict[Node, int] = {}
        self.parts: list[Any] = []  # of the key; types and constants are named by their ids
        self.inputs: list[Node] = []
        self.arguments: list[Any] = []
        self.constants: list[Node] = []  # that are parts of the structure
        self.kept: list[Node] = []  # in the order of the program's results
        self.generation, self.hits, self.visited, self.shared = 0, 0, 0, False
        self.stamp = clock.now
        self._visit(root)
        self.kept.append(root)
        self.parts.append(self.hits)
        self.key = tuple(self.parts)

    def _visit(self, node: Any) -> None:
        """Describes a node or deferred op that has no value yet, with its operands."""
        self.visited += 1
        if self.visited > _MOST_NODES:
            raise _NotSmall
        numbers, parts = self.numbers, self.parts
        parts.append(node.op)
        if node.attributes:
            parts.append(attributes_key(node.attributes))
        for operand in node.operands:
            number = numbers.get(operand)
            if number is not None:
                parts.append(~number)  # ids are positive
                continue
            array: Any = None
            if operand.__class__ is DeferredOp:
                array = operand.value
                if array is None:
                    self._describe_deferred(operand, node)
                    continue
                self._use_deferred(operand)
            elif operand.op is input_op:
                leaf = operand.attributes[0][1]
                # Most operands are data or computed.
                is_plain = leaf.__class__ is Leaf and leaf.ancestors is NO_ANCESTORS and not leaf.external
                array = leaf.array if is_plain else self._value(operand)
            elif operand.cell is not None:
                array = self._value(operand)
            if array is None:
                self._describe(operand)
            elif array.__class__ is np.ndarray and array.nbytes <= _MOST_BYTES:  # `_add_input`, written out
                numbers[operand] = len(numbers)
                self.inputs.append(operand)
                self.arguments.append(array)
                parts.append(id(operand.type))
            else:
                raise _NotSmall
        numbers[node] = len(numbers)
        parts.append(None)  # there are ops of any number of operands

    def _describe(self, node: Node) -> None:
        """Describes an operand that has no value yet."""
        op = node.op
        if op is broadcast and node.operands[0].op is constant_op:
            self._add_number(node, node.operands[0])
        elif op is constant_op or self.is_deferred:
            raise _NotSmall
        elif is_held(node):
            if op in TRIVIAL:
                raise _NotSmall
            self._visit(node)
            self.kept.append(node)
            self.parts.append(True)
        elif op is slice_ and (whole := self._value(node.operands[0])) is not None:
            self._add_cut(node, whole)
        else:
            if getrefcount(node) > _OWN_REFERENCES:
                self.shared = True
            self._visit(node)

    def _add_input(self, node: Any, array: Any) -> None:
        """An operand that is data, or is used as such."""
        if array.__class__ is not np.ndarray or array.nbytes > _MOST_BYTES:
            raise _NotSmall
        self.numbers[node] = len(self.numbers)
        self.inputs.append(node)
        self.arguments.append(array)
        self.parts.append(id(node.type))

    def _use_deferred(self, deferred: DeferredOp) -> None:
        """Counts a deferred op that is computed, as `_value` counts a node."""
        if deferred.stamp != self.stamp:
            raise _NotSmall
        if deferred.op is not None:  # else it has become data
            if deferred.generation > self.generation:
                self.generation = deferred.generation
            self.hits += 1

    def _describe_deferred(self, deferred: DeferredOp, user: Any) -> None:
        """`_describe` of a deferred op that has no value: its part of the key is that of its node.

        Its value is kept if a tensor stands for it, or another op needs it.
        """
        if deferred.node is not None:
            raise _NotSmall
        is_held = held_by(deferred) is not None
        references = getrefcount(deferred)
        is_kept = is_held or (
            references > _OWN_REFERENCES and references >= _OWN_REFERENCES + user.operands.count(deferred)
        )
        if is_held and deferred.op in TRIVIAL:  # laid out by itself, as the general way does it
            array, _ = compute_deferred(deferred)
            if array is None:
                raise _NotSmall
            self._use_deferred(deferred)
            self._add_input(deferred, array)
            return
        if deferred.op is slice_ and not is_kept:
            (source,) = deferred.operands
            if source.__class__ is DeferredOp:
                whole = source.value
                if whole is not None:
                    self._use_deferred(source)
            else:
                whole = self._value(source)
            if whole is not None:
                self._add_cut(deferred, whole)
                return
        self._visit(deferred)
        if is_kept:
            self.kept.append(deferred)  # type: ignore[arg-type]
            self.parts.append(True)

    def _add_cut(self, node: Any, whole: Any) -> None:
        """A slice of data is data itself."""
        if whole.__class__ is not np.ndarray or whole.nbytes > _MOST_BYTES:
            raise _NotSmall
        part = slice_.evaluate(whole, **dict(node.attributes))  # type: ignore[misc]
        self._add_input(node, np.ascontiguousarray(part).reshape(part.shape))

    def _value(self, node: Node) -> Any:
        """The value of a node; None if it has none."""
        if node.op is input_op:
            leaf = node.attributes[0][1]
            if leaf.__class__ is not Leaf or leaf.external:
                raise _NotSmall
            return lazy_values.read_leaf(leaf) if leaf.ancestors else leaf.array
        cell: Cell | None = node.cell
        if cell is None:
            return None
        if cell.value is None:
            if cell.pending is not None or cell.companions:
                raise _NotSmall
            return None
        if node.op in TRIVIAL and is_broadcast_constant(node):
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
        number = numbers.get(constant)
        if number is None and may_change(constant):
            numbers[constant] = len(numbers)
            self.inputs.append(constant)
            self.arguments.append(constant.attributes[1][1])
            self.parts.append((None, id(node.type)))
        else:
            self.parts.append((id(node), number))
        self.constants.append(node)
        numbers[node] = len(numbers)

    def keep(self, runner: _Runner, results: Any, store: ValueStore) -> None:
        """Caches the values, and truncates a long history."""
        generation, stamp = self.generation, self.stamp
        for node, value, cost in zip(
            self.kept, results if results.__class__ is list else (results,), runner.costs, strict=True
        ):
            cell: Cell | None = node.cell
            if cell is None:
                cell = node.cell = Cell()
            # `lazy_values.keep` in a cell without a value, of one that nobody can write to.
            cell.value, cell.store, cell.cost, cell.volatile, cell.stamp = value, store, cost, False, stamp
            cell.generation, cell.device = generation + 1, DEFAULT_DEVICE
            store.valued[id(cell)] = ref(cell)
            store.cached_bytes += value.nbytes
        if store.cached_bytes > store.budget or len(store.dropped) > _MOST_DROPPED:
            enforce_budget([self.kept[-1].cell])
        if generation and generation % MOST_GENERATIONS == 0:
            truncate_history(self.kept, len(self.numbers))


def run_small_graph(root: Node) -> tuple[Array | None, SmallGraph | None]:
    """The value of a node if a graph of its structure ran before; else the graph, for `remember`.

    Neither if the graph is not small or not plain.
    """
    cell: Cell | None = root.cell
    if not root.operands or (cell is not None and (cell.value is not None or cell.pending or cell.companions)):
        return None, None
    store = value_store.current
    with store.lock:
        try:
            graph = SmallGraph(root)
        except _NotSmall:
            return None, None
        runner = programs_of_session.current.of_small_graphs.get(graph.key)
        if runner is None:
            return None, graph
        if graph.shared and _others_wait(graph):
            return None, None
        try:
            results = runner.run(graph)
        except LivegradError:
            return None, None  # the general way says which line it was
        runner.runs.times += 1
        graph.keep(runner, results, store)
        return results[-1] if results.__class__ is list else results, None


def compute_deferred(root: DeferredOp) -> tuple[Array | None, SmallGraph | None]:
    """The value of a deferred op if a graph of its structure ran before; else the graph, whose nodes have to be made.

    Neither if the graph is not plain.
    """
    with value_store.current.lock:
        if root.value is not None or root.node is not None:
            return current_value(root), None
        try:
            graph = SmallGraph(root)
        except _NotSmall:
            return None, None
        runner = programs_of_session.current.of_small_graphs.get(graph.key)
        if runner is None:
            return None, graph
        try:
            results = runner.run(graph)
        except LivegradError:
            return None, None  # the general way says which line it was
        runner.runs.times += 1
        generation, stamp = graph.generation, graph.stamp
        for deferred, value in zip(graph.kept, results if results.__class__ is list else (results,), strict=True):
            deferred.generation, deferred.stamp = generation + 1, stamp  # type: ignore[attr-defined]
            deferred.value = value  # type: ignore[attr-defined]  # last: others look at it without the lock
            if generation and generation % MOST_GENERATIONS == 0:
                truncate_deferred(deferred)  # type: ignore[arg-type]
        return root.value, None


def _others_wait(graph: SmallGraph) -> bool:
    """Whether a tensor outside of the graph has no value: it may need one that is computed here."""
    return any(holder._node not in graph.numbers for holder in waiting_holders())


def remember(graph: SmallGraph) -> None:
    """Keeps the program of a graph that was just executed in the general way, for the next one of its structure."""
    root = graph.kept[-1]
    values = {
        node: array for node, array in zip(graph.inputs, graph.arguments, strict=True) if node.op is not constant_op
    }
    order = toposort([root], stop=values.__contains__)
    if not all(_is_plain(node) for node in order):
        return
    each = {"executions": 1, "cache_hits": graph.hits}
    # What was cut out of data counts as computed.
    each["nodes_computed"] = len(order) - sum(node.op is not slice_ or _has_value(node) for node in values)
    costs = recomputation_costs(order, values, set(graph.kept))
    program, entry, positions, fixed = None, None, None, ()
    if graph.constants or not all(node in values or node.op in LAYOUT for node in order):
        wanted = [node for node in order if node in graph.kept]
        found = find_cached_program(order, values, wanted) if wanted == graph.kept else None
        if found is None or not found[0].plan.only_kernels:
            return
        program, described = found
        entry = make_plan_entry(program.plan, frozen=True)
        slots = {node: slot for slot, node in enumerate(graph.inputs)}
        others = [node for node in described.inputs if node not in slots]
        fixed = tuple(node.attribute("value") for node in others)
        slots.update((node, len(graph.inputs) + slot) for slot, node in enumerate(others))
        order_of_arguments = tuple(slots[node] for node in described.inputs)
        positions = None if order_of_arguments == tuple(range(len(graph.inputs))) else order_of_arguments
        each |= {"kernels_run": program.kernels, "library_calls": program.library_calls, "programs_reused": 1}
    kept_costs, named = tuple(costs[node] for node in graph.kept), (*_types_of(graph.inputs), *graph.constants)
    runner = _Runner(program, entry, positions, fixed, kept_costs, RepeatedRun(each, each), named)
    programs = programs_of_session.current
    with programs.lock:
        programs.of_small_graphs.keep(graph.key, runner)


def _types_of(nodes: list[Node]) -> list[Any]:
    return [node.type for node in nodes]


def _is_plain(node: Node) -> bool:
    if node.functions or node.op is transfer or not isinstance(node.type, Tensor | Scalar):
        return False
    scalar = scalar_of(node.type)
    assert scalar is not None
    return scalar.dtype.itemsize * prod(shape_of(node.type)) <= _MOST_BYTES  # type: ignore[arg-type]


def _has_value(node: Node) -> bool:
    return node.cell is not None and node.cell.value is not None
