"""The rows of the implicit suite: prospero.vm drawn with and without pruning, meshing against resolution, gradients."""

import math

from benchmarks import prospero
from benchmarks.harness import Benchmark
from benchmarks.parts_expected import MARCHING_CUBES, triangle_count
from benchmarks.problems import Problem

MESH_SIDES = (64, 128, 256, 512)  # cells along the part's longest side
MOST_POINTS = 256  # cells a side up to which grids of values fit into memory everywhere
SURFACE = 2 * (2.0 * 1.4 + 1.4 * 1.0 + 2.0 * 1.0) - 2 * math.pi * 0.3**2 + 2 * math.pi * 0.3  # of the part


def rows(quick: bool) -> list[Benchmark]:
    sides = (256,) if quick else (1024, 4096)
    drawn = [
        Benchmark(
            f"prospero_drawn_{side}",
            f"prospero.vm, 7,866 operations: {side} × {side} pixels, compiled before",
            Problem("prospero_drawn", side),
            ("livegrad", "plain", "numpy_tape") if side <= 1024 else ("livegrad", "plain"),
            work=side * side / 1e6,
            unit="Mpixels/s",
            skip=prospero.missing(),
        )
        for side in sides
    ]
    sides = MESH_SIDES[:1] if quick else MESH_SIDES
    # Work is counted in cells of the surface: a constant rate means that time grows with the surface.
    meshed = [
        Benchmark(
            f"part_meshed_{side}",
            f"a box with a round hole, {side} cells a side: closed, with sharp edges, about "
            f"{triangle_count('part_meshed', side):,} triangles",
            Problem("part_meshed", side),
            ("livegrad",),
            work=SURFACE * (side / 2.0) ** 2 / 1e3,
            unit="thousand cells of surface/s",
        )
        for side in sides
    ]
    meshed += [
        Benchmark(
            f"part_triangles_{side}",
            f"the same part and cells, edges as they come: about {triangle_count('part_triangles', side):,} triangles, "
            f"where marching cubes has {MARCHING_CUBES[side]:,}",
            Problem("part_triangles", side),
            ("livegrad", "marching_cubes", "sdf_package"),
            work=SURFACE * (side / 2.0) ** 2 / 1e3,
            unit="thousand cells of surface/s",
        )
        for side in sides
        if side <= MOST_POINTS
    ]
    points = 1 << 16 if quick else 1 << 22
    gradient = Benchmark(
        "part_gradient",
        f"exact gradients of that part beside central differences, {points:,} points",
        Problem("part_gradient", points),
        ("livegrad", "differences", "numpy_differences"),
        work=points / 1e6,
        unit="Mpoints/s",
    )
    return [*drawn, *meshed, gradient, *_limits(quick)]


def _limits(quick: bool) -> list[Benchmark]:
    """First-use costs of parts, compiled in each run, and a picture by the command line with its caches."""
    sines = 200 if quick else 2000
    rows = [
        ("nested_calls", "bounds of a function of 12 levels, each of which calls the one before twice", 12, None),
        ("bounds_of_sines", f"bounds of a sum of {sines:,} sines, compiled", sines, None),
        ("thin_part", "a plate of a 125th of its side, meshed whole without being told how fine", 1, None),
        (
            "prospero_rendered",
            "`livegrad render prospero.vm`, compiled before",
            128 if quick else 512,
            prospero.missing(),
        ),
    ]
    return [Benchmark(name, title, Problem(name, size), ("livegrad",), skip=skip) for name, title, size, skip in rows]
