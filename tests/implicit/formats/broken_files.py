"""Files that a reader must reject: each violates one rule of the specifications.

There is a dictionary for each extension: from a description of the violation to the parts of the package.
"""

from __future__ import annotations

from tests.implicit.formats.test_threemf import RELATIONS, TYPES

CORE = "http://schemas.microsoft.com/3dmanufacturing/core/2015/02"
SPACES = {
    "p": "http://schemas.microsoft.com/3dmanufacturing/production/2015/06",
    "b": "http://schemas.microsoft.com/3dmanufacturing/beamlattice/2017/02",
    "b2": "http://schemas.microsoft.com/3dmanufacturing/beamlattice/balls/2020/07",
    "m": "http://schemas.microsoft.com/3dmanufacturing/material/2015/02",
    "s": "http://schemas.microsoft.com/3dmanufacturing/slice/2015/07",
    "i": "http://schemas.3mf.io/3dmanufacturing/implicit/2023/12",
    "v": "http://schemas.3mf.io/3dmanufacturing/volumetric/2022/01",
}
MODEL, RELS, CONTENT = "3D/3dmodel.model", "_rels/.rels", "[Content_Types].xml"
MODEL_RELS = "3D/_rels/3dmodel.model.rels"
MODEL_TYPE = "http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"
TEXTURE_TYPE = "http://schemas.microsoft.com/3dmanufacturing/2013/01/3dtexture"
THUMBNAIL_TYPE = "http://schemas.openxmlformats.org/package/2006/relationships/metadata/thumbnail"
CORNERS = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
FACES = [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)]
Package = dict[str, str | bytes]


def mesh(faces: list[tuple[int, ...]] = FACES, corners: list[tuple[float, ...]] = CORNERS, more: str = "") -> str:  # type: ignore[assignment]
    points = "".join(f'<vertex x="{x}" y="{y}" z="{z}"/>' for x, y, z in corners)
    triangles = "".join(f'<triangle v1="{a}" v2="{b}" v3="{c}"/>' for a, b, c in faces)
    return f"<mesh><vertices>{points}</vertices><triangles>{triangles}</triangles>{more}</mesh>"


def thing(content: str | None = None, about: str = 'id="1"') -> str:
    return f"<object {about}>{mesh() if content is None else content}</object>"


def document(
    resources: str | None = None,
    build: str = '<item objectid="1"/>',
    needs: str = "",
    about: str = "",
    before: str = "",
    parts: Package | None = None,
) -> Package:
    """The parts of a package: a model with these contents, and other parts."""
    spaces = "".join(f' xmlns:{prefix}="{space}"' for prefix, space in SPACES.items())
    required = f' requiredextensions="{needs}"' if needs else ""
    inside = thing() if resources is None else resources
    text = f"<resources>{inside}</resources><build>{build}</build>"
    model = f'<model xmlns="{CORE}"{spaces}{required} unit="millimeter" {about}>{before}{text}</model>'
    return {CONTENT: TYPES, RELS: RELATIONS, MODEL: model, **(parts or {})}


def changed(part: str, old: str, new: str, package: Package | None = None) -> Package:
    """A package with a text in one part replaced."""
    parts = document() if package is None else package
    text = parts[part]
    assert isinstance(text, str)
    assert old in text
    return {**parts, part: text.replace(old, new)}


def without(part: str) -> Package:
    return {name: data for name, data in document().items() if name != part}


def related(*relations: tuple[str, str, str], mode: str = "") -> str:
    lines = "".join(f'<Relationship Id="{i}" Type="{t}" Target="{to}"{mode}/>' for i, t, to in relations)
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{lines}</Relationships>'
    )


START = ("rel0", MODEL_TYPE, "/3D/3dmodel.model")
PNG = b"\x89PNG\r\n\x1a\n"
CMYK = b"\xff\xd8\xff\xc0\x00\x14\x08\x00\x01\x00\x01\x04" + bytes(20)

