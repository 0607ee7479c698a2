"""Writes resources of 3MF files: objects (meshes, lattices, level sets, components), images, volume data.

`write` adds their lines to the model, after the resources they refer to.
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


def attributes(**values: object) -> str:
    """Attributes as text. None values are omitted."""
    return "".join(f" {name}={quoteattr(text_of(value))}" for name, value in values.items() if value is not None)


def text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(map(text_of, value))
    return repr(value) if isinstance(value, float) else str(value)


def transform_text(transform: tuple[float, ...]) -> tuple[float, ...] | None:
    return None if transform == IDENTITY else transform


def sheet_bytes(samples: NDArray[Any], stack: ImageStack) -> bytes:
    """One sheet of an image as a PNG file."""
    depth = 16 if stack.depth == 16 else 8
    whole = np.rint(samples.astype(np.float64) * ((1 << depth) - 1)).astype(np.uint16)
    channels = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[stack.channels]
    return write_png(whole[..., channels], depth)


def resource_lines(resource_id: int, resource: Resource, sheets: Mapping[int, list[str]], about: str) -> list[str]:
    match resource:
        case ImageStack():
            return _image(resource_id, resource, sheets[resource_id])
        case VolumeData():
            return _volume(resource_id, resource)
        case TriangleMesh():
            mesh = attributes(volumeid=resource.volume_data)
            return _object(resource_id, resource, about, [f"<mesh{mesh}>", *_geometry(resource), "</mesh>"])
        case BeamLattice():
            return _object(
                resource_id, resource, about, ["<mesh>", *_geometry(resource), *_lattice(resource), "</mesh>"]
            )
        case LevelSet():
            return _object(resource_id, resource, about, [_level_set(resource)])
        case Components():
            members = [
                f"<component{attributes(objectid=member, transform=transform_text(transform))}/>"
                for member, transform in resource.members
            ]
            return _object(resource_id, resource, about, ["<components>", *members, "</components>"])
    raise FormatError(f"a 3MF file cannot hold a {type(resource).__name__}")


def _object(object_id: int, resource: AnyObject, about: str, lines: list[str]) -> list[str]:
    described = attributes(id=object_id, name=resource.name or None, type=resource.object_type)
    return [f"<object{described}{about}>", *lines, "</object>"]


def _geometry(mesh: TriangleMesh | BeamLattice) -> list[str]:
    lines = ["<vertices>"]
    lines += [f'<vertex x="{x!r}" y="{y!r}" z="{z!r}"/>' for x, y, z in mesh.vertices.tolist()]
    lines += ["</vertices>", "<triangles>"]
    lines += [f'<triangle v1="{a}" v2="{b}" v3="{c}"/>' for a, b, c in mesh.triangles.tolist()]
    return [*lines, "</triangles>"]


def _lattice(lattice: BeamLattice) -> list[str]:
    with_balls = len(lattice.balls) > 0
    described = attributes(
        radius=1.0,
        minlength=lattice.min_length,
        cap="sphere",
        clippingmode=lattice.clipping if lattice.clipping != "none" else None,
        clippingmesh=lattice.clipping_mesh,
        representationmesh=lattice.representation_mesh,
    )
    balls = ' b2:ballmode="mixed" b2:ballradius="1.0"' if with_balls else ""
    lines = [f"<b:beamlattice{described}{balls}>", "<b:beams>"]
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


def _level_set(level_set: LevelSet) -> str:
    described = attributes(
        functionid=level_set.function,
        channel=level_set.channel,
        meshid=level_set.mesh,
        meshbboxonly=level_set.box_only,
        transform=transform_text(level_set.transform),
        minfeaturesize=level_set.min_feature_size,
        fallbackvalue=level_set.fallback,
        volumeid=level_set.volume_data,
    )
    return f"<v:levelset{described}/>"


def _volume(resource_id: int, volume: VolumeData) -> list[str]:
    lines = [f"<v:volumedata{attributes(id=resource_id)}>"]
    shares = [_channel("materialmapping", channel) for channel in volume.channels if channel.kind == "material"]
    if shares:
        lines += [f"<v:composite{attributes(basematerialid=volume.material_group)}>", *shares, "</v:composite>"]
    kinds = ("color", "property")  # in this order
    others = [c for kind in kinds for c in volume.channels if c.kind == kind]
    return [*lines, *(_channel(channel.kind, channel) for channel in others), "</v:volumedata>"]


def material_lines(group_id: int, count: int) -> list[str]:
    """Placeholder base materials: the reader ignores materials, so only their number is known."""
    bases = [f'<base name="material {index}" displaycolor="#808080FF"/>' for index in range(1, count + 1)]
    return [f"<basematerials{attributes(id=group_id)}>", *bases, "</basematerials>"]


def _channel(tag: str, channel: VolumeChannel) -> str:
    described = attributes(
        name=channel.name or None,
        functionid=channel.function,
        channel=channel.channel,
        transform=transform_text(channel.transform),
        minfeaturesize=channel.min_feature_size,
        fallbackvalue=channel.fallback,
        required=channel.required or None,
    )
    return f"<v:{tag}{described}/>"


def _image(image_id: int, stack: ImageStack, paths: list[str]) -> list[str]:
    sheets, rows, columns, _ = stack.samples.shape
    size = attributes(rowcount=rows, columncount=columns, sheetcount=sheets)
    described = attributes(id=image_id, name=stack.name or None)
    listed = [f"<v:imagesheet{attributes(path='/' + path)}/>" for path in paths]
    return [f"<v:image3d{described}>", f"<v:imagestack{size}>", *listed, "</v:imagestack>", "</v:image3d>"]
