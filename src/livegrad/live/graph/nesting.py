"""Walks over nested graphs: the blocks inside a block, the graphs around a graph, and the journals of both.

`Graph` uses them to lock, to refuse cycles, and to hand over journals when blocks are added and removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.graph.block import Block
from livegrad.live.graph.journal import Journal

if TYPE_CHECKING:
    from livegrad.live.graph.block_graph import Graph


def journals_inside(block: Any, held: Collection[Journal]) -> set[Journal]:
    """The journals of the graphs inside a block, as deep as the held locks allow to look."""
    journals: set[Journal] = set()
    seen: set[Graph] = set()
    waiting = [graph for _, graph in block.inner_graphs()] if isinstance(block, Block) else []
    while waiting:
        graph = waiting.pop()
        journals.add(graph._journal)
        if graph._journal in held and graph not in seen:
            seen.add(graph)
            waiting += [inner for inner_block in graph.blocks.values() for _, inner in inner_block.inner_graphs()]
    return journals


def with_inner_blocks(block: Block) -> Iterator[Block]:
    """A block and all blocks inside it, at any depth, each once."""
    seen: set[Graph] = set()
    waiting = [block]
    while waiting:
        inner_block = waiting.pop()
        yield inner_block
        fresh = [
            graph for graph in dict.fromkeys(graph for _, graph in inner_block.inner_graphs()) if graph not in seen
        ]
        seen.update(fresh)
        waiting += [inner for graph in fresh for inner in graph.blocks.values()]


def graphs_above(graphs: Iterable[Graph]) -> set[Graph]:
    """These graphs and all graphs around them."""
    above: set[Graph] = set()
    waiting = list(graphs)
    while waiting:
        graph = waiting.pop()
        if graph not in above:
            above.add(graph)
            waiting += [around.home for around, _ in graph.uses if around.home is not None]
    return above


def require_room_for(graph: Graph, block: Block) -> None:
    """Raises if a block contains this graph, or if another engine runs the graphs inside the block."""
    inside = [inner for _, inner in block.inner_graphs()]
    above = graphs_above([graph])
    if not above.isdisjoint(inside):
        raise UsageError(f"`{block.name}` cannot contain itself", where=caller_origin())
    shared = [graph for graph in inside if graph.uses]
    while inside:
        inner = (inner_block.inner_graphs() for graph in inside for inner_block in graph.blocks.values())
        inside = list(dict.fromkeys(graph for graphs in inner for _, graph in graphs))
        shared += [graph for graph in inside if len(graph.uses) > 1]
    engines = {graph for graph in (above | graphs_above(shared)) if graph.is_engine}
    if len(engines) > 1:
        raise UsageError(f"another engine already runs the contents of `{block.name}`", where=caller_origin())
