"""Assemblies: functions made of nodes, as 3MF parts have them; edited safely, lowered, compiled, and seen as parts."""

from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.builder import FunctionBuilder, Wire
from livegrad.implicit.nodes.c_text import to_cuda, to_opencl
from livegrad.implicit.nodes.errors import AssemblyError, PartWarning, Problem
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.from_ir import add_ir_function
from livegrad.implicit.nodes.lower_gradient import LoweredAssembly, lower_function_gradient
from livegrad.implicit.nodes.node_graph import GraphFunction, GraphNode, ImageFunction
from livegrad.implicit.nodes.node_types import NODE_TYPES, NodeType
from livegrad.implicit.nodes.ports import PortType, Reference
from livegrad.implicit.nodes.resources import (
    BeamLattice,
    BuildItem,
    Components,
    ImageStack,
    LevelSet,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.implicit.nodes.to_ir import Converted, convert, to_function
from livegrad.implicit.parts import shapes
from livegrad.implicit.parts.level_sets import parts
from livegrad.implicit.parts.part import Part, part_of_function
from livegrad.implicit.parts.part_assembly import assembly_of_part
from livegrad.implicit.parts.pruning import fit_bounds
from livegrad.implicit.parts.rendering import render
from livegrad.implicit.parts.slicing import Slice, draw_plane, slice_part

__all__ = [
    "NODE_TYPES",
    "Assembly",
    "AssemblyError",
    "BeamLattice",
    "BuildItem",
    "Components",
    "Converted",
    "FunctionBuilder",
    "GraphFunction",
    "GraphNode",
    "ImageFunction",
    "ImageStack",
    "LevelSet",
    "LoweredAssembly",
    "NodeType",
    "Part",
    "PartWarning",
    "PortType",
    "Problem",
    "Reference",
    "Slice",
    "TriangleMesh",
    "VolumeChannel",
    "VolumeData",
    "Wire",
    "add_expression",
    "add_ir_function",
    "assembly_of_part",
    "convert",
    "draw_plane",
    "fit_bounds",
    "lower_function_gradient",
    "mesh",
    "part_of_function",
    "parts",
    "render",
    "shapes",
    "slice_part",
    "to_cuda",
    "to_function",
    "to_opencl",
]
