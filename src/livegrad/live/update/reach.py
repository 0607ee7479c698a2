"""Finds the blocks that edits affect, whose nodes must be flattened again. The first phase of `replan`.

In: entries of the journal. Out: the affected blocks, states and regions of the network. The cost depends only on the
entries. An edit inside a region affects the whole region.
"""

from __future__ import annotations

from collections.abc import Iterable

from livegrad.live.compile.flatten import SeveralUses
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.journal import Entry, Journal, StructureChange
from livegrad.live.graph.regions import Region


def find_affected_blocks(journal: Journal, entries: Iterable[Entry]) -> dict[Block, bool]:
    """The blocks with a node, now or before, whose bodies, pins or sources the edits have changed.

    The value is True if the block was added, removed or got other pins: its readers may no longer read it. Graphs with
    another journal have left the engine and may be edited by other threads, so they are not examined. Raises
    `SeveralUses` if a block is in a composite that is used more than once.
    """
    affected: dict[Block, None] = {}
    restructured: set[Block] = set()
    for entry in entries:
        subject = entry.subject
        if isinstance(subject, Pin):
            _add_readers_behind(subject, affected)
        elif isinstance(subject, StructureChange):
            region = find_outermost_region(subject.graph)
            if region is not None:
                affected[region] = None
            for block in subject.blocks:
                affected[block] = None  # for its previous nodes
                restructured.add(block)
                _add_block(block, affected, journal)  # for its current nodes
        else:
            _add_block(subject, affected, journal)
    nodes = (block for block in affected if isinstance(block, Region) or not isinstance(block, Composite))
    return {block: block in restructured for block in nodes}


def find_outermost_region(graph: Graph) -> Region | None:
    """The outermost region around a graph."""
    outermost: Region | None = None
    inner: Graph | None = graph
    while inner is not None and inner.uses:
        if len(inner.uses) > 1:
            raise SeveralUses
        parent = inner.uses[0][0]
        outermost = parent if isinstance(parent, Region) else outermost
        inner = parent.home
    return outermost


def _add_block(block: Block, affected: dict[Block, None], journal: Journal) -> None:
    """Adds the region around a block. Without one, adds the block, and all blocks inside it if it is a composite."""
    region = None if block.home is None else find_outermost_region(block.home)
    if region is not None:
        affected[region] = None
        return
    worklist = [block]
    while worklist:
        inner_block = worklist.pop()
        affected[inner_block] = None
        if (
            isinstance(inner_block, Composite)
            and not isinstance(inner_block, Region)
            and inner_block.graph.journal is journal
        ):
            if len(inner_block.graph.uses) > 1:
                raise SeveralUses
            worklist += inner_block.graph.blocks.values()


def _add_readers_behind(pin: Pin, affected: dict[Block, None]) -> None:
    """Adds the block of an input and, inside a composite, the blocks that read it."""
    region = None if pin.block.home is None else find_outermost_region(pin.block.home)
    if region is not None:
        affected[region] = None
        return
    worklist = [pin]
    while worklist:
        inner_pin = worklist.pop()
        block = inner_pin.block
        affected[block] = None
        if isinstance(block, Composite) and not isinstance(block, Region):
            if len(block.graph.uses) > 1:
                raise SeveralUses
            worklist += block.inner_inputs.get(inner_pin.name, ())
