"""Renumbers functions and resources, to merge the model parts of a package.

The production extension allows several model parts, each with its own resource ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction, GraphNode
from livegrad.implicit.nodes.resources import (
    BeamLattice,
    Components,
    LevelSet,
    Resource,
    TriangleMesh,
    VolumeData,
)

# Millimetres per unit.
LENGTHS = {"micron": 1e-3, "millimeter": 1.0, "centimeter": 10.0, "inch": 25.4, "foot": 304.8, "meter": 1000.0}


def renumber_function(function: AnyFunction, ids: Mapping[int, int]) -> AnyFunction:
    """Replaces the id of a function and the ids that it refers to."""
    if not isinstance(function, GraphFunction):
        return replace(function, id=ids[function.id], image=ids.get(function.image, function.image))
    nodes = {name: _renumber_node(node, ids) for name, node in function.nodes.items()}
    return replace(function, id=ids[function.id], nodes=nodes)


def _renumber_node(node: GraphNode, ids: Mapping[int, int]) -> GraphNode:
    if node.type.name != "ResourceId" or not isinstance(node.value, int):
        return node
    return replace(node, value=ids.get(node.value, node.value))


def renumber_resource(resource: Resource, ids: Mapping[int, int]) -> Resource:
    """Replaces the ids that a resource refers to."""

    def renumber(resource_id: int | None) -> int | None:
        return None if resource_id is None else ids.get(resource_id, resource_id)

    match resource:
        case LevelSet():
            function, mesh = ids.get(resource.function, resource.function), ids.get(resource.mesh, resource.mesh)
            return replace(resource, function=function, mesh=mesh, volume_data=renumber(resource.volume_data))
        case VolumeData():
            channels = [replace(c, function=ids.get(c.function, c.function)) for c in resource.channels]
            return replace(resource, channels=tuple(channels), material_group=renumber(resource.material_group))
        case Components():
            members = tuple((ids.get(member, member), transform) for member, transform in resource.members)
            return replace(resource, members=members)
        case TriangleMesh():
            return replace(resource, volume_data=renumber(resource.volume_data))
        case BeamLattice():
            clip, representation = renumber(resource.clipping_mesh), renumber(resource.representation_mesh)
            return replace(resource, clipping_mesh=clip, representation_mesh=representation)
    return resource


def scale_transform(transform: tuple[float, ...], factor: float) -> tuple[float, ...]:
    """Combines a transform with a uniform scaling of the object before it.

    >>> scale_transform((1, 0, 0, 0, 1, 0, 0, 0, 1, 5, 6, 7), 10.0)[8:]
    (10.0, 5, 6, 7)
    """
    return (*(entry * factor for entry in transform[:9]), *transform[9:])
