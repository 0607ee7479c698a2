"""Random edits: what an edit is chosen from, edits of code, edits that must be refused, and repairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import livegrad as lg
from tests.fuzz.engine_bodies import COUNTDOWNS, MISTAKEN, Body
from tests.fuzz.engine_editor import REGIONS
from tests.fuzz.engine_graph_edits import is_countdown, is_data
from tests.fuzz.engine_model import Choice, Group, Leaf, Memory, Net, Node, nets_inside
from tests.fuzz.engine_value_edits import ValueEdits


class Edits(ValueEdits):
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

    def _edit(self, net: Net, node: Leaf, body: Body, name: str) -> None:
        lg.live.edit(self.engine, self.real[node], body.wrapped)
        node.body = body
        net.follow_inputs(node)
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


def _pins(body: Body) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(body.inputs), body.outputs


EDITS: list[Callable[[Edits], bool]] = [
    Edits.add_something, Edits.add_something, Edits.remove, Edits.add_again, Edits.replace_state, Edits.connect_some,
    Edits.disconnect, Edits.expose_some, Edits.set_some, Edits.set_some, Edits.set_parameter, Edits.set_parameter,
    Edits.give_pin_without_source, Edits.bind_some, Edits.control_some, Edits.touch, Edits.resize, Edits.set_time,
    Edits.turn_inside_branch, Edits.reset, Edits.set_state, Edits.keep, Edits.edit_body, Edits.edit_to_other_pins,
    Edits.refuse_something,
]  # fmt: skip
