"""Analytic gradients as node graphs: the derivative of a function as ordinary nodes.

Called by `lower_gradient` in exact mode, so that an exact assembly can be saved, shown and edited too.
"""

from __future__ import annotations

from dataclasses import replace

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.exact_gradient import exact_gradient
from livegrad.implicit.nodes.from_ir import add_ir_function
from livegrad.implicit.nodes.gradient_function import OUTPUT_TYPES, STEP_SIZE, GradientKey, gradient_name
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.to_ir import convert
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import f64


def exact_gradient_function(assembly: Assembly, function: AnyFunction, key: GradientKey) -> GraphFunction:
    """The gradient of an output with respect to a vector input, with the signature of other gradient functions."""
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
    gradient = gradient_of(converted.function, inputs, converted.inputs.index(key.input))
    name = gradient_name(function, key)
    written = add_ir_function(Assembly(), gradient, converted.inputs, tuple(OUTPUT_TYPES), name=name, id=1).graph(1)
    ports = dict(function.inputs)
    ports.setdefault(STEP_SIZE, PortType.SCALAR)
    return replace(written, id=0, inputs=ports)


def gradient_of(function: Function, inputs: list[Node], position: int) -> Function:
    """(arguments) → direction, gradient and magnitude."""
    results = exact_gradient(function, inputs, position)
    return make_function(f"{function.name}.gradient", inputs, results)
