"""Edits of several steps, that lead where single edits seldom do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.live.graph import journal
from tests.fuzz.engine_bodies import BODIES
from tests.fuzz.engine_coverage import could_be
from tests.fuzz.engine_editor import PALETTES, region_of
from tests.fuzz.engine_edits import EDITS
from tests.fuzz.engine_model import (
    Bound,
    Choice,
    Edge,
    Given,
    Group,
    Leaf,
    Memory,
    Net,
    Node,
    Root,
    bound_to,
    instances_of,
)
from tests.fuzz.engine_themes import Themes


class Scenes(Themes):
    """Makes random edits, also those of several steps."""

    resizing = False  # memory that is bound has another size: the graph comes to something else than what runs

    def __init__(self, engine: lg.Engine, chance: random.Random) -> None:
        super().__init__(engine, chance)
        self.outside: list[lg.Composite] = []  # that no engine runs

    @property
    def kinds_of_edits(self) -> Sequence[Callable[[Any], bool]]:
        if self.watches:
            return _WITH_NAN
        return _WITH_DIVISIONS if self.main == "i64" else _ALL

    def interrupted_frame(self, within: str = "") -> None:
        """A frame with an exception in it, perhaps in a file of the engine."""
        raise NotImplementedError

    # --- what waits until it is read ---

    def add_waiting(self) -> bool:
        """A block that reads a State, and that only a branch reads: it runs when that is taken, or when it is read."""
        nets = [net for net in self.alive() if self.where[net] in ("top", "composite")]
        net = self.chance.choice(nets)
        if len(net.nodes) > (10 if net is self.net else 4):
            return False
        state = self._moving_state(net)
        leaf = self.add_leaf(net) if state is not None else None
        if state is None or leaf is None:
            return True
        pins = [pin for pin in leaf.inputs if pin in ("x", "y", "z")]
        self._connect(net, state, "value", leaf, self.chance.choice(pins))
        self.feed_all(net, leaf)
        region = self.add_region(net, self.chance.choice(("if", "if_else", "switch")))
        if region is None:
            return True
        pins = [pin for pin in region.inputs if pin != region.control]
        if pins and "result" in leaf.outputs:
            self._connect(net, leaf, "result", region, self.chance.choice(pins))
        self.feed_all(net, region)
        return True

    def rest(self) -> bool:
        """A State that stays as it is, with a reader, and frames in which nothing happens."""
        net = self.chance.choice([net for net in self.alive() if self.where[net] in ("top", "composite")])
        if len(net.nodes) <= (10 if net is self.net else 4):
            state = self.add_state(net)
            leaf = self.add_leaf(net) if state is not None else None
            if state is None or leaf is None:
                return True
            self._connect(net, state, "value", state, "next")
            self._connect(net, state, "value", leaf, self.chance.choice(leaf.inputs))
            self.feed_all(net, leaf)
        for _ in range(3):
            self.frame()
        return True

    def turn_between_frames(self) -> bool:
        """Numbers inside of branches, taken or not, and nothing else between frames."""
        if self.broken or not self.turn_inside_branch():
            return False
        for _ in range(3):
            self.frame()
            self.turn_inside_branch()
        self.frame()
        return True

    def _moving_state(self, net: Net) -> Memory | None:
        """A State that has another value in each frame, mostly."""
        known = [node for node in net.nodes.values() if isinstance(node, Memory)]
        if known and self._often(0.5):
            return self.chance.choice(known)
        state = self.add_state(net)
        follows = self.add_leaf(net) if state is not None else None
        if state is not None and follows is not None:
            pin = next(pin for pin in follows.inputs if pin in ("x", "y", "z"))
            self._connect(net, state, "value", follows, pin)
            self.feed_all(net, follows)
            self._connect(net, follows, "result", state, "next")
        return state

    # --- what fails ---

    def add_division(self) -> bool:
        """Divisions by whole numbers that may be zero, each with a reader: several fail in one frame."""
        nets = [net for net in self.alive() if self.where[net] in ("top", "composite")]
        net = self.chance.choice(nets)
        if len(net.nodes) > (8 if net is self.net else 4):
            return False
        for body in ("divide", "divide2"):
            leaf = self.add_leaf(net, body=BODIES[body])
            reader = self.add_leaf(net, body=BODIES["count"]) if leaf is not None else None
            if leaf is None or reader is None:
                return True
            self.set(net, leaf, "x", "array i64")
            self.set(net, leaf, "y", "array i64", value=np.array([self.chance.choice((0, 0, 1)), 2, 3]))
            self._connect(net, leaf, "result", reader, "x")
            self.feed_all(net, reader)
        return True

    def post_numbers(self) -> bool:
        """Floats in the place of floats, and a frame that is interrupted while it takes them."""
        spots = [(net, place) for net in self.alive() for place, source in net.sources.items() if _is_float(source)]
        if not spots:
            return False
        for net, (node, pin) in self.chance.sample(spots, min(len(spots), self.chance.randint(1, 3))):
            self.set(net, node, pin, "float", "set again")
        if self.engine._journal.mailbox and self._often(0.7):
            self.interrupted_frame(journal.__file__)
        self.frame()
        return True

    # --- NaN ---

    def add_nan(self) -> bool:
        """A block that may give a NaN, with a reader, which need not give one, or nobody until a branch is taken."""
        net = self.chance.choice([net for net in self.alive() if self.where[net] in ("top", "composite")])
        if len(net.nodes) > (10 if net is self.net else 4):
            return False
        source = self._add_source_of_nan(net)
        reader: Node | None = None
        if source is not None and self._often(0.6):
            reader = self.add_leaf(net, body=BODIES[self.chance.choice(("less", "blind", "mix", "zero"))])
        elif source is not None:
            reader = self.add_region(net, self.chance.choice(("if", "if_else", "switch")))
        if source is None or reader is None:
            return True
        pins = [pin for pin in reader.inputs if pin in ("x", "y", "z")]
        if pins:
            self._connect(net, source, "result", reader, self.chance.choice(pins))
        self.feed_all(net, reader)
        if isinstance(reader, Choice) and self._often(0.7):  # nobody needs it, until it is read
            self._turn_nan(net, source, 0.9)
            kind, value = ("turns", -1) if reader.kind == "switch" else ("bool", False)
            self.set(net, reader, reader.control, kind, "set control", value)
        if self._often(0.7):
            self.frame()
        return True

    def add_nan_to_branch(self) -> bool:
        """The same inside of a branch, which is then left, or of a loop."""
        regions = self._regions()
        if not regions:
            return False
        net, region = self.chance.choice(regions)
        body = self.chance.choice([group.net for group in region.bodies.values()])
        known = [node for node in body.nodes.values() if isinstance(node, Leaf) and node.body.may_give_nan]
        if len(body.nodes) > 4 and not known:
            return False
        source = self.chance.choice(known) if known else self._add_source_of_nan(body)
        if source is not None:
            self._turn_nan(body, source)
        self.frame()
        self.feed(net, region, region.control)
        return True

    def turn_nan(self) -> bool:
        """Has a block give a NaN, or not any more."""
        sources = [(net, node) for net in self.alive() for node in net.nodes.values() if isinstance(node, Leaf)]
        sources = [(net, node) for net, node in sources if node.body.may_give_nan]
        if not sources:
            return False
        self._turn_nan(*self.chance.choice(sources))
        return True

    def _add_source_of_nan(self, net: Net) -> Leaf | None:
        leaf = self.add_leaf(net, body=BODIES[self.chance.choice(("zero", "zero2"))])
        if leaf is not None:
            self._turn_nan(net, leaf)
            self.feed_all(net, leaf)
        return leaf

    def _turn_nan(self, net: Net, leaf: Leaf, probability: float = 0.5) -> None:
        kind = self.chance.choice(PALETTES[self.main])
        value = self.value(kind) * 0 if self._often(probability) else self.value(kind)
        self.set(net, leaf, "y", kind, "set", value)

    def _regions(self) -> list[tuple[Net, Choice]]:
        return [(net, node) for net in self.alive() for node in net.nodes.values() if isinstance(node, Choice)]

    # --- what is lost ---

    def remove_exposed(self) -> bool:
        """A block inside of a composite goes whose output is read outside."""
        edges = [source for net in self.alive() for source in net.sources.values() if isinstance(source, Edge)]
        groups = [(edge.node, edge.pin) for edge in edges if isinstance(edge.node, Group)]
        spots = [(group.net, group.inner_outputs[pin][0]) for group, pin in groups if pin in group.inner_outputs]
        spots = [(net, node) for net, node in spots if net.nodes.get(node.name) is node]
        if not spots:
            return False
        self._remove(*self.chance.choice(spots))
        return True

    # --- graphs that nobody runs ---

    def use_outside(self) -> bool:
        """What an engine runs is used once more, in a composite that none runs: nothing changes for the engine."""
        bodies = [body for _, region in self._regions() for body in region.bodies.values()]
        bodies = [body for body in bodies if not Choice("outside", "if", {"then": body}, {}).is_refused]
        if not bodies:
            return False
        body = self.chance.choice(bodies)
        outside = lg.Composite("outside")
        outside.graph.add(lg.If("outside", self.real[body]))
        self.outside.append(outside)
        self.log.append(f"use {body.name} outside")
        return True

    # --- memory of others ---

    def resize_by_owner(self) -> bool:
        """Memory that is bound gets another size: its readers fail until it is bound again."""
        if not self._resizable():
            return False
        self.frame()  # takes the edits so far
        found = self._resizable()
        if self.broken or not found:
            return True
        here = [one for one in found if self.focus is not None and self._home_of(one) in self._focused_nets()]
        external = self.chance.choice(here or found)
        array, before = external.array, external.array.shape
        shape = self.chance.choice([shape for shape in ((1,), (2,), (3,), (4,), (2, 3)) if shape != before])
        self._note(
            "resize by owner", self._home_of(external), array.dtype.name, f"the owner resizes {array!r} to {shape}"
        )
        array.resize(shape, refcheck=False)
        if external.version is not None:
            external.touch()
        self.resizing = True
        self.frame()
        self.resizing = False
        again = np.resize(array, before).copy() if self._often(0.7) else array
        self._bind_again(external, lg.live.ExternalBuffer(again, external.version))
        return True

    def resize_here(self) -> bool:
        """The same with memory that is bound where this session looks closer."""
        net = self._net()
        known = [external for source in net.sources.values() for external in _externals_of(source)]
        spot = None if any(one.array.ndim for one in known) else self._leaf_pin(net)
        if spot is not None:
            self.bind_new(*spot, self._kind)
        return self.resize_by_owner()

    def _resizable(self) -> list[lg.live.ExternalBuffer]:
        """Memory that is read whatever branches are taken, and however often loops go round."""
        instances, _ = instances_of(self.net)
        inside = [ref for one in instances for body in one.bodies for inner in body.instances for ref in inner.refs()]
        spared = {id(external) for external in _externals(inside)}
        found = {id(one): one for one in _externals(ref for own in instances for ref in own.feeds.values())}
        return [one for key, one in found.items() if key not in spared and one.array.ndim]

    def _home_of(self, external: lg.live.ExternalBuffer) -> Net:
        """A graph that has it."""
        homes = [net for net in self.alive() for source in net.sources.values() if _externals_of(source) == [external]]
        homes = [net for net in homes if could_be("resize by owner", region_of(self.where[net]))]
        return self.chance.choice(homes) if homes else self.net

    def _bind_again(self, external: lg.live.ExternalBuffer, fresh: lg.live.ExternalBuffer) -> None:
        """Everywhere, also in graphs that may be used later."""
        self.external = [fresh if one is external else one for one in self.external]
        for net, graph in self.graphs.items():
            for (node, pin), source in net.sources.items():
                if isinstance(source, Bound) and source.external is external:
                    graph.bind(self.real[node][pin], fresh)
                    net.sources[node, pin] = bound_to(fresh)


def _is_float(source: Any) -> bool:
    return isinstance(source, Given) and source.value.__class__ is float


def _externals(refs: Iterable[Any]) -> list[lg.live.ExternalBuffer]:
    return [external for ref in refs if isinstance(ref, Root) for external in _externals_of(ref.source)]


def _externals_of(source: Any) -> list[lg.live.ExternalBuffer]:
    return [source.external] if isinstance(source, Bound) else []


_ALL = [
    *EDITS,
    Scenes.rest,
    Scenes.turn_between_frames,
    Scenes.turn_between_frames,
    Scenes.add_waiting,
    Scenes.resize_by_owner,
    Scenes.post_numbers,
    Scenes.use_outside,
    Scenes.remove_exposed,
]
_NAN = [Scenes.add_nan, Scenes.add_nan, Scenes.add_nan_to_branch, Scenes.add_nan_to_branch, Scenes.turn_nan]
_WITH_NAN = [*_ALL, *_NAN, *_NAN]
_WITH_DIVISIONS = [*_ALL, Scenes.add_division]
