"""The description of a live graph in the model of the random editor, and every block of it where it stands.

`engine_check` finds what is wrong with a description, `engine_evaluate` its values: everything is made anew each time,
nothing remembers, compares or shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.engine_bodies import Body

# --- the description --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Leaf:
    """A block with a function."""

    name: str
    body: Body

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.body.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.body.outputs

    def default(self, pin: str) -> Any:
        return self.body.inputs[pin]


@dataclass(eq=False)
class Memory:
    """A State."""

    name: str
    initial: np.ndarray
    inputs: tuple[str, ...] = ("next",)
    outputs: tuple[str, ...] = ("value",)

    def default(self, pin: str) -> Any:
        return None


@dataclass(eq=False)
class Group:
    """A Composite."""

    name: str
    net: Net
    inner_inputs: dict[str, list[Place]] = field(default_factory=dict)
    inner_outputs: dict[str, Place] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.inner_inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.inner_outputs)

    def default(self, pin: str) -> Any:
        return None


CONTROLS = {"if": "condition", "if_else": "condition", "switch": "index", "for": "count", "while": "condition"}


@dataclass(eq=False)
class Choice:
    """A region: which, whether or how often its bodies run."""

    name: str
    kind: str
    bodies: dict[str, Group]
    carried: dict[str, str]

    @property
    def control(self) -> str:
        return CONTROLS[self.kind]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Its control, and whatever its bodies expose."""
        pins = dict.fromkeys([self.control, *(pin for body in self.bodies.values() for pin in body.inputs)])
        return tuple(pin for pin in pins if self.kind != "for" or pin != "index")

    @property
    def outputs(self) -> tuple[str, ...]:
        """What its bodies expose; the condition of a loop stays inside."""
        pins = dict.fromkeys(pin for body in self.bodies.values() for pin in body.outputs)
        return tuple(pin for pin in pins if self.kind != "while" or pin != "condition")

    @property
    def is_refused(self) -> bool:
        """Whether no region may be made of these bodies: outputs that differ, or two pins of one name."""
        outputs = [set(body.outputs) for body in self.bodies.values()]
        inner = {pin for body in self.bodies.values() for pin in body.inputs}
        inner -= {"index"} if self.kind == "for" else set()
        twice = self.control in inner or not (inner | {self.control}).isdisjoint(self.outputs)
        return twice or any(own != outputs[0] for own in outputs)

    def default(self, pin: str) -> Any:
        return None


Node = Leaf | Memory | Group | Choice
Place = tuple[Any, str]  # a node and one of its pins


@dataclass(frozen=True, eq=False)
class Edge:
    """An input that is fed by an output."""

    node: Node
    pin: str


@dataclass(frozen=True, eq=False)
class Given:
    """A number or an array that was set. Values that follow each other, and nothing else between, have one line."""

    value: Any
    line: Any = field(default_factory=object)

    @property
    def is_number(self) -> bool:
        return not isinstance(self.value, np.ndarray)

    @property
    def kind(self) -> Any:
        """What stays the same when only the value changes."""
        array = np.asarray(self.value)
        return self.value.__class__ if self.is_number else (array.dtype, array.shape)


@dataclass(frozen=True, eq=False)
class Bound:
    """Memory of someone else: always read as it is, and touched whenever it was written."""

    external: Any
    shape: tuple[int, ...]

    @property
    def is_resized(self) -> bool:
        """Whether it has another size than it was bound with: nobody can read it."""
        return self.external.array.shape != self.shape

    @property
    def array(self) -> np.ndarray:
        array = self.external.array
        return np.ones(self.shape, array.dtype) if self.is_resized else array


def bound_to(external: Any) -> Bound:
    """Memory as it is when it is bound."""
    return Bound(external, external.array.shape)


Source = Edge | Given | Bound


@dataclass(eq=False)
class Net:
    """A graph: nodes by name and what feeds their inputs."""

    nodes: dict[str, Node] = field(default_factory=dict)
    sources: dict[Place, Source] = field(default_factory=dict)
    dormant: dict[Place, Source] = field(default_factory=dict)  # of inputs that a body lacks, until one has them again

    def remove(self, node: Node) -> None:
        del self.nodes[node.name]
        for sources in (self.sources, self.dormant):
            for place, source in list(sources.items()):
                if place[0] is node or (isinstance(source, Edge) and source.node is node):
                    del sources[place]

    def follow_inputs(self, node: Node) -> None:
        """After another body with the same outputs: some inputs are gone, others are back."""
        for place in list(self.sources):
            if place[0] is node and place[1] not in node.inputs:
                self.dormant[place] = self.sources.pop(place)
        for place in [place for place in self.dormant if place[0] is node and place[1] in node.inputs]:
            self.sources[place] = self.dormant.pop(place)


def nets_inside(net: Net) -> list[Net]:
    """A graph and all those inside of it."""
    found = [net]
    for one in found:
        for node in one.nodes.values():
            inner = [node] if isinstance(node, Group) else node.bodies.values() if isinstance(node, Choice) else []
            found += [group.net for group in inner if group.net not in found]
    return found


def paths_of(net: Net, path: str = "") -> Iterator[tuple[str, Node]]:
    """Every node where it stands, composites too."""
    for node in net.nodes.values():
        own = path + _part(node.name)
        yield own, node
        if isinstance(node, Group):
            yield from paths_of(node.net, f"{own}/")
        elif isinstance(node, Choice):
            for label, body in node.bodies.items():
                yield from paths_of(body.net, f"{own}/{label}/" if len(node.bodies) > 1 else f"{own}/")


