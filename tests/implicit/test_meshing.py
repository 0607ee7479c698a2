"""Meshes of parts: closed, with sharp edges, few triangles where the part is flat, and never less than the part."""

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import livegrad as lg
from livegrad.implicit.bodies.batches import run_in_batches
from livegrad.implicit.bodies.part import Part, part_of_function
from livegrad.implicit.meshing import dual_clusters, dual_triangles, dual_vertices, edge_changes, meshing
from livegrad.implicit.meshing.dual_cells import CrossedCells, edge_ends, faces_of, loops_of
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes import resources
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.resources import TriangleMesh

WIDE = ((-2, -2, -2), (2, 2, 2))
BOX = "q = abs(pos) - vector(1, 0.7, 0.5); max(q.x, max(q.y, q.z))"
BITTEN = "max(length(pos) - 1, 0.4 - length(pos - vector(0.6, -0.6, 0.3)))"
TANGLE = "sin(pos.x*17 + sin(pos.y*13)) * sin(pos.y*15 + sin(pos.z*11)) + sin(pos.z*19) * cos(pos.x*7)"


def shape(text: str, bounds: Any = WIDE) -> Part:
    return part_of_function(add_expression(Assembly(), "shape", text, {"pos": "vector"}), "shape", bounds)


def volume(surface: TriangleMesh) -> float:
    a, b, c = surface.vertices[surface.triangles].transpose(1, 0, 2)
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def is_manifold(triangles: Any) -> bool:
    """By SciPy: every edge joins two triangles that turn the same way, and those around a vertex are one fan."""
    ends = np.stack([triangles, np.roll(triangles, -1, 1)], -1).reshape(-1, 2)
    number = triangles.max() + 1
    keys, mates = ends @ [number, 1], ends @ [1, number]
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys[order], mates), len(keys) - 1)
    if (np.diff(keys[order]) == 0).any() or (keys[order][place] != mates).any():
        return False
    mate = order[place]
    following = 3 * (mate // 3) + (mate % 3 + 1) % 3
    links = csr_array((np.ones(len(ends)), (np.arange(len(ends)), following)), shape=(len(ends), len(ends)))
    return connected_components(links, directed=False)[0] == len(np.unique(triangles))


@pytest.mark.parametrize("tolerance", [None, 0.0])
def test_tangled_surfaces_have_manifold_meshes_however_coarse_the_lattice(tolerance: float | None) -> None:
    found = mesh(shape(TANGLE, ((-0.7, -0.7, -0.7), (0.7, 0.7, 0.7))), feature_size=0.2, tolerance=tolerance)
    assert found.is_closed()
    assert is_manifold(found.triangles)


def test_signs_without_any_meaning_have_manifold_meshes() -> None:
    """Every way in which a cell's corners can differ meets every other here."""
    inside = np.zeros((18, 18, 18), np.uint8)
    inside[1:-1, 1:-1, 1:-1] = np.random.default_rng(3).random((16, 16, 16)) < 0.5
    code = np.zeros((17, 17, 17), np.uint8)
    for corner in range(8):
        i, j, k = corner >> 2, corner >> 1 & 1, corner & 1
        code |= inside[i : i + 17, j : j + 17, k : k + 17] << np.uint8(corner)
    cells = np.argwhere((code != 0) & (code != 255))
    a, b, c, d = faces_of(CrossedCells(cells, code[tuple(cells.T)])).corners
    triangles = np.concatenate([np.stack([a, b, c], -1), np.stack([a, c, d], -1)])
    assert is_manifold(triangles.astype(np.int64))


def test_every_loop_on_a_cell_is_closed_and_has_three_edges_or_more() -> None:
    for code in range(256):
        loops, _ = loops_of(code)
        crossed = [(code >> low & 1) != (code >> high & 1) for low, high in map(edge_ends, range(12))]
        assert [loop >= 0 for loop in loops] == crossed
        assert all(loops.count(loop) >= 3 for loop in set(loops) - {-1})


def test_flat_sides_have_as_few_triangles_however_small_the_cells() -> None:
    for size in (0.2, 0.05):
        found = mesh(shape(BOX), feature_size=size)
        assert len(found.triangles) < 40
        assert is_manifold(found.triangles)
        assert volume(found) == pytest.approx(2.8, rel=1e-6)


def test_joined_cells_stay_within_the_tolerance() -> None:
    part, size = shape("length(pos) - 1"), 0.05
    fine = mesh(part, feature_size=size, tolerance=0)
    joined = mesh(part, feature_size=size)
    assert len(joined.triangles) < 0.7 * len(fine.triangles)
    for found, most in ((fine, size / 32), (joined, size / 32 + size / 32)):
        a, b, c = found.vertices[found.triangles].transpose(1, 0, 2)
        for u, v in ((1 / 3, 1 / 3), (0.5, 0.5), (0.8, 0.1)):
            middle = u * a + v * b + (1 - u - v) * c
            assert np.abs(np.linalg.norm(middle, axis=1) - 1).max() < most


def test_small_bumps_on_large_flat_sides_are_kept() -> None:
    part = shape(f"{BOX.replace('max(q', 'min(max(q', 1)}, length(pos - vector(0.3, 0.2, 0.5)) - 0.06)")
    found = mesh(part, feature_size=0.06)
    assert found.vertices[:, 2].max() == pytest.approx(0.56, abs=0.01)
    assert is_manifold(found.triangles)


def test_edges_between_curved_sides_are_met() -> None:
    """The rim of the bite is an edge of the mesh everywhere: no triangle cuts it off."""
    part = shape(BITTEN)
    found = mesh(part, feature_size=0.08)
    ends = np.concatenate([found.triangles[:, [k, (k + 1) % 3]] for k in range(3)])
    middles = np.concatenate([found.vertices[ends].mean(1), found.vertices[found.triangles].mean(1)])
    assert np.abs(part(middles)).max() < 0.1 * 0.04
    assert is_manifold(found.triangles)


def test_thin_plates_are_as_sharp_as_thick_ones() -> None:
    plate = "max(abs(pos.x*0.6 + pos.z*0.8) - 0.06, max(abs(pos.y) - 1, abs(pos.z*0.6 - pos.x*0.8) - 1))"
    found = mesh(shape(plate), feature_size=0.1)
    assert is_manifold(found.triangles)
    assert volume(found) == pytest.approx(0.12 * 2 * 2, rel=1e-3)


def test_without_sharp_edges_are_cut_off_by_their_cells() -> None:
    found = mesh(shape(BOX), feature_size=0.2, sharp=False)
    assert is_manifold(found.triangles)
    assert 2.7 < volume(found) < 2.798


def test_features_larger_than_the_part_give_a_coarse_mesh() -> None:
    for size in (3.0, 1e3, 1e9):
        found = mesh(shape("length(pos) - 1"), feature_size=size)
        assert is_manifold(found.triangles)
        assert volume(found) == pytest.approx(4 / 3 * np.pi, rel=0.1)
        assert lg.slice(shape("length(pos) - 1"), 0.0, feature_size=size).area() == pytest.approx(np.pi, rel=0.1)


def test_a_part_thinner_than_the_features_is_an_error_that_names_both() -> None:
    sheet = shape("max(abs(pos.z - 0.013) - 0.01, length(pos) - 1)")
    with pytest.raises(AssemblyError, match="thinner than the requested features") as caught:
        mesh(sheet, feature_size=0.4)
    assert "feature_size up to" in str(caught.value)
    assert "2 × 2 × 0." in str(caught.value)
    rod = shape("max(abs(pos.x - 0.113), abs(pos.y - 0.02)) - 0.004", ((-2, -2, -1), (2, 2, 1)))
    upright = shape("max(max(abs(pos.x - 0.113), abs(pos.y)) - 0.004, abs(pos.z) - 1)")
    assert rod.name == upright.name
    with pytest.raises(AssemblyError, match="thinner than the requested features"):
        mesh(upright, feature_size=0.5)


@pytest.mark.parametrize("tolerance", [-1.0, 0.03, float("nan"), "fine"])
def test_what_is_no_tolerance_is_refused(tolerance: Any) -> None:
    with pytest.raises(AssemblyError, match="invalid tolerance"):
        mesh(shape(BOX), feature_size=0.1, tolerance=tolerance)


def test_fewer_triangles_than_asked_for_are_an_error() -> None:
    with pytest.raises(AssemblyError, match="more than 1,000 triangles"):
        mesh(shape("length(pos) - 1"), feature_size=0.05, most_triangles=1000)


def test_cells_grow_with_the_surface() -> None:
    """What is worked on is counted: four times as much for cells of half the size."""
    counted = [
        len(mesh(shape("length(pos) - 1"), feature_size=size, tolerance=0).triangles) for size in (0.2, 0.1, 0.05)
    ]
    for few, many in pairwise(counted):
        assert 3.5 < many / few < 4.5


@pytest.mark.parametrize("factor", ["10000000000", "0.00001"])
def test_how_steep_a_field_is_makes_no_difference(factor: str) -> None:
    """Close to its surface, a steep field is deeper than the bounds are far: those must not stand in for it."""
    found = mesh(shape(f"(length(pos) - 1) * {factor}"), feature_size=0.2)
    assert np.abs(np.linalg.norm(found.vertices, axis=1) - 1).max() < 1e-5
    assert len(found.triangles) == pytest.approx(
        len(mesh(shape("length(pos) - 1"), feature_size=0.2).triangles), rel=0.1
    )


def test_nothing_is_joined_where_the_field_has_no_direction() -> None:
    """Its gradient is too short to have one; planes without normals would agree with anything."""
    found = mesh(shape("(length(pos) - 1) * 0.000000000001"), feature_size=0.2)
    assert is_manifold(found.triangles)
    assert np.abs(np.linalg.norm(found.vertices, axis=1) - 1).max() < 0.1 * 0.1
    assert len(found.triangles) > 3000


def test_a_field_that_jumps_has_a_closed_mesh() -> None:
    found = mesh(shape("sign(length(pos) - 1)"), feature_size=0.2)
    assert is_manifold(found.triangles)
    assert volume(found) == pytest.approx(4 / 3 * np.pi, rel=0.02)


# --- in pieces -------------------------------------------------------------------------------------------------------


def gathered_at_once(level: Any, half: int, group: Any, count: int) -> list[Any]:
    """The planes of groups without pieces, each row as one sum."""
    steps = [(level.cell[:, axis] & 1) * float(half) for axis in range(3)]
    moved = run_in_batches(dual_clusters._move_planes(), [*level.planes(slice(None)), *steps], ())
    return [np.bincount(group, row, count) for row in moved]


@pytest.mark.parametrize("sharp", [True, False])
def test_a_mesh_made_in_pieces_has_the_bits_of_one_made_at_once(sharp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gyroid = "sin(pos.x)*cos(pos.y) + sin(pos.y)*cos(pos.z) + sin(pos.z)*cos(pos.x)"
    part = shape(gyroid, ((-3, -3, -3), (3, 3, 3)))
    lengths: list[int] = []

    def in_batches_and_noted(run: Any, arrays: Any, shared: Any) -> Any:
        lengths.append(len(arrays[0]))
        return run_in_batches(run, arrays, shared)

    def surface(at_once: int) -> Any:
        lengths.clear()
        monkeypatch.setattr(dual_vertices, "_CHUNK", at_once)
        return mesh(part, feature_size=0.3, sharp=sharp)

    for module in (dual_vertices, dual_clusters):
        monkeypatch.setattr(module, "run_in_batches", in_batches_and_noted)
    in_pieces = surface(700)
    assert max(lengths) == 700
    monkeypatch.setattr(dual_clusters, "_gather", gathered_at_once)
    whole = surface(1 << 30)
    assert max(lengths) > 5000
    np.testing.assert_array_equal(in_pieces.vertices, whole.vertices)
    np.testing.assert_array_equal(in_pieces.triangles, whole.triangles)


def test_the_memory_of_a_mesh_is_a_few_times_that_of_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vertex and its two triangles take 72 bytes; what is worked out about them is so for some at a time."""
    for module in (dual_triangles, dual_vertices, edge_changes, resources):
        monkeypatch.setattr(module, "_CHUNK", 1 << 12)  # so that a small mesh has many pieces
    monkeypatch.setattr(meshing, "_CHUNK", 64)
    turn = "6.2831853"
    waves = [f"sin(pos.{a}*{turn})*cos(pos.{b}*{turn})" for a, b in ("xy", "yz", "zx")]
    gyroid = shape(" + ".join(waves))
    mesh(gyroid, feature_size=0.5)  # compiles
    tracemalloc.start()
    try:
        surface = mesh(gyroid, feature_size=0.1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(surface.vertices) > 100_000
    assert surface.is_closed()
    assert peak / len(surface.vertices) < 500
