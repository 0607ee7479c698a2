"""Builds the functions that replace gradient nodes: central differences, analytic derivatives, or zeros.

`lower_gradient` requests one for each (function, output, input) and adds it to the assembly under an id derived from
that key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.exact_gradient import exact_gradient
from livegrad.implicit.nodes.from_ir import add_ir_function
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode
from livegrad.implicit.nodes.node_types import node_type
from livegrad.implicit.nodes.ports import INPUTS, Literal, PortType, Reference, Source
from livegrad.implicit.nodes.to_ir import convert
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import f64

STEP_SIZE = "StepSize"
SMALLEST_STEP, SMALLEST_LENGTH = 1e-8, 1e-8
OUTPUT_TYPES = {"vector": PortType.VECTOR, "gradient": PortType.VECTOR, "magnitude": PortType.SCALAR}
_AXES = "xyz"


@dataclass(frozen=True)
class GradientKey:
    """Identifies a gradient. Gradient nodes with equal keys share a function."""

    function: int
    output: str
    input: str
    exact: bool = False
    adaptive_step: bool = False

    def __str__(self) -> str:
        kind = "exact-grad" if self.exact else ("adaptive-grad" if self.adaptive_step else "grad")
        return f"{kind}:{self.function}:{self.output}:{self.input}"


def gradient_name(function: AnyFunction, key: GradientKey) -> str:
    """Returns `gradient_of_<function>_<output>_<input>`. Characters that are not valid in C identifiers become `_`.

    >>> gradient_name(GraphFunction(3, "my sphere"), GradientKey(3, "shape", "pos"))
    'gradient_of_my_sphere_shape_pos'
    """
    stem = "exact_gradient_of" if key.exact else ("adaptive_gradient_of" if key.adaptive_step else "gradient_of")
    name = f"{stem}_{function.name or function.id}_{key.output}_{key.input}"
    return re.sub(r"[^0-9A-Za-z_]", "_", name)


def insert_function(assembly: Assembly, key: GradientKey | None, function: GraphFunction) -> tuple[Assembly, int]:
    """Adds a generated function to the assembly; returns the assembly and the id of the function.

    The id is a hash of the key; `None` is the key of the zero function. If another resource has that id, the next free
    id is used. An equal function under that id, from an earlier lowering, is reused.
    """
    digest = hashlib.sha256(str(key if key is not None else "grad:zero").encode()).digest()
    function_id = int.from_bytes(digest[:4], "big") % (2**31 - 1) + 1
    while function_id in assembly.functions or function_id in assembly.resources:
        if assembly.functions.get(function_id) == replace(function, id=function_id):
            return assembly, function_id
        function_id = function_id % (2**31 - 1) + 1
    return assembly.with_function(replace(function, id=function_id)), function_id


def zero_function() -> GraphFunction:
    """A function that returns zeros. It replaces gradients that cannot be computed."""
    nodes = [
        GraphNode("zero_vector", node_type("ConstVec"), value=(0.0, 0.0, 0.0)),
        GraphNode("zero", node_type("Constant"), value=0.0),
    ]
    vector, scalar = Reference("zero_vector", "vector"), Reference("zero", "value")
    results = {"vector": vector, "gradient": vector, "magnitude": scalar}
    return GraphFunction(0, "gradient_of_nothing", {}, OUTPUT_TYPES, {n.identifier: n for n in nodes}, results)


class _NodeCollector:
    """Collects nodes. Each method adds a node and returns a reference to its first output."""

    def __init__(self) -> None:
        self.nodes: dict[str, GraphNode] = {}

    def add(self, identifier: str, type: str, value: Literal | None = None, **inputs: Source) -> Reference:
        return self.add_with_inputs(identifier, type, inputs, value=value)

    def add_with_inputs(
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
        return self.add_with_inputs(identifier, type, inputs, PortType.SCALAR)

    def vector(self, identifier: str, type: str, **inputs: Source) -> Reference:
        return self.add_with_inputs(identifier, type, inputs, PortType.VECTOR)


def central_difference_function(assembly: Assembly, function: AnyFunction, key: GradientKey) -> GraphFunction:
    """A function that computes a gradient by central differences: six calls of `function` around the point."""
    graph = _NodeCollector()
    callee = graph.add("function", "ResourceId", value=function.id)
    min_step = graph.add("smallest_step", "Constant", value=SMALLEST_STEP)
    two, zero = graph.add("two", "Constant", value=2.0), graph.add("zero", "Constant", value=0.0)
    size = graph.scalar("step_size", "Abs", A=Reference(INPUTS, STEP_SIZE))
    step = graph.scalar("step", "Max", A=size, B=min_step)
    base = Reference(INPUTS, key.input)
    steps = _scale_steps(graph, step, base) if key.adaptive_step else dict.fromkeys(_AXES, step)
    derivatives: dict[str, Source] = {}
    for axis in _AXES:
        offset = graph.add_with_inputs(
            f"offset_{axis}", "ComposeVector", {a: steps[a] if a == axis else zero for a in _AXES}
        )
        values = []
        for side, type in (("plus", "Addition"), ("minus", "Subtraction")):
            shifted = graph.vector(f"{side}_{axis}", type, A=base, B=offset)
            arguments = {name: shifted if name == key.input else Reference(INPUTS, name) for name in function.inputs}
            graph.add_with_inputs(f"call_{side}_{axis}", "FunctionCall", {"functionID": callee, **arguments})
            values.append(Reference(f"call_{side}_{axis}", key.output))
        difference = graph.scalar(f"difference_{axis}", "Subtraction", A=values[0], B=values[1])
        width = graph.scalar(f"width_{axis}", "Multiplication", A=two, B=steps[axis])
        derivatives[axis] = graph.scalar(f"slope_{axis}", "Division", A=difference, B=width)
    gradient = graph.add_with_inputs("gradient", "ComposeVector", derivatives)
    magnitude, direction = _normalise(graph, gradient)
    inputs = dict(function.inputs)
    inputs.setdefault(STEP_SIZE, PortType.SCALAR)
    results = {"vector": direction, "gradient": gradient, "magnitude": magnitude}
    return GraphFunction(0, gradient_name(function, key), inputs, OUTPUT_TYPES, graph.nodes, results)


def _scale_steps(graph: _NodeCollector, step: Reference, base: Reference) -> dict[str, Reference]:
    """A step for each axis: step * max(1, |coordinate|). Far from the origin, rounding errors exceed a fixed step."""
    one = graph.add("one", "Constant", value=1.0)
    graph.add("coordinates", "DecomposeVector", A=base)
    steps = {}
    for axis in _AXES:
        size = graph.scalar(f"size_{axis}", "Abs", A=Reference("coordinates", axis))
        scale = graph.scalar(f"scale_{axis}", "Max", A=one, B=size)
        steps[axis] = graph.scalar(f"step_{axis}", "Multiplication", A=step, B=scale)
    return steps


def _normalise(graph: _NodeCollector, gradient: Reference) -> tuple[Reference, Reference]:
    """The length of a vector and its direction, which is zero for very short vectors."""
    min_length = graph.add("smallest_length", "Constant", value=SMALLEST_LENGTH)
    zero_vector = graph.add("zero_vector", "ConstVec", value=(0.0, 0.0, 0.0))
    magnitude = graph.add("magnitude", "Length", A=gradient)
    # The divisor has a lower bound so that the value that is not selected is also finite.
    divisor = graph.scalar("divisor", "Max", A=magnitude, B=min_length)
    divisors = graph.add("divisors", "VectorFromScalar", A=divisor)
    unit = graph.vector("unit", "Division", A=gradient, B=divisors)
    bounds = graph.add("bounds", "VectorFromScalar", A=min_length)
    lengths = graph.add("lengths", "VectorFromScalar", A=magnitude)
    return magnitude, graph.vector("direction", "Select", A=bounds, B=lengths, C=unit, D=zero_vector)


# --- analytic gradients -----------------------------------------------------------------------------------------------


def exact_gradient_function(assembly: Assembly, function: AnyFunction, key: GradientKey) -> GraphFunction:
    """A function that computes an analytic gradient with ordinary nodes, so that it can be saved, shown and edited.

    It has the signature of `central_difference_function`; its step is ignored.
    """
    converted = convert(assembly, function.id, outputs=[key.output], exact=True, element=f64)
    if converted.tables:
        raise AssemblyError(
            f"the exact gradient of `{function.name}` reads meshes or images, which nodes cannot do",
            where=caller_origin(),
            help="use to_function(..., exact=True) or part.gradient, which need no nodes",
        )
    inputs = [
        input_node(Key(name), type)
        for name, type in zip(converted.inputs, converted.function.parameter_types, strict=True)
    ]
    gradient = _differentiate(converted.function, inputs, converted.inputs.index(key.input))
    name = gradient_name(function, key)
    gradient_graph = add_ir_function(
        Assembly(), gradient, converted.inputs, tuple(OUTPUT_TYPES), name=name, id=1
    ).graph(1)
    input_types = dict(function.inputs)
    input_types.setdefault(STEP_SIZE, PortType.SCALAR)
    return replace(gradient_graph, id=0, inputs=input_types)


def _differentiate(function: Function, inputs: list[Node], position: int) -> Function:
    """Differentiates a function: (arguments) → direction, gradient and magnitude."""
    outputs = exact_gradient(function, inputs, position)
    return make_function(f"{function.name}.gradient", inputs, outputs)
