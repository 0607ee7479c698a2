"""Validates materials and slices. The reader ignores them, but other readers of the file do not.

`rules.check_model` calls these functions for each model part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from livegrad.implicit.formats.threemf.namespaces import MODEL_RELATIONSHIP, TEXTURE_RELATIONSHIP, vocabulary_of
from livegrad.implicit.formats.threemf.opc import Conventions
from livegrad.implicit.formats.xml_tree import Element

_MATERIALS = ("basematerials", "compositematerials")


def check_materials(resources: Element, conventions: Conventions, part: str) -> None:
    """Raises at the first texture, image sheet or property group with an invalid reference or combination."""
    textures = {r.target for r in conventions.relationships_of(part) if r.type == TEXTURE_RELATIONSHIP}
    for sheet in resources.descendants("imagesheet"):
        if sheet.attributes.get("path") not in textures:
            raise sheet.error("the model has no relationship to the sheet", found=sheet.attributes["path"][:80])
    earlier: dict[str, Element] = {}
    for element in resources.children:
        match element.name:
            case "texture2d":
                path = element.attributes.get("path", "")
                if path not in textures:
                    raise element.error("the model has no relationship to the texture", found=path[:80])
                if not path.isascii():
                    raise element.error("invalid part name", expected="percent-encoded ASCII", found=path[:80])
            case "texture2dgroup":
                _require_group(element, earlier, "texid", ("texture2d",))
            case "compositematerials":
                base = _require_group(element, earlier, "matid", ("basematerials",))
                for index in element.attributes.get("matindices", "").split():
                    if int(index) >= len(base.children):
                        raise element.error(
                            f"material index {index} is out of range: there are {len(base.children)} materials"
                        )
            case "multiproperties":
                _check_multiproperties(element, earlier)
        earlier[element.attributes.get("id", "").strip()] = element


def _require_group(element: Element, earlier: dict[str, Element], attribute: str, kinds: tuple[str, ...]) -> Element:
    group_id = element.attributes.get(attribute, "").strip()
    group = earlier.get(group_id)
    if group is None or group.name not in kinds:
        raise element.error(f"`{attribute}` {group_id} is not an earlier <{kinds[0]}>")
    return group


def _check_multiproperties(element: Element, earlier: dict[str, Element]) -> None:
    group_ids = element.attributes.get("pids", "").split()
    groups = [earlier.get(group_id) for group_id in group_ids]
    for group_id, group in zip(group_ids, groups, strict=True):
        if group is None:
            raise element.error(f"property group {group_id} does not exist")
    kinds = [group.name for group in groups if group is not None]
    if "multiproperties" in kinds or kinds.count("colorgroup") > 1 or sum(kind in _MATERIALS for kind in kinds) > 1:
        raise element.error("these layers cannot be combined", found=", ".join(kinds))
    if any(kind in _MATERIALS for kind in kinds[1:]):
        raise element.error("a material must be the first layer", found=", ".join(kinds))
    for multi in element.children:
        indices = multi.attributes.get("pindices", "").split()
        for index, group in zip(indices, groups, strict=False):
            if group is not None and int(index) >= len(group.children):
                raise multi.error(f"property index {index} is out of range: there are {len(group.children)} properties")


# --- slices -----------------------------------------------------------------------------------------------------------


def check_slices(root: Element, conventions: Conventions, part: str, open_model: Callable[[str], Element]) -> None:
    """Raises at the first invalid slice stack, or at a transform that would tilt slices."""
    resources = root.child("resources")
    if resources is None:
        return
    stacks: set[str] = set()
    sliced: set[str] = set()
    for element in resources.children:
        resource_id = element.attributes.get("id", "").strip()
        if element.name == "slicestack":
            _check_stack(element, conventions, part, open_model)
            stacks.add(resource_id)
        elif element.name == "object" and (stack := element.attribute("slice", "slicestackid")) is not None:
            if stack.strip() not in stacks:
                raise element.error(f"slice stack {stack[:20]} does not exist")
            sliced.add(resource_id)
    if not sliced:
        return
    _check_upright(root, sliced)


def _check_upright(root: Element, sliced: set[str]) -> None:
    slice_users = sliced | {
        element.attributes.get("id", "").strip()
        for element in root.descendants("object")
        if any(c.attributes.get("objectid", "").strip() in sliced for c in element.descendants("component"))
    }
    for element in root.descendants("item", "component"):
        entries = [float(item) for item in element.attributes.get("transform", "").split()]
        is_upright = len(entries) != 12 or (not any(entries[i] for i in (2, 5, 6, 7)) and entries[8] == 1.0)
        if element.attributes.get("objectid", "").strip() in slice_users and not is_upright:
            raise element.error("the transform tilts or stretches slices", expected="a transform in the plane")


def _check_stack(element: Element, conventions: Conventions, part: str, open_model: Callable[[str], Element]) -> None:
    slices, references = list(element.children_named("slice")), list(element.children_named("sliceref"))
    if slices and references:
        raise element.error("a slice stack cannot contain both slices and references")
    height = float(element.attributes.get("zbottom", "0"))
    for index, layer in enumerate(slices):
        top = float(layer.attributes.get("ztop", "0"))
        if top < height or (index and top == height):
            raise layer.error("the slice is not above the slice before it", found=f"{top:g} after {height:g}")
        height = top
        _check_polygons(layer)
    models = {r.target for r in conventions.relationships_of(part) if r.type == MODEL_RELATIONSHIP}
    for reference in references:
        path = reference.attributes.get("slicepath", "")
        stack_id = reference.attributes.get("slicestackid", "").strip()
        if path not in models:
            raise reference.error("the model has no relationship to this path", found=path[:80])
        stacks = [
            s for s in open_model(path).descendants("slicestack") if s.attributes.get("id", "").strip() == stack_id
        ]
        if not stacks or vocabulary_of(stacks[0].namespace) != "slice":
            raise reference.error(f"slice stack {stack_id} does not exist in `{path}`")
        if stacks[0].child("sliceref") is not None:
            raise reference.error("the referenced slice stack contains references")
        _check_stack(stacks[0], conventions, path, open_model)


def _check_polygons(element: Element) -> None:
    vertices = element.child("vertices")
    size = 0 if vertices is None else len(list(vertices.children_named("vertex")))
    for polygon in element.children_named("polygon"):
        ends = [segment.attributes.get("v2", "0") for segment in polygon.children_named("segment")]
        chain = [int(text) for text in (polygon.attributes.get("startv", "0"), *ends)]
        if max(chain) >= size:
            raise polygon.error(f"vertex index {max(chain)} is out of range: there are {size} vertices")
        if len(chain) < 2 or any(a == b for a, b in itertools.pairwise(chain)):
            raise polygon.error("a segment joins a vertex to itself")
        if chain[0] != chain[-1]:
            raise polygon.error("the polygon is not closed")
