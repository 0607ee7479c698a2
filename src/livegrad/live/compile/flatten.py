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
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.keys import carry_key, path_part, pin_key
from livegrad.live.graph.regions import Region


class DerivedBlock(Block):
    """A block whose work is derived from other blocks. Flattening a graph expands it into nodes."""

    def find_primal_output(self, resolver: PinResolver) -> OutputRef | None:
        """The output from which the block is derived."""
        raise NotImplementedError

    def expand(
        self, key: str, feeds: dict[str, Ref | None], network: Network, resolver: PinResolver
    ) -> list[NetworkNode]:
        """The nodes of the block. The node with the key of the block has its outputs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Derivation:
    """A derived block, the sources of its inputs, and the resolver for pins of its graph."""

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
            prefix = key.removesuffix(path_part(block.name))
            inner = [
                name if name.startswith(f"{node}/") else pin_key(node, name)  # inner regions give complete keys
                for label, body in block.bodies.items()
                for node, name in _inputs_behind(body, pin.name, _inner_prefix(prefix, block, label))
            ]
            return [(key, name) for name in inner]
        return list(_inputs_behind(block, pin.name, f"{key}/"))


def _inputs_behind(composite: Composite, name: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The node inputs that an exposed input feeds."""
    for pin in composite.inner_inputs.get(name, ()):
        if composite.graph.sources.get(pin) is None:  # a source inside the composite takes precedence
            yield from PinResolver(composite.graph, prefix).inputs(pin) or ()


def expand_derived(network: Network, derived: Mapping[str, Derivation]) -> None:
    """Adds the nodes of derived blocks, each after the derived blocks that it depends on."""
    unexpanded = dict(derived)
    while unexpanded:
        ready = [
            key
            for key, derivation in unexpanded.items()
            if not _reaches(network, derivation.block.find_primal_output(derivation.resolver), unexpanded)
        ]
        for key in ready or list(unexpanded):  # none is ready on a cycle, which `sort_nodes` reports
            derivation = unexpanded.pop(key)
            for node in derivation.block.expand(key, derivation.feeds, network, derivation.resolver):
                network.nodes[node.key] = node
                if node.follows is not None:
                    network.followers.setdefault(node.follows, []).append(node.key)


def _reaches(network: Network, start: OutputRef | None, unexpanded: Collection[str]) -> bool:
    """Whether an output depends on a derived block that is not expanded yet."""
    visited: set[str] = set()
    worklist = [] if start is None else [start.node]
    while worklist:
        key = worklist.pop()
        if key in unexpanded:
            return True
        if key in network.nodes and key not in visited:
            visited.add(key)
            worklist += [source for _, source in network.nodes[key].dependencies()]
    return False


def find_keys(graph: Graph, block: Block, prefix: str = "") -> list[str]:
    """The keys of a block in the network of a graph: one for each use of the composites around it."""
    keys: list[str] = []
    worklist = [(block.home, path_part(block.name))]
    while worklist:  # upwards to `graph`: the cost is the nesting depth
        inner, path = worklist.pop()
        if inner is graph:
            keys.append(prefix + path)
        elif inner is not None:
            worklist += [(user.home, _inner_prefix("", user, label) + path) for user, label in inner.uses]
    return keys


