"""Clips parts to their bounds, and tightens bounds. A field may continue beyond the bounds of a part; a body does not.

Meshing, slicing and rendering use the clipped part.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from livegrad import ops
from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.pruning import IntervalBounds, tight_bounds
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ir.types import f32, scalar_of
from livegrad.ops.aggregate import members_of
from livegrad.state import memo

_PROBES = 256


def require_part(part: Any) -> None:
    """Raises unless the argument is a part."""
    if not isinstance(part, Part):
        raise AssemblyError(
            "not a part",
            where=caller_origin(),
            expected="a Part",
            found=type(part).__name__,
            help="`shape.part(bounds)` converts a shape, `lg.shapes.from_function(f)` creates a shape from a function, "
            "`lg.parts(assembly)` returns the parts of a file",
        )


def fit_bounds(part: Part) -> Part:
    """Tightens the bounds of a part. The domain in a file is often much larger than the body.

    An empty part keeps its bounds.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-50, -50, -50), (50, 50, 50)))
    >>> bool((fit_bounds(ball).high < 2.0).all())
    True
    """
    require_part(part)
    bounds = IntervalBounds(part.function, part.arguments, part.element.dtype)
    low, high = tight_bounds(bounds, part.low, part.high)
    return replace(part, low=low, high=high)


def clip_to_bounds(part: Part) -> Part:
    """Clips a part to its bounds. Parts of level sets and meshes end at their domain already.

    >>> import livegrad as lg
    >>> walls = lg.implicit.add_expression(lg.Assembly(), "wall", "abs(pos.x) - 1", {"pos": "vector"})
    >>> wall = lg.implicit.part_of_function(walls, "wall", ((-2, -2, -2), (2, 2, 2)))
    >>> wall([0, 3, 0]), clip_to_bounds(wall)([0, 3, 0])
    (array(-1., dtype=float32), array(1., dtype=float32))
    """
    if part.ends_itself:
        return part
    table_count = len(part.arguments) - len(part.parameter_names)
    names = (*(part.table_names or ("",) * table_count), "low", "high", "slope")
    return replace(
        part,
        function=_clip_function(part.function),
        arguments=(*part.arguments, *_clipping_arguments(part, _estimate_gradient(part))),
        table_names=names,
        ends_itself=True,
    )


def clip_and_fit(part: Part) -> Part:
    """Clips a part to its bounds and tightens the bounds.

    Clipping comes first, so that interval bounds are compiled only for the clipped function.
    """
    require_part(part)
    body = clip_to_bounds(part)
    tight = fit_bounds(body)
    if part.ends_itself:
        return tight
    # Estimate the gradient near the body, where it matters.
    nearby = replace(part, low=tight.low, high=tight.high)
    return replace(tight, arguments=(*part.arguments, *_clipping_arguments(nearby, _estimate_gradient(nearby))))


def _clipping_arguments(part: Part, gradient: float) -> tuple[Any, ...]:
    dtype = part.element.dtype
    return part.low.astype(dtype), part.high.astype(dtype), dtype.type(gradient)


def _estimate_gradient(part: Part) -> float:
    """The typical gradient length of the field, rounded to a power of two: 1 for a distance.

    It scales the distance to the bounds, which would otherwise replace the values of a steep field near the surface.
    """
    generator = np.random.default_rng(0)
    extent = part.high - part.low
    points = part.low + extent * generator.random((_PROBES, 3))
    directions = generator.normal(size=(_PROBES, 3))
    directions *= 1e-3 * extent.max() / np.linalg.norm(directions, axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        change = np.abs(part(points + directions).astype(np.float64) - part(points - directions)) / (
            2e-3 * extent.max()
        )
    change = change[np.isfinite(change) & (change > 0)]
    # The median of the derivative along random directions is half of the gradient length.
    estimate = 2.0 * float(np.median(change)) if len(change) else 1.0
    largest = float(np.finfo(part.element.dtype).max) ** 0.25
    return 2.0 ** round(math.log2(min(max(estimate, 1 / largest), largest)))


@memo(256)
def _clip_function(function: Function) -> Function:
    """Clips a function to a box, with three more parameters: the low and high corners, and the gradient length."""
    vector = function.parameter_types[0]
    position, low, high = (input_node(Key(name), vector) for name in ("position", "low", "high"))
    gradient = input_node(Key("slope"), scalar_of(vector) or f32)
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]
    value = ops.call(position, *others, function=function)
    for coordinate, lower, upper in zip(*map(members_of, (position, low, high)), strict=True):
        value = ops.max(value, ops.max(lower - coordinate, coordinate - upper) * gradient)
    return make_function(f"{function.name}.clipped", [position, *others, low, high, gradient], [value])
