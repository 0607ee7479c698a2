"""Renders the picture: blocks that march along each ray to the surface, shade it, and composite the colours.

The blocks are Python functions of lazy tensors, which call typed functions at every pixel. Sizes are symbolic, so a
picture of another size needs no new code.
"""

# pyright: reportReturnType=false
# Type checkers resolve `lg.sqrt` to the function of tensors; in captured functions it is the function of numbers.

from __future__ import annotations

import livegrad as lg
from livegrad.tools.tour.wheel import Wheel, distance

FAR = 8.0
ZOOM = 3.1
MOST_STEPS = 120


def lens(pixels: lg.Tensor, camera: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor, lg.Tensor]:
    """The position of the eye, the ray of each pixel, and the width of a pixel at distance 1."""
    right, up, forward, eye = lg.unstack(camera)
    grain = (pixels[1, 0] - pixels[0, 0]) / ZOOM
    return eye, lg.normalize(pixels[:, :1] * right + pixels[:, 1:] * up + ZOOM * forward), grain


# --- the surface ------------------------------------------------------------------------------------------------------


@lg.function
def walk(ray: lg.vec3, eye: lg.vec3, grain: lg.f32, wheel: Wheel, swell: lg.f32) -> lg.vec2:
    """The distance along a ray to the surface, and the fraction of the pixel that the surface covers.

    If a ray misses the surface by less than the width of a pixel, the closest point covers part of the pixel, which
    antialiases edges.
    """
    depth, closest, there = 0.0, 1.0, 0.0
    for _ in range(MOST_STEPS):
        ahead = distance(eye + ray * depth, wheel) - swell
        if ahead < 0.0008:
            return lg.vec2(depth, 1.0)
        if ahead < closest * grain * depth:
            closest = ahead / (grain * depth)
            there = depth
        depth = depth + ahead * 0.9
        if depth > FAR:
            break
    return lg.vec2(there, 1.0 - closest)


@lg.function
def normal(point: lg.vec3, wheel: Wheel) -> lg.vec3:
    """The surface normal: the exact gradient of the distance."""
    by_point, _ = lg.bwd_diff(distance)(point, wheel, 1.0)
    return lg.normalize(by_point)


@lg.function
def openness(point: lg.vec3, normal: lg.vec3, wheel: Wheel) -> lg.f32:
    """Ambient occlusion: less light where other parts of the wheel are close to the surface."""
    here = distance(point, wheel)
    closed = 0.0
    for step in lg.unroll(range(1, 5)):
        reach = 0.05 * step
        closed += (reach - (distance(point + normal * reach, wheel) - here)) / (step * step)
    return lg.clamp(1.0 - 3.5 * closed, 0.0, 1.0)


def march(
    rays: lg.Tensor, eye: lg.Tensor, grain: lg.Tensor, measures: lg.Tensor, swell: lg.Tensor
) -> tuple[lg.Tensor, lg.Tensor]:
    """The point that each pixel sees, and the fraction of the pixel that the part covers."""
    seen = walk(rays, eye, grain, Wheel(*lg.unstack(measures)), swell)
    return eye + rays * seen[:, :1], seen[:, 1]


def face(points: lg.Tensor, measures: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
    """The surface normal and the ambient occlusion at each pixel."""
    wheel = Wheel(*lg.unstack(measures))
    normals = normal(points, wheel)
    return normals, openness(points, normals, wheel)


# --- the colours, at one pixel ----------------------------------------------------------------------------------------


@lg.function
def light(normal: lg.vec3, ray: lg.vec3, open: lg.f32) -> lg.f32:
    """A lamp above with a highlight, a weaker lamp behind, the sky, and a rim light."""
    lamp = lg.vec3(0.36, -0.42, 0.83)
    direct = lg.max(lg.dot(normal, lamp), 0.0)
    behind = lg.max(lg.dot(normal, lg.vec3(-0.64, 0.72, -0.27)), 0.0)
    gloss = lg.max(lg.dot(normal, lg.normalize(lamp - ray)), 0.0) ** 48
    shine = lg.max(1.0 + lg.dot(normal, ray), 0.0)
    sky = 0.10 + 0.12 * (0.5 + 0.5 * normal.z) + 0.22 * shine * shine * shine
    return (0.72 * direct + 0.14 * behind) * (0.35 + 0.65 * open) + sky * open + 0.4 * gloss * open


@lg.function
def metal(warmth: lg.f32) -> lg.vec3:
    """The colour of the metal, from steel to brass."""
    return lg.vec3(0.64, 0.68, 0.74) + lg.vec3(0.30, 0.03, -0.44) * warmth


@lg.function
def shade(
    normals: lg.vec3, rays: lg.vec3, points: lg.vec3, open: lg.f32, miss: lg.f32, warmth: lg.f32, heat: lg.f32
) -> lg.vec3:
    """Lit metal. `heat` tints it red where it exceeds the target, and blue where it falls short."""
    off = lg.clamp(miss * 9.0 * heat, -1.0, 1.0)
    wrong = lg.vec3(0.86, 0.30, 0.22) if off > 0.0 else lg.vec3(0.22, 0.44, 0.88)
    return lg.mix(metal(warmth), wrong, lg.abs(off)) * light(normals, rays, open)


@lg.function
def engraved(
    normals: lg.vec3, rays: lg.vec3, points: lg.vec3, open: lg.f32, miss: lg.f32, warmth: lg.f32, heat: lg.f32
) -> lg.vec3:
    """The replacement of `shade` in the script: an engraving, with wider lines where the surface is darker."""
    line = 0.5 + 0.5 * lg.cos(lg.dot(points, lg.vec3(40.0, 24.0, 110.0)))
    bright = light(normals, rays, open)
    tone = lg.smoothstep(-0.2, 0.2, bright - 0.06 - 0.62 * line)
    return lg.mix(metal(warmth) * 0.05, metal(warmth) * (0.32 + 0.75 * bright), tone)


@lg.function
def ink(color: lg.vec3, normals: lg.vec3, rays: lg.vec3, width: lg.f32) -> lg.vec3:
    """A block that the script adds: draws dark lines along silhouettes."""
    edge = lg.smoothstep(0.5 * width, width, -lg.dot(normals, rays))
    return color * (0.04 + 0.96 * edge)


@lg.function
def finish(color: lg.vec3, cover: lg.f32, backdrop: lg.vec3, exposure: lg.f32) -> lg.vec3:
    """Composites the part over its backdrop, and converts linear to display colours."""
    return lg.mix(backdrop, lg.clamp(lg.sqrt(lg.max(color * exposure, 0.0)), 0.0, 1.0), cover)
