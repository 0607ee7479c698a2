"""Meshes of parts: closed and manifold, with sharp edges, and few triangles where the part is flat."""

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
from livegrad.implicit.meshing.dual_cells import CrossedCells, build_faces, edge_ends, find_loops
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
    """With SciPy: every edge joins two triangles of equal orientation, and those around a vertex form one fan."""
    ends = np.stack([triangles, np.roll(triangles, -1, 1)], -1).reshape(-1, 2)
    number = triangles.max() + 1
    keys, mates = ends @ [number, 1], ends @ [1, number]
    order = np.argsort(keys)
    rank = np.minimum(np.searchsorted(keys[order], mates), len(keys) - 1)
    if (np.diff(keys[order]) == 0).any() or (keys[order][rank] != mates).any():
        return False
    mate = order[rank]
    next_corner = 3 * (mate // 3) + (mate % 3 + 1) % 3
    links = csr_array((np.ones(len(ends)), (np.arange(len(ends)), next_corner)), shape=(len(ends), len(ends)))
    return connected_components(links, directed=False)[0] == len(np.unique(triangles))


@pytest.mark.parametrize("tolerance", [None, 0.0])
def test_meshes_of_tangled_surfaces_are_manifold_on_coarse_lattices(tolerance: float | None) -> None:
    surface = mesh(shape(TANGLE, ((-0.7, -0.7, -0.7), (0.7, 0.7, 0.7))), feature_size=0.2, tolerance=tolerance)
    assert surface.is_closed()
    assert is_manifold(surface.triangles)


def test_meshes_of_random_signs_are_manifold() -> None:
    """Random signs combine all cases of neighbouring cells."""
    inside = np.zeros((18, 18, 18), np.uint8)
    inside[1:-1, 1:-1, 1:-1] = np.random.default_rng(3).random((16, 16, 16)) < 0.5
    code = np.zeros((17, 17, 17), np.uint8)
    for corner in range(8):
        i, j, k = corner >> 2, corner >> 1 & 1, corner & 1
        code |= inside[i : i + 17, j : j + 17, k : k + 17] << np.uint8(corner)
    cells = np.argwhere((code != 0) & (code != 255))
    a, b, c, d = build_faces(CrossedCells(cells, code[tuple(cells.T)])).corners
    triangles = np.concatenate([np.stack([a, b, c], -1), np.stack([a, c, d], -1)])
    assert is_manifold(triangles.astype(np.int64))


def test_every_loop_on_a_cell_has_at_least_three_edges() -> None:
    for code in range(256):
        loops, _ = find_loops(code)
        crossed = [(code >> low & 1) != (code >> high & 1) for low, high in map(edge_ends, range(12))]
        assert [loop >= 0 for loop in loops] == crossed
        assert all(loops.count(loop) >= 3 for loop in set(loops) - {-1})


def test_flat_sides_have_few_triangles_for_any_cell_size() -> None:
    for size in (0.2, 0.05):
        surface = mesh(shape(BOX), feature_size=size)
        assert len(surface.triangles) < 40
        assert is_manifold(surface.triangles)
        assert volume(surface) == pytest.approx(2.8, rel=1e-6)


def test_merged_cells_stay_within_the_tolerance() -> None:
    part, size = shape("length(pos) - 1"), 0.05
    fine = mesh(part, feature_size=size, tolerance=0)
    merged = mesh(part, feature_size=size)
    assert len(merged.triangles) < 0.7 * len(fine.triangles)
    for surface, tolerance in ((fine, size / 32), (merged, size / 32 + size / 32)):
        a, b, c = surface.vertices[surface.triangles].transpose(1, 0, 2)
        for u, v in ((1 / 3, 1 / 3), (0.5, 0.5), (0.8, 0.1)):
            middle = u * a + v * b + (1 - u - v) * c
            assert np.abs(np.linalg.norm(middle, axis=1) - 1).max() < tolerance


def test_small_bumps_on_large_flat_sides_are_kept() -> None:
    part = shape(f"{BOX.replace('max(q', 'min(max(q', 1)}, length(pos - vector(0.3, 0.2, 0.5)) - 0.06)")
    surface = mesh(part, feature_size=0.06)
    assert surface.vertices[:, 2].max() == pytest.approx(0.56, abs=0.01)
    assert is_manifold(surface.triangles)


def test_sharp_edges_between_curved_sides_are_edges_of_the_mesh() -> None:
    """The rim of the bite is an edge of the mesh: no triangle cuts it off."""
    part = shape(BITTEN)
    surface = mesh(part, feature_size=0.08)
    ends = np.concatenate([surface.triangles[:, [k, (k + 1) % 3]] for k in range(3)])
    middles = np.concatenate([surface.vertices[ends].mean(1), surface.vertices[surface.triangles].mean(1)])
    assert np.abs(part(middles)).max() < 0.1 * 0.04
    assert is_manifold(surface.triangles)


def test_thin_plates_are_as_sharp_as_thick_ones() -> None:
    plate = "max(abs(pos.x*0.6 + pos.z*0.8) - 0.06, max(abs(pos.y) - 1, abs(pos.z*0.6 - pos.x*0.8) - 1))"
    surface = mesh(shape(plate), feature_size=0.1)
    assert is_manifold(surface.triangles)
    assert volume(surface) == pytest.approx(0.12 * 2 * 2, rel=1e-3)


def test_without_sharp_edges_are_chamfered() -> None:
    surface = mesh(shape(BOX), feature_size=0.2, sharp=False)
    assert is_manifold(surface.triangles)
    assert 2.7 < volume(surface) < 2.798


def test_features_larger_than_the_part_give_a_coarse_mesh() -> None:
    for size in (3.0, 1e3, 1e9):
        surface = mesh(shape("length(pos) - 1"), feature_size=size)
        assert is_manifold(surface.triangles)
        assert volume(surface) == pytest.approx(4 / 3 * np.pi, rel=0.1)
        assert lg.slice(shape("length(pos) - 1"), 0.0, feature_size=size).area() == pytest.approx(np.pi, rel=0.1)


def test_a_part_thinner_than_the_feature_size_is_an_error_with_both_sizes() -> None:
    sheet = shape("max(abs(pos.z - 0.013) - 0.01, length(pos) - 1)")
    with pytest.raises(AssemblyError, match="thinner than the feature size") as caught:
        mesh(sheet, feature_size=0.4)
    assert "feature_size up to" in str(caught.value)
    assert "2 × 2 × 0." in str(caught.value)
    rod = shape("max(abs(pos.x - 0.113), abs(pos.y - 0.02)) - 0.004", ((-2, -2, -1), (2, 2, 1)))
    upright = shape("max(max(abs(pos.x - 0.113), abs(pos.y)) - 0.004, abs(pos.z) - 1)")
    assert rod.name == upright.name
    with pytest.raises(AssemblyError, match="thinner than the feature size"):
        mesh(upright, feature_size=0.5)


@pytest.mark.parametrize("tolerance", [-1.0, 0.03, float("nan"), "fine"])
def test_invalid_tolerances_are_rejected(tolerance: Any) -> None:
    with pytest.raises(AssemblyError, match="invalid tolerance"):
        mesh(shape(BOX), feature_size=0.1, tolerance=tolerance)


def test_too_many_triangles_are_an_error() -> None:
    with pytest.raises(AssemblyError, match="more than 1,000 triangles"):
        mesh(shape("length(pos) - 1"), feature_size=0.05, most_triangles=1000)


def test_the_number_of_triangles_is_proportional_to_the_surface() -> None:
    """Cells of half the size give four times as many triangles."""
    counts = [
        len(mesh(shape("length(pos) - 1"), feature_size=size, tolerance=0).triangles) for size in (0.2, 0.1, 0.05)
    ]
    for few, many in pairwise(counts):
        assert 3.5 < many / few < 4.5


@pytest.mark.parametrize("factor", ["10000000000", "0.00001"])
def test_the_scale_of_a_field_does_not_matter(factor: str) -> None:
    """Near its surface, a steep field exceeds the distance to the bounds, which must not replace it."""
    surface = mesh(shape(f"(length(pos) - 1) * {factor}"), feature_size=0.2)
    assert np.abs(np.linalg.norm(surface.vertices, axis=1) - 1).max() < 1e-5
    assert len(surface.triangles) == pytest.approx(
        len(mesh(shape("length(pos) - 1"), feature_size=0.2).triangles), rel=0.1
    )


def test_cells_without_normals_are_not_merged() -> None:
    """The gradient is too short for a normal; planes without normals would be consistent with any other."""
    surface = mesh(shape("(length(pos) - 1) * 0.000000000001"), feature_size=0.2)
    assert is_manifold(surface.triangles)
    assert np.abs(np.linalg.norm(surface.vertices, axis=1) - 1).max() < 0.1 * 0.1
    assert len(surface.triangles) > 3000


def test_a_discontinuous_field_has_a_closed_mesh() -> None:
    surface = mesh(shape("sign(length(pos) - 1)"), feature_size=0.2)
    assert is_manifold(surface.triangles)
    assert volume(surface) == pytest.approx(4 / 3 * np.pi, rel=0.02)


# --- chunks ----------------------------------------------------------------------------------------------------------


def gathered_at_once(level: Any, half: int, group: Any, count: int) -> list[Any]:
    """Sums the planes of groups without chunks."""
    steps = [(level.cell[:, axis] & 1) * float(half) for axis in range(3)]
    rows = run_in_batches(dual_clusters._move_planes(), [*level.planes(slice(None)), *steps], ())
    return [np.bincount(group, row, count) for row in rows]


@pytest.mark.parametrize("sharp", [True, False])
def test_chunks_do_not_change_a_mesh(sharp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(dual_clusters, "_sum_planes", gathered_at_once)
    whole = surface(1 << 30)
    assert max(lengths) > 5000
    np.testing.assert_array_equal(in_pieces.vertices, whole.vertices)
    np.testing.assert_array_equal(in_pieces.triangles, whole.triangles)


def test_peak_memory_is_a_few_times_the_size_of_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vertex and its two triangles take 72 bytes; temporaries are computed in chunks."""
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
