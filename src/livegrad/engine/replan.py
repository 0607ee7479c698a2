"""The next plan after edits of single blocks: only what the edits name is specialised and wired again.

`Engine` calls `replan` for changes of code and of bindings, and `commit` once what it gave runs. The result equals
that of `compile_graph`, which the tests compare it with, and nothing but what the edits reach is looked at. A change of
types is followed down to where it ends; where that is a region, all is compiled anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.engine.compile import Compilation, compile_graph
from livegrad.engine.flatten import DerivedBlock, Network, NetworkNode, RootRef, feeds_of
from livegrad.engine.graph import Block, Composite, Graph, State
from livegrad.engine.keys import own_key
from livegrad.engine.live_plan import DERIVED, BufferOperand, LivePlan, Step, reads_the_same
from livegrad.engine.overlay import Overlay
from livegrad.engine.problems import problem
from livegrad.engine.propagate import Shapes, pin_of, specialize_node
from livegrad.engine.transaction import Transaction
from livegrad.engine.wire import Wiring, wire_node


def replan(
    graph: Graph, known: Compilation, running: LivePlan, named: Sequence[Block]
) -> tuple[Compilation, Iterable[str] | None]:
    """What compiling the edited graph gives, and the steps that may differ (None: any)."""
    network = Network(Overlay(known.network.nodes), followers=known.network.followers)
    names: set[str] = set()
    for block in named:
        found = None if isinstance(block, Composite | State | DerivedBlock) else feeds_of(graph, block)
        if found is None:
            return compile_graph(graph, known=known), None
        key, feeds = found
        network.nodes[key] = NetworkNode(key, block, feeds)
        names.add(key)
    followers = known.network.followers
    if followers.keys() & names:
        names |= _update_followers(network, followers, names)
    before = known.shapes
    shapes = Shapes(Overlay(before.bodies), Overlay(before.types), before.inner_orders, Overlay(before.inputs))
    made = Compilation(network, known.order, shapes)
    touched = _specialize(made, running, names)
    if touched is None:
        return compile_graph(graph, known=known), None
    if not made.problems:
        try:
            made.plan = _wire(made, running, touched, names)
        except LivegradError:
            return compile_graph(graph, known=known), None
    return made, touched


def _update_followers(network: Network, followers: Mapping[str, Sequence[str]], names: Iterable[str]) -> set[str]:
    """The nodes that were derived from these, directly or not, with what feeds those now."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        primal = waiting.pop()
        for key in followers.get(primal, ()):
            node, fresh = network.nodes[key], network.nodes[primal].feeds
            network.nodes[key] = replace(node, feeds={name: fresh.get(name, ref) for name, ref in node.feeds.items()})
            found.add(key)
            waiting.append(key)
    return found


def commit(made: Compilation, known: Compilation | None, frame: Transaction) -> Compilation:
    """Makes the changes of a compilation that is in place now part of the one before, and gives what counts from then.

    What is derived from the connections of the plan stays, or is derived again.
    """
    if not isinstance(made.network.nodes, Overlay):
        return made  # all was compiled anew
    assert known is not None
    assert known.plan is not None
    assert made.plan is not None
    plan, fresh = known.plan, made.plan
    changed: tuple[MutableMapping[str, Any], ...] = (
        made.network.nodes, made.shapes.bodies, made.shapes.types, made.shapes.inputs,
        fresh.steps, fresh.buffers, fresh.parameters, fresh.contents, fresh.bindings,
    )  # fmt: skip
    for one in changed:
        assert isinstance(one, Overlay)
        one.commit(frame)
    for name in DERIVED:
        if name in fresh.__dict__:
            frame.put(plan.__dict__, name, fresh.__dict__[name])
        else:
            frame.drop(plan.__dict__, name)
    plan.forget_types()
    return known


def _specialize(made: Compilation, running: LivePlan, names: set[str]) -> list[str] | None:
    """Specialises the named nodes and those below whose inputs changed; None if that is not enough."""
    position = running.position
    states = {state.next for state in running.states}
    waiting = [(position[name], name) for name in names]
    heapify(waiting)
    touched: dict[str, None] = {}
    while waiting:
        _, key = heappop(waiting)
        if key in touched:
            continue
        touched[key] = None
        node = made.network.nodes[key]
        if node.bodies or any(ref is None for ref in node.feeds.values()):
            return None
        try:
            changed = specialize_node(node, made.shapes)
        except LivegradError as error:
            made.problems.append(problem(node, pin_of(error, node), error))
            continue
        if changed:
            if states.intersection(running.steps[key].results):
                return None
            for consumer in running.consumers[key]:
                heappush(waiting, (position[consumer], consumer))
    return list(touched)


def _wire(made: Compilation, running: LivePlan, touched: Sequence[str], names: Iterable[str]) -> LivePlan:
    """The running plan with other steps for what was touched."""
    wiring = Wiring(made.shapes, known=running.buffers)
    nodes = made.network.nodes
    # What feeds the other nodes was looked up when they were compiled: the numbers of today are in the running plan.
    fresh = {ref.key for name in names for ref in nodes[name].feeds.values() if isinstance(ref, RootRef)}
    steps: dict[str, Step] = {key: wire_node(nodes[key], running.steps[key].level, wiring) for key in touched}
    gone = {
        operand.key
        for name in touched
        for operand in running.steps[name].all_operands()
        if isinstance(operand, BufferOperand) and operand.key.startswith(own_key(name, ""))
    }
    for key in wiring.parameters:
        if key not in fresh:
            wiring.parameters[key] = running.parameters[key]
    for key in wiring.contents:
        if key not in fresh and key not in gone and key in running.contents:
            wiring.contents[key] = running.contents[key]
    plan = LivePlan(
        Overlay(running.steps, steps),
        Overlay(running.buffers, wiring.buffers, gone),
        running.states,
        Overlay(running.parameters, wiring.parameters),
        Overlay(running.contents, wiring.contents, gone),
        Overlay(running.bindings, wiring.bindings),
        running.places,
        running.slots,
    )
    if all(reads_the_same(steps[key], running.steps[key]) for key in touched):
        # What is derived from the connections alone need not be derived again.
        for name in DERIVED:
            plan.__dict__[name] = getattr(running, name)
    return plan
