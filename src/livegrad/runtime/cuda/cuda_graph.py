"""Builds CUDA Graphs node by node. In: nodes with their dependencies. Out: an executable graph, updated in place.

`GraphBuilder` adds nodes, `ExecutableGraph` runs them. `plan_graph.py` builds a graph for each sequence of launches
between two host steps; `live.cuda` builds one for each set of stale steps.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Hashable, Iterable
from typing import Any, Literal

from livegrad.runtime.cuda.driver import DeviceError, check, device, driver, is_current

ConditionKind = Literal["if", "while", "switch"]
_CONDITIONS = {
    "if": "CU_GRAPH_COND_TYPE_IF",
    "while": "CU_GRAPH_COND_TYPE_WHILE",
    "switch": "CU_GRAPH_COND_TYPE_SWITCH",
}


class ChangeRefused(DeviceError):
    """The driver cannot update an instantiated graph in place. The graph has to be built again."""


class Launch:
    """One launch of a kernel: its function, its grid, and its argument slots, which may change."""

    __slots__ = ("__weakref__", "_pointers", "bytes", "graphs", "grid", "parameters", "slots", "threads")

    def __init__(self, function: Any, grid: int, threads: int, slots: int, separate: bool = False) -> None:
        self.graphs: list[Any] = []  # live graphs with a node for this launch, which are notified of changes
        self.renew(function, grid, threads, slots, separate)

    def renew(self, function: Any, grid: int, threads: int, slots: int, separate: bool = False) -> None:
        """Replaces the function and clears all argument slots.

        All slots together are one parameter of the function, or with `separate`, each slot is one.
        """
        self.grid, self.threads = grid, threads
        self.slots = array("q", bytes(8 * max(slots, 1)))
        self.bytes = memoryview(self.slots).cast("B")
        # Kept alive: the driver reads the slots through these pointers whenever the parameters are set.
        first = self.slots.buffer_info()[0]
        self._pointers = array("Q", range(first, first + (8 * slots if separate else 8), 8))
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = grid, 1, 1
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = threads, 1, 1
        parameters.sharedMemBytes = 0
        parameters.kernelParams = self._pointers.buffer_info()[0]
        parameters.extra = 0
        self.parameters = parameters


class GraphBuilder:
    """A graph under construction, or the body of a conditional node. Nodes are referred to by index."""

    def __init__(self, graph: Any = None, root: GraphBuilder | None = None) -> None:
        self.root = root or self
        self.context = device().context
        self.graph = check(driver.cuGraphCreate(0)) if graph is None else graph
        self.nodes: list[Any] = []
        if root is None:
            self.launches: list[tuple[Launch, Any]] = []  # including those of bodies
            self.children: list[tuple[Hashable, Any]] = []

    def __len__(self) -> int:
        return len(self.nodes)

    def _append(self, node: Any) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _handles(self, indices: Iterable[int]) -> list[Any]:
        return [self.nodes[index] for index in indices]

    def kernel(self, launch: Launch, before: Iterable[int] = ()) -> int:
        """Adds a kernel launch. `before` has the nodes that it waits for."""
        nodes = self.nodes
        handles = [nodes[index] for index in before]
        answer = driver.cuGraphAddKernelNode(self.graph, handles, len(handles), launch.parameters)
        if answer[0]:
            check(answer)
        node = answer[1]
        self.root.launches.append((launch, node))
        nodes.append(node)
        return len(nodes) - 1

    def memset(self, address: int, bytes: int, before: Iterable[int] = (), value: int = 0) -> int:
        """Adds a node that fills memory with one byte value."""
        handles = self._handles(before)
        width = 4 if bytes % 4 == 0 and address % 4 == 0 else 1
        parameters = driver.CUDA_MEMSET_NODE_PARAMS()
        parameters.dst, parameters.elementSize, parameters.width, parameters.height = address, width, bytes // width, 1
        parameters.value, parameters.pitch = value * (0x01010101 if width == 4 else 1), 0
        node = driver.cuGraphAddMemsetNode(self.graph, handles, len(handles), parameters, self.context)
        return self._append(check(node))

    def copy(self, target: int, source: int, bytes: int, before: Iterable[int] = ()) -> int:
        """Adds a copy of device memory."""
        handles = self._handles(before)
        parameters = driver.CUDA_MEMCPY3D()
        parameters.srcMemoryType = parameters.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        parameters.srcDevice, parameters.dstDevice = source, target
        parameters.WidthInBytes, parameters.Height, parameters.Depth = bytes, 1, 1
        node = driver.cuGraphAddMemcpyNode(self.graph, handles, len(handles), parameters, self.context)
        return self._append(check(node))

    def event(self, event: Any, before: Iterable[int] = ()) -> int:
        """Adds a node that records an event."""
        handles = self._handles(before)
        return self._append(check(driver.cuGraphAddEventRecordNode(self.graph, handles, len(handles), event)))

    def child(self, name: Hashable, graph: Any, before: Iterable[int] = ()) -> int:
        """Adds a copy of a graph as one node. `ExecutableGraph.change_child` finds it by its name."""
        handles = self._handles(before)
        node = check(driver.cuGraphAddChildGraphNode(self.graph, handles, len(handles), graph))
        self.root.children.append((name, node))
        return self._append(node)

    def condition(self) -> Any:
        """A new condition handle. Its value, which a kernel sets, controls the bodies of a conditional node."""
        return check(driver.cuGraphConditionalHandleCreate(self.graph, self.context, 0, 0))

    def conditional(
        self, kind: ConditionKind, condition: Any, bodies: int, before: Iterable[int] = ()
    ) -> tuple[int, list[GraphBuilder]]:
        """Adds a conditional node; returns it and its empty bodies. The second body of an `if` is the else branch."""
        handles = self._handles(before)
        parameters = driver.CUgraphNodeParams()
        parameters.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        parameters.conditional.handle = condition
        parameters.conditional.type = getattr(driver.CUgraphConditionalNodeType, _CONDITIONS[kind])
        parameters.conditional.size = bodies
        parameters.conditional.ctx = self.context
        node = check(driver.cuGraphAddNode(self.graph, handles, None, len(handles), parameters))
        graphs = [parameters.conditional.phGraph_out[index] for index in range(bodies)]
        return self._append(node), [GraphBuilder(graph, self.root) for graph in graphs]

    def drop(self) -> None:
        """Destroys a graph that will not be instantiated."""
        driver.cuGraphDestroy(self.graph)


class ExecutableGraph:
    """An instantiated graph. `changed` has the launches whose nodes are updated before the next start."""

    def __init__(self, builder: GraphBuilder) -> None:
        try:
            self._handle = check(driver.cuGraphInstantiate(builder.graph, 0))
        except DeviceError:
            builder.drop()
            raise
        # The source graph stays alive: its nodes identify the nodes of the executable graph in updates.
        self._finalizer = weakref.finalize(self, _destroy, self._handle, builder.graph, device().context_number)
        self._finalizer.atexit = False
        self._nodes = dict(builder.launches)
        self.children = dict(builder.children)
        self.size = len(self._nodes)
        self.changed: dict[Launch, None] = {}  # launches with changed argument slots, or another function

    def change_child(self, name: Hashable, graph: Any) -> None:
        """Replaces a child graph by a copy of another, which must have the same structure."""
        status, *_ = driver.cuGraphExecChildGraphNodeSetParams(self._handle, self.children[name], graph)
        if int(status):
            raise ChangeRefused(str(status))

    def start(self, stream: Any) -> int:
        """Updates the changed nodes and launches the graph, without waiting. Returns the number of updated nodes."""
        changed = len(self.changed)
        if changed:
            handle, nodes = self._handle, self._nodes
            for launch in self.changed:
                answer = driver.cuGraphExecKernelNodeSetParams(handle, nodes[launch], launch.parameters)
                if answer[0]:
                    raise ChangeRefused(str(answer[0]))
            self.changed.clear()
        answer = driver.cuGraphLaunch(self._handle, stream)
        if answer[0]:
            check(answer)
        return changed

    def close(self) -> None:
        """Destroys the graph. If it is running, the driver waits for its end."""
        self._nodes = {}
        self._finalizer()


def _destroy(executable: Any, graph: Any, context_number: int) -> None:
    if is_current(context_number):
        driver.cuGraphExecDestroy(executable)
        driver.cuGraphDestroy(graph)
