"""CUDA Graphs that are built node by node and updated in place: kernels, memsets, copies, conditional nodes, child
graphs.

`GraphBuilder` collects nodes and dependencies, `ExecutableGraph` runs. Used by `live.cuda`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from livegrad.runtime.cuda.cuda_graph import Launch
from livegrad.runtime.cuda.driver import DeviceError, checked, device, driver

ConditionKind = Literal["if", "while", "switch"]
_CONDITIONS = {
    "if": "CU_GRAPH_COND_TYPE_IF",
    "while": "CU_GRAPH_COND_TYPE_WHILE",
    "switch": "CU_GRAPH_COND_TYPE_SWITCH",
}


class ChangeRefused(DeviceError):
    """The driver does not take a change of a graph that is instantiated: the graph must be made anew."""


class GraphBuilder:
    """A graph under construction, or the body of a conditional node in one. Nodes are known by their numbers."""

    def __init__(self, graph: Any = None, root: GraphBuilder | None = None) -> None:
        found = device()
        self.root = root or self
        self.context = found.context
        self.graph = checked(driver.cuGraphCreate(0)) if graph is None else graph
        self.nodes: list[Any] = []
        if root is None:
            self.launches: list[tuple[Launch, Any]] = []  # of bodies too
            self.children: list[tuple[str, Any]] = []

    def __len__(self) -> int:
        return len(self.nodes)

    def _add(self, node: Any) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _before(self, numbers: Iterable[int]) -> list[Any]:
        return [self.nodes[number] for number in numbers]

    def kernel(self, launch: Launch, before: Iterable[int] = ()) -> int:
        """A launch of a kernel."""
        nodes = self.nodes
        first = [nodes[number] for number in before]
        answer = driver.cuGraphAddKernelNode(self.graph, first, len(first), launch.parameters)
        if answer[0]:
            checked(answer)
        node = answer[1]
        self.root.launches.append((launch, node))
        nodes.append(node)
        return len(nodes) - 1

    def memset(self, address: int, bytes: int, before: Iterable[int] = (), value: int = 0) -> int:
        """Fills memory with a byte."""
        first = self._before(before)
        wide = 4 if bytes % 4 == 0 and address % 4 == 0 else 1
        parameters = driver.CUDA_MEMSET_NODE_PARAMS()
        parameters.dst, parameters.elementSize, parameters.width, parameters.height = address, wide, bytes // wide, 1
        parameters.value, parameters.pitch = value * (0x01010101 if wide == 4 else 1), 0
        return self._add(checked(driver.cuGraphAddMemsetNode(self.graph, first, len(first), parameters, self.context)))

    def copy(self, target: int, source: int, bytes: int, before: Iterable[int] = ()) -> int:
        """Copies memory of the device."""
        first = self._before(before)
        parameters = driver.CUDA_MEMCPY3D()
        parameters.srcMemoryType = parameters.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        parameters.srcDevice, parameters.dstDevice = source, target
        parameters.WidthInBytes, parameters.Height, parameters.Depth = bytes, 1, 1
        return self._add(checked(driver.cuGraphAddMemcpyNode(self.graph, first, len(first), parameters, self.context)))

    def event(self, event: Any, before: Iterable[int] = ()) -> int:
        """Records an event."""
        first = self._before(before)
        return self._add(checked(driver.cuGraphAddEventRecordNode(self.graph, first, len(first), event)))

    def child(self, name: str, graph: Any, before: Iterable[int] = ()) -> int:
        """A graph as a node: it is copied. Its name says which one to change."""
        first = self._before(before)
        node = checked(driver.cuGraphAddChildGraphNode(self.graph, first, len(first), graph))
        self.root.children.append((name, node))
        return self._add(node)

    def condition(self) -> Any:
        """What a kernel sets to say whether, which or how often the bodies of a conditional node run."""
        return checked(driver.cuGraphConditionalHandleCreate(self.graph, self.context, 0, 0))

    def conditional(
        self, kind: ConditionKind, condition: Any, bodies: int, before: Iterable[int] = ()
    ) -> tuple[int, list[GraphBuilder]]:
        """A conditional node, and its bodies to be filled. A second body of an `if` is run when the first is not."""
        first = self._before(before)
        parameters = driver.CUgraphNodeParams()
        parameters.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        parameters.conditional.handle = condition
        parameters.conditional.type = getattr(driver.CUgraphConditionalNodeType, _CONDITIONS[kind])
        parameters.conditional.size = bodies
        parameters.conditional.ctx = self.context
        node = checked(driver.cuGraphAddNode(self.graph, first, None, len(first), parameters))
        graphs = [parameters.conditional.phGraph_out[number] for number in range(bodies)]
        return self._add(node), [GraphBuilder(graph, self.root) for graph in graphs]

    def drop(self) -> None:
        """Gives back a graph that will not be instantiated."""
        driver.cuGraphDestroy(self.graph)


class ExecutableGraph:
    """A graph that runs. Launches that change are handed over before the next start."""

    def __init__(self, builder: GraphBuilder) -> None:
        try:
            self._handle = checked(driver.cuGraphInstantiate(builder.graph, 0))
        except DeviceError:
            builder.drop()
            raise
        self._graph = builder.graph
        self._context_number = device().context_number
        self._nodes = dict(builder.launches)
        self.children = dict(builder.children)
        self.size = len(self._nodes)
        self.changed: dict[Launch, None] = {}  # launches that have other words, or another function
        for launch in self._nodes:
            launch.graphs.append(self)

    def replace(self, old: Launch, new: Launch) -> None:
        """Puts another launch in a node's place: other words, another grid, another function."""
        self._nodes[new] = self._nodes.pop(old)
        self.changed.pop(old, None)
        self.changed[new] = None
        new.graphs.append(self)

    def change_child(self, name: str, graph: Any) -> None:
        """Puts another graph into a child node. The driver refuses one that is built otherwise."""
        checked(driver.cuGraphExecChildGraphNodeSetParams(self._handle, self.children[name], graph))

    def start(self, stream: Any) -> int:
        """Hands over what changed and starts the graph; does not wait for it. Gives how many nodes were changed."""
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
            checked(answer)
        return changed

    def close(self) -> None:
        """Gives the graph back; one that is running ends first."""
        for launch in self._nodes:
            launch.graphs.remove(self)
        self._nodes = {}
        if device().context_number == self._context_number:
            driver.cuGraphExecDestroy(self._handle)
            driver.cuGraphDestroy(self._graph)


def notify(launches: Sequence[Launch]) -> None:
    """Tells all graphs that have these launches that they changed."""
    for launch in launches:
        for graph in launch.graphs:
            graph.changed[launch] = None
