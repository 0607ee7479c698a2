"""Reads and writes meshes as binary STL, and writes meshes as 3MF and contours as SVG. All writes are atomic."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from livegrad.diagnostics import caller_origin
from livegrad.implicit.bodies.slicing import Slice
from livegrad.implicit.formats.errors import FormatError, read_error
from livegrad.implicit.formats.threemf import save_3mf
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.resources import TriangleMesh
from livegrad.runtime.atomic_files import write_atomically

_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


def save_stl(mesh: TriangleMesh, path: str | os.PathLike[str]) -> None:
    """Writes a mesh as a binary STL file.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "box.stl")
    >>> save_stl(TriangleMesh.box((0, 0, 0), (1, 2, 3)), path)
    >>> load_stl(path)
    <mesh box: 8 vertices, 12 triangles>
    """
    if not isinstance(mesh, TriangleMesh):
        raise FormatError(
            "not a mesh",
            where=caller_origin(),
            found=type(mesh).__name__,
            help="`lg.mesh(part)` creates one from a part",
        )
    corners = mesh.vertices[mesh.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    rows = np.zeros(len(corners), _TRIANGLE)
    rows["normal"], rows["corners"] = normals / np.where(length > 0, length, 1.0), corners
    header = b"livegrad".ljust(80, b" ") + np.uint32(len(rows)).tobytes()
    write_atomically(path, header + rows.tobytes())


def save_mesh(mesh: TriangleMesh, path: str | os.PathLike[str]) -> None:
    """Writes a mesh as `.stl` or `.3mf`, by the extension of the path.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "box.3mf")
    >>> save_mesh(TriangleMesh.box((0, 0, 0), (1, 2, 3)), path)
    >>> os.path.getsize(path) > 0
    True
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".stl":
        save_stl(mesh, path)
    elif suffix == ".3mf":
        save_3mf(Assembly().add_resource(mesh, id=1).build(1), path)
    else:
        raise FormatError(f"a mesh cannot be written as `{suffix}`", expected=".stl or .3mf", found=Path(path).name)


def load_stl(path: str | os.PathLike[str]) -> TriangleMesh:
    """Reads a mesh from a binary STL file. Equal corners of triangles become one vertex.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_stl(TriangleMesh.box((0, 0, 0), (1, 1, 1)), Path(folder) / "box.stl")
    ...     load_stl(Path(folder) / "box.stl").is_closed()
    True
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise read_error(path, error) from None
    count = int(np.frombuffer(data[80:84], "<u4")[0]) if len(data) >= 84 else -1
    if count < 0 or len(data) != 84 + count * _TRIANGLE.itemsize:
        raise FormatError(f"`{file.name}` is not a binary STL file", found=f"{len(data)} bytes")
    corners = np.frombuffer(data, _TRIANGLE, count, 84)["corners"].reshape(-1, 3)
    vertices, triangles = np.unique(corners, axis=0, return_inverse=True)
    return TriangleMesh(vertices.reshape(-1, 3), triangles.reshape(-1, 3), file.stem)


def save_svg(contours: Slice, path: str | os.PathLike[str], *, fill: str = "#1f497d") -> None:
    """Writes the contours of a slice as an SVG file in the units of the part, with y up.

    >>> import os, tempfile
    >>> import livegrad as lg
    >>> path = os.path.join(tempfile.mkdtemp(), "layer.svg")
    >>> ball = lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2)), "ball")
    >>> save_svg(lg.slice(ball, 0.0), path)
    >>> open(path).read(5)
    '<svg '
    """
    write_atomically(path, contours.to_svg(fill).encode())
