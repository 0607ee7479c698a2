"""Walks over nested graphs: the blocks inside a block, the graphs around a graph, and the journals of both.

`Graph` uses them to lock, to reject cycles, and to share journals when blocks are added and removed.
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
    """The journals of the graphs inside a block, to the depth that the locks in `held` protect."""
    journals: set[Journal] = set()
    visited: set[Graph] = set()
    worklist = [graph for _, graph in block.inner_graphs()] if isinstance(block, Block) else []
    while worklist:
        graph = worklist.pop()
        journals.add(graph._journal)
        if graph._journal in held and graph not in visited:
            visited.add(graph)
            worklist += [inner for inner_block in graph.blocks.values() for _, inner in inner_block.inner_graphs()]
    return journals


def with_inner_blocks(block: Block) -> Iterator[Block]:
    """A block and all blocks inside it, at any depth, each once."""
    visited: set[Graph] = set()
    worklist = [block]
    while worklist:
        inner_block = worklist.pop()
        yield inner_block
        graphs = dict.fromkeys(graph for _, graph in inner_block.inner_graphs())
        unvisited = [graph for graph in graphs if graph not in visited]
        visited.update(unvisited)
        worklist += [inner for graph in unvisited for inner in graph.blocks.values()]


def graphs_above(graphs: Iterable[Graph]) -> set[Graph]:
    """These graphs and all graphs around them."""
    above: set[Graph] = set()
    worklist = list(graphs)
    while worklist:
        graph = worklist.pop()
        if graph not in above:
            above.add(graph)
            worklist += [user.home for user, _ in graph.uses if user.home is not None]
    return above


def require_addable(graph: Graph, block: Block) -> None:
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