OPC: dict[str, Package] = {
    "no content types": without(CONTENT),
    "no relationships": without(RELS),
    "no model": without(MODEL),
    "no start part": changed(RELS, MODEL_TYPE, MODEL_TYPE + "s"),
    "two start parts": {
        **document(), RELS: related(START, ("rel1", MODEL_TYPE, "/3D/b.model")), "3D/b.model": document()[MODEL],
    },
    "a duplicate relationship": {**document(), RELS: related(START, ("rel1", *START[1:]))},
    "a relationship to nothing": {**document(), RELS: related(START, ("rel1", THUMBNAIL_TYPE, "/no.png"))},
    "a relationship to the outside": {
        **document(), RELS: related(("rel0", MODEL_TYPE, "http://a.b/c.model"), mode=' TargetMode="External"'),
    },
    "an id of a relationship that is none": changed(RELS, "rel0", "0rel"),
    "two relationships of one id": {
        **document(), RELS: related(START, ("rel0", THUMBNAIL_TYPE, "/a.png")), "a.png": PNG,
    },
    "an unknown type of thumbnail": {
        **document(), RELS: related(START, ("rel1", THUMBNAIL_TYPE + "s", "/a.png")), "a.png": PNG,
    },
    "a part whose name differs by case": changed(RELS, "/3D/3dmodel.model", "/3d/3DModel.model"),
    "a name with an empty segment": changed(RELS, "/3D/3dmodel.model", "/3D//3dmodel.model"),
    "a type of no ending": changed(CONTENT, 'Extension="png"', 'Extension=""'),
    "two types of one ending": changed(CONTENT, 'Extension="png"', 'Extension="MODEL"'),
    "a type of no part": changed(CONTENT, "</Types>", '<Override PartName="" ContentType="image/png"/></Types>'),
    "a model of another type": changed(CONTENT, "3dmodel+xml", "4dmodel+xml"),
    "relationships of another type": changed(CONTENT, "relationships+xml", "relations+xml"),
    "a thumbnail that is not a picture by its type": {
        **changed(CONTENT, "image/png", "image/gif"), RELS: related(START, ("rel1", THUMBNAIL_TYPE, "/a.png")),
        "a.png": PNG,
    },
    "a thumbnail in CMYK": {**document(), RELS: related(START, ("rel1", THUMBNAIL_TYPE, "/a.png")), "a.png": CMYK},
    "a thumbnail that is not a picture": {
        **document(), RELS: related(START, ("rel1", THUMBNAIL_TYPE, "/a.png")), "a.png": b"GIF89a",
    },
}  # fmt: skip

PAIR = thing() + thing(about='id="2"')
MATERIALS = '<basematerials id="9"><base name="a" displaycolor="#FF0000"/><base name="b" displaycolor="#00FF00"/>'
MATERIALS += "</basematerials>"


def painted(properties: str, about: str = 'id="1" pid="9" pindex="0"') -> str:
    content = mesh().replace('v1="0" v2="2" v3="1"', f'v1="0" v2="2" v3="1" {properties}')
    return MATERIALS + thing(content, about)


