"""Clips parts at their bounds, and fits bounds to them: a field may continue beyond them, a body does not.

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
from livegrad.implicit.bodies.pruning import Bounded, tight_bounds
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
            help="`shape.part(bounds)` converts a shape, `lg.shapes.from_function(f)` makes a shape from a function, "
            "`lg.parts(assembly)` returns the parts of a file",
        )


def fit_bounds(part: Part) -> Part:
    """Returns the part with tight bounds; the domain in a file is often much larger than the body.

    An empty part keeps its bounds.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-50, -50, -50), (50, 50, 50)))
    >>> bool((fit_bounds(ball).high < 2.0).all())
    True
    """
    require_part(part)
    bounds = Bounded(part.function, part.arguments, part.element.dtype)
    low, high = tight_bounds(bounds, part.low, part.high)
    return replace(part, low=low, high=high)


def clipped(part: Part) -> Part:
    """Clips a part to its bounds. Level sets already end at their domain.

    >>> import livegrad as lg
    >>> made = lg.implicit.add_expression(lg.Assembly(), "wall", "abs(pos.x) - 1", {"pos": "vector"})
    >>> wall = lg.implicit.part_of_function(made, "wall", ((-2, -2, -2), (2, 2, 2)))
    >>> wall([0, 3, 0]), clipped(wall)([0, 3, 0])
    (array(-1., dtype=float32), array(1., dtype=float32))
    """
    if part.ends_itself:
        return part
    tables = len(part.arguments) - len(part.parameter_names)
    names = (*(part.table_names or ("",) * tables), "low", "high", "slope")
    return replace(
        part,
        function=_clipped_function(part.function),
        arguments=(*part.arguments, *_box(part, _slope(part))),
        table_names=names,
        ends_itself=True,
    )


def close_body(part: Part) -> Part:
    """Clips a part to its bounds, and tightens the bounds.

    Clipping comes first, so that interval bounds are compiled for one function only, the one that is used afterwards.
    """
    require_part(part)
    body = clipped(part)
    close = fit_bounds(body)
    if part.ends_itself:
        return close
    # Only the slope of the field near the body matters.
    nearby = replace(part, low=close.low, high=close.high)
    return replace(close, arguments=(*part.arguments, *_box(nearby, _slope(nearby))))


def _box(part: Part, slope: float) -> tuple[Any, ...]:
    dtype = part.element.dtype
    return part.low.astype(dtype), part.high.astype(dtype), dtype.type(slope)


def _slope(part: Part) -> float:
    """The slope of the field along its gradient, rounded to a power of two. For a distance it is 1.

    A steep field is deeper than the distance to the bounds near its surface, and must not be replaced by it there.
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
    # In the median, the derivative in a random direction is half of the gradient.
    estimate = 2.0 * float(np.median(change)) if len(change) else 1.0
    largest = float(np.finfo(part.element.dtype).max) ** 0.25
    return 2.0 ** round(math.log2(min(max(estimate, 1 / largest), largest)))


@memo(256)
def _clipped_function(function: Function) -> Function:
    """The function with three more arguments: the corners of the clipping box, and the slope of its field."""
    vector = function.parameter_types[0]
    position, low, high = (input_node(Key(name), vector) for name in ("position", "low", "high"))
    slope = input_node(Key("slope"), scalar_of(vector) or f32)
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]
    value = ops.call(position, *others, function=function)
    for coordinate, least, most in zip(*map(members_of, (position, low, high)), strict=True):
        value = ops.max(value, ops.max(least - coordinate, coordinate - most) * slope)
    return make_function(f"{function.name}.clipped", [position, *others, low, high, slope], [value])
