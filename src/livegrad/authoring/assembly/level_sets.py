"""Level sets as parts: a function, its domain and the transforms of the file, as one function of build coordinates.

`parts` gives what a file is to build; renderers and meshers take it from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.authoring.assembly.assembly import Assembly
from livegrad.authoring.assembly.checks import used_functions
from livegrad.authoring.assembly.distance_call import distance_call
from livegrad.authoring.assembly.errors import AssemblyError
from livegrad.authoring.assembly.mesh_distance import MeshTables, signed_distance
from livegrad.authoring.assembly.part import Part, VolumeField, ready_to_convert
from livegrad.authoring.assembly.resources import (
    IDENTITY,
    BuildItem,
    Components,
    LevelSet,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.authoring.assembly.to_ir import Converted, NodePath, convert
from livegrad.diagnostics import caller_origin
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Scalar, Tensor, Vector, f32, scalar_of_dtype
from livegrad.ops.aggregate import make_vector, members_of
from livegrad.ops.rules import filled

_MOST_PARTS = 10_000
Transform = NDArray[np.float64]  # 4×4, acting on rows as 3MF does: (x, y, z, 1) @ matrix


def parts(
    assembly: Assembly,
    *,
    parameters: Mapping[str, NodePath] | None = None,
    exact: bool = False,
    element: Scalar = f32,
) -> list[Part]:
    """The level sets among what an assembly builds, each as a part in build coordinates.

    `parameters` names constants of graphs that stay open, as (function id, node identifier). With `exact`, gradient
    nodes mean analytic derivatives instead of differences by their step.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)), "ball")
    >>> parts(lg.assembly_of_part(ball))
    [<part ball in (-2, -2, -2) to (2, 2, 2)>]
    """
    _require_few(assembly)
    ready = ready_to_convert(assembly, used_functions(assembly), exact)
    return [
        _part(ready, number, placed, dict(parameters or {}), exact, element)
        for item in assembly.items
        for number, placed in _placed(assembly, item)
    ]


def _require_few(assembly: Assembly) -> None:
    """Raises where components that hold components place more parts than anyone builds: they are counted first."""
    counts: dict[int, int] = {}
    opened: set[int] = set()
    pending = [item.object for item in assembly.items]
    while pending:
        number = pending[-1]
        resource = assembly.resources.get(number)
        members = [member for member, _ in resource.members] if isinstance(resource, Components) else []
        waiting = [member for member in members if member not in counts]
        if number not in counts and waiting:
            if number in waiting or not opened.isdisjoint(waiting):
                raise AssemblyError(f"components {number} hold themselves", where=caller_origin())
            opened.add(number)
            pending.extend(waiting)
            continue
        opened.discard(number)
        pending.pop()
        counts[number] = sum(counts[member] for member in members) if members else isinstance(resource, LevelSet)
    total = sum(counts[item.object] for item in assembly.items)
    if total > _MOST_PARTS:
        raise AssemblyError(
            "the file builds too many parts",
            where=caller_origin(),
            expected=f"at most {_MOST_PARTS:,}",
            found=f"{total:,}, by components that hold components",
        )


def _placed(assembly: Assembly, item: BuildItem) -> Iterator[tuple[int, Transform]]:
    pending = [(item.object, matrix_of(item.transform))]
    while pending:
        number, transform = pending.pop()
        resource = assembly.resources.get(number)
        if isinstance(resource, LevelSet):
            yield number, transform
        elif isinstance(resource, Components):
            inner = [(member, matrix_of(own) @ transform) for member, own in resource.members]
            pending.extend(reversed(inner))


def matrix_of(transform: tuple[float, ...]) -> Transform:
    """Twelve numbers of a file as a 4×4 matrix.

    >>> (np.array([1, 2, 3, 1]) @ matrix_of((1, 0, 0, 0, 1, 0, 0, 0, 1, 10, 20, 30)))[:3]
    array([11., 22., 33.])
    """
    matrix = np.eye(4)
    matrix[:, :3] = np.array(transform, np.float64).reshape(4, 3)
    return matrix


def _part(
    assembly: Assembly,
    number: int,
    placed: Transform,
    parameters: dict[str, NodePath],
    exact: bool,
    element: Scalar,
) -> Part:
    level_set = assembly.resources[number]
    assert isinstance(level_set, LevelSet)
    mesh = assembly.resources.get(level_set.mesh)
    if not isinstance(mesh, TriangleMesh):
        raise AssemblyError(f"level set {number} has no mesh for a domain", where=caller_origin())
    if not np.isfinite(placed).all() or abs(np.linalg.det(placed)) < 1e-30:
        raise AssemblyError(f"level set {number} is placed by a transform without inverse", where=caller_origin())
    settings: dict[str, Any] = {"parameters": list(parameters.values()), "exact": exact, "element": element}
    field = convert(assembly, level_set.function, outputs=[level_set.channel], **settings)
    builder = _FieldBuilder(element, placed, level_set, mesh)
    shape = builder.shape(field)
    names = {path: label for label, path in parameters.items()}
    values = [np.asarray(value, element.dtype) for value in field.values]
    corners = _corners(mesh) @ placed
    return Part(
        shape,
        (*values, *field.tables, *builder.domain_tables),
        corners[:, :3].min(0),
        corners[:, :3].max(0),
        level_set.name or assembly.functions[level_set.function].name or f"part {number}",
        tuple(names[path] for path in field.parameters),
        builder.volume(assembly, settings),
        level_set.min_feature_size,
        (*field.table_names, *(f"domain_{index}" for index in range(len(builder.domain_tables)))),
        ends_itself=True,
    )


def _corners(mesh: TriangleMesh) -> NDArray[np.float64]:
    low, high = mesh.bounds()
    ends = np.stack([low, high])
    return np.array([[ends[i, 0], ends[j, 1], ends[k, 2], 1.0] for i in (0, 1) for j in (0, 1) for k in (0, 1)])


class _FieldBuilder:
    """Writes the functions of a level set over build coordinates; both take the same arguments."""

    def __init__(self, element: Scalar, placed: Transform, level_set: LevelSet, mesh: TriangleMesh) -> None:
        self.element = element
        self.to_object: Transform = np.linalg.inv(placed).astype(np.float64)
        self.level_set = level_set
        self.mesh = mesh
        # Most domains are boxes, whose distance is a formula: no tables, and a fraction of the code.
        is_box = level_set.box_only or mesh.is_box()
        tables = [] if is_box else MeshTables.of(mesh, element).arrays()
        self.domain_tables = tuple(np.ascontiguousarray(array) for _, array in tables)

    def _arguments(self, field: Converted) -> tuple[Node, list[Node], list[Node]]:
        if field.inputs != ("pos",):
            raise AssemblyError(
                f"function `{field.function.name}` is no field of positions", expected="one input, a vector `pos`"
            )
        position = input_node(Key("position"), Vector(self.element, 3))
        own = [input_node(Key("argument"), type) for type in field.function.parameter_types[1:]]
        types = [Tensor(scalar_of_dtype(array.dtype), array.shape) for array in self.domain_tables]
        return position, own, [input_node(Key("domain"), type) for type in types]

    def shape(self, field: Converted) -> Function:
        position, own, domain = self._arguments(field)
        in_object = self._transformed(position, self.to_object)
        in_field = self._transformed(in_object, matrix_of(self.level_set.transform))
        value = ops.call(in_field, *own, function=field.function)
        # What is undefined takes the value that the file gives for it.
        value = ops.select(ops.is_nan(value), constant(self.level_set.fallback, self.element), value)
        inside = self._box(in_object) if not domain else distance_call(signed_distance, in_object, domain)
        return make_function(field.function.name, [position, *own, *domain], [ops.max(value, inside)])

    def volume(self, assembly: Assembly, settings: dict[str, Any]) -> tuple[VolumeField, ...]:
        """What the level set's volume data say, each as a function of build coordinates with tables of its own."""
        volume = assembly.resources.get(self.level_set.volume_data) if self.level_set.volume_data is not None else None
        if not isinstance(volume, VolumeData):
            return ()
        return tuple(self._volume_field(assembly, channel, settings) for channel in volume.channels)

    def _volume_field(self, assembly: Assembly, channel: VolumeChannel, settings: dict[str, Any]) -> VolumeField:
        field = convert(assembly, channel.function, outputs=[channel.channel], **{**settings, "parameters": []})
        position, own, _ = self._arguments(field)
        in_object = self._transformed(position, self.to_object)
        value = ops.call(self._transformed(in_object, matrix_of(channel.transform)), *own, function=field.function)
        value = ops.select(ops.is_nan(value), filled(channel.fallback, value.type), value)
        if channel.kind == "color":
            value = ops.clamp(value, filled(0.0, value.type), filled(1.0, value.type))
        name = channel.name or channel.kind
        return VolumeField(channel.kind, name, make_function(name, [position, *own], [value]), field.tables)

    def _transformed(self, position: Node, matrix: Transform) -> Node:
        if np.array_equal(matrix, matrix_of(IDENTITY)):
            return position
        x, y, z = members_of(position)
        moved = []
        for column in range(3):
            a, b, c, d = (constant(float(matrix[row, column]), self.element) for row in range(4))
            moved.append(x * a + y * b + z * c + d)
        return make_vector(*moved)

    def _box(self, position: Node) -> Node:
        """The signed distance to the box around the domain's mesh."""
        low, high = self.mesh.bounds()
        centre, half = (low + high) / 2, (high - low) / 2
        outside = [
            ops.abs(coordinate - constant(float(c), self.element)) - constant(float(h), self.element)
            for coordinate, c, h in zip(members_of(position), centre, half, strict=True)
        ]
        nothing = constant(0.0, self.element)
        away = ops.length(make_vector(*[ops.max(distance, nothing) for distance in outside]))
        inside = ops.min(ops.max(ops.max(outside[0], outside[1]), outside[2]), nothing)
        return away + inside
