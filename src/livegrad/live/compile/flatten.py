"""Flattens nested graphs to one network: composites are dissolved, and every input refers to its actual source.

The first phase of the graph compiler. Regions are kept, with a network for each body. Gradient blocks are expanded to
nodes here, so that they follow the blocks they are derived from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from livegrad.live.compile.network import CarryRef, Network, NetworkNode, OutputRef, Ref, RootRef
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Edge, Graph, Source
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.keys import carry_key, path_part, pin_key
from livegrad.live.graph.regions import Region


class DerivedBlock(Block):
    """A block whose work follows from other blocks: it is expanded into nodes whenever a graph is flattened."""

    def needs(self, places: Places) -> OutputRef | None:
        """The output that it is derived from."""
        raise NotImplementedError

    def expand(self, key: str, feeds: dict[str, Ref | None], network: Network, places: Places) -> list[NetworkNode]:
        """Its nodes; the one with the block's own key has the block's outputs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Derivation:
    """A derived block in its place."""

    block: DerivedBlock
    feeds: dict[str, Ref | None]
    places: Places


class Places:
    """Finds what a pin stands for among the nodes of a network."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self._graph, self._prefix = graph, prefix

    def output(self, pin: Pin) -> OutputRef | None:
        """The node's output behind an output pin; None if the block is not in this graph, or more than once."""
        keys = output_keys(self._graph, pin, self._prefix)
        return keys[0] if len(keys) == 1 else None

    def inputs(self, pin: Pin) -> list[tuple[str, str]] | None:
        """The inputs of nodes behind an input pin, as (node, name); a region's may be inputs of nodes inside it."""
        found = find_keys(self._graph, pin.block, self._prefix)
        if len(found) != 1:
            return None
        block, key = pin.block, found[0]
        if not isinstance(block, Composite):
            return [(key, pin.name)]
        if isinstance(block, Region):
            if pin.name == block.control_name or pin.name in block.carried:
                return [(key, pin.name)]
            around = key.removesuffix(path_part(block.name))
            inner = [
                name if name.startswith(f"{place}/") else pin_key(place, name)  # else a whole key
                for label, body in block.bodies.items()
                for place, name in _behind(body, pin.name, _inner_prefix(around, block, label))
            ]
            return [(key, name) for name in inner]
        return list(_behind(block, pin.name, f"{key}/"))


