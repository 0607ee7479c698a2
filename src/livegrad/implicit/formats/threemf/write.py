"""Writes assemblies as 3MF packages, which read back as equal assemblies.

`save_3mf` is public. `write_resources` formats the resources, this module everything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from xml.sax.saxutils import escape, quoteattr

from livegrad.diagnostics import caller_origin
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.package import write_package
from livegrad.implicit.formats.threemf import namespaces
from livegrad.implicit.formats.threemf.livegrad_metadata import (
    CONTROLS,
    PARAMETERS,
    POSITIONS,
    format_controls,
    format_parameters,
    format_positions,
)
from livegrad.implicit.formats.threemf.rules import built_objects, solid_problem
from livegrad.implicit.formats.threemf.write_resources import (
    encode_sheet,
    format_attributes,
    format_materials,
    format_resource,
    omit_identity,
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
    prepared = _add_material_groups(literals_to_constants(assembly))
    order = call_order(prepared, list(prepared.functions))
    if order is None:
        raise FormatError(
            "the calls of the functions form a cycle, which a file cannot represent", where=caller_origin()
        )
    _require_conforming(prepared)
    _Writer(prepared, order).write(path)


class _Writer:
    """Collects the parts of a package: the model, image sheets, thumbnails, and relationships."""

    def __init__(self, assembly: Assembly, order: list[int]) -> None:
        self.assembly = assembly
        self.order = order
        self.parts: dict[str, bytes] = {}
        self.relations: list[tuple[str, str]] = []  # of the model: (type, target)
        self.sheets: dict[int, list[str]] = {}
        self.thumbnails: dict[int, str] = {}

    def write(self, path: str | os.PathLike[str]) -> None:
        package = [(namespaces.MODEL_RELATIONSHIP, f"/{namespaces.MODEL_PART}")]
        if self.assembly.document.thumbnail is not None:
            target = self._add_picture(self.assembly.document.thumbnail, "Metadata/thumbnail")
            package.append((namespaces.THUMBNAIL_RELATIONSHIP, f"/{target}"))
        for resource_id, resource in self.assembly.resources.items():
            if isinstance(resource, ImageStack):
                self._add_sheets(resource_id, resource)
            elif (thumbnail := getattr(resource, "thumbnail", None)) is not None:
                self.thumbnails[resource_id] = self._add_picture(thumbnail, f"Thumbnails/object{resource_id}")
                self.relations.append((namespaces.THUMBNAIL_RELATIONSHIP, f"/{self.thumbnails[resource_id]}"))
        model = _format_model(self.assembly, self.order, self.sheets, self.thumbnails)
        first = {"[Content_Types].xml": _format_content_types(), "_rels/.rels": _format_relationships(package)}
        if self.relations:
            self.parts["3D/_rels/3dmodel.model.rels"] = _format_relationships(self.relations)
        write_package(path, {**first, namespaces.MODEL_PART: model.encode(), **self.parts})

    def _add_picture(self, thumbnail: Thumbnail, stem: str) -> str:
        name = f"{stem}.{'png' if thumbnail.content_type == 'image/png' else 'jpeg'}"
        self.parts[name] = thumbnail.data
        return name

    def _add_sheets(self, image_id: int, stack: ImageStack) -> None:
        self.sheets[image_id] = []
        for index, samples in enumerate(stack.samples):
            name = f"3D/volumetric/image{image_id}/sheet{index:04}.png"
            self.parts[name] = encode_sheet(samples, stack)
            self.sheets[image_id].append(name)
            self.relations.append((namespaces.TEXTURE_RELATIONSHIP, f"/{name}"))


def _require_conforming(assembly: Assembly) -> None:
    """Raises for an assembly that 3MF readers would reject."""
    names: set[str] = set()
    for name, _ in assembly.document.metadata:
        if name in names:
            raise FormatError(f"metadata `{name}` is not unique", where=caller_origin())
        if ":" not in name and name not in namespaces.WELL_KNOWN_METADATA:
            expected = ", ".join(namespaces.WELL_KNOWN_METADATA)
            raise FormatError(
                f"3MF does not define metadata `{name}`",
                where=caller_origin(),
                expected=expected,
                help="use a name with a prefix, such as `vendor:name`",
            )
        names.add(name)
    for object_id in built_objects(assembly.resources, assembly.items):
        mesh = assembly.resources[object_id]
        if isinstance(mesh, TriangleMesh) and (problem := solid_problem(mesh)) is not None:
            raise FormatError(
                f"mesh {object_id} cannot be saved: {problem}",
                where=caller_origin(),
                help='save a mesh that is not solid as another object type: object_type="surface"',
            )


def _format_content_types() -> bytes:
    types = {
        "rels": "application/vnd.openxmlformats-package.relationships+xml",
        "model": "application/vnd.ms-package.3dmanufacturing-3dmodel+xml",
        "png": "image/png",
        "jpeg": "image/jpeg",
    }
    lines = [f'<Default Extension="{name}" ContentType="{type}"/>' for name, type in types.items()]
    return _format_document(f'<Types xmlns="{namespaces.CONTENT_TYPES}">', lines, "</Types>")


def _format_relationships(relations: Sequence[tuple[str, str]]) -> bytes:
    lines = [
        f'<Relationship Type="{type}" Target="{target}" Id="rel{index}"/>'
        for index, (type, target) in enumerate(relations)
    ]
    return _format_document(f'<Relationships xmlns="{namespaces.RELATIONSHIPS}">', lines, "</Relationships>")


def _format_document(first: str, lines: Iterable[str], last: str) -> bytes:
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', first, *lines, last, ""]).encode()


def _format_model(
    assembly: Assembly, order: list[int], sheets: Mapping[int, list[str]], thumbnails: Mapping[int, str]
) -> str:
    candidates = (
        (POSITIONS, format_positions(assembly.functions)),
        (PARAMETERS, format_parameters(assembly.document.parameters)),
        (CONTROLS, format_controls(assembly.document.controls)),
    )
    metadata = (*assembly.document.metadata, *((name, text) for name, text in candidates if text is not None))
    extensions = _required_extensions(assembly)
    prefixes = {**extensions, **_vendor_prefixes(assembly, [name for name, _ in metadata])}
    declared = "".join(f" xmlns:{prefix}={quoteattr(namespace)}" for prefix, namespace in prefixes.items())
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(
        f'<model xmlns="{namespaces.CORE}"{declared} xml:lang="en-US"'
        f"{format_attributes(unit=assembly.document.unit, requiredextensions=' '.join(extensions) or None)}>"
    )
    for name, text in metadata:
        lines.append(f"<metadata{format_attributes(name=name)}>{escape(text)}</metadata>")
    lines.append("<resources>")
    for group, count in _count_materials(assembly).items():
        lines += format_materials(group, count)
    for resource_id in _sort_topologically(assembly, order):
        if resource_id in assembly.functions:
            lines += _format_function(assembly, resource_id)
        else:
            thumbnail_attribute = (
                format_attributes(thumbnail=f"/{thumbnails[resource_id]}") if resource_id in thumbnails else ""
            )
            lines += format_resource(resource_id, assembly.resources[resource_id], sheets, thumbnail_attribute)
    lines += ["</resources>", "<build>", *map(_format_item, assembly.items), "</build>", "</model>", ""]
    return "\n".join(lines)


def _count_materials(assembly: Assembly) -> dict[int, int]:
    """The number of materials of each material group."""
    counts: dict[int, int] = {}
    for resource in assembly.resources.values():
        if isinstance(resource, VolumeData) and resource.material_group is not None:
            counts[resource.material_group] = sum(channel.kind == "material" for channel in resource.channels)
    return counts


def _add_material_groups(assembly: Assembly) -> Assembly:
    """Gives an id to the material group of every composite without one."""
    resources = dict(assembly.resources)
    next_id = assembly.free_id()
    for resource_id, resource in assembly.resources.items():
        has_materials = isinstance(resource, VolumeData) and any(
            channel.kind == "material" for channel in resource.channels
        )
        if has_materials and isinstance(resource, VolumeData) and resource.material_group is None:
            resources[resource_id] = replace(resource, material_group=next_id)
            next_id += 1
    return replace(assembly, resources=resources)


def _required_extensions(assembly: Assembly) -> dict[str, str]:
    """The namespaces of the required extensions, by prefix."""
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
    return {prefix: namespace for prefix, (namespace, needed) in candidates.items() if needed}


def _vendor_prefixes(assembly: Assembly, metadata: Iterable[str]) -> dict[str, str]:
    """The namespaces of the prefixes in names. An undeclared prefix gets a new namespace."""
    channels = [r.channels for r in assembly.resources.values() if isinstance(r, VolumeData)]
    names = [*metadata, *(channel.name for group in channels for channel in group)]
    used = [name.partition(":")[0] for name in names if ":" in name]
    declared = {**dict(assembly.document.prefixes), POSITIONS.partition(":")[0]: namespaces.LIVEGRAD}
    return {prefix: declared.get(prefix, f"urn:{prefix}") for prefix in dict.fromkeys(used)}


def _sort_topologically(assembly: Assembly, order: list[int]) -> list[int]:
    """Orders functions and resources after those that they refer to, for single-pass readers."""
    ordered: dict[int, None] = {}
    visited: set[int] = set()
    for root in (*order, *assembly.resources):
        pending = [root]
        while pending:
            resource_id = pending[-1]
            if resource_id in visited:
                ordered.setdefault(pending.pop())
                continue
            visited.add(resource_id)
            pending.extend(reversed([n for n in _references(assembly, resource_id) if n not in visited]))
    return list(ordered)


def _references(assembly: Assembly, resource_id: int) -> list[int]:
    function = assembly.functions.get(resource_id)
    references: list[int | None] = []
    match assembly.resources.get(resource_id) if function is None else function:
        case GraphFunction(nodes=nodes):
            references = [node.value for node in nodes.values() if node.type.name == "ResourceId"]  # type: ignore[misc]
        case ImageFunction(image=image):
            references = [image]
        case LevelSet(function=function_id, mesh=mesh, volume_data=volume):
            references = [function_id, mesh, volume]
        case VolumeData(channels=channels):
            references = [channel.function for channel in channels]
        case Components(members=members):
            references = [member for member, _ in members]
        case TriangleMesh(volume_data=volume):
            references = [volume]
        case BeamLattice(clipping_mesh=clip, representation_mesh=representation):
            references = [clip, representation]
    existing = (*assembly.functions, *assembly.resources) if references else ()
    return [n for n in references if n is not None and n in existing]


def _format_item(item: BuildItem) -> str:
    part_number = item.part_number or None
    attribute_text = format_attributes(
        objectid=item.object, transform=omit_identity(item.transform), partnumber=part_number
    )
    return f"<item{attribute_text}/>"


# --- functions -------------------------------------------------------------------------------------------------------


def _format_function(assembly: Assembly, function_id: int) -> list[str]:
    function = assembly.functions[function_id]
    if isinstance(function, ImageFunction):
        u, v, w = function.tile_styles
        attribute_text = format_attributes(
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
        return [f"<v:functionfromimage3d{attribute_text}/>"]
    nodes = node_order(function)
    if nodes is None:
        raise FormatError(f"the links of function `{function.name}` form a cycle, which a file cannot represent")
    lines = [f"<i:implicitfunction{format_attributes(id=function_id, displayname=function.name)}>", "<i:in>"]
    lines += [_format_port(name, type) for name, type in function.inputs.items()]
    lines.append("</i:in>")
    for node in nodes:
        lines += _format_node(assembly, function, node)
    lines.append("<i:out>")
    for name, type in function.outputs.items():
        lines.append(_format_link(name, type, function.results.get(name)))
    return [*lines, "</i:out>", "</i:implicitfunction>"]


def _format_port(name: str, type: PortType) -> str:
    return f"<i:{type.value}{format_attributes(identifier=name, displayname=name)}/>"


def _format_link(name: str, type: PortType, source: object) -> str:
    reference = str(source) if isinstance(source, Reference) else ""
    return f"<i:{_REFERENCES[type]}{format_attributes(identifier=name, displayname=name, ref=reference)}/>"


def _format_node(assembly: Assembly, function: GraphFunction, node: GraphNode) -> list[str]:
    values: dict[str, object] = {}
    if node.type.name == "ConstVec" and isinstance(node.value, tuple):
        values = dict(zip("xyz", node.value, strict=True))
    elif node.value is not None:
        values = {"matrix" if node.type.name == "ConstMat" else "value": node.value}
    if node.type.name in GRADIENT_TYPES:
        values |= {"scalaroutput": node.scalar_output, "vectorinput": node.vector_input}
    attribute_text = format_attributes(
        identifier=node.identifier, displayname=node.display_name, tag=node.tag, **values
    )
    lines = [f"<i:{node.type.tag}{attribute_text}>"]
    types = input_types(assembly, function, node)
    if types:
        ports = [
            _format_link(name, type, node.inputs.get(name))
            for name, type in types.items()
            if name in node.inputs or not has_default(node, name)
        ]
        lines += ["<i:in>", *ports, "</i:in>"]
    ports = [_format_port(name, type) for name, type in output_types(assembly, function, node).items()]
    return [*lines, "<i:out>", *ports, "</i:out>", f"</i:{node.type.tag}>"]
