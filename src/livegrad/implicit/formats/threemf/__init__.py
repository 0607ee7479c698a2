"""3MF files: parts with implicit functions, level sets, meshes, images and volume data, read and written."""

from livegrad.implicit.formats.threemf.read import load_3mf, open_3mf
from livegrad.implicit.formats.threemf.write import save_3mf

__all__ = ["load_3mf", "open_3mf", "save_3mf"]
