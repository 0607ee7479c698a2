"""What pages look at: outputs shown as pictures, plots, tables and meshes, and what is sent of them.

In: the value of an output, and how a page shows it. Out: messages. `session.py` calls it after frames; a view that has
not acknowledged its last message gets the newest value later.
"""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from livegrad.tools.studio.pictures import is_picture, pack, picture_message
from livegrad.tools.studio.values import Json, plain

ViewKind = Literal["picture", "plot", "table", "mesh"]
KINDS: tuple[ViewKind, ...] = get_args(ViewKind)
_MAX_CURVES = 16  # numbers of an array that is plotted over time; larger ones are one curve
_MAX_POINTS = 4096  # of a plot, in one message
_TABLE_ROWS, _TABLE_COLUMNS = 40, 12
_MAX_CORNERS = 1 << 21  # of a mesh


@dataclass
class View:
    """An output that a page shows."""

    block: str
    output: str
    kind: ViewKind = "picture"
    at: tuple[int, int] = (0, 0)  # the first row and column of a table
    is_unacknowledged: bool = False
    shown: int = -1  # the version of the value that the page has
    is_exact: bool = False
    points: deque[tuple[int, list[float | None]]] = field(default_factory=lambda: deque(maxlen=_MAX_POINTS))

    @property
    def shows(self) -> tuple[str, str, ViewKind, tuple[int, int]]:
        """What the page asked for."""
        return self.block, self.output, self.kind, self.at


def view_of(described: Any) -> View | None:
    """A view as a page describes it: `[block, output]` for a picture, or an object with `pin`, `kind` and `at`.

    >>> view_of(["b1", "result"]).kind, view_of({"pin": ["b1", "result"], "kind": "table", "at": [3, 0]}).at
    ('picture', (3, 0))
    >>> view_of({"pin": ["b1", "result"], "kind": "film"}) is None
    True
    """
    match described:
        case [str() as block, str() as output]:
            return View(block, output)
        case {"pin": [str() as block, str() as output], "kind": kind} if kind in KINDS:
            return View(block, output, cast(ViewKind, kind), _corner(described.get("at")))
    return None


def _corner(at: Any) -> tuple[int, int]:
    match at:
        case [int() as row, int() as column]:
            return max(0, row), max(0, column)
    return 0, 0


def record_point(view: View, frame: int, value: NDArray[Any] | None) -> None:
    """Notes the numbers of a frame for a plot over time."""
    if view.kind == "plot" and value is not None and 0 < value.size <= _MAX_CURVES and value.dtype.kind in "biuf":
        view.points.append((frame, _numbers(value)))


def view_message(
    name: str, view: View, frame: int, value: NDArray[Any], others: dict[str, NDArray[Any] | None], *, exact: bool
) -> str | bytes | None:
    """What a page receives of a view, or None if the value has no such view. `others` are the block's other outputs."""
    match view.kind:
        case "picture":
            return picture_message(name, frame, value, exact=exact) if is_picture(value) else None
        case "plot":
            return _plot_message(name, view, frame, value)
        case "table":
            return json.dumps(_table(name, view.at, frame, value))
        case "mesh":
            return _mesh_message(name, frame, value, others)


def _plot_message(name: str, view: View, frame: int, value: NDArray[Any]) -> str | None:
    """The points since the last message; an array with many numbers is a curve over its index."""
    if value.dtype.kind not in "biuf" or not value.size:
        return None
    message: Json = {"type": "plot", "view": name, "frame": frame, "shape": list(value.shape)}
    if value.size > _MAX_CURVES:
        step = -(-value.size // _MAX_POINTS)
        curve = value.reshape(-1)[::step]
        return json.dumps(message | {"curve": _numbers(curve), "step": step})
    if not view.points or view.points[-1][0] < frame:
        view.points.append((frame, _numbers(value)))
    points, view.points = view.points, deque(maxlen=_MAX_POINTS)
    return json.dumps(message | {"frames": [frame for frame, _ in points], "values": [row for _, row in points]})


def _numbers(values: NDArray[Any]) -> list[float | None]:
    """Numbers as JSON; those that have no place in a plot are gaps."""
    return [number if math.isfinite(number) else None for number in values.astype(np.float64).reshape(-1).tolist()]


def _table(name: str, at: tuple[int, int], frame: int, value: NDArray[Any]) -> Json:
    """A window of an array. The last axis is the columns, all others are the rows."""
    columns = value.shape[-1] if value.ndim > 1 else 1
    rows = value.size // columns if columns else 0
    grid = value.reshape(rows, columns)
    row, column = min(at[0], max(0, rows - 1)), min(at[1], max(0, columns - 1))
    cells = grid[row : row + _TABLE_ROWS, column : column + _TABLE_COLUMNS]
    return {
        "type": "table",
        "view": name,
        "frame": frame,
        "shape": list(value.shape),
        "dtype": value.dtype.name,
        "rows": rows,
        "columns": columns,
        "at": [row, column],
        "cells": plain(cells) if cells.size else [],
    }


# --- meshes -----------------------------------------------------------------------------------------------------------


def is_mesh(array: NDArray[Any]) -> bool:
    """Whether an array has points of space: vertices or points (n, 3), or triangles (n, 3, 3).

    >>> is_mesh(np.zeros((8, 3))), is_mesh(np.zeros((8, 3, 3))), is_mesh(np.zeros((8, 3), int)), is_mesh(np.zeros(3))
    (True, True, False, False)
    """
    is_space = array.shape[1:] in ((3,), (3, 3))
    return array.dtype.kind == "f" and array.size > 0 and is_space


def mesh_arrays(
    value: NDArray[Any], others: dict[str, NDArray[Any] | None]
) -> tuple[NDArray[np.float32], NDArray[np.uint32]] | None:
    """Vertices and triangles. A block with another output of integers (m, 3) says how its vertices are joined; without
    one, points stay points.

    >>> vertices, triangles = mesh_arrays(np.zeros((2, 3, 3)), {})
    >>> vertices.shape, triangles.tolist()
    ((6, 3), [[0, 1, 2], [3, 4, 5]])
    """
    if not is_mesh(value) or value.size > 3 * _MAX_CORNERS:
        return None
    vertices = np.ascontiguousarray(value.reshape(-1, 3), np.float32)
    if value.ndim == 3:
        return vertices, np.arange(len(vertices), dtype=np.uint32).reshape(-1, 3)
    for other in others.values():
        is_list = other is not None and other.ndim == 2 and other.shape[1] == 3 and other.dtype.kind in "iu"
        if is_list and other is not None and other.size <= _MAX_CORNERS:
            inside = ((other >= 0) & (other < len(vertices))).all(axis=1)
            return vertices, np.ascontiguousarray(other[inside], np.uint32)
    return vertices, np.empty((0, 3), np.uint32)


def _mesh_message(name: str, frame: int, value: NDArray[Any], others: dict[str, NDArray[Any] | None]) -> bytes | None:
    """A mesh as a binary message: positions as 32-bit floats, then triangles as 32-bit integers."""
    arrays = mesh_arrays(value, others)
    if arrays is None:
        return None
    vertices, triangles = arrays
    header = {
        "type": "mesh",
        "view": name,
        "frame": frame,
        "vertices": len(vertices),
        "triangles": len(triangles),
    }
    return pack(header, vertices.tobytes() + triangles.tobytes())
