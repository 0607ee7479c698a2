"""Implicit parts: node graphs of 3MF files, shapes written in Python, rendering, slicing, meshing and files.

`nodes/` edits and lowers node graphs; `distances/` has distances to meshes and lattices and samples of images, as
functions of the value IR; `bodies/` evaluates, renders and slices parts; `meshing/` creates triangle meshes; `formats/`
reads and writes files.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
