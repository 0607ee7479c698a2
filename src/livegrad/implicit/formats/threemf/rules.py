"""Rules of 3MF models that the schema cannot express: references, and which meshes are solids.

`read` checks each model part before reading it. Meshes are checked while they are read (`check_mesh`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from livegrad.implicit.formats.package import Package
from livegrad.implicit.formats.threemf.namespaces import PASSED_OVER, READ, WELL_KNOWN_METADATA, family
from livegrad.implicit.formats.threemf.opc import Conventions
from livegrad.implicit.formats.threemf.rules_passed_over import check_materials, check_slices
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
    """Raises at the first rule that a model part violates; `open_model` returns the root of another part."""
    conventions.related(part)
    _check_extensions(root, conventions.package)
    for group in (root, *root.descendants("metadatagroup")):
        _check_metadata(root, group)
    resources = root.child("resources")
    groups = {} if resources is None else _property_groups(resources)
    if resources is not None:
        check_materials(resources, conventions, part)
        check_slices(root, conventions, part, open_model)
    seen: dict[str, Element] = {}
    for element in [] if resources is None else list(resources.named("object")):
        _check_object(element, groups, seen)
        _check_lattice(element, groups, seen)
        _check_thumbnail(element, conventions, part)
        seen[element.attributes.get("id", "").strip()] = element
    _check_build(root, seen, is_start)
    _check_production(root, is_start)


# --- the model --------------------------------------------------------------------------------------------------------


def _check_extensions(root: Element, package: Package) -> None:
    required = root.attributes.get("requiredextensions", "").split()
    recommended = root.attributes.get("recommendedextensions", "").split()
    for prefix in (*required, *recommended):
        if prefix not in root.prefixes:
            raise root.error(f"the prefix `{prefix}` of an extension is not declared")
    if twice := set(required) & set(recommended):
        raise root.error(f"the extension `{min(twice)}` is both required and recommended")
    for prefix in required:
        extension = family(root.prefixes[prefix])
        if extension in ("material", "slice"):
            package.warn(f"the file requires the {extension} extension, which is ignored", root.location)
        elif extension not in READ:
            raise root.error(
                "an extension that it requires is not supported",
                expected=", ".join(READ),
                found=root.prefixes[prefix][:120] if extension not in PASSED_OVER else extension,
            )


def _check_metadata(root: Element, group: Element) -> None:
    names: set[str] = set()
    for element in group.named("metadata"):
        name = element.attributes.get("name", "").strip()
        prefix, colon, _ = name.partition(":")
        if name in names:
            raise element.error(f"metadata `{name}` occurs twice")
        if colon and prefix not in root.prefixes:
            raise element.error(f"the prefix of metadata `{name}` is not declared")
        if not colon and name not in WELL_KNOWN_METADATA:
            raise element.error(f"no metadata `{name}`", expected=", ".join(WELL_KNOWN_METADATA), help="use a prefix")
        names.add(name)


def _check_build(root: Element, objects: dict[str, Element], is_start: bool) -> None:
    build = root.child("build")
    if build is None or not is_start:
        return
    for item in build.named("item"):
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
                    raise item.error(f"object {object_id} is of the type other, which is never built")
                continue
            members = [c for c in components.named("component") if not c.attribute("production", "path")]
            pending.extend(member.attributes.get("objectid", "").strip() for member in members)


def _check_production(root: Element, is_start: bool) -> None:
    required = root.attributes.get("requiredextensions", "").split()
    uses = any(family(root.prefixes.get(prefix, "")) == "production" for prefix in required)
    identifiers: set[str] = set()
    for element in root.descendants("build", "item", "object", "component"):
        identifier = element.attribute("production", "UUID")
        if identifier is None:
            if uses and (is_start or element.name != "build"):
                raise element.error("it has no UUID", help="files that require the production extension have one here")
        elif not _UUID.fullmatch(identifier):
            raise element.error("not a UUID", found=identifier[:60])
        elif identifier.lower() in identifiers:
            raise element.error("a UUID that occurs twice", found=identifier)
        else:
            identifiers.add(identifier.lower())
        path = element.attribute("production", "path")
        if path is not None and not (uses and is_start):
            message = "the model does not require the production extension" if is_start else "only the first model may"
            raise element.error(f"a path to another model: {message}")


# --- objects ----------------------------------------------------------------------------------------------------------


def _property_groups(resources: Element) -> dict[str, tuple[str, int]]:
    """The property groups of a model: kind and size by id."""
    groups: dict[str, tuple[str, int]] = {}
    for element in resources.children:
        if element.name in _GROUPS:
            groups[element.attributes.get("id", "").strip()] = (element.name, len(element.children))
        elif family(element.namespace) == "other" and "id" in element.attributes:
            groups[element.attributes["id"].strip()] = ("other", 1 << 31)
    return groups


def _check_property(element: Element, groups: dict[str, tuple[str, int]], pid: str, *indices: str | None) -> None:
    if pid.strip() not in groups:
        raise element.error(f"there are no properties {pid}")
    kind, size = groups[pid.strip()]
    for index in indices:
        if index is not None and int(index) >= size:
            raise element.error(f"property {index} of {size} in group {pid}")
    used = [index for index in indices if index is not None]
    if kind == "basematerials" and len(indices) > 1 and len({*used}) > 1:
        raise element.error("base materials make no gradients", found=", ".join(used))


def _check_object(element: Element, groups: dict[str, tuple[str, int]], seen: dict[str, Element]) -> None:
    pid, pindex = element.attributes.get("pid"), element.attributes.get("pindex")
    components, mesh = element.child("components"), element.child("mesh")
    if components is not None:
        if pid is not None or pindex is not None:
            raise element.error("an object of components has properties", help="its parts have theirs")
        for component in components.named("component"):
            object_id = component.attributes.get("objectid", "").strip()
            if object_id not in seen and not component.attribute("production", "path"):
                raise component.error(f"object {object_id} does not exist, or comes later")
    if pid is None and pindex is not None:
        raise element.error("attribute `pid` is missing beside `pindex`")
    if pid is not None:
        _check_property(element, groups, pid, pindex)
    triangles = None if mesh is None else mesh.child("triangles")
    if triangles is not None and triangles.row_properties:
        for triangle_pid, *indices in triangles.row_properties:
            if triangle_pid is None and not any(indices):
                continue
            if pid is None or pindex is None:
                raise element.error("its triangles have properties, but it has none", expected="`pid` and `pindex`")
            if (indices[1] is None) != (indices[2] is None):
                raise triangles.error("a triangle with some of its properties", expected="`p2` and `p3`")
            _check_property(triangles, groups, triangle_pid or pid, *indices)


def built_objects(resources: Mapping[int, Resource], items: Iterable[BuildItem]) -> set[int]:
    """The objects that are built, including those inside components."""
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
    """Why a mesh is invalid, or None."""
    if len(mesh.triangles) and (np.diff(np.sort(mesh.triangles, axis=1), axis=1) == 0).any():
        return "a triangle uses a vertex twice"
    return None


def solid_problem(mesh: TriangleMesh) -> str | None:
    """Why a mesh that should bound a solid does not, or None.

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
    """Why a function is not a field of position with this output, or None."""
    if function.inputs.get("pos") is not PortType.VECTOR:
        return f"function {function.id} has no vector input `pos`"
    type = function.outputs.get(channel)
    if type is None:
        return f"function {function.id} has no output `{channel}`"
    return None if type in types else f"output `{channel}` of function {function.id} is a {type.value}"


