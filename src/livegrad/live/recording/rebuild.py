"""Recreates blocks from the dictionaries that `describe.py` produces: the inverse of `Describer`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from livegrad.ir.text import parse_function, parse_type
from livegrad.live.blocks.append import AppendBlock
from livegrad.live.blocks.bodies import FunctionBody, TracedBody
from livegrad.live.blocks.graph_gradient import GradientBlock
from livegrad.live.blocks.neighbours import neighbour_block
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import Block, Body, Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.regions import For, If, IfElse, Switch, While
from livegrad.live.graph.sources import Binding, ExternalBuffer, setting_of
from livegrad.live.recording.exact_values import decode_value
from livegrad.live.recording.function_text import FunctionReader
from livegrad.ops.context import context

Line = dict[str, Any]
_REGIONS: dict[str, Callable[..., Block]] = {"if": If, "if_else": IfElse, "switch": Switch}


class BlockReader:
    """Recreates each block on first use, and finds it by its id."""

    def __init__(self) -> None:
        self.functions = FunctionReader()
        self.blocks: dict[Hashable, Block] = {}
        self.memory: dict[Hashable, ExternalBuffer] = {}

    def pin(self, text: list[Any]) -> Pin:
        """The pin of a described block."""
        return self.blocks[text[0]][text[1]]

    def feed(self, graph: Graph, pin: Pin, source: Line) -> None:
        """Connects, binds or sets an input as described."""
        if "connect" in source:
            graph.connect(self.pin(source["connect"]), pin)
        elif "bind" in source:
            graph.bind(pin, self.memory[source["bind"]])
        else:
            graph.restore(pin, decode_value(source["set"]))

    def suspend(self, graph: Graph, block_id: Hashable, name: str, source: Line) -> None:
        """Adds a dormant source as described. Its pins may be missing."""
        if "connect" in source:
            source_id, output = source["connect"]
            described: Source = Edge(self.blocks[source_id].pin_named(output, "output"))
        elif "bind" in source:
            described = Binding(self.memory[source["bind"]])
        else:
            described = setting_of(decode_value(source["set"]))
        graph.dormant[self.blocks[block_id].pin_named(name, "input")] = described

    def block(self, line: Line) -> Any:
        """The block with a description, created on first use."""
        if line["id"] not in self.blocks:
            self.blocks[line["id"]] = self._make(line)
        return self.blocks[line["id"]]

    def _make(self, line: Line) -> Block:
        name, kind = line["name"], line["kind"]
        if kind == "block":
            return Block(self.body(line["body"]), name, line["shapes"])
        if kind == "state":
            return State(name, decode_value(line["initial"]))
        if kind == "composite":
            return self._composite(name, line)
        if kind == "gradient":
            return GradientBlock(name, self.pin(line["of"]), {key: self.pin(pin) for key, pin in line["by"].items()})
        if kind == "append buffer":
            return AppendBuffer(name, capacity=line["capacity"], writers=line["writers"])
        if kind == "append":
            return AppendBlock(self.functions.get(line["function"]), line["capacity"], name)
        if kind == "neighbours":
            return neighbour_block(capacity=line["capacity"], name=name)
        bodies = [self.block(body) for body in line["bodies"].values()]
        if kind in _REGIONS:
            return _REGIONS[kind](name, *bodies)
        return (For if kind == "for" else While)(name, bodies[0], line["carried"])

    def _composite(self, name: str, line: Line) -> Composite:
        composite = Composite(name)
        self.fill(composite.graph, line)
        for exposed_name, pins in line["inputs"].items():
            for pin in pins:
                composite.expose(self.pin(pin), exposed_name)
        for exposed_name, pin in line["outputs"].items():
            composite.expose(self.pin(pin), exposed_name)
        return composite

    def fill(self, graph: Graph, line: Line) -> None:
        """Adds the described blocks to a graph, and then their sources."""
        for block in line["blocks"]:
            graph.add(self.block(block))
        for block_id, pin, source in line["sources"]:
            self.feed(graph, self.blocks[block_id][pin], source)
        for block_id, pin, source in line.get("dormant", ()):
            self.suspend(graph, block_id, pin, source)

    def body(self, line: Line) -> Body:
        """The body of a description."""
        inputs = {name: None if text is None else parse_type(text) for name, text in line["inputs"].items()}
        outputs = tuple(line["outputs"])
        if "ir" in line:
            keys = {
                name.removeprefix("$"): context(name.removeprefix("$")).attribute("key") for name in line["features"]
            }
            function = parse_function(line["ir"], keys=keys)
            return FunctionBody(function, tuple(inputs), outputs, line["name"])
        return TracedBody(self.functions.get(line["python"]), inputs, outputs, line["name"])
