"""Finds the blocks that edits affect, whose nodes must be flattened again. The first step of `replan`.

In: entries of the journal. Out: the affected blocks, states and regions of the network. The cost depends only on the
entries. A region is flattened as a whole, whatever was edited inside it.
"""

from __future__ import annotations

from collections.abc import Iterable

from livegrad.live.compile.flatten import SeveralUses
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.journal import Entry, Journal, StructureChange
from livegrad.live.graph.regions import Region


def blocks_reached(journal: Journal, entries: Iterable[Entry]) -> dict[Block, bool]:
    """The blocks with a node, now or before, that edits have changed or given other sources.

    The value is True if the block was added, removed or got other pins: its readers may no longer read it. Graphs with
    another journal have left the engine and may be edited by other threads, so they are not examined. Raises
    `SeveralUses` if a block is in a composite that is used more than once.
    """
    reached: dict[Block, None] = {}
    placed: set[Block] = set()
    for entry in entries:
        subject = entry.subject
        if isinstance(subject, Pin):
            _note_behind(subject, reached)
        elif isinstance(subject, StructureChange):
            region = outermost_region(subject.graph)
            if region is not None:
                reached[region] = None
            for block in subject.blocks:
                reached[block] = None  # as it was
                placed.add(block)
                _note_inside(block, reached, journal)  # as it is now
        else:
            _note_inside(subject, reached, journal)
    nodes = (block for block in reached if isinstance(block, Region) or not isinstance(block, Composite))
    return {block: block in placed for block in nodes}


def outermost_region(graph: Graph) -> Region | None:
    """The outermost region around a graph."""
    outermost: Region | None = None
    inner: Graph | None = graph
    while inner is not None and inner.uses:
        if len(inner.uses) > 1:
            raise SeveralUses
        around = inner.uses[0][0]
        outermost = around if isinstance(around, Region) else outermost
        inner = around.home
    return outermost


def _note_inside(block: Block, reached: dict[Block, None], journal: Journal) -> None:
    """Adds the region around a block; otherwise the block, and all blocks inside it if it is a composite."""
    region = None if block.home is None else outermost_region(block.home)
    if region is not None:
        reached[region] = None
        return
    waiting = [block]
    while waiting:
        inner_block = waiting.pop()
        reached[inner_block] = None
        if (
            isinstance(inner_block, Composite)
            and not isinstance(inner_block, Region)
            and inner_block.graph.journal is journal
        ):
            if len(inner_block.graph.uses) > 1:
                raise SeveralUses
            waiting += inner_block.graph.blocks.values()


def _note_behind(pin: Pin, reached: dict[Block, None]) -> None:
    """Adds the blocks that read an input. Those of a composite are blocks inside it."""
    region = None if pin.block.home is None else outermost_region(pin.block.home)
    if region is not None:
        reached[region] = None
        return
    waiting = [pin]
    while waiting:
        inner_pin = waiting.pop()
        block = inner_pin.block
        reached[block] = None
        if isinstance(block, Composite) and not isinstance(block, Region):
            if len(block.graph.uses) > 1:
                raise SeveralUses
            waiting += block.inner_inputs.get(inner_pin.name, ())
