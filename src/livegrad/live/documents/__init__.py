"""Saved live graphs: `Engine.save` writes a readable text file, and `load_document` opens it without running code.

`save.py` and `tables.py` convert an engine to tables, `toml_text.py` prints them, and `load.py` reads them and rebuilds
the engine. `readable_values.py` writes numbers and small arrays legibly and exactly.
"""

from livegrad.live.documents.load import Document, DocumentError, load_document
from livegrad.live.documents.save import save_engine

__all__ = ["Document", "DocumentError", "load_document", "save_engine"]
