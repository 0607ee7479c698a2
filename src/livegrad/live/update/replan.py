"""Incremental replanning: only the parts that edits affect are flattened, sorted, specialised and wired again.

`Applier` calls `replan` with the edits of a frame, and `commit` once the result runs. The result equals that of
`compile_graph`, which tests compare it with, at a cost proportional to the change:

    flatten     the blocks that edits reach, and the readers of nodes that went or changed  (reach.py)
    sort        steps move only where an edge would lead backwards                          (reorder.py)
    specialise  those nodes, and readers for as long as types change                        (here)
    wire        their steps; what nothing reads any more goes                               (rewire.py)

Everything is written to overlays (`compile/overlay.py`): the running compilation is not modified until `commit` merges
them, entry by entry through the frame's transaction, which can roll each of them back. If edits affect a gradient, a
composite with several uses, or much of the graph, everything is recompiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

from livegrad.live.compile.flatten import DerivedBlock, SeveralPlaces, flatten_block
from livegrad.live.compile.graph_compiler import Compilation, compile_graph, validate
from livegrad.live.compile.live_plan import DERIVED, LivePlan
from livegrad.live.compile.network import Network, NetworkNode
from livegrad.live.compile.overlay import Overlay
from livegrad.live.compile.propagate import (
    Shapes,
    check_state,
    note_state,
    specialize,
)
from livegrad.live.graph.block import Block, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import Entry
from livegrad.live.graph.keys import carry_key, pin_key
from livegrad.live.graph.regions import Region
from livegrad.live.transaction import Transaction
from livegrad.live.update.reach import blocks_reached
from livegrad.live.update.reorder import CycleError, reorder
from livegrad.live.update.rewire import patch_connections, rewire

_MOST_REACHED = 256  # blocks: beyond, to compile everything takes hardly longer


class _TooMuch(Exception):
    """More changed than can be followed block by block."""


@dataclass
class Edited:
    """The nodes that edits have changed: those that are there now, by key, and the keys of those that went."""

    nodes: dict[str, NetworkNode] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


def replan(
    graph: Graph, known: Compilation, running: LivePlan, entries: Sequence[Entry]
) -> tuple[Compilation, Iterable[str] | None]:
    """What compiling the edited graph gives, and the steps and states that may differ (None: any)."""
    try:
        edited = _flatten(graph, known, running, entries)
        made = _overlaid(known, edited)
        position, end = _sort(made, running, edited)
        touched = _Specializing(made, known, running, edited, position).run()
    except (_TooMuch, SeveralPlaces, CycleError):
        return compile_graph(graph, known=known), None
    if not made.problems:
        made.plan = rewire(made, running, touched, edited.nodes, edited.gone)
        patch_connections(made.plan, running, [*touched, *edited.gone], position, end)
    return made, [*touched, *sorted(edited.gone)]


# --- flatten ---------------------------------------------------------------------------------------------------------


def _flatten(graph: Graph, known: Compilation, running: LivePlan, entries: Sequence[Entry]) -> Edited:
    """The nodes of the blocks that edits reach, and of those that read from what went or has other outputs now."""
    network, edited = known.network, Edited()
    structural = any(entry.kind == "structure" for entry in entries)
    reached, states = blocks_reached(graph.journal, entries), _states_by_next(running)
    waiting, seen = list(reached), set(reached)
    for block in waiting:  # which grows
        if len(seen) > _MOST_REACHED:
            raise _TooMuch
        before, node = network.keys.get(block, ()), flatten_block(graph, block)
        if isinstance(block, DerivedBlock) or len(before) > 1:
            raise _TooMuch
        if node is not None:
            edited.nodes[node.key] = node
            before = (*before, node.key)  # another block may have been there
        for key in before:
            if node is None or key != node.key:
                edited.gone.add(key)
            old = network.nodes.get(key)
            if old is not None and (reached.get(block) or old.block is not block):
                readers = {network.nodes[reader].block: None for reader in _readers_of(key, running, states)}
                waiting += [reader for reader in readers if reader not in seen]
                seen |= readers.keys()
    edited.gone = {key for key in edited.gone if key in network.nodes and key not in edited.nodes}
    changed = edited.nodes.keys() | edited.gone
    if structural and not network.derivation.isdisjoint(changed):
        raise _TooMuch  # what a gradient is made of follows from the structure
    followed = network.followers.keys() & edited.nodes.keys()
    if followed:
        edited.nodes |= _follow(network, edited.nodes, followed)
    return edited


def _readers_of(key: str, running: LivePlan, states: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """The nodes that read what a node of the plan that runs gives, states among them."""
    step = running.steps.get(key)
    for result in (pin_key(key, "value"),) if step is None else step.results:
        yield from running.readers.get(result, ())
        yield from states.get(result, ())


def _states_by_next(running: LivePlan) -> dict[str, list[str]]:
    """The states that take a buffer's value, by its key."""
    found: dict[str, list[str]] = {}
    for state in running.states:
        found.setdefault(state.next, []).append(state.key)
    return found


def _follow(network: Network, nodes: Mapping[str, NetworkNode], followed: Iterable[str]) -> dict[str, NetworkNode]:
    """The nodes that were derived from these, directly or not, with what feeds those now."""
    found: dict[str, NetworkNode] = {}
    waiting = list(followed)
    while waiting:
        primal = waiting.pop()
        fresh = (found.get(primal) or nodes[primal]).feeds
        for key in network.followers.get(primal, ()):
            node = network.nodes[key]
            feeds = {name: fresh.get(name, ref) for name, ref in node.feeds.items()}
            found[key] = replace(node, feeds=feeds)
            waiting.append(key)
    return found


