"""The Open Packaging Conventions (OPC) of 3MF files: content types and relationships of a package.

The reader asks for the start part and for the relationships of parts. Violations of the conventions are errors.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from livegrad.diagnostics import TextOrigin
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.package import Package
from livegrad.implicit.formats.threemf.namespaces import (
    CONTENT_TYPES,
    IMAGE_TYPES,
    MODEL_RELATIONSHIP,
    MODEL_TYPE,
    RELATIONSHIPS,
    RELATIONSHIPS_TYPE,
    TEXTURE_RELATIONSHIP,
    THUMBNAIL_RELATIONSHIP,
)
from livegrad.implicit.formats.xml_tree import Element, parse_xml

_STANDARD_TYPES = {
    MODEL_RELATIONSHIP,
    TEXTURE_RELATIONSHIP,
    THUMBNAIL_RELATIONSHIP,
    f"{RELATIONSHIPS}/mustpreserve",
    f"{RELATIONSHIPS}/metadata/core-properties",
    "http://schemas.microsoft.com/3dmanufacturing/2013/01/printticket",
}
# Unknown types in these namespaces are errors, not vendor extensions.
_RESERVED = (f"{RELATIONSHIPS}/metadata/", "http://schemas.microsoft.com/3dmanufacturing/2013/01/")
_ID = re.compile(r"[^\W\d][\w.\-]*")
_UNIQUE_TYPES = {"http://schemas.microsoft.com/3dmanufacturing/2013/01/printticket"}


@dataclass(frozen=True)
class Relationship:
    """A relationship to another part: its type and the name of the part."""

    type: str
    target: str
    location: TextOrigin


class Conventions:
    """The content types and relationships of a package."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.defaults: dict[str, str] = {}
        self.overrides: dict[str, str] = {}
        self._read_content_types()
        self._relationships_by_part: dict[str, list[Relationship]] = {}

    def start_part(self) -> str:
        """The root model part, from the relationships of the package."""
        starts = [relation for relation in self.relationships_of("") if relation.type == MODEL_RELATIONSHIP]
        if len(starts) != 1:
            problem = "has no root 3D model" if not starts else f"has {len(starts)} root 3D models"
            raise FormatError(f"`{self.package.name}` {problem}", expected="one relationship of the type 3dmodel")
        self.require_model(starts[0].target)
        return starts[0].target

    def require_model(self, part: str) -> None:
        """Raises unless a part has a valid name and the content type of a model."""
        if not part.isascii():
            raise FormatError(
                f"`{part}` in `{self.package.name}` is not a valid part name", expected="percent-encoded ASCII"
            )
        content_type = self.content_type(part)
        if content_type != MODEL_TYPE:
            raise FormatError(
                f"part `{part}` of `{self.package.name}` is not a 3D model",
                expected=MODEL_TYPE,
                found=content_type or "no type",
            )

    def content_type(self, part: str) -> str | None:
        """The content type of a part, by its name or its extension; None if undefined."""
        extension = part.rpartition(".")[2].lower()
        return self.overrides.get(part.lower(), self.defaults.get(extension))

    def thumbnail(self, part: str) -> str | None:
        """The thumbnail of a part, or of the package for an empty name; None if there is none."""
        targets = [r.target for r in self.relationships_of(part) if r.type == THUMBNAIL_RELATIONSHIP]
        return targets[0] if targets else None

    def pictures(self, part: str) -> set[str]:
        """The thumbnails of a part, including textures, which old files use as thumbnails."""
        return {
            r.target for r in self.relationships_of(part) if r.type in (THUMBNAIL_RELATIONSHIP, TEXTURE_RELATIONSHIP)
        }

    def relationships_of(self, part: str) -> list[Relationship]:
        """The relationships of a part, or of the package for an empty name."""
        if part not in self._relationships_by_part:
            folder, _, name = part.strip("/").rpartition("/")
            rels = f"{folder}/_rels/{name}.rels".lstrip("/")
            self._relationships_by_part[part] = self._read_relationships(rels) if self.package.has(rels) else []
            if not part and not self.package.has(rels):
                raise FormatError(f"`{self.package.name}` has no relationships", expected="a part `_rels/.rels`")
        return self._relationships_by_part[part]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _parse(self, part: str, namespace: str) -> Element:
        file = f"{part.rpartition('/')[2]} in {self.package.name}"
        root = parse_xml(self.package.read(part), file, self.package.limits)
        if root.namespace != namespace:
            raise root.error("wrong namespace", expected=namespace, found=root.namespace[:120] or "none")
        return root

    def _read_content_types(self) -> None:
        if not self.package.has("[Content_Types].xml"):
            raise FormatError(f"`{self.package.name}` has no content types", expected="a part `[Content_Types].xml`")
        root = self._parse("[Content_Types].xml", CONTENT_TYPES)
        for element in root.children:
            is_default = element.name == "Default"
            if not is_default and element.name != "Override":
                continue
            table = self.defaults if is_default else self.overrides
            name = element.require("Extension" if is_default else "PartName")
            if not name or (not is_default and not is_part_name(name)):
                raise element.error("the content type has no valid part name or extension", found=repr(name))
            if name.lower() in table:
                raise element.error(f"`{name}` has two content types")
            table[name.lower()] = element.require("ContentType")
        if self.content_type("_rels/.rels") != RELATIONSHIPS_TYPE:
            raise root.error("relationships have the wrong content type", expected=RELATIONSHIPS_TYPE)

    def _read_relationships(self, rels: str) -> list[Relationship]:
        root = self._parse(rels, RELATIONSHIPS)
        relationships: list[Relationship] = []
        identifiers: set[str] = set()
        kinds: set[tuple[str, str]] = set()  # unique keys: a type, or a type with a target
        for element in root.children_named("Relationship"):
            identifier = element.require("Id")
            if identifier in identifiers or not _ID.fullmatch(identifier):
                raise element.error("the id is invalid or not unique", found=identifier[:40])
            identifiers.add(identifier)
            relation = self._read_relationship(element, rels.rpartition("_rels/")[0])
            kind = (relation.type, "" if relation.type in _UNIQUE_TYPES else relation.target)
            if kind in kinds:
                raise element.error("duplicate relationship", found=relation.target[:80])
            kinds.add(kind)
            relationships.append(relation)
        return relationships

    def _read_relationship(self, element: Element, folder: str) -> Relationship:
        type, target = element.require("Type"), element.require("Target")
        if type.startswith(_RESERVED) and type not in _STANDARD_TYPES:
            raise element.error("unknown relationship type", found=type[:120])
        if element.attributes.get("TargetMode", "Internal") != "Internal":
            raise element.error("external relationships are not allowed", found=target[:80])
        target = target if target.startswith("/") else posixpath.normpath(f"/{folder}{target}")
        if not is_part_name(target):
            raise element.error("invalid part name", found=target[:80])
        if type in _STANDARD_TYPES:
            if not self.package.has(target):
                raise element.error("the target part does not exist", found=target[:80])
            self._require_image(type, target, element)
        return Relationship(type, target, element.location)

    def _require_image(self, type: str, target: str, element: Element) -> None:
        if type == THUMBNAIL_RELATIONSHIP and self.content_type(target) not in IMAGE_TYPES.values():
            raise element.error("the thumbnail is not a picture", expected="image/png or image/jpeg", found=target[:80])


def is_part_name(name: str) -> bool:
    """Whether a part name is valid: absolute, with no empty segment and no segment that starts or ends with a dot.

    >>> is_part_name("/3D/3dmodel.model"), is_part_name("/3D/.png"), is_part_name("3D/a.png"), is_part_name("/3D//a")
    (True, False, False, False)
    """
    if not name.startswith("/") or any(c in name for c in "?#\\"):
        return False
    return all(segment and segment[0] != "." and segment[-1] != "." for segment in name[1:].split("/"))