CORE_RULES: dict[str, Package] = {
    "another encoding": {
        **document(), MODEL: '<?xml version="1.0" encoding="ISO-8859-1"?>' + str(document()[MODEL]),
    },
    "a document type": {**document(), MODEL: "<!DOCTYPE model>" + str(document()[MODEL])},
    "preserved space": document(about='xml:space="preserve"'),
    "an unknown unit": changed(MODEL, "millimeter", "parsec"),
    "an unknown attribute": document(about='speed="fast"'),
    "an unknown element": document(thing() + "<sphere/>"),
    "no build": changed(MODEL, '<build><item objectid="1"/></build>', ""),
    "two builds": changed(MODEL, "</build>", "</build><build/>"),
    "resources after the build": changed(MODEL, "</model>", "<resources/></model>"),
    "text among the resources": document(thing() + "hello"),
    "an undeclared extension": document(needs="q"),
    "an unknown extension": document(needs="q", about='xmlns:q="http://example.com/q"'),
    "metadata without a prefix": document(before='<metadata name="mine">x</metadata>'),
    "metadata of an unknown prefix": document(before='<metadata name="q:mine">x</metadata>'),
    "metadata twice": document(before='<metadata name="Title">x</metadata>' * 2),
    "an id of zero": document(thing(about='id="0"'), ""),
    "an id twice": document(thing() * 2),
    "an object without an id": document(thing(about=""), ""),
    "an unknown type of object": document(thing(about='id="1" type="thing"')),
    "an item of nothing": document(build='<item objectid="7"/>'),
    "an item of the type other": document(thing(about='id="1" type="other"')),
    "a transform of eleven numbers": document(build='<item objectid="1" transform="1 0 0 0 1 0 0 0 1 0 0"/>'),
    "a transform with commas": document(build='<item objectid="1" transform="1,0 0 0 0 1 0 0 0 1 0 0 0"/>'),
    "components of itself": document(thing('<components><component objectid="1"/></components>')),
    "a component that comes later": document(
        thing('<components><component objectid="2"/></components>') + thing(about='id="2"')
    ),
    "no components": document(thing("<components/>")),
    "components with properties": document(
        MATERIALS + thing() + thing('<components><component objectid="1"/></components>', 'id="2" pid="9" pindex="0"'),
    ),
    "an index of a vertex that does not exist": document(thing(mesh([*FACES[:3], (0, 3, 9)]))),
    "a triangle with one vertex twice": document(thing(mesh([*FACES, (0, 1, 1)]))),
    "a solid of three triangles": document(thing(mesh(FACES[:3]))),
    "a solid with a gap": document(thing(mesh([*FACES[:3], (1, 2, 3)]))),
    "a solid with one triangle turned": document(thing(mesh([(0, 1, 2), *FACES[1:]]))),
    "a solid inside out": document(thing(mesh([face[::-1] for face in FACES]))),
    "a coordinate with an underscore": changed(MODEL, 'x="1"', 'x="1_0"'),
    "a coordinate that is not a number": changed(MODEL, 'x="1"', 'x="nan"'),
    "a coordinate in other digits": changed(MODEL, 'x="1"', 'x="١"'),
    "a vertex without a coordinate": changed(MODEL, 'x="1" ', ""),
    "a vertex with another coordinate": changed(MODEL, 'x="1"', 'x="1" w="1"'),
    "a property without its group": document(thing(about='id="1" pindex="0"')),
    "properties that are not there": document(thing(about='id="1" pid="9" pindex="0"')),
    "a property beyond its group": document(MATERIALS + thing(about='id="1" pid="9" pindex="2"')),
    "triangles with properties that their object has not": document(painted('pid="9" p1="0"', 'id="1"')),
    "a gradient of base materials": document(painted('p1="0" p2="1" p3="0"')),
    "a colour that is none": changed(MODEL, "#FF0000", "red", document(MATERIALS + thing())),
    "a thumbnail without a relationship": document(thing(about='id="1" thumbnail="/a.png"'), parts={"a.png": PNG}),
}  # fmt: skip

UUIDS = [f"{index:08x}-0000-4000-8000-000000000000" for index in range(8)]
OTHER = "/3D/other.model"


def production(item: str = f'objectid="1" p:path="{OTHER}"', relation: bool = True, inside: str = "") -> Package:
    """A model whose item refers to an object in another model part."""
    local = thing(about=f'id="1" p:UUID="{UUIDS[1]}"')
    first = document(local, f'<item {item} p:UUID="{UUIDS[2]}"/>', "p")
    first = changed(MODEL, "<build>", f'<build p:UUID="{UUIDS[3]}">', first)
    other = document(inside or thing(about=f'id="1" p:UUID="{UUIDS[4]}"'), "", "p")[MODEL]
    rels = {MODEL_RELS: related(("rel0", MODEL_TYPE, OTHER))} if relation else {}
    return {**first, OTHER[1:]: other, **rels}


PRODUCTION: dict[str, Package] = {
    "a path to no model": changed(MODEL, OTHER, "/3D/none.model", production()),
    "a path without a relationship": production(relation=False),
    "a path to the model itself": changed(MODEL, OTHER, "/3D/3dmodel.model", production()),
    "an object that the other model has not": production(f'objectid="5" p:path="{OTHER}"'),
    "a path in the other model": production(
        inside=thing(
            f'<components><component objectid="1" p:path="/3D/3dmodel.model" p:UUID="{UUIDS[5]}"/></components>',
            f'id="1" p:UUID="{UUIDS[4]}"',
        )
    ),
    "a path in a file that does not require it": changed(MODEL, ' requiredextensions="p"', "", production()),
    "an item without a UUID": changed(MODEL, f' p:UUID="{UUIDS[2]}"', "", production()),
    "an object without a UUID": changed(MODEL, f' p:UUID="{UUIDS[1]}"', "", production()),
    "a UUID that is none": changed(MODEL, UUIDS[2], "42", production()),
    "a UUID twice": changed(MODEL, UUIDS[2], UUIDS[1], production()),
}

