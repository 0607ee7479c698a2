"""Inspection of tensor graphs for users and tools: nodes in order, inputs by slot, drawings and summaries.

`Tensor.graph` creates one. A graph is a view that holds its tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livegrad.diagnostics import SourceLocation, UsageError, caller_origin
from livegrad.ir.dimension import Size
from livegrad.ir.drawing import Box, draw_graph
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, scalar_of, shape_of
from livegrad.ir.walk import toposort
from livegrad.lazy.execution import execute
from livegrad.lazy.holders import holders_of, is_held
from livegrad.lazy.lazy_values import cached_value, leaf_of
from livegrad.runtime.cpu import compile_function
from livegrad.schedule.plan import Plan
from livegrad.tensors.errors import GraphMergeError, GraphOrderError
from livegrad.tensors.handle import Tensor, wrap

_MAX_PRINTED = 200


@dataclass(frozen=True)
class GraphNode:
    """One node of a graph: its operation, type, source location, and whether its value is cached.

    >>> import livegrad as lg
    >>> graph = (lg.asarray([1.0, 2.0]) + lg.asarray([3.0, 4.0])).graph
    >>> node = graph.nodes[-1]
    >>> node.name, node.op, node.shape, node.is_computed, node.bytes
    ('%2', 'add', (2,), False, 8)
    """

    number: int
    node: Node
    origin: SourceLocation | None = None
    """The source location of the node. Equal constants share one node, which has the location of its first user."""

    @property
    def name(self) -> str:
        return f"%{self.number}"

    @property
    def op(self) -> str:
        """The operation's name; `data` for a leaf."""
        return "data" if leaf_of(self.node) is not None else self.node.op.name

    @property
    def shape(self) -> tuple[Size, ...]:
        return shape_of(self.node.type)

    @property
    def dtype(self) -> Scalar | None:
        """The element type; None for a node with several values."""
        return scalar_of(self.node.type)

    @property
    def kind(self) -> str:
        """Element type and shape, as drawings show them."""
        return f"{self.dtype} {list(self.shape)}" if self.dtype is not None else str(self.node.type)

    @property
    def label(self) -> str:
        """The operation's name; the value for a constant."""
        return str(self.attributes["value"]) if self.op == "constant" else self.op

    @property
    def color(self) -> str:
        """The fill in drawings: a key of `livegrad.ir.drawing.COLORS`."""
        return "leaf" if leaf_of(self.node) is not None else "known" if self.is_computed else "plain"

    @property
    def attributes(self) -> dict[str, Any]:
        """The operation's parameters, such as axes."""
        return {} if leaf_of(self.node) is not None else dict(self.node.attributes)

    @property
    def is_computed(self) -> bool:
        """Whether the value is cached."""
        return leaf_of(self.node) is not None or cached_value(self.node) is not None

    @property
    def bytes(self) -> int | None:
        """The size of the value; None while it is symbolic."""
        size = 1 if self.dtype is None else self.dtype.dtype.itemsize
        for extent in self.shape:
            if not isinstance(extent, int):
                return None
            size *= extent
        return size

    def __str__(self) -> str:
        state = "computed" if self.is_computed else "not computed"
        attributes = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items() if not callable(value))
        size = "symbolic size" if self.bytes is None else f"{self.bytes:,} bytes"
        return f"{self.name} {self.op}({attributes}): {self.node.type}, {size}, {state}, {self.origin or 'no origin'}"


def _origins(order: list[Node]) -> dict[Node, SourceLocation | None]:
    """Returns the source location of each node; shared constants have that of their first user."""
    constants: set[Node] = set()
    for node in order:
        if node.op is constant_op or (node.operands and constants.issuperset(node.operands)):
            constants.add(node)
    origins: dict[Node, SourceLocation | None] = {}
    for node in reversed(order):
        if node not in constants:
            origins[node] = node.origin
        origin = origins.setdefault(node, node.origin)
        origins |= {operand: origin for operand in node.operands if operand in constants}
    return origins


