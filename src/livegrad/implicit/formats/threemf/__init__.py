"""Reads and writes 3MF files: node graphs, level sets, meshes, lattices, images and volume data."""

from livegrad.implicit.formats.threemf.read import load_3mf, open_3mf
from livegrad.implicit.formats.threemf.write import save_3mf

__all__ = ["load_3mf", "open_3mf", "save_3mf"]
