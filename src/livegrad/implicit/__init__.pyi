"""What type checkers read in place of `__init__.py`: every public name, imported from where it is.

Made from the tables in `public_names.py`; `./test --update-ir tests/test_import.py` writes it again.
"""
# ruff: noqa: I001, RUF022

from livegrad.implicit.nodes.assembly import (
    Assembly,
)
from livegrad.implicit.nodes.builder import (
    FunctionBuilder,
)
from livegrad.implicit.nodes.to_c import (
    to_cuda,
    to_opencl,
)
from livegrad.implicit.nodes.errors import (
    AssemblyError,
    PartWarning,
)
from livegrad.implicit.nodes.expression import (
    add_expression,
)
from livegrad.implicit.nodes.from_ir import (
    add_ir_function,
)
from livegrad.implicit.nodes.lower_gradient import (
    lower_function_gradient,
)
from livegrad.implicit.nodes.ports import (
    PortType,
)
from livegrad.implicit.nodes.resources import (
    BeamLattice,
    BuildItem,
    ImageStack,
    LevelSet,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.implicit.nodes.to_ir import (
    to_function,
)
from livegrad.implicit.bodies import (
    shapes,
)
from livegrad.implicit.bodies.clipping import (
    fit_bounds,
)
from livegrad.implicit.bodies.level_sets import (
    parts,
)
from livegrad.implicit.bodies.part import (
    Part,
    part_of_function,
)
from livegrad.implicit.bodies.part_assembly import (
    assembly_of_part,
)
from livegrad.implicit.bodies.rendering import (
    render,
)
from livegrad.implicit.bodies.slicing import (
    draw_plane,
    Slice,
    slice_part as slice,
)
from livegrad.implicit.meshing.meshing import (
    mesh,
)
from livegrad.implicit.shaders.shader import (
    Shader,
    Texture,
    Uniform,
)
from livegrad.implicit.shaders.steepness import (
    steepness,
)
from livegrad.implicit.shaders.to_shader import (
    to_glsl,
    to_wgsl,
)
from livegrad.implicit.shaders.viewport_shader import (
    viewport_shader,
    ViewportShader,
)
from livegrad.implicit.formats import (
    FormatError,
    FormatWarning,
    load_3mf,
    load_stl,
    load_vm,
    save_3mf,
    save_animation,
    save_mesh,
    save_png,
    save_stl,
    save_svg,
)

__all__ = [
    "Assembly",
    "FunctionBuilder",
    "to_cuda",
    "to_opencl",
    "AssemblyError",
    "PartWarning",
    "add_expression",
    "add_ir_function",
    "lower_function_gradient",
    "PortType",
    "BeamLattice",
    "BuildItem",
    "ImageStack",
    "LevelSet",
    "TriangleMesh",
    "VolumeChannel",
    "VolumeData",
    "to_function",
    "shapes",
    "fit_bounds",
    "parts",
    "Part",
    "part_of_function",
    "assembly_of_part",
    "render",
    "draw_plane",
    "Slice",
    "slice",
    "mesh",
    "Shader",
    "Texture",
    "Uniform",
    "steepness",
    "to_glsl",
    "to_wgsl",
    "viewport_shader",
    "ViewportShader",
    "FormatError",
    "FormatWarning",
    "load_3mf",
    "load_stl",
    "load_vm",
    "save_3mf",
    "save_animation",
    "save_mesh",
    "save_png",
    "save_stl",
    "save_svg",
]