BEAMS = '<b:beams><b:beam v1="0" v2="1"/></b:beams>'


def lattice(attributes: str = "", content: str = BEAMS, about: str = 'id="2"', before: str = "") -> Package:
    beams = f'<b:beamlattice minlength="0.001" radius="1" {attributes}>{content}</b:beamlattice>'
    resources = before + thing() + thing(mesh([], more=beams), about)
    return document(resources, '<item objectid="2"/>', "b b2")


BEAM_RULES: dict[str, Package] = {
    "no radius": changed(MODEL, ' radius="1"', "", lattice()),
    "no shortest length": changed(MODEL, ' minlength="0.001"', "", lattice()),
    "a radius of zero": changed(MODEL, 'radius="1"', 'radius="0"', lattice()),
    "a shortest length of zero": changed(MODEL, 'minlength="0.001"', 'minlength="0"', lattice()),
    "an empty ball mode": lattice('b2:ballmode="" b2:ballradius="1"'),
    "an infinite radius of balls": lattice('b2:ballmode="mixed" b2:ballradius="inf"'),
    "a negative radius": changed(MODEL, 'radius="1"', 'radius="-1"', lattice()),
    "no beams": lattice(content=""),
    "a beam to itself": changed(MODEL, 'v1="0" v2="1"/></b:beams>', 'v1="1" v2="1"/></b:beams>', lattice()),
    "a beam to nowhere": changed(MODEL, 'v1="0" v2="1"/></b:beams>', 'v1="0" v2="9"/></b:beams>', lattice()),
    "a second radius without a first": lattice(content='<b:beams><b:beam v1="0" v2="1" r2="1"/></b:beams>'),
    "an unknown cap": lattice('cap="pointed"'),
    "an unknown way to clip": lattice('clippingmode="around" clippingmesh="1"'),
    "clipping without a mesh": lattice('clippingmode="inside"'),
    "clipping by itself": lattice('clippingmode="inside" clippingmesh="2"'),
    "clipping by what does not exist": lattice('clippingmode="inside" clippingmesh="7"'),
    "a representation that does not exist": lattice('representationmesh="7"'),
    "a lattice in a surface": lattice(about='id="2" type="surface"'),
    "balls without a radius": lattice('b2:ballmode="all"'),
    "an unknown ball mode": lattice('b2:ballmode="some" b2:ballradius="1"'),
    "a ball at a vertex without a beam": lattice(
        'b2:ballmode="mixed" b2:ballradius="1"', BEAMS + '<b2:balls><b2:ball vindex="3"/></b2:balls>'
    ),
    "a set of beams that are not there": lattice(
        content=BEAMS + '<b:beamsets><b:beamset><b:ref index="5"/></b:beamset></b:beamsets>'
    ),
    "two sets of one name": lattice(
        content=BEAMS + "<b:beamsets>" + '<b:beamset identifier="a"/>' * 2 + "</b:beamsets>"
    ),
    "a property that the lattice has not": lattice('pid="9" pindex="7"', before=MATERIALS),
    "a beam with properties that its lattice has not": lattice(
        content='<b:beams><b:beam v1="0" v2="1" pid="9" p1="0"/></b:beams>', before=MATERIALS
    ),
}

TEXTURE = '<m:texture2d id="5" path="/3D/a.png" contenttype="image/png"/>'
TEXTURED: Package = {MODEL_RELS: related(("rel0", TEXTURE_TYPE, "/3D/a.png")), "3D/a.png": PNG}
COLORS = '<m:colorgroup id="6"><m:color color="#FF0000"/></m:colorgroup>'


def material(resources: str, parts: Package | None = None) -> Package:
    return document(resources + thing(), needs="m", parts=parts)


