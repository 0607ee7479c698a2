"""3MF files: every node type and resource survives a round trip; old dialects load."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.bodies.level_sets import parts
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.formats.threemf.livegrad_metadata import apply_positions
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.constants import literals_to_constants
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.node_graph import GraphFunction
from livegrad.implicit.nodes.node_types import NODE_TYPES
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import (
    BeamLattice,
    Components,
    Document,
    ImageStack,
    LevelSet,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.runtime.reference import evaluate

SCALAR, VECTOR, MATRIX = PortType.SCALAR, PortType.VECTOR, PortType.MATRIX


def round_trip(assembly: Assembly, folder: Path) -> Assembly:
    save_3mf(assembly, folder / "part.3mf")
    return load_3mf(folder / "part.3mf")


def every_node() -> Assembly:
    """An assembly with every node type in each of its kinds, with all inputs connected."""
    assembly = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"}, id=1)
    assembly = assembly.add_resource(TriangleMesh.box((0, 0, 0), (1, 2, 3)), id=2)
    assembly = assembly.add_resource(BeamLattice([[0, 0, 0], [1, 1, 1]], [[0, 1]], [[0.25, 0.5]]), id=3)  # type: ignore[arg-type]
    inputs = {"s": SCALAR, "v": VECTOR, "m": MATRIX}
    assembly = assembly.add_function("all", inputs, {}, id=4)
    sources = {SCALAR: "inputs.s", VECTOR: "inputs.v", MATRIX: "inputs.m"}
    values = {"Constant": 0.1, "ConstVec": (1, 2.5, -3e-7), "ConstMat": np.arange(16) / 3, "ResourceId": 1}
    resources = {"mesh": 2, "beamlattice": 3, "functionID": 1}
    for name, type in NODE_TYPES.items():
        for kind in type.kinds or (None,):
            inputs_of_node: dict[str, object] = {
                port: resources[port] if port_type is PortType.RESOURCE else sources[port_type or kind]  # type: ignore[index]
                for port, port_type in type.inputs
            }
            if "functionID" in inputs_of_node:
                inputs_of_node["pos"] = "inputs.v"
            gradient_ports: dict[str, Any] = (
                {"scalar_output": "shape", "vector_input": "pos"} if "step" in inputs_of_node else {}
            )
            assembly = assembly.add_node(
                "all",
                name,
                f"{name}_{kind.value if kind else 'only'}",
                inputs_of_node,
                kind=kind,
                value=values.get(name),
                display_name=f'a <{name}> & "more"',
                tag="tag",
                **gradient_ports,
            )
    return literals_to_constants(assembly)


def test_every_node_type_survives(tmp_path: Path) -> None:
    assembly = every_node()
    assert {node.type.name for node in assembly.graph("all").nodes.values()} == set(NODE_TYPES)
    assert round_trip(assembly, tmp_path) == assembly


def everything() -> Assembly:
    """An assembly with every kind of resource."""
    samples = np.random.default_rng(3).integers(0, 256, (2, 3, 4, 4)).astype(np.float32) / np.float32(255)
    assembly = Assembly(document=Document("inch", (("Application", "a & b"), ("Title", "parts"))))
    assembly = assembly.add_resource(ImageStack(samples, 8, 4, "colours"), id=1)
    assembly = assembly.add_resource(TriangleMesh.box((0, 0, 0), (1, 2, 3), "box"), id=2)
    assembly = assembly.add_resource(BeamLattice([[0, 0, 0], [1, 1, 1]], [[0, 1]], [[0.25, 0.5]], "beams"), id=3)  # type: ignore[arg-type]
    assembly = assembly.add_image_function(
        "sampled", 1, id=4, filter="nearest", tile_styles=("clamp", "mirror", "wrap"), offset=0.5, scale=2.0
    )
    assembly = add_expression(assembly, "ball", "length(pos) - 1", {"pos": "vector"}, id=5)
    transform = (2.0, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3.5)
    channels = (
        VolumeChannel("material", 5, "shape", transform=transform),
        VolumeChannel("color", 4, "color", min_feature_size=0.1, fallback=0.25),
        VolumeChannel("property", 5, "shape", "density", required=True),
    )
    assembly = assembly.add_resource(VolumeData(channels, 77), id=6)
    assembly = assembly.add_resource(
        TriangleMesh.box(
            (0, 0, 0),
            (1, 1, 1),
            "filled",
        ),
        id=9,
    )
    assembly = assembly.add_resource(LevelSet(5, "shape", 2, True, transform, 0.125, -1.0, 6, "body"), id=7)
    assembly = assembly.add_resource(Components(((7, transform), (2, transform)), "both"), id=8)
    return assembly.build(8, part_number="no. 1").build(2, transform=transform)


def test_every_resource_survives(tmp_path: Path) -> None:
    assembly = everything()
    assert round_trip(assembly, tmp_path) == assembly


@pytest.mark.parametrize(("depth", "channels"), [(8, 1), (8, 2), (8, 3), (8, 4), (16, 1), (16, 4)])
def test_images_of_every_layout_survive(tmp_path: Path, depth: int, channels: int) -> None:
    values = np.random.default_rng(depth).integers(0, 1 << depth, (2, 5, 3, 4)).astype(np.float32)
    samples = values / np.float32((1 << depth) - 1)
    if channels < 3:
        samples[..., 1], samples[..., 2] = samples[..., 0], samples[..., 0]
    if channels in (1, 3):
        samples[..., 3] = 1.0
    assembly = Assembly().add_resource(ImageStack(samples, depth, channels))
    assert round_trip(assembly, tmp_path) == assembly


def test_parts_have_equal_values_after_a_round_trip(tmp_path: Path) -> None:
    assembly = everything()
    points = np.random.default_rng(1).uniform(-1, 5, (100, 3))
    pairs = list(zip(parts(assembly), parts(round_trip(assembly, tmp_path)), strict=True))
    assert pairs
    for before, after in pairs:
        np.testing.assert_array_equal(before(points), after(points))


def test_literals_are_saved_as_constants(tmp_path: Path) -> None:
    assembly = Assembly().add_function("f", {"x": SCALAR}, {"y": SCALAR})
    assembly = assembly.add_node("f", "Addition", "sum", A="inputs.x", B=2.5).link("f", "sum.result", "outputs.y")
    read = round_trip(assembly, tmp_path)
    assert read == literals_to_constants(assembly)
    assert evaluate(to_function(read, "f", element=lg.f64), 1.0) == 3.5


def test_saving_is_deterministic(tmp_path: Path) -> None:
    for name in ("a.3mf", "b.3mf"):
        save_3mf(everything(), tmp_path / name)
    assert (tmp_path / "a.3mf").read_bytes() == (tmp_path / "b.3mf").read_bytes()


def test_saving_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "part.3mf"
    save_3mf(everything(), target)
    before = target.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_3mf(Assembly(), target)
    assert target.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["part.3mf"]


RELATIONS = """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="rel0" Target="/3D/3dmodel.model" Type="http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"/>
</Relationships>"""
TYPES = """<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="model" ContentType="application/vnd.ms-package.3dmanufacturing-3dmodel+xml"/>
<Default Extension="png" ContentType="image/png"/>
</Types>"""


def package(folder: Path, model: str, **parts: str | bytes | None) -> Path:
    """A package with a model. Keywords replace other parts; None removes a part."""
    path = folder / "hand.3mf"
    standard = {"[Content_Types].xml": TYPES, "_rels/.rels": RELATIONS, "3D/3dmodel.model": model}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**standard, **parts}.items():
            if data is not None:
                archive.writestr(name, data)
    return path


CORE = "http://schemas.microsoft.com/3dmanufacturing/core/2015/02"


def model(resources: str, implicit: str = "http://schemas.3mf.io/3dmanufacturing/implicit/2023/12") -> str:
    return (
        f'<model xmlns="{CORE}" xmlns:i="{implicit}" '
        'xmlns:v="http://schemas.3mf.io/3dmanufacturing/volumetric/2022/01">'
        f"<resources>{resources}</resources><build/></model>"
    )


OLD = """
<i:function id="3" displayname="old">
  <i:in><i:vector identifier="pos"/></i:in>
  <i:resourceid identifier="which" resourceid="9"><i:out><i:resourceid identifier="value"/></i:out></i:resourceid>
  <i:constvec identifier="c" x="1" y="0" z="0"><i:out><i:vector identifier="vector"/></i:out></i:constvec>
  <i:composematrixfromcolumnvectors identifier="m">
    <i:in><i:vectorref identifier="A" ref="c.vector"/><i:vectorref identifier="B" ref="c.vector"/>
      <i:vectorref identifier="C" ref="c.vector"/><i:vectorref identifier="D" ref="c.vector"/></i:in>
    <i:out><i:matrix identifier="matrix"/></i:out></i:composematrixfromcolumnvectors>
  <i:matrixvectormultiplication identifier="p">
    <i:in><i:matrixref identifier="A" ref="m.matrix"/><i:vectorref identifier="B" ref="inputs.pos"/></i:in>
    <i:out><i:vector identifier="result"/></i:out></i:matrixvectormultiplication>
  <i:arcsin identifier="a"><i:in><i:vectorref identifier="A" ref="p.result"/></i:in>
    <i:out><i:vector identifier="result"/></i:out></i:arcsin>
  <i:out><i:vectorref identifier="y" ref="a.result"/></i:out>
