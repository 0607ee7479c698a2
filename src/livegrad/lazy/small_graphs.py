"""Fast path for small graphs whose structure ran before: one walk computes a key, the key finds a native call.

`execution` tries this first. A program that reads each result runs thousands of graphs of a few nodes over small
arrays; claiming, ordering and describing such a graph takes ten times as long as computing it. Devices, tuples, failed
checks, and values that other tensors or threads wait for take the general path of `execution`.
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
from livegrad.lazy.devices import DEFAULT_DEVICE, TRIVIAL, is_broadcast_constant
from livegrad.lazy.eviction import enforce_budget, recomputation_costs
from livegrad.lazy.holders import is_held, waiting_holders
from livegrad.lazy.layout import LAYOUT_OPS, evaluate_layout, make_dense
from livegrad.lazy.lazy_values import MAX_GENERATIONS, NO_ANCESTORS, Array, Cell, Leaf, ValueStore, clock, value_store
from livegrad.lazy.truncate_history import truncate_history
from livegrad.ops.movement import broadcast, slice_
from livegrad.ops.placement import transfer
from livegrad.runtime.cpu.plan_entry import PlanEntry, make_plan_entry

_MAX_NODES = 16
_MAX_BYTES = 1 << 16  # of one array: memory of larger ones must be freed as early as possible
_MAX_DROPPED = 1000
# References to a node with one user: the operands of the user, the caller's variable, the parameter, and the argument
# of `getrefcount`. With more, another graph may use the node. A wrong guess costs only time.
_EXCLUSIVE_REFERENCES = 4


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs the graphs of one structure."""

    program: Program | None  # None: NumPy rearranges the data
    entry: PlanEntry | None  # the program as one native call, if it has one
    positions: tuple[int, ...] | None  # of the program's arguments among those of the graph; None: the same order
    constant_arguments: tuple[Any, ...]  # constants that the program takes as arguments, after those of the graph
    costs: tuple[float, ...]  # of recomputing each output
    runs: RepeatedRun
    kept_alive: tuple[Any, ...]  # types and constants whose ids are part of the key

    def run(self, graph: SmallGraph) -> Any:
        """Computes the outputs as read-only arrays: one array, or a list of several."""
        arguments = graph.arguments
        if self.positions is not None:
            arguments = [*arguments, *self.constant_arguments]
            arguments = [arguments[position] for position in self.positions]
        results = None if self.entry is None else self.entry(*arguments)
        if results is None:
            results = self._evaluate_layout(graph) if self.program is None else self.program.plan.run(arguments)
            for array in results:
                array.setflags(write=False)
            return results[0] if len(results) == 1 else results
        return results

    def _evaluate_layout(self, graph: SmallGraph) -> list[Array]:
        root = graph.outputs[-1]
        if len(graph.indices) == len(graph.inputs) + 1:
            op: Any = root.op
            data = dict(zip(graph.inputs, graph.arguments, strict=True))
            result = op.evaluate(*[data[operand] for operand in root.operands], **dict(root.attributes))
            return [make_dense(result, root)]
        results = evaluate_layout(
            list(graph.indices), dict(zip(graph.inputs, graph.arguments, strict=True)), graph.outputs
        )
        assert results is not None
        return results


class _NeedsGeneralPath(Exception):
    """Aborts the walk over a graph that must take the general path."""


