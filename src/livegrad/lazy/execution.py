"""Executes lazy nodes: compiles the nodes without values as one function, runs it, and caches the results.

`tensors` calls `execute`. Graphs of the same structure share one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.leaves import constant_op, input_op, parameter_op
from livegrad.ir.node import Node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tuple
from livegrad.ir.walk import toposort
from livegrad.lazy import lazy_values
from livegrad.lazy.counts import count
from livegrad.lazy.device_pieces import can_cross_pieces, split_into_pieces
from livegrad.lazy.devices import (
    DEFAULT_DEVICE,
    RESIDENT_DEVICES,
    RUNNERS,
    TRIVIAL,
    assign_devices,
    is_broadcast_constant,
)
from livegrad.lazy.eviction import enforce_budget, node_cost, recomputation_costs
from livegrad.lazy.holders import is_held, missing_companions, waiting_holders
from livegrad.lazy.layout import evaluate_layout, evaluate_slices
from livegrad.lazy.lazy_values import (
    MAX_GENERATIONS,
    Array,
    Cell,
    Claim,
    Value,
    cache_value,
    cached_value,
    leaf_of,
    read_leaf,
    value_store,
)
from livegrad.lazy.nan_checks import run_checked, watch
from livegrad.lazy.small_graphs import cache_runner, run_small_graph
from livegrad.lazy.truncate_history import truncate_history
from livegrad.ops.aggregate import get
from livegrad.ops.placement import transfer

# Larger graphs run piece by piece: the pieces of a repetitive graph share one program.
_MAX_NODES = 2_000
# In additions. A part of a graph with less work is not worth starting a thread for.
_MIN_THREAD_COST = 1e6

Progress = Callable[[int, int], None]  # nodes computed, total nodes


@dataclass
class _Work:
    """The work of one execution: nodes in order, available values, and the nodes whose values to cache."""

    roots: list[Node]
    stamp: int = 0
    order: list[Node] = field(default_factory=list)
    values: dict[Node, Value] = field(default_factory=dict)
    to_cache: set[Node] = field(default_factory=set)
    needed_later: set[Node] = field(default_factory=set)  # nodes with values that pending tensors use
    volatile: bool = False
    generation: int = 0
    claim: Claim = field(default_factory=Claim)


def execute(roots: Sequence[Node], progress: Progress | None = None) -> list[Value]:
    """Returns the values of these nodes, and computes those that are not cached.

    Intermediate values of nodes that the program holds are cached too. Values stay where they were computed: on the
    host, or on a device until they are read (`on_host`). The caller must hold the roots.
    """
    if len(roots) == 1 and progress is None:
        return [execute_node(roots[0])]
    return _execute_general(roots, progress)


def execute_node(root: Node) -> Value:
    """Returns the value of one node, and computes it if it is not cached."""
    if watch.active:
        return _execute_general([root], None)[0]
    value, graph = run_small_graph(root)
    if value is not None:
        return value
    values = _execute_general([root], None)
    if graph is not None:
        cache_runner(graph)
    return values[0]


def _execute_general(roots: Sequence[Node], progress: Progress | None) -> list[Value]:
    values = _cached_values(roots)
    if values is not None:
        return values
    while True:
        work = _Work(list(roots))
        try:
            with value_store.current.lock:
                claim_to_await = _claim_work(work)
            if claim_to_await is None:
                if work.to_cache:
                    _run(work, progress)
                return [work.values[root] for root in roots]
        finally:
            # Also after Ctrl-C during `_claim_work`: threads that wait for these values must not wait forever.
            _release_claim(work)
        claim_to_await.wait()  # another thread computes a value that this thread needs


def _cached_values(roots: Sequence[Node]) -> list[Value] | None:
    """Returns the values if all are cached, otherwise None.

    Results of compiled functions are read often, and claiming no work would take longer than a small function.
    """
    values: list[Value] = []
    hits = 0
    with value_store.current.lock:
        for root in roots:
            cell: Cell | None = root.cell
            if cell is not None and cell.companions:
                return None
            leaf = leaf_of(root)
            value = cached_value(root) if leaf is None else read_leaf(leaf)
            if value is None:
                return None
            hits += leaf is None
            values.append(value)
        if hits:
            count(cache_hits=hits)
    return values


def _release_claim(work: _Work) -> None:
    with value_store.current.lock:
        for node in work.to_cache:
            if node.cell is not None and node.cell.claim is work.claim:
                node.cell.claim = None
    work.claim.set()


def _claim_work(work: _Work) -> Claim | None:
    """Collects the work for the roots and claims it for this thread; or returns another thread's claim to wait for.

    A thread that has to wait claims nothing, so there are no deadlocks.
    """
    work.stamp = lazy_values.change_count()
    hits = 0
    visited: set[Node] = set()
    to_cache: set[Node] = set()
    roots = set(work.roots)
    pending: list[Node | None] = [node for root in work.roots for node in missing_companions(root)]
    pending += reversed(work.roots)
    while pending:
        node = pending.pop()
        if node is None:
            _add_node(pending.pop(), work, to_cache)  # type: ignore[arg-type]
            continue
        if node in visited:
            continue
        visited.add(node)
        cell = node.cell
        # Broadcast constants are recomputed: a cached copy would be moved to a device again and again.
        if cell is not None and not (is_broadcast_constant(node) and node not in roots):
            if cell.value is not None and (value := cached_value(node)) is not None:
                work.values[node] = value
                work.order.append(node)
                work.generation = max(work.generation, cell.generation)
                hits += 1
                continue
            if cell.claim is not None and cell.claim.must_be_awaited():
                return cell.claim
        if node.op is get:
            pending[:0] = _held_siblings(node)
        pending += (node, None)
        pending += [operand for operand in reversed(node.operands) if operand not in visited]
    to_cache.update(root for root in work.roots if root not in work.values)
    _cache_for_waiting_tensors(work, to_cache)
    work.to_cache = to_cache.difference(work.values)
    for node in work.to_cache:
        cell = lazy_values.cell_of(node)
        if cell.claim is None or not cell.claim.is_mine():
            cell.claim = work.claim
    if hits:
        count(cache_hits=hits)
    return None


def _add_node(node: Node, work: _Work, to_cache: set[Node]) -> None:
    """Adds a node after its operands, and marks it for caching if it is held."""
    work.order.append(node)
    if not node.operands:
        _add_leaf_value(node, work)
    if not is_held(node):
        return
    if node.op not in TRIVIAL or any(_will_be_dropped(operand, work.values, to_cache) for operand in node.operands):
        to_cache.add(node)


def _cache_for_waiting_tensors(work: _Work, to_cache: set[Node]) -> None:
    """Marks for caching the values that pending tensors depend on, so their computation starts from here.

    Otherwise a loop that builds its next step before it reads the last result would recompute all steps.
    """
    scheduled = set(work.order)

    def ends(node: Node) -> bool:
        return node in work.values or (node in scheduled and node.op not in TRIVIAL and can_cross_pieces(node))

    holders = waiting_holders(max(1000, len(scheduled)))
    waiting = [holder._node for holder in holders if holder._node not in scheduled]
    for node in lazy_values.reachable_nodes(waiting, ends, max(lazy_values.MAX_VISITED, 4 * len(scheduled)))[0]:
        if node in work.values:
            work.needed_later.add(node)
        elif node.operands and ends(node):
            to_cache.add(node)


def _will_be_dropped(node: Node, values: dict[Node, Value], to_cache: set[Node]) -> bool:
    """Whether a value will be dropped after the execution, so views of it must be cached instead."""
    while node not in values and node not in to_cache:
        if node.op not in TRIVIAL:
            return True
        if not node.operands:
            return False
        (node,) = node.operands
    return node in values and leaf_of(node) is None and not is_held(node)


def _held_siblings(node: Node) -> list[Node]:
    """Returns the held members of the same tuple that have no value: computing one member computes all."""
    (tuple_node,) = node.operands
    if not isinstance(tuple_node.type, Tuple):
        return []
    with originating_from(tuple_node.origins):
        siblings = [get(tuple_node, index=index) for index in range(len(tuple_node.type.elements))]
    return [sibling for sibling in siblings if is_held(sibling) and lazy_values.is_missing(sibling)]


def _add_leaf_value(node: Node, work: _Work) -> None:
    leaf = leaf_of(node)
    if leaf is not None:
        work.values[node] = read_leaf(leaf)
        work.volatile |= leaf.external
    elif node.op in (input_op, parameter_op):
        raise UsageError(
            "the value is not known while a function is being traced",
            where=caller_origin(),
            help="call livegrad functions instead of NumPy or `math` (lg.sin(x), not np.sin(x)), and lg.where, lg.cond "
            "or lg.while_loop instead of Python control flow; pass an argument whose value Python needs, such as a "
            "size or an axis, as static: lg.jit(f, static_argnums=...), or lg.static_field() in a data class",
        )


# --- running ---------------------------------------------------------------------------------------------------------


def _run(work: _Work, progress: Progress | None) -> None:
    count(executions=1)
    inputs = list(work.values)
    todo = [node for node in work.order if node not in work.values and node.op is not constant_op]
    devices = (
        assign_devices(work.order) if any(node.op is transfer or _is_off_host(node) for node in work.order) else {}
    )
    groups = [] if devices or len(work.roots) == 1 or watch.active else _independent_groups(todo)
    if len(groups) > 1:
        _run_in_parallel(work, groups)
    elif len(todo) <= _MAX_NODES and not devices:
        _run_piece(work, work.order, work.to_cache, DEFAULT_DEVICE)
        if progress is not None:
            progress(len(todo), len(todo))
    else:
        _run_pieces(work, todo, devices, progress)
    _drop_unheld_values(work, inputs)
    enforce_budget(root.cell for root in work.roots if root.cell is not None)


def _independent_groups(todo: list[Node]) -> list[list[Node]]:
    """Splits a graph into parts that share no work, if each is worth a thread; otherwise returns an empty list."""
    group_of: dict[Node, list[Node]] = {}
    for node in todo:
        if is_broadcast_constant(node):
            continue  # a broadcast constant is recomputed wherever it is used
        operand_groups = {id(group_of[o]): group_of[o] for o in node.operands if o in group_of}
        by_size = sorted(operand_groups.values(), key=len)
        group = by_size.pop() if by_size else []
        for smaller in by_size:
            group += smaller
            group_of.update(dict.fromkeys(smaller, group))
        group.append(node)
        group_of[node] = group
    groups = list({id(group): group for group in group_of.values()}.values())
    worthwhile = all(sum(node_cost(node) for node in group) >= _MIN_THREAD_COST for group in groups)
    return groups if worthwhile and all(len(group) <= _MAX_NODES for group in groups) else []


def _run_in_parallel(work: _Work, groups: list[list[Node]]) -> None:
    position = {node: index for index, node in enumerate(work.order)}
    with ThreadPoolExecutor(len(groups), thread_name_prefix="livegrad-group") as pool:
        orders = []
        for group in groups:
            needed = set(toposort(group, stop=work.values.__contains__))
            orders.append((sorted(needed, key=position.__getitem__), work.to_cache.intersection(group)))
        runs = [pool.submit(_run_piece, work, order, outputs, DEFAULT_DEVICE) for order, outputs in orders]
        for run in runs:
            run.result()
    remaining = [node for node in work.order if node in work.to_cache and node not in work.values]
    if remaining:
        _run_piece(work, toposort(remaining, stop=work.values.__contains__), set(remaining), DEFAULT_DEVICE)
    count(parallel_groups=len(groups))


def _is_off_host(node: Node) -> bool:
    if node.cell is not None and node.cell.device != DEFAULT_DEVICE:
        return True
    leaf = leaf_of(node) if node.op is input_op else None
    return leaf is not None and not isinstance(leaf.array, np.ndarray)


def _drop_unheld_values(work: _Work, inputs: list[Node]) -> None:
    """Drops values that only this execution needed, and truncates long histories."""
    with value_store.current.lock:
        for node in inputs:
            if (
                node not in work.needed_later
                and node.cell is not None
                and node.cell.value is not None
                and not is_held(node)
            ):
                lazy_values.drop_value(node.cell)
        # Only every few executions: a history that a gradient may need stays, and would be searched each time.
        if work.volatile or not work.generation or work.generation % MAX_GENERATIONS:
            return
        truncate_history(work.to_cache, len(work.order))


def _run_pieces(work: _Work, todo: list[Node], devices: dict[Node, str], progress: Progress | None) -> None:
    """Runs a graph piece by piece, each on one device, and drops values that no later piece needs."""
    pieces = split_into_pieces(todo, devices, _MAX_NODES)
    lasting = work.to_cache.union(work.roots)
    last_use = {o: index for index, piece in enumerate(pieces) for node in piece.order for o in node.operands}
    computed_count = 0
    for index, piece in enumerate(pieces):
        device = devices.get(piece.nodes[0], DEFAULT_DEVICE)
        inputs = piece.inputs()
        outputs = {
            n for n in piece.nodes if n in work.to_cache or (last_use.get(n, -1) > index and can_cross_pieces(n))
        }
        copied = [o for o in inputs if o.op is not constant_op and devices.get(o, DEFAULT_DEVICE) != device]
        # Copies from a device with its own memory are counted where they happen.
        host_copies = [o for o in copied if devices.get(o, DEFAULT_DEVICE) not in RESIDENT_DEVICES]
        _run_piece(work, [*inputs, *piece.order], outputs, device, mixed_devices=bool(devices))
        count(copies_between_devices=len(host_copies))
        for node in inputs:
            if last_use[node] == index and node not in lasting:
                work.values.pop(node, None)
        computed_count += len(piece.nodes)
        if progress is not None:
            progress(computed_count, len(todo))


def _copy_to_host(order: list[Node], work: _Work) -> dict[Node, Array]:
    """Returns the available values of some nodes on the host; device values are copied."""
    return {node: lazy_values.on_host(work.values[node]) for node in order if node in work.values}


def _run_piece(work: _Work, order: list[Node], outputs: set[Node], device: str, mixed_devices: bool = False) -> None:
    """Runs nodes on one device; with `mixed_devices`, some of their operands may be on another device."""
    ordered_outputs = [node for node in order if node in outputs]
    results: Sequence[Value] | None
    if device in RESIDENT_DEVICES and not watch.active:
        results = RUNNERS[device](order, work.values, ordered_outputs)
    else:
        on_host = device == DEFAULT_DEVICE and not mixed_devices
        values: dict[Node, Array] = work.values if on_host else _copy_to_host(order, work)  # type: ignore[assignment]
        results = (
            run_checked(order, values, ordered_outputs)
            if watch.active
            else evaluate_layout(order, values, ordered_outputs)
        )
        if results is None:
            results = RUNNERS[device](*evaluate_slices(order, values, ordered_outputs), ordered_outputs)
    costs = recomputation_costs(order, work.values, work.to_cache)
    with value_store.current.lock:
        count(nodes_computed=sum(node not in work.values for node in order))
        for node, value in zip(ordered_outputs, results, strict=True):
            work.values[node] = value
            if node in work.to_cache:
                cache_value(node.cell, value, costs[node], volatile=work.volatile, stamp=work.stamp)
                node.cell.generation, node.cell.device = work.generation + 1, device
