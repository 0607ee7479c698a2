"""Flattens nested graphs to one network: composites are dissolved, and every input refers to its actual source.

The first phase of the graph compiler. Regions are kept, with a network for each body. Gradient blocks are expanded to
nodes here, so that they follow the blocks they are derived from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from livegrad.live.compile.network import CarryRef, Network, NetworkNode, OutputRef, Ref, RootRef
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Edge, Graph, Source
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.keys import carry_key, path_part, pin_key
from livegrad.live.graph.regions import Region


class DerivedBlock(Block):
    """A block whose work is derived from other blocks. It is expanded into nodes whenever a graph is flattened."""

    def needs(self, resolver: PinResolver) -> OutputRef | None:
        """The output that it is derived from."""
        raise NotImplementedError

    def expand(
        self, key: str, feeds: dict[str, Ref | None], network: Network, resolver: PinResolver
    ) -> list[NetworkNode]:
        """The nodes of the block. The one with the key of the block has its outputs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Derivation:
    """A derived block, what feeds its inputs, and how it finds pins in its graph."""

    block: DerivedBlock
    feeds: dict[str, Ref | None]
    resolver: PinResolver


class PinResolver:
    """Resolves the pins of one graph to outputs and inputs of network nodes."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self._graph, self._prefix = graph, prefix

    def output(self, pin: Pin) -> OutputRef | None:
        """The node output behind an output pin; None if the block is not in this graph, or several times."""
        keys = output_keys(self._graph, pin, self._prefix)
        return keys[0] if len(keys) == 1 else None

    def inputs(self, pin: Pin) -> list[tuple[str, str]] | None:
        """The node inputs behind an input pin, as (node, name). Those of a region may be inputs of inner nodes."""
        keys = find_keys(self._graph, pin.block, self._prefix)
        if len(keys) != 1:
            return None
        block, key = pin.block, keys[0]
        if not isinstance(block, Composite):
            return [(key, pin.name)]
        if isinstance(block, Region):
            if pin.name == block.control_name or pin.name in block.carried:
                return [(key, pin.name)]
            around = key.removesuffix(path_part(block.name))
            inner = [
                name if name.startswith(f"{node}/") else pin_key(node, name)  # inner regions give whole keys
                for label, body in block.bodies.items()
                for node, name in _inputs_behind(body, pin.name, _inner_prefix(around, block, label))
            ]
            return [(key, name) for name in inner]
        return list(_inputs_behind(block, pin.name, f"{key}/"))


def _inputs_behind(composite: Composite, name: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The node inputs that an exposed input feeds."""
    for pin in composite.inner_inputs.get(name, ()):
        if composite.graph.sources.get(pin) is None:  # otherwise it has a source inside
            yield from PinResolver(composite.graph, prefix).inputs(pin) or ()


def expand_derived(network: Network, derived: Mapping[str, Derivation]) -> None:
    """Adds the nodes of derived blocks, each after the derived blocks that it depends on."""
    waiting = dict(derived)
    while waiting:
        ready = [
            key
            for key, derivation in waiting.items()
            if not _reaches(network, derivation.block.needs(derivation.resolver), waiting)
        ]
        for key in ready or list(waiting):  # none is ready on a cycle, which `sort_nodes` reports
            derivation = waiting.pop(key)
            for node in derivation.block.expand(key, derivation.feeds, network, derivation.resolver):
                network.nodes[node.key] = node
                if node.follows is not None:
                    network.followers.setdefault(node.follows, []).append(node.key)


def _reaches(network: Network, start: OutputRef | None, waiting: Collection[str]) -> bool:
    """Whether an output depends on a derived block that is not expanded yet."""
    seen: set[str] = set()
    open_nodes = [] if start is None else [start.node]
    while open_nodes:
        key = open_nodes.pop()
        if key in waiting:
            return True
        if key in network.nodes and key not in seen:
            seen.add(key)
            open_nodes += [source for _, source in network.nodes[key].dependencies()]
    return False


def find_keys(graph: Graph, block: Block, prefix: str = "") -> list[str]:
    """The keys of a block in the network of a graph: one for each use of the composites around it."""
    keys: list[str] = []
    waiting = [(block.home, path_part(block.name))]
    while waiting:  # upwards to `graph`: the cost is the nesting depth
        inner, path = waiting.pop()
        if inner is graph:
            keys.append(prefix + path)
        elif inner is not None:
            waiting += [(around.home, _inner_prefix("", around, label) + path) for around, label in inner.uses]
    return keys


def output_keys(graph: Graph, pin: Pin, prefix: str = "", running: Network | None = None) -> list[OutputRef]:
    """The node outputs behind an output pin. That of a composite is the output of an inner block.

    With `running`, looks for nodes of the running network, which may no longer be in the graph.
    """
    inside = ""
    bases = find_keys(graph, pin.block, prefix)
    while isinstance(pin.block, Composite) and not isinstance(pin.block, Region):
        inner = pin.block.inner_output(pin.name)
        if inner is None and running is not None:
            inner = pin.block.inner_outputs.get(pin.name)
        if inner is None:
            return []
        pin, inside = inner, f"{inside}/{path_part(inner.block.name)}"
    if pin.name in pin.block.outputs and running is None:
        return [OutputRef(base + inside, pin.name) for base in bases]
    nodes = {} if running is None else running.nodes
    still = (base + inside for base in bases if base + inside in nodes)
    return [OutputRef(key, pin.name) for key in still if nodes[key].block is pin.block]


