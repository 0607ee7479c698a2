"""The immutable data of an assembly: nodes, node-graph functions and image functions.

An edit creates new objects that share all unchanged parts. `Assembly` contains and edits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from livegrad.implicit.nodes.node_types import NodeType
from livegrad.implicit.nodes.ports import INPUTS, Literal, PortType, Reference, Source
from livegrad.ir.drawing import Box, draw_graph


def freeze_mapping(mapping: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """A read-only copy of a mapping; a mapping that is already read-only is returned unchanged."""
    return mapping if isinstance(mapping, MappingProxyType) else MappingProxyType(dict(mapping))


class ReadOnly:
    """Pickles the read-only mappings of an immutable object, which Python cannot, as dicts."""

    def __getstate__(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in values.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(
            {name: freeze_mapping(value) if isinstance(value, dict) else value for name, value in state.items()}
        )


@dataclass(frozen=True)
class GraphNode(ReadOnly):
    """A node: its type, the sources of its inputs, and its names for display.

    `kind` is the type of the ports that accept scalars, vectors and matrices; `value` is the value of a constant. A
    gradient node names the output to differentiate and the input to differentiate with respect to.
    """

    identifier: str
    type: NodeType
    inputs: Mapping[str, Source] = field(default_factory=dict)
    kind: PortType | None = None
    value: Literal | None = None
    scalar_output: str | None = None
    vector_input: str | None = None
    display_name: str = ""
    tag: str = ""
    position: tuple[float, float] | None = field(default=None, compare=False)  # for drawing only

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", freeze_mapping(self.inputs))

    def with_input(self, port: str, source: Source | None) -> GraphNode:
        """The node with one input reconnected, or disconnected if `source` is None."""
        inputs = dict(self.inputs)
        if source is None:
            inputs.pop(port, None)
        else:
            inputs[port] = source
        return replace(self, inputs=inputs)


@dataclass(frozen=True)
class GraphFunction(ReadOnly):
    """A function made of nodes. `outputs` has the types of the outputs, `results` their sources.

    A managed function belongs to a tool that regenerates it, so passes skip it.
    """

    id: int
    name: str
    inputs: Mapping[str, PortType] = field(default_factory=dict)
    outputs: Mapping[str, PortType] = field(default_factory=dict)
    nodes: Mapping[str, GraphNode] = field(default_factory=dict)
    results: Mapping[str, Source] = field(default_factory=dict)
    managed: bool = False

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "nodes", "results"):
            object.__setattr__(self, name, freeze_mapping(getattr(self, name)))

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type.value}" for name, type in self.inputs.items())
        outputs = ", ".join(f"{name}: {type.value}" for name, type in self.outputs.items())
        return f"<graph function {self.name}({inputs}) -> ({outputs}), {len(self.nodes)} nodes>"

    def to_svg(self) -> str:
        """Draws the nodes: inputs blue, outputs orange, literals inside the boxes of their nodes."""
        boxes = [Box(f"inputs.{name}", (name, type.value), "leaf") for name, type in self.inputs.items()]
        boxes += [Box(f"outputs.{name}", (name, type.value), "result") for name, type in self.outputs.items()]
        edges: list[tuple[str, str]] = []
        for name, source in self.results.items():
            edges += _edges_from(source, f"outputs.{name}")
        for node in self.nodes.values():
            boxes.append(Box(node.identifier, (node.type.name, node.identifier, *_format_literals(node))))
            for source in node.inputs.values():
                edges += _edges_from(source, node.identifier)
        return draw_graph(boxes, edges, self.name)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def with_node(self, node: GraphNode) -> GraphFunction:
        """The function with a node added or replaced."""
        return replace(self, nodes={**self.nodes, node.identifier: node})

    def free_identifier(self, stem: str) -> str:
        """Returns an unused identifier: the stem and a number."""
        index = len(self.nodes) + 1
        while f"{stem}_{index}" in self.nodes:
            index += 1
        return f"{stem}_{index}"


@dataclass(frozen=True)
class ImageFunction:
    """A function that samples a stack of images at coordinates from 0 to 1.

    `filter` is `linear` or `nearest`; each of `tile_styles` (u, v, w) is `wrap`, `mirror` or `clamp`. Samples are
    multiplied by `scale`, then `offset` is added.
    """

    id: int
    name: str
    image: int
    filter: str = "linear"
    tile_styles: tuple[str, str, str] = ("wrap", "wrap", "wrap")
    offset: float = 0.0
    scale: float = 1.0
    managed: bool = False

    @property
    def inputs(self) -> Mapping[str, PortType]:
        return _IMAGE_INPUTS

    @property
    def outputs(self) -> Mapping[str, PortType]:
        return _IMAGE_OUTPUTS


def _edges_from(source: Source, target: str) -> list[tuple[str, str]]:
    if not isinstance(source, Reference):
        return []
    return [(f"{source.node}.{source.port}" if source.node == INPUTS else source.node, target)]


def _format_literals(node: GraphNode) -> list[str]:
    literals = [f"{port} = {source}" for port, source in node.inputs.items() if not isinstance(source, Reference)]
    return [*literals, *([] if node.value is None else [str(node.value)])]


_IMAGE_INPUTS: Mapping[str, PortType] = MappingProxyType({"pos": PortType.VECTOR})
_IMAGE_OUTPUTS: Mapping[str, PortType] = MappingProxyType(
    {
        "color": PortType.VECTOR,
        "red": PortType.SCALAR,
        "green": PortType.SCALAR,
        "blue": PortType.SCALAR,
        "alpha": PortType.SCALAR,
    }
)

AnyFunction = GraphFunction | ImageFunction
