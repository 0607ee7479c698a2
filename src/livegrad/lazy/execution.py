"""Executes lazy nodes: missing values are compiled as one function, computed, and stored in memo slots.

`tensors` calls `execute`. Graphs of the same structure share one compiled program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.diagnostics import KernelCheckError, SourceLocation, UsageError, caller_origin
from livegrad.ir.bfloat16 import readable
from livegrad.ir.leaves import constant_op, input_op, parameter_op
from livegrad.ir.node import Node
from livegrad.ir.source_lines import distinguish_lines, originating_from
from livegrad.ir.types import Scalar, Tensor, Tuple
from livegrad.ir.walk import toposort
from livegrad.lazy import lazy_values
from livegrad.lazy.counts import count
from livegrad.lazy.device_pieces import can_be_handed_on, cut
from livegrad.lazy.devices import (
    DEFAULT_DEVICE,
    KEEPING_DEVICES,
    RUNNERS,
    TRIVIAL,
    assign_devices,
    is_broadcast_constant,
    run_by_node,
)
from livegrad.lazy.eviction import enforce_budget, node_cost, recomputation_costs
from livegrad.lazy.holders import is_held, missing_companions, waiting_holders
from livegrad.lazy.layout import cut_out, lay_out
from livegrad.lazy.lazy_values import (
    MOST_GENERATIONS,
    Array,
    Cell,
    Claim,
    Value,
    cached_value,
    keep,
    leaf_of,
    read_leaf,
    value_store,
)
from livegrad.lazy.small_graphs import remember, run_small_graph
from livegrad.lazy.truncate_history import truncate_history
from livegrad.ops.aggregate import get
from livegrad.ops.placement import transfer

# Graphs beyond this are run piece by piece: the pieces of a repetitive graph share one program.
_MOST_NODES = 2_000
# A part of a graph with less work than that many additions is not worth starting a thread for.
_WORTH_A_THREAD = 1e6

Progress = Callable[[int, int], None]  # nodes done, nodes in all


@dataclass
class _Work:
    """The work of an execution: nodes in order, known data, and nodes whose values are cached."""

    roots: list[Node]
    stamp: int = 0
    order: list[Node] = field(default_factory=list)
    values: dict[Node, Value] = field(default_factory=dict)
    kept: set[Node] = field(default_factory=set)
    lent: set[Node] = field(default_factory=set)  # known, and of use to tensors that wait
    volatile: bool = False
    generation: int = 0
    claim: Claim = field(default_factory=Claim)


def execute(roots: Sequence[Node], progress: Progress | None = None) -> list[Value]:
    """Returns the values of these nodes, computing those that are not cached. Intermediate values that the program
    holds are cached too.

    Values stay where they were computed: on the host, or on a device until they are read (`on_host`).

    The caller holds the roots.
    """
    if len(roots) == 1 and progress is None:
        return [execute_node(roots[0])]
    return _execute_in_general(roots, progress)


def execute_node(root: Node) -> Value:
    """`execute` of one node."""
    if watch.active:
        return _execute_in_general([root], None)[0]
    value, graph = run_small_graph(root)
    if value is not None:
        return value
    values = _execute_in_general([root], None)
    if graph is not None:
        remember(graph)
    return values[0]


def _execute_in_general(roots: Sequence[Node], progress: Progress | None) -> list[Value]:
    values = _cached_values(roots)
    if values is not None:
        return values
    while True:
        work = _Work(list(roots))
        try:
            with value_store.current.lock:
                other = _claim(work)
            if other is None:
                if work.kept:
                    _run(work, progress)
                return [work.values[root] for root in roots]
        finally:
            # Also after Ctrl-C in the middle of a claim: a thread that waits for these values must not wait for ever.
            _release(work)
        other.wait()  # another thread computes something that this one needs


def _cached_values(roots: Sequence[Node]) -> list[Value] | None:
    """The values of nodes when every one of them is known: results of compiled functions are asked for again and again,
    and a claim on nothing would take longer than a small function. Otherwise None."""
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


def _release(work: _Work) -> None:
    with value_store.current.lock:
        for node in work.kept:
            if node.cell is not None and node.cell.pending is work.claim:
                node.cell.pending = None
    work.claim.set()


def _claim(work: _Work) -> Claim | None:
    """Finds the work that is left for some roots and marks it as this thread's; or gives a claim to wait for.

    Nothing is claimed while something must be waited for, so that threads never wait for each other in a circle.
    """
    work.stamp = lazy_values.changes()
    hits = 0
    visited: set[Node] = set()
    kept: set[Node] = set()
    roots = set(work.roots)
    pending: list[Node | None] = [node for root in work.roots for node in missing_companions(root)]
    pending += reversed(work.roots)
    while pending:
        node = pending.pop()
        if node is None:
            _take(pending.pop(), work, kept)  # type: ignore[arg-type]
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
            if cell.pending is not None and cell.pending.must_be_awaited():
                return cell.pending
        if node.op is get:
            pending[:0] = _held_siblings(node)
        pending += (node, None)
        pending += [operand for operand in reversed(node.operands) if operand not in visited]
    kept.update(root for root in work.roots if root not in work.values)
    _keep_for_others(work, kept)
    work.kept = kept.difference(work.values)
    for node in work.kept:
        cell = lazy_values.cell_of(node)
        if cell.pending is None or not cell.pending.is_mine():
            cell.pending = work.claim
    if hits:
        count(cache_hits=hits)
    return None


def _take(node: Node, work: _Work, kept: set[Node]) -> None:
    """A node whose operands have been taken: to be computed or read, and kept if somebody holds it."""
    work.order.append(node)
    if not node.operands:
        _take_leaf(node, work)
    if not is_held(node):
        return
    if node.op not in TRIVIAL or any(_is_lost(operand, work.values, kept) for operand in node.operands):
        kept.add(node)


def _keep_for_others(work: _Work, kept: set[Node]) -> None:
    """Caches values that pending tensors depend on, so that their computation starts from here.

    Otherwise a loop that builds its next step before it reads the last result would recompute all steps.
    """
    ours = set(work.order)

    def ends(node: Node) -> bool:
        return node in work.values or (node in ours and node.op not in TRIVIAL and can_be_handed_on(node))

    holders = waiting_holders(max(1000, len(ours)))
    waiting = [holder._node for holder in holders if holder._node not in ours]
    for node in lazy_values.reach(waiting, ends, max(lazy_values.MOST_LOOKED_AT, 4 * len(ours)))[0]:
        if node in work.values:
            work.lent.add(node)
        elif node.operands and ends(node):
            kept.add(node)


def _is_lost(node: Node, values: dict[Node, Value], kept: set[Node]) -> bool:
    """Whether a value will be dropped after the execution, so that views of it could not be recomputed."""
    while node not in values and node not in kept:
        if node.op not in TRIVIAL:
            return True
        if not node.operands:
            return False
        (node,) = node.operands
    return node in values and leaf_of(node) is None and not is_held(node)


def _held_siblings(node: Node) -> list[Node]:
    """Members of the same tuple that the program holds: computing one of them computes all."""
    (whole,) = node.operands
    if not isinstance(whole.type, Tuple):
        return []
    with originating_from(whole.origins):
        siblings = [get(whole, index=index) for index in range(len(whole.type.elements))]
    return [sibling for sibling in siblings if is_held(sibling) and lazy_values.is_missing(sibling)]


def _take_leaf(node: Node, work: _Work) -> None:
    leaf = leaf_of(node)
    if leaf is not None:
        work.values[node] = read_leaf(leaf)
        work.volatile |= leaf.external
    elif node.op in (input_op, parameter_op):
        raise UsageError(
            "the value is not known while a function is being traced",
            where=caller_origin(),
            help="call livegrad's functions, not NumPy's or those of `math` (lg.sin(x), not np.sin(x)), and lg.where, "
            "lg.cond or lg.while_loop instead of Python's control flow; an argument that Python must know, such as a "
            "size or an axis, is named by lg.jit(f, static_argnums=...)",
        )


# --- running ---------------------------------------------------------------------------------------------------------


def _run(work: _Work, progress: Progress | None) -> None:
    count(executions=1)
    inputs = list(work.values)
    todo = [node for node in work.order if node not in work.values and node.op is not constant_op]
    devices = assign_devices(work.order) if any(node.op is transfer or _is_away(node) for node in work.order) else {}
    groups = [] if devices or len(work.roots) == 1 or watch.active else _independent_groups(todo)
    if len(groups) > 1:
        _run_at_once(work, groups)
    elif len(todo) <= _MOST_NODES and not devices:
        _run_piece(work, work.order, work.kept, DEFAULT_DEVICE)
        if progress is not None:
            progress(len(todo), len(todo))
    else:
        _run_pieces(work, todo, devices, progress)
    _let_go(work, inputs)
    enforce_budget(root.cell for root in work.roots if root.cell is not None)


def _independent_groups(todo: list[Node]) -> list[list[Node]]:
    """Parts of a graph that share no pending work, if each is worth a thread."""
    group_of: dict[Node, list[Node]] = {}
    for node in todo:
        if is_broadcast_constant(node):
            continue  # a broadcast constant is recomputed wherever it is used
        joined = {id(group_of[o]): group_of[o] for o in node.operands if o in group_of}
        parts = sorted(joined.values(), key=len)
        group = parts.pop() if parts else []
        for smaller in parts:
            group += smaller
            group_of.update(dict.fromkeys(smaller, group))
        group.append(node)
        group_of[node] = group
    groups = list({id(group): group for group in group_of.values()}.values())
    worth = all(sum(node_cost(node) for node in group) >= _WORTH_A_THREAD for group in groups)
    return groups if worth and all(len(group) <= _MOST_NODES for group in groups) else []


def _run_at_once(work: _Work, groups: list[list[Node]]) -> None:
    position = {node: index for index, node in enumerate(work.order)}
    with ThreadPoolExecutor(len(groups), thread_name_prefix="livegrad-group") as pool:
        orders = []
        for group in groups:
            needed = set(toposort(group, stop=work.values.__contains__))
            orders.append((sorted(needed, key=position.__getitem__), work.kept.intersection(group)))
        runs = [pool.submit(_run_piece, work, order, outputs, DEFAULT_DEVICE) for order, outputs in orders]
        for run in runs:
            run.result()
    left = [node for node in work.order if node in work.kept and node not in work.values]
    if left:
        _run_piece(work, toposort(left, stop=work.values.__contains__), set(left), DEFAULT_DEVICE)
    count(parallel_groups=len(groups))


def _is_away(node: Node) -> bool:
    if node.cell is not None and node.cell.device != DEFAULT_DEVICE:
        return True
    leaf = leaf_of(node) if node.op is input_op else None
    return leaf is not None and not isinstance(leaf.array, np.ndarray)


def _let_go(work: _Work, inputs: list[Node]) -> None:
    """Drops values that only this execution needed, and truncates long histories."""
    with value_store.current.lock:
        for node in inputs:
            if node not in work.lent and node.cell is not None and node.cell.value is not None and not is_held(node):
                lazy_values.forget(node.cell)
        # Asked again only once in a while: a history that a gradient may be asked for stays, and grows.
        if work.volatile or not work.generation or work.generation % MOST_GENERATIONS:
            return
        truncate_history(work.kept, len(work.order))


def _run_pieces(work: _Work, todo: list[Node], devices: dict[Node, str], progress: Progress | None) -> None:
    """Runs a graph piece by piece, each on one device, and drops values that no later piece needs."""
    pieces = cut(todo, devices, _MOST_NODES)
    lasting = work.kept.union(work.roots)
    last_use = {o: number for number, piece in enumerate(pieces) for node in piece.order for o in node.operands}
    done = 0
    for number, piece in enumerate(pieces):
        device = devices.get(piece.nodes[0], DEFAULT_DEVICE)
        outside = piece.outside()
        outputs = {n for n in piece.nodes if n in work.kept or (last_use.get(n, -1) > number and can_be_handed_on(n))}
        moved = [o for o in outside if o.op is not constant_op and devices.get(o, DEFAULT_DEVICE) != device]
        # What lies on a device that keeps its data is counted where it is copied.
        counted = [o for o in moved if devices.get(o, DEFAULT_DEVICE) not in KEEPING_DEVICES]
        _run_piece(work, [*outside, *piece.order], outputs, device, away=bool(devices))
        count(copies_between_devices=len(counted))
        for node in outside:
            if last_use[node] == number and node not in lasting:
                work.values.pop(node, None)
        done += len(piece.nodes)
        if progress is not None:
            progress(done, len(todo))


def _all_on_host(order: list[Node], work: _Work) -> dict[Node, Array]:
    """The cached values of some nodes on the host, with copies of device values."""
    return {node: lazy_values.on_host(work.values[node]) for node in order if node in work.values}


def _run_piece(work: _Work, order: list[Node], outputs: set[Node], device: str, away: bool = False) -> None:
    """Runs nodes on one device; `away`: some of their operands may be on another device."""
    wanted = [node for node in order if node in outputs]
    results: Sequence[Value] | None
    if device in KEEPING_DEVICES and not watch.active:
        results = RUNNERS[device](order, work.values, wanted)
    else:
        values: dict[Node, Array] = work.values if device == DEFAULT_DEVICE and not away else _all_on_host(order, work)  # type: ignore[assignment]
        results = _run_watched(order, values, wanted) if watch.active else lay_out(order, values, wanted)
        if results is None:
            results = RUNNERS[device](*cut_out(order, values, wanted), wanted)
    costs = recomputation_costs(order, work.values, work.kept)
    with value_store.current.lock:
        count(nodes_computed=sum(node not in work.values for node in order))
        for node, value in zip(wanted, results, strict=True):
            work.values[node] = value
            if node in work.kept:
                keep(node.cell, value, costs[node], volatile=work.volatile, stamp=work.stamp)
                node.cell.generation, node.cell.device = work.generation + 1, device


class _Watch(threading.local):
    """Whether this thread looks for NaNs, and for infinities too."""

    active, infinities = False, False


watch = _Watch()


@contextmanager
def watching_for_nans(*, infinities: bool) -> Iterator[None]:
    """Inside, graphs are run node by node on this thread, and the first NaN is an error."""
    before = watch.active, watch.infinities
    watch.active, watch.infinities = True, infinities
    try:
        with distinguish_lines():
            yield
    finally:
        watch.active, watch.infinities = before


def _run_watched(order: list[Node], values: dict[Node, Array], wanted: Sequence[Node]) -> list[Array]:
    return run_by_node(order, values, wanted, require_numbers)


def _wrong_numbers(value: Any) -> Any:
    """Where an array has the numbers that this thread rejects; None: it cannot have any."""
    value = readable(np.asarray(value))
    if value.dtype.kind not in "fc":
        return None
    return ~np.isfinite(value) if watch.infinities else np.isnan(value)


def has_wrong_numbers(value: Any) -> bool:
    """Whether an array has a NaN, or an infinity if this thread rejects infinities too."""
    wrong = _wrong_numbers(value)
    return wrong is not None and bool(np.any(wrong))


def require_numbers(node: Node, value: Any, lines: Sequence[SourceLocation]) -> None:
    """Raises if a value has numbers that this thread rejects; `lines` are the source lines of the node."""
    wrong = _wrong_numbers(value) if isinstance(node.type, Tensor | Scalar) else None
    if wrong is not None and np.any(wrong):
        index = np.unravel_index(int(np.argmax(wrong)), np.shape(value))
        kind = "NaN" if np.any(np.isnan(readable(np.asarray(value)))) else "infinity"
        what = "this data contains" if node.op is input_op else f"`{node.op.name}` produced"
        others = ", ".join(map(str, lines[1:]))  # of a graph that was built before the check for NaNs was enabled
        raise KernelCheckError(
            f"{what} the first {kind}, at index {tuple(map(int, index))}",
            where=lines[0] if lines else caller_origin(),
            help=f"the same value is written at {others}" if others else None,
        )