def _inner_prefix(prefix: str, block: Block, label: str) -> str:
    several = isinstance(block, Region) and len(block.bodies) > 1
    around = f"{prefix}{path_part(block.name)}/"
    return f"{around}{label}/" if several else around


def flatten_graph(graph: Graph, previous: Network | None = None) -> Network:
    """The network of a whole graph. Unchanged nodes are taken from the previous network."""
    network = Network()
    derived = _Flattening(graph, "").add_nodes(network, {} if previous is None else previous.nodes)
    expand_derived(network, derived)
    for key, node in network.nodes.items():
        network.keys[node.block] = (*network.keys.get(node.block, ()), key)
    if derived:
        needed = [derivation.block.needs(derivation.resolver) for derivation in derived.values()]
        network.derivation = _nodes_behind(network, {*derived, *(ref.node for ref in needed if ref is not None)})
    return network


def _nodes_behind(network: Network, needed: Collection[str]) -> frozenset[str]:
    """These nodes, derived nodes, and all nodes that they read or are derived from, directly or indirectly.

    An output need not depend on the pins that it is differentiated by: a later connection may make it.
    """
    keys: set[str] = set()
    waiting = [key for key, node in network.nodes.items() if node.follows is not None or key in needed]
    while waiting:
        key = waiting.pop()
        if key not in keys and key in network.nodes:
            keys.add(key)
            node = network.nodes[key]
            waiting += [*node.sources, *(() if node.follows is None else (node.follows,))]
    return frozenset(keys)


class SeveralUses(Exception):
    """A block has several nodes: a composite around it is used more than once."""


def flatten_block(graph: Graph, block: Block) -> NetworkNode | None:
    """The node of a block in a graph or in a composite inside; None if it is not there, or derived.

    Raises `SeveralUses` if it has several nodes.
    """
    home = block.home
    flattening = None if home is None or home.blocks.get(block.name) is not block else _flattening_of(graph, home)
    if flattening is None or isinstance(block, DerivedBlock):
        return None
    return flattening.make_node(block)


def _flattening_of(graph: Graph, inner: Graph) -> _Flattening | None:
    """The flattening of a graph inside composites; None if a region is around it, or if it is not inside."""
    composites: list[Composite] = []
    while inner is not graph:
        if len(inner.uses) > 1:
            raise SeveralUses
        around = inner.uses[0][0] if inner.uses else None
        if not isinstance(around, Composite) or isinstance(around, Region) or around.home is None:
            return None
        composites.append(around)
        inner = around.home
    flattening = _Flattening(graph, "")
    for composite in reversed(composites):
        flattening = flattening.inside(composite)
    return flattening


def _leaves_composite(source: Source | None) -> bool:
    return source.__class__ is Edge and source.source.block.__class__ is Composite  # type: ignore[union-attr]


MOST_NESTED = 64  # nested regions: each level is a nested call when it is compiled and when it runs


