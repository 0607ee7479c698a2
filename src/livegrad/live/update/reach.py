"""Finds the blocks that edits affect, whose nodes must be flattened again. The first step of `replan`.

In: entries of the journal. Out: the affected blocks, states and regions of the network. The cost depends only on the
entries. A region is flattened as a whole, whatever was edited inside it.
"""

from __future__ import annotations

from collections.abc import Iterable

from livegrad.live.compile.flatten import SeveralPlaces
from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.journal import Entry, Journal, StructureChange
from livegrad.live.graph.regions import Region


def blocks_reached(journal: Journal, entries: Iterable[Entry]) -> dict[Block, bool]:
    """The blocks that have a node of their own, or had one, and that edits have changed or fed otherwise.

    Graphs with another journal have left the engine, and other threads may be editing them: they are not looked into.

    True: it came, went or has other pins, and its readers may not read it any more. Raises `SeveralPlaces` if one of
    them is in a composite that is used more than once.
    """
    found: dict[Block, None] = {}
    placed: set[Block] = set()
    for entry in entries:
        subject = entry.subject
        if isinstance(subject, Pin):
            _note_behind(subject, found)
        elif isinstance(subject, StructureChange):
            region = outermost_region(subject.graph)
            if region is not None:
                found[region] = None
            for block in subject.blocks:
                found[block] = None  # as what it was
                placed.add(block)
                _note_inside(block, found, journal)  # as what it is
        else:
            _note_inside(subject, found, journal)
    nodes = (block for block in found if isinstance(block, Region) or not isinstance(block, Composite))
    return {block: block in placed for block in nodes}


def outermost_region(graph: Graph) -> Region | None:
    """The region that a graph is inside of, and that is inside of no other."""
    found: Region | None = None
    inner: Graph | None = graph
    while inner is not None and inner.uses:
        if len(inner.uses) > 1:
            raise SeveralPlaces
        around = inner.uses[0][0]
        found = around if isinstance(around, Region) else found
        inner = around.home
    return found


def _note_inside(block: Block, found: dict[Block, None], journal: Journal) -> None:
    """The region around a block, or the block, or all that is inside of a composite."""
    region = None if block.home is None else outermost_region(block.home)
    if region is not None:
        found[region] = None
        return
    waiting = [block]
    while waiting:
        own = waiting.pop()
        found[own] = None
        if isinstance(own, Composite) and not isinstance(own, Region) and own.graph.journal is journal:
            if len(own.graph.uses) > 1:
                raise SeveralPlaces
            waiting += own.graph.blocks.values()


def _note_behind(pin: Pin, found: dict[Block, None]) -> None:
    """The blocks that read what an input is given: a composite's feeds inputs inside."""
    region = None if pin.block.home is None else outermost_region(pin.block.home)
    if region is not None:
        found[region] = None
        return
    waiting = [pin]
    while waiting:
        own = waiting.pop()
        block = own.block
        found[block] = None
        if isinstance(block, Composite) and not isinstance(block, Region):
            if len(block.graph.uses) > 1:
                raise SeveralPlaces
            waiting += block.inner_inputs.get(own.name, ())
