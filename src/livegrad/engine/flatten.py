"""A graph with graphs inside as one network: composites dissolved, every input with what really feeds it.

The first phase of `engine.compile`. Regions stay whole, with a network for each of their bodies. Blocks that derive
their work from others (gradients) are expanded into nodes here, so that they follow whatever they were derived from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from livegrad.engine.graph import Block, Body, Composite, Edge, Graph, Pin, Source, State
from livegrad.engine.regions import Region
from livegrad.engine.sources import Binding, Setting


@dataclass(frozen=True)
class OutputRef:
    """An output of a node."""

    node: str
    pin: str

    @property
    def key(self) -> str:
        return f"{self.node}.{self.pin}"


@dataclass(frozen=True, eq=False)
class RootRef:
    """A value from outside, under the key of the input that it was given to."""

    key: str
    source: Setting | Binding


@dataclass(frozen=True)
class CarryRef:
    """A variable of the loop around."""

    key: str


Ref = OutputRef | RootRef | CarryRef


@dataclass
class NetworkNode:
    """A block in its place: `feeds` has what reaches each input (None: nothing does).

    A node that was derived has a body of its own; `follows` is the node that it was derived from.
    """

    key: str
    block: Block
    feeds: dict[str, Ref | None]
    bodies: tuple[Network, ...] = ()
    own_body: Body | None = None
    follows: str | None = None
    given: list[Source | None] | None = None  # what its pins were fed with in the graph, when that alone makes the node
    given_to: Body | None = None  # and the body that it was fed to, which has the defaults

    @property
    def body(self) -> Body:
        """What it computes."""
        return self.block.body if self.own_body is None else self.own_body

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its results."""
        return tuple(self.block.outputs) if self.own_body is None else self.own_body.outputs

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The nodes that must run before."""
        return tuple(dict.fromkeys(source for _, source in self.dependencies()))

    @cached_property
    def read_keys(self) -> tuple[str, ...]:
        """The buffers among what feeds it that other nodes write."""
        return tuple([ref.key for ref in self.feeds.values() if isinstance(ref, OutputRef | CarryRef)])

    @cached_property
    def output_keys(self) -> tuple[str, ...]:
        """The buffers of its results."""
        return tuple([f"{self.key}.{name}" for name in self.outputs])

    def dependencies(self) -> Iterator[tuple[str, str]]:
        """The nodes that must run before, each with the input that says so. A state's `next` waits for nothing."""
        if isinstance(self.block, State):
            return
        for name, ref in self.feeds.items():
            if isinstance(ref, OutputRef):
                yield name, ref.node
        for body in self.bodies:
            for node in body.nodes.values():
                for name, source in node.dependencies():
                    if source not in body.nodes:
                        yield name, source


@dataclass
class Network:
    """Nodes by key, and (for the body of a region) what its outputs are."""

    nodes: MutableMapping[str, NetworkNode] = field(default_factory=dict)
    outputs: dict[str, OutputRef] = field(default_factory=dict)
    derived: dict[str, Derivation] = field(default_factory=dict)  # by key, until they are expanded
    followers: dict[str, list[str]] = field(default_factory=dict)  # the nodes that were derived from a node

    def all_nodes(self) -> Iterator[NetworkNode]:
        """The nodes, those inside of regions included."""
        for node in self.nodes.values():
            yield node
            for body in node.bodies:
                yield from body.all_nodes()


@dataclass(frozen=True)
class Limit:
    """A counter that has a largest value: the buffer it is in, the node it belongs to, and the value."""

    buffer: str
    node: NetworkNode
    most: int


def limits_of(node: NetworkNode) -> Iterator[Limit]:
    """The counters of a node and of those inside it. One that leaves a region is in the region's own buffer."""
    if not node.bodies:
        for name, most in node.block.limits.items():
            yield Limit(f"{node.key}.{name}", node, most)
    for body in node.bodies:
        leaving = {ref.key: f"{node.key}.{name}" for name, ref in body.outputs.items()}
        for inner in body.nodes.values():
            for limit in limits_of(inner):
                yield replace(limit, buffer=leaving.get(limit.buffer, limit.buffer))


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
        """The node's output behind an output pin; None if the block is not in this graph."""
        while isinstance(pin.block, Composite) and not isinstance(pin.block, Region):
            pin = pin.block.inner_outputs[pin.name]
        found = find_block(self._graph, pin.block, self._prefix)
        return None if found is None else OutputRef(found[1], pin.name)

    def inputs(self, pin: Pin) -> list[tuple[str, str]] | None:
        """The inputs of nodes behind an input pin, as (node, name); a region's may be inputs of nodes inside it."""
        found = find_block(self._graph, pin.block, self._prefix)
        if found is None:
            return None
        block, key = pin.block, found[1]
        if not isinstance(block, Composite):
            return [(key, pin.name)]
        if isinstance(block, Region):
            if pin.name == block.control_name or pin.name in block.carried:
                return [(key, pin.name)]
            inner = [
                name if name.startswith(f"{place}/") else f"{place}.{name}"  # of a region inside: a whole key already
                for label, body in block.bodies.items()
                for place, name in _behind(body, pin.name, _inner_prefix(key.removesuffix(block.name), block, label))
            ]
            return [(key, name) for name in inner]
        return list(_behind(block, pin.name, f"{key}/"))


