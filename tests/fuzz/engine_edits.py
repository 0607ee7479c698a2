"""The kinds of random edits: each method makes one, or says that there was nothing to make it of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import livegrad as lg
from tests.fuzz.engine_bodies import COUNTDOWNS, FEATURE, MISTAKEN, Body
from tests.fuzz.engine_builder import Builder
from tests.fuzz.engine_editor import PALETTES, REGIONS, region_of
from tests.fuzz.engine_model import Bound, Choice, Edge, Given, Group, Leaf, Memory, Net, Node, bound_to, nets_inside

Spot = tuple[Net, Node, str]


class Edits(Builder):
    """Makes random edits."""

    @property
    def kinds_of_edits(self) -> Sequence[Callable[[Any], bool]]:
        """What an edit is chosen from."""
        return EDITS

    def edit(self) -> None:
        """One edit; a graph that does not run is repaired more often than not."""
        if self.broken and self._often(0.65 if self.focus is None else 0.4):
            self._repair()
            return
        if self.focus is not None and self._often(0.75):
            if not self._focused_nets():
                self._make_place(self.focus.place)
            if self._focused_nets() and getattr(self, self.focus.edit)():
                for _ in range(self.chance.randrange(3)):
                    if self._focused_nets():
                        getattr(self, self.focus.edit)()
                return
        if len(self.alive()) < 3 and self._often(0.5):  # most of what there is to edit is inside of something
            self._add_to(self.net, self.chance.choice((self.add_group, self.add_region, self.add_region)))
            return
        while not self.chance.choice(self.kinds_of_edits)(self):
            pass

    def alive(self) -> list[Net]:
        """Every graph in use."""
        return nets_inside(self.net)

    def _focused_nets(self) -> list[Net]:
        assert self.focus is not None
        return [net for net in self.alive() if region_of(self.where[net]) == self.focus.place]

    def _make_place(self, place: str) -> None:
        """Adds a graph of this kind, or what one can be made in."""
        outer = [net for net in self.alive() if self.where[net] in ("composite", *REGIONS)]
        if place == "composite" or (place.startswith("nested") and not outer):
            self._add_to(self.net, self.add_group)
        elif place == "nested composite":
            composites = [net for net in outer if self.where[net] == "composite"]
            self._add_to(self.chance.choice(composites or outer), self.add_group)
        elif place == "nested region":
            self._add_to(self.chance.choice(outer), self.add_region)
        else:
            self._add_to(self.net, lambda net: self.add_region(net, place if place in REGIONS else None))

    def _some_net(self) -> Net:
        """A graph in use; places of each kind are as likely."""
        if self.focus is not None and self._often(0.7) and (focused := self._focused_nets()):
            return self.chance.choice(focused)
        nets = self.alive()
        place = self.chance.choice(sorted({self.where[net] for net in nets}))
        return self.chance.choice([net for net in nets if self.where[net] == place])

    def _some_leaf(self) -> tuple[Net, Leaf] | None:
        net = self._some_net()
        leaves = [node for node in net.nodes.values() if isinstance(node, Leaf) and not is_countdown(node)]
        return (net, self.chance.choice(leaves)) if leaves else None

    def _some_pin(self, wanted: Callable[[Spot], bool] = lambda spot: True) -> Spot | None:
        net = self._some_net()
        spots = [(net, node, pin) for node in net.nodes.values() if not is_countdown(node) for pin in node.inputs]
        spots = [spot for spot in spots if wanted(spot)]
        return self.chance.choice(spots) if spots else None

    # --- structure ---

    def add_something(self) -> bool:
        net = self._some_net()
        if len(net.nodes) > (12 if net is self.net else 4):
            return False
        makers: list[Callable[[Net], Node | None]] = [self.add_leaf, self.add_leaf, self.add_leaf]
        if len(self.alive()) < 20:
            makers += [self.add_group, self.add_region, self.add_region]
        if self.where[net] in ("top", "composite") or self._often(0.05):
            makers.append(self.add_state)
        self._add_to(net, self.chance.choice(makers))
        return True

    def _add_to(self, net: Net, maker: Callable[[Net], Node | None]) -> None:
        node = maker(net)
        if node is not None:
            self.feed_all(net, node)

    def remove(self) -> bool:
        net = self._some_net()
        nodes = [node for node in net.nodes.values() if net is self.net or self._often(0.3)]
        if not nodes:
            return False
        node = self.chance.choice(nodes)
        self._remove(net, node)
        return True

    def _remove(self, net: Net, node: Node) -> None:
        self.graphs[net].remove(self.real[node])
        net.remove(node)
        self._note("remove", net, self._kind_of(node), f"remove {node.name}")

    def add_again(self) -> bool:
        """Removes a block and adds the same one: what fed it is gone."""
        spot = self._some_leaf()
        if spot is None:
            return False
        net, node = spot
        self._remove(net, node)
        self.graphs[net].add(self.real[node])
        net.nodes[node.name] = node
        self.anew.add(node)
        self._note("add again", net, node.body.family, f"add {node.name} again")
        for pin in node.inputs:
            if node.default(pin) is None:
                self.feed(net, node, pin)
        return True

    def replace_state(self) -> bool:
        """Another State of the same name."""
        net = self._some_net()
        states = [node for node in net.nodes.values() if isinstance(node, Memory)]
        if not states:
            return False
        self.replace(net, self.chance.choice(states))
        return True

    def replace(self, net: Net, old: Memory, kind: str | None = None) -> None:
        """Another State, for what the old one fed and was fed by."""
        readers = [place for place, source in net.sources.items() if getattr(source, "node", None) is old]
        following = net.sources.get((old, "next"))
        self._remove(net, old)
        node = self.add_state(net, old.name, "replace state", kind)
        if node is None:
            return
        if isinstance(following, Edge) and following.node is not old:
            self.graphs[net].connect(self.real[following.node][following.pin], self.real[node]["next"])
            net.sources[node, "next"] = following
        for reader, pin in readers:
            if reader is not old and (reader, pin) not in net.sources:
                self.graphs[net].connect(self.real[node], self.real[reader][pin])
                net.sources[reader, pin] = Edge(node, "value")

    def connect_some(self) -> bool:
        spot = self._some_pin(is_data)
        return spot is not None and self.connect(*spot)

    def disconnect(self) -> bool:
        """Mostly where a default is left."""
        has_default = self._often(0.8)
        spot = self._some_pin(lambda s: s[1:] in s[0].sources and (not has_default or s[1].default(s[2]) is not None))
        if spot is None:
            return False
        self.take_away(*spot)
        return True

    def take_away(self, net: Net, node: Node, pin: str) -> None:
        """What feeds a pin."""
        kind = type(net.sources.pop((node, pin))).__name__.lower()
        self.graphs[net].disconnect(self.real[node][pin])
        self._note("disconnect", net, kind, f"disconnect {node.name}.{pin}")

    def expose_some(self) -> bool:
        """One more pin of a composite, or of a body of regions, which have it from then on."""
        net = self._some_net()
        group = self.group_of(net)
        if group is None:
            return False
        exposed = {place for places in group.inner_inputs.values() for place in places}
        spots = [(node, pin) for node in net.nodes.values() for pin in node.inputs if (node, pin) not in exposed]
        spots = [spot for spot in spots if spot not in net.sources and not isinstance(spot[0], Memory)]
        spots += [(node, pin) for node in net.nodes.values() for pin in node.outputs if self._often(0.2)]
        spots = [spot for spot in spots if not is_countdown(spot[0])]
        if not spots:
            return False
        self.expose_one(group, *self.chance.choice(spots))
        return True

    def expose_one(self, group: Group, node: Node, pin: str) -> None:
        """A pin, by a name of its own."""
        self._number += 1
        self.expose(group, node, pin, f"{pin}{self._number}")
        self._note("expose", group.net, self._kind_of(node), "")

    def group_of(self, net: Net) -> Group | None:
        """The composite that a graph is inside of."""
        return next((one for one in self.real if isinstance(one, Group) and one.net is net), None)

    # --- values ---

    def set_some(self) -> bool:
        """Any value for any pin: kinds change between number, array and memory of ours."""
        spot = self._some_pin()
        if spot is None:
            return False
        net, node, pin = spot
        if not is_data(spot):
            if not isinstance(node, Memory) or self._often(0.1):
                self.feed(net, node, pin)
        else:
            self.set(net, node, pin, self.kind(), "set carried" if is_carried(node, pin) else "set")
        return True

    def set_parameter(self) -> bool:
        """Another value of the same kind."""
        spot = self._some_pin(lambda spot: isinstance(spot[0].sources.get(spot[1:]), Given))
        if spot is None:
            return False
        net, node, pin = spot
        if not is_data(spot):
            self.feed(net, node, pin)
            return True
        given = net.sources[node, pin]
        assert isinstance(given, Given)
        before = given.value
        kind = {float: "float", int: "int", bool: "bool"}.get(type(before))
        if kind is None:
            name = {"float32": "f32", "float64": "f64", "int64": "i64", "bool": "bool"}[before.dtype.name]
            kind = f"array {name}" if isinstance(before, np.ndarray) else name
            if kind == "bool":
                return False
        self.set(net, node, pin, kind, "set again")
        return True

    def give_pin_without_source(self) -> bool:
        """A number for a pin that has a default."""
        spot = self._some_pin(lambda s: s[1:] not in s[0].sources and s[1].default(s[2]) is not None)
        if spot is None:
            return False
        kind = type(spot[1].default(spot[2])).__name__
        self.set(*spot, kind if self._often(0.7) else self.kind(), "set default")
        return True

    def turn_inside_branch(self) -> bool:
        """Another number inside of a body that may be taken or not."""
        nodes = [node for net in self.alive() for node in net.nodes.values() if isinstance(node, Choice)]
        bodies = [body for node in nodes if node.kind in ("if", "if_else", "switch") for body in node.bodies.values()]
        spots: list[Spot] = [
            (body.net, node, pin)
            for body in bodies
            for node in body.net.nodes.values()
            for pin in node.inputs
            if node.default(pin) is not None and not self._is_exposed(body.net, node, pin)
        ]
        if not spots:
            return False
        net, node, pin = self.chance.choice(spots)
        self.set(net, node, pin, type(node.default(pin)).__name__, "set in branch")
        return True

    def control_some(self) -> bool:
        """What decides about a region: memory of ours, or another block."""
        spot = self._some_pin(lambda s: isinstance(s[1], Choice) and s[2] == s[1].control)
        if spot is None:
            return False
        net, node, pin = spot
        assert isinstance(node, Choice)
        if node.kind in ("if", "if_else", "switch") and self._often(0.5) and self.connect(net, node, pin):
            return True
        self.control_by_memory(net, node)
        return True

    def control_by_memory(self, net: Net, node: Choice) -> None:
        """Binds what decides about a region."""
        value = np.array(self.value("turns" if node.kind in ("for", "switch") else "bool"))
        external = lg.live.ExternalBuffer(value, version=self.chance.choice((None, 0)))
        self.graphs[net].bind(self.real[node][node.control], external)
        net.sources[node, node.control] = bound_to(external)
        self._note("bind control", net, value.dtype.name, f"bind {node.name}.{node.control} to {value!r}")

    def bind_some(self) -> bool:
        spot = self._some_pin(is_data)
        if spot is None:
            return False
        self.bind(*spot, self.kind() if self._often(0.5) else self._array_kind())
        return True

    def touch(self) -> bool:
        """Writes memory of ours, and says so."""
        sources = [(net, source) for net in self.alive() for source in net.sources.values()]
        bound = [(net, source.external) for net, source in sources if isinstance(source, Bound)]
        if not bound:
            return False
        self.write(*self.chance.choice(bound))
        return True

    def write(self, net: Net, external: lg.live.ExternalBuffer) -> None:
        """New contents for memory of ours."""
        most = 9 if external.array.ndim else 3  # it may say how often a loop runs
        numbers = [self.chance.randint(-3, most) for _ in range(external.array.size)]
        external.array[...] = np.array(numbers).reshape(external.array.shape)
        if external.version is not None:
            external.touch()
        self._note("touch" if external.version is not None else "write", net, external.array.dtype.name, "touch")

    def resize(self) -> bool:
        """An array of another size."""
        spot = self._some_pin(lambda s: isinstance(s[0].sources.get(s[1:]), Given | Bound) and is_data(s))
        if spot is None:
            return False
        net, node, pin = spot
        kind = self.chance.choice([kind for kind in PALETTES[self.main] if kind.startswith("array")])
        self.set(net, node, pin, kind, "resize")
        return True

    def set_time(self) -> bool:
        time = float(self.chance.randint(0, 9))
        self.engine.set_feature(FEATURE, time)
        self.time = time
        self._note("feature", self.net, "float", f"time {time}")
        return True

    def reset(self) -> bool:
        net = self._some_net()
        states = [node for node in net.nodes.values() if isinstance(node, Memory)]
        if not states:
            return False
        self.reset_one(net, self.chance.choice(states))
        return True

    def reset_one(self, net: Net, state: Memory) -> None:
        """A state begins again."""
        self.engine.reset(self.real[state])
        self.resets[state] = state.initial
        self._note("reset", net, state.initial.dtype.name, f"reset {state.name}")

    def set_state(self) -> bool:
        net = self._some_net()
        states = [node for node in net.nodes.values() if isinstance(node, Memory)]
        if not states:
            return False
        self.give_state(net, self.chance.choice(states))
        return True

    def give_state(self, net: Net, state: Memory) -> None:
        """A state goes on from another value."""
        numbers = [self.chance.randint(-4, 9) for _ in range(state.initial.size)]
        value = np.array(numbers).reshape(state.initial.shape).astype(state.initial.dtype)
        self.engine.set(self.real[state], value.tolist() if self._often(0.3) else value)
        self.resets[state] = value
        self._note("state", net, value.dtype.name, f"state {state.name} = {value.tolist()}")

    def keep(self) -> bool:
        net = self._some_net()
        nodes = [node for node in net.nodes.values() if isinstance(node, Leaf)]
        if not nodes:
            return False
        node = self.chance.choice(nodes)
        self.engine.keep(self.real[node][self.chance.choice(node.outputs)])
        self._note("keep", net, node.body.family, f"keep {node.name}")
        return True

    # --- code ---

    def edit_body(self) -> bool:
        """The same pins."""
        net = self._some_net()
        leaves = [node for node in net.nodes.values() if isinstance(node, Leaf)]
        if not leaves:
            return False
        node = self.chance.choice(leaves)
        library = COUNTDOWNS.values() if is_countdown(node) else self._bodies
        same = [b for b in library if _pins(b) == _pins(node.body) and b is not node.body]
        same += [MISTAKEN] if _pins(MISTAKEN) == _pins(node.body) and self._often(0.1) else []
        if not same:
            return False
        self._edit(net, node, self.chance.choice(same), "edit")
        return True

    def edit_to_other_pins(self) -> bool:
        spot = self._some_leaf()
        if spot is None:
            return False
        net, node = spot
        others = [b for b in self._bodies if _pins(b) != _pins(node.body) and b.outputs == node.body.outputs]
        others = [b for b in others if not b.reads_time]
        if not others:
            return False
        self._edit(net, node, self.chance.choice(others), "edit pins")
        for pin in node.inputs:
            if node.default(pin) is None and (node, pin) not in net.sources and not self._is_exposed(net, node, pin):
                self.feed(net, node, pin)
        return True

    def _is_exposed(self, net: Net, node: Node, pin: str) -> bool:
        groups = [one for one in self.real if isinstance(one, Group) and one.net is net]
        return any((node, pin) in places for group in groups for places in group.inner_inputs.values())

    def _edit(self, net: Net, node: Leaf, body: Body, name: str) -> None:
        lg.live.edit(self.engine, self.real[node], body.wrapped)
        node.body = body
        net.forget_lost_pins(node)
        self._note(name, net, body.family, f"{name} {node.name} to {body.name}")

    # --- what must be refused ---

    def refuse_something(self) -> bool:
        """An edit that is a mistake: it is refused, and changes nothing."""
        if self._often(0.15) and self._refuse_region():
            return True
        spot = self._some_pin()
        if spot is None:
            return False
        net, node, pin = spot
        graph, real = self.graphs[net], self.real[node]
        own = real[pin]
        tries: list[tuple[str, Callable[[], object]]] = [
            ("text", lambda: graph.set(own, "text")),
            ("ragged", lambda: graph.set(own, [[1.0], [1.0, 2.0]])),
            ("not dense", lambda: graph.bind(own, np.zeros((3, 3), np.float32)[:, 1])),
            ("no pin", lambda: real["no such pin"]),
            ("foreign", lambda: graph.remove(lg.block(lambda x=1.0: x, name="foreign"))),
            ("twice", lambda: graph.add(lg.block(lambda x=1.0: x, name=node.name))),
            ("an input", lambda: graph.connect(own, own)),
            ("state", lambda: self.engine.reset(lg.State("foreign", 0.0))),
        ]
        if not isinstance(real, lg.State):  # of which the value can be set
            tries += [("a block", lambda: graph.set(real, 1.0))]
        if (node, pin) not in net.sources:
            tries += [("unfed", lambda: graph.disconnect(own))] * 4
        around = [group for group in self.real if isinstance(group, Group) and group.net is net]
        if around and any((node, pin) in places for places in around[0].inner_inputs.values()):
            composite = self.real[around[0]]
            assert isinstance(composite, lg.Composite)
            tries += [("exposed", lambda: composite.expose(own, "another"))] * 6
        tries += [
            ("a number for a name", lambda: lg.block(lambda x=1.0: x, name=1)),  # type: ignore[arg-type]
            ("a builtin", lambda: lg.block(max)),
        ]
        name, call = self.chance.choice(tries)
        self._refused(call, f"{name} at {node.name}.{pin}")
        made_nowhere = name in ("a number for a name", "a builtin")
        self._note(f"refused {name}", self.net if made_nowhere else net, "-", "")
        return True

    def _refuse_region(self) -> bool:
        """A region of bodies that give different outputs."""
        pairs = [(one, other) for one in self.groups for other in self.groups if set(one.outputs) != set(other.outputs)]
        if not pairs:
            return False
        one, other = self.chance.choice(pairs)
        kind = self.chance.choice(("if_else", "switch"))
        bodies = {"then": one, "else": other} if kind == "if_else" else {"0": one, "1": one, "2": other}
        self._refused(
            lambda: self._real_region(Choice("refused", kind, bodies, {})), f"{kind} of {one.name}, {other.name}"
        )
        self._note(f"refused {kind}", self.net, "-", "")
        return True

    # --- repair ---

    def _repair(self) -> None:
        """Feeds or removes a block that has a problem."""
        node = self.chance.choice(self.broken)
        net = next((net for net in self.alive() if net.nodes.get(node.name) is node), None)
        if net is None:
            self.set_time()
            return
        unfed = [p for p in node.inputs if (node, p) not in net.sources and node.default(p) is None]
        unfed = [pin for pin in unfed if not is_countdown(node)]
        if unfed and self._often(0.8):
            self.feed(net, node, self.chance.choice(unfed))
        elif (
            node.inputs
            and not isinstance(node, Memory)
            and not is_countdown(node)
            and self._often(0.5 if self.focus is None else 0.8)
        ):
            pin = self.chance.choice(node.inputs)
            if is_data((net, node, pin)):
                self.set(net, node, pin, self._array_kind(), "repair")
            else:
                self.feed(net, node, pin)
        else:
            top = self._around(node)
            self._remove(self.net, top) if top is not None else self._remove(net, node)

    def _around(self, node: Node) -> Node | None:
        """The block of the outermost graph that a node is in."""
        for top in self.net.nodes.values():
            inner = [top] if isinstance(top, Group) else top.bodies.values() if isinstance(top, Choice) else []
            if top is node or any(node in net.nodes.values() for group in inner for net in nets_inside(group.net)):
                return top
        return None


def is_countdown(node: Node) -> bool:
    return isinstance(node, Leaf) and node.body.name in COUNTDOWNS


def is_carried(node: Node, pin: str) -> bool:
    return isinstance(node, Choice) and pin in node.carried


def is_data(spot: Spot) -> bool:
    """Whether any value may be tried there: a loop must end, and a state is computed."""
    _, node, pin = spot
    if isinstance(node, Memory):
        return False
    if isinstance(node, Choice) and pin == node.control:
        return False
    return not pin.startswith(("n", "count", "index", "condition"))


def _pins(body: Body) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(body.inputs), body.outputs


EDITS: list[Callable[[Edits], bool]] = [
    Edits.add_something, Edits.add_something, Edits.remove, Edits.add_again, Edits.replace_state, Edits.connect_some,
    Edits.disconnect, Edits.expose_some, Edits.set_some, Edits.set_some, Edits.set_parameter, Edits.set_parameter,
    Edits.give_pin_without_source, Edits.bind_some, Edits.control_some, Edits.touch, Edits.resize, Edits.set_time,
    Edits.turn_inside_branch, Edits.reset, Edits.set_state, Edits.keep, Edits.edit_body, Edits.edit_to_other_pins,
    Edits.refuse_something,
]  # fmt: skip