def _check_thumbnail(element: Element, conventions: Conventions, part: str) -> None:
    name = element.attributes.get("thumbnail")
    if name is not None and name not in conventions.pictures(part):
        raise element.error("a thumbnail that the model has no relationship to", found=name[:80])


# --- beam lattices ----------------------------------------------------------------------------------------------------


def _check_lattice(element: Element, groups: dict[str, tuple[str, int]], seen: dict[str, Element]) -> None:
    mesh = element.child("mesh")
    lattice = None if mesh is None else mesh.child("beamlattice")
    if lattice is None:
        return
    if element.attributes.get("type", "model") not in ("model", "solidsupport"):
        raise element.error("a beam lattice in an object that is not solid", found=element.attributes["type"])
    clipping = lattice.attributes.get("clippingmode", "none")
    if clipping != "none" and "clippingmesh" not in lattice.attributes:
        raise lattice.error(f"it is clipped {clipping} of a mesh, but has none", expected="`clippingmesh`")
    for role in ("clippingmesh", "representationmesh"):
        if role in lattice.attributes:
            _check_lattice_mesh(lattice, role, seen)
    _check_beams(lattice)
    _check_lattice_properties(element, lattice, groups)


def _check_lattice_properties(element: Element, lattice: Element, groups: dict[str, tuple[str, int]]) -> None:
    """Checks properties of beams and balls. They default to those of the lattice, or of its object."""
    holder = lattice if "pid" in lattice.attributes else element
    pid, pindex = holder.attributes.get("pid"), holder.attributes.get("pindex")
    if "pid" in lattice.attributes:
        _check_property(lattice, groups, lattice.attributes["pid"], lattice.attributes.get("pindex"))
    for each in lattice.descendants("beam", "ball"):
        own_pid, indices = each.attributes.get("pid"), [each.attributes.get(name) for name in ("p", "p1", "p2")]
        if own_pid is None and not any(indices):
            continue
        if pid is None or pindex is None:
            raise each.error("it has properties, but its lattice has none", expected="`pid` and `pindex`")
        _check_property(each, groups, own_pid or pid, *indices)


