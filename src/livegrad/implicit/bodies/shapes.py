"""Shapes in Python: primitives, transforms and Boolean operations, with parameters.

A shape is a function of position in the value IR. `Shape.part` converts it to a part, whose parameters are
differentiable and change without compiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from keyword import iskeyword
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.diagnostics import caller_origin, shown
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.implicit.bodies.function_shape import field_of_function
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.shape_arguments import box_corners, finite_number, three_numbers, unit_vector
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node, input_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Vector, f32
from livegrad.ir.walk import toposort
from livegrad.live.graph.control import Control, annotated_control, require_control
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
_MIN_BLEND = 1e-30  # replaces a blend width of 0, to avoid a division by 0


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__


class Parameter(Key):
    """A parameter of a shape: `sphere(Parameter("radius", 2.0))`. Each object is a distinct parameter.

    A panel shows it as its control says; `part.controls` has the controls of a part.

    >>> import livegrad as lg
    >>> Parameter("radius", 2.0, lg.Control(0.0, 5.0, unit="mm"))
    <parameter radius = 2>
    """

    __slots__ = ("control", "value")

    def __init__(self, name: str, value: float, control: Control | None = None) -> None:
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
        require_control(control)
        self.control = control

    @property
    def node(self) -> Node:
        """The node of the value IR that represents the parameter."""
        return input_node(self, f32)

    def __repr__(self) -> str:
        return f"<parameter {self.name} = {self.value:g}>"


Number = float | Parameter


def _to_node(value: Any) -> Node:
    if isinstance(value, Parameter):
        return value.node
    return constant(finite_number(value, "dimension of a shape", "a finite number or a Parameter"), f32)


def _to_positive(value: Any, what: str) -> Node:
    """Converts a size to a node. Numbers must be positive, because the shape would be empty."""
    size = _to_node(value)
    if not isinstance(value, Parameter) and value <= 0:
        raise AssemblyError(f"invalid {what}", where=caller_origin(), expected="a number above 0", found=shown(value))
    return size


def _to_vector(values: Sequence[Any] | NDArray[Any]) -> Node:
    if not isinstance(values, Sequence | np.ndarray) or len(values) != 3:
        raise AssemblyError("not a vector", where=caller_origin(), expected="three numbers", found=shown(values))
    return make_vector(*map(_to_node, values))


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
        return "<shape; `part(bounds)` converts it to a part>"

    def __or__(self, other: Shape) -> Shape:
        return union(self, other)

    def __and__(self, other: Shape) -> Shape:
        return intersection(self, other)

    def __sub__(self, other: Shape) -> Shape:
        return difference(self, other)

    def translate(self, offset: Sequence[Number]) -> Shape:
        """Moves the shape."""
        offset_node = _to_vector(offset)
        return Shape(lambda p: self.field(p - offset_node))

    def scale(self, factor: Number) -> Shape:
        """Scales the shape about the origin. Distance fields stay distance fields."""
        factor_node = _to_positive(factor, "scale")
        return Shape(lambda p: self.field(p / ops.splat(factor_node, type=_VECTOR)) * factor_node)

    def rotate(self, axis: Sequence[float], angle: Number) -> Shape:
        """Rotates the shape about an axis through the origin, by an angle in radians."""
        axis_node = _to_vector(unit_vector(axis, "an axis, such as (0, 0, 1)"))
        angle_node = _to_node(angle)

        def field(p: Node) -> Node:
            # Rotate the point by the inverse rotation.
            cosine, sine = ops.cos(angle_node), -ops.sin(angle_node)
            parallel = axis_node * ops.splat(ops.dot(axis_node, p) * (1.0 - cosine), type=_VECTOR)
            perpendicular = ops.cross(axis_node, p) * ops.splat(sine, type=_VECTOR)
            return self.field(p * ops.splat(cosine, type=_VECTOR) + perpendicular + parallel)

        return Shape(field)

    def grow(self, distance: Number) -> Shape:
        """Offsets the surface outwards; convex edges become round."""
        distance_node = _to_node(distance)
        return Shape(lambda p: self.field(p) - distance_node)

    def shell(self, thickness: Number) -> Shape:
        """Replaces the shape with a wall centred on its surface."""
        half = _to_positive(thickness, "thickness") * 0.5
        return Shape(lambda p: ops.abs(self.field(p)) - half)

    def repeat(self, spacing: Sequence[float]) -> Shape:
        """Repeats the shape on a lattice with this spacing. An axis with spacing 0 is not repeated."""
        steps = three_numbers(spacing, "a spacing").tolist()

        def field(p: Node) -> Node:
            wrapped = [
                c - step * ops.floor(c / step + 0.5) if step else c
                for c, step in zip(members_of(p), steps, strict=True)
            ]
            return self.field(make_vector(*wrapped))

        return Shape(field)

    def function(self) -> tuple[Function, tuple[Parameter, ...]]:
        """Returns the field as a function of position and parameters, and the parameters."""
        position = input_node(Key("position"), _VECTOR)
        value = self.field(position)
        keys = [node.attribute("key") for node in toposort([value]) if node.op is input_op]
        parameters = tuple(key for key in keys if isinstance(key, Parameter))
        return make_function("shape", [position, *(parameter.node for parameter in parameters)], [value]), parameters

    def part(self, bounds: Any, name: str = "shape") -> Part:
        """Converts the shape to a part. `bounds` are the low and high corners of a box."""
        function, parameters = self.function()
        names = tuple(parameter.name for parameter in parameters)
        if len(set(names)) != len(names):
            raise AssemblyError("two parameters have the same name", where=caller_origin(), found=", ".join(names))
        low, high = box_corners(bounds)
        controls = {parameter.name: parameter.control for parameter in parameters if parameter.control is not None}
        values = tuple(np.float32(parameter.value) for parameter in parameters)
        return Part(function, values, low, high, name, names, controls=controls)


def sphere(radius: Number = 1.0) -> Shape:
    """A ball centred at the origin.

    >>> sphere(2.0).part(((-3, -3, -3), (3, 3, 3)))([3, 0, 0])
    array(1., dtype=float32)
    """
    size = _to_positive(radius, "radius")
    return Shape(lambda p: ops.length(p) - size)


def box(size: Sequence[Number]) -> Shape:
    """A box with these side lengths, centred at the origin. Its field is the exact distance.

    >>> box((2, 4, 6)).part(((-2, -3, -4), (2, 3, 4)))([0, 3, 0])
    array(1., dtype=float32)
    """
    half = _to_vector(size) * ops.splat(constant(0.5, f32), type=_VECTOR)
    for side in size:
        _to_positive(side, "side of a box")

    def field(p: Node) -> Node:
        offset = ops.abs(p) - half
        x, y, z = members_of(offset)
        zero = constant(0.0, f32)
        outside = ops.length(make_vector(*[ops.max(c, zero) for c in (x, y, z)]))
        return outside + ops.min(ops.max(x, ops.max(y, z)), zero)

    return Shape(field)


def cylinder(radius: Number, height: Number | None = None) -> Shape:
    """A cylinder along z, centred at the origin. Without a height, it is infinite.

    >>> cylinder(1.0, 4.0).part(((-2, -2, -3), (2, 2, 3)))([0, 3, 0])
    array(2., dtype=float32)
    """
    size = _to_positive(radius, "radius")
    half = None if height is None else _to_positive(height, "height") * 0.5

    def field(p: Node) -> Node:
        x, y, z = members_of(p)
        side = ops.length(make_vector(x, y, constant(0.0, f32))) - size
        return side if half is None else ops.max(side, ops.abs(z) - half)

    return Shape(field)


def torus(radius: Number, thickness: Number) -> Shape:
    """A torus around z. `radius` is the radius of its centre line, `thickness` the radius of its tube.

    >>> torus(2.0, 0.5).part(((-3, -3, -1), (3, 3, 1)))([2, 0, 0])
    array(-0.5, dtype=float32)
    """
    major_radius, minor_radius = _to_node(radius), _to_positive(thickness, "thickness")
    if not isinstance(radius, Parameter) and radius < 0:
        raise AssemblyError("invalid radius", where=caller_origin(), expected="0 or above", found=shown(radius))

    def field(p: Node) -> Node:
        x, y, z = members_of(p)
        radial = ops.length(make_vector(x, y, constant(0.0, f32))) - major_radius
        return ops.length(make_vector(radial, z, constant(0.0, f32))) - minor_radius

    return Shape(field)


def half_space(normal: Sequence[float], offset: Number = 0.0) -> Shape:
    """The half space behind a plane, given by its outward normal and its distance from the origin.

    >>> half_space((0, 0, 1), 0.5).part(((-1, -1, -1), (1, 1, 1)))([0, 0, 1])
    array(0.5, dtype=float32)
    """
    normal_node = _to_vector(unit_vector(normal, "a normal"))
    offset_node = _to_node(offset)
    return Shape(lambda p: ops.dot(p, normal_node) - offset_node)


def gyroid(period: Number = 1.0) -> Shape:
    """A gyroid with this period; `shell` turns it into a sheet lattice. Its field is not a distance.

    >>> gyroid(2.0).part(((-1, -1, -1), (1, 1, 1)))([0, 0, 0])
    array(0., dtype=float32)
    """
    frequency = math.tau / _to_positive(period, "period")

    def field(p: Node) -> Node:
        x, y, z = members_of(p * ops.splat(frequency, type=_VECTOR))
        return ops.sin(x) * ops.cos(y) + ops.sin(y) * ops.cos(z) + ops.sin(z) * ops.cos(x)

    return Shape(field)


def from_function(function: Callable[..., Any], **dimensions: Any) -> Shape:
    """Creates a shape from a typed Python function of position that is negative inside.

    Pass the other arguments of the function by name: numbers, parameters, or vectors and structs of these. A parameter
    without a control takes that of the function's annotation.

    >>> bowl = from_function(lambda p, depth: p.x * p.x + p.y * p.y - p.z - depth, depth=Parameter("depth", 1.0))
    >>> (bowl & half_space((0, 0, 1))).part(((-2, -2, -2), (2, 2, 2)))([[0, 0, 0], [0, 0, -1]])
    array([0., 0.], dtype=float32)
    """
    shape = Shape(field_of_function(function, dimensions, _to_node))
    python = function.python_function if isinstance(function, CapturedFunction) else function
    for name, parameter in signature(python).parameters.items():
        value = dimensions.get(name)
        if isinstance(value, Parameter) and value.control is None:
            value.control = annotated_control(python, parameter)
    return shape


def union(*shapes: Shape, blend: Number | None = None) -> Shape:
    """The union of shapes; `blend` smooths the joints over this width.

    >>> both = union(sphere(1.0), sphere(1.0).translate((3, 0, 0)))
    >>> both.part(((-2, -2, -2), (5, 2, 2)))([[0, 0, 0], [1.5, 0, 0]])
    array([-1. ,  0.5], dtype=float32)
    """
    return _combine_shapes(shapes, ops.min, -1.0, blend)


def intersection(*shapes: Shape, blend: Number | None = None) -> Shape:
    """The intersection of shapes; `blend` smooths the joints over this width.

    >>> lens = intersection(sphere(1.0), sphere(1.0).translate((1, 0, 0)))
    >>> lens.part(((-2, -2, -2), (2, 2, 2)))([[0.5, 0, 0], [0, 0, 0]])
    array([-0.5,  0. ], dtype=float32)
    """
    return _combine_shapes(shapes, ops.max, 1.0, blend)


def difference(first: Shape, *others: Shape, blend: Number | None = None) -> Shape:
    """The first shape minus the other shapes; `blend` smooths the joints over this width.

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


def _combine_shapes(
    shapes: Sequence[Shape], select: Callable[[Node, Node], Node], sign: float, blend: Number | None
) -> Shape:
    if not shapes:
        raise AssemblyError("no shapes to combine", where=caller_origin(), expected="at least one shape")
    _require_shapes(shapes)
    width = None if blend is None or blend == 0 else ops.max(_to_positive(blend, "blend"), constant(_MIN_BLEND, f32))

    def field(p: Node) -> Node:
        result = shapes[0].field(p)
        for shape in shapes[1:]:
            value = shape.field(p)
            combined = select(result, value)
            if width is not None:
                # A polynomial blend where both values are close; exact elsewhere.
                weight = ops.max(width - ops.abs(result - value), constant(0.0, f32)) / width
                combined = combined + weight * weight * width * (0.25 * sign)
            result = combined
        return result

    return Shape(field)
