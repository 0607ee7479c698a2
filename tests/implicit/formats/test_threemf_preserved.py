"""Properties of objects survive saving: types, caps, clipping, balls, thumbnails, prefixes; also other models."""

import re
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.png import write_png
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.resources import (
    OBJECT_TYPES,
    BeamLattice,
    Components,
    Document,
    LevelSet,
    Thumbnail,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from tests.implicit.formats import broken_files
from tests.implicit.formats.synthetic_part import synthetic_part
from tests.implicit.formats.test_threemf_rules import written

BOX = TriangleMesh.box((0, 0, 0), (1, 2, 3))
NODES = [[0, 0, 0], [0, 0, 4], [3, 0, 4], [5, 5, 5]]
PICTURE = Thumbnail(write_png(np.zeros((2, 2, 3), np.uint16), 8))
JPEG = Thumbnail(b"\xff\xd8\xff\xe0" + bytes(30), "image/jpeg")


def round_trip(assembly: Assembly, folder: Path) -> Assembly:
    save_3mf(assembly, folder / "part.3mf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_3mf(folder / "part.3mf")


def model_of(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read("3D/3dmodel.model").decode()


def lattice() -> BeamLattice:
    return BeamLattice(
        NODES, [[0, 1], [1, 2]], [[1.0, 0.5], [0.25, 0.25]], "beams",  # type: ignore[arg-type]
        caps=[["butt", "sphere"], ["hemisphere", "hemisphere"]], balls=[1, 2], ball_radii=[1.5, 0.75],
        triangles=[[0, 1, 2]], min_length=0.01, clipping="outside", clipping_mesh=1, representation_mesh=2,
        object_type="solidsupport", thumbnail=JPEG,
    )  # fmt: skip


def test_beam_lattices_are_preserved(tmp_path: Path) -> None:
    assembly = Assembly().add_resource(BOX, id=1).add_resource(BOX, id=2).add_resource(lattice(), id=3).build(3)
    assert round_trip(assembly, tmp_path) == assembly


@pytest.mark.parametrize("type", OBJECT_TYPES)
def test_object_types_are_preserved(tmp_path: Path, type: str) -> None:
    mesh_assembly = Assembly().add_resource(replace(BOX, object_type=type), id=1)
    mesh_assembly = mesh_assembly.add_resource(
        Components(((1, (1.0, 0, 0, 0, 1, 0, 0, 0, 1, 5, 0, 0)),), object_type=type), id=2
    )
    part = synthetic_part()
    body = part.resources[23]
    assert isinstance(body, LevelSet)
    level_set_assembly = replace(part, resources={**part.resources, 23: replace(body, object_type=type)}, items=())
    for assembly in (mesh_assembly, level_set_assembly):
        read = round_trip(assembly, tmp_path)
        assert read.resources == assembly.resources


def test_thumbnails_are_preserved(tmp_path: Path) -> None:
    assembly = Assembly().add_resource(replace(BOX, thumbnail=PICTURE), id=1).build(1)
    assembly = replace(assembly, document=Document(thumbnail=JPEG))
    read = round_trip(assembly, tmp_path)
    assert read == assembly
    assert read.document.thumbnail == JPEG


def test_prefixes_of_metadata_and_properties_are_preserved(tmp_path: Path) -> None:
    assembly = synthetic_part()
    channels = (VolumeChannel("property", 5, "value", "acme:density"),)
    assembly = replace(assembly, resources={**assembly.resources, 21: VolumeData(channels)})
    metadata = (("Title", "a & b"), ("acme:colour", "<red>"), ("other:x", "1"))
    assembly = replace(assembly, document=Document("inch", metadata, prefixes=(("acme", "http://acme.example/1"),)))
    read = round_trip(assembly, tmp_path)
    assert dict(read.document.prefixes) == {"acme": "http://acme.example/1", "other": "urn:other"}
    assert read.document.metadata == metadata
    assert round_trip(read, tmp_path).document == read.document


@pytest.mark.parametrize("metadata", [(("mine", "x"),), (("Title", "x"), ("Title", "y"))])
def test_saving_invalid_metadata_is_an_error(tmp_path: Path, metadata: object) -> None:
    with pytest.raises(FormatError, match=r"metadata `.*test_threemf_preserved.py"):
        save_3mf(Assembly(document=Document(metadata=metadata)), tmp_path / "a.3mf")  # type: ignore[arg-type]


def test_an_open_mesh_must_be_saved_as_a_surface(tmp_path: Path) -> None:
    half = TriangleMesh(BOX.vertices, BOX.triangles[:6])
    with pytest.raises(FormatError, match=r'a solid with a gap.*object_type="surface"'):
        save_3mf(Assembly().add_resource(half, id=1).build(1), tmp_path / "a.3mf")
    assembly = Assembly().add_resource(replace(half, object_type="surface"), id=1).build(1)
    assert round_trip(assembly, tmp_path) == assembly
    domain = Assembly().add_resource(half, id=1)
    assert round_trip(domain, tmp_path) == domain


@pytest.mark.parametrize(
    ("assembly", "extensions"),
    [
        (Assembly().add_resource(BOX, id=1).build(1), None),
        (Assembly().add_resource(BOX, id=1).add_resource(BOX, id=2).add_resource(lattice(), id=3), "b b2"),
        (synthetic_part(), "i v"),
        (lg.implicit.add_expression(Assembly(), "f", "length(pos)", {"pos": "vector"}), "i"),
        (Assembly().add_resource(BeamLattice(NODES, [[0, 1]], [[1, 1]]), id=1), "b"),  # type: ignore[arg-type]
    ],
    ids=["mesh", "balls", "level set", "function", "beams"],
)
def test_only_used_extensions_are_required(tmp_path: Path, assembly: Assembly, extensions: str | None) -> None:
    save_3mf(assembly, tmp_path / "a.3mf")
    head = re.search("<model[^>]*>", model_of(tmp_path / "a.3mf"))
    assert head is not None
    required = re.search('requiredextensions="([^"]*)"', head.group(0))
    assert (required.group(1) if required else None) == extensions
    assert re.findall(r"xmlns:(\w+)=", head.group(0)) == (extensions or "").split()


def test_resources_are_written_after_their_references(tmp_path: Path) -> None:
    """The assembly has its resources in another order."""
    inner, outer = (
        Components(((9, (1.0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0)),)),
        Components(((2, (1.0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0)), (9, (1.0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0)))),
    )
    assembly = Assembly().add_resource(outer, id=1).add_resource(inner, id=2).add_resource(BOX, id=9).build(1)
    read = round_trip(assembly, tmp_path)
    assert read.resources == assembly.resources


# --- the production extension -----------------------------------------------------------------------------------------


def test_objects_of_other_models_are_read(tmp_path: Path) -> None:
    read = load_3mf(written(tmp_path, broken_files.production()))
    (item,) = read.items
    assert item.object != 1
    mesh = read.resources[item.object]
    assert isinstance(mesh, TriangleMesh)
    assert len(mesh.triangles) == 4
    assert len(read.resources) == 2


def test_objects_of_a_model_in_another_unit_are_scaled(tmp_path: Path) -> None:
    package = broken_files.production()
    model = package["3D/other.model"]
    assert isinstance(model, str)
    package["3D/other.model"] = model.replace("millimeter", "inch")
    (item,) = load_3mf(written(tmp_path, package)).items
    assert item.transform == (25.4, 0, 0, 0, 25.4, 0, 0, 0, 25.4, 0, 0, 0)


def test_functions_of_other_models_are_renumbered(tmp_path: Path) -> None:
    """A level set in another model, whose ids are in use in the root model."""
    uuid = "00000000-0000-4000-8000-00000000000{}"
    inside = broken_files.field(broken_files.LENGTH, "d.result", 4) + broken_files.call(4, 3)
    box = broken_files.thing(about=f'id="1" p:UUID="{uuid.format(7)}"')
    body = f'<object id="2" p:UUID="{uuid.format(8)}"><v:levelset functionid="3" channel="shape" meshid="1"/></object>'
    package = broken_files.production('objectid="2" p:path="/3D/other.model"', inside=inside + box + body)
    package["3D/other.model"] = str(package["3D/other.model"]).replace('"p"', '"p i v"')
    read = load_3mf(written(tmp_path, package))
    assert not read.problems()
    (part,) = lg.parts(read)
    assert part([0.25, 0.25, 0.0]) == pytest.approx(np.hypot(0.25, 0.25), abs=1e-6)
    save_3mf(read, tmp_path / "one.3mf")
    (again,) = lg.parts(load_3mf(tmp_path / "one.3mf"))
    assert again([0.25, 0.25, 0.0]) == part([0.25, 0.25, 0.0])


def test_a_component_may_be_in_another_model(tmp_path: Path) -> None:
    uuids = broken_files.UUIDS
    member = (
        f'<component objectid="1" p:path="/3D/other.model" p:UUID="{uuids[5]}" transform="1 0 0 0 1 0 0 0 1 7 0 0"/>'
    )
    package = broken_files.production()
    model = str(package["3D/3dmodel.model"])
    model = model.replace(broken_files.mesh(), f"<components>{member}</components>")
    model = model.replace(' p:path="/3D/other.model" p:UUID="00000002', ' p:UUID="00000002')
    package["3D/3dmodel.model"] = model
    read = load_3mf(written(tmp_path, package))
    components = read.resources[1]
    assert isinstance(components, Components)
    ((number, transform),) = components.members
    assert transform[9] == 7
    assert isinstance(read.resources[number], TriangleMesh)
