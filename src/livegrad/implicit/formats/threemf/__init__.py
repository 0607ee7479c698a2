"""Reads and writes 3MF files: node graphs, level sets, meshes, lattices, images and volume data.

`read.py` reads a package, with `read_functions.py` and `read_resources.py`; `merge.py` joins its model parts.
`schema.py` and `rules.py` say what is valid. `write.py` and `write_resources.py` write packages, with the parts and
relationships of `opc.py` and the names of `namespaces.py`.
"""

from livegrad.implicit.formats.threemf.read import load_3mf, open_3mf
from livegrad.implicit.formats.threemf.write import save_3mf

__all__ = ["load_3mf", "open_3mf", "save_3mf"]
