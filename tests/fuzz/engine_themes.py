"""Themes of sessions: one row of the coverage table at one place, with one kind of value, again and again.

A theme makes what its edit needs, so that cells that chance alone seldom meets are met too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import livegrad as lg
from tests.fuzz.engine_coverage import REGIONS as PLACES
from tests.fuzz.engine_coverage import could_be
from tests.fuzz.engine_editor import FAMILIES, KINDS, PALETTES, Focus, region_of
from tests.fuzz.engine_edits import Edits
from tests.fuzz.engine_graph_edits import Spot, is_countdown, is_data
from tests.fuzz.engine_model import Bound, Choice, Edge, Given, Group, Leaf, Memory, Net, Node, bound_to

BRANCHES = ("if", "if_else", "switch")


class Themes(Edits):
    """Makes random edits, in most sessions mainly of one kind."""

    def look_closer(self, seed: int) -> None:
        """Lets one kind of edit, place and value come up again and again in this session."""
        tens, rest = divmod(seed, 10)
        if rest == 9:
            return
        theme = _TABLE[(8 * tens + rest) % len(_TABLE)]  # sessions that follow each other have each equally often
        kind = theme.kind if rest < 8 else self.chance.choice(KINDS)
        self.main = self.chance.choice([main for main, kinds in PALETTES.items() if kind in kinds])
        self.watches = FAMILIES[self.main] == "float" and self._often(0.4)
        if rest == 8:  # any edit, also one of several steps
            edit = self.chance.choice(sorted({edit.__name__ for edit in self.kinds_of_edits}))
            theme = Focus(edit, self.chance.choice(PLACES), kind)
        self.watches |= theme.edit == _NAN
        self.focus = theme

    def _net(self) -> Net:
        return self.chance.choice(self._focused_nets())

    @property
    def _kind(self) -> str:
        assert self.focus is not None
        return self.focus.kind

    # --- what a theme needs ---

    def _leaf_pin(self, net: Net, wanted: Callable[[Spot], bool] = lambda spot: True) -> Spot | None:
        """A pin of a function; one is added if there is none."""
        for _ in range(2):
            leaves = [node for node in net.nodes.values() if isinstance(node, Leaf) and not is_countdown(node)]
            spots = [(net, leaf, pin) for leaf in leaves for pin in leaf.inputs if is_data((net, leaf, pin))]
            if spots := [spot for spot in spots if wanted(spot)]:
                return self.chance.choice(spots)
            self._add_to(net, self.add_leaf)
        return None

    def _node(self, net: Net, kind: type[Any], maker: Callable[[Net], Node | None]) -> Any:
        """A node of a kind; one is added if there is none."""
        known = [node for node in net.nodes.values() if isinstance(node, kind) and not is_countdown(node)]
        if known and self._often(0.8):
            return self.chance.choice(known)
        node = maker(net)
        if node is not None and kind is not Memory:
            self.feed_all(net, node)
        return node

    def _state(self, net: Net) -> Memory | None:
        """A State of the kind that is looked at."""
        dtype = np.array(self.value(self._kind)).dtype
        known = [node for node in net.nodes.values() if isinstance(node, Memory) and node.initial.dtype == dtype]
        return self.chance.choice(known) if known else self._add_state(net)

    def _add_state(self, net: Net) -> Memory | None:
        states = [node for node in net.nodes.values() if isinstance(node, Memory)]
        if len(states) > 2:
            self._remove(net, self.chance.choice(states))
        state = self.add_state(net, kind=self._kind)
        if state is not None and self._often(0.8):
            self._connect(net, state, "value", state, "next")
        return state

    def _region(self, net: Net, *kinds: str) -> Choice | None:
        known = [node for node in net.nodes.values() if isinstance(node, Choice) and node.kind in kinds]
        if known:
            return self.chance.choice(known)
        region = self.add_region(net, self.chance.choice(kinds))
        if region is not None:
            self.feed_all(net, region)
        return region

    def _any_node(self, net: Net) -> Node | None:
        """A node: functions, states, composites and regions are as likely."""
        kind, maker = self.chance.choice(
            ((Leaf, self.add_leaf), (Memory, self._add_state), (Group, self.add_group), (Choice, self.add_region))
        )
        return self._node(net, kind, maker)

    # --- values ---

    def set_carried(self) -> bool:
        """What a loop begins with."""
        net = self._net()
        region = self._region(net, "for", "while")
        if region is not None and "x" in region.carried:
            self.set(net, region, "x", self._kind, "set carried")
        elif region is not None:
            self._remove(net, region)
        return True

    def set_default(self) -> bool:
        """A value in the place of a default."""
        spot = self._leaf_pin(self._net(), lambda spot: spot[1].default(spot[2]) is not None)
        if spot is None:
            return False
        net, node, pin = spot
        if (node, pin) in net.sources:
            self.take_away(net, node, pin)
        self.set(net, node, pin, self._kind, "set default")
        return True

    def set_again(self) -> bool:
        """A value, and another one of the same kind."""
        spot = self._leaf_pin(self._net())
        if spot is None:
            return False
        net, node, pin = spot
        before = net.sources.get((node, pin))
        if not isinstance(before, Given) or before.kind != Given(self.value(self._kind)).kind:
            self.set(net, node, pin, self._kind)
            if self._often(0.5):
                self.frame()
        self.set(net, node, pin, self._kind, "set again")
        return True

    def set_integer(self) -> bool:
        """An integer for a pin that has a float, which stays one; where nothing is wrong with the block."""
        if self.broken:
            self._repair()
            self.frame()
            return True
        net = self._net()
        edit = self.chance.choice(("set", "set control", "set default", *["set carried"] * 2, "set in branch"))
        spot: Spot | None = None
        if edit in ("set control", "set carried"):
            region = self._region(net, *(("if", "if_else", "while") if edit == "set control" else ("for", "while")))
            pin = "x" if edit == "set carried" else "condition"
            spot = (net, region, pin) if region is not None and pin in region.inputs else None
        elif could_be(edit, region_of(self.where[net])):
            spot = self._leaf_pin(net, lambda s: edit == "set" or isinstance(s[1].default(s[2]), float))
        if spot is None:
            return False
        _, node, pin = spot
        if edit == "set default" and (node, pin) in net.sources:
            self.take_away(net, node, pin)
        elif edit != "set default":
            self.set(net, node, pin, "float", edit)
        self.set(net, node, pin, "int", edit)
        return True

    def resize_value(self) -> bool:
        spot = self._leaf_pin(self._net())
        if spot is None:
            return False
        kinds = [kind for kind in PALETTES[self.main] if kind.startswith("array")]
        self.set(*spot, self.chance.choice(kinds), "resize")
        return True

    def bind_value(self) -> bool:
        spot = self._leaf_pin(self._net())
        if spot is None:
            return False
        self.bind(*spot, self._kind)
        return True

    def bind_control(self) -> bool:
        """What decides about a region."""
        net = self._net()
        region = self._region(net, self.chance.choice((*BRANCHES, "for", "while")))
        if region is not None:
            self.control_by_memory(net, region)
        return True

    def write_bound(self) -> bool:
        """Memory of ours that is bound here, of the kind that is looked at."""
        net = self._net()
        dtype = np.array(self.value(self._kind)).dtype
        bound = [source.external for source in net.sources.values() if isinstance(source, Bound)]
        bound = [external for external in bound if external.array.dtype == dtype]
        if not bound or self._often(0.2):
            spot = self._leaf_pin(net)
            if spot is None:
                return False
            bound = [self.bind_new(*spot, self._kind)]
        self.write(net, self.chance.choice(bound))
        return True

    def bind_new(self, net: Net, node: Node, pin: str, kind: str) -> lg.live.ExternalBuffer:
        """Memory of ours of this kind, that nothing else reads."""
        external = lg.live.ExternalBuffer(np.array(self.value(kind)), version=self.chance.choice((None, 0)))
        self.external.append(external)
        self.graphs[net].bind(self.real[node][pin], external)
        net.sources[node, pin] = bound_to(external)
        name = "bind" if external.version is None else "bind versioned"
        self._note(name, net, kind, f"{name} {node.name}.{pin} to {external.array!r}")
        return external

    # --- states ---

    def add_state_here(self) -> bool:
        self._add_state(self._net())
        return True

    def replace_state_here(self) -> bool:
        net = self._net()
        state = self._state(net)
        if state is not None:
            self.replace(net, state, self._kind)
        return True

    def reset_state(self) -> bool:
        net = self._net()
        state = self._state(net)
        if state is not None:
            self.reset_one(net, state)
        return True

    def set_state_here(self) -> bool:
        net = self._net()
        state = self._state(net)
        if state is not None:
            self.give_state(net, state)
        return True

    # --- structure ---

    def add_inside(self) -> bool:
        """Blocks, composites and regions in a place."""
        net = self._net()
        if len(net.nodes) > 6:
            self._remove(net, self.chance.choice([node for node in net.nodes.values() if not is_countdown(node)]))
        self._add_to(net, self.chance.choice((self.add_leaf, self.add_group, *[self.add_region] * 4)))
        return True

    def remove_here(self) -> bool:
        net = self._net()
        node = self._any_node(net)
        if node is not None:
            self._remove(net, node)
        return True

    def expose_here(self) -> bool:
        net = self._net()
        group, node = self.group_of(net), self._any_node(net)
        if group is None or node is None or not node.outputs:
            return False
        self.expose_one(group, node, self.chance.choice(node.outputs))
        return True

    def connect_here(self) -> bool:
        """To a function, a state, a composite or a region."""
        net = self._net()
        node = self._any_node(net)
        if node is None:
            return True
        pins = [pin for pin in node.inputs if isinstance(node, Memory) or is_data((net, node, pin))]
        return bool(pins) and self.connect(net, node, self.chance.choice(pins))

    def disconnect_here(self) -> bool:
        """What was set, connected or bound before."""
        spot = self._leaf_pin(self._net())
        if spot is None:
            return False
        net, node, pin = spot
        wanted = self.chance.choice((Given, Edge, Bound))
        if not isinstance(net.sources.get((node, pin)), wanted):
            if wanted is Bound:
                self.bind(net, node, pin, self._kind)
            elif wanted is Given:
                self.set(net, node, pin, self._kind)
            elif not self.connect(net, node, pin):
                self._add_to(net, self.add_leaf)
                self.connect(net, node, pin)
        if (node, pin) in net.sources:
            self.take_away(net, node, pin)
        return True

    def edit_here(self) -> bool:
        """Code: the same pins, others, or the same block once more."""
        return self.chance.choice((self.edit_body, self.edit_to_other_pins, self.add_again))()

    def frame(self) -> None:
        """One frame, and the comparison."""
        raise NotImplementedError


_ELEMENTS = ("array bool", "array f32", "array f64", "array i64")
_FAMILIES = ("bool", "float", "int")
_NAN = "add_nan"
# The row of the table that a theme is about, and the kinds of values that it has to be seen with.
_THEMES: list[tuple[str, str, tuple[str, ...]]] = [
    ("set_carried", "set carried", KINDS),
    ("set_default", "set default", KINDS),
    ("set_again", "set again", KINDS),
    ("set_integer", "set", ("float", "float", "f64") * 8),
    ("bind_value", "bind", (*KINDS, *KINDS)),
    ("bind_control", "bind control", ("float", "int")),
    ("write_bound", "write", (*_ELEMENTS, *_ELEMENTS)),
    ("resize_value", "resize", _ELEMENTS),
    ("resize_here", "resize by owner", _ELEMENTS * 4),
    ("add_state_here", "add state", KINDS),
    ("replace_state_here", "replace state", (*KINDS, *_ELEMENTS, "bool", "f32", "f64", "i64", "int")),
    ("reset_state", "reset", (*_ELEMENTS, "bool", "f32", "f64", "i64")),
    ("set_state_here", "state", (*_ELEMENTS, "bool", "f32", "i64")),
    ("add_inside", "add block", _FAMILIES),
    ("remove_here", "remove", _FAMILIES),
    ("expose_here", "expose", (*_FAMILIES, *_FAMILIES, "bool")),
    ("connect_here", "connect", _FAMILIES),
    ("disconnect_here", "disconnect", _FAMILIES),
    ("edit_here", "edit", (*_FAMILIES, *_FAMILIES, "bool")),
    ("refuse_something", "refused text", _FAMILIES * 4),
    ("keep", "keep", _FAMILIES),
    (_NAN, "set", ("f64", "float", "array f32")),
]
_TABLE = [
    Focus(theme, place, kind)
    for theme, row, kinds in _THEMES
    for place in PLACES
    if could_be(row, place)
    for kind in kinds
]
random.Random(0).shuffle(_TABLE)  # few sessions have some of all
