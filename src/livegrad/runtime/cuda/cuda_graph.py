"""CUDA Graphs of plans. In: kernel launches with their dependencies. Out: one executable graph, which can be updated in
place.

`plan.py` builds one for each sequence of kernels between two host steps.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from livegrad.runtime.cuda.driver import checked, device, driver
from livegrad.runtime.cuda.libraries.capture import Captured


class Launch:
    """One launch of a kernel: its function, its grid, and the words of its arguments, which may change."""

    __slots__ = ("__weakref__", "_pointers", "bytes", "graphs", "grid", "parameters", "threads", "words")

    def __init__(self, function: Any, grid: int, threads: int, words: int, separate: bool = False) -> None:
        self.graphs: list[Any] = []  # those that have it, and must be told of changes
        self.renew(function, grid, threads, words, separate)

    def renew(self, function: Any, grid: int, threads: int, words: int, separate: bool = False) -> None:
        """Another function in place of this one, with words of its own, all zero.

        The words are one parameter of the function, or each of them is a parameter (`separate`).
        """
        self.grid, self.threads = grid, threads
        self.words = array("q", bytes(8 * max(words, 1)))
        self.bytes = memoryview(self.words).cast("B")
        # Kept alive: the driver reads the words through these whenever the parameters are set.
        first = self.words.buffer_info()[0]
        self._pointers = array("Q", range(first, first + (8 * words if separate else 8), 8))
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = grid, 1, 1
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = threads, 1, 1
        parameters.sharedMemBytes = 0
        parameters.kernelParams = self._pointers.buffer_info()[0]
        parameters.extra = 0
        self.parameters = parameters


@dataclass
class GraphCounters:
    """What was done with a graph: how often it was built and launched, and how many nodes were changed in place."""

    built: int = 0
    launched: int = 0
    nodes_updated: int = 0


@dataclass
class Graph:
    """Launches in order, each with the numbers of those that must have ended before it starts."""

    launches: Sequence[Launch | Captured]
    dependencies: Sequence[Sequence[int]]
    counters: GraphCounters = field(default_factory=GraphCounters)
    _nodes: list[Any] = field(default_factory=list)
    _executable: Any = None
    _cleaning: list[weakref.finalize[..., Any]] = field(default_factory=list)

    def build(self) -> None:
        """Makes the graph node by node and instantiates it."""
        assert driver is not None
        device()
        graph = checked(driver.cuGraphCreate(0))
        nodes: list[Any] = []
        for launch, numbers in zip(self.launches, self.dependencies, strict=True):
            before = [nodes[number] for number in numbers]
            if isinstance(launch, Captured):
                child = launch.capture()
                nodes.append(checked(driver.cuGraphAddChildGraphNode(graph, before, len(before), child)))
                checked(driver.cuGraphDestroy(child))  # the node has a copy
            else:
                nodes.append(checked(driver.cuGraphAddKernelNode(graph, before, len(before), launch.parameters)))
        executable = checked(driver.cuGraphInstantiate(graph, 0))
        for old in self._cleaning:
            old()
        self._nodes, self._executable, self._cleaning = nodes, executable, []
        self.counters.built += 1
        for destroy, handle in ((driver.cuGraphExecDestroy, self._executable), (driver.cuGraphDestroy, graph)):
            cleaning = weakref.finalize(self, destroy, handle)
            cleaning.atexit = False
            self._cleaning.append(cleaning)

    def update(self, number: int) -> None:
        """Hands the present words of a launch to the executable graph."""
        assert driver is not None
        node, launch = self._nodes[number], self.launches[number]
        if isinstance(launch, Captured):
            child = launch.capture()
            status, *_ = driver.cuGraphExecChildGraphNodeSetParams(self._executable, node, child)
            checked(driver.cuGraphDestroy(child))
            if int(status):
                self.build()  # the library chose other kernels for other addresses
        else:
            checked(driver.cuGraphExecKernelNodeSetParams(self._executable, node, launch.parameters))
        self.counters.nodes_updated += 1

    def launch(self) -> None:
        """Starts the whole graph; does not wait for it."""
        assert driver is not None
        found = device()
        if self._executable is None:
            self.build()
        checked(driver.cuGraphLaunch(self._executable, found.stream))
        self.counters.launched += 1

    @property
    def is_built(self) -> bool:
        return self._executable is not None