class SmallGraph:
    """The result of a walk over a graph: its structure as a key, the arguments, and the nodes whose values to cache."""

    __slots__ = (
        "arguments",
        "constants",
        "generation",
        "hits",
        "indices",
        "inputs",
        "key",
        "key_parts",
        "outputs",
        "shared",
        "stamp",
        "visited",
    )

    def __init__(self, root: Node) -> None:
        self.indices: dict[Node, int] = {}
        self.key_parts: list[Any] = []  # types and constants are represented by their ids
        self.inputs: list[Node] = []
        self.arguments: list[Any] = []
        self.constants: list[Node] = []  # broadcast constants, which are part of the structure
        self.outputs: list[Node] = []  # in the order of the program's results
        self.generation, self.hits, self.visited, self.shared = 0, 0, 0, False
        self.stamp = clock.now
        self._visit(root)
        self.outputs.append(root)
        self.key_parts.append(self.hits)
        self.key = tuple(self.key_parts)

    def _visit(self, node: Node) -> None:
        """Adds a node without a value to the key, after its operands."""
        self.visited += 1
        if self.visited > _MAX_NODES:
            raise _NeedsGeneralPath
        indices, key_parts = self.indices, self.key_parts
        key_parts.append(node.op)
        if node.attributes:
            key_parts.append(attributes_key(node.attributes))
        for operand in node.operands:
            index = indices.get(operand)
            if index is not None:
                key_parts.append(~index)  # negative, because ids are positive
                continue
            array: Any = None
            if operand.op is input_op:
                leaf = operand.attributes[0][1]
                # Inlined from `_value` for the most frequent case.
                is_plain = leaf.__class__ is Leaf and leaf.ancestors is NO_ANCESTORS and not leaf.external
                array = leaf.array if is_plain else self._value(operand)
            elif operand.cell is not None:
                array = self._value(operand)
            if array is None:
                self._describe(operand)
            elif array.__class__ is np.ndarray and array.nbytes <= _MAX_BYTES:  # inlined from `_add_input`
                indices[operand] = len(indices)
                self.inputs.append(operand)
                self.arguments.append(array)
                key_parts.append(id(operand.type))
            else:
                raise _NeedsGeneralPath
        indices[node] = len(indices)
        key_parts.append(None)  # ends the operands: some ops take any number

    def _describe(self, node: Node) -> None:
        """Adds an operand node without a value to the key."""
        op = node.op
        if op is broadcast and node.operands[0].op is constant_op:
            self._add_broadcast_constant(node, node.operands[0])
        elif op is constant_op:
            raise _NeedsGeneralPath
        elif is_held(node):
            if op in TRIVIAL:
                raise _NeedsGeneralPath
            self._visit(node)
            self.outputs.append(node)
            self.key_parts.append(True)
        elif op is slice_ and (source_array := self._value(node.operands[0])) is not None:
            self._add_slice(node, source_array)
        else:
            if getrefcount(node) > _EXCLUSIVE_REFERENCES:
                self.shared = True
            self._visit(node)

    def _add_input(self, node: Any, array: Any) -> None:
        """Adds an operand with a value as an argument."""
        if array.__class__ is not np.ndarray or array.nbytes > _MAX_BYTES:
            raise _NeedsGeneralPath
        self.indices[node] = len(self.indices)
        self.inputs.append(node)
        self.arguments.append(array)
        self.key_parts.append(id(node.type))

    def _add_slice(self, node: Any, source_array: Any) -> None:
        """Evaluates a slice of available data and adds it as an argument."""
        if source_array.__class__ is not np.ndarray or source_array.nbytes > _MAX_BYTES:
            raise _NeedsGeneralPath
        part = slice_.evaluate(source_array, **dict(node.attributes))  # type: ignore[misc]
        self._add_input(node, np.ascontiguousarray(part).reshape(part.shape))

    def _value(self, node: Node) -> Any:
        """Returns the value of a node; None if it has none."""
        if node.op is input_op:
            leaf = node.attributes[0][1]
            if leaf.__class__ is not Leaf or leaf.external:
                raise _NeedsGeneralPath
            return lazy_values.read_leaf(leaf) if leaf.ancestors else leaf.array
        cell: Cell | None = node.cell
        if cell is None:
            return None
        if cell.value is None:
            if cell.claim is not None or cell.companions:
                raise _NeedsGeneralPath
            return None
        if node.op in TRIVIAL and is_broadcast_constant(node):
            return None  # recomputed, as on the general path
        if cell.volatile or cell.device != DEFAULT_DEVICE or cell.stamp != self.stamp:
            raise _NeedsGeneralPath
        if cell.generation > self.generation:
            self.generation = cell.generation
        self.hits += 1
        return cell.value

    def _add_broadcast_constant(self, node: Node, constant: Node) -> None:
        """Adds a broadcast number: as an argument if it may change, otherwise as part of the structure."""
        indices = self.indices
        index = indices.get(constant)
        if index is None and may_change(constant):
            indices[constant] = len(indices)
            self.inputs.append(constant)
            self.arguments.append(constant.attributes[1][1])
            self.key_parts.append((None, id(node.type)))
        else:
            self.key_parts.append((id(node), index))
        self.constants.append(node)
        indices[node] = len(indices)

    def cache_results(self, runner: _Runner, results: Any, store: ValueStore) -> None:
        """Caches the outputs, and truncates a long history."""
        generation, stamp = self.generation, self.stamp
        for node, value, cost in zip(
            self.outputs, results if results.__class__ is list else (results,), runner.costs, strict=True
        ):
            cell: Cell | None = node.cell
            if cell is None:
                cell = node.cell = Cell()
            # Inlined from `lazy_values.cache_value`, for an empty cell and a read-only array.
            cell.value, cell.store, cell.cost, cell.volatile, cell.stamp = value, store, cost, False, stamp
            cell.generation, cell.device = generation + 1, DEFAULT_DEVICE
            store.computed_cells[id(cell)] = ref(cell)
            store.cached_bytes += value.nbytes
        if store.cached_bytes > store.budget or len(store.dropped_sizes) > _MAX_DROPPED:
            enforce_budget([self.outputs[-1].cell])
        if generation and generation % MAX_GENERATIONS == 0:
            truncate_history(self.outputs, len(self.indices))


