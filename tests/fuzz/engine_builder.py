"""Composites and regions for the random editor, nested in each other, made on both sides at once."""

from __future__ import annotations

import numpy as np

import livegrad as lg
from tests.fuzz.engine_bodies import BODIES, COUNTDOWNS, Body
from tests.fuzz.engine_editor import FAMILIES, REGIONS, Editor
from tests.fuzz.engine_model import Choice, Edge, Group, Leaf, Memory, Net, Node, nets_inside

_MAKERS = {"if": lg.If, "if_else": lg.IfElse, "switch": lg.Switch}


class Builder(Editor):
    """Makes blocks with blocks inside."""

    def add_leaf(self, net: Net, edit: str = "add block", body: Body | None = None) -> Leaf | None:
        body = body or self._body()
        node = Leaf(self._name("b", net), body)
        return node if self.add(net, node, body.block(node.name), edit, body.family) else None

    def add_state(
        self, net: Net, name: str | None = None, edit: str = "add state", kind: str | None = None
    ) -> Memory | None:
        kind = kind or (self.kind() if self._often(0.3) else self._array_kind())
        node = Memory(name or self._name("s", net), np.array(self.value(kind)))
        real = lg.State(node.name, node.initial)
        return node if self.add(net, node, real, edit, kind) else None

    def add_group(self, net: Net) -> Group | None:
        group = self.build_group(_deeper(self.where[net], "composite"), "group", self._depth(net))
        added = self.add(net, group, self.real[group], "add composite")
        return group if added else None

    def add_region(self, net: Net, kind: str | None = None) -> Choice | None:
        node = self.build_region(net, kind or self.chance.choice(REGIONS), self._depth(net))
        return node if node is not None and self.add(net, node, self.real[node], f"add {node.kind}") else None

    def _depth(self, net: Net) -> int:
        return self.where[net].count("/") + (self.where[net] != "top")

    # --- composites ---

    def build_group(self, where: str, purpose: str, depth: int) -> Group:
        """A composite of one to three blocks that exposes what it needs and gives `result`."""
        self._number += 1
        net = Net()
        group = Group(f"c{self._number}", net)
        self.real[group] = real = lg.Composite(group.name)
        self.graphs[net], self.where[net] = real.graph, where
        first = self._leaf_with_result(net)
        last: Node = first
        if self._often(0.6):
            last = self._second(net, first, depth)
        for pin in first.inputs:
            if first.default(pin) is None or self._often(0.3):
                self.expose(group, first, pin, "index" if purpose == "for" and self._often(0.2) else pin)
        for node in net.nodes.values():
            self._feed_or_expose(group, node)
        self.expose(group, last, "result", "result")
        if purpose == "while":
            body = self.chance.choice(list(COUNTDOWNS.values()))
            until = Leaf("until", body)
            self.real[until] = real.graph.add(body.block("until"))
            net.nodes["until"] = until
            for pin in (*until.inputs, *until.outputs):
                self.expose(group, until, pin, pin)
        else:
            self.groups.append(group)
        return group

    def _leaf_with_result(self, net: Net) -> Leaf:
        family = FAMILIES[self.main]
        bodies = [body for body in BODIES.values() if body.family == family and body.name not in ("less", "time")]
        bodies = [body for body in bodies if not body.may_give_nan]
        body = self.chance.choice(bodies)
        self._number += 1
        leaf = Leaf(f"p{self._number}", body)
        self.real[leaf] = self.graphs[net].add(body.block(leaf.name))
        net.nodes[leaf.name] = leaf
        return leaf

    def _second(self, net: Net, first: Leaf, depth: int) -> Node:
        """A block behind the first one: a function, a composite or a region."""
        kind = self.chance.choice(("leaf", "group", "region")) if depth < 2 else "leaf"
        node: Node | None = None
        if kind == "group":
            node = self.build_group(_deeper(self.where[net], "composite"), "group", depth + 1)
        elif kind == "region":
            node = self.build_region(net, self.chance.choice(REGIONS), depth + 1)
        if node is None:
            node = self._leaf_with_result(net)
        else:
            net.nodes[node.name] = node
            self.graphs[net].add(self.real[node])
        pins = [pin for pin in node.inputs if pin in ("x", "y", "z")]
        if pins:
            pin = self.chance.choice(pins)
            self.graphs[net].connect(self.real[first]["result"], self.real[node][pin])
            net.sources[node, pin] = Edge(first, "result")
        return node

    def _feed_or_expose(self, group: Group, node: Node) -> None:
        """What nothing feeds yet is exposed, or fed inside."""
        net = group.net
        exposed = {place for places in group.inner_inputs.values() for place in places}
        for pin in node.inputs:
            if (node, pin) in net.sources or (node, pin) in exposed or node.default(pin) is not None:
                continue
            control = isinstance(node, Choice) and pin in (node.control, "n")
            if self._often(0.4) or (isinstance(node, Choice) and pin in node.carried and pin != "n"):
                self.expose(group, node, pin, f"{pin}_{node.name}" if control or self._often(0.3) else pin)
            else:
                self.feed(net, node, pin)

    def expose(self, group: Group, node: Node, pin: str, name: str) -> None:
        """Exposes a pin of an inner block."""
        self.real[group].expose(self.real[node][pin], name)
        if pin in node.inputs:
            group.inner_inputs.setdefault(name, []).append((node, pin))
        else:
            group.inner_outputs[name] = (node, pin)
        self.log.append(f"expose {node.name}.{pin} of {group.name} as {name}")

    # --- regions ---

    def build_region(self, net: Net, kind: str, depth: int) -> Choice | None:
        """A region with bodies of its own, or one that is used elsewhere too; None: such bodies are refused."""
        self._number += 1
        name = f"r{self._number}"
        count = {"if_else": 2, "switch": 3}.get(kind, 1)
        where = _deeper(self.where[net], kind)
        shared = [group for group in self.groups if "result" in group.outputs and "x" in group.inputs]
        bodies = [self.build_group(where, kind, depth)]
        if net is self.net and kind != "while" and shared and self._often(0.4):
            bodies = [self._share(self.chance.choice(shared))]
        while len(bodies) < count:
            again = self._often(0.25)
            bodies.append(self._share(bodies[0]) if again else self.build_group(where, kind, depth))
        labels = {"if": ["then"], "if_else": ["then", "else"], "switch": ["0", "1", "2"]}.get(kind, ["body"])
        first = bodies[0]
        carried = {"x": "result"} if kind in ("for", "while") and "x" in first.inputs else {}
        carried |= {"n": "left"} if kind == "while" else {}
        node = Choice(name, kind, dict(zip(labels, bodies, strict=True)), carried)
        if node.is_refused:
            self._refused(lambda: self._real_region(node), f"{kind} {name} of {[body.name for body in bodies]}")
            self._note(f"refused {kind}", self.net, "-", "")
            return None
        self.real[node] = self._real_region(node)
        return node

    def _real_region(self, node: Choice) -> lg.Block:
        bodies = [self.real[body] for body in node.bodies.values()]
        if node.kind in _MAKERS:
            return _MAKERS[node.kind](node.name, *bodies)
        return (lg.For if node.kind == "for" else lg.While)(node.name, bodies[0], node.carried)

    def _share(self, group: Group) -> Group:
        for net in nets_inside(group.net):
            self.where[net] = "shared"
        return group


def _deeper(where: str, kind: str) -> str:
    """Where a graph is that stands inside of a block which is somewhere."""
    if where == "shared":
        return where
    return kind if where == "top" else f"{where.split('/')[-1]}/{kind}"
