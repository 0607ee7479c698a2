"""Random edits of the graph: blocks are added and removed, pins connected and exposed."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.engine_bodies import COUNTDOWNS
from tests.fuzz.engine_builder import Builder
from tests.fuzz.engine_editor import region_of
from tests.fuzz.engine_model import Choice, Edge, Group, Leaf, Memory, Net, Node, nets_inside

Spot = tuple[Net, Node, str]


class GraphEdits(Builder):
    """Chooses where to edit, and edits the structure of the graph."""

    def alive(self) -> list[Net]:
        """Every graph in use."""
        return nets_inside(self.net)

    def _focused_nets(self) -> list[Net]:
        assert self.focus is not None
        return [net for net in self.alive() if region_of(self.where[net]) == self.focus.place]

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

    def _is_exposed(self, net: Net, node: Node, pin: str) -> bool:
        groups = [one for one in self.real if isinstance(one, Group) and one.net is net]
        return any((node, pin) in places for group in groups for places in group.inner_inputs.values())

    def group_of(self, net: Net) -> Group | None:
        """The composite that a graph is inside of."""
        return next((one for one in self.real if isinstance(one, Group) and one.net is net), None)


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
