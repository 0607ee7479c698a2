"""Formats resources of 3MF files: objects (meshes, lattices, level sets, components), image stacks and volume data.

`write` adds the lines to the model, after the resources that they refer to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.png import write_png
from livegrad.implicit.nodes.resources import (
    IDENTITY,
    BeamLattice,
    Components,
    ImageStack,
    LevelSet,
    Resource,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)

AnyObject = TriangleMesh | BeamLattice | LevelSet | Components


def format_attributes(**values: object) -> str:
    """Formats attributes; those that are None are omitted."""
    return "".join(f" {name}={quoteattr(format_value(value))}" for name, value in values.items() if value is not None)


def format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(map(format_value, value))
    return repr(value) if isinstance(value, float) else str(value)


def omit_identity(transform: tuple[float, ...]) -> tuple[float, ...] | None:
    return None if transform == IDENTITY else transform


def encode_sheet(samples: NDArray[Any], stack: ImageStack) -> bytes:
    """Encodes one sheet of an image stack as a PNG file."""
    depth = 16 if stack.depth == 16 else 8
    integers = np.rint(samples.astype(np.float64) * ((1 << depth) - 1)).astype(np.uint16)
    channels = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[stack.channels]
    return write_png(integers[..., channels], depth)


def format_resource(
    resource_id: int, resource: Resource, sheets: Mapping[int, list[str]], extra_attributes: str
) -> list[str]:
    match resource:
        case ImageStack():
            return _format_image(resource_id, resource, sheets[resource_id])
        case VolumeData():
            return _format_volume_data(resource_id, resource)
        case TriangleMesh():
            mesh = format_attributes(volumeid=resource.volume_data)
            return _format_object(
                resource_id, resource, extra_attributes, [f"<mesh{mesh}>", *_format_geometry(resource), "</mesh>"]
            )
        case BeamLattice():
            return _format_object(
                resource_id,
                resource,
                extra_attributes,
                ["<mesh>", *_format_geometry(resource), *_format_lattice(resource), "</mesh>"],
            )
        case LevelSet():
            return _format_object(resource_id, resource, extra_attributes, [_format_level_set(resource)])
        case Components():
            members = [
                f"<component{format_attributes(objectid=member, transform=omit_identity(transform))}/>"
                for member, transform in resource.members
            ]
            return _format_object(resource_id, resource, extra_attributes, ["<components>", *members, "</components>"])
    raise FormatError(f"a 3MF file cannot hold a {type(resource).__name__}")


def _format_object(object_id: int, resource: AnyObject, extra_attributes: str, lines: list[str]) -> list[str]:
    attribute_text = format_attributes(id=object_id, name=resource.name or None, type=resource.object_type)
    return [f"<object{attribute_text}{extra_attributes}>", *lines, "</object>"]


def _format_geometry(mesh: TriangleMesh | BeamLattice) -> list[str]:
    lines = ["<vertices>"]
    lines += [f'<vertex x="{x!r}" y="{y!r}" z="{z!r}"/>' for x, y, z in mesh.vertices.tolist()]
    lines += ["</vertices>", "<triangles>"]
    lines += [f'<triangle v1="{a}" v2="{b}" v3="{c}"/>' for a, b, c in mesh.triangles.tolist()]
    return [*lines, "</triangles>"]


def _format_lattice(lattice: BeamLattice) -> list[str]:
    with_balls = len(lattice.balls) > 0
    attribute_text = format_attributes(
        radius=1.0,
        minlength=lattice.min_length,
        cap="sphere",
        clippingmode=lattice.clipping if lattice.clipping != "none" else None,
        clippingmesh=lattice.clipping_mesh,
        representationmesh=lattice.representation_mesh,
    )
    balls = ' b2:ballmode="mixed" b2:ballradius="1.0"' if with_balls else ""
    lines = [f"<b:beamlattice{attribute_text}{balls}>", "<b:beams>"]
    for (a, b), (first, second), ends in zip(
        lattice.beams.tolist(), lattice.radii.tolist(), lattice.caps.tolist(), strict=True
    ):
        caps = "".join(f' cap{end}="{cap}"' for end, cap in enumerate(ends, 1) if cap != "sphere")
        lines.append(f'<b:beam v1="{a}" v2="{b}" r1="{first!r}" r2="{second!r}"{caps}/>')
    lines.append("</b:beams>")
    if with_balls:
        pairs = zip(lattice.balls.tolist(), lattice.ball_radii.tolist(), strict=True)
        lines += ["<b2:balls>", *(f'<b2:ball vindex="{node}" r="{r!r}"/>' for node, r in pairs), "</b2:balls>"]
    return [*lines, "</b:beamlattice>"]


def _format_level_set(level_set: LevelSet) -> str:
    attribute_text = format_attributes(
        functionid=level_set.function,
        channel=level_set.channel,
        meshid=level_set.mesh,
        meshbboxonly=level_set.box_only,
        transform=omit_identity(level_set.transform),
        minfeaturesize=level_set.min_feature_size,
        fallbackvalue=level_set.fallback,
        volumeid=level_set.volume_data,
    )
    return f"<v:levelset{attribute_text}/>"


def _format_volume_data(resource_id: int, volume: VolumeData) -> list[str]:
    lines = [f"<v:volumedata{format_attributes(id=resource_id)}>"]
    materials = [
        _format_channel("materialmapping", channel) for channel in volume.channels if channel.kind == "material"
    ]
    if materials:
        lines += [
            f"<v:composite{format_attributes(basematerialid=volume.material_group)}>",
            *materials,
            "</v:composite>",
        ]
    kinds = ("color", "property")  # the order of the schema
    fields = [c for kind in kinds for c in volume.channels if c.kind == kind]
    return [*lines, *(_format_channel(channel.kind, channel) for channel in fields), "</v:volumedata>"]


def format_materials(group_id: int, count: int) -> list[str]:
    """Formats placeholder materials: the reader ignores materials, so only their number is known."""
    bases = [f'<base name="material {index}" displaycolor="#808080FF"/>' for index in range(1, count + 1)]
    return [f"<basematerials{format_attributes(id=group_id)}>", *bases, "</basematerials>"]


def _format_channel(tag: str, channel: VolumeChannel) -> str:
    attribute_text = format_attributes(
        name=channel.name or None,
        functionid=channel.function,
        channel=channel.channel,
        transform=omit_identity(channel.transform),
        minfeaturesize=channel.min_feature_size,
        fallbackvalue=channel.fallback,
        required=channel.required or None,
    )
    return f"<v:{tag}{attribute_text}/>"


def _format_image(image_id: int, stack: ImageStack, paths: list[str]) -> list[str]:
    sheets, rows, columns, _ = stack.samples.shape
    size = format_attributes(rowcount=rows, columncount=columns, sheetcount=sheets)
    attribute_text = format_attributes(id=image_id, name=stack.name or None)
    sheet_lines = [f"<v:imagesheet{format_attributes(path='/' + path)}/>" for path in paths]
    return [f"<v:image3d{attribute_text}>", f"<v:imagestack{size}>", *sheet_lines, "</v:imagestack>", "</v:image3d>"]
