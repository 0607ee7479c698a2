"""A graph with graphs inside as one network: composites dissolved, every input with what really feeds it.

The first phase of `engine.compile`. Regions stay whole, with a network for each of their bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from livegrad.engine.graph import Block, Composite, Edge, Graph, Pin, State
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
    """A block in its place: `feeds` has what reaches each input (None: nothing does)."""

    key: str
    block: Block
    feeds: dict[str, Ref | None]
    bodies: tuple[Network, ...] = ()

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

    nodes: dict[str, NetworkNode] = field(default_factory=dict)
    outputs: dict[str, OutputRef] = field(default_factory=dict)

    def all_nodes(self) -> Iterator[NetworkNode]:
        """The nodes, those inside of regions included."""
        for node in self.nodes.values():
            yield node
            for body in node.bodies:
                yield from body.all_nodes()


Outer = Callable[[Pin], Ref | None]


def find_block(graph: Graph, block: Block, prefix: str = "") -> tuple[Graph, str] | None:
    """The graph that a block is in, among this one and those inside it, and the block's key in the network."""
    if graph.blocks.get(block.name) is block:
        return graph, prefix + block.name
    for own in graph.blocks.values():
        for label, inner in own.inner_graphs():
            found = find_block(inner, block, _inner_prefix(prefix, own, label))
            if found is not None:
                return found
    return None


def _inner_prefix(prefix: str, block: Block, label: str) -> str:
    several = isinstance(block, Region) and len(block.bodies) > 1
    return f"{prefix}{block.name}/{label}/" if several else f"{prefix}{block.name}/"


def flatten_graph(graph: Graph) -> Network:
    """The network of a whole graph."""
    network = Network()
    _Flattening(graph, "", lambda pin: None).fill(network)
    return network


def feeds_of(graph: Graph, block: Block) -> dict[str, Ref | None]:
    """What feeds the inputs of a block of the outermost graph."""
    flattening = _Flattening(graph, "", lambda pin: None)
    return {name: flattening.feed(pin) for name, pin in block.inputs.items()}


class _Flattening:
    """One graph, the prefix of its names, and how to find what feeds a pin from outside."""

    def __init__(self, graph: Graph, prefix: str, outer: Outer) -> None:
        self.graph, self.prefix, self.outer = graph, prefix, outer

    def fill(self, network: Network) -> None:
        for block in self.graph.blocks.values():
            if isinstance(block, Region):
                network.nodes[self.prefix + block.name] = self._region(block)
            elif isinstance(block, Composite):
                self._inside(block).fill(network)
            else:
                key = self.prefix + block.name
                feeds = {name: self.feed(pin) for name, pin in block.inputs.items()}
                network.nodes[key] = NetworkNode(key, block, feeds)

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
            network.outputs = {name: inside.output(pin) for name, pin in body.inner_outputs.items()}
            bodies.append(network)
        own = [region.control_name, *region.carried]
        feeds = {name: self.feed(region.inputs[name]) for name in own}
        return NetworkNode(key, region, feeds, tuple(bodies))
