"""Meshes and beam lattices as parts: transforms, clipping, colours and pictures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.formats.png import read_png
from livegrad.implicit.formats.threemf import save_3mf
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.resources import BeamLattice, Components, TriangleMesh, VolumeChannel, VolumeData
from livegrad.tools import cli

BOX = TriangleMesh.box((0, 0, 0), (1, 2, 3), "box")
TURNED = (0.0, 1, 0, -1, 0, 0, 0, 0, 1, 10, 0, 0)  # a quarter turn about z, and a translation by 10 along x


def test_a_mesh_becomes_a_part_for_each_item() -> None:
    assembly = Assembly().add_resource(BOX, id=1).add_resource(Components(((1, TURNED),)), id=2).build(1).build(2)
    original, turned = lg.parts(assembly)
    assert (original.name, turned.name) == ("box", "box")
    np.testing.assert_allclose(original.bounds(), [[0, 0, 0], [1, 2, 3]])
    np.testing.assert_allclose(turned.bounds(), [[8, 0, 0], [10, 1, 3]])
    points = np.random.default_rng(0).uniform(-1, 4, (200, 3))
    inside = ((points > 0) & (points < [1, 2, 3])).all(1)
    np.testing.assert_array_equal(original(points) < 0, inside)
    turned_points = np.c_[points, np.ones(200)] @ np.array(TURNED).reshape(4, 3)
    np.testing.assert_allclose(turned(turned_points), original(points), atol=1e-5)
    assert original.volume() == pytest.approx(6, rel=1e-2)


def test_meshes_that_do_not_bound_a_body_are_omitted() -> None:
    surface = replace(BOX, object_type="surface")
    gap = TriangleMesh(BOX.vertices, BOX.triangles[:5])
    assembly = Assembly().add_resource(surface, id=1).add_resource(gap, id=2).add_resource(BOX, id=3)
    assert [part.name for part in lg.parts(assembly.build(1).build(2).build(3))] == ["box"]


@pytest.mark.parametrize("clipping", ["none", "inside", "outside"])
def test_a_beam_lattice_is_clipped_by_its_mesh(clipping: str) -> None:
    nodes = np.array([[-1.0, 0.5, 0.5], [2, 0.5, 0.5]])
    beams: Any = [[0, 1]]
    lattice = BeamLattice(
        nodes,
        beams,
        np.array([[0.25, 0.25]]),
        "rod",
        caps="butt",
        clipping=clipping,
        clipping_mesh=1,  # type: ignore[arg-type]
    )
    (part,) = lg.parts(Assembly().add_resource(BOX, id=1).add_resource(lattice, id=2).build(2))
    points = np.random.default_rng(1).uniform((-1.5, 0, 0), (2.5, 1, 1), (400, 3))
    rod = (np.hypot(points[:, 1] - 0.5, points[:, 2] - 0.5) < 0.25) & (points[:, 0] > -1) & (points[:, 0] < 2)
    box = (points[:, 0] > 0) & (points[:, 0] < 1)
    expected = {"none": rod, "inside": rod & box, "outside": rod & ~box}[clipping]
    np.testing.assert_array_equal(part(points) < 0, expected)


def test_triangles_of_a_lattice_belong_to_its_body() -> None:
    nodes = np.concatenate([BOX.vertices, [[5.0, 0, 0]]])
    lattice = BeamLattice(nodes, [[1, 8]], [[0.5, 0.5]], triangles=BOX.triangles)  # type: ignore[arg-type]
    (part,) = lg.parts(Assembly().add_resource(lattice, id=1).build(1))
    np.testing.assert_array_equal(part([[0.5, 1, 1.5], [3, 0.1, 0], [3, 1, 0]]) < 0, [True, True, False])


def test_a_mesh_has_the_colours_of_its_volume_data() -> None:
    assembly = add_expression(Assembly(), "paint", "vector(pos.x, 0, 1)", {"pos": "vector"}, output="color", id=1)
    assembly = assembly.add_resource(VolumeData((VolumeChannel("color", 1, "color"),)), id=2)
    (part,) = lg.parts(assembly.add_resource(replace(BOX, volume_data=2), id=3).build(3))
    colors = part.colors([[0.25, 1, 1]])
    assert colors is not None
    np.testing.assert_allclose(colors, [[0.25, 0, 1]])


def test_mesh_files_are_shown_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lattice = BeamLattice(np.eye(3), [[0, 1], [1, 2]], [[0.25, 0.25], [0.25, 0.25]])  # type: ignore[arg-type]
    for resource in (BOX, lattice):
        save_3mf(Assembly().add_resource(resource, id=1).build(1), tmp_path / "a.3mf")
        picture = tmp_path / "a.png"
        assert cli.main(["render", str(tmp_path / "a.3mf"), "-o", str(picture), "--size", "24x24"]) == 0
        assert cli.main(["info", str(tmp_path / "a.3mf")]) == 0
        assert "part 1" in capsys.readouterr().out
        pixels = read_png(picture.read_bytes())[0]
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 2
