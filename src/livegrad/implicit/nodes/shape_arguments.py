"""Validates and converts the numbers, vectors and boxes that users pass to shapes and parts.

Errors point at the user's line and are raised before a graph is built.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import caller_origin, shown
from livegrad.implicit.nodes.errors import AssemblyError


def finite_number(value: Any, what: str, expected: str = "a finite number") -> float:
    """Converts a real number to a float.

    >>> finite_number(np.float32(0.5), "height")
    0.5
    """
    if isinstance(value, int | float | np.number | np.ndarray) and not isinstance(value, bool | np.complexfloating):
        try:
            result = float(value)
        except (
            TypeError,
            ValueError,
            OverflowError,
        ):  # an array of several numbers, or an integer that exceeds all floats
            result = math.nan
        if math.isfinite(result):
            return result
    raise AssemblyError(f"invalid {what}", where=caller_origin(), expected=expected, found=shown(value))


def three_numbers(value: Any, what: str) -> NDArray[np.float64]:
    """Converts three finite numbers to an array.

    >>> three_numbers((0, 0, 1), "direction")
    array([0., 0., 1.])
    """
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty(0)
    if numbers.shape == (3,) and np.isfinite(numbers).all():
        return numbers
    raise AssemblyError(f"not {what}", where=caller_origin(), expected="three numbers", found=shown(value))


def unit_vector(value: Any, what: str) -> NDArray[np.float64]:
    """Normalises a direction.

    >>> unit_vector((0, 0, 2), "an axis")
    array([0., 0., 1.])
    """
    direction = three_numbers(value, what)
    length = float(np.linalg.norm(direction))
    if not length or not math.isfinite(length):
        expected = "three numbers, not all of them 0"
        raise AssemblyError(f"not {what}", where=caller_origin(), expected=expected, found=shown(value))
    return direction / length


def box_corners(bounds: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Converts the bounds of a box to its low and high corner.

    >>> box_corners(((0, 0, 0), (1, 2, 3)))
    (array([0., 0., 0.]), array([1., 2., 3.]))
    """
    try:
        corners = np.asarray(bounds, np.float64)
    except (TypeError, ValueError, OverflowError):
        corners = np.empty(0)
    if corners.shape != (2, 3) or not np.isfinite(corners).all() or not (corners[0] < corners[1]).all():
        raise AssemblyError(
            "invalid bounds",
            where=caller_origin(),
            expected="((x0, y0, z0), (x1, y1, z1)), the low corner first",
            found=shown(bounds),
        )
    return corners[0], corners[1]
