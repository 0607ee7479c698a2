"""Edits of several steps, that lead where single edits seldom do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import livegrad as lg
from tests.fuzz.engine_edits import EDITS, Edits
from tests.fuzz.engine_model import Bound, Memory, Net, Root, bound_to, instances_of


class Scenes(Edits):
    """Makes random edits, also those of several steps."""

    resizing = False  # memory that is bound has another size: the graph comes to something else than what runs

    @property
    def kinds_of_edits(self) -> Sequence[Callable[[Any], bool]]:
        return _ALL

    def frame(self) -> None:
        """One frame, and the comparison."""
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

    # --- memory of others ---

    def resize_by_owner(self) -> bool:
        """Memory that is bound gets another size: its readers fail until it is bound again."""
        if not self._resizable():
            return False
        self.frame()  # takes the edits so far
        found = self._resizable()
        if self.broken or not found:
            return True
        external = self.chance.choice(found)
        array, before = external.array, external.array.shape
        shape = self.chance.choice([shape for shape in ((1,), (2,), (3,), (4,), (2, 3)) if shape != before])
        self._note("resize by owner", self.net, array.dtype.name, f"the owner resizes {array!r} to {shape}")
        array.resize(shape, refcheck=False)
        if external.version is not None:
            external.touch()
        self.resizing = True
        self.frame()
        self.resizing = False
        again = np.resize(array, before).copy() if self._often(0.7) else array
        self._bind_again(external, lg.ExternalBuffer(again, external.version))
        return True

    def _resizable(self) -> list[lg.ExternalBuffer]:
        """Memory that is read whatever branches are taken, and however often loops go round."""
        instances, _ = instances_of(self.net)
        inside = [ref for one in instances for body in one.bodies for inner in body.instances for ref in inner.refs()]
        spared = {id(external) for external in _externals(inside)}
        found = {id(one): one for one in _externals(ref for own in instances for ref in own.feeds.values())}
        return [one for key, one in found.items() if key not in spared and one.array.ndim]

    def _bind_again(self, external: lg.ExternalBuffer, fresh: lg.ExternalBuffer) -> None:
        """Everywhere, also in graphs that may be used later."""
        self.external = [fresh if one is external else one for one in self.external]
        for net, graph in self.graphs.items():
            for (node, pin), source in net.sources.items():
                if isinstance(source, Bound) and source.external is external:
                    graph.bind(self.real[node][pin], fresh)
                    net.sources[node, pin] = bound_to(fresh)


def _externals(refs: Iterable[Any]) -> list[lg.ExternalBuffer]:
    sources = [ref.source for ref in refs if isinstance(ref, Root)]
    return [source.external for source in sources if isinstance(source, Bound)]


_ALL = [*EDITS, Scenes.add_waiting, Scenes.resize_by_owner]
