"""Draws an animated meadow with flowers as an animated PNG, and prints a report of the cache.

    python examples/animated_drawing.py [--frames 48] [--size 480] [--out out]

The sky and the hills are drawn once, because they do not depend on time. A loop draws the flowers, each with its own
index. The wind that bends them is rounded to a few values, so most frames reuse cached flowers. The reflection in the
lake shows the same scene half a second late: a modifier shifts the time.
"""

import argparse
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import livegrad as lg
from livegrad import ops

Picture = np.ndarray[Any, Any]
FLOWERS = 7


@lg.contexts.context_node
def grid(ctx: Annotated[lg.contexts.NodeContext, lg.contexts.Extract("footprint")]) -> Picture:
    """Returns the x and y coordinates of each pixel as two rows; y runs from -1 at the bottom to 1 at the top."""
    width, height = ctx.footprint
    aspect = width / height
    y, x = np.meshgrid(np.linspace(1, -1, height), np.linspace(-aspect, aspect, width), indexing="ij")
    return np.stack([x.ravel(), y.ravel()]).astype(np.float32)


@lg.contexts.context_node
def paper(ctx: lg.contexts.NodeContext, grid: Picture) -> Picture:
    """Draws the sky, which does not depend on time."""
    height = np.clip(grid[1], 0, 1)
    return np.stack([0.98 - 0.55 * height, 0.86 - 0.28 * height, 0.74 + 0.16 * height], -1)


@lg.contexts.context_node
def hills(ctx: lg.contexts.NodeContext, paper: Picture, grid: Picture) -> Picture:
    """Draws three ridges over the sky."""
    picture = paper.copy()
    for index, shade in enumerate((0.75, 0.6, 0.45)):
        ridge = 0.25 - 0.25 * index + 0.12 * np.sin(grid[0] * (3 + index) + index * 2)
        cover = np.clip((ridge - grid[1]) * 200 + 0.5, 0, 1)[:, None]
        picture += cover * (np.array([0.42, 0.82, 0.52]) * shade - picture)
    return picture


@lg.contexts.context_node
def wind(ctx: Annotated[lg.contexts.NodeContext, lg.contexts.Extract("animation_time")]) -> float:
    """Returns how far flowers bend, rounded to a few values."""
    return round(float(np.sin(ctx.animation_time * 2.0)) * 4) / 40


def glow_at(x: Any) -> Any:
    """Computes the light that moves over the meadow. livegrad finds in the code that it depends on time."""
    distance = x - ops.sin(lg.context("animation_time") * 0.7)
    return ops.exp(distance * distance * -6.0) * 0.35


@lg.contexts.context_node
def flower(
    ctx: Annotated[lg.contexts.NodeContext, lg.contexts.Extract("index")], grid: Picture, wind: float
) -> Picture:
    """Returns the coverage of each pixel by the stem, bloom and centre of one flower, as three antialiased rows."""
    root = -1.2 + 2.4 * ctx.index / (FLOWERS - 1)
    stem_height = 0.45 + 0.35 * ((ctx.index * 37) % 5) / 4
    x, y = grid[0] - root - 2 * wind * np.clip((grid[1] + 1) / stem_height, 0, 1) ** 2, grid[1] + 1 - stem_height
    pixel_width = 1.5 * (grid[0, 1] - grid[0, 0])
    petals = 0.12 + 0.04 * np.cos(5 * np.arctan2(y, x) + ctx.index)
    stem = np.clip((0.01 - np.abs(x)) / pixel_width + 0.5, 0, 1) * (y < 0)
    bloom, centre = (np.clip((size - np.hypot(x, y)) / pixel_width + 0.5, 0, 1) for size in (petals, 0.04))
    return np.stack([stem, bloom, centre]).astype(np.float32)


@lg.contexts.context_node
def bouquet(
    ctx: Annotated[lg.contexts.NodeContext, lg.contexts.Inject("index")], flower: lg.contexts.Scoped
) -> list[Picture]:
    """Evaluates the flower once for each index."""
    return [flower(ctx.inject(index=index)) for index in range(FLOWERS)]


@lg.contexts.context_node
def scene(ctx: lg.contexts.NodeContext, hills: Picture, bouquet: list[Picture], glow: Picture) -> Picture:
    picture = np.minimum(hills * (0.9 + glow[:, None] * np.array([1.0, 0.9, 0.5])), 1.0)
    for index, covers in enumerate(bouquet):
        petals = [(0.93, 0.32, 0.36), (0.97, 0.62, 0.75), (0.58, 0.42, 0.88)][index % 3]
        for cover, colour in zip(covers, ((0.16, 0.40, 0.22), petals, (0.99, 0.84, 0.35)), strict=True):
            picture += cover[:, None] * (np.array(colour) - picture)
    return picture


@lg.contexts.context_node
def lake(
    ctx: Annotated[lg.contexts.NodeContext, lg.contexts.Extract("footprint")], scene: Picture, reflection: Picture
) -> Picture:
    """Draws the scene above its delayed, darker mirror image."""
    width, height = ctx.footprint
    above, below = scene.reshape(height, width, 3), reflection.reshape(height, width, 3)
    return np.concatenate([above, below[::-1][: height // 3] * 0.7])


def build() -> lg.ContextGraph:
    graph = lg.ContextGraph()
    graph.node("grid", grid)
    graph.node("columns", lambda ctx, grid: grid[0], plain="grid")
    graph.node("paper", paper, grid="grid")
    graph.node("hills", hills, paper="paper", grid="grid")
    graph.node("wind", wind)
    graph.node("glow", lg.contexts.context_function(glow_at, lg.f32).mapped(), plain="columns")
    graph.node("flower", flower, grid="grid", wind="wind")
    graph.node("bouquet", bouquet, flower="flower")
    graph.node("scene", scene, hills="hills", bouquet="bouquet", glow="glow")
    graph.modifier("late", "scene", animation_time=lambda time: time - 0.5)
    graph.node("lake", lake, scene="scene", reflection="late")
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws an animated meadow with a context graph.")
    parser.add_argument("--frames", type=int, default=48)
    parser.add_argument("--size", type=int, default=480, help="width in pixels")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    program = build().compile("lake", root=["animation_time", "footprint", "real_time"])
    program.print(color=True)
    options.out.mkdir(parents=True, exist_ok=True)
    footprint = (options.size, options.size * 2 // 3)
    frames = [
        program.evaluate(animation_time=frame / 24, footprint=footprint, real_time=float(frame))
        for frame in range(options.frames)
    ]
    lg.save_animation(frames, options.out / "drawing.png", frames_per_second=24)
    print(
        f"\n{options.frames} frames in {options.out / 'drawing.png'}\n\n{program.report()}\n\n{program.why('flower')}"
    )


if __name__ == "__main__":
    main()
