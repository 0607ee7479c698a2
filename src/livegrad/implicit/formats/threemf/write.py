"""Writes 3MF files. In: an `Assembly`. Out: a package that reads back as an equal assembly."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from xml.sax.saxutils import escape, quoteattr

from livegrad.diagnostics import caller_origin
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.package import write_package
from livegrad.implicit.formats.threemf import namespaces
from livegrad.implicit.formats.threemf.livegrad_metadata import PARAMETERS, POSITIONS, parameters_text, positions_text
from livegrad.implicit.formats.threemf.rules import built_objects, solid_problem
from livegrad.implicit.formats.threemf.write_resources import (
    attributes,
    material_lines,
    resource_lines,
    sheet_bytes,
    transform_text,
)
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.checks import call_order, has_default, input_types, node_order, output_types
from livegrad.implicit.nodes.constants import literals_to_constants
from livegrad.implicit.nodes.node_graph import GraphFunction, GraphNode, ImageFunction
from livegrad.implicit.nodes.node_types import GRADIENT_TYPES
from livegrad.implicit.nodes.ports import PortType, Reference
from livegrad.implicit.nodes.resources import (
    BeamLattice,
    BuildItem,
    Components,
    ImageStack,
    LevelSet,
    Thumbnail,
    TriangleMesh,
    VolumeData,
)

_REFERENCES = {type: ("resourceref" if type is PortType.RESOURCE else f"{type.value}ref") for type in PortType}


def save_3mf(assembly: Assembly, path: str | os.PathLike[str]) -> None:
    """Writes an assembly as a 3MF file, atomically.

    Literals of inputs become constant nodes, because the format has no literals. Node positions and names of parameters
    are stored as metadata, which other readers ignore.

    >>> import os, tempfile
    >>> import livegrad as lg
    >>> path = os.path.join(tempfile.mkdtemp(), "ball.3mf")
    >>> ball = lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)), "ball")
    >>> save_3mf(lg.implicit.assembly_of_part(ball), path)
    >>> lg.load_3mf(path).problems()
    ()
    """
    if not isinstance(assembly, Assembly):
        raise FormatError(
            "a 3MF file holds an assembly",
            where=caller_origin(),
            found=type(assembly).__name__,
            help="`lg.implicit.assembly_of_part(part)` creates one from a part",
        )
    plain = _add_material_groups(literals_to_constants(assembly))
    order = call_order(plain, list(plain.functions))
    if order is None:
        raise FormatError(
            "the calls of the functions form a cycle, which a file cannot represent", where=caller_origin()
        )
    _require_conforming(plain)
    _Writer(plain, order).write(path)


class _Writer:
    """Collects the parts of a package: the model, the sheets of images, thumbnails, and their relationships."""

    def __init__(self, assembly: Assembly, order: list[int]) -> None:
        self.assembly = assembly
        self.order = order
        self.parts: dict[str, bytes] = {}
        self.relations: list[tuple[str, str]] = []  # of the model: type and target
        self.sheets: dict[int, list[str]] = {}
        self.thumbnails: dict[int, str] = {}

    def write(self, path: str | os.PathLike[str]) -> None:
        package = [(namespaces.MODEL_RELATIONSHIP, f"/{namespaces.MODEL_PART}")]
        if self.assembly.document.thumbnail is not None:
            target = self._picture(self.assembly.document.thumbnail, "Metadata/thumbnail")
            package.append((namespaces.THUMBNAIL_RELATIONSHIP, f"/{target}"))
        for resource_id, resource in self.assembly.resources.items():
            if isinstance(resource, ImageStack):
                self._add_sheets(resource_id, resource)
            elif (thumbnail := getattr(resource, "thumbnail", None)) is not None:
                self.thumbnails[resource_id] = self._picture(thumbnail, f"Thumbnails/object{resource_id}")
                self.relations.append((namespaces.THUMBNAIL_RELATIONSHIP, f"/{self.thumbnails[resource_id]}"))
        model = _model(self.assembly, self.order, self.sheets, self.thumbnails)
        first = {"[Content_Types].xml": _content_types(), "_rels/.rels": _relationships(package)}
        if self.relations:
            self.parts["3D/_rels/3dmodel.model.rels"] = _relationships(self.relations)
        write_package(path, {**first, namespaces.MODEL_PART: model.encode(), **self.parts})

    def _picture(self, thumbnail: Thumbnail, stem: str) -> str:
        name = f"{stem}.{'png' if thumbnail.content_type == 'image/png' else 'jpeg'}"
        self.parts[name] = thumbnail.data
        return name

    def _add_sheets(self, image_id: int, stack: ImageStack) -> None:
        self.sheets[image_id] = []
        for index, samples in enumerate(stack.samples):
            name = f"3D/volumetric/image{image_id}/sheet{index:04}.png"
            self.parts[name] = sheet_bytes(samples, stack)
            self.sheets[image_id].append(name)
            self.relations.append((namespaces.TEXTURE_RELATIONSHIP, f"/{name}"))


def _require_conforming(assembly: Assembly) -> None:
    """Raises for an assembly that 3MF readers would reject."""
    seen: set[str] = set()
    for name, _ in assembly.document.metadata:
        if name in seen:
            raise FormatError(f"metadata `{name}` occurs twice", where=caller_origin())
        if ":" not in name and name not in namespaces.WELL_KNOWN_METADATA:
            expected = ", ".join(namespaces.WELL_KNOWN_METADATA)
            raise FormatError(
                f"3MF files have no metadata `{name}`",
                where=caller_origin(),
                expected=expected,
                help="give it a prefix",
            )
        seen.add(name)
    for object_id in built_objects(assembly.resources, assembly.items):
        mesh = assembly.resources[object_id]
        if isinstance(mesh, TriangleMesh) and (problem := solid_problem(mesh)) is not None:
            raise FormatError(
                f"mesh {object_id} cannot be saved: {problem}",
                where=caller_origin(),
                help='save a mesh that is not solid as another object type: object_type="surface"',
            )


def _content_types() -> bytes:
    types = {
        "rels": "application/vnd.openxmlformats-package.relationships+xml",
        "model": "application/vnd.ms-package.3dmanufacturing-3dmodel+xml",
        "png": "image/png",
        "jpeg": "image/jpeg",
    }
    lines = [f'<Default Extension="{name}" ContentType="{type}"/>' for name, type in types.items()]
    return _document(f'<Types xmlns="{namespaces.CONTENT_TYPES}">', lines, "</Types>")


def _relationships(relations: Sequence[tuple[str, str]]) -> bytes:
    lines = [
        f'<Relationship Type="{type}" Target="{target}" Id="rel{index}"/>'
        for index, (type, target) in enumerate(relations)
    ]
    return _document(f'<Relationships xmlns="{namespaces.RELATIONSHIPS}">', lines, "</Relationships>")


def _document(first: str, lines: Iterable[str], last: str) -> bytes:
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', first, *lines, last, ""]).encode()


def _model(assembly: Assembly, order: list[int], sheets: Mapping[int, list[str]], thumbnails: Mapping[int, str]) -> str:
    candidates = (
        (POSITIONS, positions_text(assembly.functions)),
        (PARAMETERS, parameters_text(assembly.document.parameters)),
    )
    metadata = (*assembly.document.metadata, *((name, text) for name, text in candidates if text is not None))
    used = _extensions(assembly)
    spaces = {**used, **_vendor_prefixes(assembly, [name for name, _ in metadata])}
    declared = "".join(f" xmlns:{prefix}={quoteattr(space)}" for prefix, space in spaces.items())
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(
        f'<model xmlns="{namespaces.CORE}"{declared} xml:lang="en-US"'
        f"{attributes(unit=assembly.document.unit, requiredextensions=' '.join(used) or None)}>"
    )
    for name, text in metadata:
        lines.append(f"<metadata{attributes(name=name)}>{escape(text)}</metadata>")
    lines.append("<resources>")
    for group, count in _material_groups(assembly).items():
        lines += material_lines(group, count)
    for resource_id in _in_order_of_need(assembly, order):
        if resource_id in assembly.functions:
            lines += _function(assembly, resource_id)
        else:
            about = attributes(thumbnail=f"/{thumbnails[resource_id]}") if resource_id in thumbnails else ""
            lines += resource_lines(resource_id, assembly.resources[resource_id], sheets, about)
    lines += ["</resources>", "<build>", *map(_item, assembly.items), "</build>", "</model>", ""]
    return "\n".join(lines)


def _material_groups(assembly: Assembly) -> dict[int, int]:
    """The number of shares of each material group."""
    counts: dict[int, int] = {}
    for resource in assembly.resources.values():
        if isinstance(resource, VolumeData) and resource.material_group is not None:
            counts[resource.material_group] = sum(channel.kind == "material" for channel in resource.channels)
    return counts


def _add_material_groups(assembly: Assembly) -> Assembly:
    """The assembly with a material group id for every composite."""
    resources = dict(assembly.resources)
    free = assembly.free_id()
    for resource_id, resource in assembly.resources.items():
        shares = isinstance(resource, VolumeData) and any(channel.kind == "material" for channel in resource.channels)
        if shares and isinstance(resource, VolumeData) and resource.material_group is None:
            resources[resource_id] = replace(resource, material_group=free)
            free += 1
    return replace(assembly, resources=resources)


def _extensions(assembly: Assembly) -> dict[str, str]:
    """The required extensions, by prefix."""
    resources = assembly.resources.values()
    functions = assembly.functions.values()
    volumetric = (LevelSet, VolumeData, ImageStack)
    lattices = [resource for resource in resources if isinstance(resource, BeamLattice)]
    candidates = {
        "i": (namespaces.IMPLICIT, any(isinstance(function, GraphFunction) for function in functions)),
        "v": (
            namespaces.VOLUMETRIC,
            any(isinstance(resource, volumetric) or getattr(resource, "volume_data", None) for resource in resources)
            or any(isinstance(function, ImageFunction) for function in functions),
        ),
        "b": (namespaces.BEAM_LATTICE, bool(lattices)),
        "b2": (namespaces.BALLS, any(len(lattice.balls) for lattice in lattices)),
    }
    return {prefix: space for prefix, (space, needed) in candidates.items() if needed}


def _vendor_prefixes(assembly: Assembly, metadata: Iterable[str]) -> dict[str, str]:
    """The namespaces of the prefixes in names. An undeclared prefix gets a new one."""
    channels = [r.channels for r in assembly.resources.values() if isinstance(r, VolumeData)]
    listed = [*metadata, *(channel.name for group in channels for channel in group)]
    used = [name.partition(":")[0] for name in listed if ":" in name]
    declared = {**dict(assembly.document.prefixes), POSITIONS.partition(":")[0]: namespaces.LIVEGRAD}
    return {prefix: declared.get(prefix, f"urn:{prefix}") for prefix in dict.fromkeys(used)}


def _in_order_of_need(assembly: Assembly, order: list[int]) -> list[int]:
    """Functions and resources, each after those that it refers to, for single-pass readers."""
    ordered: dict[int, None] = {}
    started: set[int] = set()
    for root in (*order, *assembly.resources):
        pending = [root]
        while pending:
            resource_id = pending[-1]
            if resource_id in started:
                ordered.setdefault(pending.pop())
                continue
            started.add(resource_id)
            pending.extend(reversed([n for n in _needs(assembly, resource_id) if n not in started]))
    return list(ordered)


def _needs(assembly: Assembly, resource_id: int) -> list[int]:
    function = assembly.functions.get(resource_id)
    named: list[int | None] = []
    match assembly.resources.get(resource_id) if function is None else function:
        case GraphFunction(nodes=nodes):
            named = [node.value for node in nodes.values() if node.type.name == "ResourceId"]  # type: ignore[misc]
        case ImageFunction(image=image):
            named = [image]
        case LevelSet(function=field, mesh=mesh, volume_data=volume):
            named = [field, mesh, volume]
        case VolumeData(channels=channels):
            named = [channel.function for channel in channels]
        case Components(members=members):
            named = [member for member, _ in members]
        case TriangleMesh(volume_data=volume):
            named = [volume]
        case BeamLattice(clipping_mesh=clip, representation_mesh=shown):
            named = [clip, shown]
    existing = (*assembly.functions, *assembly.resources) if named else ()
    return [n for n in named if n is not None and n in existing]


def _item(item: BuildItem) -> str:
    part_number = item.part_number or None
    described = attributes(objectid=item.object, transform=transform_text(item.transform), partnumber=part_number)
    return f"<item{described}/>"


# --- functions -------------------------------------------------------------------------------------------------------


def _function(assembly: Assembly, function_id: int) -> list[str]:
    function = assembly.functions[function_id]
    if isinstance(function, ImageFunction):
        u, v, w = function.tile_styles
        described = attributes(
            id=function_id,
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
        raise FormatError(f"the links of function `{function.name}` form a cycle, which a file cannot represent")
    lines = [f"<i:implicitfunction{attributes(id=function_id, displayname=function.name)}>", "<i:in>"]
    lines += [_declare_port(name, type) for name, type in function.inputs.items()]
    lines.append("</i:in>")
    for node in nodes:
        lines += _node(assembly, function, node)
    lines.append("<i:out>")
    for name, type in function.outputs.items():
        lines.append(_link_port(name, type, function.results.get(name)))
    return [*lines, "</i:out>", "</i:implicitfunction>"]


def _declare_port(name: str, type: PortType) -> str:
    return f"<i:{type.value}{attributes(identifier=name, displayname=name)}/>"


def _link_port(name: str, type: PortType, source: object) -> str:
    reference = str(source) if isinstance(source, Reference) else ""
    return f"<i:{_REFERENCES[type]}{attributes(identifier=name, displayname=name, ref=reference)}/>"


def _node(assembly: Assembly, function: GraphFunction, node: GraphNode) -> list[str]:
    values: dict[str, object] = {}
    if node.type.name == "ConstVec" and isinstance(node.value, tuple):
        values = dict(zip("xyz", node.value, strict=True))
    elif node.value is not None:
        values = {"matrix" if node.type.name == "ConstMat" else "value": node.value}
    if node.type.name in GRADIENT_TYPES:
        values |= {"scalaroutput": node.scalar_output, "vectorinput": node.vector_input}
    described = attributes(identifier=node.identifier, displayname=node.display_name, tag=node.tag, **values)
    lines = [f"<i:{node.type.tag}{described}>"]
    types = input_types(assembly, function, node)
    if types:
        ports = [
            _link_port(name, type, node.inputs.get(name))
            for name, type in types.items()
            if name in node.inputs or not has_default(node, name)
        ]
        lines += ["<i:in>", *ports, "</i:in>"]
    ports = [_declare_port(name, type) for name, type in output_types(assembly, function, node).items()]
    return [*lines, "<i:out>", *ports, "</i:out>", f"</i:{node.type.tag}>"]