</i:function>
"""


@pytest.mark.parametrize(
    "implicit",
    [
        "http://schemas.3mf.io/3dmanufacturing/implicit/2023/12",
        "http://schemas.microsoft.com/3dmanufacturing/implicit/2023/02",
    ],
)
def test_old_dialects_load(tmp_path: Path, implicit: str) -> None:
    read = load_3mf(package(tmp_path, model(OLD, implicit)))
    assert read.node("old", "which").value == 9
    assert str(read.node("old", "p").inputs["A"]) == "m.result"
    value = evaluate(to_function(read, "old", element=lg.f64), np.array([-0.25, -0.5, 0.25]))
    # Columns (1, 0, 0) make a first row of ones: each coordinate of the product is x.
    np.testing.assert_allclose(value, [np.arcsin(-0.25)] * 3, atol=1e-15)


def test_resources_of_other_extensions_are_ignored(tmp_path: Path) -> None:
    materials = '<m:colorgroup xmlns:m="http://schemas.microsoft.com/3dmanufacturing/material/2015/02" id="2">'
    materials += '<m:color color="#FF0000"/></m:colorgroup>'
    assert load_3mf(package(tmp_path, model(materials))) == Assembly()


def test_an_unused_incomplete_graph_loads_with_a_problem(tmp_path: Path) -> None:
    text = """<i:implicitfunction id="3" displayname="f"><i:in/>
    <i:sin identifier="s"><i:in><i:scalarref identifier="A" ref=""/></i:in>
    <i:out><i:scalar identifier="result"/></i:out></i:sin>
    <i:out><i:scalarref identifier="y" ref="s.result"/></i:out></i:implicitfunction>"""
    (problem,) = load_3mf(package(tmp_path, model(text))).problems()
    assert str(problem) == "function `f`, node `s`: input `A` is not connected"


def graph_with_positions() -> Assembly:
    assembly = Assembly().add_function("f", {"a": PortType.SCALAR}, {"b": PortType.SCALAR})
    assembly = assembly.add_node("f", "Sin", "wave", A="inputs.a", display_name="A wave", position=(10.5, -20.0))
    return assembly.add_node("f", "Cos", "other", A="inputs.a").link("f", "wave.result", "outputs.b")


def test_names_and_positions_of_nodes_survive(tmp_path: Path) -> None:
    save_3mf(graph_with_positions(), tmp_path / "placed.3mf")
    read = load_3mf(tmp_path / "placed.3mf")
    assert read == graph_with_positions()
    assert read.node("f", "wave").position == (10.5, -20.0)
    assert read.node("f", "wave").display_name == "A wave"
    assert read.node("f", "other").position is None
    assert not read.document.metadata


@pytest.mark.parametrize("text", ["{", "[]", '{"1": {"wave": [1]}}', '{"1": {"wave": ["a", 2]}}', "[" * 100_000])
def test_damaged_positions_are_rejected(text: str) -> None:
    with pytest.raises(FormatError, match="invalid node positions"):
        apply_positions(graph_with_positions().functions, text, "placed.3mf")


def test_positions_of_missing_nodes_are_ignored() -> None:
    text = '{"1": {"gone": [1, 2], "other": [3, 4]}, "9": {"wave": [1, 2]}}'
    function = apply_positions(graph_with_positions().functions, text, "placed.3mf")[1]
    assert isinstance(function, GraphFunction)
    assert function.nodes["other"].position == (3.0, 4.0)
    assert "gone" not in function.nodes