def layers(groups: str, indices: str = "0 0") -> Package:
    multiple = f'<m:multiproperties id="8" pids="{groups}"><m:multi pindices="{indices}"/></m:multiproperties>'
    return material(MATERIALS + COLORS + COLORS.replace('"6"', '"7"') + multiple)


MATERIAL_RULES: dict[str, Package] = {
    "an empty group of colours": material('<m:colorgroup id="6"/>'),
    "a colour of three digits": material(COLORS.replace("#FF0000", "#F00")),
    "a texture without a relationship": material(TEXTURE, {"3D/a.png": PNG}),
    "a texture of another kind": material(TEXTURE.replace("image/png", "image/gif"), TEXTURED),
    "an unknown style of tiles": material(TEXTURE.replace("/>", ' tilestyleu="bend"/>'), TEXTURED),
    "coordinates of no texture": material(
        '<m:texture2dgroup id="6" texid="5"><m:tex2coord u="0" v="0"/></m:texture2dgroup>'
    ),
    "a composite of no materials": material(
        '<m:compositematerials id="6" matid="9" matindices="0"><m:composite values="1"/></m:compositematerials>'
    ),
    "a composite of a material that does not exist": material(
        MATERIALS
        + '<m:compositematerials id="6" matid="9" matindices="0 5"><m:composite values="1 0"/></m:compositematerials>'
    ),
    "two layers of colours": layers("6 7"),
    "a material that is not the first layer": layers("6 9"),
    "a layer that does not exist": layers("4 6"),
    "a layer of layers": changed(
        MODEL, "</m:multiproperties>",
        '</m:multiproperties><m:multiproperties id="10" pids="8"><m:multi pindices="0"/></m:multiproperties>',
        layers("9 6"),
    ),
    "a property beyond its layer": layers("9 6", "0 3"),
}  # fmt: skip

SQUARE = '<s:vertices><s:vertex x="0" y="0"/><s:vertex x="1" y="0"/><s:vertex x="0" y="1"/></s:vertices>'
RING = '<s:polygon startv="0"><s:segment v2="1"/><s:segment v2="2"/><s:segment v2="0"/></s:polygon>'


def sliced(slices: str, item: str = "", about: str = 'id="1" s:slicestackid="5"') -> Package:
    stack = f'<s:slicestack id="5" zbottom="0">{slices}</s:slicestack>'
    return document(stack + thing(about=about), f'<item objectid="1" {item}/>', "s")


def layer(top: float, polygon: str = RING) -> str:
    return f'<s:slice ztop="{top}">{SQUARE}{polygon}</s:slice>'


SLICE_RULES: dict[str, Package] = {
    "slices that go down": sliced(layer(2) + layer(1)),
    "two slices at one height": sliced(layer(1) + layer(1)),
    "a slice below the bottom": sliced(layer(-1)),
    "a slice without a height": changed(MODEL, ' ztop="1"', "", sliced(layer(1))),
    "an open polygon": sliced(layer(1, '<s:polygon startv="0"><s:segment v2="1"/><s:segment v2="2"/></s:polygon>')),
    "a polygon of a vertex that does not exist": sliced(layer(1, RING.replace('v2="2"', 'v2="7"'))),
    "a segment of no length": sliced(layer(1, RING.replace('v2="1"', 'v2="0"'))),
    "a stack that does not exist": sliced(layer(1), about='id="1" s:slicestackid="7"'),
    "slices that are tilted": sliced(layer(1), 'transform="1 0 0 0 0 1 0 -1 0 0 0 0"'),
    "slices that are stretched": sliced(layer(1), 'transform="1 0 0 0 1 0 0 0 2 0 0 0"'),
    "slices and references": sliced(layer(1) + '<s:sliceref slicestackid="5" slicepath="/3D/b.model"/>'),
    "a reference without a relationship": sliced('<s:sliceref slicestackid="5" slicepath="/3D/b.model"/>'),
}


def node(name: str, source: str, kind: str = "sin", type: str = "scalar") -> str:
    return (
        f'<i:{kind} identifier="{name}"><i:in><i:{type}ref identifier="A" ref="{source}"/></i:in>'
        f'<i:out><i:{type} identifier="result"/></i:out></i:{kind}>'
    )


