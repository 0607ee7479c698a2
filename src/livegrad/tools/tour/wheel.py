"""The part of the tour: a hand wheel, as one typed, differentiable function of a point and six measures.

The fit differentiates it, the picture ray-marches it, and the 3MF file contains its nodes.
"""

# pyright: reportReturnType=false
# Type checkers resolve `lg.sqrt` to the function of tensors; in captured functions it is the function of numbers.

from __future__ import annotations

import math
from typing import Any

import livegrad as lg

SPOKES = 5
SECTOR = 2.0 * math.pi / SPOKES
COSINE, SINE = math.cos(SECTOR), math.sin(SECTOR)
HEIGHT = 0.34  # half the height of the hub
BOUNDS = ((-1.5, -1.5, -0.5), (1.5, 1.5, 0.5))


@lg.differentiable
class Wheel:
    """The measures of the wheel in centimetres, which the fit determines."""

    rim: lg.f32  # radius of the centreline of the rim
    tube: lg.f32  # radius of the cross-section of the rim
    hub: lg.f32  # radius of the hub
    bore: lg.f32  # radius of the hole in the hub
    spoke: lg.f32  # radius of the cross-section of a spoke
    fillet: lg.f32  # blend width between the primitives


MEASURES = ("rim", "tube", "hub", "bore", "spoke", "fillet")


@lg.differentiable
def length_2d(x: lg.f32, y: lg.f32) -> lg.f32:
    return lg.sqrt(x * x + y * y + 1e-12)  # the small term keeps the gradient finite at the centre


@lg.differentiable
def smooth_min(a: lg.f32, b: lg.f32, width: lg.f32) -> lg.f32:
    """The smooth minimum of two distances."""
    blend = lg.max(width - lg.abs(a - b), 0.0) / width
    return lg.min(a, b) - blend * blend * width * 0.25


@lg.differentiable
def spoke_distance(along: lg.f32, beside: lg.f32, z: lg.f32, wheel: Wheel) -> lg.f32:
    """The distance to a spoke, given coordinates along and perpendicular to it."""
    return lg.length(lg.vec3(along - lg.clamp(along, 0.0, wheel.rim), beside, z)) - wheel.spoke


@lg.differentiable
def distance(p: lg.vec3, wheel: Wheel) -> lg.f32:
    """The signed distance from a point to the surface, negative inside."""
    across = length_2d(p.x, p.y)
    rim = length_2d(across - wheel.rim, p.z) - wheel.tube
    out, above = across - wheel.hub, lg.abs(p.z) - HEIGHT
    hub = length_2d(lg.max(out, 0.0), lg.max(above, 0.0)) + lg.min(lg.max(out, above), 0.0)
    angle = lg.atan2(p.y, p.x)
    offset = angle - SECTOR * lg.floor(angle / SECTOR + 0.5)  # from the closest spoke
    along, beside = across * lg.cos(offset), across * lg.abs(lg.sin(offset))
    closest = spoke_distance(along, beside, p.z, wheel)
    other = spoke_distance(along * COSINE + beside * SINE, along * SINE - beside * COSINE, p.z, wheel)
    spoke = smooth_min(closest, other, wheel.fillet)
    body = smooth_min(smooth_min(rim, spoke, wheel.fillet), hub, wheel.fillet)
    return lg.max(body, wheel.bore - across)


# --- the wheel as a part, and the target ------------------------------------------------------------------------------


def part(measures: Any) -> lg.Part:
    """The wheel with these measures as a part, for meshing, slicing and saving."""
    parameters = [lg.shapes.Parameter(name, float(value)) for name, value in zip(MEASURES, measures, strict=True)]
    return lg.shapes.from_function(distance, wheel=Wheel(*parameters)).part(BOUNDS, "hand_wheel")


def target() -> lg.Part:
    """The target, built from primitives and independent of `distance`."""
    shapes = lg.shapes
    along = shapes.cylinder(0.078, 1.08).rotate((0, 1, 0), math.pi / 2).translate((0.54, 0, 0))
    spokes = [along.rotate((0, 0, 1), SECTOR * index) for index in range(SPOKES)]
    body = shapes.union(shapes.torus(1.08, 0.115), *spokes, shapes.cylinder(0.3, 2 * HEIGHT), blend=0.16)
    return (body - shapes.cylinder(0.14)).part(BOUNDS, "target")
