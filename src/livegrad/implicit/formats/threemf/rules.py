"""Validates rules of 3MF models that the schema cannot express: references, properties, and which meshes are solids.

`read` calls `check_model` before it reads a model part, and the functions for meshes and fields while it reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from livegrad.implicit.formats.package import Package
from livegrad.implicit.formats.threemf.ignored_extension_rules import check_materials, check_slices
from livegrad.implicit.formats.threemf.namespaces import IGNORED, SUPPORTED, WELL_KNOWN_METADATA, vocabulary_of
from livegrad.implicit.formats.threemf.opc import Conventions
from livegrad.implicit.formats.threemf.schema import NUMBER
from livegrad.implicit.formats.xml_tree import Element
from livegrad.implicit.nodes.node_graph import AnyFunction
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import BuildItem, Components, Resource, TriangleMesh

_GROUPS = {"basematerials", "colorgroup", "texture2dgroup", "compositematerials", "multiproperties"}
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def check_model(
    root: Element, conventions: Conventions, part: str, open_model: Callable[[str], Element], *, is_start: bool
) -> None:
    """Raises at the first violation in a model part; `open_model` returns the root of another part."""
    conventions.relationships_of(part)
    _check_extensions(root, conventions.package)
    for group in (root, *root.descendants("metadatagroup")):
        _check_metadata(root, group)
    resources = root.child("resources")
    groups = {} if resources is None else _property_groups(resources)
    if resources is not None:
        check_materials(resources, conventions, part)
        check_slices(root, conventions, part, open_model)
    objects: dict[str, Element] = {}
    for element in [] if resources is None else list(resources.children_named("object")):
        _check_object(element, groups, objects)
        _check_lattice(element, groups, objects)
        _check_thumbnail(element, conventions, part)
        objects[element.attributes.get("id", "").strip()] = element
    _check_build(root, objects, is_start)
    _check_production(root, is_start)


# --- the model --------------------------------------------------------------------------------------------------------


def _check_extensions(root: Element, package: Package) -> None:
    required = root.attributes.get("requiredextensions", "").split()
    recommended = root.attributes.get("recommendedextensions", "").split()
    for prefix in (*required, *recommended):
        if prefix not in root.prefixes:
            raise root.error(f"extension prefix `{prefix}` is not declared")
    if in_both := set(required) & set(recommended):
        raise root.error(f"the extension `{min(in_both)}` is both required and recommended")
    for prefix in required:
        extension = vocabulary_of(root.prefixes[prefix])
        if extension in ("material", "slice"):
            package.warn(f"the file requires the {extension} extension, which is ignored", root.location)
        elif extension not in SUPPORTED:
            raise root.error(
                "a required extension is not supported",
                expected=", ".join(SUPPORTED),
                found=root.prefixes[prefix][:120] if extension not in IGNORED else extension,
            )


def _check_metadata(root: Element, group: Element) -> None:
    names: set[str] = set()
    for element in group.children_named("metadata"):
        name = element.attributes.get("name", "").strip()
        prefix, colon, _ = name.partition(":")
        if name in names:
            raise element.error(f"metadata `{name}` is not unique")
        if colon and prefix not in root.prefixes:
            raise element.error(f"the prefix of metadata `{name}` is not declared")
        if not colon and name not in WELL_KNOWN_METADATA:
            raise element.error(
                f"unknown metadata `{name}`", expected=", ".join(WELL_KNOWN_METADATA), help="use a prefix"
            )
        names.add(name)


def _check_build(root: Element, objects: dict[str, Element], is_start: bool) -> None:
    build = root.child("build")
    if build is None or not is_start:
        return
    for item in build.children_named("item"):
        pending = [] if item.attribute("production", "path") else [item.attributes.get("objectid", "").strip()]
        visited: set[str] = set()
        while pending:
            object_id = pending.pop()
            element = objects.get(object_id)
            if element is None or object_id in visited:
                continue
            visited.add(object_id)
            components = element.child("components")
            if components is None:
                if element.attributes.get("type", "model") == "other":
                    raise item.error(f"object {object_id} has the type other, which cannot be built")
                continue
            members = [c for c in components.children_named("component") if not c.attribute("production", "path")]
            pending.extend(member.attributes.get("objectid", "").strip() for member in members)


def _check_production(root: Element, is_start: bool) -> None:
    required = root.attributes.get("requiredextensions", "").split()
    requires_production = any(vocabulary_of(root.prefixes.get(prefix, "")) == "production" for prefix in required)
    identifiers: set[str] = set()
    for element in root.descendants("build", "item", "object", "component"):
        identifier = element.attribute("production", "UUID")
        if identifier is None:
            if requires_production and (is_start or element.name != "build"):
                raise element.error("attribute `UUID` is missing", help="the production extension requires it")
        elif not _UUID.fullmatch(identifier):
            raise element.error("invalid UUID", found=identifier[:60])
        elif identifier.lower() in identifiers:
            raise element.error("the UUID is not unique", found=identifier)
        else:
            identifiers.add(identifier.lower())
        path = element.attribute("production", "path")
        if path is not None and not (requires_production and is_start):
            reason = "the model does not require the production extension" if is_start else "this is not the root model"
            raise element.error(f"a path to another model is not allowed: {reason}")


# --- objects ----------------------------------------------------------------------------------------------------------


def _property_groups(resources: Element) -> dict[str, tuple[str, int]]:
    """The property groups of a model: (kind, size), by id."""
    groups: dict[str, tuple[str, int]] = {}
    for element in resources.children:
        if element.name in _GROUPS:
            groups[element.attributes.get("id", "").strip()] = (element.name, len(element.children))
        elif vocabulary_of(element.namespace) == "other" and "id" in element.attributes:
            groups[element.attributes["id"].strip()] = ("other", 1 << 31)
    return groups


def _check_property(element: Element, groups: dict[str, tuple[str, int]], pid: str, *indices: str | None) -> None:
    if pid.strip() not in groups:
        raise element.error(f"property group {pid} does not exist")
    kind, size = groups[pid.strip()]
    for index in indices:
        if index is not None and int(index) >= size:
            raise element.error(f"property index {index} is out of range: group {pid} has {size} properties")
    present = [index for index in indices if index is not None]
    if kind == "basematerials" and len(indices) > 1 and len({*present}) > 1:
        raise element.error("base materials cannot be interpolated", found=", ".join(present))


def _check_object(element: Element, groups: dict[str, tuple[str, int]], earlier: dict[str, Element]) -> None:
    pid, pindex = element.attributes.get("pid"), element.attributes.get("pindex")
    components, mesh = element.child("components"), element.child("mesh")
    if components is not None:
        if pid is not None or pindex is not None:
            raise element.error("an object of components cannot have properties", help="set them on its components")
        for component in components.children_named("component"):
            object_id = component.attributes.get("objectid", "").strip()
            if object_id not in earlier and not component.attribute("production", "path"):
                raise component.error(f"object {object_id} does not exist, or is defined later")
    if pid is None and pindex is not None:
        raise element.error("attribute `pindex` requires `pid`")
    if pid is not None:
        _check_property(element, groups, pid, pindex)
    triangles = None if mesh is None else mesh.child("triangles")
    if triangles is not None and triangles.row_properties:
        for triangle_pid, *indices in triangles.row_properties:
            if triangle_pid is None and not any(indices):
                continue
            if pid is None or pindex is None:
                raise element.error("triangles have properties, but the object has none", expected="`pid` and `pindex`")
            if (indices[1] is None) != (indices[2] is None):
                raise triangles.error("a triangle has only some of its properties", expected="`p2` and `p3`")
            _check_property(triangles, groups, triangle_pid or pid, *indices)


def built_objects(resources: Mapping[int, Resource], items: Iterable[BuildItem]) -> set[int]:
    """The ids of the objects that items build, including members of components."""
    pending = [item.object for item in items]
    built: set[int] = set()
    while pending:
        object_id = pending.pop()
        if object_id not in built and object_id in resources:
            built.add(object_id)
            resource = resources[object_id]
            if isinstance(resource, Components):
                pending.extend(member for member, _ in resource.members)
    return built


def mesh_problem(mesh: TriangleMesh) -> str | None:
    """Explains why a mesh is invalid; None if it is valid."""
    if len(mesh.triangles) and (np.diff(np.sort(mesh.triangles, axis=1), axis=1) == 0).any():
        return "a triangle uses a vertex twice"
    return None


def solid_problem(mesh: TriangleMesh) -> str | None:
    """Explains why a mesh that must bound a solid does not; None if it does.

    >>> solid_problem(TriangleMesh.box((0, 0, 0), (1, 1, 1))) is None
    True
    """
    problem = mesh_problem(mesh)
    if problem is not None or mesh.object_type not in ("model", "solidsupport"):
        return problem
    if len(mesh.triangles) < 4:
        return f"a solid of {len(mesh.triangles)} triangles, fewer than four"
    if not mesh.is_closed():
        return "a solid with a gap, or with inconsistently oriented triangles"
    return "a solid whose triangles face inwards" if mesh.volume() < 0 else None


def field_problem(function: AnyFunction, channel: str, types: tuple[PortType, ...]) -> str | None:
    """Explains why an output of a function is not a field of position; None if it is."""
    if function.inputs.get("pos") is not PortType.VECTOR:
        return f"function {function.id} has no vector input `pos`"
    type = function.outputs.get(channel)
    if type is None:
        return f"function {function.id} has no output `{channel}`"
    return None if type in types else f"output `{channel}` of function {function.id} is a {type.value}"


def _check_thumbnail(element: Element, conventions: Conventions, part: str) -> None:
    name = element.attributes.get("thumbnail")
    if name is not None and name not in conventions.pictures(part):
        raise element.error("the model has no relationship to the thumbnail", found=name[:80])


# --- beam lattices ----------------------------------------------------------------------------------------------------


def _check_lattice(element: Element, groups: dict[str, tuple[str, int]], earlier: dict[str, Element]) -> None:
    mesh = element.child("mesh")
    lattice = None if mesh is None else mesh.child("beamlattice")
    if lattice is None:
        return
    if element.attributes.get("type", "model") not in ("model", "solidsupport"):
        raise element.error("an object with a beam lattice must be solid", found=element.attributes["type"])
    clipping = lattice.attributes.get("clippingmode", "none")
    if clipping != "none" and "clippingmesh" not in lattice.attributes:
        raise lattice.error(f"clipping mode `{clipping}` requires a mesh", expected="`clippingmesh`")
    for role in ("clippingmesh", "representationmesh"):
        if role in lattice.attributes:
            _check_lattice_mesh(lattice, role, earlier)
    _check_beams(lattice)
    _check_lattice_properties(element, lattice, groups)


def _check_lattice_properties(element: Element, lattice: Element, groups: dict[str, tuple[str, int]]) -> None:
    """Checks the properties of beams and balls. Defaults are those of the lattice, or of its object."""
    owner = lattice if "pid" in lattice.attributes else element
    pid, pindex = owner.attributes.get("pid"), owner.attributes.get("pindex")
    if "pid" in lattice.attributes:
        _check_property(lattice, groups, lattice.attributes["pid"], lattice.attributes.get("pindex"))
    for member in lattice.descendants("beam", "ball"):
        member_pid, indices = member.attributes.get("pid"), [member.attributes.get(name) for name in ("p", "p1", "p2")]
        if member_pid is None and not any(indices):
            continue
        if pid is None or pindex is None:
            raise member.error("it has properties, but its lattice has none", expected="`pid` and `pindex`")
        _check_property(member, groups, member_pid or pid, *indices)


def _check_lattice_mesh(lattice: Element, role: str, earlier: dict[str, Element]) -> None:
    mesh_id = lattice.attributes[role].strip()
    mesh = earlier[mesh_id].child("mesh") if mesh_id in earlier else None
    if (
        mesh is None
        or mesh.child("beamlattice") is not None
        or earlier[mesh_id].attributes.get("type", "model") != "model"
    ):
        raise lattice.error(f"`{role}` {mesh_id} is not the mesh of an earlier object of type model")


def _check_beams(lattice: Element) -> None:
    beams = [beam for section in lattice.children_named("beams") for beam in section.children_named("beam")]
    ends: set[str] = set()
    for beam in beams:
        first, second = beam.attributes.get("v1", ""), beam.attributes.get("v2", "")
        if first == second:
            raise beam.error("the beam joins a vertex to itself")
        if "r2" in beam.attributes and "r1" not in beam.attributes:
            raise beam.error("attribute `r2` requires `r1`")
        ends.update((first, second))
    mode = lattice.attributes.get("ballmode", lattice.attribute("beamlattice", "ballmode"))
    mode = "none" if mode is None else mode
    if mode not in ("none", "mixed", "all"):
        raise lattice.error("unknown ball mode", expected="none, mixed, all", found=mode[:40])
    radius = lattice.attributes.get("ballradius", lattice.attribute("beamlattice", "ballradius"))
    if mode != "none" and radius is None:
        raise lattice.error("the balls have no radius", expected="`ballradius`")
    numbers = {name: lattice.attributes.get(name) for name in ("radius", "minlength")}
    for name, value in {**numbers, "ballradius": radius}.items():
        if value is not None and not _is_positive(value):
            raise lattice.error(f"attribute `{name}` is not a positive number", found=repr(value)[:40])
    balls = [ball for section in lattice.children_named("balls") for ball in section.children_named("ball")]
    for ball in balls:
        if ball.attributes.get("vindex", "") not in ends:
            raise ball.error("the vertex of the ball has no beam")
    _check_sets(lattice, {"ref": len(beams), "ballref": len(balls)})


def _is_positive(number: str) -> bool:
    return re.fullmatch(NUMBER, number.strip()) is not None and 0.0 < float(number) < math.inf


def _check_sets(lattice: Element, sizes: dict[str, int]) -> None:
    identifiers: set[str] = set()
    for group in (
        group for section in lattice.children_named("beamsets") for group in section.children_named("beamset")
    ):
        identifier = group.attributes.get("identifier")
        if identifier is not None and identifier in identifiers:
            raise group.error(f"set `{identifier}` is not unique")
        identifiers.add(identifier or "")
        for child in group.children:
            if int(child.attributes.get("index", "0")) >= sizes.get(child.name, 1 << 31):
                raise child.error("the index is out of range", found=child.attributes.get("index", ""))