# --- instances: every block where it stands ---------------------------------------------------------------------------


@dataclass(eq=False)
class Instance:
    """A block where it stands: a composite that is used twice has its blocks twice."""

    path: str
    node: Leaf | Memory | Choice
    feeds: dict[str, Any]  # Root, Output, Carry, None (nothing) or DANGLING, by pin
    bodies: list[Branch] = field(default_factory=list)
    inside: bool = False  # of a region
    body: Body | None = None  # of a leaf, as it was when the description was taken

    def refs(self) -> Iterator[Any]:
        """All that it reads, its bodies included."""
        yield from self.feeds.values()
        for body in self.bodies:
            for inner in body.instances:
                yield from inner.refs()
            yield from body.outputs.values()

    def all_instances(self) -> Iterator[Instance]:
        yield self
        for body in self.bodies:
            for inner in body.instances:
                yield from inner.all_instances()


@dataclass(eq=False)
class Branch:
    """One body of a region where it stands."""

    instances: list[Instance]
    outputs: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Root:
    """A value from outside; `place` is the net, node and pin that it was given to (None: a default)."""

    source: Any
    place: Any = None
    path: str = ""  # of the node


@dataclass(frozen=True)
class Output:
    instance: Instance
    pin: str


@dataclass(frozen=True)
class Carry:
    region: int
    name: str


DANGLING = "dangling"
Outer = Callable[[Node, str], Any]


def _part(name: str) -> str:
    """A name as a part of a path; it may look like one."""
    return name.replace("%", "%25").replace("/", "%2F")


class _Scope:
    """One graph where it stands."""

    def __init__(self, net: Net, path: str, outer: Outer, inside: bool) -> None:
        self.net, self.path, self.outer, self.inside = net, path, outer, inside
        self.made: dict[Node, Any] = {}
        self.instances: list[Instance] = []

    def make_instances(self) -> None:
        """First all blocks, then what feeds them: they may feed each other in any order."""
        for node in self.net.nodes.values():
            if isinstance(node, Group):
                self.made[node] = self._inside(node)
                self.made[node].make_instances()
            else:
                self.made[node] = Instance(
                    self.path + _part(node.name), node, {}, inside=self.inside, body=getattr(node, "body", None)
                )

    def connect(self) -> list[Instance]:
        """Every instance with its feeds."""
        for node, made in self.made.items():
            if isinstance(made, _Scope):
                self.instances += made.connect()
                continue
            self.instances.append(made)
            if isinstance(node, Choice):
                self._connect_region(node, made)
            else:
                made.feeds = {pin: self.feed(node, pin) for pin in node.inputs}
        return self.instances

    def feed(self, node: Node, pin: str) -> Any:
        source, path = self.net.sources.get((node, pin)), self.path + _part(node.name)
        if isinstance(source, Edge):
            return self.output(source.node, source.pin)
        if source is not None:
            return Root(source, (self.net, node, pin), path)
        given = self.outer(node, pin)
        if given is not None:
            return given
        default = node.default(pin)
        return None if default is None else Root(Given(default, (node, pin)), (self.net, node, pin), path)

    def output(self, node: Node, pin: str) -> Any:
        made = self.made.get(node)
        if made is None or pin not in node.outputs:
            return DANGLING
        if isinstance(made, _Scope):
            assert isinstance(node, Group)
            return made.output(*node.inner_outputs[pin])
        return Output(made, pin)

    def _inside(self, group: Group) -> _Scope:
        def outer(node: Node, pin: str) -> Any:
            names = [name for name, places in group.inner_inputs.items() if (node, pin) in places]
            return self.feed(group, names[-1]) if names else None

        return _Scope(group.net, f"{self.path}{_part(group.name)}/", outer, self.inside)

    def _connect_region(self, region: Choice, made: Instance) -> None:
        made.feeds = {pin: self.feed(region, pin) for pin in (region.control, *region.carried)}
        several = len(region.bodies) > 1
        for label, body in region.bodies.items():

            def outer(node: Node, pin: str, body: Group = body) -> Any:
                names = [name for name, places in body.inner_inputs.items() if (node, pin) in places]
                if not names:
                    return None
                if names[-1] in region.carried or (region.kind == "for" and names[-1] == "index"):
                    return Carry(id(made), names[-1])
                return self.feed(region, names[-1])

            path = f"{self.path}{_part(region.name)}/{label}/" if several else f"{self.path}{_part(region.name)}/"
            scope = _Scope(body.net, path, outer, True)
            scope.make_instances()
            instances = scope.connect()
            outputs = {name: scope.output(*place) for name, place in body.inner_outputs.items()}
            made.bodies.append(Branch(instances, outputs))


def instances_of(net: Net) -> tuple[list[Instance], _Scope]:
    """Every block of a description where it stands."""
    scope = _Scope(net, "", lambda node, pin: None, False)
    scope.make_instances()
    return scope.connect(), scope


def order_of(instances: list[Instance]) -> tuple[list[Instance], set[Instance]]:
    """An order in which they can run, and those that are on a cycle or between two."""
    own = set(instances)
    needs = {one: _needs(one, own) for one in instances}
    order: list[Instance] = []
    done: set[Instance] = set()
    while ready := [one for one in instances if one not in done and needs[one] <= done]:
        order += ready
        done |= set(ready)
    left = own - done
    while ends := {one for one in left if not any(one in needs[other] for other in left)}:
        left -= ends
    return order, left


def _needs(one: Instance, among: set[Instance]) -> set[Instance]:
    if isinstance(one.node, Memory):
        return set()
    return {ref.instance for ref in one.refs() if isinstance(ref, Output)} & among