class _Flattening:
    """One graph of the hierarchy: the prefix of its keys, the composite around it, and the exposed inputs."""

    def __init__(
        self,
        graph: Graph,
        prefix: str,
        outer: _Flattening | None = None,
        around: Composite | None = None,
        body: Composite | None = None,
    ) -> None:
        self.graph, self.prefix, self.outer, self.around = graph, prefix, outer, around
        self._depth: int = (0 if outer is None else outer._depth) + isinstance(around, Region)  # regions around it
        exposed = {} if body is None else body.inner_inputs
        # By block and name: an edit may remove a pin, and another may add it again as a new object.
        self._exposed = {(pin.block, pin.name): name for name, pins in exposed.items() for pin in pins}
        self._inside: dict[Composite, _Flattening] = {}

    def key_of(self, block: Block) -> str:
        return self.prefix + path_part(block.name)

    def inside(self, block: Composite) -> _Flattening:
        """The flattening of the graph inside a composite."""
        inner = self._inside.get(block)
        if inner is None:
            prefix = _inner_prefix(self.prefix, block, "")
            inner = self._inside[block] = _Flattening(block.graph, prefix, self, block, block)
        return inner

    def add_nodes(
        self, network: Network, previous_nodes: Mapping[str, NetworkNode] = MappingProxyType({})
    ) -> dict[str, Derivation]:
        """Adds the nodes of this graph and of inner composites, in order. Returns the derived blocks."""
        derived: dict[str, Derivation] = {}
        open_graphs: list[tuple[_Flattening, Iterator[Block]]] = [(self, iter(self.graph.blocks.values()))]
        while open_graphs:
            level, blocks = open_graphs[-1]
            block = next(blocks, None)
            if block is None:
                open_graphs.pop()
            elif isinstance(block, Composite) and not isinstance(block, Region):
                inner = level.inside(block)
                open_graphs.append((inner, iter(inner.graph.blocks.values())))
            elif isinstance(block, DerivedBlock):
                derived[level.key_of(block)] = level.make_derivation(block)
            else:
                key = level.key_of(block)
                network.nodes[key] = level.make_node(block, previous_nodes.get(key))
        return derived

    def make_derivation(self, block: DerivedBlock) -> Derivation:
        """A derived block of this graph."""
        feeds = {name: self.feed(pin) for name, pin in block.inputs.items()}
        return Derivation(block, feeds, PinResolver(self.graph, self.prefix))

    def make_node(self, block: Block, previous: NetworkNode | None = None) -> NetworkNode:
        """The node of a block: the previous one if the block and the sources of its pins are unchanged."""
        key = self.key_of(block)
        if isinstance(block, Region):
            return self._make_region_node(key, block)
        sources = self.graph.sources
        pin_sources = [sources.get(pin) for pin in block.inputs.values()]
        body = getattr(block, "body", None)  # states and append buffers have none
        names = [source.source.block.name for source in pin_sources if isinstance(source, Edge)]  # edges have keys
        is_unchanged = previous is not None and previous.block is block and previous.flattened_body is body
        if previous is not None and is_unchanged and previous.pin_sources == [*pin_sources, *names]:
            return previous
        node = self._with_feeds(NetworkNode(key, block, {}), block.inputs)
        # Otherwise the node also depends on the sources of the composite around it, or on the inside of another one.
        if (self.around is None or None not in pin_sources) and not any(map(_leaves_composite, pin_sources)):
            node.pin_sources, node.flattened_body = [*pin_sources, *names], body
        return node

    def _with_feeds(self, node: NetworkNode, pins: Mapping[str, Pin]) -> NetworkNode:
        for name, pin in pins.items():
            node.feeds[name] = ref = self.feed(pin)
            if ref is None:
                level, outer_pin, source = self._source(pin)
                dormant = level.graph.dormant.get(outer_pin)
                if isinstance(source, Edge):
                    node.missing[name] = f"it is connected to `{source.source}`, which no longer exists"
                elif isinstance(dormant, Edge):
                    node.missing[name] = f"it was connected to `{dormant.source}`, which no longer exists"
        return node

    def _source(self, pin: Pin) -> tuple[_Flattening, Pin, Source | CarryRef | None]:
        """The source of an input, from its own graph or one around it: that graph, the pin there, and the source."""
        level = self
        while (source := level.graph.sources.get(pin)) is None:
            name = level._exposed.get((pin.block, pin.name))
            if name is None or level.outer is None or level.around is None:
                return level, pin, None
            if isinstance(level.around, Region) and (name in level.around.carried or name == level.around.index_name):
                return level, pin, CarryRef(carry_key(level.outer.key_of(level.around), name))
            pin, level = level.around.inputs[name], level.outer
        return level, pin, source

    def feed(self, pin: Pin) -> Ref | None:
        """What feeds an input; None if nothing does, or if it no longer exists."""
        level, root_pin, source = self._source(pin)
        if isinstance(source, Edge):
            return level.output(source.source)
        if isinstance(source, CarryRef):
            return source
        if source is None:
            level, root_pin = self, pin  # the default of the inner pin
            source = self.graph.source_of(pin)
            if source is None or isinstance(source, Edge):
                return None
        return RootRef(pin_key(level.key_of(root_pin.block), root_pin.name), source, root_pin)

    def output(self, pin: Pin) -> OutputRef | None:
        """The node output behind an output pin; None if it does not exist."""
        level = self
        while level.graph.blocks.get(pin.block.name) is pin.block:
            if not isinstance(pin.block, Composite) or isinstance(pin.block, Region):
                return OutputRef(level.key_of(pin.block), pin.name) if pin.name in pin.block.outputs else None
            inner = pin.block.inner_output(pin.name)
            if inner is None:
                return None
            level, pin = level.inside(pin.block), inner
        return None

    def _make_region_node(self, key: str, region: Region) -> NetworkNode:
        """The node of a region with its bodies. One that is nested too deeply has none, which `validate` reports."""
        bodies = []
        for label, body in region.bodies.items() if self._depth < MOST_NESTED else ():
            network = Network()
            inside = _Flattening(body.graph, _inner_prefix(self.prefix, region, label), self, region, body)
            expand_derived(network, inside.add_nodes(network))
            for name, pin in body.inner_outputs.items():
                ref = inside.output(pin)
                if ref is None:
                    network.missing[name] = f"`{body.name}` exposes `{pin}`, which it no longer contains"
                else:
                    network.outputs[name] = ref
            bodies.append(network)
        node = NetworkNode(key, region, {}, tuple(bodies))
        return self._with_feeds(node, {name: region.inputs[name] for name in (region.control_name, *region.carried)})