def _check_lattice_mesh(lattice: Element, role: str, seen: dict[str, Element]) -> None:
    mesh_id = lattice.attributes[role].strip()
    mesh = seen[mesh_id].child("mesh") if mesh_id in seen else None
    if (
        mesh is None
        or mesh.child("beamlattice") is not None
        or seen[mesh_id].attributes.get("type", "model") != "model"
    ):
        raise lattice.error(f"its {role} {mesh_id} is not a mesh of an earlier object of the type model")


def _check_beams(lattice: Element) -> None:
    beams = [beam for section in lattice.named("beams") for beam in section.named("beam")]
    ends: set[str] = set()
    for beam in beams:
        first, second = beam.attributes.get("v1", ""), beam.attributes.get("v2", "")
        if first == second:
            raise beam.error("a beam from a vertex to itself")
        if "r2" in beam.attributes and "r1" not in beam.attributes:
            raise beam.error("a second radius without a first")
        ends.update((first, second))
    mode = lattice.attributes.get("ballmode", lattice.attribute("beamlattice", "ballmode"))
    mode = "none" if mode is None else mode
    if mode not in ("none", "mixed", "all"):
        raise lattice.error("unknown ball mode", expected="none, mixed, all", found=mode[:40])
    radius = lattice.attributes.get("ballradius", lattice.attribute("beamlattice", "ballradius"))
    if mode != "none" and radius is None:
        raise lattice.error("balls without a radius", expected="`ballradius`")
    numbers = {name: lattice.attributes.get(name) for name in ("radius", "minlength")}
    for name, value in {**numbers, "ballradius": radius}.items():
        if value is not None and not _is_positive(value):
            raise lattice.error(f"attribute `{name}` is not a positive number", found=repr(value)[:40])
    balls = [ball for section in lattice.named("balls") for ball in section.named("ball")]
    for ball in balls:
        if ball.attributes.get("vindex", "") not in ends:
            raise ball.error("a ball at a vertex without a beam")
    _check_sets(lattice, {"ref": len(beams), "ballref": len(balls)})


def _is_positive(text: str) -> bool:
    return re.fullmatch(NUMBER, text.strip()) is not None and 0.0 < float(text) < math.inf


def _check_sets(lattice: Element, sizes: dict[str, int]) -> None:
    identifiers: set[str] = set()
    for group in (group for section in lattice.named("beamsets") for group in section.named("beamset")):
        identifier = group.attributes.get("identifier")
        if identifier is not None and identifier in identifiers:
            raise group.error(f"a second set `{identifier}`")
        identifiers.add(identifier or "")
        for child in group.children:
            if int(child.attributes.get("index", "0")) >= sizes.get(child.name, 1 << 31):
                raise child.error("it refers to something that does not exist", found=child.attributes.get("index", ""))
