"""Walls thinner than a fiftieth of a part are meshed, or a warning reports the lost volume."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.bodies.clipping import clip_and_fit
from livegrad.implicit.bodies.pruning import IntervalBounds, find_blocks
from livegrad.implicit.meshing.meshing import _make_lattice
from livegrad.implicit.meshing.thin_walls import estimate_size, find_cells, warn_about_losses

SAMPLES = [parent / "shared" / "samples" / "wristband_003.3mf" for parent in Path(__file__).resolve().parents]
WRISTBAND = next((path for path in SAMPLES if path.exists()), SAMPLES[0])


def tube(wall: float) -> lg.Part:
    """A pipe of radius 1 and length 2 with a thin wall; its volume is 4π times the wall."""
    pipe = lg.shapes.cylinder(1.0).shell(wall) & lg.shapes.box((4, 4, 2))
    return pipe.part(((-1.5, -1.5, -1.5), (1.5, 1.5, 1.5)), "tube")


def test_a_thin_wall_is_meshed_completely_by_default() -> None:
    plate = lg.shapes.box((0.5, 0.5, 0.004)).rotate((1, 2, 0.5), 0.4)  # cells are 0.005 wide unless walls are thinner
    part = plate.part(((-1, -1, -1), (1, 1, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        surface = lg.mesh(part)
    assert surface.is_closed()
    assert surface.volume() == pytest.approx(0.5 * 0.5 * 0.004, rel=0.05)


def test_a_mesh_coarser_than_its_walls_warns_about_lost_volume() -> None:
    with pytest.warns(
        lg.implicit.PartWarning, match=r"the mesh has a volume of .*, the part 0\.1.* by sampling"
    ) as caught:
        lg.mesh(tube(0.012), feature_size=0.1)
    assert caught[0].filename == __file__


def test_walls_thinner_than_the_finest_default_cells_give_a_warning_before_meshing() -> None:
    sheet = lg.shapes.gyroid(1.0).shell(0.1)  # about 0.013 thick; cells of half of 0.0204 would be too many
    part = (sheet & lg.shapes.box((4, 4, 4))).part(((-2.1, -2.1, -2.1), (2.1, 2.1, 2.1)))

    def stop(stage: str, fraction: float) -> None:
        if stage == "finding vertices":
            raise KeyboardInterrupt

    with (
        pytest.warns(
            lg.implicit.PartWarning, match=r"walls thinner than cells of 0\.0204.* feature_size below 0\.0408"
        ),
        pytest.raises(KeyboardInterrupt),
    ):
        lg.mesh(part, progress=stop)


def test_a_slice_resolves_thin_walls_or_warns() -> None:
    area = 2 * np.pi * 0.006
    assert lg.slice(tube(0.006), 0.1).area() == pytest.approx(area, rel=0.05)
    with pytest.warns(lg.implicit.PartWarning, match="the slice has an area of"):
        lg.slice(tube(0.006), 0.1, feature_size=0.1)


def test_thick_parts_are_not_refined_and_do_not_warn() -> None:
    part = lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        surface = lg.mesh(part)
    assert surface.volume() == pytest.approx(4 / 3 * np.pi, rel=0.01)
    body = clip_and_fit(part)
    lattice = _make_lattice(body, 0.04)
    sampled = estimate_size(
        lambda points: body(points) < 0,
        lattice,
        find_blocks(IntervalBounds(body.function, body.arguments, body.element.dtype), lattice),
    )
    assert sampled.thin < 0.02
    assert abs(sampled.size - 4 / 3 * np.pi) < 5 * sampled.error


def test_an_uncertain_loss_is_sampled_again() -> None:
    part = lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)))
    body = clip_and_fit(part)
    bounds = IntervalBounds(body.function, body.arguments, body.element.dtype)
    cells = find_cells(
        bounds, lambda points: body(points) < 0, lambda size: _make_lattice(body, size), 0.1, finer=False
    )
    volume = 4 / 3 * np.pi
    doubtful = replace(cells, sampled=replace(cells.sampled, size=volume, error=0.02 * volume))
    with pytest.warns(lg.implicit.PartWarning, match="the mesh has a volume of"):
        warn_about_losses("mesh", "a volume of", 0.92 * volume, doubtful)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_losses("mesh", "a volume of", 0.97 * volume, doubtful)
    with pytest.warns(lg.implicit.PartWarning, match="the mesh has a volume of"):  # 7 %, of which chance explains 2 %
        warn_about_losses("mesh", "a volume of", 0.93 * volume, doubtful)


@pytest.mark.parametrize("part", [tube(0.01), lg.shapes.sphere(1.0).part(((-200, -200, -200), (200, 200, 200)))])
def test_the_volume_estimate_does_not_depend_on_the_bounds(part: lg.Part) -> None:
    expected = 4 * np.pi * 0.01 if part.name == "tube" else 4 / 3 * np.pi
    assert part.volume() == pytest.approx(expected, rel=2e-3)
    low, high = part.bounds()
    lower_half = replace(part, low=np.array([*low[:2], 0.0]), high=high)  # a body ends at its bounds
    assert lower_half.volume() == pytest.approx(expected / 2, rel=2e-3)


def test_meshing_an_empty_part_warns() -> None:
    ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)), "ball")
    with pytest.warns(lg.implicit.PartWarning, match="part `ball` has no body within its bounds: the mesh is empty"):
        assert not len(lg.mesh(ball.with_parameters(radius=-1.0)).triangles)


@pytest.mark.skipif(not WRISTBAND.exists(), reason="the sample files are not here")
def test_a_slice_of_a_wristband_keeps_its_area() -> None:
    (part,) = lg.parts(lg.load_3mf(WRISTBAND))
    cut = lg.slice(part, 105.0)
    body = clip_and_fit(part)
    generator = np.random.default_rng(0)
    points = body.low + (body.high - body.low) * generator.random((400_000, 3))
    points[:, 2] = 105.0
    expected = (body(points) < 0).mean() * np.prod((body.high - body.low)[:2])
    assert cut.area() == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize(
    "make",
    [
        lambda: lg.shapes.sphere(-1),
        lambda: lg.shapes.sphere(0),
        lambda: lg.shapes.box((1, -2, 1)),
        lambda: lg.shapes.cylinder(-1.0),
        lambda: lg.shapes.cylinder(1.0, -2.0),
        lambda: lg.shapes.torus(2.0, -0.5),
        lambda: lg.shapes.sphere(1).shell(-0.1),
        lambda: lg.shapes.sphere(1).scale(0.0),
    ],
)
def test_sizes_that_are_not_positive_are_rejected_at_the_callers_line(make: object) -> None:
    with pytest.raises(
        lg.implicit.AssemblyError, match=r"\(test_thin_walls.py:\d+:\d+\): expected a number above 0, found"
    ):
        make()  # type: ignore[operator]


def test_a_torus_may_have_radius_zero_but_not_less() -> None:
    with pytest.raises(lg.implicit.AssemblyError, match=r"invalid radius .*: expected 0 or above, found -1"):
        lg.shapes.torus(-1, 0.2)
    ball = lg.shapes.torus(0, 0.5).part(((-1, -1, -1), (1, 1, 1)))
    assert ball([0.0, 0.0, 0.0]) == pytest.approx(-0.5)
