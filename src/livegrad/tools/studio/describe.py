"""Describes a live graph as JSON for the page: blocks, pins, values, connections and nested graphs.

In: an engine. Out: dictionaries, one a block, and the differences between two descriptions. Called by `session.py` with
the graph locked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from livegrad.live.blocks.append import AppendBlock
from livegrad.live.blocks.bodies import FunctionBody, TracedBody
from livegrad.live.blocks.graph_gradient import GradientBlock
from livegrad.live.compile.flatten import find_keys
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.edges import Edge
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import Binding, Setting, describe_setting
from livegrad.tools.studio.controls import control_of
from livegrad.tools.studio.layout import Position, place_blocks
from livegrad.tools.studio.values import Json, plain

_MAX_LISTED = 16  # numbers of an array that the page can edit


class Describer:
    """Describes one engine. Blocks and graphs keep their ids, so that a page follows renames and moves."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = itertools.count(1)  # never used twice, also when a block is gone
        self._ids: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._objects: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._places: WeakKeyDictionary[Block, Position] = WeakKeyDictionary()
        self.block_by_key: dict[str, Block] = {}  # the steps of a plan

    def id_of(self, target: Block | Graph) -> str:
        """The id of a block or a graph."""
        if target not in self._ids:
            self._ids[target] = f"{'b' if isinstance(target, Block) else 'g'}{next(self._numbers)}"
            self._objects[self._ids[target]] = target
        return self._ids[target]

    def find(self, id: Any) -> Any:
        """The block or graph with an id, or None."""
        return self._objects.get(id) if isinstance(id, str) else None

    def describe(self) -> dict[str, Json]:
        """All graphs and blocks by id."""
        self.block_by_key = {}
        described: dict[str, Json] = {}
        for graph, label, parent in self._graphs():
            described[self.id_of(graph)] = {"label": label, "parent": None if parent is None else self.id_of(parent)}
            self._place(graph)
            described |= {self.id_of(block): self.block(block) for block in graph.blocks.values()}
            for block in graph.blocks.values():
                self.block_by_key |= dict.fromkeys(find_keys(self.engine.graph, block), block)
        return described

    def _graphs(self) -> Iterator[tuple[Graph, str, Block | None]]:
        """The graph of the engine and those inside its blocks, each once, with a label and the block around it."""
        worklist: list[tuple[Graph, str, Block | None]] = [(self.engine.graph, "", None)]
        visited: set[Graph] = set()
        while worklist:
            graph, label, parent = worklist.pop()
            if graph not in visited:
                visited.add(graph)
                yield graph, label, parent
                for block in graph.blocks.values():
                    worklist += [(inner, name, block) for name, inner in block.inner_graphs()]

    def _place(self, graph: Graph) -> None:
        blocks = list(graph.blocks.values())
        known = dict(self._places) | {block: block.position for block in blocks if block.position is not None}
        edges = [(source.source.block, pin.block) for pin, source in graph.sources.items() if isinstance(source, Edge)]
        placed = place_blocks(blocks, edges, known)
        self._places.update({block: place for block, place in placed.items() if block.position is None})

    def block(self, block: Block) -> Json:
        """One block."""
        graph = block.home
        return {
            "graph": None if graph is None else self.id_of(graph),
            "name": block.name,
            "kind": kind_of(block),
            "at": list(block.position or self._places.get(block, (0.0, 0.0))),
            "inputs": [self.input(pin, graph) for pin in block.inputs.values()],
            "outputs": list(block.outputs),
            "inner": [{"label": label, "graph": self.id_of(inner)} for label, inner in block.inner_graphs()],
        }

    def input(self, pin: Pin, graph: Graph | None) -> Json:
        """One input: what feeds it, its value, and how a control for it looks."""
        described: Json = {"name": pin.name}
        source = None if graph is None else graph.source_of(pin)
        if isinstance(source, Edge):
            return described | {"source": "edge", "from": [self.id_of(source.source.block), source.source.name]}
        if isinstance(source, Binding):
            return described | {"source": "bound"}
        exposed = None if graph is None else _exposed_name(pin, graph)
        if exposed is not None:
            described["as"] = exposed
        if not isinstance(source, Setting):
            inner, inner_graph = _pin_behind(pin)
            found = None if inner_graph is None else inner_graph.source_of(inner)
            if not isinstance(found, Setting):
                return described | {"source": "open"}
            source, graph = found, None
        described["source"] = "value" if graph is not None and pin in graph.sources else "default"
        return described | _setting(source) | {"control": control_of(pin, source)}


def _exposed_name(pin: Pin, graph: Graph) -> str | None:
    """The name under which a composite exposes an inner input, if any."""
    users = (user for user, _ in graph.uses if isinstance(user, Composite))
    return next((name for user in users for name in user.inputs if pin in user.pins_behind(name)), None)


def _pin_behind(pin: Pin) -> tuple[Pin, Graph | None]:
    """The innermost input that an input feeds; its value is the default of all pins around it."""
    graph = None
    while (behind := pin.block.pins_behind(pin.name)) and not isinstance(pin.block, Region):
        pin = behind[0]
        graph = pin.block.home
    return pin, graph


def _setting(setting: Setting) -> Json:
    value = setting.value
    if isinstance(value, np.ndarray) and (value.size > _MAX_LISTED or value.ndim > 1):
        return {"text": describe_setting(setting)}
    return {"value": plain(value)}


def kind_of(block: Block) -> str:
    """What a block is, for its colour and its editor."""
    match block:
        case State():
            return "state"
        case Region():
            return type(block).__name__.lower()
        case Composite():
            return "composite"
        case GradientBlock():
            return "gradient"
        case AppendBlock():
            return "append"
    body = getattr(block, "body", None)
    return "function" if isinstance(body, TracedBody) else "ir" if isinstance(body, FunctionBody) else "library"


def differences(before: dict[str, Json], after: dict[str, Json]) -> list[Json]:
    """The operations that turn one description into another.

    >>> differences({"b1": {"name": "a"}, "b2": {}}, {"b1": {"name": "b"}})
    [{'op': 'remove', 'id': 'b2'}, {'op': 'put', 'id': 'b1', 'value': {'name': 'b'}}]
    """
    removed: list[Json] = [{"op": "remove", "id": id} for id in before if id not in after]
    changed = [{"op": "put", "id": id, "value": value} for id, value in after.items() if before.get(id) != value]
    return removed + changed