def _behind(composite: Composite, name: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The inputs of nodes that an exposed input feeds."""
    for pin in composite.inner_inputs.get(name, ()):
        if composite.graph.sources.get(pin) is None:  # else it is fed from inside
            yield from Places(composite.graph, prefix).inputs(pin) or ()


def expand_derived(network: Network, derived: Mapping[str, Derivation]) -> None:
    """Puts the nodes of derived blocks in; one that derives from another waits for it."""
    waiting = dict(derived)
    while waiting:
        ready = [key for key, one in waiting.items() if not _reaches(network, one.block.needs(one.places), waiting)]
        for key in ready or list(waiting):  # those that wait for each other are on a cycle, which is reported as one
            one = waiting.pop(key)
            for node in one.block.expand(key, one.feeds, network, one.places):
                network.nodes[node.key] = node
                if node.follows is not None:
                    network.followers.setdefault(node.follows, []).append(node.key)


def _reaches(network: Network, start: OutputRef | None, waiting: Collection[str]) -> bool:
    """Whether what an output depends on is derived and not there yet."""
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
    """The keys of a block in the network of a graph: as many as there are uses of the composites that it is in."""
    found: list[str] = []
    waiting = [(block.home, path_part(block.name))]
    while waiting:  # up to the graph asked for; the way is as long as blocks are deep
        inner, path = waiting.pop()
        if inner is graph:
            found.append(prefix + path)
        elif inner is not None:
            waiting += [(around.home, _inner_prefix("", around, label) + path) for around, label in inner.uses]
    return found


def output_keys(graph: Graph, pin: Pin, prefix: str = "", running: Network | None = None) -> list[OutputRef]:
    """The outputs of nodes behind an output pin: a composite's is that of a block inside.

    `running` has nodes that may be there still when they are no more in the graph.
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


def flatten_graph(graph: Graph, known: Network | None = None) -> Network:
    """The network of a whole graph; nodes that are as in one that is known are taken from there."""
    network = Network()
    derived = _Flattening(graph, "").fill(network, {} if known is None else known.nodes)
    expand_derived(network, derived)
    for key, node in network.nodes.items():
        network.keys[node.block] = (*network.keys.get(node.block, ()), key)
    if derived:
        network.derivation = _nodes_behind(network, derived)
    return network


def _nodes_behind(network: Network, blocks: Iterable[str]) -> frozenset[str]:
    """The nodes of derived blocks, and those that they read or follow, directly or not."""
    found: set[str] = set()
    waiting = [key for key, node in network.nodes.items() if node.follows is not None or key in blocks]
    while waiting:
        key = waiting.pop()
        if key not in found and key in network.nodes:
            found.add(key)
            node = network.nodes[key]
            waiting += [*node.sources, *(() if node.follows is None else (node.follows,))]
    return frozenset(found)


class SeveralPlaces(Exception):
    """A block is at several places of a graph at once."""


def flatten_block(graph: Graph, block: Block) -> NetworkNode | None:
    """The node of a block of a graph, or of a composite inside; None if it is not there, or derived.

    Raises `SeveralPlaces` if it has several nodes: a composite around it is used more than once.
    """
    home = block.home
    flattening = None if home is None or home.blocks.get(block.name) is not block else _flattening_of(graph, home)
    if flattening is None or isinstance(block, DerivedBlock):
        return None
    return flattening.node(block)


def _flattening_of(graph: Graph, inner: Graph) -> _Flattening | None:
    """How a graph inside of composites is flattened; None if there is a region around it, or no way to it."""
    way: list[Composite] = []
    while inner is not graph:
        if len(inner.uses) > 1:
            raise SeveralPlaces
        around = inner.uses[0][0] if inner.uses else None
        if not isinstance(around, Composite) or isinstance(around, Region) or around.home is None:
            return None
        way.append(around)
        inner = around.home
    found = _Flattening(graph, "")
    for composite in reversed(way):
        found = found.inside(composite)
    return found


def _leaves_composite(source: Source | None) -> bool:
    return source.__class__ is Edge and source.source.block.__class__ is Composite  # type: ignore[union-attr]


MOST_NESTED = 64  # regions in regions: each of them is a call in a call when it is compiled, and when it runs


class _Flattening:
    """One graph in its place: the prefix of its names, and the body around it with what of it is exposed."""

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
        # By block and name: a pin that an edit took away and another brought back is the same.
        self._exposed = {(pin.block, pin.name): name for name, pins in exposed.items() for pin in pins}
        self._inside: dict[Composite, _Flattening] = {}

    def key_of(self, block: Block) -> str:
        return self.prefix + path_part(block.name)

    def inside(self, block: Composite) -> _Flattening:
        """The graph inside of a composite."""
        found = self._inside.get(block)
        if found is None:
            prefix = _inner_prefix(self.prefix, block, "")
            found = self._inside[block] = _Flattening(block.graph, prefix, self, block, block)
        return found

    def fill(self, network: Network, known: Mapping[str, NetworkNode] = MappingProxyType({})) -> dict[str, Derivation]:
        """Adds the nodes of this graph and of composites inside, in order; gives the derived blocks among them."""
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
                derived[level.key_of(block)] = level.derivation(block)
            else:
                key = level.key_of(block)
                network.nodes[key] = level.node(block, known.get(key))
        return derived

    def derivation(self, block: DerivedBlock) -> Derivation:
        """A derived block in this place."""
        feeds = {name: self.feed(pin) for name, pin in block.inputs.items()}
        return Derivation(block, feeds, Places(self.graph, self.prefix))

    def node(self, block: Block, known: NetworkNode | None = None) -> NetworkNode:
        """The node of a block: the one that is known, if the block and what was given to its pins are the same."""
        key = self.key_of(block)
        if isinstance(block, Region):
            return self._region(key, block)
        sources = self.graph.sources
        given = [sources.get(pin) for pin in block.inputs.values()]
        body = getattr(block, "body", None)  # states and append buffers have none
        if known is not None and known.block is block and known.given_to is body and known.given == given:
            return known
        node = self._with_feeds(NetworkNode(key, block, {}), block.inputs)
        # Else it depends on what feeds the block around, or on what is inside of a composite.
        if (self.around is None or None not in given) and not any(map(_leaves_composite, given)):
            node.given, node.given_to = given, body
        return node

    def _with_feeds(self, node: NetworkNode, pins: Mapping[str, Pin]) -> NetworkNode:
        for name, pin in pins.items():
            node.feeds[name] = ref = self.feed(pin)
            if ref is None and isinstance(edge := self._source(pin)[2], Edge):
                node.missing[name] = f"it is connected to `{edge.source}`, which no longer exists"
        return node

    def _source(self, pin: Pin) -> tuple[_Flattening, Pin, Source | CarryRef | None]:
        """Where an input is given something, in its own graph or in one around: the graph, the pin there, and what."""
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
        """What reaches an input; None if nothing does, or what is not there."""
        level, given, source = self._source(pin)
        if isinstance(source, Edge):
            return level.output(source.source)
        if isinstance(source, CarryRef):
            return source
        if source is None:
            level, given = self, pin  # a default is that of the pin inside
            source = self.graph.source_of(pin)
            if source is None or isinstance(source, Edge):
                return None
        return RootRef(pin_key(level.key_of(given.block), given.name), source, given)

    def output(self, pin: Pin) -> OutputRef | None:
        """The node's output behind an output pin; None if it is not there."""
        level = self
        while level.graph.blocks.get(pin.block.name) is pin.block:
            if not isinstance(pin.block, Composite) or isinstance(pin.block, Region):
                return OutputRef(level.key_of(pin.block), pin.name) if pin.name in pin.block.outputs else None
            inner = pin.block.inner_output(pin.name)
            if inner is None:
                return None
            level, pin = level.inside(pin.block), inner
        return None

    def _region(self, key: str, region: Region) -> NetworkNode:
        """A region with its bodies; without any if it is too deep, which `validate` reports."""
        bodies = []
        for label, body in region.bodies.items() if self._depth < MOST_NESTED else ():
            network = Network()
            inside = _Flattening(body.graph, _inner_prefix(self.prefix, region, label), self, region, body)
            expand_derived(network, inside.fill(network))
            for name, pin in body.inner_outputs.items():
                ref = inside.output(pin)
                if ref is None:
                    network.missing[name] = f"`{body.name}` exposes `{pin}`, which it no longer contains"
                else:
                    network.outputs[name] = ref
            bodies.append(network)
        node = NetworkNode(key, region, {}, tuple(bodies))
        return self._with_feeds(node, {name: region.inputs[name] for name in (region.control_name, *region.carried)})
