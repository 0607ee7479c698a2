"""Opens a 3MF file and shows what is in it: values, exact gradients, a picture, a slice and a mesh.

    python examples/look_at_part.py [PART.3mf] [--out out]

Without a file it writes one first, a gyroid in a rounded box with a gradient node that keeps its wall even, as an
author of parts would: functions in text, a level set, a domain.
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
    """A block of gyroid. Divided by the length of its gradient, the field is a distance near its surface."""
    scalar, vector = lg.PortType.SCALAR, lg.PortType.VECTOR
    made = lg.add_expression(lg.Assembly(), "lattice", LATTICE, {"pos": "vector"})
    made = lg.add_expression(made, "block", BLOCK, {"pos": "vector"})
    made = made.add_function("main", {"pos": vector}, {"shape": scalar})
    made = made.add_node(
        "main",
        "NormalizeDistance",
        "even",
        functionID=1,
        step=0.01,
        scalar_output="shape",
        vector_input="pos",
        pos="inputs.pos",
    )
    made = made.add_node("main", "Abs", "both_sides", A="even.result")
    made = made.add_node("main", "Subtraction", "wall", A="both_sides.result", B=0.6)
    made = made.add_node("main", "FunctionCall", "within", functionID=2, pos="inputs.pos")
    made = made.add_node("main", "Max", "shape", A="wall.result", B="within.shape")
    made = made.link("main", "shape.result", "outputs.shape")
    made = made.add_resource(lg.TriangleMesh.box((-12,) * 3, (12,) * 3), id=10)
    return made.add_resource(lg.LevelSet(3, "shape", 10, name="gyroid block"), id=11).build(11)


def main(arguments: list[str] | None = None) -> lg.Part:
    """Looks at the file's first part from all sides, and gives it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--size", type=int, default=640, help="of the picture, in pixels")
    parser.add_argument("--cells", type=int, default=40, help="features of the mesh along its longest side")
    parser.add_argument("--out", type=Path, default=Path("out"))
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.file or chosen.out / "gyroid_block.3mf"
    if chosen.file is None:
        lg.save_3mf(gyroid_block(), file)
    part = lg.fit_bounds(lg.parts(lg.load_3mf(file))[0])
    middle = (part.low + part.high) / 2
    size = float((part.high - part.low).max())
    points = middle + np.random.default_rng(0).uniform(-0.3, 0.3, (4, 3)) * size
    for point, value, gradient in zip(points, part(points), part.gradient(points), strict=True):
        print(
            f"at {np.round(point, 2).tolist()}: {value:+.4f}, gradient {[round(float(slope), 4) for slope in gradient]}"
        )
    lg.save_png(lg.render(part, size=(chosen.size, chosen.size), oversample=2), chosen.out / f"{file.stem}.png")
    cut = lg.slice(part, float(middle[2]), feature_size=size / (2 * chosen.cells))
    lg.save_svg(cut, chosen.out / f"{file.stem}.svg")
    print(f"meshing with {chosen.cells} features across …", flush=True)
    surface = lg.mesh(part, feature_size=size / chosen.cells)
    lg.save_stl(surface, chosen.out / f"{file.stem}.stl")
    print(f"{part.name}: area {cut.area():.4g} in the middle; {len(surface.triangles):,} triangles", end="")
    print(", closed" if surface.is_closed() else ", NOT CLOSED")
    print(f"wrote {file.stem}.png, {file.stem}.svg and {file.stem}.stl to {chosen.out}/")
    return part


if __name__ == "__main__":
    main()
