"""Readers and writers of files: 3MF packages, `.vm` tapes, STL meshes, SVG contours, PNG images and animations.

`threemf` reads and writes 3MF, `mesh_files.py` STL and SVG, `vm.py` tapes, `png.py` and `animation.py` pictures.
`package.py` and `xml_tree.py` read untrusted archives and XML under limits; `errors.py` has the errors of all
formats.
"""

from livegrad.implicit.formats.animation import save_animation
from livegrad.implicit.formats.errors import FormatError, FormatWarning
from livegrad.implicit.formats.mesh_files import load_stl, save_mesh, save_stl, save_svg
from livegrad.implicit.formats.package import Limits
from livegrad.implicit.formats.png import read_png, save_png, write_png
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.formats.vm import load_vm, parse_vm

__all__ = [
    "FormatError",
    "FormatWarning",
    "Limits",
    "load_3mf",
    "load_stl",
    "load_vm",
    "parse_vm",
    "read_png",
    "save_3mf",
    "save_animation",
    "save_mesh",
    "save_png",
    "save_stl",
    "save_svg",
    "write_png",
]
