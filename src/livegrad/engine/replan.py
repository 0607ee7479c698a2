"""The next plan after edits of single blocks: only what the edits name is specialised and wired again.

`Engine` calls `replan` for changes of code and of bindings. The result equals that of `compile_graph`, which the tests
compare it with. A change of types is followed down to where it ends; where that is a region, all is compiled anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from livegrad.diagnostics import LivegradError
from livegrad.engine.compile import Compilation, compile_graph
from livegrad.engine.flatten import DerivedBlock, Network, NetworkNode, RootRef, feeds_of
from livegrad.engine.graph import Block, Composite, Graph, State
from livegrad.engine.live_plan import LivePlan, operand_key
from livegrad.engine.problems import Problem
from livegrad.engine.propagate import Shapes, specialize_node
from livegrad.engine.wire import Wiring, wire_node


def replan(
    graph: Graph, known: Compilation, running: LivePlan, named: Sequence[Block]
) -> tuple[Compilation, Iterable[str] | None]:
    """What compiling the edited graph gives, and the steps that may differ (None: any)."""
    network = Network(dict(known.network.nodes), followers=known.network.followers)
    for block in named:
        if graph.blocks.get(block.name) is not block or isinstance(block, Composite | State | DerivedBlock):
            return compile_graph(graph, known=known), None
        network.nodes[block.name] = NetworkNode(block.name, block, feeds_of(graph, block))
    names = {block.name for block in named}
    followers = known.network.followers
    if followers.keys() & names:
        names |= _update_followers(network, followers, names)
    made = Compilation(network, known.order, _copy(known.shapes))
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


def _copy(shapes: Shapes) -> Shapes:
    return Shapes(dict(shapes.bodies), dict(shapes.types), shapes.inner_orders, dict(shapes.inputs))


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
            made.problems.append(Problem(key, node.block, None, error))
            return list(touched)
        if changed:
            if states.intersection(running.steps[key].results):
                return None
            for consumer in running.consumers[key]:
                heappush(waiting, (position[consumer], consumer))
    return list(touched)


def _wire(made: Compilation, running: LivePlan, touched: Sequence[str], names: Iterable[str]) -> LivePlan:
    """The running plan with other steps for what was touched."""
    wiring = Wiring(made.shapes)
    nodes = made.network.nodes
    # What feeds the other nodes was looked up when they were compiled: the numbers of today are in the running plan.
    fresh = {ref.key for name in names for ref in nodes[name].feeds.values() if isinstance(ref, RootRef)}
    steps = {key: wire_node(made.network.nodes[key], running.steps[key].level, wiring) for key in touched}
    gone = {
        key
        for name in touched
        for key in map(operand_key, running.steps[name].all_operands())
        if isinstance(key, str) and key.startswith(f"{name}!")
    }
    wiring.parameters |= {key: running.parameters[key] for key in wiring.parameters.keys() - fresh}
    wiring.contents |= {
        key: running.contents[key]
        for key in wiring.contents.keys() - fresh
        if key in running.contents and key not in gone
    }
    contents = {key: value for key, value in running.contents.items() if key not in gone} if gone else running.contents
    buffers = {key: value for key, value in running.buffers.items() if key not in gone} if gone else running.buffers
    plan = replace(
        running,
        steps={**running.steps, **steps},
        buffers={**buffers, **wiring.buffers},
        parameters={**running.parameters, **wiring.parameters},
        contents={**contents, **wiring.contents},
        bindings={**running.bindings, **wiring.bindings},
    )
    same = all(
        list(map(operand_key, steps[key].all_operands())) == list(map(operand_key, running.steps[key].all_operands()))
        for key in touched
    )
    if same:  # what is derived from the connections alone need not be derived again
        for name in ("position", "producer", "readers", "consumers", "captured"):
            plan.__dict__[name] = getattr(running, name)
    return plan
