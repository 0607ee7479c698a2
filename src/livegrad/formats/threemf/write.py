"""Writes 3MF files: an `Assembly` comes in, a package whose reading gives an equal one goes out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from livegrad.authoring.assembly.assembly import Assembly
from livegrad.authoring.assembly.checks import call_order, has_default, input_types, node_order, output_types
from livegrad.authoring.assembly.constants import literals_to_constants
from livegrad.authoring.assembly.graph import GraphFunction, GraphNode, ImageFunction
from livegrad.authoring.assembly.node_types import GRADIENT_TYPES
from livegrad.authoring.assembly.ports import PortType, Reference
from livegrad.authoring.assembly.resources import (
    IDENTITY,
    BeamLattice,
    BuildItem,
    Components,
    ImageStack,
    LevelSet,
    Resource,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.diagnostics import caller_origin
from livegrad.formats.errors import FormatError
from livegrad.formats.package import write_package
from livegrad.formats.png import write_png
from livegrad.formats.threemf import names
from livegrad.formats.threemf.positions import POSITIONS, positions_text

_REFERENCES = {type: ("resourceref" if type is PortType.RESOURCE else f"{type.value}ref") for type in PortType}


def save_3mf(assembly: Assembly, path: str | os.PathLike[str]) -> None:
    """Writes an assembly as a 3MF file, whole or not at all.

    Literals of inputs become constant nodes, because files have no others. Positions of nodes are metadata, which
    other readers pass over.

    >>> import os, tempfile
    >>> import livegrad as lg
    >>> path = os.path.join(tempfile.mkdtemp(), "ball.3mf")
    >>> ball = lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)), "ball")
    >>> save_3mf(lg.assembly_of_part(ball), path)
    >>> lg.load_3mf(path).problems()
    ()
    """
    if not isinstance(assembly, Assembly):
        raise FormatError(
            "a 3MF file holds an assembly",
            where=caller_origin(),
            found=type(assembly).__name__,
            help="`lg.assembly_of_part(part)` makes one of a part",
        )
    plain = literals_to_constants(assembly)
    order = call_order(plain, list(plain.functions))
    if order is None:
        raise FormatError(
            "the calls of the functions go round in a circle: no file can hold that", where=caller_origin()
        )
    sheets = {
        number: [f"3D/volumetric/image{number}/sheet{index:04}.png" for index in range(len(resource.samples))]
        for number, resource in plain.resources.items()
        if isinstance(resource, ImageStack)
    }
    write_package(path, _parts(plain, _model(plain, order, sheets), sheets))


def _parts(assembly: Assembly, model: str, sheets: Mapping[int, list[str]]) -> dict[str, bytes]:
    relation = f'<Relationship Type="{names.MODEL_RELATIONSHIP}" Target="/{names.MODEL_PART}" Id="model"/>'
    parts = {
        "[Content_Types].xml": _content_types(),
        "_rels/.rels": _relationships([relation]),
        names.MODEL_PART: model.encode(),
    }
    textures = [path for paths in sheets.values() for path in paths]
    if textures:
        parts["3D/_rels/3dmodel.model.rels"] = _relationships(
            f'<Relationship Type="{names.TEXTURE_RELATIONSHIP}" Target="/{path}" Id="sheet{index}"/>'
            for index, path in enumerate(textures)
        )
    for number, paths in sheets.items():
        stack = assembly.resources[number]
        assert isinstance(stack, ImageStack)
        for sheet, path in zip(stack.samples, paths, strict=True):
            parts[path] = _sheet(sheet, stack)
    return parts


def _sheet(samples: np.ndarray, stack: ImageStack) -> bytes:  # type: ignore[type-arg]
    depth = 16 if stack.depth == 16 else 8
    whole = np.rint(samples.astype(np.float64) * ((1 << depth) - 1)).astype(np.uint16)
    channels = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[stack.channels]
    return write_png(whole[..., channels], depth)


def _content_types() -> bytes:
    types = {
        "rels": "application/vnd.openxmlformats-package.relationships+xml",
        "model": "application/vnd.ms-package.3dmanufacturing-3dmodel+xml",
        "png": "image/png",
    }
    lines = [f'<Default Extension="{name}" ContentType="{type}"/>' for name, type in types.items()]
    return _document(f'<Types xmlns="{names.CONTENT_TYPES}">', lines, "</Types>")


def _relationships(lines: Iterable[str]) -> bytes:
    return _document(f'<Relationships xmlns="{names.RELATIONSHIPS}">', lines, "</Relationships>")


def _document(first: str, lines: Iterable[str], last: str) -> bytes:
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', first, *lines, last, ""]).encode()


def _attributes(**values: object) -> str:
    """Attributes as text; those that are None are left out."""
    return "".join(f" {name}={quoteattr(_text(value))}" for name, value in values.items() if value is not None)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return repr(value) if isinstance(value, float) else str(value)


def _transform(transform: tuple[float, ...]) -> tuple[float, ...] | None:
    return None if transform == IDENTITY else transform


def _model(assembly: Assembly, order: list[int], sheets: Mapping[int, list[str]]) -> str:
    spaces = {"i": names.IMPLICIT, "v": names.VOLUMETRIC, "b": names.BEAM_LATTICE}
    positions = positions_text(assembly.functions)
    if positions is not None:
        spaces["livegrad"] = names.LIVEGRAD
    declared = "".join(f' xmlns:{prefix}="{space}"' for prefix, space in spaces.items())
    used = [prefix for prefix, needed in (("i", assembly.functions), ("v", assembly.resources)) if needed]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(
        f'<model xmlns="{names.CORE}"{declared} xml:lang="en-US"'
        f"{_attributes(unit=assembly.document.unit, requiredextensions=' '.join(used) or None)}>"
    )
    own = () if positions is None else ((POSITIONS, positions),)
    for name, text in (*assembly.document.metadata, *own):
        lines.append(f"<metadata{_attributes(name=name)}>{escape(text)}</metadata>")
    lines.append("<resources>")
    # What is referred to comes before what refers to it.
    ranks = (ImageStack, TriangleMesh, BeamLattice)
    for number, resource in assembly.resources.items():
        if isinstance(resource, ranks) and getattr(resource, "volume_data", None) is None:
            lines += _resource(number, resource, sheets)
    for number in order:
        lines += _function(assembly, number)
    for types in (VolumeData, TriangleMesh, LevelSet, Components):
        for number, resource in assembly.resources.items():
            first = isinstance(resource, ranks) and getattr(resource, "volume_data", None) is None
            if isinstance(resource, types) and not first:
                lines += _resource(number, resource, sheets)
    lines += ["</resources>", "<build>", *map(_item, assembly.items), "</build>", "</model>", ""]
    return "\n".join(lines)


def _item(item: BuildItem) -> str:
    number = item.part_number or None
    described = _attributes(objectid=item.object, transform=_transform(item.transform), partnumber=number)
    return f"<item{described}/>"


# --- functions -------------------------------------------------------------------------------------------------------


def _function(assembly: Assembly, number: int) -> list[str]:
    function = assembly.functions[number]
    if isinstance(function, ImageFunction):
        u, v, w = function.tile_styles
        described = _attributes(
            id=number,
            displayname=function.name,
            image3did=function.image,
            valueoffset=function.offset,
            valuescale=function.scale,
            filter=function.filter,
            tilestyleu=u,
            tilestylev=v,
            tilestylew=w,
        )
        return [f"<v:functionfromimage3d{described}/>"]
    nodes = node_order(function)
    if nodes is None:
        raise FormatError(f"the links of function `{function.name}` go round in a circle: no file can hold that")
    lines = [f"<i:implicitfunction{_attributes(id=number, displayname=function.name)}>", "<i:in>"]
    lines += [_declared(name, type) for name, type in function.inputs.items()]
    lines.append("</i:in>")
    for node in nodes:
        lines += _node(assembly, function, node)
    lines.append("<i:out>")
    for name, type in function.outputs.items():
        lines.append(_linked(name, type, function.results.get(name)))
    return [*lines, "</i:out>", "</i:implicitfunction>"]


def _declared(name: str, type: PortType) -> str:
    return f"<i:{type.value}{_attributes(identifier=name, displayname=name)}/>"


def _linked(name: str, type: PortType, source: object) -> str:
    reference = str(source) if isinstance(source, Reference) else ""
    return f"<i:{_REFERENCES[type]}{_attributes(identifier=name, displayname=name, ref=reference)}/>"


def _node(assembly: Assembly, function: GraphFunction, node: GraphNode) -> list[str]:
    values: dict[str, object] = {}
    if node.type.name == "ConstVec" and isinstance(node.value, tuple):
        values = dict(zip("xyz", node.value, strict=True))
    elif node.value is not None:
        values = {"matrix" if node.type.name == "ConstMat" else "value": node.value}
    if node.type.name in GRADIENT_TYPES:
        values |= {"scalaroutput": node.scalar_output, "vectorinput": node.vector_input}
    described = _attributes(identifier=node.identifier, displayname=node.display_name, tag=node.tag, **values)
    lines = [f"<i:{node.type.tag}{described}>"]
    types = input_types(assembly, function, node)
    if types:
        ports = [
            _linked(name, type, node.inputs.get(name))
            for name, type in types.items()
            if name in node.inputs or not has_default(node, name)
        ]
        lines += ["<i:in>", *ports, "</i:in>"]
    ports = [_declared(name, type) for name, type in output_types(assembly, function, node).items()]
    return [*lines, "<i:out>", *ports, "</i:out>", f"</i:{node.type.tag}>"]


# --- resources -------------------------------------------------------------------------------------------------------


def _resource(number: int, resource: Resource, sheets: Mapping[int, list[str]]) -> list[str]:
    match resource:
        case ImageStack():
            return _image(number, resource, sheets[number])
        case VolumeData():
            return _volume(number, resource)
        case TriangleMesh():
            mesh = _attributes(volumeid=resource.volume_data)
            return _object(number, resource.name, [f"<mesh{mesh}>", *_geometry(resource), "</mesh>"])
        case BeamLattice():
            return _object(number, resource.name, ["<mesh>", *_lattice(resource), "</mesh>"])
        case LevelSet():
            return _object(number, resource.name, [_level_set(resource)])
        case Components():
            members = [
                f"<component{_attributes(objectid=member, transform=_transform(transform))}/>"
                for member, transform in resource.members
            ]
            return _object(number, resource.name, ["<components>", *members, "</components>"])
    raise FormatError(f"no 3MF file holds a {type(resource).__name__}")


def _object(number: int, name: str, lines: list[str]) -> list[str]:
    return [f'<object{_attributes(id=number, name=name or None)} type="model">', *lines, "</object>"]


def _geometry(mesh: TriangleMesh) -> list[str]:
    lines = ["<vertices>"]
    lines += [f'<vertex x="{x!r}" y="{y!r}" z="{z!r}"/>' for x, y, z in mesh.vertices.tolist()]
    lines += ["</vertices>", "<triangles>"]
    lines += [f'<triangle v1="{a}" v2="{b}" v3="{c}"/>' for a, b, c in mesh.triangles.tolist()]
    return [*lines, "</triangles>"]


def _lattice(lattice: BeamLattice) -> list[str]:
    lines = ["<vertices>"]
    lines += [f'<vertex x="{x!r}" y="{y!r}" z="{z!r}"/>' for x, y, z in lattice.vertices.tolist()]
    lines += ["</vertices>", "<triangles/>", '<b:beamlattice radius="1.0" minlength="0.0001">', "<b:beams>"]
    for (a, b), (first, second) in zip(lattice.beams.tolist(), lattice.radii.tolist(), strict=True):
        lines.append(f'<b:beam v1="{a}" v2="{b}" r1="{first!r}" r2="{second!r}"/>')
    return [*lines, "</b:beams>", "</b:beamlattice>"]


def _level_set(level_set: LevelSet) -> str:
    described = _attributes(
        functionid=level_set.function,
        channel=level_set.channel,
        meshid=level_set.mesh,
        meshbboxonly=level_set.box_only,
        transform=_transform(level_set.transform),
        minfeaturesize=level_set.min_feature_size,
        fallbackvalue=level_set.fallback,
        volumeid=level_set.volume_data,
    )
    return f"<v:levelset{described}/>"


def _volume(number: int, volume: VolumeData) -> list[str]:
    lines = [f"<v:volumedata{_attributes(id=number)}>"]
    shares = [_channel("materialmapping", channel) for channel in volume.channels if channel.kind == "material"]
    if shares:
        lines += [f"<v:composite{_attributes(basematerialid=volume.material_group)}>", *shares, "</v:composite>"]
    lines += [_channel(channel.kind, channel) for channel in volume.channels if channel.kind != "material"]
    return [*lines, "</v:volumedata>"]


def _channel(tag: str, channel: VolumeChannel) -> str:
    described = _attributes(
        name=channel.name or None,
        functionid=channel.function,
        channel=channel.channel,
        transform=_transform(channel.transform),
        minfeaturesize=channel.min_feature_size,
        fallbackvalue=channel.fallback,
        required=channel.required or None,
    )
    return f"<v:{tag}{described}/>"


def _image(number: int, stack: ImageStack, paths: list[str]) -> list[str]:
    sheets, rows, columns, _ = stack.samples.shape
    size = _attributes(rowcount=rows, columncount=columns, sheetcount=sheets)
    described = _attributes(id=number, name=stack.name or None)
    listed = [f"<v:imagesheet{_attributes(path='/' + path)}/>" for path in paths]
    return [f"<v:image3d{described}>", f"<v:imagestack{size}>", *listed, "</v:imagestack>", "</v:image3d>"]
