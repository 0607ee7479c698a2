"""The network of a live graph: one node per block, and the actual sources of their inputs.

Built by `live.compile.flatten`, read by the other phases of the compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import Block, Body, Pin, State
from livegrad.live.graph.edges import Source
from livegrad.live.graph.keys import item_key, pin_key
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
    """A value or memory that a user set, under the key of the input."""

    key: str
    source: Setting | Binding
    pin: Pin


@dataclass(frozen=True)
class CarryRef:
    """A carried variable of the surrounding loop."""

    key: str


Ref = OutputRef | RootRef | CarryRef


class PullbackBody(Body, Protocol):
    """The body of a node that is derived from another node."""

    def of_primal(self, primal: NetworkNode) -> PullbackBody:
        """The same body for an edited primal node with the same inputs and results."""
        ...


@dataclass
class NetworkNode:
    """A block in the network: `feeds` has the source of each input (None: it has none).

    A derived node has a `derived_body`; `follows` is the key of its primal node.
    """

    key: str
    block: Block
    feeds: dict[str, Ref | None]
    bodies: tuple[Network, ...] = ()
    derived_body: Body | PullbackBody | None = None
    follows: str | None = None
    pin_sources: list[Source | str | None] | None = None  # sources and names, if the node depends on nothing else
    flattened_body: Body | None = None  # the block's body when it was flattened, which has the defaults
    missing: dict[str, str] = field(default_factory=dict)  # messages for inputs whose source no longer exists

    @property
    def body(self) -> Body:
        """The body to specialise."""
        return self.block.body if self.derived_body is None else self.derived_body

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results."""
        return tuple(self.block.outputs) if self.derived_body is None else self.derived_body.outputs

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The nodes that must run before."""
        return tuple(dict.fromkeys(source for _, source in self.dependencies()))

    @cached_property
    def read_keys(self) -> tuple[str, ...]:
        """The keys of the inputs that other nodes write."""
        return tuple([ref.key for ref in self.feeds.values() if isinstance(ref, OutputRef | CarryRef)])

    @cached_property
    def output_keys(self) -> tuple[str, ...]:
        """The keys of its result buffers."""
        return tuple([self.result_key(name) for name in self.outputs])

    def result_key(self, name: str) -> str:
        """The key of a result's buffer. The condition of a while loop is not a pin: its input has that name."""
        if name == "condition" and isinstance(self.block, Region) and self.block.kind == "while":
            return item_key(self.key, name)
        return pin_key(self.key, name)

    def dependencies(self) -> Iterator[tuple[str, str]]:
        """The nodes that must run before, each with the input that reads it. States read `next` last."""
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
    """Nodes by key and, for the body of a region, its outputs."""

    nodes: MutableMapping[str, NetworkNode] = field(default_factory=dict)
    outputs: dict[str, OutputRef] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # messages for outputs that no longer exist
    followers: dict[str, list[str]] = field(default_factory=dict)  # the nodes derived from a node
    order: list[tuple[str, int]] = field(default_factory=list)  # the sorted nodes of a body, with levels
    keys: MutableMapping[Block, tuple[str, ...]] = field(default_factory=dict)  # of nodes, by block; whole graphs only
    derivation: frozenset[str] = frozenset()  # the nodes of derived blocks, and those they are derived from

    def is_value_of(self, step: str, key: str, pin: Pin, setting: Setting) -> bool:
        """Whether a value of a pin replaces the value that a step reads under a key.

        If not, another block has taken the name, or the pin had another source in between. Those are structural edits,
        which set the value themselves.
        """
        worklist = [self.nodes[step]]
        while worklist:
            node = worklist.pop()
            for ref in node.feeds.values():
                if isinstance(ref, RootRef) and ref.key == key and ref.pin is pin:
                    return isinstance(ref.source, Setting) and ref.source.lineage is setting.lineage
            worklist += [inner for body in node.bodies for inner in body.nodes.values()]
        return False

    def all_nodes(self) -> Iterator[NetworkNode]:
        """The nodes, including those inside regions."""
        return with_inner_nodes(self.nodes.values())


def with_inner_nodes(nodes: Iterable[NetworkNode]) -> Iterator[NetworkNode]:
    """Nodes, each followed by the nodes inside it."""
    for node in nodes:
        yield node
        for body in node.bodies:
            yield from body.all_nodes()


@dataclass(frozen=True)
class Limit:
    """A counter with a limit: its buffer, its node, and the limit."""

    buffer: str
    node: NetworkNode
    most: int


def limits_of(node: NetworkNode) -> Iterator[Limit]:
    """The counters of a node and its inner nodes. A counter that a region exposes is in the region's buffer."""
    if not node.bodies:
        for name, most in node.block.limits.items():
            yield Limit(pin_key(node.key, name), node, most)
    for body in node.bodies:
        exposed = {ref.key: node.result_key(name) for name, ref in body.outputs.items()}
        for inner in body.nodes.values():
            for limit in limits_of(inner):
                yield replace(limit, buffer=exposed.get(limit.buffer, limit.buffer))


# --- inputs and results of nodes -------------------------------------------------------------------------------------


def inputs_of(node: NetworkNode) -> dict[str, Ref | None]:
    """All inputs of a node by name. A region reads its control, loop variables, and what its bodies read."""
    if isinstance(node.block, AppendBuffer):
        totals = {f"{name}#total": _total_of(ref) for name, ref in node.feeds.items()}
        return {**node.feeds, **totals}
    if not node.bodies:
        return node.feeds
    return {**node.feeds, **dict(_free_inputs(node, frozenset()))}


def _total_of(ref: Ref | None) -> Ref | None:
    return OutputRef(ref.node, "total") if isinstance(ref, OutputRef) else None


def _free_inputs(region: NetworkNode, inside: frozenset[str]) -> Iterator[tuple[str, Ref | None]]:
    """The inputs that the bodies of a region read from outside of it."""
    for body in region.bodies:
        inner_nodes = inside | body.nodes.keys()
        for inner in body.nodes.values():
            for name, ref in inputs_of(inner).items() if not inner.bodies else inner.feeds.items():
                if not (isinstance(ref, OutputRef) and ref.node in inner_nodes) and not _is_carried(
                    ref, region, inner_nodes
                ):
                    yield pin_key(inner.key, name), ref
            if inner.bodies:
                for name, ref in _free_inputs(inner, inner_nodes):
                    if not _is_carried(ref, region, inner_nodes):
                        yield name, ref


def _is_carried(ref: Ref | None, region: NetworkNode, inside: frozenset[str]) -> bool:
    """Whether this is a loop variable of this region or of an inner region."""
    if not isinstance(ref, CarryRef):
        return False
    owner = ref.key.rpartition("#")[0]
    return owner == region.key or owner in inside


def results_of(node: NetworkNode) -> tuple[str, ...]:
    """The result names of a node. For a region, includes results that are not pins, such as a loop's condition."""
    return tuple(node.bodies[0].outputs) if node.bodies else node.outputs
