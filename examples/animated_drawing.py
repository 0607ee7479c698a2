"""An animated procedural drawing: flowers on a breathing meadow, as PNG frames, with the report of the cache.

    python examples/animated_drawing.py [--frames 48] [--size 240] [--out out/drawing]

The paper and the hills are drawn once, for they need no time. Flowers are drawn by a loop that gives each an index; the
wind that bends them is rounded to a few positions, so most frames find the flowers of an earlier one. Two layers show
the same scene: the reflection in the lake looks at it half a second late, by a modifier of the time.
"""

import argparse
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from livegrad import f32, ops
from livegrad.authoring.context import (
    ContextGraph,
    Extract,
    Inject,
    NodeContext,
    Scoped,
    context,
    context_function,
    context_node,
)
from livegrad.formats import save_png

Picture = np.ndarray[Any, Any]
FLOWERS = 7


@context_node
def grid(ctx: Annotated[NodeContext, Extract("footprint")]) -> Picture:
    """The x and y of each pixel, from -1 to 1, as one row for each."""
    width, height = ctx.footprint
    y, x = np.meshgrid(np.linspace(1, -1, height), np.linspace(-1, 1, width), indexing="ij")
    return np.stack([x.ravel(), y.ravel()]).astype(np.float32)


@context_node
def paper(ctx: NodeContext, grid: Picture) -> Picture:
    """The sky: no time in it."""
    height = (grid[1] + 1) / 2
    return np.stack([0.55 + 0.4 * height, 0.75 + 0.15 * height, 0.95 + 0 * height], -1)


@context_node
def hills(ctx: NodeContext, paper: Picture, grid: Picture) -> Picture:
    """Three ridges over the sky."""
    picture = paper.copy()
    for number, shade in enumerate((0.75, 0.6, 0.45)):
        ridge = 0.25 - 0.25 * number + 0.12 * np.sin(grid[0] * (3 + number) + number * 2)
        picture[grid[1] < ridge] = (0.3 * shade, 0.9 * shade, 0.5 * shade)
    return picture


@context_node
def wind(ctx: Annotated[NodeContext, Extract("animation_time")]) -> float:
    """How far flowers bend: one of a few positions."""
    return round(float(np.sin(ctx.animation_time * 2.0)) * 4) / 40


def glow_at(x: Any) -> Any:
    """A livegrad function: the light that wanders over the meadow. Its need of the time is read from its code."""
    distance = x - ops.sin(context("animation_time") * 0.7)
    return ops.exp(distance * distance * -6.0) * 0.35


@context_node
def flower(ctx: Annotated[NodeContext, Extract("index")], grid: Picture, wind: float) -> Picture:
    """How much each pixel is part of one flower: bloom and stem."""
    root = -0.85 + 1.7 * ctx.index / (FLOWERS - 1)
    tall = 0.35 + 0.15 * ((ctx.index * 37) % 5) / 4
    x, y = grid[0] - root - wind * np.clip((grid[1] + 0.8) / tall, 0, 1) ** 2, grid[1] + 0.8 - tall
    petals = 0.085 + 0.03 * np.cos(5 * np.arctan2(y, x) + ctx.index)
    stem = (np.abs(x) < 0.008) & (y < 0) & (y > -tall)
    return np.where(np.hypot(x, y) < petals, 1.0, np.where(stem, 0.4, 0.0)).astype(np.float32)


@context_node
def bouquet(ctx: Annotated[NodeContext, Inject("index")], flower: Scoped) -> list[Picture]:
    """All flowers, each asked for with its own index."""
    return [flower(ctx.inject(index=index)) for index in range(FLOWERS)]


@context_node
def scene(ctx: NodeContext, hills: Picture, bouquet: list[Picture], glow: Picture) -> Picture:
    picture = hills + glow[:, None] * np.array([1.0, 0.9, 0.4])
    for number, cover in enumerate(bouquet):
        colour = np.array([(0.95, 0.35, 0.4), (0.98, 0.8, 0.3), (0.75, 0.45, 0.9)][number % 3])
        picture += np.where(cover == 1.0, 1.0, cover)[:, None] * (colour - picture)
    return picture


@context_node
def lake(ctx: Annotated[NodeContext, Extract("footprint")], scene: Picture, reflection: Picture) -> Picture:
    """The scene over its late, darker mirror image."""
    width, height = ctx.footprint
    above, below = scene.reshape(height, width, 3), reflection.reshape(height, width, 3)
    return np.concatenate([above, below[::-1][: height // 3] * 0.7])


def build() -> ContextGraph:
    graph = ContextGraph()
    graph.node("grid", grid)
    graph.node("columns", lambda ctx, grid: grid[0], plain="grid")
    graph.node("paper", paper, grid="grid")
    graph.node("hills", hills, paper="paper", grid="grid")
    graph.node("wind", wind)
    graph.node("glow", context_function(glow_at, f32).mapped(), plain="columns")
    graph.node("flower", flower, grid="grid", wind="wind")
    graph.node("bouquet", bouquet, flower="flower")
    graph.node("scene", scene, hills="hills", bouquet="bouquet", glow="glow")
    graph.modifier("late", "scene", animation_time=lambda time: time - 0.5)
    graph.node("lake", lake, scene="scene", reflection="late")
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description="An animated procedural drawing with a precise cache.")
    parser.add_argument("--frames", type=int, default=48)
    parser.add_argument("--size", type=int, default=240)
    parser.add_argument("--out", type=Path, default=Path("out/drawing"))
    options = parser.parse_args()
    program = build().compile("lake", root=["animation_time", "footprint", "real_time"])
    program.print(color=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for frame in range(options.frames):
        picture = program.evaluate(
            animation_time=frame / 24, footprint=(options.size, options.size * 2 // 3), real_time=float(frame)
        )
        save_png(picture, options.out / f"frame{frame:03}.png")
    print(f"\n{options.frames} frames in {options.out}\n\n{program.report()}\n\n{program.why('flower')}")


if __name__ == "__main__":
    main()
