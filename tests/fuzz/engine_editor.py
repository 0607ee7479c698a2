"""Random edits of a live engine, made twice: on the engine, through its public names, and on the model.

`Editor.edit` makes one edit of a random kind somewhere; valid edits mostly lead to graphs that run, and when a graph
does not run, many edits repair it. What was edited, where and with which kind of value is counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import livegrad as lg
from tests.fuzz.engine_bodies import BODIES, Body
from tests.fuzz.engine_model import Choice, Edge, Given, Group, Leaf, Memory, Net, Node, bound_to

# What most values of a session are: they go together.
PALETTES: dict[str, tuple[str, ...]] = {
    "f32": ("float", "f32", "array f32"),
    "f64": ("float", "f64", "array f64"),
    "i64": ("int", "i64", "array i64"),
    "bool": ("bool", "array bool"),
}
KINDS = ("float", "int", "bool", "f32", "f64", "i64", "array f32", "array f64", "array i64", "array bool")
FAMILIES = {"f32": "float", "f64": "float", "i64": "int", "bool": "bool"}
_TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "bool": np.bool_}
REGIONS = ("if", "if_else", "switch", "for", "while")


@dataclass(frozen=True)
class Focus:
    """What a session does most, so that what is rare by itself is met too."""

    edit: str  # a method
    place: str
    kind: str  # of value


class Editor:
    """An engine, its model, and a source of chance."""

    def __init__(self, engine: lg.Engine, chance: random.Random) -> None:
        self.engine, self.chance = engine, chance
        self.net = Net()
        self.real: dict[Node, Any] = {}
        self.graphs: dict[Net, Any] = {self.net: engine}
        self.where: dict[Net, str] = {self.net: "top"}
        self.groups: list[Group] = []  # that may be used once more
        self.time: float | None = None
        self.resets: dict[Memory, np.ndarray] = {}  # what states were given since the last frame
        self.main = chance.choice(list(PALETTES))
        self.focus: Focus | None = None
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        self.broken: list[Node] = []  # nodes that the last frame had problems with
        self.external: list[Any] = []
        self.anew: set[Node] = set()  # that were added again since the last frame
        self.watches = FAMILIES[self.main] == "float" and chance.random() < 0.4  # for NaN
        self._number = 0

    # --- chance ---

    def _often(self, probability: float) -> bool:
        return self.chance.random() < probability

    def _name(self, prefix: str, net: Net) -> str:
        """A new name; now and then one that looks like a path."""
        self._number += 1
        name = f"{prefix}{self._number}"
        groups = [node for node in net.nodes.values() if isinstance(node, Group) and node.net.nodes]
        if groups and self._often(0.15):
            group = self.chance.choice(groups)
            inner = self.chance.choice(list(group.net.nodes))
            name = self.chance.choice((f"{group.name}/{inner}", f"{group.name}.{inner}"))
        return self._name(prefix, net) if name in net.nodes else name

    def value(self, kind: str) -> Any:
        """A value of a kind; numbers are whole and small."""
        if kind == "turns":
            return self.chance.randint(-1, 3)
        number = self.chance.randint(-3, 9)
        if kind in ("float", "int", "bool"):
            return {"float": float(number), "int": number, "bool": number > 3}[kind]
        if not kind.startswith("array"):
            return _TYPES[kind](number)
        shape = (3,) if self._often(0.8) else self.chance.choice(((2,), (1,), (2, 3)))
        numbers = [self.chance.randint(-3, 9) for _ in range(int(np.prod(shape)))]
        numbers = [one > 3 for one in numbers] if kind.endswith("bool") else numbers
        return np.array(numbers, _TYPES[kind.split()[1]]).reshape(shape)

    def kind(self) -> str:
        """A kind of value that fits this session, or any."""
        if self.focus is not None and self._often(0.5):
            return self.focus.kind
        return self.chance.choice(PALETTES[self.main] if self._often(0.85) else KINDS)

    def _array_kind(self) -> str:
        return f"array {self.main}"

    def _body(self) -> Body:
        family = FAMILIES[self.main] if self._often(0.85) else self.chance.choice(("float", "int", "bool"))
        found = [body for body in self._bodies if body.family == family]
        if self._often(0.5) and any(body.may_give_nan for body in found):
            found = [body for body in found if body.may_give_nan or body.name == "less"]  # which makes no NaN of one
        return self.chance.choice(found)

    @property
    def _bodies(self) -> list[Body]:
        """What blocks may compute."""
        return [body for body in BODIES.values() if self.watches or not body.may_give_nan]

    # --- one edit on both sides ---

    def _note(self, edit: str, net: Net, kind: str, text: str) -> None:
        self.counts[f"{edit}|{region_of(self.where[net])}|{kind}"] += 1
        self.log.append(text)

    def _refused(self, call: Callable[[], Any], text: str) -> None:
        """An edit that the engine must refuse, leaving everything as it is."""
        self.log.append(f"refused: {text}")
        try:
            call()
        except lg.LivegradError:
            return
        raise AssertionError(f"not refused: {text}")

    def add(self, net: Net, node: Node, real: Any, edit: str, kind: str = "-") -> bool:
        """Adds a node; a name that looks like a path may be refused."""
        self.real[node] = real
        try:
            self.graphs[net].add(real)
        except lg.LivegradError:
            if "/" not in node.name and "." not in node.name:
                raise
            self.log.append(f"refused name {node.name}")
            return False
        net.nodes[node.name] = node
        self._note(edit, net, kind, f"add {self._describe(node)} in {self.where[net]}")
        return True

    def _describe(self, node: Node) -> str:
        if isinstance(node, Leaf):
            return f"{node.name}:{node.body.name}"
        if isinstance(node, Choice):
            inner = {label: list(map(self._describe, body.net.nodes.values())) for label, body in node.bodies.items()}
            return f"{node.name}:{node.kind}{inner}"
        if isinstance(node, Group):
            return f"{node.name}:group{[self._describe(inner) for inner in node.net.nodes.values()]}"
        return f"{node.name}:state"

    def set(self, net: Net, node: Node, pin: str, kind: str, edit: str = "set", value: Any = None) -> None:
        """Sets a pin to a value of a kind: this one, or any."""
        before = net.sources.get((node, pin))
        value = self._in_place(net, node, pin, before, self.value(kind) if value is None else value)
        held = numbers_held(net, node, pin) if value.__class__ is int else []
        is_float = bool(held) and all(one.__class__ is float for one in held)
        if is_float:
            if self.broken:  # a block with problems takes it as an integer
                value = float(value)
            else:
                kind, edit = "int for float", "set" if edit == "set again" else edit  # of another kind
        self.graphs[net].set(self.real[node][pin], value)
        if is_float:
            value = float(value)
        fresh = Given(value.copy() if isinstance(value, np.ndarray) else value)
        if before is None and node.default(pin) is not None:
            before = Given(node.default(pin), (node, pin))
        if isinstance(before, Given) and before.kind == fresh.kind:
            fresh = Given(fresh.value, before.line)
        net.sources[node, pin] = fresh
        self._note(edit, net, kind, f"set {node.name}.{pin} = {value!r}")

    def _in_place(self, net: Net, node: Node, pin: str, before: Any, value: Any) -> Any:
        """The value for a pin that holds something else: nothing says whether what runs on takes it for a change."""
        return value

    def bind(self, net: Net, node: Node, pin: str, kind: str) -> None:
        """Binds a pin to memory of ours, with a version or without."""
        versioned = self._often(0.5)
        if self.external and self._often(0.3):
            external = self.chance.choice(self.external)
        else:
            array = np.array(self.value(kind if kind.startswith("array") or kind in _TYPES else self._array_kind()))
            external = lg.live.ExternalBuffer(array, version=0 if versioned else None)
            self.external.append(external)
        self.graphs[net].bind(self.real[node][pin], external)
        net.sources[node, pin] = bound_to(external)
        name = "bind versioned" if external.version is not None else "bind"
        self._note(name, net, kind, f"{name} {node.name}.{pin} to {external.array!r}")

    def connect(self, net: Net, node: Node, pin: str, edit: str = "connect") -> bool:
        """Connects a pin with an output of the same graph: one made before it, or now and then any."""
        names = list(net.nodes)
        earlier = names if self._often(0.1) or isinstance(node, Memory) else names[: names.index(node.name)]
        places = [(net.nodes[name], output) for name in earlier for output in net.nodes[name].outputs]
        if not places:
            return False
        source, output = self.chance.choice(places)
        self._connect(net, source, output, node, pin, edit)
        return True

    def _connect(self, net: Net, source: Node, output: str, node: Node, pin: str, edit: str = "connect") -> None:
        self.graphs[net].connect(self.real[source][output], self.real[node][pin])
        net.sources[node, pin] = Edge(source, output)
        self._note(edit, net, self._kind_of(node), f"connect {source.name}.{output} to {node.name}.{pin}")

    def _kind_of(self, node: Node) -> str:
        return node.body.family if isinstance(node, Leaf) else type(node).__name__.lower()

    def feed(self, net: Net, node: Node, pin: str) -> None:
        """Feeds a pin of a new or broken block with something that mostly fits."""
        control = isinstance(node, Choice) and pin == node.control
        if control or pin == "n":
            counted = not isinstance(node, Choice) or pin == "n" or node.kind in ("for", "switch")
            kind = "turns" if counted else self.chance.choice(("bool", "int", "float"))
            self.set(net, node, pin, kind, "set control")
        elif isinstance(node, Memory):
            if self._often(0.3):
                self._connect(net, node, "value", node, pin)  # it stays as it is, and so do its readers
            else:
                self.connect(net, node, pin)
        elif isinstance(node, Choice) and pin in node.carried:
            self.set(net, node, pin, self._array_kind(), "set carried")
        elif self._often(0.4) and self.connect(net, node, pin):
            return
        elif self._often(0.2):
            self.bind(net, node, pin, self.kind())
        else:
            self.set(net, node, pin, self.kind() if self._often(0.4) else self._array_kind())

    def feed_all(self, net: Net, node: Node) -> None:
        """Feeds the pins of a new block; one is forgotten now and then. Some loops compute with Python floats alone."""
        floats = (
            isinstance(node, Choice) and "x" in node.carried and FAMILIES[self.main] == "float" and self._often(0.3)
        )
        for pin in node.inputs:
            if floats and pin in ("x", "y", "z", "gain") and (node, pin) not in net.sources:
                self.set(net, node, pin, "float", "set carried" if pin == "x" else "set")
            elif (
                (node, pin) not in net.sources and self._often(0.95) and (node.default(pin) is None or self._often(0.2))
            ):
                self.feed(net, node, pin)


def numbers_held(net: Net, node: Node, pin: str) -> list[Any]:
    """The number that a pin holds; of a composite or region those of the pins inside that get its value."""
    if node not in net.nodes.values() or pin not in node.inputs:
        return []
    source, default = net.sources.get((node, pin)), node.default(pin)
    if isinstance(source, Given) and not isinstance(source.value, np.ndarray):
        return [source.value]
    if default is not None:
        return [default]
    groups = list(node.bodies.values()) if isinstance(node, Choice) else [node] if isinstance(node, Group) else []
    places = [(own.net, *place) for own in groups for place in own.inner_inputs.get(pin, ())]
    return [number for place in places for number in numbers_held(*place)]


def region_of(where: str) -> str:
    """Where an edit is, as it is counted."""
    if "/" not in where:
        return where
    return "nested composite" if where == "composite/composite" else "nested region"