def field(nodes: str, result: str, number: int = 3) -> str:
    ports = '<i:in><i:vector identifier="pos"/></i:in>'
    end = f'<i:out><i:scalarref identifier="shape" ref="{result}"/></i:out>'
    return f'<i:implicitfunction id="{number}" displayname="f{number}">{ports}{nodes}{end}</i:implicitfunction>'


LENGTH = (
    '<i:length identifier="d"><i:in><i:vectorref identifier="A" ref="inputs.pos"/></i:in>'
    '<i:out><i:scalar identifier="result"/></i:out></i:length>'
)


def level_set(functions: str, attributes: str = 'functionid="3" channel="shape" meshid="1"') -> Package:
    return document(
        functions + thing() + f'<object id="2"><v:levelset {attributes}/></object>', '<item objectid="2"/>', "i v"
    )


def call(callee: int, number: int) -> str:
    callee_node = (
        f'<i:constresourceid identifier="r" value="{callee}"><i:out><i:resourceid identifier="value"/></i:out>'
    )
    inputs = (
        '<i:in><i:resourceref identifier="functionID" ref="r.value"/><i:vectorref identifier="pos" ref="inputs.pos"/>'
    )
    call_node = f'</i:constresourceid><i:functioncall identifier="c">{inputs}</i:in>'
    return field(
        callee_node + call_node + '<i:out><i:scalar identifier="shape"/></i:out></i:functioncall>', "c.shape", number
    )


IMPLICIT_RULES: dict[str, Package] = {
    "nodes in a circle": level_set(field(node("a", "b.result") + node("b", "a.result"), "a.result")),
    "functions in a circle": level_set(call(4, 3) + call(3, 4)),
    "a function that calls itself": level_set(call(3, 3)),
    "a call of no function": level_set(call(9, 3)),
    "a vector into a scalar": level_set(field(node("a", "inputs.pos"), "a.result")),
    "a link from nowhere": level_set(field(node("a", "b.result"), "a.result")),
    "an input that is open": level_set(field(node("a", ""), "a.result")),
    "an unknown node": level_set(field(node("a", "inputs.pos", "explode"), "a.result")),
    "a node twice": level_set(field(LENGTH * 2, "d.result")),
    "a node that is called inputs": level_set(field(LENGTH.replace('"d"', '"inputs"'), "inputs.result")),
    "a level set of no function": level_set(""),
    "a level set without a mesh": level_set(
        field(LENGTH, "d.result"), 'functionid="3" channel="shape" meshid="8"'
    ),
    "a level set without a channel": level_set(field(LENGTH, "d.result"), 'functionid="3" meshid="1"'),
    "a channel that does not exist": level_set(
        field(LENGTH, "d.result"), 'functionid="3" channel="colour" meshid="1"'
    ),
    "a function without a position": level_set(
        field(LENGTH, "d.result").replace('<i:vector identifier="pos"/>', '<i:vector identifier="place"/>').replace(
            "inputs.pos", "inputs.place"
        )
    ),
    "an image without sheets": document(
        '<v:image3d id="5"><v:imagestack rowcount="1" columncount="1" sheetcount="1"/></v:image3d>' + thing()
    ),
}  # fmt: skip

BROKEN = {
    "package": OPC,
    "core": CORE_RULES,
    "production": PRODUCTION,
    "beam lattice": BEAM_RULES,
    "materials": MATERIAL_RULES,
    "slices": SLICE_RULES,
    "implicit": IMPLICIT_RULES,
}
WHOLE: dict[str, Package] = {
    "core": document(),
    "two objects": document(PAIR),
    "materials": document(painted('p1="1"')),
    "production": production(),
    "beam lattice": lattice('clippingmode="inside" clippingmesh="1" b2:ballmode="all" b2:ballradius="2" cap="butt"'),
    "textures": material(TEXTURE, TEXTURED),
    "layers": layers("9 6"),
    "slices": sliced(layer(1) + layer(2)),
    "implicit": level_set(field(LENGTH, "d.result")),
    "calls": level_set(field(LENGTH, "d.result", 4) + call(4, 3)),
}