def output_keys(graph: Graph, pin: Pin, prefix: str = "", running: Network | None = None) -> list[OutputRef]:
    """The node outputs behind an output pin. A composite's output is the output of an inner block.

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
    running_keys = (base + inside for base in bases if base + inside in nodes)
    return [OutputRef(key, pin.name) for key in running_keys if nodes[key].block is pin.block]


def _inner_prefix(prefix: str, block: Block, label: str) -> str:
    has_labels = isinstance(block, Region) and len(block.bodies) > 1
    path = f"{prefix}{path_part(block.name)}/"
    return f"{path}{label}/" if has_labels else path


def flatten_graph(graph: Graph, previous: Network | None = None) -> Network:
    """The network of a whole graph. Reuses unchanged nodes of the previous network."""
    network = Network()
    derived = _Flattener(graph, "").add_nodes(network, {} if previous is None else previous.nodes)
    expand_derived(network, derived)
    for key, node in network.nodes.items():
        network.keys[node.block] = (*network.keys.get(node.block, ()), key)
    if derived:
        primals = [derivation.block.find_primal_output(derivation.resolver) for derivation in derived.values()]
        network.derivation = _nodes_behind(network, {*derived, *(ref.node for ref in primals if ref is not None)})
    return network


def _nodes_behind(network: Network, starts: Collection[str]) -> frozenset[str]:
    """These nodes, derived nodes, and all nodes that they read or are derived from, directly or indirectly.

    An output need not depend yet on the pins with respect to which it is differentiated: a later edit may connect them.
    """
    keys: set[str] = set()
    worklist = [key for key, node in network.nodes.items() if node.follows is not None or key in starts]
    while worklist:
        key = worklist.pop()
        if key not in keys and key in network.nodes:
            keys.add(key)
            node = network.nodes[key]
            worklist += [*node.sources, *(() if node.follows is None else (node.follows,))]
    return frozenset(keys)


class SeveralUses(Exception):
    """A block has several nodes: a composite around it is used more than once."""


def flatten_block(graph: Graph, block: Block) -> NetworkNode | None:
    """The node of a block in a graph or in a composite of it; None if it is not there or is derived.

    Raises `SeveralUses` if it has several nodes.
    """
    home = block.home
    flattener = None if home is None or home.blocks.get(block.name) is not block else _make_flattener(graph, home)
    if flattener is None or isinstance(block, DerivedBlock):
        return None
    return flattener.make_node(block)


def _make_flattener(graph: Graph, inner: Graph) -> _Flattener | None:
    """The flattener of a graph inside composites; None if a region encloses it, or if it is not inside."""
    composites: list[Composite] = []
    while inner is not graph:
        if len(inner.uses) > 1:
            raise SeveralUses
        parent = inner.uses[0][0] if inner.uses else None
        if not isinstance(parent, Composite) or isinstance(parent, Region) or parent.home is None:
            return None
        composites.append(parent)
        inner = parent.home
    flattener = _Flattener(graph, "")
    for composite in reversed(composites):
        flattener = flattener.inside(composite)
    return flattener


def _leaves_composite(source: Source | None) -> bool:
    return source.__class__ is Edge and source.source.block.__class__ is Composite  # type: ignore[union-attr]


MAX_NESTED = 64  # nested regions: each level is a nested call, both in the compiler and at run time


class _Flattener:
    """Flattens one graph of the hierarchy: has the prefix of its keys, its parent composite, and the exposed inputs."""

    def __init__(
        self,
        graph: Graph,
        prefix: str,
        outer: _Flattener | None = None,
        parent: Composite | None = None,
        body: Composite | None = None,
    ) -> None:
        self.graph, self.prefix, self.outer, self.parent = graph, prefix, outer, parent
        self._depth: int = (0 if outer is None else outer._depth) + isinstance(parent, Region)  # enclosing regions
        exposed = {} if body is None else body.inner_inputs
        # By block and name: an edit may remove a pin, and another may add it again as a new object.
        self._exposed = {(pin.block, pin.name): name for name, pins in exposed.items() for pin in pins}
        self._inside: dict[Composite, _Flattener] = {}

    def key_of(self, block: Block) -> str:
        return self.prefix + path_part(block.name)

    def inside(self, block: Composite) -> _Flattener:
        """The flattener of the graph inside a composite."""
        inner = self._inside.get(block)
        if inner is None:
            prefix = _inner_prefix(self.prefix, block, "")
            inner = self._inside[block] = _Flattener(block.graph, prefix, self, block, block)
        return inner

    def add_nodes(
        self, network: Network, previous_nodes: Mapping[str, NetworkNode] = MappingProxyType({})
    ) -> dict[str, Derivation]:
        """Adds the nodes of this graph and of inner composites, in order. Returns the derived blocks."""
        derived: dict[str, Derivation] = {}
        open_graphs: list[tuple[_Flattener, Iterator[Block]]] = [(self, iter(self.graph.blocks.values()))]
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
        # Otherwise the node also depends on the sources of its parent, or on the inside of another composite.
        if (self.parent is None or None not in pin_sources) and not any(map(_leaves_composite, pin_sources)):
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

    def _source(self, pin: Pin) -> tuple[_Flattener, Pin, Source | CarryRef | None]:
        """The source of an input: the enclosing graph that has it, the pin in that graph, and the source."""
        level = self
        while (source := level.graph.sources.get(pin)) is None:
            name = level._exposed.get((pin.block, pin.name))
            if name is None or level.outer is None or level.parent is None:
                return level, pin, None
            if isinstance(level.parent, Region) and (name in level.parent.carried or name == level.parent.index_name):
                return level, pin, CarryRef(carry_key(level.outer.key_of(level.parent), name))
            pin, level = level.parent.inputs[name], level.outer
        return level, pin, source

    def feed(self, pin: Pin) -> Ref | None:
        """What feeds an input; None if it has no source, or its source no longer exists."""
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
        """The node of a region with its bodies; without bodies if regions nest too deeply, which `validate` reports."""
        bodies = []
        for label, body in region.bodies.items() if self._depth < MAX_NESTED else ():
            network = Network()
            inside = _Flattener(body.graph, _inner_prefix(self.prefix, region, label), self, region, body)
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
