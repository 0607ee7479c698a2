"""Reads resources of 3MF files: objects (meshes, lattices, level sets, components), image stacks and volume data."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.package import Package
from livegrad.implicit.formats.png import SIGNATURE, read_png
from livegrad.implicit.formats.xml_tree import Element
from livegrad.implicit.nodes.resources import (
    CAPS,
    IDENTITY,
    OBJECT_TYPES,
    BeamLattice,
    Components,
    ImageStack,
    LevelSet,
    Resource,
    Thumbnail,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)


def parse_resource_id(element: Element, attribute: str) -> int:
    """Parses an attribute as a resource id."""
    return check_resource_id(element, attribute, element.require(attribute))


def check_resource_id(element: Element, attribute: str, value: str) -> int:
    """Parses a resource id; an invalid id is an error at the element."""
    text = value.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or not 0 < int(text) < 2**31:
        raise element.error(f"attribute `{attribute}` is not a resource id", found=repr(text)[:40])
    return int(text)


_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")


def parse_number(element: Element, attribute: str, default: float | None = None) -> float:
    """Parses an attribute as a finite number."""
    text = element.attributes.get(attribute)
    if text is None and default is not None:
        return default
    if not _NUMBER.fullmatch(element.require(attribute)):  # `float` also accepts underscores and nan
        raise element.error(f"attribute `{attribute}` is not a number", found=repr(text)[:40])
    value = float(element.require(attribute))
    if not math.isfinite(value):
        raise element.error(f"attribute `{attribute}` is not finite", found=repr(text)[:40])
    return value


def parse_numbers(element: Element, text: str, count: int) -> tuple[float, ...]:
    """Parses `count` finite numbers."""
    items = text.split()
    values = tuple(map(float, items)) if all(map(_NUMBER.fullmatch, items)) else ()
    if len(values) != count or not all(map(math.isfinite, values)):
        raise element.error(f"expected {count} numbers", found=repr(text)[:60])
    return values


def parse_choice(element: Element, attribute: str, allowed: Sequence[str]) -> str:
    """Parses an attribute with a fixed set of values; the first value is the default."""
    value = element.attributes.get(attribute, allowed[0])
    if value not in allowed:
        raise element.error(
            f"attribute `{attribute}` has an unknown value", expected=", ".join(allowed), found=value[:40]
        )
    return value


def read_transform(element: Element) -> tuple[float, ...]:
    """Parses the `transform` attribute: twelve numbers; the default is the identity."""
    text = element.attributes.get("transform")
    return IDENTITY if text is None else parse_numbers(element, text, 12)


def _parse_flag(element: Element, attribute: str) -> bool:
    return parse_choice(element, attribute, ("false", "true", "0", "1")) in ("true", "1")


def read_object(
    element: Element, package: Package, member: Callable[[Element], tuple[int, tuple[float, ...]]]
) -> Resource:
    """Reads an object: a mesh, a beam lattice, a level set, or components. `member` reads a component."""
    name = element.attributes.get("name", "")
    thumbnail = element.attributes.get("thumbnail")
    properties = {
        "object_type": parse_choice(element, "type", OBJECT_TYPES),
        "thumbnail": None if thumbnail is None else read_thumbnail(package, thumbnail),
    }
    for child in element.children:
        if child.name == "mesh":
            return _read_mesh(child, name, properties, package)
        if child.name == "levelset":
            return replace(_read_level_set(child, name), **properties)
        if child.name == "components":
            return Components(tuple(map(member, child.children_named("component"))), name, **properties)
    raise element.error("the object has no mesh, level set or components")


def read_thumbnail(package: Package, part: str) -> Thumbnail:
    """Reads a thumbnail. Its type is determined by its content, not its name."""
    data = package.read(part)
    if data.startswith(SIGNATURE):
        return Thumbnail(data, "image/png")
    if not data.startswith(b"\xff\xd8\xff"):
        raise FormatError(f"thumbnail `{part}` of `{package.name}` is not a picture", expected="a PNG or JPEG file")
    if _count_jpeg_channels(data) == 4:
        raise FormatError(f"thumbnail `{part}` of `{package.name}` is in CMYK", expected="red, green and blue")
    return Thumbnail(data, "image/jpeg")


def _count_jpeg_channels(data: bytes) -> int | None:
    """Reads the number of colour channels from the frame header of a JPEG file."""
    position = 2
    while position + 9 < len(data) and data[position] == 0xFF:
        kind, size = data[position + 1], int.from_bytes(data[position + 2 : position + 4])
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            return data[position + 9]
        position += 2 + size
    return None


def _parse_rows(element: Element | None, dtype: type[np.generic], width: int) -> NDArray[np.generic]:
    """Converts rows of text to numbers; an invalid number is an error at the element."""
    if element is None or not element.rows:
        return np.empty((0, width), dtype)
    # Python accepts more than the schema allows: 1_000, nan, digits of other scripts.
    characters = set("".join([text for row in element.rows for text in row]))
    allowed = "0123456789+ \t\n\r" + ("-.eE" if dtype is np.float64 else "")
    if not characters <= set(allowed):
        raise element.error(
            "a row does not contain numbers", found=repr("".join(sorted(characters - set(allowed))))[:40]
        )
    try:
        return np.array(element.rows, object).astype(dtype).reshape(-1, width)
    except (ValueError, OverflowError) as error:
        raise element.error(f"a row does not contain numbers: {str(error)[:80]}") from None


def _read_mesh(element: Element, name: str, properties: dict[str, Any], package: Package) -> TriangleMesh | BeamLattice:
    vertices = _parse_rows(element.child("vertices"), np.float64, 3)
    triangles = _parse_rows(element.child("triangles"), np.int64, 3)
    lattice = element.child("beamlattice")
    if lattice is not None:
        return read_lattice(lattice, vertices, triangles, name, properties)
    volume_id = element.attributes.get("volumeid", element.attribute("volumetric", "volumeid"))
    volume = None if volume_id is None else check_resource_id(element, "volumeid", volume_id)
    return TriangleMesh(vertices, triangles, name, volume, **properties)  # type: ignore[arg-type]


def read_lattice(
    element: Element, vertices: NDArray[Any], triangles: NDArray[Any], name: str, properties: dict[str, Any]
) -> BeamLattice:
    """Reads a beam lattice with its caps, balls and clipping."""
    radius, cap = parse_number(element, "radius"), parse_choice(element, "cap", CAPS)
    beams, radii, caps = [], [], []
    for section in element.children_named("beams"):
        for beam in section.children_named("beam"):
            first = parse_number(beam, "r1", radius)
            beams.append((_parse_index(beam, "v1"), _parse_index(beam, "v2")))
            radii.append((first, parse_number(beam, "r2", first)))
            caps.append(
                tuple(parse_choice(beam, end, CAPS) if end in beam.attributes else cap for end in ("cap1", "cap2"))
            )
    balls = _read_balls(element, np.array(beams, np.int64))
    return BeamLattice(
        vertices,
        np.array(beams, np.int64).reshape(-1, 2),
        np.array(radii).reshape(-1, 2),
        name,
        np.array(caps, np.str_).reshape(-1, 2),
        np.array(list(balls), np.int64),
        np.array(list(balls.values())),
        triangles,
        parse_number(element, "minlength", 0.0001),
        parse_choice(element, "clippingmode", ("none", "inside", "outside")),
        parse_resource_id(element, "clippingmesh") if "clippingmesh" in element.attributes else None,
        parse_resource_id(element, "representationmesh") if "representationmesh" in element.attributes else None,
        **properties,
    )


def _read_balls(element: Element, beams: NDArray[np.int64]) -> dict[int, float]:
    """Reads the radius of each ball, by vertex index."""
    settings = {name: element.attributes.get(name, element.attribute("beamlattice", name)) for name in _BALL_SETTINGS}
    mode = settings["ballmode"] or "none"
    if mode == "none":
        return {}
    radius = float(settings["ballradius"] or 0.0)
    radii = {int(node): radius for node in np.unique(beams)} if mode == "all" else {}
    for section in element.children_named("balls"):
        for ball in section.children_named("ball"):
            radii[_parse_index(ball, "vindex")] = parse_number(ball, "r", radius)
    return radii


_BALL_SETTINGS = ("ballmode", "ballradius")


def _parse_index(element: Element, attribute: str) -> int:
    text = element.require(attribute).strip()
    if not (text.isascii() and text.removeprefix("+").isdigit()) or len(text) > 11:
        raise element.error(f"attribute `{attribute}` is not a valid index", found=repr(text)[:40])
    return int(text)


def _read_level_set(element: Element, name: str) -> LevelSet:
    return LevelSet(
        parse_resource_id(element, "functionid"),
        element.require("channel"),
        parse_resource_id(element, "meshid"),
        _parse_flag(element, "meshbboxonly"),
        read_transform(element),
        parse_number(element, "minfeaturesize", 0.0),
        parse_number(element, "fallbackvalue", 0.0),
        parse_resource_id(element, "volumeid") if "volumeid" in element.attributes else None,
        name,
    )


def read_volume_data(element: Element) -> VolumeData:
    """Reads volume data: the colour, materials and properties inside a body."""
    channels: list[VolumeChannel] = []
    group = None
    for child in element.children:
        if child.name in ("color", "property"):
            channels.append(_read_channel(child, child.name))
        elif child.name == "composite":
            if "basematerialid" in child.attributes:
                group = parse_resource_id(child, "basematerialid")
            channels.extend(_read_channel(mapping, "material") for mapping in child.children_named("materialmapping"))
    return VolumeData(tuple(channels), group)


def _read_channel(element: Element, kind: str) -> VolumeChannel:
    return VolumeChannel(
        kind,
        parse_resource_id(element, "functionid"),
        element.require("channel"),
        element.attributes.get("name", ""),
        read_transform(element),
        parse_number(element, "minfeaturesize", 0.0),
        parse_number(element, "fallbackvalue", 0.0),
        _parse_flag(element, "required"),
    )


def read_image_stack(element: Element, package: Package) -> ImageStack:
    """Reads the sheets of an image as one array, with the size and depth of the pictures.

    Some files declare another size than their pictures have, or mix depths. These are read with a warning.
    """
    stack = element.child("imagestack")
    if stack is None:
        raise element.error("the image has no image stack")
    sizes = [int(parse_number(stack, name)) for name in ("sheetcount", "rowcount", "columncount")]
    sheets = list(stack.children_named("imagesheet"))
    if any(size < 1 for size in sizes) or math.prod(sizes) * 4 > package.limits.samples:
        raise stack.error("the image stack has an impossible size", found=" × ".join(map(str, sizes)))
    if len(sheets) != sizes[0]:
        raise stack.error("the number of sheets is wrong", expected=str(sizes[0]), found=str(len(sheets)))
    pictures = _decode_pictures(sheets, package)
    if any(pixels.shape[:2] != pictures[0][0].shape[:2] for pixels, _ in pictures):
        picture_sizes = sorted({pixels.shape[:2] for pixels, _ in pictures})
        raise stack.error(
            "the image stack has sheets of different sizes", found=", ".join(f"{c} × {r}" for r, c in picture_sizes[:4])
        )
    rows, columns = pictures[0][0].shape[:2]
    if len(sheets) * rows * columns * 4 > package.limits.samples:
        raise stack.error("the image stack has an impossible size", found=f"{len(sheets)} × {rows} × {columns}")
    if [rows, columns] != sizes[1:]:
        package.warn(
            f"image {element.attributes.get('id')} declares {sizes[2]} × {sizes[1]} pixels, "
            f"but its sheets have {columns} × {rows}",
            stack.location,
        )
    layouts = {(pixels.shape[2], depth) for pixels, depth in pictures}
    if len(layouts) > 1:
        package.warn(f"image {element.attributes.get('id')} has sheets of different depths or channels", stack.location)
    samples = np.stack([_convert_to_rgba(pixels, depth) for pixels, depth in pictures])
    channels, depth = (max(numbers) for numbers in zip(*layouts, strict=True))
    return ImageStack(samples, depth, channels, element.attributes.get("name", ""))


def _decode_pictures(sheets: Sequence[Element], package: Package) -> list[tuple[NDArray[np.uint16], int]]:
    """Decodes the pictures of sheets, with their bit depths. A picture that several sheets use is decoded once."""
    decoded: dict[str, tuple[NDArray[np.uint16], int]] = {}
    remaining_samples = package.limits.samples
    for sheet in sheets:
        path = sheet.require("path")
        if path in decoded:
            continue
        try:
            decoded[path] = read_png(package.read(path), most_samples=remaining_samples)
        except FormatError as error:
            raise sheet.error(str(error)) from None
        remaining_samples -= decoded[path][0].size
    return [decoded[sheet.require("path")] for sheet in sheets]


def _convert_to_rgba(pixels: NDArray[np.uint16], depth: int) -> NDArray[np.float32]:
    """Converts pixels to RGBA from 0 to 1. Grey becomes RGB; the default alpha is 1."""
    values = pixels.astype(np.float32) / np.float32((1 << depth) - 1)
    channels = values.shape[2]
    full = np.ones((*values.shape[:2], 1), np.float32)
    colour = np.repeat(values[..., :1], 3, axis=2) if channels < 3 else values[..., :3]
    alpha = values[..., -1:] if channels in (2, 4) else full
    return np.concatenate([colour, alpha], axis=2)
