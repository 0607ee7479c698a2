"""The tour: a short run through what livegrad does, on the CPU, with results printed and pictures in `out/`.

`./run` calls `main`. Each stop is a function of its own, meant to be read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import livegrad as lg
from livegrad import ops
from livegrad.ir.text import summarize
from livegrad.tools.picture import line_chart, write_png

VEC3 = lg.Vector(lg.f32, 3)


def smooth_union(a: lg.Node, b: lg.Node, width: float) -> lg.Node:
    """The lower of two distances, rounded where they meet."""
    blend = ops.max(width - ops.abs(a - b), ops.zero(a.type)) * (1.0 / width)
    return ops.min(a, b) - blend * blend * (width * 0.25)


def scene(point: lg.Node, radius: lg.Node) -> lg.Node:
    """A signed distance: a ball and a ring melted together, over a floor."""
    x, y, z = (ops.get(point, index=index) for index in range(3))
    ball = ops.length(point) - radius
    ring_plane = ops.sqrt(x * x + z * z + 1e-12) - 0.95
    ring = ops.sqrt(ring_plane * ring_plane + y * y + 1e-12) - 0.2
    floor = y + 0.85 + 0.02 * ops.sin(9.0 * x) * ops.sin(9.0 * z)
    return smooth_union(smooth_union(ball, ring, 0.35), floor, 0.1)


# --- one function, its derivative, its value --------------------------------------------------------------------------


def show_a_function() -> None:
    """Trace, differentiate, run: the reference and native code agree."""
    distance = lg.trace(scene, VEC3, lg.f32)
    gradient = lg.vjp(distance)
    point = [0.3, 0.8, -0.2]
    print(summarize(distance))
    print(f"distance   reference {float(lg.evaluate(distance, point, 0.6)):+.6f}", end="   ")
    print(f"native {float(lg.compile(distance)(point, 0.6)):+.6f}")
    by_point, by_radius = lg.compile(gradient)(point, 0.6, 1.0)
    step = 1e-4
    moved = [float(lg.evaluate(distance, point, 0.6 + s)) for s in (step, -step)]
    print(f"gradient   by point {np.round(by_point, 5).tolist()}, by radius {float(by_radius):+.5f}", end="   ")
    print(f"(difference quotient {(moved[0] - moved[1]) / (2 * step):+.4f})")


# --- a picture: loops that end at a different trip in every lane ------------------------------------------------------


def shade(u: lg.Node, v: lg.Node, radius: lg.Node) -> tuple[lg.Node, ...]:
    """The colour seen through one pixel: march along the ray, then light the surface by its exact normal."""
    eye = ops.make_vector(*(lg.constant(c, lg.f32) for c in (0.0, 1.1, -3.2)))
    along = ops.normalize(ops.make_vector(u, v - 0.28, lg.constant(1.6, lg.f32)))

    def position(t: lg.Node) -> lg.Node:
        return eye + along * ops.splat(t, type=VEC3)

    def is_outside(t: lg.Node, distance: lg.Node) -> lg.Node:
        return (distance > 1e-3) & (t < 12.0)

    def step(index: lg.Node, t: lg.Node, distance: lg.Node) -> tuple[lg.Node, lg.Node]:
        forward = t + distance
        return forward, scene(position(forward), radius)

    start = lg.constant(0.0, lg.f32)
    t, _ = ops.make_while_loop(is_outside, step, start, scene(eye, radius), limit=400)
    normal = _normal(position(t), radius)
    light = ops.normalize(ops.make_vector(*(lg.constant(c, lg.f32) for c in (0.6, 0.9, -0.5))))
    diffuse = ops.max(ops.dot(normal, light), lg.constant(0.0, lg.f32))
    sky = ops.exp(t * -0.18)
    return tuple(
        ops.sqrt((ambient + colour * diffuse) * sky + haze * (1.0 - sky))
        for ambient, colour, haze in ((0.06, 0.85, 0.55), (0.08, 0.62, 0.68), (0.12, 0.42, 0.85))
    )


def _normal(point: lg.Node, radius: lg.Node) -> lg.Node:
    """The gradient of the scene, by reverse mode inside the same kernel."""
    gradient = ops.bwd_diff(
        point, radius, lg.constant(1.0, lg.f32), function=lg.trace(scene, VEC3, lg.f32, name="scene")
    )
    return ops.normalize(ops.get(gradient, index=0))


def show_a_picture(out: Path, width: int = 640, height: int = 400) -> None:
    pixel = lg.trace(shade, lg.f32, lg.f32, lg.f32)
    render = lg.compile(lg.map_over(pixel, lifted=(True, True, False)))
    v, u = np.meshgrid(
        np.linspace(0.75, -0.75, height, dtype=np.float32),
        np.linspace(-1.2, 1.2, width, dtype=np.float32),
        indexing="ij",
    )
    started = time.perf_counter()
    render(u.ravel(), v.ravel(), 0.6)
    first = time.perf_counter() - started
    started = time.perf_counter()
    channels = render(u.ravel(), v.ravel(), 0.62)
    again = time.perf_counter() - started
    write_png(out / "scene.png", np.stack(channels, -1).reshape(height, width, 3))
    print(f"sphere tracing {width}x{height}: first call {first * 1e3:.0f} ms, then {again * 1e3:.1f} ms a frame")


# --- fusion: a whole row in one kernel --------------------------------------------------------------------------------


def show_a_plan() -> None:
    shape = (1024, 1024)

    def softmax(x: lg.Node) -> lg.Node:
        highest = ops.reduce(x, kind="max", axes=(1,))
        weights = ops.exp(x - ops.spread_back(highest, shape, (1,)))
        return weights / ops.spread_back(ops.reduce(weights, kind="sum", axes=(1,)), shape, (1,))

    function = lg.trace(softmax, lg.types.Tensor(lg.f32, shape))
    compiled = lg.compile(function)
    print(compiled.schedule())
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    difference = np.abs(compiled(values) - lg.evaluate(function, values)).max()
    print(f"largest difference to the reference: {difference:.1e}")


# --- fitting: gradients of a sum over points, with respect to what the points share -----------------------------------


def rounded_box(point: lg.Node, size: lg.Node, roundness: lg.Node) -> lg.Node:
    corner = ops.abs(point) - size + ops.splat(roundness, type=VEC3)
    outside = ops.max(corner, ops.zero(VEC3))
    return ops.length(outside) - roundness


def show_a_fit(out: Path, steps: int = 400) -> None:
    """A box finds the size and roundness of another from distances at random points."""

    def squared_error(point: lg.Node, target: lg.Node, size: lg.Node, roundness: lg.Node) -> lg.Node:
        difference = rounded_box(point, size, roundness) - target
        return difference * difference

    each = lg.trace(squared_error, VEC3, lg.f32, VEC3, lg.f32)
    gradient = lg.compile(_loss_and_gradient(each))
    points = np.random.default_rng(1).uniform(-1.5, 1.5, (4096, 3)).astype(np.float32)
    truth = lg.compile(lg.map_over(lg.trace(rounded_box, VEC3, VEC3, lg.f32), lifted=(True, False, False)))
    targets = truth(points, [0.8, 0.5, 1.1], 0.2)
    parameters = np.array([0.4, 0.9, 0.6, 0.05])
    losses = _descend(lambda p: gradient(points, targets, p[:3], p[3]), parameters, steps)
    write_png(out / "loss.png", line_chart(losses))
    print(
        f"fitted size {np.round(parameters[:3], 3).tolist()}, roundness {parameters[3]:.3f} (true: 0.8, 0.5, 1.1; 0.2)"
    )
    print(f"loss {losses[0]:.2e} to {losses[-1]:.2e} in {steps} steps")


def _loss_and_gradient(each: lg.Function) -> lg.Function:
    """(points, targets, size, roundness) to the mean of `each` and its gradient by size and roundness."""
    n = lg.Dimension.symbol("n")
    cloud, column = lg.types.Tensor(lg.f32, (n, 3)), lg.types.Tensor(lg.f32, (n,))

    def loss(points: lg.Node, targets: lg.Node, size: lg.Node, roundness: lg.Node) -> lg.Node:
        return ops.make_map(each, points, targets, size, roundness, summed=(True,)) * (1.0 / 4096.0)

    total = lg.trace(loss, cloud, column, VEC3, lg.f32)

    def both(*arguments: lg.Node) -> tuple[lg.Node, ...]:
        one = lg.constant(1.0, lg.f32)
        pulled = ops.bwd_diff(*arguments, one, function=total)
        return ops.call(*arguments, function=total), ops.get(pulled, index=2), ops.get(pulled, index=3)

    return lg.trace(both, cloud, column, VEC3, lg.f32)


def _descend(loss_and_gradient: Any, parameters: Any, steps: int) -> list[float]:
    """Adam; changes `parameters` in place and gives the loss of every step."""
    mean, square = np.zeros_like(parameters), np.zeros_like(parameters)
    losses = []
    for step in range(1, steps + 1):
        loss, by_size, by_roundness = loss_and_gradient(parameters)
        gradient = np.array([*by_size, by_roundness], np.float64)
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (gradient * gradient - square)
        parameters -= 0.02 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-9)
        losses.append(float(loss))
    return losses


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="run", description="A short tour of livegrad on the CPU.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where pictures go (default: out)")
    out = parser.parse_args(arguments).out
    stops = (
        ("a function and its derivative", show_a_function),
        ("a rendered picture", lambda: show_a_picture(out)),
        ("a fused plan", show_a_plan),
        ("a fit by gradient descent", lambda: show_a_fit(out)),
    )
    for number, (title, stop) in enumerate(stops, 1):
        print(f"\n[{number}/{len(stops)}] {title}")
        stop()
    print(f"\npictures: {', '.join(str(path) for path in sorted(out.glob('*.png')))}")


if __name__ == "__main__":
    main()
