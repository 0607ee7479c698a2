"""Assemblies: functions made of nodes, as 3MF parts have them; edited safely, lowered, and compiled."""

from livegrad.authoring.assembly.assembly import Assembly
from livegrad.authoring.assembly.builder import FunctionBuilder, Wire
from livegrad.authoring.assembly.errors import AssemblyError, Problem
from livegrad.authoring.assembly.expression import add_expression
from livegrad.authoring.assembly.from_ir import add_ir_function
from livegrad.authoring.assembly.graph import GraphFunction, GraphNode, ImageFunction
from livegrad.authoring.assembly.lower_gradient import LoweredAssembly, lower_function_gradient
from livegrad.authoring.assembly.node_types import NODE_TYPES, NodeType
from livegrad.authoring.assembly.ports import PortType, Reference
from livegrad.authoring.assembly.to_ir import Converted, convert, to_function

__all__ = [
    "NODE_TYPES",
    "Assembly",
    "AssemblyError",
    "Converted",
    "FunctionBuilder",
    "GraphFunction",
    "GraphNode",
    "ImageFunction",
    "LoweredAssembly",
    "NodeType",
    "PortType",
    "Problem",
    "Reference",
    "Wire",
    "add_expression",
    "add_ir_function",
    "convert",
    "lower_function_gradient",
    "to_function",
]
