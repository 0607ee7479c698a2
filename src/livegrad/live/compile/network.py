"""The network of a live graph: one node per block, and the actual sources of their inputs.

Built by `live.compile.flatten`, read by the other phases of the compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from livegrad.live.graph.block import Block, Body, Pin, State
from livegrad.live.graph.block_graph import Source
from livegrad.live.graph.keys import own_key, pin_key
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import Binding, Setting


@dataclass(frozen=True)
class OutputRef:
    """An output of a node."""

    node: str
    pin: str

    @property
    def key(self) -> str:
        return pin_key(self.node, self.pin)


@dataclass(frozen=True, eq=False)
class RootRef:
    """A value from outside, under the key of the input that it was given to."""

    key: str
    source: Setting | Binding
    pin: Pin


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
    missing: dict[str, str] = field(default_factory=dict)  # what to say of inputs that something lost would feed

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
        return tuple([self.result_key(name) for name in self.outputs])

    def result_key(self, name: str) -> str:
        """The buffer of one of its results. A loop's own condition is none of its pins: one of these has that name."""
        if name == "condition" and isinstance(self.block, Region) and self.block.kind == "while":
            return own_key(self.key, name)
        return pin_key(self.key, name)

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
    missing: dict[str, str] = field(default_factory=dict)  # outputs that are not there, and what to say of them
    followers: dict[str, list[str]] = field(default_factory=dict)  # the nodes that were derived from a node
    order: list[tuple[str, int]] = field(default_factory=list)  # of a body's nodes, with levels, once they are sorted
    keys: MutableMapping[Block, tuple[str, ...]] = field(default_factory=dict)  # of a whole graph's nodes, by block
    derivation: frozenset[str] = frozenset()  # the nodes that derived blocks follow from, and their own

    def is_given_by(self, step: str, key: str, pin: Pin, now: Setting) -> bool:
        """Whether a value for a pin continues what a step reads under a key.

        Else another block has the name by now, or the pin was fed by something else in between: that is an edit of the
        structure, which brings the value with it.
        """
        waiting = [self.nodes[step]]
        while waiting:
            node = waiting.pop()
            for ref in node.feeds.values():
                if isinstance(ref, RootRef) and ref.key == key and ref.pin is pin:
                    return isinstance(ref.source, Setting) and ref.source.line is now.line
            waiting += [inner for body in node.bodies for inner in body.nodes.values()]
        return False

    def all_nodes(self) -> Iterator[NetworkNode]:
        """The nodes, those inside of regions included."""
        return with_inner_nodes(self.nodes.values())


def with_inner_nodes(nodes: Iterable[NetworkNode]) -> Iterator[NetworkNode]:
    """Nodes, each followed by those inside of it."""
    for node in nodes:
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
            yield Limit(pin_key(node.key, name), node, most)
    for body in node.bodies:
        leaving = {ref.key: node.result_key(name) for name, ref in body.outputs.items()}
        for inner in body.nodes.values():
            for limit in limits_of(inner):
                yield replace(limit, buffer=leaving.get(limit.buffer, limit.buffer))
