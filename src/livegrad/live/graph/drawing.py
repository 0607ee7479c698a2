"""Draws a live graph: a box for each block with its inputs, an arrow for each connection.

In: the `Graph` of an engine. Out: SVG text. Called by `Engine` for notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from livegrad.ir.drawing import Box, draw_graph
from livegrad.live.graph.block import Block, Pin, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.edges import Edge
from livegrad.live.graph.sources import Binding, Setting, describe_setting


def draw_blocks(graph: Graph, exposed: Mapping[str, Sequence[Pin]] | None = None) -> str:
    """Draws blocks from top to bottom; edges back to states are dashed.

    `exposed` has the names of exposed inner inputs of a composite.

    >>> graph = Graph()
    >>> _ = graph.add(State("position", [0.0]))
    >>> draw_blocks(graph).count("<rect")
    1
    """
    outside = {pin: name for name, pins in (exposed or {}).items() for pin in pins}
    boxes = [
        Box(name, (name, *_input_lines(graph, block, outside)), _kind(block)) for name, block in graph.blocks.items()
    ]
    edges = [
        (source.source.block.name, pin.block.name) for pin, source in graph.sources.items() if isinstance(source, Edge)
    ]
    return draw_graph(boxes, edges, f"{len(boxes)} blocks")


def _kind(block: Block) -> str:
    if block.debug.state == "failed":
        return "problem"
    return "leaf" if isinstance(block, State) else "known" if isinstance(block, Composite) else "plain"


def _input_lines(graph: Graph, block: Block, outside: Mapping[Pin, str]) -> list[str]:
    """The source of each input, one line each."""
    lines = []
    for name, pin in block.inputs.items():
        source = graph.source_of(pin)
        if pin in outside:
            lines.append(f"{name} ← {outside[pin]} outside")
        elif isinstance(source, Edge):
            lines.append(f"{name} ← {source.source}")
        elif isinstance(source, Setting):
            lines.append(f"{name} = {describe_setting(source)}")
        else:
            lines.append(f"{name} bound" if isinstance(source, Binding) else f"{name} not connected")
    return lines
