"""Shapes in Python: composable primitives, transforms and booleans, with parameters.

A shape is a function of position in the value IR. `Shape.part` converts it to a part, whose parameters can change
without compiling and be differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.diagnostics import caller_origin, shown
from livegrad.implicit.bodies.function_shape import field_of_function
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.shape_arguments import box_corners, finite_number, three_numbers, unit_vector
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node, input_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Vector, f32
from livegrad.ir.walk import toposort
from livegrad.ops.aggregate import make_vector, members_of

__all__ = [
    "Parameter",
    "Shape",
    "box",
    "cylinder",
    "difference",
    "from_function",
    "gyroid",
    "half_space",
    "intersection",
    "sphere",
    "torus",
    "union",
]

_VECTOR = Vector(f32, 3)
_NARROWEST = 1e-30  # a blend width of 0 is replaced by this, to avoid a division by 0


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__


class Parameter(Key):
    """A parameter of a shape: `sphere(Parameter("radius", 2.0))`. Each object is a separate parameter.

    >>> Parameter("radius", 2.0)
    <parameter radius = 2>
    """

    __slots__ = ("value",)

    def __init__(self, name: str, value: float) -> None:
        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
            raise AssemblyError(
                "invalid parameter name",
                where=caller_origin(),
                expected='a Python identifier such as "radius"',
                found=shown(name),
                help="parts take parameters by name: part.with_parameters(radius=2.0)",
            )
        super().__init__(name)
        self.value = finite_number(value, f"value for parameter `{name}`")

    @property
    def node(self) -> Node:
        """The node of the value IR that represents the parameter."""
        return input_node(self, f32)

    def __repr__(self) -> str:
        return f"<parameter {self.name} = {self.value:g}>"


Number = float | Parameter


def _number(value: Any) -> Node:
    if isinstance(value, Parameter):
        return value.node
    return constant(finite_number(value, "measure of a shape", "a finite number or a Parameter"), f32)


def _size(value: Any, what: str) -> Node:
    """A size as a node. It must be positive, or the shape would be empty."""
    size = _number(value)
    if not isinstance(value, Parameter) and value <= 0:
        raise AssemblyError(f"not a {what}", where=caller_origin(), expected="above 0", found=shown(value))
    return size


def _vector(values: Sequence[Any] | NDArray[Any]) -> Node:
    if not isinstance(values, Sequence | np.ndarray) or len(values) != 3:
        raise AssemblyError("not a vector", where=caller_origin(), expected="three numbers", found=shown(values))
    return make_vector(*map(_number, values))


@dataclass(frozen=True, eq=False)
class Shape:
    """A function of position that is negative inside the body. `|`, `&` and `-` are union, intersection and difference.

    >>> drilled = box((2, 2, 1)) - cylinder(0.5)
    >>> part = drilled.part(((-1.5, -1.5, -1), (1.5, 1.5, 1)))
    >>> part([[0.75, 0, 0], [0, 0, 0]])
    array([-0.25,  0.5 ], dtype=float32)
    """

    field: Callable[[Node], Node]

    def __repr__(self) -> str:
        return "<shape; `part(bounds)` makes a part of it>"

    def __or__(self, other: Shape) -> Shape:
        return union(self, other)

    def __and__(self, other: Shape) -> Shape:
        return intersection(self, other)

    def __sub__(self, other: Shape) -> Shape:
        return difference(self, other)

    def translate(self, offset: Sequence[Number]) -> Shape:
        """Moves the shape."""
        by = _vector(offset)
        return Shape(lambda p: self.field(p - by))

    def scale(self, factor: Number) -> Shape:
        """Scales the shape about the origin. Distance fields stay distance fields."""
        by = _size(factor, "scale")
        return Shape(lambda p: self.field(p / ops.splat(by, type=_VECTOR)) * by)

    def rotate(self, axis: Sequence[float], angle: Number) -> Shape:
        """Rotates the shape about an axis through the origin, by an angle in radians."""
        unit = _vector(unit_vector(axis, "an axis, such as (0, 0, 1)"))
        turn = _number(angle)

        def rotated(p: Node) -> Node:
            # The inverse rotation, because the point is rotated, not the shape.
            cosine, sine = ops.cos(turn), -ops.sin(turn)
            along = unit * ops.splat(ops.dot(unit, p) * (1.0 - cosine), type=_VECTOR)
            across = ops.cross(unit, p) * ops.splat(sine, type=_VECTOR)
            return self.field(p * ops.splat(cosine, type=_VECTOR) + across + along)

        return Shape(rotated)

    def grow(self, distance: Number) -> Shape:
        """Offsets the surface outwards; convex edges become round."""
        by = _number(distance)
        return Shape(lambda p: self.field(p) - by)

    def shell(self, thickness: Number) -> Shape:
        """Replaces the shape by a wall on both sides of its surface."""
        half = _size(thickness, "thickness") * 0.5
        return Shape(lambda p: ops.abs(self.field(p)) - half)

    def repeat(self, spacing: Sequence[float]) -> Shape:
        """Repeats the shape on a lattice with this spacing. An axis with spacing 0 is not repeated."""
        steps = three_numbers(spacing, "a spacing").tolist()

        def nearest(p: Node) -> Node:
            moved = [
                c - step * ops.floor(c / step + 0.5) if step else c
                for c, step in zip(members_of(p), steps, strict=True)
            ]
            return self.field(make_vector(*moved))

        return Shape(nearest)

    def function(self) -> tuple[Function, tuple[Parameter, ...]]:
        """Returns the shape as a function of position and parameters, and the parameters."""
        position = input_node(Key("position"), _VECTOR)
        value = self.field(position)
        keys = [node.attribute("key") for node in toposort([value]) if node.op is input_op]
        parameters = tuple(key for key in keys if isinstance(key, Parameter))
        return make_function("shape", [position, *(parameter.node for parameter in parameters)], [value]), parameters

    def part(self, bounds: Any, name: str = "shape") -> Part:
        """Returns the shape as a part within the corners of a box."""
        function, parameters = self.function()
        names = tuple(parameter.name for parameter in parameters)
        if len(set(names)) != len(names):
            raise AssemblyError("two parameters have the same name", where=caller_origin(), found=", ".join(names))
        low, high = box_corners(bounds)
        return Part(function, tuple(np.float32(p.value) for p in parameters), low, high, name, names)


def sphere(radius: Number = 1.0) -> Shape:
    """A ball centred at the origin.

    >>> sphere(2.0).part(((-3, -3, -3), (3, 3, 3)))([3, 0, 0])
    array(1., dtype=float32)
    """
    size = _size(radius, "radius")
    return Shape(lambda p: ops.length(p) - size)


def box(size: Sequence[Number]) -> Shape:
    """A box centred at the origin with these side lengths. Its field is the exact distance.

    >>> box((2, 4, 6)).part(((-2, -3, -4), (2, 3, 4)))([0, 3, 0])
    array(1., dtype=float32)
    """
    half = _vector(size) * ops.splat(constant(0.5, f32), type=_VECTOR)
    for side in size:
        _size(side, "side of a box")

    def field(p: Node) -> Node:
        away = ops.abs(p) - half
        x, y, z = members_of(away)
        nothing = constant(0.0, f32)
        outside = ops.length(make_vector(*[ops.max(c, nothing) for c in (x, y, z)]))
        return outside + ops.min(ops.max(x, ops.max(y, z)), nothing)

    return Shape(field)


def cylinder(radius: Number, height: Number | None = None) -> Shape:
    """A cylinder along z; infinite unless a height is given.

    >>> cylinder(1.0, 4.0).part(((-2, -2, -3), (2, 2, 3)))([0, 3, 0])
    array(2., dtype=float32)
    """
    size = _size(radius, "radius")
    half = None if height is None else _size(height, "height") * 0.5

    def field(p: Node) -> Node:
        x, y, z = members_of(p)
        side = ops.length(make_vector(x, y, constant(0.0, f32))) - size
        return side if half is None else ops.max(side, ops.abs(z) - half)

    return Shape(field)


def torus(radius: Number, thickness: Number) -> Shape:
    """A torus around z, given by the radius of its centre line and the radius of its tube.

    >>> torus(2.0, 0.5).part(((-3, -3, -1), (3, 3, 1)))([2, 0, 0])
    array(-0.5, dtype=float32)
    """
    large, small = _number(radius), _size(thickness, "thickness")
    if not isinstance(radius, Parameter) and radius < 0:
        raise AssemblyError("not a radius", where=caller_origin(), expected="0 or above", found=shown(radius))

    def field(p: Node) -> Node:
        x, y, z = members_of(p)
        around = ops.length(make_vector(x, y, constant(0.0, f32))) - large
        return ops.length(make_vector(around, z, constant(0.0, f32))) - small

    return Shape(field)


def half_space(normal: Sequence[float], offset: Number = 0.0) -> Shape:
    """The half space below the plane with this outward normal and distance from the origin.

    >>> half_space((0, 0, 1), 0.5).part(((-1, -1, -1), (1, 1, 1)))([0, 0, 1])
    array(0.5, dtype=float32)
    """
    unit = _vector(unit_vector(normal, "a normal"))
    by = _number(offset)
    return Shape(lambda p: ops.dot(p, unit) - by)


def gyroid(period: Number = 1.0) -> Shape:
    """A gyroid with this period; use `shell` to turn it into a lattice. Its field is not a distance.

    >>> gyroid(2.0).part(((-1, -1, -1), (1, 1, 1)))([0, 0, 0])
    array(0., dtype=float32)
    """
    turns = math.tau / _size(period, "period")

    def field(p: Node) -> Node:
        x, y, z = members_of(p * ops.splat(turns, type=_VECTOR))
        return ops.sin(x) * ops.cos(y) + ops.sin(y) * ops.cos(z) + ops.sin(z) * ops.cos(x)

    return Shape(field)


def from_function(function: Callable[..., Any], **measures: Any) -> Shape:
    """Creates a shape from a typed Python function of position that is negative inside.

    Pass the other arguments of the function by name: numbers, parameters, or vectors or structs of them.

    >>> bowl = from_function(lambda p, depth: p.x * p.x + p.y * p.y - p.z - depth, depth=Parameter("depth", 1.0))
    >>> (bowl & half_space((0, 0, 1))).part(((-2, -2, -2), (2, 2, 2)))([[0, 0, 0], [0, 0, -1]])
    array([0., 0.], dtype=float32)
    """
    return Shape(field_of_function(function, measures, _number))


def union(*shapes: Shape, blend: Number | None = None) -> Shape:
    """The union of the shapes; `blend` rounds the joints over that width.

    >>> both = union(sphere(1.0), sphere(1.0).translate((3, 0, 0)))
    >>> both.part(((-2, -2, -2), (5, 2, 2)))([[0, 0, 0], [1.5, 0, 0]])
    array([-1. ,  0.5], dtype=float32)
    """
    return _join_shapes(shapes, ops.min, -1.0, blend)


def intersection(*shapes: Shape, blend: Number | None = None) -> Shape:
    """The intersection of the shapes; `blend` rounds the joints over that width.

    >>> lens = intersection(sphere(1.0), sphere(1.0).translate((1, 0, 0)))
    >>> lens.part(((-2, -2, -2), (2, 2, 2)))([[0.5, 0, 0], [0, 0, 0]])
    array([-0.5,  0. ], dtype=float32)
    """
    return _join_shapes(shapes, ops.max, 1.0, blend)


def difference(first: Shape, *others: Shape, blend: Number | None = None) -> Shape:
    """The first shape without all others.

    >>> ring = difference(sphere(2.0), sphere(1.0))
    >>> ring.part(((-3, -3, -3), (3, 3, 3)))([[0, 0, 0], [1.5, 0, 0]])
    array([ 1. , -0.5], dtype=float32)
    """
    _require_shapes(others)
    return intersection(first, *[Shape(lambda p, other=other: -other.field(p)) for other in others], blend=blend)


def _require_shapes(shapes: Sequence[Any]) -> None:
    for shape in shapes:
        if not isinstance(shape, Shape):
            raise AssemblyError("not a shape", where=caller_origin(), expected="a Shape", found=type(shape).__name__)


def _join_shapes(
    shapes: Sequence[Shape], choose: Callable[[Node, Node], Node], side: float, blend: Number | None
) -> Shape:
    if not shapes:
        raise AssemblyError("nothing to join", where=caller_origin(), expected="at least one shape")
    _require_shapes(shapes)
    width = None if blend is None or blend == 0 else ops.max(_size(blend, "blend"), constant(_NARROWEST, f32))

    def field(p: Node) -> Node:
        total = shapes[0].field(p)
        for shape in shapes[1:]:
            value = shape.field(p)
            joined = choose(total, value)
            if width is not None:
                # A polynomial blend where both fields are close: smooth, and exact elsewhere.
                near = ops.max(width - ops.abs(total - value), constant(0.0, f32)) / width
                joined = joined + near * near * width * (0.25 * side)
            total = joined
        return total

    return Shape(field)
