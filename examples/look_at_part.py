"""Opens a 3MF file and shows its contents: values, exact gradients, a picture, a slice and a mesh.

    python examples/look_at_part.py [PART.3mf] [--out out]

Without a file, it first writes one: a gyroid in a rounded box. A gradient node gives the gyroid walls of even
thickness. The functions are written as expressions, with a level set and its domain.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import livegrad as lg

LATTICE = """
p = pos * vector(0.9)
sin(p.x) * cos(p.y) + sin(p.y) * cos(p.z) + sin(p.z) * cos(p.x)
"""
BLOCK = """
q = abs(pos) - vector(9)
length(max(q, vector(0))) + min(max(q.x, max(q.y, q.z)), 0) - 2
"""


def gyroid_block() -> lg.Assembly:
    """Returns a gyroid block. The field divided by its gradient length approximates the distance near the surface."""
    scalar, vector = lg.implicit.PortType.SCALAR, lg.implicit.PortType.VECTOR
    assembly = lg.implicit.add_expression(lg.Assembly(), "lattice", LATTICE, {"pos": "vector"})
    assembly = lg.implicit.add_expression(assembly, "block", BLOCK, {"pos": "vector"})
    assembly = assembly.add_function("main", {"pos": vector}, {"shape": scalar})
    assembly = assembly.add_node(
        "main",
        "NormalizeDistance",
        "even",
        functionID=1,
        step=0.01,
        scalar_output="shape",
        vector_input="pos",
        pos="inputs.pos",
    )
    assembly = assembly.add_node("main", "Abs", "both_sides", A="even.result")
    assembly = assembly.add_node("main", "Subtraction", "wall", A="both_sides.result", B=0.6)
    assembly = assembly.add_node("main", "FunctionCall", "within", functionID=2, pos="inputs.pos")
    assembly = assembly.add_node("main", "Max", "shape", A="wall.result", B="within.shape")
    assembly = assembly.link("main", "shape.result", "outputs.shape")
    assembly = assembly.add_resource(lg.implicit.TriangleMesh.box((-12,) * 3, (12,) * 3), id=10)
    return assembly.add_resource(lg.implicit.LevelSet(3, "shape", 10, name="gyroid block"), id=11).build(11)


def main(arguments: list[str] | None = None) -> lg.Part:
    """Evaluates, draws, slices and meshes the first part of the file; returns the part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--size", type=int, default=640, help="size of the picture in pixels")
    parser.add_argument("--cells", type=int, default=40, help="number of mesh features along the longest side")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.file or options.out / "gyroid_block.3mf"
    if options.file is None:
        lg.save_3mf(gyroid_block(), file)
    part = lg.implicit.fit_bounds(lg.parts(lg.load_3mf(file))[0])
    middle = (part.low + part.high) / 2
    size = float((part.high - part.low).max())
    points = middle + np.random.default_rng(0).uniform(-0.3, 0.3, (4, 3)) * size
    for point, value, gradient in zip(points, part(points), part.gradient(points), strict=True):
        print(f"at {np.round(point, 2).tolist()}: {value:+.4f}, gradient {[round(float(x), 4) for x in gradient]}")
    lg.save_png(lg.render(part, size=(options.size, options.size), oversample=2), options.out / f"{file.stem}.png")
    cut = lg.slice(part, float(middle[2]), feature_size=size / (2 * options.cells))
    lg.save_svg(cut, options.out / f"{file.stem}.svg")
    print(f"meshing with {options.cells} features across …", flush=True)
    surface = lg.mesh(part, feature_size=size / options.cells)
    lg.save_stl(surface, options.out / f"{file.stem}.stl")
    print(f"{part.name}: area {cut.area():.4g} in the middle; {len(surface.triangles):,} triangles", end="")
    print(", closed" if surface.is_closed() else ", NOT CLOSED")
    print(f"wrote {file.stem}.png, {file.stem}.svg and {file.stem}.stl to {options.out}/")
    return part


if __name__ == "__main__":
    main()
