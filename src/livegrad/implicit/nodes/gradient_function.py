"""Builds the functions that gradient nodes are lowered to: central differences of another function, or zeros.

`lower_gradient` requests one for each (function, output, input) and adds it to the assembly under an id derived from
these.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode
from livegrad.implicit.nodes.node_types import node_type
from livegrad.implicit.nodes.ports import INPUTS, Literal, PortType, Reference, Source

STEP_SIZE = "StepSize"
SMALLEST_STEP, SMALLEST_LENGTH = 1e-8, 1e-8
OUTPUT_TYPES = {"vector": PortType.VECTOR, "gradient": PortType.VECTOR, "magnitude": PortType.SCALAR}
_AXES = "xyz"


@dataclass(frozen=True)
class GradientKey:
    """Identifies a gradient. Nodes with equal keys share a function."""

    function: int
    output: str
    input: str
    exact: bool = False
    adaptive_step: bool = False

    def __str__(self) -> str:
        kind = "exact-grad" if self.exact else ("adaptive-grad" if self.adaptive_step else "grad")
        return f"{kind}:{self.function}:{self.output}:{self.input}"


def gradient_name(function: AnyFunction, key: GradientKey) -> str:
    """`gradient_of_<function>_<output>_<input>`, with anything but letters, digits and underscores replaced.

    >>> gradient_name(GraphFunction(3, "my sphere"), GradientKey(3, "shape", "pos"))
    'gradient_of_my_sphere_shape_pos'
    """
    stem = "exact_gradient_of" if key.exact else ("adaptive_gradient_of" if key.adaptive_step else "gradient_of")
    text = f"{stem}_{function.name or function.id}_{key.output}_{key.input}"
    return re.sub(r"[^0-9A-Za-z_]", "_", text)


def insert_function(assembly: Assembly, key: GradientKey | None, function: GraphFunction) -> tuple[Assembly, int]:
    """The assembly with a synthesised function, and its id.

    The id is derived from the key. If another resource has that id, the next free one is used. An equal function under
    that id (from an earlier lowering) is reused.
    """
    digest = hashlib.sha256(str(key if key is not None else "grad:zero").encode()).digest()
    function_id = int.from_bytes(digest[:4], "big") % (2**31 - 1) + 1
    while function_id in assembly.functions or function_id in assembly.resources:
        if assembly.functions.get(function_id) == replace(function, id=function_id):
            return assembly, function_id
        function_id = function_id % (2**31 - 1) + 1
    return assembly.with_function(replace(function, id=function_id)), function_id


def zero_function() -> GraphFunction:
    """The function that replaces a gradient that cannot be computed."""
    nodes = [
        GraphNode("zero_vector", node_type("ConstVec"), value=(0.0, 0.0, 0.0)),
        GraphNode("zero", node_type("Constant"), value=0.0),
    ]
    vector, scalar = Reference("zero_vector", "vector"), Reference("zero", "value")
    results = {"vector": vector, "gradient": vector, "magnitude": scalar}
    return GraphFunction(0, "gradient_of_nothing", {}, OUTPUT_TYPES, {n.identifier: n for n in nodes}, results)


class _Nodes:
    """Collects nodes. Each call adds one and returns a reference to its first output."""

    def __init__(self) -> None:
        self.nodes: dict[str, GraphNode] = {}

    def add(self, identifier: str, type: str, value: Literal | None = None, **inputs: Source) -> Reference:
        return self.put(identifier, type, inputs, value=value)

    def put(
        self,
        identifier: str,
        type: str,
        inputs: Mapping[str, Source],
        kind: PortType | None = None,
        value: Literal | None = None,
    ) -> Reference:
        node = GraphNode(identifier, node_type(type), inputs, kind, value)
        self.nodes[identifier] = node
        return Reference(identifier, node.type.outputs[0][0] if node.type.outputs else "")

    def scalar(self, identifier: str, type: str, **inputs: Source) -> Reference:
        return self.put(identifier, type, inputs, PortType.SCALAR)

    def vector(self, identifier: str, type: str, **inputs: Source) -> Reference:
        return self.put(identifier, type, inputs, PortType.VECTOR)


def central_difference_function(assembly: Assembly, function: AnyFunction, key: GradientKey) -> GraphFunction:
    """Central differences from six calls of the function around the point, and their direction."""
    graph = _Nodes()
    callee = graph.add("function", "ResourceId", value=function.id)
    smallest = graph.add("smallest_step", "Constant", value=SMALLEST_STEP)
    two, zero = graph.add("two", "Constant", value=2.0), graph.add("zero", "Constant", value=0.0)
    size = graph.scalar("step_size", "Abs", A=Reference(INPUTS, STEP_SIZE))
    step = graph.scalar("step", "Max", A=size, B=smallest)
    base = Reference(INPUTS, key.input)
    steps = _steps_by_axis(graph, step, base) if key.adaptive_step else dict.fromkeys(_AXES, step)
    slopes: dict[str, Source] = {}
    for axis in _AXES:
        offset = graph.put(f"offset_{axis}", "ComposeVector", {a: steps[a] if a == axis else zero for a in _AXES})
        values = []
        for side, type in (("plus", "Addition"), ("minus", "Subtraction")):
            moved = graph.vector(f"{side}_{axis}", type, A=base, B=offset)
            arguments = {name: moved if name == key.input else Reference(INPUTS, name) for name in function.inputs}
            graph.put(f"call_{side}_{axis}", "FunctionCall", {"functionID": callee, **arguments})
            values.append(Reference(f"call_{side}_{axis}", key.output))
        difference = graph.scalar(f"difference_{axis}", "Subtraction", A=values[0], B=values[1])
        width = graph.scalar(f"width_{axis}", "Multiplication", A=two, B=steps[axis])
        slopes[axis] = graph.scalar(f"slope_{axis}", "Division", A=difference, B=width)
    gradient = graph.put("gradient", "ComposeVector", slopes)
    magnitude, direction = _normalise(graph, gradient)
    inputs = dict(function.inputs)
    inputs.setdefault(STEP_SIZE, PortType.SCALAR)
    results = {"vector": direction, "gradient": gradient, "magnitude": magnitude}
    return GraphFunction(0, gradient_name(function, key), inputs, OUTPUT_TYPES, graph.nodes, results)


def _steps_by_axis(graph: _Nodes, step: Reference, base: Reference) -> dict[str, Reference]:
    """step * max(1, |coordinate|): far from the origin, rounding errors would exceed a fixed step."""
    one = graph.add("one", "Constant", value=1.0)
    graph.add("coordinates", "DecomposeVector", A=base)
    steps = {}
    for axis in _AXES:
        size = graph.scalar(f"size_{axis}", "Abs", A=Reference("coordinates", axis))
        scale = graph.scalar(f"scale_{axis}", "Max", A=one, B=size)
        steps[axis] = graph.scalar(f"step_{axis}", "Multiplication", A=step, B=scale)
    return steps


def _normalise(graph: _Nodes, gradient: Reference) -> tuple[Reference, Reference]:
    """The length of a vector and its direction, which is zero for vectors that are too short."""
    shortest = graph.add("smallest_length", "Constant", value=SMALLEST_LENGTH)
    nothing = graph.add("zero_vector", "ConstVec", value=(0.0, 0.0, 0.0))
    magnitude = graph.add("magnitude", "Length", A=gradient)
    # Divide by at least the bound, so that the branch that is not selected is finite too.
    divisor = graph.scalar("divisor", "Max", A=magnitude, B=shortest)
    spread = graph.add("divisors", "VectorFromScalar", A=divisor)
    unit = graph.vector("unit", "Division", A=gradient, B=spread)
    bounds = graph.add("bounds", "VectorFromScalar", A=shortest)
    lengths = graph.add("lengths", "VectorFromScalar", A=magnitude)
    return magnitude, graph.vector("direction", "Select", A=bounds, B=lengths, C=unit, D=nothing)
