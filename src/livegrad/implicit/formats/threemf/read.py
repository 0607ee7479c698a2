"""Reads 3MF files. In: a package. Out: an `Assembly` with its functions, resources and build items."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from livegrad.diagnostics import warn_caller
from livegrad.implicit.formats.errors import FormatError, FormatWarning
from livegrad.implicit.formats.package import Limits, Package
from livegrad.implicit.formats.threemf.merge import LENGTHS, renumber_function, renumber_resource, scaled_transform
from livegrad.implicit.formats.threemf.namespaces import CORE, MODEL_RELATIONSHIP, UNITS, family
from livegrad.implicit.formats.threemf.opc import Conventions
from livegrad.implicit.formats.threemf.positions import POSITIONS, with_positions
from livegrad.implicit.formats.threemf.read_functions import read_image_function, read_implicit_function
from livegrad.implicit.formats.threemf.read_resources import (
    read_image_stack,
    read_object,
    read_thumbnail,
    read_transform,
    read_volume_data,
    resource_number,
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
from livegrad.implicit.nodes.used_part import problems_in_the_way


def load_3mf(path: str | os.PathLike[str], *, check: bool = True, limits: Limits | None = None) -> Assembly:
    """Reads an assembly from a 3MF file.

    With `check`, a file that violates the specifications is an error, and so is a needed graph that cannot run (cyclic,
    incomplete, or with mismatched types). Without it, everything that can be read is read, and `problems()` of the
    assembly reports invalid graphs. Materials, textures, slices and toolpaths are not read. `limits` bounds the
    resources that a file may use. Content that is read although it is invalid gives a `FormatWarning`.

    >>> import tempfile, os
    >>> from livegrad.implicit.formats.threemf.write import save_3mf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_3mf(Assembly(), os.path.join(folder, "empty.3mf"))
    ...     load_3mf(os.path.join(folder, "empty.3mf")) == Assembly()
    True
    """
    assembly, notes = open_3mf(path, conforming=check, limits=limits)
    for note in notes:
        warn_caller(note, FormatWarning)
    problems = problems_in_the_way(assembly) if check else ()
    if problems:
        listed = "; ".join(map(str, problems[:3])) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise FormatError(f"`{Path(path).name}` has graphs that cannot run: {listed}", help="load it with check=False")
    return assembly


def open_3mf(
    path: str | os.PathLike[str], *, conforming: bool = True, limits: Limits | None = None
) -> tuple[Assembly, list[str]]:
    """The assembly in a 3MF file, whatever its graphs are like, and what a reader should be warned of."""
    with Package(path, limits or Limits()) as package:
        assembly = _Reader(package, Conventions(package), conforming).read()
        return assembly, package.warnings


@dataclass
class _Model:
    """One model part: what it defines, under its own ids."""

    root: Element
    unit: str
    functions: dict[int, AnyFunction] = field(default_factory=dict)
    resources: dict[int, Resource] = field(default_factory=dict)
    objects: dict[int, Element] = field(default_factory=dict)  # where they stand
    other: set[int] = field(default_factory=set)  # ids of resources that are not read: materials, colours, textures


class _Reader:
    """Collects what the models of a package say; those that the first refers to are renumbered into it."""

    def __init__(self, package: Package, conventions: Conventions, conforming: bool) -> None:
        self.package = package
        self.conventions = conventions
        self.conforming = conforming
        self.start = conventions.start_part()
        self.models: dict[str, _Model] = {}
        self.roots: dict[str, Element] = {}
        self.ids: dict[str, dict[int, int]] = {}  # of other models: new ids by part, then by their own
        self.next_id = 1

    def read(self) -> Assembly:
        model = self._open(self.start)
        ids = [e.attributes.get("id", "") for section in model.root.named("resources") for e in section.children]
        self.next_id = max([int(text) for text in ids if text.strip().isdecimal() and len(text) <= 10], default=0) + 1
        self._resources(model, self._object_id)
        items = tuple(self._item(model, item) for build in model.root.named("build") for item in build.named("item"))
        self._merge_others(model)
        _require_references(model, self.package.name)
        if self.conforming:
            _require_solids(model, items)
            _require_fields(model)
        return self._assembly(model, items)

    def _assembly(self, model: _Model, items: tuple[BuildItem, ...]) -> Assembly:
        metadata = tuple((e.attributes.get("name", ""), e.text) for e in model.root.named("metadata"))
        positions = [text for name, text in metadata if name == POSITIONS]
        functions = with_positions(model.functions, positions[0], self.package.name) if positions else model.functions
        kept = tuple(entry for entry in metadata if entry[0] != POSITIONS)
        names = [name for name, _ in kept]
        for resource in model.resources.values():
            names += [c.name for c in resource.channels] if isinstance(resource, VolumeData) else []
        used = dict.fromkeys(name.partition(":")[0] for name in names if ":" in name)
        prefixes = tuple((prefix, model.root.prefixes[prefix]) for prefix in used if prefix in model.root.prefixes)
        thumbnail = self.conventions.thumbnail("")
        picture = None if thumbnail is None else read_thumbnail(self.package, thumbnail)
        return Assembly(functions, model.resources, items, Document(model.unit, kept, picture, prefixes))

    # --- model parts --------------------------------------------------------------------------------------------------

    def _open(self, part: str) -> _Model:
        root = self._root(part)
        known = root.namespace == CORE or (not self.conforming and family(root.namespace) == "core")
        if root.name != "model" or not known:
            found = f"<{root.name}> of the namespace {root.namespace[:120] or 'none'}"
            raise root.error("not a 3MF model", expected=f"<model> of the namespace {CORE}", found=found)
        unit = root.attributes.get("unit", "millimeter")
        if unit not in UNITS:
            raise root.error("unknown unit", expected=", ".join(UNITS), found=unit)
        if self.conforming:
            check_schema(root)
            check_model(root, self.conventions, part, self._root, is_start=part == self.start)
        return self.models.setdefault(part, _Model(root, unit))

    def _root(self, part: str) -> Element:
        if part not in self.roots:
            file = self.package.name
            if part != self.start:
                file = f"{part.rpartition('/')[2]} in {file}"
            self.roots[part] = parse_xml(self.package.read(part), file, self.package.limits)
        return self.roots[part]

    def _merge_others(self, model: _Model) -> None:
        """Objects of other model parts that the first refers to, with all that those parts define."""
        for part, ids in self.ids.items():
            other = self.models[part]
            self._resources(other, lambda element: resource_number(element, "objectid"))
            for number in list(ids):
                if not isinstance(other.resources.get(number), TriangleMesh | BeamLattice | LevelSet | Components):
                    raise other.root.error(f"object {number} does not exist")
            for number in (*other.functions, *other.resources):
                self._new_id(part, number)
            _require_references(other, f"{self.package.name}{part}")
            for function in other.functions.values():
                model.functions[ids[function.id]] = renumber_function(function, ids)
            for number, resource in other.resources.items():
                model.resources[ids[number]] = renumber_resource(resource, ids)
            model.objects.update((ids[number], element) for number, element in other.objects.items())

    def _new_id(self, part: str, number: int) -> int:
        ids = self.ids.setdefault(part, {})
        if number not in ids:
            ids[number] = self.next_id
            self.next_id += 1
        return ids[number]

    def _object_id(self, element: Element) -> int:
        """The object that a component or item names: by its id, or by the path of another model and its id there."""
        number, path = resource_number(element, "objectid"), element.attribute("production", "path")
        if path is None:
            return number
        if path not in self.models:
            related = [r.target for r in self.conventions.related(self.start) if r.type == MODEL_RELATIONSHIP]
            if path == self.start or path not in related:
                raise element.error("a path to a model that this one has no relationship to", found=path[:80])
            self.conventions.require_model(path)
            self._open(path)
        return self._new_id(path, number)

    def _transform(self, element: Element) -> tuple[float, ...]:
        """The transform of a component or item; another model may have another unit."""
        transform, path = read_transform(element), element.attribute("production", "path")
        if path is None or path not in self.models:
            return transform
        factor = LENGTHS[self.models[path].unit] / LENGTHS[self.models[self.start].unit]
        return transform if factor == 1.0 else scaled_transform(transform, factor)

    # --- resources ----------------------------------------------------------------------------------------------------

    def _resources(self, model: _Model, object_id: Callable[[Element], int]) -> None:
        for section in model.root.named("resources"):
            for element in section.children:
                self._resource(model, element, object_id)

    def _resource(self, model: _Model, element: Element, object_id: Callable[[Element], int]) -> None:
        number = resource_number(element, "id")
        if number in model.functions or number in model.resources or number in model.other:
            raise element.error(f"resource id {number} is used twice")
        match (family(element.namespace), element.name):
            case ("implicit" | "volumetric", "implicitfunction") | ("implicit", "function"):
                model.functions[number] = read_implicit_function(element, number)
            case ("implicit" | "volumetric", "functionfromimage3d"):
                model.functions[number] = read_image_function(element, number)
            case ("volumetric", "image3d"):
                model.resources[number] = read_image_stack(element, self.package)
            case ("volumetric", "volumedata"):
                model.resources[number] = read_volume_data(element)
            case ("core", "object"):
                model.resources[number] = self._object(element, object_id)
                model.objects[number] = element
            case _:
                model.other.add(number)

    def _object(self, element: Element, object_id: Callable[[Element], int]) -> Resource:
        try:
            read = read_object(element, self.package, lambda member: (object_id(member), self._transform(member)))
        except AssemblyError as error:
            raise element.error(error.what) from None
        if self.conforming and isinstance(read, TriangleMesh) and (problem := mesh_problem(read)) is not None:
            raise element.error(problem)
        return read

    def _item(self, model: _Model, item: Element) -> BuildItem:
        number = self._object_id(item)
        is_here = item.attribute("production", "path") is None
        found = model.resources.get(number)
        if is_here and not isinstance(found, TriangleMesh | BeamLattice | LevelSet | Components):
            raise item.error(f"object {number} does not exist")
        return BuildItem(number, self._transform(item), item.attributes.get("partnumber", ""))


def _require_solids(model: _Model, items: tuple[BuildItem, ...]) -> None:
    """What is built must be a body. Meshes that only bound or clip others need not be: files in use have such."""
    for number in built_objects(model.resources, items):
        mesh, element = model.resources[number], model.objects[number]
        if element.attribute("slice", "slicestackid") is not None:
            continue  # its slices say what it is
        if isinstance(mesh, TriangleMesh) and (problem := solid_problem(mesh)) is not None:
            raise element.error(problem, help="load it with check=False, or make the object one of the type surface")


def _require_fields(model: _Model) -> None:
    """A body is a scalar of a position; so is what is known inside of it, but for a colour, which is a vector."""
    for number, element in model.objects.items():
        level_set = model.resources[number]
        if isinstance(level_set, LevelSet):
            problem = field_problem(model.functions[level_set.function], level_set.channel, (PortType.SCALAR,))
            if problem is not None:
                raise element.error(problem)
    for number, resource in model.resources.items():
        for channel in resource.channels if isinstance(resource, VolumeData) else ():
            wanted = {"color": (PortType.VECTOR,), "material": (PortType.SCALAR,)}.get(channel.kind, tuple(PortType))
            problem = field_problem(model.functions[channel.function], channel.channel, wanted)
            if problem is not None:
                raise model.root.error(f"volume data {number}: {problem}")


def _require_references(model: _Model, name: str) -> None:
    """Every resource that a resource names must be there; what functions name is checked with the graphs."""
    for number, resource in model.resources.items():
        for role, named, wanted in _references(resource):
            found = model.functions.get(named) if wanted is None else model.resources.get(named)
            if found is None or (wanted is not None and not isinstance(found, wanted)):
                raise FormatError(f"resource {number} of `{name}` names {role} {named}, which does not exist")
    _require_acyclic_components(model, name)


def _require_acyclic_components(model: _Model, name: str) -> None:
    state: dict[int, bool] = {}
    for root in model.resources:
        pending = [root]
        while pending:
            number = pending[-1]
            resource = model.resources.get(number)
            if state.get(number) or not isinstance(resource, Components):
                pending.pop()
            elif number in state:
                state[number] = True
                pending.pop()
            else:
                state[number] = False
                inner = [member for member, _ in resource.members if not state.get(member)]
                if any(state.get(member) is False for member in inner):
                    raise FormatError(f"object {number} of `{name}` contains itself")
                pending.extend(inner)


def _references(resource: Resource) -> list[tuple[str, int, tuple[type, ...] | None]]:
    """What a resource names: a role, an id, and the types that it may have (None: a function)."""
    match resource:
        case LevelSet():
            found: list[tuple[str, int, tuple[type, ...] | None]] = [("function", resource.function, None)]
            found.append(("mesh", resource.mesh, (TriangleMesh,)))
            if resource.volume_data is not None:
                found.append(("volume data", resource.volume_data, (VolumeData,)))
            return found
        case VolumeData():
            return [("function", channel.function, None) for channel in resource.channels]
        case Components():
            return [("object", n, (TriangleMesh, BeamLattice, LevelSet, Components)) for n, _ in resource.members]
        case TriangleMesh(volume_data=int() as volume):
            return [("volume data", volume, (VolumeData,))]
        case BeamLattice():
            named = (("clipping mesh", resource.clipping_mesh), ("representation mesh", resource.representation_mesh))
            return [(role, number, (TriangleMesh,)) for role, number in named if number is not None]
        case ImageStack() | TriangleMesh():
            return []
    return []