def _behind(composite: Composite, name: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The inputs of nodes that an exposed input feeds."""
    for pin in composite.inner_inputs.get(name, ()):
        if composite.graph.sources.get(pin) is None:  # else it is fed from inside
            yield from Places(composite.graph, prefix).inputs(pin) or ()


def expand_derived(network: Network) -> None:
    """Puts the nodes of derived blocks in; one that derives from another waits for it."""
    waiting = dict(network.derived)
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


Outer = Callable[[Pin], Ref | None]


def find_block(graph: Graph, block: Block, prefix: str = "") -> tuple[Graph, str] | None:
    """The graph that a block is in, among this one and those inside it, and the block's key in the network."""
    home = inner = block.home
    if home is None:
        return None
    names: list[str] = []
    while inner is not graph:  # up to the graph asked for; the way is as long as blocks are deep
        if inner is None or inner.around is None:
            return None
        around, label = inner.around
        names.append(_inner_prefix("", around, label))
        inner = around.home
    return home, prefix + "".join(reversed(names)) + block.name


def _inner_prefix(prefix: str, block: Block, label: str) -> str:
    several = isinstance(block, Region) and len(block.bodies) > 1
    return f"{prefix}{block.name}/{label}/" if several else f"{prefix}{block.name}/"


def flatten_graph(graph: Graph, known: Network | None = None) -> Network:
    """The network of a whole graph; nodes that are as in one that is known are taken from there."""
    network = Network()
    _Flattening(graph, "", _nothing).fill(network, {} if known is None else known.nodes)
    expand_derived(network)
    return network


def feeds_of(graph: Graph, block: Block) -> tuple[str, dict[str, Ref | None]] | None:
    """The key of a block's node and what feeds its inputs; None if it is not there, or inside of a region."""
    home = block.home
    flattening = None if home is None or home.blocks.get(block.name) is not block else _flattening_of(graph, home)
    if flattening is None:
        return None
    return flattening.prefix + block.name, {name: flattening.feed(pin) for name, pin in block.inputs.items()}


def _flattening_of(graph: Graph, inner: Graph) -> _Flattening | None:
    """How a graph is flattened that is inside of another, in composites only."""
    if inner is graph:
        return _Flattening(graph, "", _nothing)
    around = None if inner.around is None else inner.around[0]
    if not isinstance(around, Composite) or isinstance(around, Region) or around.home is None:
        return None
    outer = _flattening_of(graph, around.home)
    return None if outer is None else outer._inside(around)


def _nothing(pin: Pin) -> None:
    """What feeds the pins of the outermost graph from outside."""


class _Flattening:
    """One graph, the prefix of its names, and how to find what feeds a pin from outside."""

    def __init__(self, graph: Graph, prefix: str, outer: Outer) -> None:
        self.graph, self.prefix, self.outer = graph, prefix, outer

    def fill(self, network: Network, known: Mapping[str, NetworkNode] = MappingProxyType({})) -> None:
        for block in self.graph.blocks.values():
            if isinstance(block, Region):
                network.nodes[self.prefix + block.name] = self._region(block)
            elif isinstance(block, Composite):
                self._inside(block).fill(network, known)
            elif isinstance(block, DerivedBlock):
                feeds = {name: self.feed(pin) for name, pin in block.inputs.items()}
                key = self.prefix + block.name
                network.derived[key] = Derivation(block, feeds, Places(self.graph, self.prefix))
            else:
                key = self.prefix + block.name
                network.nodes[key] = self._node(key, block, known.get(key))

    def _node(self, key: str, block: Block, known: NetworkNode | None) -> NetworkNode:
        """The node of a block: the one that is known, if the block and what was given to its pins are the same."""
        given = [self.graph.sources.get(pin) for pin in block.inputs.values()]
        body = getattr(block, "body", None)  # states and append buffers have none
        if known is not None and known.block is block and known.given_to is body and known.given == given:
            return known
        node = NetworkNode(key, block, {name: self.feed(pin) for name, pin in block.inputs.items()})
        if self.outer is _nothing or None not in given:  # else it depends on what feeds the block around
            node.given, node.given_to = given, body
        return node

    def feed(self, pin: Pin) -> Ref | None:
        source = self.graph.sources.get(pin)
        if isinstance(source, Edge):
            return self.output(source.source)
        if source is None:
            given = self.outer(pin)
            if given is not None:
                return given
            source = self.graph.source_of(pin)
        if source is None or isinstance(source, Edge):
            return None
        return RootRef(f"{self.prefix}{pin.block.name}.{pin.name}", source)

    def output(self, pin: Pin) -> OutputRef:
        block = pin.block
        if isinstance(block, Composite) and not isinstance(block, Region):
            return self._inside(block).output(block.inner_outputs[pin.name])
        return OutputRef(self.prefix + block.name, pin.name)

    def _inside(self, block: Composite) -> _Flattening:
        names = {inner: name for name, pins in block.inner_inputs.items() for inner in pins}

        def outer(pin: Pin) -> Ref | None:
            name = names.get(pin)
            return None if name is None else self.feed(block.inputs[name])

        return _Flattening(block.graph, f"{self.prefix}{block.name}/", outer)

    def _region(self, region: Region) -> NetworkNode:
        key = self.prefix + region.name
        bodies = []
        for label, body in region.bodies.items():
            names = {inner: name for name, pins in body.inner_inputs.items() for inner in pins}

            def outer(pin: Pin, names: dict[Pin, str] = names) -> Ref | None:
                name = names.get(pin)
                if name is None:
                    return None
                if name in region.carried or name == region.index_name:
                    return CarryRef(f"{key}#{name}")
                return self.feed(region.inputs[name])

            network = Network()
            inside = _Flattening(body.graph, _inner_prefix(self.prefix, region, label), outer)
            inside.fill(network)
            expand_derived(network)
            network.outputs = {name: inside.output(pin) for name, pin in body.inner_outputs.items()}
            bodies.append(network)
        own = [region.control_name, *region.carried]
        feeds = {name: self.feed(region.inputs[name]) for name in own}
        return NetworkNode(key, region, feeds, tuple(bodies))
