"""The schema of 3MF as a table. `read` validates models against it before it reads them.

An entry has an element, its attributes with the types of their values, and its children. `!` marks required entries,
`*` entries that may be repeated. Children must be in this order, unless `~` follows the name of the element.
`read_functions` validates functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from livegrad.implicit.formats.threemf.namespaces import OBJECT_TYPES, UNITS, vocabulary_of
from livegrad.implicit.formats.xml_tree import Element

_TABLE = """
core:model unit:unit requiredextensions recommendedextensions thumbnail:path > metadata* resources! build!
core:metadata name!:qname preserve:flag type >
core:metadatagroup > metadata!*
core:resources~ > basematerials* object* {material}* slice:slicestack* volumetric:volumedata*
    volumetric:image3d*
core:build > item*
core:item objectid!:id transform:matrix partnumber > metadatagroup
core:basematerials id!:id > base!*
core:base name! displaycolor!:color >
core:object id!:id type:object pid:id pindex:index thumbnail:path partnumber name > metadatagroup mesh
    components volumetric:levelset production:alternatives
core:mesh volumeid:id > vertices! triangles trianglesets:trianglesets beamlattice:beamlattice
core:vertices >
core:triangles >
core:components > component!*
core:component objectid!:id transform:matrix >
trianglesets:trianglesets > triangleset*
trianglesets:triangleset name!:word identifier!:word > ref* refrange*
trianglesets:ref index!:index >
trianglesets:refrange startindex!:index endindex!:index >
beamlattice:beamlattice~ minlength!:positive radius!:positive precision:positive ballmode ballradius:positive
    clippingmode:clipping clippingmesh:id representationmesh:id pid:id pindex:index cap:cap > beams! balls
    beamsets
beamlattice:beams > beam*
beamlattice:beam v1!:index v2!:index r1:positive r2:positive p1:index p2:index pid:id cap1:cap cap2:cap >
beamlattice:balls > ball*
beamlattice:ball vindex!:index r:positive p:index pid:id >
beamlattice:beamsets > beamset*
beamlattice:beamset name identifier > ref* ballref*
beamlattice:ref index!:index >
beamlattice:ballref index!:index >
volumetric:levelset functionid!:id channel! meshid!:id transform:matrix minfeaturesize:positive
    meshbboxonly:flag fallbackvalue:number volumeid:id >
volumetric:volumedata id!:id > composite color property*
volumetric:composite basematerialid!:id > materialmapping!*
volumetric:materialmapping functionid!:id channel! transform:matrix minfeaturesize:positive fallbackvalue:number
    >
volumetric:color functionid!:id channel! transform:matrix minfeaturesize:positive fallbackvalue:number >
volumetric:property functionid!:id channel! name! transform:matrix required:flag minfeaturesize:positive
    fallbackvalue:number >
