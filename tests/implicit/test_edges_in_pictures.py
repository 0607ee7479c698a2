"""Pictures show edges of bodies at their positions, and walls thinner than a pixel."""

import numpy as np

import livegrad as lg

BACKGROUND = (1.0, 0.0, 1.0)


def covered(part: lg.Part, **options: object) -> np.ndarray:
    picture = lg.render(part, background=BACKGROUND, **options)  # type: ignore[arg-type]
    return np.abs(picture - BACKGROUND).max(-1) > 1e-9


def test_vertical_edges_of_a_box_are_straight() -> None:
    box = lg.shapes.box((2, 1.4, 1)).part(((-1.2, -1, -0.8), (1.2, 1, 0.8)))
    for size in (200, 256, 300):
        coverage = covered(box, size=(size, size))
        rows = np.flatnonzero(coverage.any(1))
        left = [int(np.flatnonzero(coverage[row])[0]) for row in rows]
        right = [int(np.flatnonzero(coverage[row])[-1]) for row in rows]
        for edge, outermost in ((left, min(left)), (right, max(right))):
            outermost_rows = [row for row, column in enumerate(edge) if column == outermost]
            assert outermost_rows == list(range(outermost_rows[0], outermost_rows[-1] + 1))  # no row between falls back
            assert len(outermost_rows) > 0.25 * len(rows)


def test_a_plate_thinner_than_a_pixel_has_no_holes() -> None:
    plate = lg.shapes.box((2, 2, 0.003)).part(((-1.2, -1.2, -0.2), (1.2, 1.2, 0.2)))
    coverage = covered(plate, size=(96, 96), direction=(0.1, 0.2, -1.0))
    between = [row[row.argmax() : len(row) - row[::-1].argmax()] for row in coverage if row.any()]
    assert all(row.all() for row in between)
    assert coverage.sum() > 4000
