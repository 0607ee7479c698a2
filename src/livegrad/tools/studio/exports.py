"""Files that pages download: parts as meshes, contours and shaders; values as arrays; the graph as text.

In: what is wanted. Out: a name and bytes, which travel over the socket: a page names no path, and nothing is written
outside of a temporary folder. `engine_thread.py` begins an export, and a thread of its own does it.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.part_assembly import assembly_of_part
from livegrad.implicit.bodies.slicing import slice_part
from livegrad.implicit.formats.mesh_files import save_stl, save_svg
from livegrad.implicit.formats.threemf import save_3mf
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.to_c import to_cuda, to_opencl
from livegrad.implicit.shaders.to_shader import to_glsl, to_wgsl
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block
from livegrad.tools.studio.edits import MessageError
from livegrad.tools.studio.sources import body_text, python_of

_MEDIA = {
    ".3mf": "model/3mf",
    ".cl": "text/plain",
    ".cu": "text/plain",
    ".csv": "text/csv",
    ".glsl": "text/plain",
    ".lg": "text/plain",
    ".npy": "application/octet-stream",
    ".py": "text/x-python",
    ".stl": "model/stl",
    ".svg": "image/svg+xml",
    ".wgsl": "text/plain",
    ".mp4": "video/mp4",
    ".png": "image/png",
    ".zip": "application/zip",
}


@dataclass(frozen=True)
class File:
    """A file to download."""

    name: str
    content: bytes

    @property
    def media(self) -> str:
        """The media type of the file, by its suffix."""
        return _MEDIA.get(Path(self.name).suffix, "application/octet-stream")


def file_name(title: str, suffix: str) -> str:
    """A name without anything that could be a path.

    >>> file_name("../../etc/passwd", ".stl"), file_name("", ".py")
    ('etc passwd.stl', 'graph.py')
    """
    words = re.sub(r"[^\w.-]+", " ", title).strip(" .")
    return f"{words or 'graph'}{suffix}"


# --- parts ------------------------------------------------------------------------------------------------------------


def _written(save: Callable[[Path], Any], suffix: str) -> bytes:
    """What `save` writes to a path."""
    with tempfile.TemporaryDirectory(prefix="livegrad-studio-") as folder:
        path = Path(folder) / f"part{suffix}"
        save(path)
        return path.read_bytes()


def _mesh(part: Part) -> bytes:
    surface = mesh(part, feature_size=part.min_feature_size or None)
    return _written(lambda path: save_stl(surface, path), ".stl")


def _slice(part: Part, height: float | None) -> bytes:
    level = float(part.low[2] + part.high[2]) / 2.0 if height is None else height
    contours = slice_part(part, level, feature_size=part.min_feature_size or None)
    return _written(lambda path: save_svg(contours, path), ".svg")


def _assembly_text(part: Part, write: Callable[..., Any]) -> bytes:
    return str(write(assembly_of_part(part), f"{part.name}_shape")).encode()


PART_EXPORTS: dict[str, tuple[str, str, Callable[[Part, float | None], bytes]]] = {
    "stl": ("Mesh (STL)", ".stl", lambda part, _: _mesh(part)),
    "3mf": (
        "Part (3MF)",
        ".3mf",
        lambda part, _: _written(lambda path: save_3mf(assembly_of_part(part), path), ".3mf"),
    ),
    "svg": ("Slice (SVG)", ".svg", _slice),
    "glsl": ("Shader (GLSL)", ".glsl", lambda part, _: str(to_glsl(part)).encode()),
    "wgsl": ("Shader (WGSL)", ".wgsl", lambda part, _: str(to_wgsl(part)).encode()),
    "opencl": ("Function (OpenCL)", ".cl", lambda part, _: _assembly_text(part, to_opencl)),
    "cuda": ("Function (CUDA)", ".cu", lambda part, _: _assembly_text(part, to_cuda)),
}


def export_part(part: Part, what: str, height: Any = None) -> File:
    """A part as a file.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(1.0).part(((-1, -1, -1), (1, 1, 1)), "ball")
    >>> export_part(ball, "svg", 0.5).name
    'ball.svg'
    """
    _, suffix, write = PART_EXPORTS[what]
    level = float(height) if isinstance(height, int | float) and not isinstance(height, bool) else None
    return File(file_name(part.name, suffix), write(part, level))


# --- values, functions and graphs -------------------------------------------------------------------------------------


def export_value(name: str, value: Any, what: str) -> File:
    """An array as NumPy's file or as text.

    >>> export_value("eye", np.eye(2), "csv").content.splitlines()
    [b'1.0,0.0', b'0.0,1.0']
    """
    if value is None:
        raise MessageError("there is no value yet")
    array = np.asarray(value)
    if what == "npy":
        stream = io.BytesIO()
        np.save(stream, array, allow_pickle=False)
        return File(file_name(name, ".npy"), stream.getvalue())
    rows = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(-1, 1)
    lines = [",".join(str(number) for number in row.tolist()) for row in rows]
    return File(file_name(name, ".csv"), ("\n".join(lines) + "\n").encode())


def export_document(engine: Engine, title: str) -> File:
    """The graph as a document, which `lg.load_document` and the Studio open."""
    return File(file_name(title, ".lg"), _written(engine.save, ".lg"))


def export_code(block: Block) -> File:
    """The function of a block as Python, or as value IR if it has no Python."""
    text = body_text(block)
    if text.kind == "none":
        raise MessageError(f"`{block.name}` has no function that can be written down")
    python = python_of(block) if text.kind == "expression" else text.text
    return File(file_name(block.name, ".ir" if text.kind == "ir" else ".py"), f"{python}\n".encode())
