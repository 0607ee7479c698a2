"""Reads 3MF files: a package comes in, an `Assembly` with its functions, resources and build items goes out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

from livegrad.authoring.assembly.assembly import Assembly
from livegrad.authoring.assembly.checks import problems_in_the_way
from livegrad.authoring.assembly.graph import AnyFunction
from livegrad.authoring.assembly.resources import (
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
from livegrad.formats.errors import FormatError, FormatWarning
from livegrad.formats.package import Limits, Package
from livegrad.formats.threemf.names import MODEL_PART, MODEL_RELATIONSHIP, UNITS, family
from livegrad.formats.threemf.positions import POSITIONS, with_positions
from livegrad.formats.threemf.read_functions import read_image_function, read_implicit_function
from livegrad.formats.threemf.read_resources import (
    read_image_stack,
    read_object,
    read_transform,
    read_volume_data,
    resource_number,
)
from livegrad.formats.xml_tree import Element, parse_xml


def load_3mf(path: str | os.PathLike[str], *, check: bool = True, limits: Limits | None = None) -> Assembly:
    """The assembly in a 3MF file.

    With `check` a graph that cannot run (cyclic, incomplete, of mismatched types) is refused; without, `problems()` of
    the assembly tells. Materials, textures, slices and toolpaths are not read. `limits` bounds what a file may ask for.

    >>> import tempfile, os
    >>> from livegrad.formats.threemf.write import save_3mf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_3mf(Assembly(), os.path.join(folder, "empty.3mf"))
    ...     load_3mf(os.path.join(folder, "empty.3mf")) == Assembly()
    True
    """
    with Package(path, limits or Limits()) as package:
        model_part = _model_part(package)
        root = parse_xml(package.read(model_part), package.name, package.limits)
        if root.name != "model" or family(root.namespace) not in ("core", "other"):
            raise root.error("not a 3MF model")
        assembly = _Reader(package).read(root)
    for warning in package.warnings:
        warnings.warn(warning, FormatWarning, stacklevel=2)
    problems = problems_in_the_way(assembly) if check else ()
    if problems:
        listed = "; ".join(map(str, problems[:3])) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise FormatError(f"`{package.name}` has graphs that cannot run: {listed}", help="load it with check=False")
    return assembly


def _model_part(package: Package) -> str:
    """The model's part, as the package's relationships name it."""
    if package.has("_rels/.rels"):
        root = parse_xml(package.read("_rels/.rels"), f"{package.name}/_rels/.rels", package.limits)
        for relation in root.named("Relationship"):
            if relation.attributes.get("Type") == MODEL_RELATIONSHIP:
                return relation.require("Target")
    if package.has(MODEL_PART):
        return MODEL_PART
    raise FormatError(f"`{package.name}` has no 3D model")


class _Reader:
    """Collects what the model's elements say."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.functions: dict[int, AnyFunction] = {}
        self.resources: dict[int, Resource] = {}
        self.other: set[int] = set()  # ids of resources that are not read: materials, colours, textures

    def read(self, root: Element) -> Assembly:
        unit = root.attributes.get("unit", "millimeter")
        if unit not in UNITS:
            raise root.error("unknown unit", expected=", ".join(UNITS), found=unit)
        metadata = tuple((e.attributes.get("name", ""), e.text) for e in root.named("metadata"))
        for section in root.named("resources"):
            for element in section.children:
                self._resource(element)
        items = tuple(self._item(item) for build in root.named("build") for item in build.named("item"))
        self._require_references()
        positions = [text for name, text in metadata if name == POSITIONS]
        functions = with_positions(self.functions, positions[0], self.package.name) if positions else self.functions
        others = tuple(entry for entry in metadata if entry[0] != POSITIONS)
        return Assembly(functions, self.resources, items, Document(unit, others))

    def _resource(self, element: Element) -> None:
        kind = (family(element.namespace), element.name)
        readers: dict[tuple[str, str], Callable[[Element, int], None]] = {
            ("implicit", "implicitfunction"): self._implicit,
            ("volumetric", "implicitfunction"): self._implicit,
            ("implicit", "function"): self._implicit,
            ("volumetric", "functionfromimage3d"): self._image_function,
            ("implicit", "functionfromimage3d"): self._image_function,
            ("volumetric", "image3d"): self._image,
            ("volumetric", "volumedata"): self._volume,
            ("core", "object"): self._object,
        }
        number = resource_number(element, "id")
        if number in self.functions or number in self.resources or number in self.other:
            raise element.error(f"resource id {number} is used twice")
        reader = readers.get(kind)
        if reader is None:
            self.other.add(number)
        else:
            reader(element, number)

    def _implicit(self, element: Element, number: int) -> None:
        self.functions[number] = read_implicit_function(element, number)

    def _image_function(self, element: Element, number: int) -> None:
        self.functions[number] = read_image_function(element, number)

    def _image(self, element: Element, number: int) -> None:
        self.resources[number] = read_image_stack(element, self.package)

    def _volume(self, element: Element, number: int) -> None:
        self.resources[number] = read_volume_data(element)

    def _object(self, element: Element, number: int) -> None:
        self.resources[number] = read_object(element)

    def _item(self, item: Element) -> BuildItem:
        number = resource_number(item, "objectid")
        if not isinstance(self.resources.get(number), TriangleMesh | BeamLattice | LevelSet | Components):
            raise item.error(f"object {number} is not there")
        return BuildItem(number, read_transform(item), item.attributes.get("partnumber", ""))

    def _require_references(self) -> None:
        """Every resource that a resource names must be there; what functions name is checked with the graphs."""
        for number, resource in self.resources.items():
            for role, named, wanted in _references(resource):
                found = self.functions.get(named) if wanted is None else self.resources.get(named)
                if found is None or (wanted is not None and not isinstance(found, wanted)):
                    raise FormatError(f"resource {number} of `{self.package.name}` names {role} {named}, not there")
        self._require_acyclic_components()

    def _require_acyclic_components(self) -> None:
        state: dict[int, bool] = {}
        for root in self.resources:
            pending = [root]
            while pending:
                number = pending[-1]
                resource = self.resources.get(number)
                if state.get(number) or not isinstance(resource, Components):
                    pending.pop()
                elif number in state:
                    state[number] = True
                    pending.pop()
                else:
                    state[number] = False
                    inner = [member for member, _ in resource.members if not state.get(member)]
                    if any(state.get(member) is False for member in inner):
                        raise FormatError(f"object {number} of `{self.package.name}` contains itself")
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
        case ImageStack() | TriangleMesh() | BeamLattice():
            return []
    return []
