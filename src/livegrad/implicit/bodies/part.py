"""`Part`: a body defined by a function of position, with bounds and parameters.

Parts are created from the build of an assembly, from one of its functions, or from a shape written in Python. Calling a
part evaluates points; meshing, slicing and rendering take a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.diagnostics import caller_origin, shown
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.part_tensors import evaluate_lazily
from livegrad.implicit.bodies.point_functions import (
    compile_gradients,
    compile_over_points,
    compile_parameter_gradients,
    separate_coordinates,
)
from livegrad.implicit.bodies.pruning import IntervalBounds
from livegrad.implicit.bodies.sampled_volume import estimate_volume
from livegrad.implicit.nodes.assembly import Assembly, require_assembly
from livegrad.implicit.nodes.contents import FunctionName
from livegrad.implicit.nodes.dead_code import Outputs, eliminate_dead_code, require_outputs
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.lower_gradient import gradient_nodes, lower_function_gradient
from livegrad.implicit.nodes.node_graph import AnyFunction
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import require_representable
from livegrad.implicit.nodes.shape_arguments import box_corners
from livegrad.implicit.nodes.to_ir import NodePath, convert
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ir.types import Scalar, Vector, f32, scalar_of
from livegrad.live.graph.control import Control
from livegrad.tensors.handle import Tensor

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class VolumeField:
    """A quantity at each point of a part: the colour, the share of a material, or a named property.

    `function(position, *arguments)` computes it in build coordinates; `arguments` include the images that it reads.
    """

    kind: str  # color, property, or material
    name: str
    function: Function
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Part:
    """An implicit body: the points between the corners `low` and `high` where `function(position, *arguments)` is
    negative.

    `arguments` are the values of the parameters, then tables, named by `table_names`. `volume_data` describes the
    inside of the body: colour, properties and materials.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> shapes = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    >>> ball = part_of_function(shapes, "ball", bounds=((-1, -1, -1), (1, 1, 1)))
    >>> ball([[0, 0, 0], [3, 0, 0]]), ball.gradient([0, 2, 0])
    (array([-1.,  2.], dtype=float32), array([0., 1., 0.], dtype=float32))
    """

    function: Function
    arguments: tuple[Any, ...]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    name: str = "part"
    parameter_names: tuple[str, ...] = ()
    volume_data: tuple[VolumeField, ...] = ()
    min_feature_size: float = 0.0
    table_names: tuple[str, ...] = ()
    ends_itself: bool = False  # whether the function is positive outside the bounds
    controls: Mapping[str, Control] = dataclass_field(default_factory=dict)  # how a panel shows parameters, by name

    def __post_init__(self) -> None:
        low, high = box_corners((self.low, self.high))
        require_representable(np.stack([low, high]), self.element, f"part `{self.name}`")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __repr__(self) -> str:
        corners = " to ".join(f"({', '.join(f'{x:g}' for x in corner)})" for corner in (self.low, self.high))
        values = "".join(f", {name}={_describe_value(value)}" for name, value in self.parameters.items())
        return f"<part {self.name} in {corners}{values}>"

    @property
    def element(self) -> Scalar:
        """The precision of evaluation."""
        scalar = scalar_of(self.function.parameter_types[0])
        assert scalar is not None
        return scalar

    def bounds(self) -> Bounds:
        """The corners of the bounding box."""
        return self.low.copy(), self.high.copy()

    def volume(self, samples: int = 1 << 20) -> float:
        """Estimates the volume of the part from boxes that are certainly inside and samples near the surface.

        Compare it with `TriangleMesh.volume`: if the mesh has much less volume, it lost thin walls.

        >>> from livegrad.implicit.bodies import shapes
        >>> round(shapes.sphere(1.0).part(((-50, -50, -50), (50, 50, 50))).volume(), 2)
        4.19
        """
        bounds = IntervalBounds(self.function, self.arguments, self.element.dtype)
        return estimate_volume(bounds, self.low, self.high, samples)

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of the parameters, by name."""
        return dict(zip(self.parameter_names, self.arguments, strict=False))

    def with_parameters(self, **values: Any) -> Part:
        """Returns the part with new parameter values. Nothing is recompiled."""
        for name in values:
            if name not in self.parameter_names:
                raise AssemblyError(
                    f"part `{self.name}` has no parameter `{name}`",
                    where=caller_origin(),
                    expected="one of " + (", ".join(self.parameter_names) or "none"),
                )
        updated = {**self.parameters, **{name: self._convert_value(name, value) for name, value in values.items()}}
        ordered = tuple(updated[name] for name in self.parameter_names)
        return replace(self, arguments=(*ordered, *self.arguments[len(ordered) :]))

    def _convert_value(self, name: str, value: Any) -> NDArray[Any]:
        """Converts a new parameter value to the precision of the part. The shape must not change."""
        shape = np.shape(self.parameters[name])
        try:
            with np.errstate(over="ignore"):
                converted = np.asarray(value, self.element.dtype)
        except (TypeError, ValueError, OverflowError):
            converted = None
        if (
            converted is None
            or converted.shape != shape
            or isinstance(value, bool | str)
            or not np.isfinite(converted).all()
        ):
            expected = f"finite numbers of shape {shape}" if shape else "a finite number"
            what = f"invalid value for parameter `{name}`"
            raise AssemblyError(what, where=caller_origin(), expected=expected, found=shown(value))
        return converted[()]

    def __call__(self, points: Any) -> NDArray[Any]:
        """Returns the values at points of shape (..., 3): negative inside."""
        x, y, z, shape = self._split_coordinates(points)
        return self.evaluate(x, y, z).reshape(shape)

    def evaluate(self, x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> NDArray[Any]:
        """Evaluates the function at points given by three arrays of the same length."""
        return run_in_batches(compile_over_points(self.function), (x, y, z), self.arguments)

    def gradient(self, points: Any) -> NDArray[Any]:
        """Returns the exact gradient at points of shape (..., 3)."""
        x, y, z, shape = self._split_coordinates(points)
        _, gradient, _ = self._evaluate_gradients(x, y, z)
        return gradient.reshape(*shape, 3)

    def parameter_gradient(self, points: Any, weights: Any = 1.0) -> dict[str, NDArray[Any]]:
        """Returns the derivative of the weighted sum of the values with respect to each parameter.

        With `weights = part(points) - targets` this is the gradient of half the sum of squared errors.

        >>> from livegrad.implicit.bodies import shapes
        >>> ball = shapes.sphere(shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)))
        >>> {name: float(derivative) for name, derivative in ball.parameter_gradient([[2, 0, 0], [0, 3, 0]]).items()}
        {'radius': -2.0}
        """
        x, y, z, shape = self._split_coordinates(points)
        if not self.parameter_names:
            return {}
        weight_array = self._broadcast_weights(weights, shape)
        run = compile_parameter_gradients(separate_coordinates(self.function), len(self.parameter_names))
        derivatives = run_in_batches(run, (x, y, z, np.ascontiguousarray(weight_array)), self.arguments)
        columns = derivatives if isinstance(derivatives, tuple) else (derivatives,)
        sums = [derivative.sum(0, dtype=np.float64) for derivative in columns]
        return dict(zip(self.parameter_names, sums, strict=True))

    def _broadcast_weights(self, weights: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Converts weights to an array with one weight for each point."""
        try:
            return np.broadcast_to(np.asarray(weights, self.element.dtype), shape).reshape(-1)
        except (TypeError, ValueError, OverflowError):
            actual = f"shape {np.shape(weights)}" if isinstance(weights, np.ndarray | list | tuple) else shown(weights)
            expected = f"a number, or one for each point: shape {shape}"
            raise AssemblyError("invalid weights", where=caller_origin(), expected=expected, found=actual) from None

    def normal(self, points: Any) -> NDArray[Any]:
        """Returns the normalised exact gradient at points of shape (..., 3); zero where the gradient is zero."""
        x, y, z, shape = self._split_coordinates(points)
        normal, _, _ = self._evaluate_gradients(x, y, z)
        return normal.reshape(*shape, 3)

    def lazy(self, points: Any, **arguments: Any) -> Tensor:
        """Returns the values at points of shape (n, 3) as a lazy tensor, for `lg.grad` and other tensor functions.

        Keyword arguments replace parameters and the pixels of images that the part reads (`samples_<resource id>`). The
        result is differentiable with respect to every argument that is a tensor.

        >>> import livegrad as lg
        >>> ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)))
        >>> lg.grad(lambda r: lg.sum(ball.lazy([[2, 0, 0], [0, 3, 0]], radius=r) ** 2))(lg.asarray(1.0))
        Tensor(-6., dtype=float32)
        """
        table_count = len(self.arguments) - len(self.parameter_names)
        # Distances to meshes are not differentiable with respect to their tables.
        images = [name if name.startswith("samples_") else "" for name in self.table_names] or [""] * table_count
        return evaluate_lazily(self.function, points, self.arguments, [*self.parameter_names, *images], arguments)

    @property
    def color(self) -> VolumeField | None:
        """The colour of the part, or None."""
        return next((field for field in self.volume_data if field.kind == "color"), None)

    def colors(self, points: Any) -> NDArray[Any] | None:
        """Returns red, green and blue from 0 to 1 at points of shape (..., 3), or None for a part without colour.

        Colours are linear, as in 3MF files; `lg.render` encodes them as sRGB.
        """
        return None if self.color is None else self._evaluate_field(self.color, points)

    def property_values(self, name: str, points: Any) -> NDArray[Any]:
        """Returns a named property or material of the part at points of shape (..., 3)."""
        for field in self.volume_data:
            if field.name == name and field.kind != "color":
                return self._evaluate_field(field, points)
        names = [field.name for field in self.volume_data if field.kind != "color"]
        raise AssemblyError(
            f"part `{self.name}` has no property `{name}`",
            where=caller_origin(),
            expected="one of " + (", ".join(names) or "none"),
        )

    def _evaluate_field(self, field: VolumeField, points: Any) -> NDArray[Any]:
        x, y, z, shape = self._split_coordinates(points)
        values = run_in_batches(compile_over_points(field.function), (x, y, z), field.arguments)
        return values.reshape(*shape, *values.shape[1:])

    def _evaluate_gradients(self, x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        return run_in_batches(compile_gradients(self.function), (x, y, z), self.arguments)

    def _split_coordinates(self, points: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], tuple[int, ...]]:
        try:
            array = np.asarray(points, self.element.dtype)
        except (TypeError, ValueError, OverflowError):
            raise AssemblyError("not points", where=caller_origin(), found=shown(points)) from None
        if array.ndim < 1 or array.shape[-1] != 3:
            raise AssemblyError(
                "not points", where=caller_origin(), expected="an array of shape (..., 3)", found=str(array.shape)
            )
        x, y, z = np.ascontiguousarray(array.reshape(-1, 3).T)
        return x, y, z, array.shape[:-1]


def part_of_function(
    assembly: Assembly,
    name: FunctionName,
    bounds: Any,
    *,
    channel: str | None = None,
    parameters: Mapping[str, NodePath] | Sequence[str] = (),
    exact: bool = False,
    element: Scalar = f32,
) -> Part:
    """Creates a part from a function of an assembly. The position is the input `pos`, or the only vector input.

    `parameters` lists constants that become parameters: by path, or by display name or identifier in the function. The
    other inputs of the function become parameters too, with initial value zero.

    >>> from livegrad.implicit.nodes.expression import add_expression
    >>> balls = add_expression(Assembly(), "ball", "length(pos) - r", {"pos": "vector", "r": "scalar"})
    >>> ball = part_of_function(balls, "ball", bounds=((-2, -2, -2), (2, 2, 2)))
    >>> ball.with_parameters(r=1.5)
    <part ball in (-2, -2, -2) to (2, 2, 2), r=1.5>
    """
    require_assembly(assembly)
    function = assembly.function(name)
    output = channel or first_scalar_output(function)
    vectors = [port for port, type in function.inputs.items() if type is PortType.VECTOR]
    position = "pos" if "pos" in vectors else (vectors[0] if len(vectors) == 1 else None)
    if output is None or position is None:
        raise AssemblyError(
            f"function `{function.name}` is not a field",
            where=caller_origin(),
            expected="a vector input `pos` and a scalar output",
        )
    lowered = prepare_assembly(assembly, {function.id: [output]}, exact)
    paths = _find_constants(lowered, function.id, parameters)
    converted = convert(
        lowered, function.id, outputs=[output], parameters=list(paths.values()), exact=exact, element=element
    )
    names = {path: label for label, path in paths.items()}
    inputs = [input_node(Key(str(index)), type) for index, type in enumerate(converted.function.parameter_types)]
    input_count = len(converted.inputs)
    first = converted.inputs.index(position)
    order = [first, *(index for index in range(len(inputs)) if index != first)]
    function_of_position = make_function(
        converted.function.name, [inputs[index] for index in order], [ops.call(*inputs, function=converted.function)]
    )
    others = [port for port in converted.inputs if port != position]
    zeros = [
        np.zeros(_array_shape(converted.function.parameter_types[converted.inputs.index(port)])) for port in others
    ]
    values = [np.asarray(value, element.dtype) for value in converted.values]
    labels = (*others, *(names[path] for path in converted.parameters))
    assert input_count == len(others) + 1
    arguments = (*(zero.astype(element.dtype) for zero in zeros), *values, *converted.tables)
    low, high = box_corners(bounds)
    return Part(function_of_position, arguments, low, high, function.name, labels, table_names=converted.table_names)


def first_scalar_output(function: AnyFunction) -> str | None:
    """The first scalar output of a function: the default output of a field."""
    return next((port for port, type in function.outputs.items() if type is PortType.SCALAR), None)


def _describe_value(value: Any) -> str:
    """Formats a parameter value: six digits for a number, else `str`."""
    is_number = isinstance(value, int | float | np.number) or (isinstance(value, np.ndarray) and not value.shape)
    return f"{value:.6g}" if is_number else str(value)


def _array_shape(type: Any) -> tuple[int, ...]:
    return (type.size,) if isinstance(type, Vector) else ((4, 4) if not isinstance(type, Scalar) else ())


def prepare_assembly(assembly: Assembly, outputs: Outputs, exact: bool) -> Assembly:
    """Removes everything that the outputs do not need, and lowers gradient nodes unless `exact`."""
    require_outputs(assembly, outputs)
    assembly = eliminate_dead_code(assembly, outputs)
    if exact or next(gradient_nodes(assembly), None) is None:
        return assembly
    return lower_function_gradient(assembly, on_problem="raise").assembly


def _find_constants(
    assembly: Assembly, function: int, requested: Mapping[str, NodePath] | Sequence[str]
) -> dict[str, NodePath]:
    """The constants that become parameters, by name. A sequence lists display names or identifiers of one function."""
    if isinstance(requested, Mapping):
        return dict(requested)
    if not requested:
        return {}  # an image function has no nodes
    nodes = assembly.graph(function).nodes
    paths = {}
    for label in requested:
        matches = [n for n in nodes.values() if label in (n.identifier, n.display_name) and n.value is not None]
        if len(matches) != 1:
            raise AssemblyError(f"{len(matches)} constants are named `{label}`", where=caller_origin())
        paths[label] = (function, matches[0].identifier)
    return paths
