"""Implicit parts: node graphs as 3MF files have them, shapes written in Python, pictures, slices, meshes and files.

`nodes/` edits and lowers node graphs, `bodies/` evaluates, draws and slices parts, `distances/` has meshes, lattices
and images as functions, `meshing/` makes triangle meshes, `formats/` reads and writes files.
"""

from livegrad.public_names import front_door

__getattr__, __dir__, __all__ = front_door(__name__)
