"""Incremental replanning: only the parts that edits affect are flattened, sorted, specialised and wired again.

`Applier` calls `replan` with the edits of a frame, and `commit` once the result runs. The result equals that of
`compile_graph`, which tests compare it with, at a cost proportional to the change:

    flatten     affected blocks, and the readers of removed and changed nodes       (reach.py)
    sort        moves steps only where an edge would point backwards                (reorder.py)
    specialise  those nodes, and their readers while types keep changing            (here)
    wire        their steps; removes what no step reads any more                    (rewire.py)

All results are overlays (`compile/overlay.py`): the running compilation stays unchanged until `commit` merges them,
entry by entry, through the frame's transaction, which can roll them back. If edits affect a gradient, a composite with
several uses, or much of the graph, everything is recompiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

from livegrad.live.compile.flatten import DerivedBlock, SeveralUses, flatten_block
from livegrad.live.compile.graph_compiler import Compilation, compile_graph, validate
from livegrad.live.compile.live_plan import DERIVED, LivePlan
from livegrad.live.compile.network import Network, NetworkNode, inputs_of, results_of, with_inner_nodes
from livegrad.live.compile.overlay import Overlay
from livegrad.live.compile.propagate import Shapes, check_state, record_state_type, specialize
from livegrad.live.graph.block import Block, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import Entry
from livegrad.live.graph.keys import carry_key, pin_key
from livegrad.live.graph.regions import Region
from livegrad.live.transaction import Transaction
from livegrad.live.update.reach import find_affected_blocks
from livegrad.live.update.reorder import CycleError, reorder
from livegrad.live.update.rewire import patch_connections, rewire

_MAX_AFFECTED = 256  # blocks: beyond this, recompiling everything is about as fast


class _NeedsFullCompilation(Exception):
    """The edits need a full compilation."""


@dataclass
class Edited:
    """The nodes that edits have changed: current nodes by key, and the keys of removed nodes."""

    nodes: dict[str, NetworkNode] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


def replan(
    graph: Graph, previous: Compilation, running: LivePlan, entries: Sequence[Entry]
) -> tuple[Compilation, Iterable[str] | None]:
    """The compilation of the edited graph, and the steps and states that may differ (None: any)."""
    try:
        edited = _flatten(graph, previous, running, entries)
        compilation = _overlay_nodes(previous, edited)
        position, end = _sort(compilation, running, edited)
        touched = _Specializer(compilation, previous, running, edited, position).run()
    except (_NeedsFullCompilation, SeveralUses, CycleError):
        return compile_graph(graph, previous=previous), None
    if not compilation.problems:
        compilation.plan = rewire(compilation, running, touched, edited.nodes, edited.removed)
        patch_connections(compilation.plan, running, [*touched, *edited.removed], position, end)
    return compilation, [*touched, *sorted(edited.removed)]


# --- flatten ---------------------------------------------------------------------------------------------------------


def _flatten(graph: Graph, previous: Compilation, running: LivePlan, entries: Sequence[Entry]) -> Edited:
    """Flattens the affected blocks, and the readers of removed nodes and of nodes with other outputs."""
    network, edited = previous.network, Edited()
    structural = any(entry.kind == "structure" for entry in entries)
    affected, states = find_affected_blocks(graph.journal, entries), _states_by_next(running)
    worklist, visited = list(affected), set(affected)
    for block in worklist:  # grows during the loop
        if len(visited) > _MAX_AFFECTED:
            raise _NeedsFullCompilation
        keys, node = network.keys.get(block, ()), flatten_block(graph, block)
        if isinstance(block, DerivedBlock) or len(keys) > 1:
            raise _NeedsFullCompilation
        if node is not None:
            edited.nodes[node.key] = node
            keys = (*keys, node.key)  # another block may have had this key
        for key in keys:
            if node is None or key != node.key:
                edited.removed.add(key)
            old = network.nodes.get(key)
            if old is not None and (affected.get(block) or old.block is not block):
                readers = {network.nodes[reader].block: None for reader in _readers_of(key, running, states)}
                worklist += [reader for reader in readers if reader not in visited]
                visited |= readers.keys()
    edited.removed = {key for key in edited.removed if key in network.nodes and key not in edited.nodes}
    changed = edited.nodes.keys() | edited.removed
    if structural and not network.derivation.isdisjoint(changed):
        raise _NeedsFullCompilation  # the nodes of a gradient follow from the structure
    followed = network.followers.keys() & edited.nodes.keys()
    if followed:
        edited.nodes |= _update_derived(network, edited.nodes, followed)
    return edited


def _readers_of(key: str, running: LivePlan, states: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """The nodes, including states, that read the results of a node of the running plan."""
    step = running.steps.get(key)
    for result in (pin_key(key, "value"),) if step is None else step.results:
        yield from running.readers.get(result, ())
        yield from states.get(result, ())


def _states_by_next(running: LivePlan) -> dict[str, list[str]]:
    """The states by the key of the buffer that is their next value."""
    states: dict[str, list[str]] = {}
    for state in running.states:
        states.setdefault(state.next, []).append(state.key)
    return states


def _update_derived(
    network: Network, nodes: Mapping[str, NetworkNode], followed: Iterable[str]
) -> dict[str, NetworkNode]:
    """The nodes derived from these, directly or indirectly, with the current sources of their primal nodes."""
    derived: dict[str, NetworkNode] = {}
    worklist = list(followed)
    while worklist:
        key = worklist.pop()
        primal, before = derived.get(key) or nodes[key], network.nodes[key]
        # Includes what the bodies of a region read, because its derivative reads that too.
        sources = inputs_of(primal)
        if sources.keys() != inputs_of(before).keys() or results_of(primal) != results_of(before):
            raise _NeedsFullCompilation
        for follower in network.followers.get(key, ()):
            node = network.nodes[follower]
            feeds = {name: sources.get(name, ref) for name, ref in node.feeds.items()}
            body: Any = node.derived_body
            derived[follower] = replace(node, feeds=feeds, derived_body=body.of_primal(primal))
            worklist.append(follower)
    return derived


def _overlay_nodes(previous: Compilation, edited: Edited) -> Compilation:
    """The previous compilation with the edited nodes in overlays."""
    network, before = previous.network, previous.shapes
    keys: Overlay[Block, tuple[str, ...]] = Overlay(network.keys)
    for key in edited.removed:
        keys.pop(network.nodes[key].block, None)
    for key, node in edited.nodes.items():
        old = network.nodes.get(key)
        if old is not None and old.block is not node.block and keys.get(old.block) == (key,):
            keys.pop(old.block)
    for key, node in edited.nodes.items():
        if node.follows is None:
            keys[node.block] = (key,)
    nodes = Overlay(network.nodes, dict(edited.nodes), set(edited.removed))
    shapes = Shapes(Overlay(before.bodies), Overlay(before.types), Overlay(before.inputs))
    for key in (*edited.removed, *edited.nodes):
        if key in network.nodes:
            _forget_shapes(network.nodes[key], shapes)
    return Compilation(replace(network, nodes=nodes, keys=keys), shapes=shapes)


def _forget_shapes(node: NetworkNode, shapes: Shapes) -> None:
    """Removes the shapes of a node and of the nodes inside it."""
    for each in with_inner_nodes((node,)):
        shapes.bodies.pop(each.key, None)
        shapes.inputs.pop(each.key, None)
        keys = [each.result_key(name) for body in each.bodies for name in body.outputs]
        if isinstance(each.block, Region):
            carried = (*each.block.carried, *(() if each.block.index_name is None else (each.block.index_name,)))
            keys += [carry_key(each.key, name) for name in carried]
        for key in (*each.output_keys, *keys):
            shapes.types.pop(key, None)


# --- sort ------------------------------------------------------------------------------------------------------------


def _sort(compilation: Compilation, running: LivePlan, edited: Edited) -> tuple[Overlay[str, int], int]:
    """The positions of all steps, and an upper bound."""
    nodes, position, end = compilation.network.nodes, Overlay(running.position), running.end
    for key in edited.removed:
        position.pop(key, None)
    steps = {key: node for key, node in edited.nodes.items() if not isinstance(node.block, State)}
    for key in edited.nodes:
        if key not in steps:
            position.pop(key, None)  # a state with the key of a removed block
        elif key not in position:
            position[key] = end
            end += 1

    def sources_of(key: str) -> list[str]:
        return [source for source in nodes[key].sources if source in position]

    def readers_of(key: str) -> Iterable[str]:
        return (reader for reader in running.consumers.get(key, ()) if reader in position)

    reorder(position, {key: sources_of(key) for key in steps}, sources_of, readers_of)
    return position, end


# --- specialise ------------------------------------------------------------------------------------------------------


class _Specializer:
    """Specialises edited nodes, and their dependents whose input types changed.

    Dependents of a broken node are skipped and not reported again.
    """

    def __init__(
        self,
        compilation: Compilation,
        previous: Compilation,
        running: LivePlan,
        edited: Edited,
        position: Mapping[str, int],
    ) -> None:
        self._compilation, self._before, self._running = compilation, previous.shapes.types, running
        self._edited, self._position = edited, position
        self._states = _states_by_next(running)
        self._states_touched = {key: None for key, node in edited.nodes.items() if isinstance(node.block, State)}
        self._waiting = [(position[key], key) for key in edited.nodes if key in position]
        self._to_check = set(edited.nodes)  # nodes still to check; states come last
        in_order = sorted(edited.nodes, key=lambda key: position.get(key, math.inf))  # the order of problems
        compilation.problems += validate(compilation.network, [edited.nodes[key] for key in in_order])
        self._broken = {problem.node for problem in compilation.problems}

    def run(self) -> list[str]:
        """Specialises and checks the nodes. Returns their keys, states last."""
        compilation, broken, nodes = self._compilation, self._broken, self._compilation.network.nodes
        heapify(self._waiting)
        for key in list(self._states_touched):
            record_state_type(nodes[key], compilation.shapes)
            self._schedule_readers(nodes[key])
        touched: dict[str, None] = {}
        while self._waiting:
            _, key = heappop(self._waiting)
            if key in touched:
                continue
            touched[key] = None
            self._to_check.discard(key)
            if key in broken or not broken.isdisjoint(nodes[key].sources):
                broken.add(key)
            else:
                specialize(nodes[key], self._compilation.shapes, self._compilation.problems, self._broken)
            self._schedule_readers(nodes[key])
        for key in self._states_touched:
            compilation.problems += check_state(nodes[key], compilation.shapes, broken)
        return [*touched, *self._states_touched]

    def _schedule_readers(self, node: NetworkNode) -> None:
        """Schedules the readers of a node whose types changed.

        While nodes remain to be checked, also schedules the readers of a broken node, which become broken too.
        """
        is_broken = node.key in self._broken
        if is_broken and not self._to_check:
            return
        for key in node.output_keys:
            if is_broken or self._compilation.shapes.types.get(key) is not self._before.get(key):
                readers = [reader for reader in self._running.readers.get(key, ()) if reader in self._position]
                for reader in readers:
                    heappush(self._waiting, (self._position[reader], reader))
                if not is_broken:
                    self._to_check.update(readers)
                states = (state for state in self._states.get(key, ()) if state not in self._edited.removed)
                self._states_touched.update(dict.fromkeys(states))


# --- commit ----------------------------------------------------------------------------------------------------------


def commit(compilation: Compilation, previous: Compilation | None, transaction: Transaction) -> Compilation:
    """Merges an installed compilation into the previous one. Returns the compilation that is now current."""
    if not isinstance(compilation.network.nodes, Overlay):
        return compilation  # everything was recompiled
    assert previous is not None
    assert previous.plan is not None
    assert compilation.plan is not None
    plan, new_plan = previous.plan, compilation.plan
    overlays: list[MutableMapping[Any, Any]] = [
        compilation.network.nodes, compilation.network.keys,
        compilation.shapes.bodies, compilation.shapes.types, compilation.shapes.inputs,
        new_plan.steps, new_plan.buffers, new_plan.parameters, new_plan.contents, new_plan.bindings,
    ]  # fmt: skip
    for name in DERIVED:
        derived = new_plan.__dict__.get(name)
        if isinstance(derived, Overlay):
            overlays.append(derived)
        elif derived is None:
            transaction.drop(plan.__dict__, name)
        elif derived is not plan.__dict__.get(name):
            transaction.set_entry(plan.__dict__, name, derived)
    for overlay in overlays:
        assert isinstance(overlay, Overlay)
        overlay.commit(transaction)
    transaction.set_entry(plan.__dict__, "states", new_plan.states)
    plan.forget_types()
    return previous
