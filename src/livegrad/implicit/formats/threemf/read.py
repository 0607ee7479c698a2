"""Reads 3MF packages to assemblies: functions, resources and build items.

`load_3mf` is public. Model parts are validated, read, and merged into one assembly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from livegrad.diagnostics import warn_caller
from livegrad.implicit.formats.errors import FormatError, FormatWarning
from livegrad.implicit.formats.package import Limits, Package
from livegrad.implicit.formats.threemf.livegrad_metadata import (
    CONTROLS,
    PARAMETERS,
    POSITIONS,
    apply_positions,
    read_controls,
    read_parameters,
)
from livegrad.implicit.formats.threemf.merge import LENGTHS, renumber_function, renumber_resource, scale_transform
from livegrad.implicit.formats.threemf.namespaces import CORE, MODEL_RELATIONSHIP, UNITS, vocabulary_of
from livegrad.implicit.formats.threemf.opc import Conventions
from livegrad.implicit.formats.threemf.read_functions import read_image_function, read_implicit_function
from livegrad.implicit.formats.threemf.read_resources import (
    parse_resource_id,
    read_image_stack,
    read_object,
    read_thumbnail,
    read_transform,
    read_volume_data,
)
from livegrad.implicit.formats.threemf.rules import (
    built_objects,
    check_model,
    field_problem,
    mesh_problem,
    solid_problem,
)
from livegrad.implicit.formats.threemf.schema import check_schema
from livegrad.implicit.formats.xml_tree import Element, parse_xml
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.dead_code import blocking_problems
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.node_graph import AnyFunction
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import (
    BeamLattice,
    BuildItem,
    Components,
    Document,
    ImageStack,
    LevelSet,
    Resource,
    TriangleMesh,
    VolumeData,
)


def load_3mf(path: str | os.PathLike[str], *, check: bool = True, limits: Limits | None = None) -> Assembly:
    """Reads an assembly from a 3MF file.

    With `check`, a file that violates the specifications is an error, and so is a graph that the build needs but that
    cannot run (cyclic, incomplete, or with mismatched types). Without it, everything readable is read, and `problems()`
    of the assembly reports invalid graphs. Materials, textures, slices and toolpaths are ignored. `limits` bounds the
    memory that a file may use. Content that is read although it is invalid causes a `FormatWarning`.

    >>> import tempfile, os
    >>> from livegrad.implicit.formats.threemf.write import save_3mf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_3mf(Assembly(), os.path.join(folder, "empty.3mf"))
    ...     load_3mf(os.path.join(folder, "empty.3mf")) == Assembly()
    True
    """
    assembly, warnings = open_3mf(path, conforming=check, limits=limits)
    for warning in warnings:
        warn_caller(warning, FormatWarning)
    problems = blocking_problems(assembly) if check else ()
    if problems:
        summary = "; ".join(map(str, problems[:3])) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise FormatError(f"`{Path(path).name}` has graphs that cannot run: {summary}", help="load it with check=False")
    return assembly


def open_3mf(
    path: str | os.PathLike[str], *, conforming: bool = True, limits: Limits | None = None
) -> tuple[Assembly, list[str]]:
    """Reads an assembly from a 3MF file, even if its graphs are invalid; also returns warnings."""
    with Package(path, limits or Limits()) as package:
        assembly = _Reader(package, Conventions(package), conforming).read()
        return assembly, package.warnings


@dataclass
class _Model:
    """A model part: its definitions, under its own ids."""

    root: Element
    unit: str
    functions: dict[int, AnyFunction] = field(default_factory=dict)
    resources: dict[int, Resource] = field(default_factory=dict)
    objects: dict[int, Element] = field(default_factory=dict)  # the XML elements of objects
    ignored: set[int] = field(default_factory=set)  # ids of ignored resources: materials, colours, textures


class _Reader:
    """Reads the models of a package. Models that the root model refers to are merged into it with new ids."""

    def __init__(self, package: Package, conventions: Conventions, conforming: bool) -> None:
        self.package = package
        self.conventions = conventions
        self.conforming = conforming
        self.start = conventions.start_part()
        self.models: dict[str, _Model] = {}
        self.roots: dict[str, Element] = {}
        self.ids: dict[str, dict[int, int]] = {}  # of other models: new ids, by part and old id
        self.next_id = 1

    def read(self) -> Assembly:
        model = self._open_model(self.start)
        ids = [
            e.attributes.get("id", "") for section in model.root.children_named("resources") for e in section.children
        ]
        self.next_id = max([int(text) for text in ids if text.strip().isdecimal() and len(text) <= 10], default=0) + 1
        self._read_resources(model, self._resolve_object_id)
        items = tuple(
            self._read_item(model, item)
            for build in model.root.children_named("build")
            for item in build.children_named("item")
        )
        self._merge_models(model)
        _require_references(model, self.package.name)
        if self.conforming:
            _require_solids(model, items)
            _require_fields(model)
        return self._build_assembly(model, items)

    def _build_assembly(self, model: _Model, items: tuple[BuildItem, ...]) -> Assembly:
        metadata = tuple((e.attributes.get("name", ""), e.text) for e in model.root.children_named("metadata"))
        positions = [text for name, text in metadata if name == POSITIONS]
        functions = apply_positions(model.functions, positions[0], self.package.name) if positions else model.functions
        parameter_texts = [text for name, text in metadata if name == PARAMETERS]
        parameters = read_parameters(parameter_texts[0], self.package.name) if parameter_texts else ()
        control_texts = [text for name, text in metadata if name == CONTROLS]
        controls = read_controls(control_texts[0], self.package.name) if control_texts else ()
        user_metadata = tuple(entry for entry in metadata if entry[0] not in (POSITIONS, PARAMETERS, CONTROLS))
        names = [name for name, _ in user_metadata]
        for resource in model.resources.values():
            names += [c.name for c in resource.channels] if isinstance(resource, VolumeData) else []
        used = dict.fromkeys(name.partition(":")[0] for name in names if ":" in name)
        prefixes = tuple((prefix, model.root.prefixes[prefix]) for prefix in used if prefix in model.root.prefixes)
        thumbnail = self.conventions.thumbnail("")
        thumbnail_data = None if thumbnail is None else read_thumbnail(self.package, thumbnail)
        document = Document(model.unit, user_metadata, thumbnail_data, prefixes, parameters, controls)
        return Assembly(functions, model.resources, items, document)

    # --- model parts --------------------------------------------------------------------------------------------------

    def _open_model(self, part: str) -> _Model:
        root = self._read_root(part)
        is_core = root.namespace == CORE or (not self.conforming and vocabulary_of(root.namespace) == "core")
        if root.name != "model" or not is_core:
            description = f"<{root.name}> of the namespace {root.namespace[:120] or 'none'}"
            raise root.error("not a 3MF model", expected=f"<model> of the namespace {CORE}", found=description)
        unit = root.attributes.get("unit", "millimeter")
        if unit not in UNITS:
            raise root.error("unknown unit", expected=", ".join(UNITS), found=unit)
        if self.conforming:
            check_schema(root)
            check_model(root, self.conventions, part, self._read_root, is_start=part == self.start)
        return self.models.setdefault(part, _Model(root, unit))

    def _read_root(self, part: str) -> Element:
        if part not in self.roots:
            file = self.package.name
            if part != self.start:
                file = f"{part.rpartition('/')[2]} in {file}"
            self.roots[part] = parse_xml(self.package.read(part), file, self.package.limits)
        return self.roots[part]

    def _merge_models(self, model: _Model) -> None:
        """Merges the model parts that the root model refers to, with all their definitions."""
        for part, ids in self.ids.items():
            source = self.models[part]
            self._read_resources(source, lambda element: parse_resource_id(element, "objectid"))
            for resource_id in list(ids):
                if not isinstance(
                    source.resources.get(resource_id), TriangleMesh | BeamLattice | LevelSet | Components
                ):
                    raise source.root.error(f"object {resource_id} does not exist")
            for resource_id in (*source.functions, *source.resources):
                self._renumber(part, resource_id)
            _require_references(source, f"{self.package.name}{part}")
            for function in source.functions.values():
                model.functions[ids[function.id]] = renumber_function(function, ids)
            for resource_id, resource in source.resources.items():
                model.resources[ids[resource_id]] = renumber_resource(resource, ids)
            model.objects.update((ids[resource_id], element) for resource_id, element in source.objects.items())

    def _renumber(self, part: str, old_id: int) -> int:
        ids = self.ids.setdefault(part, {})
        if old_id not in ids:
            ids[old_id] = self.next_id
            self.next_id += 1
        return ids[old_id]

    def _resolve_object_id(self, element: Element) -> int:
        """The id of the object of a component or item, which may be in another model, given by a path."""
        object_id, path = parse_resource_id(element, "objectid"), element.attribute("production", "path")
        if path is None:
            return object_id
        if path not in self.models:
            related = [r.target for r in self.conventions.relationships_of(self.start) if r.type == MODEL_RELATIONSHIP]
            if path == self.start or path not in related:
                raise element.error("the model has no relationship to this path", found=path[:80])
            self.conventions.require_model(path)
            self._open_model(path)
        return self._renumber(path, object_id)

    def _read_transform(self, element: Element) -> tuple[float, ...]:
        """The transform of a component or item, scaled if its object is in a model with another unit."""
        transform, path = read_transform(element), element.attribute("production", "path")
        if path is None or path not in self.models:
            return transform
        factor = LENGTHS[self.models[path].unit] / LENGTHS[self.models[self.start].unit]
        return transform if factor == 1.0 else scale_transform(transform, factor)

    # --- resources ----------------------------------------------------------------------------------------------------

    def _read_resources(self, model: _Model, object_id: Callable[[Element], int]) -> None:
        for section in model.root.children_named("resources"):
            for element in section.children:
                self._read_resource(model, element, object_id)

    def _read_resource(self, model: _Model, element: Element, object_id: Callable[[Element], int]) -> None:
        resource_id = parse_resource_id(element, "id")
        if resource_id in model.functions or resource_id in model.resources or resource_id in model.ignored:
            raise element.error(f"resource id {resource_id} is not unique")
        match (vocabulary_of(element.namespace), element.name):
            case ("implicit" | "volumetric", "implicitfunction") | ("implicit", "function"):
                model.functions[resource_id] = read_implicit_function(element, resource_id)
            case ("implicit" | "volumetric", "functionfromimage3d"):
                model.functions[resource_id] = read_image_function(element, resource_id)
            case ("volumetric", "image3d"):
                model.resources[resource_id] = read_image_stack(element, self.package)
            case ("volumetric", "volumedata"):
                model.resources[resource_id] = read_volume_data(element)
            case ("core", "object"):
                model.resources[resource_id] = self._read_object(element, object_id)
                model.objects[resource_id] = element
            case _:
                model.ignored.add(resource_id)

    def _read_object(self, element: Element, object_id: Callable[[Element], int]) -> Resource:
        try:
            resource = read_object(
                element, self.package, lambda member: (object_id(member), self._read_transform(member))
            )
        except AssemblyError as error:
            raise element.error(error.what) from None
        if self.conforming and isinstance(resource, TriangleMesh) and (problem := mesh_problem(resource)) is not None:
            raise element.error(problem)
        return resource

    def _read_item(self, model: _Model, item: Element) -> BuildItem:
        object_id = self._resolve_object_id(item)
        is_here = item.attribute("production", "path") is None
        resource = model.resources.get(object_id)
        if is_here and not isinstance(resource, TriangleMesh | BeamLattice | LevelSet | Components):
            raise item.error(f"object {object_id} does not exist")
        return BuildItem(object_id, self._read_transform(item), item.attributes.get("partnumber", ""))


def _require_solids(model: _Model, items: tuple[BuildItem, ...]) -> None:
    """Raises unless the meshes that build items use are solids. Meshes that only bound or clip others need not be."""
    for object_id in built_objects(model.resources, items):
        mesh, element = model.resources[object_id], model.objects[object_id]
        if element.attribute("slice", "slicestackid") is not None:
            continue  # slices define it
        if isinstance(mesh, TriangleMesh) and (problem := solid_problem(mesh)) is not None:
            raise element.error(problem, help="load it with check=False, or change the type of the object to surface")


def _require_fields(model: _Model) -> None:
    """Raises unless fields are functions of position: scalars for bodies and materials, vectors for colours."""
    for resource_id, element in model.objects.items():
        level_set = model.resources[resource_id]
        if isinstance(level_set, LevelSet):
            problem = field_problem(model.functions[level_set.function], level_set.channel, (PortType.SCALAR,))
            if problem is not None:
                raise element.error(problem)
    for resource_id, resource in model.resources.items():
        for channel in resource.channels if isinstance(resource, VolumeData) else ():
            types = {"color": (PortType.VECTOR,), "material": (PortType.SCALAR,)}.get(channel.kind, tuple(PortType))
            problem = field_problem(model.functions[channel.function], channel.channel, types)
            if problem is not None:
                raise model.root.error(f"volume data {resource_id}: {problem}")


def _require_references(model: _Model, name: str) -> None:
    """Raises if a resource refers to something that does not exist. Graphs are validated later."""
    for resource_id, resource in model.resources.items():
        for role, target_id, types in _references(resource):
            target = model.functions.get(target_id) if types is None else model.resources.get(target_id)
            if target is None or (types is not None and not isinstance(target, types)):
                raise FormatError(
                    f"resource {resource_id} of `{name}` refers to {role} {target_id}, which does not exist"
                )
    _require_acyclic_components(model, name)


def _require_acyclic_components(model: _Model, name: str) -> None:
    state: dict[int, bool] = {}
    for root in model.resources:
        pending = [root]
        while pending:
            object_id = pending[-1]
            resource = model.resources.get(object_id)
            if state.get(object_id) or not isinstance(resource, Components):
                pending.pop()
            elif object_id in state:
                state[object_id] = True
                pending.pop()
            else:
                state[object_id] = False
                inner = [member for member, _ in resource.members if not state.get(member)]
                if any(state.get(member) is False for member in inner):
                    raise FormatError(f"object {object_id} of `{name}` contains itself")
                pending.extend(inner)


def _references(resource: Resource) -> list[tuple[str, int, tuple[type, ...] | None]]:
    """The references of a resource: role, id, and the allowed types (None: a function)."""
    match resource:
        case LevelSet():
            references: list[tuple[str, int, tuple[type, ...] | None]] = [("function", resource.function, None)]
            references.append(("mesh", resource.mesh, (TriangleMesh,)))
            if resource.volume_data is not None:
                references.append(("volume data", resource.volume_data, (VolumeData,)))
            return references
        case VolumeData():
            return [("function", channel.function, None) for channel in resource.channels]
        case Components():
            return [("object", n, (TriangleMesh, BeamLattice, LevelSet, Components)) for n, _ in resource.members]
        case TriangleMesh(volume_data=int() as volume):
            return [("volume data", volume, (VolumeData,))]
        case BeamLattice():
            meshes = (("clipping mesh", resource.clipping_mesh), ("representation mesh", resource.representation_mesh))
            return [(role, mesh_id, (TriangleMesh,)) for role, mesh_id in meshes if mesh_id is not None]
        case ImageStack() | TriangleMesh():
            return []
    return []
