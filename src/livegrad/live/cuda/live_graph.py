"""Executable graphs of the live engine. Several graphs share a launch, and are notified when it changes.

The engine caches one graph for each set of stale steps, so the launches of a step are in many graphs.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.runtime.cuda.cuda_graph import ExecutableGraph, GraphBuilder, Launch


class LiveGraph(ExecutableGraph):
    """An executable graph that shares its launches with others. It must be closed, because its launches refer to it."""

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__(builder)
        for launch in self._nodes:
            launch.graphs.append(self)

    def replace(self, old: Launch, new: Launch) -> None:
        """Replaces the launch of a node by one with other argument slots, another grid or another function."""
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
    """Marks these launches as changed in all graphs with a node for them."""
    for launch in launches:
        for graph in launch.graphs:
            graph.changed[launch] = None
