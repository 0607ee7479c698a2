"""Functions of a position as parts: a typed function that takes an `lg.vec3` first, and numbers with defaults.

In: a function. Out: a part whose parameters are the other arguments, in a box that is as large as its inside. Called by
`subjects.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import numpy as np

from livegrad.frontend.differentiable.annotations import vec3
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.implicit.bodies import shapes
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.nodes.errors import AssemblyError

_SAMPLES = 24  # along each axis of a box that is tried
_SIZES = [2.0**exponent for exponent in range(-4, 13)]


def part_of_positions(function: Callable[..., Any]) -> Part | None:
    """The part that a function of a position describes; None if it is not one.

    >>> import livegrad as lg
    >>> @lg.differentiable
    ... def ball(position: lg.vec3, radius: lg.f32 = 0.75) -> lg.f32:
    ...     return lg.length(position) - radius
    >>> part_of_positions(ball)
    <part ball in (-1, -1, -1) to (1, 1, 1), radius=0.75>
    >>> part_of_positions(lambda x=1.0: x) is None
    True
    """
    python = function.python_function if isinstance(function, CapturedFunction) else function
    first, *others = signature(python).parameters.values() or (None,)
    if first is None or not _is_position(first) or not all(isinstance(one.default, int | float) for one in others):
        return None
    dimensions = {one.name: shapes.Parameter(one.name, float(one.default)) for one in others}
    try:
        shape = shapes.from_function(function, **dimensions)
    except AssemblyError:  # its result is not one number, for example: it is shown as a block
        return None
    name = getattr(python, "__name__", "part")
    name = name if name.isidentifier() else "part"
    boxes = (shape.part(((-size,) * 3, (size,) * 3), name) for size in _SIZES)
    return next((part for part in boxes if _is_inside(part)), shape.part(((-2.0,) * 3, (2.0,) * 3), name))


def _is_position(parameter: Parameter) -> bool:
    annotation = parameter.annotation
    is_named = isinstance(annotation, str) and annotation.rpartition(".")[2] == "vec3"
    return parameter.default is Parameter.empty and (annotation is vec3 or is_named)


def _is_inside(part: Part) -> bool:
    """Whether the part is inside of its box, with some room, as far as samples can tell."""
    low, high = part.bounds()
    line = np.linspace(0.0, 1.0, _SAMPLES)
    points = low + np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1) * (high - low)
    is_solid = part(points) < 0.0
    inner = is_solid[1:-1, 1:-1, 1:-1]
    return bool(inner.any()) and int(is_solid.sum()) == int(inner.sum())
