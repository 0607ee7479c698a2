"""The cache report: counts and times of each node, and the size of the cache."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.contexts.cache.store import Counts, MemoStore
from livegrad.contexts.link import Linked


@dataclass(frozen=True)
class NodeReport:
    """One node. Nodes with equal content share their results and counts."""

    name: str
    need: tuple[str, ...]
    counts: Counts
    entries: int
    bytes: int


@dataclass(frozen=True)
class CacheReport:
    """All nodes of a program, in the order of evaluation; `report["name"]` is one of them.

    >>> from livegrad.contexts import ContextGraph
    >>> graph = ContextGraph()
    >>> _ = graph.node("size", lambda ctx: ctx.footprint * 2, extract="footprint")
    >>> program = graph.compile("size", root="footprint")
    >>> [program.evaluate(footprint=value) for value in (1, 1, 2)]
    [2, 2, 4]
    >>> report = program.report()
    >>> report["size"].counts.computed, report["size"].counts.hits, report["size"].entries
    (2, 1, 2)
    """

    nodes: tuple[NodeReport, ...]
    entries: int
    bytes: int

    def __getitem__(self, name: str) -> NodeReport:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def computed(self) -> int:
        """How often any node was computed."""
        return sum(node.counts.computed for node in self.nodes)

    def __repr__(self) -> str:
        return f"<report of {len(self.nodes)} nodes, {self.entries} results kept, {self.bytes:,} bytes; print it>"

    def __str__(self) -> str:
        width = max([len(node.name) for node in self.nodes] + [4])
        head = f"{'node':<{width}} {'computed':>8} {'hits':>8} {'reused':>8} {'evicted':>8} {'kept':>6}"
        lines = [f"{head} {'bytes':>11} {'ms':>9}  needs"]
        for node in self.nodes:
            counts = node.counts
            row = f"{node.name:<{width}} {counts.computed:>8} {counts.hits:>8} {counts.reused:>8} {counts.evicted:>8}"
            row += f" {node.entries:>6} {node.bytes:>11,} {counts.seconds * 1e3:>9.2f}"
            lines.append(f"{row}  {', '.join(node.need) or '–'}")
        lines.append(f"{self.entries} entries, {self.bytes:,} bytes in all")
        return "\n".join(lines)


def make_report(linked: Linked, store: MemoStore) -> CacheReport:
    """The statistics of a program's nodes so far."""
    nodes = [
        NodeReport(
            unit.name,
            tuple(map(str, unit.need)),
            store.counts(unit.table),
            len(unit.table.slots),
            unit.table.bytes,
        )
        for unit in linked.units
    ]
    return CacheReport(tuple(nodes), store.entries, store.bytes)