volumetric:image3d id!:id name > imagestack!
volumetric:imagestack rowcount!:id columncount!:id sheetcount!:id > imagesheet!*
volumetric:imagesheet path!:path >
slice:slicestack id!:id zbottom:number > slice* sliceref*
slice:slice ztop!:number > vertices polygon*
slice:vertices > vertex!*
slice:vertex x!:number y!:number >
slice:polygon startv!:index > segment!*
slice:segment v2!:index p1:index p2:index pid:id >
slice:sliceref slicestackid!:id slicepath!:path >
material:texture2d id!:id path!:path contenttype!:picture tilestyleu:tiles tilestylev:tiles filter:filter box >
material:colorgroup id!:id displaypropertiesid:id > color!*
material:color color!:color >
material:texture2dgroup id!:id texid!:id displaypropertiesid:id > tex2coord!*
material:tex2coord u!:number v!:number >
material:compositematerials id!:id matid!:id matindices!:indices displaypropertiesid:id > composite!*
material:composite values! >
material:multiproperties id!:id pids!:indices blendmethods > multi!*
material:multi pindices!:indices >
"""

NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_INDEX = r"\+?[0-9]{1,10}"
_VALUE_PATTERNS = {
    "text": r"(?s:.*)",
    "word": r"(?s:.+)",
    "qname": r"[^\s:]+(?::[^\s:]+)?",
    "number": NUMBER,
    "positive": r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?",
    "matrix": rf"{NUMBER}(?:\s+{NUMBER}){{11}}",
    "id": rf"(?!\+?0+$){_INDEX}",
    "index": _INDEX,
    "indices": r"[0-9]+(?:\s+[0-9]+)*",
    "path": r"/.+",
    "flag": "true|false|0|1",
    "color": r"#(?:[0-9A-Fa-f]{6}|[0-9A-Fa-f]{8})",
    "unit": "|".join(UNITS),
    "object": "|".join(OBJECT_TYPES),
    "cap": "hemisphere|sphere|butt",
    "clipping": "none|inside|outside",
    "picture": "image/png|image/jpeg",
    "tiles": "wrap|mirror|clamp|none",
    "filter": "auto|linear|nearest",
}
_PATTERNS = {kind: re.compile(rf"\s*(?:{pattern})\s*") for kind, pattern in _VALUE_PATTERNS.items()}
_ROW_ATTRIBUTES = {"vertices": {"x", "y", "z"}, "triangles": {"v1", "v2", "v3", "pid", "p1", "p2", "p3"}}
_MATERIAL_GROUPS = ("texture2d", "colorgroup", "texture2dgroup", "compositematerials", "multiproperties")
_FORBIDDEN_NAMESPACES = ("http://www.w3.org/XML/1998/namespace", "http://www.w3.org/2001/XMLSchema-instance")
_LANGUAGE = f"{_FORBIDDEN_NAMESPACES[0]} lang"


@dataclass(frozen=True)
class _Rule:
    attributes: dict[str, str]
    required: frozenset[str]
    children: dict[str, int]  # the position of each
    required_children: frozenset[str]
    repeated: frozenset[str]
    ordered: bool


def _parse_rule(line: str) -> tuple[str, _Rule]:
    groups = " ".join(f"material:{name}*" for name in _MATERIAL_GROUPS)
    head, _, tail = line.replace("{material}*", groups).partition(">")
    name, *attributes = head.split()
    pairs = [attribute.partition(":") for attribute in attributes]
    vocabulary = name.partition(":")[0]
    children = [child if ":" in child else f"{vocabulary}:{child}" for child in tail.split()]
    return name.rstrip("~"), _Rule(
        {name.rstrip("!"): kind or "text" for name, _, kind in pairs},
        frozenset(name.rstrip("!") for name, _, _ in pairs if name.endswith("!")),
        {child.rstrip("!*"): position for position, child in enumerate(children)},
        frozenset(child.rstrip("!*") for child in children if "!" in child),
        frozenset(child.rstrip("!*") for child in children if "*" in child),
        not name.endswith("~"),
    )


_RULES = dict(_parse_rule(entry) for entry in _TABLE.strip().replace("\n    ", " ").splitlines())
_VOCABULARIES = frozenset(name.partition(":")[0] for name in _RULES)
# Vocabularies whose other elements are validated elsewhere, or ignored.
_PARTIAL_VOCABULARIES = frozenset({"implicit", "material", "volumetric", "production"})


def check_schema(root: Element) -> None:
    """Raises at the first element or attribute that is missing or not in the schema."""
    pending = [root]
    while pending:
        element = pending.pop()
        vocabulary = vocabulary_of(element.namespace)
        rule = _RULES.get(f"{vocabulary}:{element.name}")
        if rule is not None:
            _check_attributes(element, rule)
            _check_children(element, rule)
            if element.text.strip() and element.name != "metadata":
                raise element.error("unexpected text", found=repr(element.text.strip())[:40])
        elif vocabulary in _VOCABULARIES and vocabulary not in _PARTIAL_VOCABULARIES:
            raise element.error("unknown element")
        if rule is not None or vocabulary == "other":
            pending.extend(reversed([child for child in element.children if vocabulary_of(child.namespace) != "other"]))


def _check_attributes(element: Element, rule: _Rule) -> None:
    for key, value in element.attributes.items():
        namespace, _, name = key.rpartition(" ")
        if namespace:
            if namespace in _FORBIDDEN_NAMESPACES and key != _LANGUAGE:
                raise element.error(f"attribute `{name}` is in a namespace that 3MF does not allow")
            continue
        kind = rule.attributes.get(name)
        if kind is None:
            raise element.error(f"unknown attribute `{name}`", expected=", ".join(rule.attributes) or "none")
        if not _PATTERNS[kind].fullmatch(value):
            raise element.error(f"attribute `{name}` is not a valid {kind}", found=repr(value)[:40])
    for name in rule.required:
        if name not in element.attributes:
            raise element.error(f"attribute `{name}` is missing")
    allowed = _ROW_ATTRIBUTES.get(element.name, set())
    for name in element.row_attributes:
        if " " not in name and name not in allowed:
            raise element.error(f"unknown attribute `{name}` of a row", expected=", ".join(sorted(allowed)))
    for row in element.row_properties:
        if any(value is not None and not _PATTERNS["index"].fullmatch(value) for value in row):
            raise element.error("a property of a row is not an index", found=str(row)[:60])


def _check_children(element: Element, rule: _Rule) -> None:
    last = 0
    present: set[str] = set()
    for child in element.children:
        vocabulary = vocabulary_of(child.namespace)
        name = f"{vocabulary}:{child.name}"
        if vocabulary not in _VOCABULARIES:
            continue
        position = rule.children.get(name)
        if position is None:
            if vocabulary in _PARTIAL_VOCABULARIES:
                continue
            raise child.error(f"unexpected element in <{element.name}>", expected=", ".join(rule.children) or "none")
        if name in present and name not in rule.repeated:
            raise child.error(f"<{element.name}> may contain only one such element")
        if rule.ordered and position < last:
            raise child.error("the element is in the wrong order", expected=" then ".join(rule.children))
        last = max(last, position) if rule.ordered else 0
        present.add(name)
    for name in rule.required_children - present:
        raise element.error(f"element <{name.partition(':')[2]}> is missing")
