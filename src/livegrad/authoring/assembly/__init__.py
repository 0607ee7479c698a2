"""Assemblies: functions made of nodes, as 3MF parts have them; edited safely, lowered, compiled, and seen as parts."""

from livegrad.authoring.assembly import shapes
from livegrad.authoring.assembly.assembly import Assembly
from livegrad.authoring.assembly.builder import FunctionBuilder, Wire
from livegrad.authoring.assembly.c_text import to_cuda, to_opencl
from livegrad.authoring.assembly.errors import AssemblyError, PartWarning, Problem
from livegrad.authoring.assembly.expression import add_expression
from livegrad.authoring.assembly.from_ir import add_ir_function
from livegrad.authoring.assembly.graph import GraphFunction, GraphNode, ImageFunction
from livegrad.authoring.assembly.level_sets import parts
from livegrad.authoring.assembly.lower_gradient import LoweredAssembly, lower_function_gradient
from livegrad.authoring.assembly.meshing import mesh
from livegrad.authoring.assembly.node_types import NODE_TYPES, NodeType
from livegrad.authoring.assembly.part import Part, part_of_function
from livegrad.authoring.assembly.part_assembly import assembly_of_part
from livegrad.authoring.assembly.ports import PortType, Reference
from livegrad.authoring.assembly.pruning import fit_bounds
from livegrad.authoring.assembly.rendering import render
from livegrad.authoring.assembly.resources import (
    BeamLattice,
    BuildItem,
    Components,
    ImageStack,
    LevelSet,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.authoring.assembly.slicing import Slice, draw_plane, slice_part
from livegrad.authoring.assembly.to_ir import Converted, convert, to_function

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
