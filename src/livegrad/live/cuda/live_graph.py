"""Executable graphs of the live engine: several graphs may have a node for the same launch, and all learn of a change.

The engine keeps one graph for each set of stale steps so far, so a step's launches are in many of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.runtime.cuda.cuda_graph import ExecutableGraph, GraphBuilder, Launch


class LiveGraph(ExecutableGraph):
    """An executable graph that shares its launches with others. It has to be closed: its launches refer to it."""

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__(builder)
        for launch in self._nodes:
            launch.graphs.append(self)

    def replace(self, old: Launch, new: Launch) -> None:
        """Gives the node of one launch to another, with other argument slots, another grid or another function."""
        self._nodes[new] = self._nodes.pop(old)
        self.changed.pop(old, None)
        self.changed[new] = None
        new.graphs.append(self)

    def close(self) -> None:
        """Destroys the graph. The driver waits until a running one has ended."""
        for launch in self._nodes:
            launch.graphs.remove(self)
        super().close()


def notify(launches: Sequence[Launch]) -> None:
    """Tells all graphs with a node for one of these launches that it changed."""
    for launch in launches:
        for graph in launch.graphs:
            graph.changed[launch] = None
