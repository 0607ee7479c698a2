"""Serialises blocks, their sources and their functions to JSON, for recordings and documents.

In: blocks of an engine. Out: dictionaries from which `rebuild.py` recreates the blocks. Each block and each piece of
memory is described once; later lines refer to it by id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any

import numpy as np

from livegrad.ir.text import print_function
from livegrad.live.blocks.append import AppendBlock
from livegrad.live.blocks.bodies import FunctionBody, TracedBody
from livegrad.live.blocks.graph_gradient import GradientBlock
from livegrad.live.blocks.neighbours import NeighbourBlock
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import Block, Body, Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import Binding, ExternalBuffer
from livegrad.live.recording.exact_values import NotRecordable, encode_array, encode_value
from livegrad.live.recording.function_text import FunctionWriter
from livegrad.ops.context import feature_leaves, feature_of

Line = dict[str, Any]


class Describer:
    """Describes the blocks of one recording."""

    def __init__(self, write: Callable[[Line], None], functions: FunctionWriter | None = None) -> None:
        self._functions = functions or FunctionWriter(write)
        self._write = write
        self._blocks: dict[Block, Hashable] = {}
        self._uncommitted: list[Block] = []  # described for an edit that is not in the file yet
        self._next = 0
        self._memory: dict[ExternalBuffer, int] = {}
        self._contents: dict[ExternalBuffer, tuple[bytes, int | None]] = {}  # as last written to the file

    def new_id(self, block: Block) -> Hashable:
        """An id that no other block has."""
        self._next += 1
        return self._next - 1

    def id_of(self, block: Block) -> Hashable:
        """The id of a described block."""
        block_id = self._blocks.get(block)
        if block_id is None:
            raise NotRecordable(f"`{block.name}` cannot be recorded here: it is not in a graph of this engine")
        return block_id

    def pin(self, pin: Pin) -> list[Any]:
        """A pin as the id of its block and its name."""
        return [self.id_of(pin.block), pin.name]

    def graph(self, graph: Graph, top: Graph) -> Hashable | None:
        """The id of the composite that has a graph; None for the graph of the engine."""
        if graph is top:
            return None
        composites = (
            composite
            for composite in self._blocks
            if isinstance(composite, Composite) and not isinstance(composite, Region)
        )
        owner = next((composite for composite in composites if composite.graph is graph), None)
        if owner is None:
            raise NotRecordable("this graph cannot be recorded: it is not in a composite of this engine")
        return self._blocks[owner]

    def commit(self) -> None:
        """Keeps the ids of blocks whose description is in the file."""
        self._uncommitted.clear()

    def roll_back(self) -> None:
        """Forgets blocks whose description was not written to the file."""
        for block in self._uncommitted:
            del self._blocks[block]
        self._uncommitted.clear()

    def block(self, block: Block) -> Line:
        """Describes a block with its contents; a block that was described before, only by its id."""
        block_id = self._blocks.get(block)
        if block_id is not None:
            return {"id": block_id}
        described = self._describe(block)
        self._blocks[block] = self.new_id(block)
        self._uncommitted.append(block)
        return {"id": self._blocks[block], "name": block.name, **described}

    def _describe(self, block: Block) -> Line:
        match block:
            case State():
                return {"kind": "state", "initial": encode_array(np.asarray(block.initial))}
            case Region():
                bodies = {label: self.block(body) for label, body in block.bodies.items()}
                return {"kind": block.kind, "bodies": bodies, "carried": block.carried}
            case Composite():
                return self._composite(block)
            case GradientBlock():
                by = {name: self.pin(pin) for name, pin in block.by.items()}
                return {"kind": "gradient", "of": self.pin(block.of), "by": by}
            case AppendBuffer():
                return {"kind": "append buffer", "capacity": block.capacity, "writers": list(block.inputs)}
            case AppendBlock():
                function_id = self._functions.id_of(block.function)
                return {"kind": "append", "capacity": block.capacity, "function": function_id}
            case NeighbourBlock():
                return {"kind": "neighbours", "capacity": block.limits["most"]}
        return {"kind": "block", "body": self.body(block.body), "shapes": block.shapes}

    def inside(self, graph: Graph, only: Collection[Block] | None = None) -> Line:
        """Describes the blocks of a graph, or `only` some of them, and the sources of their inputs among these."""
        blocks = [self.block(block) for block in graph.blocks.values() if only is None or block in only]
        feeds = ((pin, source) for pin, source in graph.sources.items() if is_among(only, pin, source))
        sources = [[*self.pin(pin), self.source(source)] for pin, source in feeds]
        dormant = self.dormant(graph) if only is None else []
        return {"blocks": blocks, "sources": sources, **({"dormant": dormant} if dormant else {})}

    def dormant(self, graph: Graph) -> list[list[Any]]:
        """Describes the dormant sources of a graph."""
        return [[*self.pin(pin), self.source(source)] for pin, source in graph.dormant.items()]

    def _composite(self, block: Composite) -> Line:
        return {
            "kind": "composite",
            **self.inside(block.graph),
            "inputs": {name: [self.pin(pin) for pin in pins] for name, pins in block.inner_inputs.items()},
            "outputs": {name: self.pin(pin) for name, pin in block.inner_outputs.items()},
        }

    def body(self, body: Body) -> Line:
        """Describes a body."""
        inputs = {spec.name: None if spec.type is None else str(spec.type) for spec in body.inputs}
        common = {"name": body.name, "inputs": inputs, "outputs": list(body.outputs)}
        if isinstance(body, FunctionBody):
            features = sorted({str(feature_of(leaf)) for leaf in feature_leaves(body.source.results)})
            return {"ir": print_function(body.source), "features": features, **common}
        if isinstance(body, TracedBody):
            return {"python": self._functions.id_of(body.function), **common}
        raise NotRecordable(
            f"`{body.name}` cannot be recorded: it is neither a Python function nor a function of the value IR",
            found=type(body).__name__,
            help="close the recording first, or leave the block out",
        )

    def source(self, source: Source) -> Line:
        """Describes the source of a pin."""
        match source:
            case Edge():
                return {"connect": self.pin(source.source)}
            case Binding():
                return {"bind": self.memory(source.external)}
        return {"set": encode_value(source.value)}

    def memory(self, external: ExternalBuffer) -> int:
        """The id of external memory, whose contents are written to the file."""
        if external not in self._memory:
            if not isinstance(external.array, np.ndarray):
                raise NotRecordable("device memory cannot be recorded", help="bind a NumPy array")
            self._memory[external] = len(self._memory)
            self.write_memory()
        return self._memory[external]

    def write_memory(self) -> None:
        """Writes external memory that has changed since it was last written."""
        for external, memory_id in self._memory.items():
            contents = external.array.tobytes(), external.version
            if self._contents.get(external) != contents:
                self._contents[external] = contents
                self._write({"memory": memory_id, "version": external.version, **encode_array(external.array)})


def is_among(blocks: Collection[Block] | None, pin: Pin, source: Source) -> bool:
    """Whether an input, and the block that feeds it, are among some blocks (None: any)."""
    if blocks is None:
        return True
    return pin.block in blocks and (not isinstance(source, Edge) or source.source.block in blocks)