class Graph:
    """All nodes that some tensors depend on, operands first.

    >>> import livegrad as lg
    >>> x, y = lg.asarray([1.0, 2.0]), lg.asarray([3.0, 4.0])
    >>> graph = (x - y).graph
    >>> [node.op for node in graph.nodes]
    ['data', 'data', 'sub']
    >>> [(slot, node.name) for slot, node in graph.inputs(graph.nodes[-1])]
    [(0, '%0'), (1, '%1')]
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors = list(tensors)
        self._freed = False
        self._nodes: tuple[GraphNode, ...] | None = None  # created on first access
        self._numbers: dict[Node, int] = {}

    # --- nodes and edges ---

    @property
    def nodes(self) -> tuple[GraphNode, ...]:
        """All nodes in topological order."""
        self._require_alive()
        if self._nodes is None:
            order = toposort([tensor.node for tensor in self._tensors])
            self._numbers = {node: number for number, node in enumerate(order)}
            origins = _origins(order)
            self._nodes = tuple(GraphNode(number, node, origins[node]) for number, node in enumerate(order))
        return self._nodes

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tensors that the graph was created from."""
        self._require_alive()
        return tuple(self._tensors)

    def node(self, which: int | str | Tensor | GraphNode) -> GraphNode:
        """Looks up a node by its index, its name (`%3`), a tensor, or the same node in another graph.

        >>> import livegrad as lg
        >>> x = lg.asarray([1.0])
        >>> (x + x).graph.node("%1").op, (x + x).graph.node(x).op
        ('add', 'data')
        """
        nodes = self.nodes
        if isinstance(which, Tensor | GraphNode):
            number = self._numbers.get(which.node)
        else:
            text = str(which).removeprefix("%")
            number = int(text) if text.isdecimal() else None
        if number is None or number >= len(nodes):
            found = type(which).__name__ if isinstance(which, Tensor) else str(which)
            raise UsageError(
                "no such node in this graph", where=caller_origin(), expected=f"%0 to %{len(nodes) - 1}", found=found
            )
        return nodes[number]

    def inputs(self, node: GraphNode | int | str | Tensor) -> list[tuple[int, GraphNode]]:
        """Returns (slot, node) for each operand of a node."""
        graph_node = self.node(node)
        return [(slot, self.nodes[self._numbers[operand]]) for slot, operand in enumerate(graph_node.node.operands)]

    @property
    def leaves(self) -> tuple[GraphNode, ...]:
        """The nodes without inputs."""
        return tuple(node for node in self.nodes if not node.node.operands)

    def topological_sort(self, edges: Iterable[tuple[Any, Any]] = ()) -> list[GraphNode]:
        """Returns the nodes in topological order, respecting additional edges (first, then). A cycle is an error.

        >>> import livegrad as lg
        >>> graph = (lg.ones(2).execute() + 1.0).graph
        >>> [node.number for node in graph.topological_sort()] == list(range(len(graph)))
        True
        """
        successors: dict[int, list[int]] = {node.number: [] for node in self.nodes}
        pending_inputs = dict.fromkeys(successors, 0)
        graph_edges = [(source.number, node.number) for node in self.nodes for _, source in self.inputs(node)]
        for source, target in (*graph_edges, *map(self._edge, edges)):
            successors[source].append(target)
            pending_inputs[target] += 1
        ready = [number for number, count in pending_inputs.items() if not count]
        order: list[GraphNode] = []
        for number in ready:
            order.append(self.nodes[number])
            for target in successors[number]:
                pending_inputs[target] -= 1
                if not pending_inputs[target]:
                    ready.append(target)
        if len(order) < len(self.nodes):
            stuck = ", ".join(f"%{number}" for number, count in pending_inputs.items() if count)
            raise GraphOrderError("the graph has a cycle", where=caller_origin(), found=f"a cycle among {stuck}")
        return order

    def _edge(self, edge: Any) -> tuple[int, int]:
        if not isinstance(edge, tuple) or len(edge) != 2:
            raise UsageError("an edge must be a pair of nodes", where=caller_origin(), found=repr(edge))
        source, target = edge
        return self.node(source).number, self.node(target).number

    def merge(self, other: Graph) -> Graph:
        """Returns one graph with the nodes of both; shared nodes occur once.

        >>> import livegrad as lg
        >>> x = lg.asarray([1.0])
        >>> len((x + 1.0).graph.merge((x * 2.0).graph)) < len((x + 1.0).graph) + len((x * 2.0).graph)
        True
        """
        for graph in (self, other):
            if not isinstance(graph, Graph):
                raise GraphMergeError("only a graph can be merged", where=caller_origin(), found=type(graph).__name__)
            if graph._freed:
                raise GraphMergeError("a graph that was freed cannot be merged", where=caller_origin())
        return Graph([*self._tensors, *other._tensors])

    def __len__(self) -> int:
        return len(self.nodes)

    # --- execution and lifetime ---

    def execute(self) -> Graph:
        """Computes all tensors of the graph."""
        execute([tensor.node for tensor in self.tensors])
        return self

    def plan(self) -> Plan:
        """Returns the plan that `execute` would run now on the CPU: kernels, library calls and buffers. Print it to
        read it.

        Cached values are inputs, tensors that the program holds are results, and everything else is fused. A graph of
        more than 2,000 nodes runs in pieces; this plan covers the whole graph.

        >>> import livegrad as lg
        >>> x = lg.asarray([[1.0, 2.0], [3.0, 4.0]])
        >>> print(lg.softmax(x * 2.0).graph.plan())
        plan graph: 1 step, 1 kernel, 32 bytes moved, peak 0 bytes of 0 without reuse
          0: kernel reduce+div [2 over 2](b0:argument0) -> b1:result0
        """
        return compile_function(self.function()).schedule()

    def function(self) -> Function:
        """Returns the remaining computation as a function of the cached values.

        >>> import livegrad as lg
        >>> x = lg.asarray([1.0, 2.0])
        >>> print(lg.ir.print_function((x + x).graph.function()).strip())
        function @graph(%p0: tensor<f32, [2]>) -> tensor<f32, [2]> {
          %0 = add(%p0, %p0): tensor<f32, [2]>
          return %0
        }
        """
        computed, held = [], []
        for graph_node in self.nodes:
            if graph_node.is_computed:
                computed.append(graph_node.node)
            elif is_held(graph_node.node):
                held.append(graph_node.node)
        return make_function("graph", computed, held)

    def free(self) -> None:
        """Frees every tensor of the graph, including leaves and intermediate tensors. Using them afterwards is an
        error."""
        for node in self.nodes:
            for holder in list(holders_of(node.node)):
                holder.free()
        self._freed = True
        self._tensors, self._nodes, self._numbers = [], None, {}

    def _require_alive(self) -> None:
        if self._freed:
            raise UsageError("this graph was freed", where=caller_origin(), help="create it again from a tensor")

    # --- display ---

    def __str__(self) -> str:
        computed = sum(node.is_computed for node in self.nodes)
        lines = [f"graph of {len(self.nodes):,} nodes, {computed:,} computed"]
        shown = self.nodes if len(self.nodes) <= _MAX_PRINTED else self.nodes[-_MAX_PRINTED:]
        if len(shown) < len(self.nodes):
            lines.append(f"  ... {len(self.nodes) - len(shown):,} nodes before these")
        for node in shown:
            operands = ", ".join(source.name for _, source in self.inputs(node))
            state = "computed" if node.is_computed else "-"
            size = "?" if node.bytes is None else f"{node.bytes:,}"
            lines.append(
                f"  {node.name:>6} = {node.op}({operands})  {node.node.type}  {size} B  {state}  {node.origin or ''}"
            )
        return "\n".join(lines)

    def print(self) -> None:
        """Prints a summary with one line per node."""
        print(self)

    def to_dot(self, path: str | Path | None = None) -> str:
        """Returns the graph in DOT format, and writes it to a file if a path is given. Edges are labelled with their
        slot.

        >>> import livegrad as lg
        >>> print((lg.asarray([1.0]) + lg.asarray([2.0])).graph.to_dot())
        digraph {
          rankdir=BT; node [shape=box, fontname="sans-serif"];
          n0 [label="%0 data\\nf32 [1]\\n4 B", style=filled, fillcolor="#cfe8cf"];
          n1 [label="%1 data\\nf32 [1]\\n4 B", style=filled, fillcolor="#cfe8cf"];
          n2 [label="%2 add\\nf32 [1]\\n4 B"];
          n0 -> n2 [label="0"];
          n1 -> n2 [label="1"];
        }
        """
        lines = ["digraph {", '  rankdir=BT; node [shape=box, fontname="sans-serif"];']
        for node in self.nodes:
            size = "?" if node.bytes is None else f"{node.bytes:,}"
            style = ', style=filled, fillcolor="#cfe8cf"' if node.is_computed else ""
            lines.append(f'  n{node.number} [label="{node.name} {node.op}\\n{node.kind}\\n{size} B"{style}];')
        for node in self.nodes:
            lines += [f'  n{s.number} -> n{node.number} [label="{slot}"];' for slot, s in self.inputs(node)]
        text = "\n".join([*lines, "}"])
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def to_svg(self, path: str | Path | None = None) -> str:
        """Returns the graph as an SVG drawing, and writes it to a file if a path is given. Leaves are blue, cached
        values green.

        >>> import livegrad as lg
        >>> (lg.asarray([1.0]) + lg.asarray([2.0])).graph.to_svg().count("<rect")
        3
        """
        boxes = [Box(node.name, (f"{node.name} {node.label}", node.kind), node.color) for node in self.nodes]
        edges = [(source.name, node.name) for node in self.nodes for _, source in self.inputs(node)]
        drawing = draw_graph(boxes, edges, f"graph of {len(self.nodes):,} nodes")
        if path is not None:
            Path(path).write_text(drawing, encoding="utf-8")
        return drawing

    def __repr__(self) -> str:
        if self._freed:
            return "<graph, freed>"
        return f"<graph of {len(self.nodes):,} nodes, {sum(node.is_computed for node in self.nodes):,} computed>"

    def _repr_svg_(self) -> str | None:
        """Returns the drawing for notebooks; None for large graphs, which are shown as text."""
        return self.to_svg() if not self._freed and len(self.nodes) <= _MAX_PRINTED else None


def graph_of(*tensors: Tensor) -> Graph:
    """Returns the graph of several tensors."""
    return Graph(tensors)


def tensor_at(node: GraphNode) -> Tensor:
    """Creates a tensor on a node of a graph."""
    if not hasattr(node.node.type, "shape"):
        raise UsageError("this node has several values", where=caller_origin(), found=str(node.node.type))
    return wrap(node.node)
