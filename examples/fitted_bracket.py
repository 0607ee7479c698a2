"""Models a bracket in Python, fits its dimensions to scanned points, and writes it as 3MF, STL and PNG.

    python examples/fitted_bracket.py [--steps 200] [--out out]

The bracket is one function of position and five dimensions. The points simulate a scan: they lie on the surface of a
bracket with unknown dimensions. The fit minimises the value of the function at the points, with exact derivatives with
respect to the dimensions. Nothing is recompiled while the dimensions change.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.tools.chart import chart_svg

BOUNDS = ((-28.0, -16.0, -2.0), (28.0, 16.0, 34.0))
INITIAL = {"width": 36.0, "thickness": 6.0, "bore": 5.0, "boss": 9.0, "fillet": 2.0}
SCANNED = {"width": 44.0, "thickness": 4.0, "bore": 6.5, "boss": 10.5, "fillet": 5.0}


def bracket() -> lg.Part:
    """Returns a plate with two screw holes, a wall, and a bearing on top of the wall, joined by fillets."""
    shapes = lg.shapes
    width, thickness, bore, boss, fillet = (shapes.Parameter(name, value) for name, value in INITIAL.items())
    plate = shapes.box((width, 24.0, thickness)).translate((0.0, 0.0, 2.0))
    wall = shapes.box((14.0, 8.0, 20.0)).translate((0.0, 0.0, 10.0))
    bearing = shapes.cylinder(boss, 14.0).rotate((1.0, 0.0, 0.0), np.pi / 2).translate((0.0, 0.0, 20.0))
    body = shapes.union(plate, wall, bearing, blend=fillet)
    bore_hole = shapes.cylinder(bore).rotate((1.0, 0.0, 0.0), np.pi / 2).translate((0.0, 0.0, 20.0))
    screws = shapes.union(*[shapes.cylinder(2.2).translate((x, 0.0, 0.0)) for x in (-15.0, 15.0)])
    floor = shapes.half_space((0.0, 0.0, -1.0), 0.0)
    return shapes.intersection(shapes.difference(body, bore_hole, screws), floor).part(BOUNDS, "bracket")


def scanned_points(count: int = 4000) -> np.ndarray[Any, Any]:
    """Returns points on the surface of the unknown bracket, uniformly distributed over its area."""
    part = bracket().with_parameters(**SCANNED)
    surface = lg.mesh(part, feature_size=1.5)
    a, b, c = surface.vertices[surface.triangles].transpose(1, 0, 2)
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    random = np.random.default_rng(0)
    triangle = random.choice(len(areas), count, p=areas / areas.sum())
    u, v = np.sqrt(random.uniform(size=(count, 1))), random.uniform(size=(count, 1))
    points = a[triangle] + u * ((1 - v) * (b - a)[triangle] + v * (c - a)[triangle])
    for _ in range(3):  # project the points from the flat triangles onto the surface with Newton steps
        gradient = part.gradient(points)
        points = points - part(points)[:, None] * gradient / (gradient**2).sum(1, keepdims=True)
    return points


def fit(part: lg.Part, points: Any, steps: int) -> tuple[lg.Part, list[float]]:
    """Fits the parameters of the part to the points; returns the part and the mean squared distance at each step."""
    names = list(part.parameter_names)
    mean, square = np.zeros(len(names)), np.zeros(len(names))
    losses: list[float] = []
    for index in range(steps):
        distances = part(points)
        losses.append(float(np.mean(distances.astype(np.float64) ** 2)))
        gradients = part.parameter_gradient(points, distances / len(points))
        gradient = np.array([gradients[name] for name in names])
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        learning_rate = 0.25 * (1.0 - index / steps)  # Adam with linear decay
        change = (
            learning_rate * (mean / (1 - 0.9 ** (index + 1))) / (np.sqrt(square / (1 - 0.99 ** (index + 1))) + 1e-9)
        )
        values = np.maximum([part.parameters[name] for name in names] - change, 0.05)
        part = part.with_parameters(**dict(zip(names, values.astype(np.float32), strict=True)))
        if (index + 1) % max(1, steps // 10) == 0:
            print(f"step {index + 1:4d} of {steps}: RMS distance {losses[-1] ** 0.5:.4f} mm", flush=True)
    return part, losses


def main(arguments: list[str] | None = None) -> lg.Part:
    """Fits the bracket, writes the files and returns the fitted part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=int, default=480, help="size of each picture in pixels")
    parser.add_argument("--feature-size", type=float, default=1.0, help="feature size of the mesh in millimetres")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    initial = bracket()
    fitted, losses = fit(initial, scanned_points(), options.steps)
    view: dict[str, Any] = {"size": (options.size, options.size), "direction": (-0.5, 0.8, -0.4), "oversample": 2}
    pictures = [lg.render(initial, color=(0.62, 0.67, 0.73), **view), lg.render(fitted, **view)]
    lg.save_png(np.concatenate(pictures, axis=1), options.out / "fitted_bracket.png")
    (options.out / "fitted_bracket_loss.svg").write_text(chart_svg(losses, title="the loss", across="steps"))
    lg.save_3mf(
        lg.implicit.assembly_of_part(fitted, min_feature_size=options.feature_size), options.out / "bracket.3mf"
    )
    lg.save_stl(lg.mesh(fitted, feature_size=options.feature_size), options.out / "bracket.stl")
    for name, value in fitted.parameters.items():
        print(f"{name:10s} {INITIAL[name]:6.2f} → {float(value):6.3f} mm   (scanned: {SCANNED[name]:g})")
    print(f"wrote fitted_bracket.png, bracket.3mf and bracket.stl to {options.out}/")
    return fitted


if __name__ == "__main__":
    main()
