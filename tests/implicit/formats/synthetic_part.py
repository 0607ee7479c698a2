"""A part with all features of the sample files, and more, for tests without these files."""

import numpy as np

from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import ImageStack, LevelSet, TriangleMesh, VolumeChannel, VolumeData

SCALAR, VECTOR = PortType.SCALAR, PortType.VECTOR
SIZE = (6, 28)  # functions and nodes
GYROID = "sin(pos.x) * cos(pos.y) + sin(pos.y) * cos(pos.z) + sin(pos.z) * cos(pos.x)"


def synthetic_part() -> Assembly:
    """A gyroid sheet of even thickness in a box, coloured by its normal, with a density from an image."""
    assembly = add_expression(Assembly(), "gyroid", GYROID, {"pos": "vector"})
    assembly = assembly.add_function("sheet", {"pos": VECTOR}, {"shape": SCALAR}, id=2)
    assembly = assembly.add_node(
        "sheet", "NormalizeDistance", "even", functionID=1, step=0.01, pos="inputs.pos",
        scalar_output="shape", vector_input="pos",
    )  # fmt: skip
    assembly = assembly.add_node("sheet", "Abs", "both_sides", A="even.result")
    assembly = assembly.add_node("sheet", "Subtraction", "thick", A="both_sides.result", B=0.25)
    assembly = assembly.add_node("sheet", "Length", "away", A="inputs.pos")
    assembly = assembly.add_node("sheet", "Select", "hollow", A="away.result", B=1.0, C=1.0, D="thick.result")
    assembly = assembly.link("sheet", "hollow.result", "outputs.shape")
    assembly = assembly.add_function("paint", {"pos": VECTOR}, {"color": VECTOR}, id=3)
    assembly = assembly.add_node(
        "paint", "FunctionGradient", "normal", functionID=1, step=0.01, pos="inputs.pos",
        scalar_output="shape", vector_input="pos",
    )  # fmt: skip
    assembly = assembly.add_node("paint", "Abs", "bright", A="normal.normalizedgradient")
    assembly = assembly.link("paint", "bright.result", "outputs.color")
    pixels = (np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4)) / 255).astype(np.float32)
    assembly = assembly.add_resource(ImageStack(pixels), id=10).add_image_function("picture", 10, id=4, filter="linear")
    assembly = assembly.add_function("density", {"pos": VECTOR}, {"value": SCALAR}, id=5)
    assembly = assembly.add_node("density", "FunctionCall", "sample", functionID=4, pos="inputs.pos")
    assembly = assembly.link("density", "sample.red", "outputs.value")
    assembly = add_expression(assembly, "unused", "dot(pos, pos)", {"pos": "vector"})
    channels = (VolumeChannel("color", 3, "color"), VolumeChannel("property", 5, "value", "density"))
    assembly = assembly.add_resource(VolumeData(channels), id=21).add_resource(
        TriangleMesh.box((-6, -6, -4), (6, 6, 4)), id=22
    )
    scaled = (0.5, 0, 0, 0, 0.5, 0, 0, 0, 0.5, 0, 0, 0)
    assembly = assembly.add_resource(LevelSet(2, "shape", 22, transform=scaled, volume_data=21, name="sheet"), id=23)
    return assembly.build(23, transform=(0, 1, 0, -1, 0, 0, 0, 0, 1, 5, 0, 0))