def _overlaid(known: Compilation, edited: Edited) -> Compilation:
    """The compilation before with other nodes over it."""
    network, before = known.network, known.shapes
    keys: Overlay[Block, tuple[str, ...]] = Overlay(network.keys)
    for key in edited.gone:
        keys.pop(network.nodes[key].block, None)
    for key, node in edited.nodes.items():
        old = network.nodes.get(key)
        if old is not None and old.block is not node.block and keys.get(old.block) == (key,):
            keys.pop(old.block)
    for key, node in edited.nodes.items():
        if node.follows is None:
            keys[node.block] = (key,)
    nodes = Overlay(network.nodes, dict(edited.nodes), set(edited.gone))
    shapes = Shapes(Overlay(before.bodies), Overlay(before.types), Overlay(before.inputs))
    for key in (*edited.gone, *edited.nodes):
        if key in network.nodes:
            _forget_shapes(network.nodes[key], shapes)
    return Compilation(replace(network, nodes=nodes, keys=keys), shapes=shapes)


def _forget_shapes(node: NetworkNode, shapes: Shapes) -> None:
    """Takes away what was found for a node and for those inside of it."""
    inner = [one for body in node.bodies for one in body.all_nodes()]
    for one in (node, *inner):
        shapes.bodies.pop(one.key, None)
        shapes.inputs.pop(one.key, None)
        names = [one.result_key(name) for body in one.bodies for name in body.outputs]
        if isinstance(one.block, Region):
            carried = (*one.block.carried, *(() if one.block.index_name is None else (one.block.index_name,)))
            names += [carry_key(one.key, name) for name in carried]
        for key in (*one.output_keys, *names):
            shapes.types.pop(key, None)


# --- sort ------------------------------------------------------------------------------------------------------------


def _sort(made: Compilation, running: LivePlan, edited: Edited) -> tuple[Overlay[str, int], int]:
    """Positions for all steps, and a number that is higher than any of them."""
    nodes, position, end = made.network.nodes, Overlay(running.position), running.end
    for key in edited.gone:
        position.pop(key, None)
    steps = {key: node for key, node in edited.nodes.items() if not isinstance(node.block, State)}
    for key in edited.nodes:
        if key not in steps:
            position.pop(key, None)  # a state that takes the name of a block
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


class _Specializing:
    """Specialises edited nodes, and those below them whose inputs have other types.

    Problems are noted, and what hangs on a broken node is left out: it is not reported again.
    """

    def __init__(
        self, made: Compilation, known: Compilation, running: LivePlan, edited: Edited, position: Mapping[str, int]
    ) -> None:
        self._made, self._before, self._running = made, known.shapes.types, running
        self._edited, self._position = edited, position
        self._states = _states_by_next(running)
        self._states_touched = {key: None for key, node in edited.nodes.items() if isinstance(node.block, State)}
        self._waiting = [(position[key], key) for key in edited.nodes if key in position]
        self._to_check = set(edited.nodes)  # nodes still to come of which something may be said; states come last
        in_order = sorted(edited.nodes, key=lambda key: position.get(key, math.inf))  # problems are found in this order
        made.problems += validate(made.network, [edited.nodes[key] for key in in_order])
        self._broken = {one.node for one in made.problems}

    def run(self) -> list[str]:
        """The keys of the nodes that were looked at, states last."""
        made, broken, nodes = self._made, self._broken, self._made.network.nodes
        heapify(self._waiting)
        for key in list(self._states_touched):
            note_state(nodes[key], made.shapes)
            self._follow(nodes[key])
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
                specialize(nodes[key], self._made.shapes, self._made.problems, self._broken)
            self._follow(nodes[key])
        for key in self._states_touched:
            made.problems += check_state(nodes[key], made.shapes, broken)
        return [*touched, *self._states_touched]

    def _follow(self, node: NetworkNode) -> None:
        """Readers of a node whose types are other ones are looked at too.

        So are readers of a broken one, as long as there are nodes to check: nothing is said of one that depends on it.
        """
        is_broken = node.key in self._broken
        if is_broken and not self._to_check:
            return
        for key in node.output_keys:
            if is_broken or self._made.shapes.types.get(key) is not self._before.get(key):
                readers = [reader for reader in self._running.readers.get(key, ()) if reader in self._position]
                for reader in readers:
                    heappush(self._waiting, (self._position[reader], reader))
                if not is_broken:
                    self._to_check.update(readers)
                holders = (state for state in self._states.get(key, ()) if state not in self._edited.gone)
                self._states_touched.update(dict.fromkeys(holders))


# --- commit ----------------------------------------------------------------------------------------------------------


def commit(made: Compilation, known: Compilation | None, frame: Transaction) -> Compilation:
    """Makes the changes of a compilation that is in place part of the one before, and gives what counts from then."""
    if not isinstance(made.network.nodes, Overlay):
        return made  # all was compiled anew
    assert known is not None
    assert known.plan is not None
    assert made.plan is not None
    plan, fresh = known.plan, made.plan
    changed: list[MutableMapping[Any, Any]] = [
        made.network.nodes, made.network.keys, made.shapes.bodies, made.shapes.types, made.shapes.inputs,
        fresh.steps, fresh.buffers, fresh.parameters, fresh.contents, fresh.bindings,
    ]  # fmt: skip
    for name in DERIVED:
        derived = fresh.__dict__.get(name)
        if isinstance(derived, Overlay):
            changed.append(derived)
        elif derived is None:
            frame.drop(plan.__dict__, name)
        elif derived is not plan.__dict__.get(name):
            frame.put(plan.__dict__, name, derived)
    for one in changed:
        assert isinstance(one, Overlay)
        one.commit(frame)
    frame.put(plan.__dict__, "states", fresh.states)
    plan.forget_types()
    return known
