"""The rows of the implicit suite: prospero.vm drawn with and without pruning, meshing against resolution, gradients."""

from benchmarks import prospero
from benchmarks.harness import Benchmark
from benchmarks.problems import Problem

MESH_SIDES = (64, 128, 256)  # cells along the part's longest side


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
    meshed = [
        Benchmark(
            f"part_meshed_{side}",
            f"a box with a round hole, meshed with {side} cells a side, closed and with sharp edges",
            Problem("part_meshed", side),
            ("livegrad",),
        )
        for side in (MESH_SIDES[:1] if quick else MESH_SIDES)
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
    return [*drawn, *meshed, gradient]
