"""The Open Packaging Conventions of 3MF files: content types and relationships, as the package states them.

The reader queries the start part and the relationships of a part. Violations of the conventions are errors.
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

_KNOWN = {
    MODEL_RELATIONSHIP,
    TEXTURE_RELATIONSHIP,
    THUMBNAIL_RELATIONSHIP,
    f"{RELATIONSHIPS}/mustpreserve",
    f"{RELATIONSHIPS}/metadata/core-properties",
    "http://schemas.microsoft.com/3dmanufacturing/2013/01/printticket",
}
# Undefined types in these namespaces are errors, not vendor extensions.
_RESERVED = (f"{RELATIONSHIPS}/metadata/", "http://schemas.microsoft.com/3dmanufacturing/2013/01/")
_ID = re.compile(r"[^\W\d][\w.\-]*")
_ONE_OF_A_KIND = {"http://schemas.microsoft.com/3dmanufacturing/2013/01/printticket"}


@dataclass(frozen=True)
class Relationship:
    """A relationship to another part: a type, and the part's name."""

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
        self._related: dict[str, list[Relationship]] = {}

    def start_part(self) -> str:
        """The part of the model, from the relationships of the package."""
        starts = [relation for relation in self.related("") if relation.type == MODEL_RELATIONSHIP]
        if len(starts) != 1:
            what = "has no 3D model" if not starts else f"starts at {len(starts)} 3D models"
            raise FormatError(f"`{self.package.name}` {what}", expected="one relationship of the type 3dmodel")
        self.require_model(starts[0].target)
        return starts[0].target

    def require_model(self, part: str) -> None:
        """Requires a part with a valid name and the content type of a model."""
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
        """The content type of a part, by its name or by its extension."""
        ending = part.rpartition(".")[2].lower()
        return self.overrides.get(part.lower(), self.defaults.get(ending))

    def thumbnail(self, part: str) -> str | None:
        """The related thumbnail of a part, or of the package for an empty name."""
        targets = [r.target for r in self.related(part) if r.type == THUMBNAIL_RELATIONSHIP]
        return targets[0] if targets else None

    def pictures(self, part: str) -> set[str]:
        """The related pictures of a part: thumbnails, which old files relate as textures."""
        return {r.target for r in self.related(part) if r.type in (THUMBNAIL_RELATIONSHIP, TEXTURE_RELATIONSHIP)}

    def related(self, part: str) -> list[Relationship]:
        """The relationships of a part, or of the package for an empty name."""
        if part not in self._related:
            folder, _, name = part.strip("/").rpartition("/")
            rels = f"{folder}/_rels/{name}.rels".lstrip("/")
            self._related[part] = self._read_relationships(rels) if self.package.has(rels) else []
            if not part and not self.package.has(rels):
                raise FormatError(f"`{self.package.name}` has no relationships", expected="a part `_rels/.rels`")
        return self._related[part]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _parse(self, part: str, namespace: str) -> Element:
        file = f"{part.rpartition('/')[2]} in {self.package.name}"
        root = parse_xml(self.package.read(part), file, self.package.limits)
        if root.namespace != namespace:
            raise root.error("another namespace", expected=namespace, found=root.namespace[:120] or "none")
        return root

    def _read_content_types(self) -> None:
        if not self.package.has("[Content_Types].xml"):
            raise FormatError(f"`{self.package.name}` has no content types", expected="a part `[Content_Types].xml`")
        root = self._parse("[Content_Types].xml", CONTENT_TYPES)
        for element in root.children:
            by_ending = element.name == "Default"
            if not by_ending and element.name != "Override":
                continue
            table = self.defaults if by_ending else self.overrides
            name = element.require("Extension" if by_ending else "PartName")
            if not name or (not by_ending and not is_part_name(name)):
                raise element.error("a content type without a name or extension", found=repr(name))
            if name.lower() in table:
                raise element.error(f"two content types of `{name}`")
            table[name.lower()] = element.require("ContentType")
        if self.content_type("_rels/.rels") != RELATIONSHIPS_TYPE:
            raise root.error("relationships have another content type", expected=RELATIONSHIPS_TYPE)

    def _read_relationships(self, rels: str) -> list[Relationship]:
        root = self._parse(rels, RELATIONSHIPS)
        relationships: list[Relationship] = []
        identifiers: set[str] = set()
        kinds: set[tuple[str, str]] = set()  # unique keys: a type, or a type with a target
        for element in root.named("Relationship"):
            identifier = element.require("Id")
            if identifier in identifiers or not _ID.fullmatch(identifier):
                raise element.error("the id is invalid or occurs twice", found=identifier[:40])
            identifiers.add(identifier)
            relation = self._relationship(element, rels.rpartition("_rels/")[0])
            kind = (relation.type, "" if relation.type in _ONE_OF_A_KIND else relation.target)
            if kind in kinds:
                raise element.error("a duplicate relationship", found=relation.target[:80])
            kinds.add(kind)
            relationships.append(relation)
        return relationships

    def _relationship(self, element: Element, folder: str) -> Relationship:
        type, target = element.require("Type"), element.require("Target")
        if type.startswith(_RESERVED) and type not in _KNOWN:
            raise element.error("unknown relationship type", found=type[:120])
        if element.attributes.get("TargetMode", "Internal") != "Internal":
            raise element.error("a relationship to something outside of the package", found=target[:80])
        target = target if target.startswith("/") else posixpath.normpath(f"/{folder}{target}")
        if not is_part_name(target):
            raise element.error("not the name of a part", found=target[:80])
        if type in _KNOWN:
            if not self.package.has(target):
                raise element.error("a relationship to a part that does not exist", found=target[:80])
            self._require_image(type, target, element)
        return Relationship(type, target, element.location)

    def _require_image(self, type: str, target: str, element: Element) -> None:
        if type == THUMBNAIL_RELATIONSHIP and self.content_type(target) not in IMAGE_TYPES.values():
            raise element.error(
                "a thumbnail that is not a picture", expected="image/png or image/jpeg", found=target[:80]
            )


def is_part_name(name: str) -> bool:
    """Whether a part name is valid: absolute, without empty segments or segments that begin or end with a dot.

    >>> is_part_name("/3D/3dmodel.model"), is_part_name("/3D/.png"), is_part_name("3D/a.png"), is_part_name("/3D//a")
    (True, False, False, False)
    """
    if not name.startswith("/") or any(c in name for c in "?#\\"):
        return False
    return all(segment and segment[0] != "." and segment[-1] != "." for segment in name[1:].split("/"))