def run_small_graph(root: Node) -> tuple[Array | None, SmallGraph | None]:
    """Returns the value of a node if a graph of its structure ran before, otherwise the graph for `cache_runner`.

    Returns neither if the graph must take the general path.
    """
    cell: Cell | None = root.cell
    if not root.operands or (cell is not None and (cell.value is not None or cell.claim or cell.companions)):
        return None, None
    store = value_store.current
    with store.lock:
        try:
            graph = SmallGraph(root)
        except _NeedsGeneralPath:
            return None, None
        runner = programs_of_session.current.small_graph_runners.get(graph.key)
        if runner is None:
            return None, graph
        if graph.shared and _has_outside_waiters(graph):
            return None, None
        try:
            results = runner.run(graph)
        except LivegradError:
            return None, None  # the general path adds the source location to the error
        runner.runs.times += 1
        graph.cache_results(runner, results, store)
        return results[-1] if results.__class__ is list else results, None


def _has_outside_waiters(graph: SmallGraph) -> bool:
    """Whether a tensor outside the graph has no value: it may need a value that is computed here."""
    return any(holder._node not in graph.indices for holder in waiting_holders())


def cache_runner(graph: SmallGraph) -> None:
    """Caches a runner for a graph that the general path just executed, for later graphs of the same structure."""
    root = graph.outputs[-1]
    values = {
        node: array for node, array in zip(graph.inputs, graph.arguments, strict=True) if node.op is not constant_op
    }
    order = toposort([root], stop=values.__contains__)
    if not all(_is_plain(node) for node in order):
        return
    counts_per_run = {"executions": 1, "cache_hits": graph.hits}
    # Slices of data count as computed.
    counts_per_run["nodes_computed"] = len(order) - sum(node.op is not slice_ or _has_value(node) for node in values)
    costs = recomputation_costs(order, values, set(graph.outputs))
    program, entry, positions, constant_arguments = None, None, None, ()
    if graph.constants or not all(node in values or node.op in LAYOUT_OPS for node in order):
        ordered_outputs = [node for node in order if node in graph.outputs]
        cached = find_cached_program(order, values, ordered_outputs) if ordered_outputs == graph.outputs else None
        if cached is None or not cached[0].plan.only_kernels:
            return
        program, program_graph = cached
        entry = make_plan_entry(program.plan, frozen=True)
        slots = {node: slot for slot, node in enumerate(graph.inputs)}
        constants = [node for node in program_graph.inputs if node not in slots]
        constant_arguments = tuple(node.attribute("value") for node in constants)
        slots.update((node, len(graph.inputs) + slot) for slot, node in enumerate(constants))
        argument_slots = tuple(slots[node] for node in program_graph.inputs)
        positions = None if argument_slots == tuple(range(len(graph.inputs))) else argument_slots
        counts_per_run |= {"kernels_run": program.kernels, "library_calls": program.library_calls, "programs_reused": 1}
    output_costs = tuple(costs[node] for node in graph.outputs)
    kept_alive = (*[node.type for node in graph.inputs], *graph.constants)
    runs = RepeatedRun(counts_per_run, counts_per_run)
    runner = _Runner(program, entry, positions, constant_arguments, output_costs, runs, kept_alive)
    programs = programs_of_session.current
    with programs.lock:
        programs.small_graph_runners.keep(graph.key, runner)


def _is_plain(node: Node) -> bool:
    if node.functions or node.op is transfer or not isinstance(node.type, Tensor | Scalar):
        return False
    scalar = scalar_of(node.type)
    assert scalar is not None
    return scalar.dtype.itemsize * prod(shape_of(node.type)) <= _MAX_BYTES  # type: ignore[arg-type]


def _has_value(node: Node) -> bool:
    return node.cell is not None and node.cell.value is not None
