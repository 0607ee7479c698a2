"""The picture: blocks that march along each ray to the surface, light what they find, and finish the colours.

Python functions on lazy tensors, around typed functions that run at every pixel. The engine makes them steps of its
plan. Sizes are symbols: a picture of another size needs no new code.
"""

# pyright: reportReturnType=false
# A type checker takes `lg.sqrt` for the function on tensors; in captured functions it is the one on numbers.

from __future__ import annotations

import livegrad as lg
from livegrad.tools.tour.wheel import Wheel, distance

FAR = 8.0
ZOOM = 2.7
MOST_STEPS = 120


def lens(pixels: lg.Tensor, camera: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
    """Where the eye is, and which way each pixel looks."""
    right, up, forward, eye = lg.unstack(camera)
    return eye, lg.normalize(pixels[:, :1] * right + pixels[:, 1:] * up + ZOOM * forward)


# --- the surface ------------------------------------------------------------------------------------------------------


@lg.function
def walk(ray: lg.vec3, eye: lg.vec3, wheel: Wheel, swell: lg.f32) -> lg.f32:
    """How far it is along a ray to the surface. Every pixel makes as many steps as it needs."""
    depth = 0.0
    for _ in range(MOST_STEPS):
        ahead = distance(eye + ray * depth, wheel) - swell
        if ahead < 0.0008 or depth > FAR:
            break
        depth = depth + ahead * 0.9
    return depth


@lg.function
def normal(point: lg.vec3, wheel: Wheel) -> lg.vec3:
    """Which way the surface looks: the exact gradient of the distance."""
    by_point, _ = lg.bwd_diff(distance)(point, wheel, 1.0)
    return lg.normalize(by_point)


def march(rays: lg.Tensor, eye: lg.Tensor, measures: lg.Tensor, swell: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
    """How deep each pixel sees, and the point that it sees there."""
    depth = walk(rays, eye, Wheel(*lg.unstack(measures)), swell)
    return depth, eye + rays * depth[:, None]


def face(points: lg.Tensor, measures: lg.Tensor) -> lg.Tensor:
    """Which way the surface looks at each pixel."""
    return normal(points, Wheel(*lg.unstack(measures)))


# --- the colours, at one pixel ----------------------------------------------------------------------------------------


@lg.function
def light(normal: lg.vec3, ray: lg.vec3) -> lg.f32:
    """A lamp at the upper left, a weaker one behind, and a shine where the surface turns away."""
    lamp = lg.max(lg.dot(normal, lg.vec3(0.36, -0.42, 0.83)), 0.0)
    behind = lg.max(lg.dot(normal, lg.vec3(-0.64, 0.72, -0.27)), 0.0)
    shine = lg.max(1.0 + lg.dot(normal, ray), 0.0)
    return 0.10 + 0.84 * lamp + 0.14 * behind + 0.22 * shine * shine * shine


@lg.function
def metal(warmth: lg.f32) -> lg.vec3:
    """From steel to brass."""
    return lg.vec3(0.64, 0.68, 0.74) + lg.vec3(0.30, 0.03, -0.44) * warmth


@lg.function
def shade(normals: lg.vec3, rays: lg.vec3, points: lg.vec3, miss: lg.f32, warmth: lg.f32, heat: lg.f32) -> lg.vec3:
    """Lit metal. Where it misses the target it is red (too much of it) or blue (too little), as far as `heat` says."""
    off = lg.clamp(miss * 9.0 * heat, -1.0, 1.0)
    wrong = lg.vec3(0.86, 0.30, 0.22) if off > 0.0 else lg.vec3(0.22, 0.44, 0.88)
    return lg.mix(metal(warmth), wrong, lg.abs(off)) * light(normals, rays)


@lg.function
def printed(normals: lg.vec3, rays: lg.vec3, points: lg.vec3, miss: lg.f32, warmth: lg.f32, heat: lg.f32) -> lg.vec3:
    """What the script puts in the place of `shade`: the wheel as a printer would leave it, layer by layer."""
    layer = 0.5 + 0.5 * lg.cos(points.z * 190.0)
    return metal(warmth) * (0.72 + 0.34 * layer) * light(normals, rays)


@lg.function
def ink(color: lg.vec3, normals: lg.vec3, rays: lg.vec3, width: lg.f32) -> lg.vec3:
    """A block that the script adds: a dark line where the surface turns away."""
    edge = lg.clamp(-lg.dot(normals, rays) / width, 0.0, 1.0)
    return color * (0.1 + 0.9 * edge * edge)


@lg.function
def finish(color: lg.vec3, depth: lg.f32, backdrop: lg.vec3, exposure: lg.f32) -> lg.vec3:
    """The part before its backdrop, in colours of a screen."""
    return lg.clamp(lg.sqrt(lg.max(color * exposure, 0.0)), 0.0, 1.0) if depth < FAR else backdrop
