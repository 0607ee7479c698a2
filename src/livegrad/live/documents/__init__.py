"""Saved live graphs: `Engine.save` writes a readable text file, and `load_document` opens it without running code.

`describe_engine.py` turns an engine into tables, `toml_text.py` prints them, `load.py` reads them and rebuilds the
engine. `readable_values.py` keeps numbers and small arrays legible and exact.
"""

from livegrad.live.documents.load import Document, DocumentError, load_document
from livegrad.live.documents.save import save_engine

__all__ = ["Document", "DocumentError", "load_document", "save_engine"]
