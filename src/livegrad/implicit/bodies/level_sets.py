"""Converts the build of an assembly to parts: each level set, mesh or beam lattice becomes a function of build
coordinates.

`parts` is public; meshing, slicing and rendering take its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad import ops
from livegrad.diagnostics import caller_origin, shown
from livegrad.implicit.bodies.part import Part, VolumeField, prepare_assembly
from livegrad.implicit.distances.beam_distance import BeamTables, beam_distance
from livegrad.implicit.distances.distance_call import distance_call
from livegrad.implicit.distances.mesh_distance import MeshTables
from livegrad.implicit.nodes.assembly import Assembly, require_assembly
from livegrad.implicit.nodes.dead_code import eliminate_dead_code, outputs_of_build
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.node_graph import GraphFunction
from livegrad.implicit.nodes.node_types import VALUE_TYPES
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import (
    IDENTITY,
    BeamLattice,
    BuildItem,
    Components,
    LevelSet,
    Resource,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.implicit.nodes.to_ir import Converted, NodePath, convert
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Scalar, Tensor, Vector, f32, scalar_of_dtype
from livegrad.ops.aggregate import make_vector, members_of
from livegrad.ops.rules import filled

_MAX_PARTS = 10_000
_SOLID_TYPES = ("model", "solidsupport", "support")
Transform = NDArray[np.float64]  # 4×4, applied to row vectors as in 3MF: (x, y, z, 1) @ matrix


def parts(
    assembly: Assembly,
    *,
    parameters: Mapping[str, NodePath] | None = None,
    exact: bool = False,
    element: Scalar = f32,
) -> list[Part]:
    """Returns the objects that an assembly builds, as parts in build coordinates: level sets, meshes and beam lattices.

    Meshes that do not bound a body (meshes with gaps, and objects of type surface or other) are omitted.

    `parameters` maps names to the constants that become parameters, as (function id, node identifier). The default is
    the parameters of the part that the assembly was created from. With `exact`, gradient nodes are analytic derivatives
    instead of central differences.

    >>> import livegrad as lg
    >>> radius = lg.shapes.Parameter("radius", 1.5)
    >>> ball = lg.shapes.sphere(radius).part(((-2, -2, -2), (2, 2, 2)), "ball")
    >>> parts(lg.implicit.assembly_of_part(ball))
    [<part ball in (-2, -2, -2) to (2, 2, 2), radius=1.5>]
    """
    require_assembly(assembly)
    if not isinstance(parameters, Mapping | None):
        raise AssemblyError(
            "invalid parameters",
            where=caller_origin(),
            expected='names with their constants: {"radius": (function id, node identifier)}',
            found=shown(parameters),
        )
    bodies = {resource_id for resource_id, resource in assembly.resources.items() if _is_body(resource)}
    _require_part_count(assembly, bodies)
    prepared = prepare_assembly(assembly, outputs_of_build(assembly), exact)
    settings: dict[str, Any] = {"exact": exact, "element": element}
    result: list[Part] = []
    for item in assembly.items:
        for resource_id, placement in _place_bodies(assembly, item, bodies):
            if not np.isfinite(placement).all() or abs(np.linalg.det(placement)) < 1e-30:
                raise AssemblyError(f"the transform of object {resource_id} is not invertible", where=caller_origin())
            if isinstance(assembly.resources[resource_id], LevelSet):
                result.append(_convert_level_set(prepared, resource_id, placement, parameters, settings))
            else:
                result.append(_convert_solid(prepared, resource_id, placement, settings))
    return result


def _require_part_count(assembly: Assembly, bodies: set[int]) -> None:
    """Raises if nested components place too many parts. Counts parts without expanding components."""
    counts: dict[int, int] = {}
    expanding: set[int] = set()
    pending = [item.object for item in assembly.items]
    while pending:
        resource_id = pending[-1]
        resource = assembly.resources.get(resource_id)
        members = [member for member, _ in resource.members] if isinstance(resource, Components) else []
        uncounted = [member for member in members if member not in counts]
        if resource_id not in counts and uncounted:
            if resource_id in uncounted or not expanding.isdisjoint(uncounted):
                raise AssemblyError(f"components {resource_id} contain themselves", where=caller_origin())
            expanding.add(resource_id)
            pending.extend(uncounted)
            continue
        expanding.discard(resource_id)
        pending.pop()
        counts[resource_id] = sum(counts[member] for member in members) if members else resource_id in bodies
    total = sum(counts[item.object] for item in assembly.items)
    if total > _MAX_PARTS:
        raise AssemblyError(
            "the file builds too many parts",
            where=caller_origin(),
            expected=f"at most {_MAX_PARTS:,}",
            found=f"{total:,}, through nested components",
        )


def _place_bodies(assembly: Assembly, item: BuildItem, bodies: set[int]) -> Iterator[tuple[int, Transform]]:
    """The bodies of a build item with their transforms, with components expanded."""
    pending = [(item.object, transform_matrix(item.transform))]
    while pending:
        resource_id, transform = pending.pop()
        resource = assembly.resources.get(resource_id)
        if resource_id in bodies:
            yield resource_id, transform
        elif isinstance(resource, Components):
            inner = [
                (member, transform_matrix(member_transform) @ transform)
                for member, member_transform in resource.members
            ]
            pending.extend(reversed(inner))


def transform_matrix(transform: tuple[float, ...]) -> Transform:
    """Converts the twelve numbers of a 3MF transform to a 4×4 matrix.

    >>> (np.array([1, 2, 3, 1]) @ transform_matrix((1, 0, 0, 0, 1, 0, 0, 0, 1, 10, 20, 30)))[:3]
    array([11., 22., 33.])
    """
    matrix = np.eye(4)
    matrix[:, :3] = np.array(transform, np.float64).reshape(4, 3)
    return matrix


def _convert_level_set(
    assembly: Assembly,
    resource_id: int,
    placement: Transform,
    parameters: Mapping[str, NodePath] | None,
    settings: dict[str, Any],
) -> Part:
    element: Scalar = settings["element"]
    level_set = assembly.resources[resource_id]
    assert isinstance(level_set, LevelSet)
    mesh = assembly.resources.get(level_set.mesh)
    if not isinstance(mesh, TriangleMesh):
        raise AssemblyError(f"level set {resource_id} has no mesh as its domain", where=caller_origin())
    if parameters is None:
        parameters = _named_parameters(assembly, level_set)
    parameter_paths = list(parameters.values())
    field = convert(assembly, level_set.function, outputs=[level_set.channel], parameters=parameter_paths, **settings)
    builder = _FieldBuilder(element, placement, level_set, mesh)
    function = builder.build(field)
    names = {path: label for label, path in parameters.items()}
    values = [np.asarray(value, element.dtype) for value in field.values]
    corners = _corners(*mesh.bounds()) @ placement
    return Part(
        function,
        (*values, *field.tables, *builder.domain_tables),
        corners[:, :3].min(0),
        corners[:, :3].max(0),
        level_set.name or assembly.functions[level_set.function].name or f"part {resource_id}",
        tuple(names[path] for path in field.parameters),
        _convert_volume_data(assembly, level_set.volume_data, builder.to_object, settings),
        level_set.min_feature_size,
        (*field.table_names, *(f"domain_{index}" for index in range(len(builder.domain_tables)))),
        ends_itself=True,
        controls={name: control for name, control in assembly.document.controls if name in parameters},
    )


def _named_parameters(assembly: Assembly, level_set: LevelSet) -> dict[str, NodePath]:
    """The parameters of the document whose constants the function of a level set uses."""
    if not assembly.document.parameters:
        return {}
    functions = eliminate_dead_code(assembly, {level_set.function: [level_set.channel]}).functions
    parameters: dict[str, NodePath] = {}
    for name, function_id, identifier in assembly.document.parameters:
        function = functions.get(function_id)
        node = function.nodes.get(identifier) if isinstance(function, GraphFunction) else None
        if node is not None and VALUE_TYPES.get(node.type.name, PortType.RESOURCE) is not PortType.RESOURCE:
            parameters[name] = (function_id, identifier)
    return parameters


def _is_body(resource: Resource) -> bool:
    match resource:
        case LevelSet():
            return True
        case TriangleMesh():
            return resource.object_type in _SOLID_TYPES and len(resource.triangles) > 0 and resource.is_closed()
        case BeamLattice():
            return resource.object_type in _SOLID_TYPES and len(resource.beams) + len(resource.balls) > 0
    return False


def _convert_solid(assembly: Assembly, resource_id: int, placement: Transform, settings: dict[str, Any]) -> Part:
    """Converts a mesh or a beam lattice to a part. Its field is the signed distance in object coordinates."""
    element: Scalar = settings["element"]
    solid = assembly.resources[resource_id]
    assert isinstance(solid, TriangleMesh | BeamLattice)
    to_object: Transform = np.linalg.inv(placement).astype(np.float64)
    position = input_node(Key("position"), Vector(element, 3))
    field = _SolidField(assembly, apply_transform(position, to_object, element), element)
    value = field.mesh(solid) if isinstance(solid, TriangleMesh) else field.lattice(solid)
    corners = (_corners(*solid.bounds()) @ placement)[:, :3]
    name = solid.name or f"object {resource_id}"
    volume = solid.volume_data if isinstance(solid, TriangleMesh) else None
    return Part(
        make_function(name, [position, *field.inputs], [value]),
        tuple(field.tables),
        corners.min(0),
        corners.max(0),
        name,
        volume_data=_convert_volume_data(assembly, volume, to_object, settings),
        table_names=tuple(f"solid_{index}" for index in range(len(field.tables))),
        ends_itself=True,
    )


class _SolidField:
    """Builds signed distances to meshes and lattices, and collects the tables that they read."""

    def __init__(self, assembly: Assembly, position: Node, element: Scalar) -> None:
        self.assembly = assembly
        self.position = position
        self.element = element
        self.tables: list[NDArray[Any]] = []
        self.inputs: list[Node] = []

    def mesh(self, mesh: TriangleMesh) -> Node:
        tables = MeshTables.of(mesh, self.element)
        return self._distance(tables.rule, tables.arrays)

    def lattice(self, lattice: BeamLattice) -> Node:
        """The union of the clipped beams and balls with the body that the triangles bound."""
        value = self._distance(beam_distance, BeamTables.of(lattice, self.element).arrays())
        clip = None if lattice.clipping_mesh is None else self.assembly.resources.get(lattice.clipping_mesh)
        if lattice.clipping != "none" and isinstance(clip, TriangleMesh):
            clip_distance = self.mesh(clip)
            value = ops.max(value, clip_distance if lattice.clipping == "inside" else -clip_distance)
        surface = TriangleMesh(lattice.vertices, lattice.triangles)
        if len(surface.triangles) and surface.is_closed():
            value = ops.min(value, self.mesh(surface))
        return value

    def _distance(self, rule: Callable[..., Node], arrays: Sequence[tuple[str, NDArray[Any]]]) -> Node:
        tables = [np.ascontiguousarray(array) for _, array in arrays]
        inputs = [input_node(Key("table"), Tensor(scalar_of_dtype(table.dtype), table.shape)) for table in tables]
        self.tables += tables
        self.inputs += inputs
        return distance_call(rule, self.position, inputs)


def _corners(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    ends = np.stack([low, high])
    return np.array([[ends[i, 0], ends[j, 1], ends[k, 2], 1.0] for i in (0, 1) for j in (0, 1) for k in (0, 1)])


class _FieldBuilder:
    """Builds the function of a level set over build coordinates: its field, clipped to its domain."""

    def __init__(self, element: Scalar, placement: Transform, level_set: LevelSet, mesh: TriangleMesh) -> None:
        self.element = element
        self.to_object: Transform = np.linalg.inv(placement).astype(np.float64)
        self.level_set = level_set
        self.mesh = mesh
        # Most domains are boxes, whose distance needs no tables.
        is_box = level_set.box_only or mesh.is_box()
        self._tables = None if is_box else MeshTables.of(mesh, element)
        arrays = self._tables.arrays if self._tables else ()
        self.domain_tables = tuple(np.ascontiguousarray(array) for _, array in arrays)

    def build(self, field: Converted) -> Function:
        position, arguments = field_arguments(field, self.element)
        types = [Tensor(scalar_of_dtype(array.dtype), array.shape) for array in self.domain_tables]
        domain = [input_node(Key("domain"), type) for type in types]
        in_object = apply_transform(position, self.to_object, self.element)
        in_field = apply_transform(in_object, transform_matrix(self.level_set.transform), self.element)
        value = ops.call(in_field, *arguments, function=field.function)
        # The file defines a fallback value for NaN.
        value = ops.select(ops.is_nan(value), constant(self.level_set.fallback, self.element), value)
        domain_distance = (
            distance_call(self._tables.rule, in_object, domain) if self._tables else self._box_distance(in_object)
        )
        return make_function(field.function.name, [position, *arguments, *domain], [ops.max(value, domain_distance)])

    def _box_distance(self, position: Node) -> Node:
        """The signed distance to the bounding box of the domain."""
        low, high = self.mesh.bounds()
        centre, half = (low + high) / 2, (high - low) / 2
        outside = [
            ops.abs(coordinate - constant(float(c), self.element)) - constant(float(h), self.element)
            for coordinate, c, h in zip(members_of(position), centre, half, strict=True)
        ]
        zero = constant(0.0, self.element)
        exterior = ops.length(make_vector(*[ops.max(distance, zero) for distance in outside]))
        interior = ops.min(ops.max(ops.max(outside[0], outside[1]), outside[2]), zero)
        return exterior + interior


def _convert_volume_data(
    assembly: Assembly, resource_id: int | None, to_object: Transform, settings: dict[str, Any]
) -> tuple[VolumeField, ...]:
    """The fields of volume data, each a function of build coordinates with its own tables."""
    volume = None if resource_id is None else assembly.resources.get(resource_id)
    if not isinstance(volume, VolumeData):
        return ()
    return tuple(_convert_channel(assembly, channel, to_object, settings) for channel in volume.channels)


def _convert_channel(
    assembly: Assembly, channel: VolumeChannel, to_object: Transform, settings: dict[str, Any]
) -> VolumeField:
    element: Scalar = settings["element"]
    field = convert(assembly, channel.function, outputs=[channel.channel], **settings)
    position, arguments = field_arguments(field, element)
    in_object = apply_transform(position, to_object, element)
    in_field = apply_transform(in_object, transform_matrix(channel.transform), element)
    value = ops.call(in_field, *arguments, function=field.function)
    value = ops.select(ops.is_nan(value), filled(channel.fallback, value.type), value)
    if channel.kind == "color":
        value = ops.clamp(value, filled(0.0, value.type), filled(1.0, value.type))
    name = channel.name or channel.kind
    return VolumeField(channel.kind, name, make_function(name, [position, *arguments], [value]), field.tables)


def field_arguments(field: Converted, element: Scalar) -> tuple[Node, list[Node]]:
    """Creates the parameters of a function of position: the position, and the other arguments."""
    if field.inputs != ("pos",):
        raise AssemblyError(
            f"function `{field.function.name}` is not a field of positions", expected="one input, a vector `pos`"
        )
    position = input_node(Key("position"), Vector(element, 3))
    return position, [input_node(Key("argument"), type) for type in field.function.parameter_types[1:]]


def apply_transform(position: Node, matrix: Transform, element: Scalar) -> Node:
    """Transforms a position, a row vector, by a matrix."""
    if np.array_equal(matrix, transform_matrix(IDENTITY)):
        return position
    x, y, z = members_of(position)
    coordinates = []
    for column in range(3):
        a, b, c, d = (constant(float(matrix[row, column]), element) for row in range(4))
        coordinates.append(x * a + y * b + z * c + d)
    return make_vector(*coordinates)
