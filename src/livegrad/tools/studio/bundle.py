"""The files of the front end, which the build has put into the package.

In: a path of a request. Out: the file's bytes and type. `scripts/build_studio.py` of the repository writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from livegrad.diagnostics import UsageError

FOLDER = Path(__file__).parent / "bundle"
STAMP = "build.txt"
_TYPES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/studio.js": ("studio.js", "text/javascript; charset=utf-8"),
    "/studio.css": ("studio.css", "text/css; charset=utf-8"),
    "/licences.txt": ("licences.txt", "text/plain; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


@dataclass(frozen=True)
class Bundle:
    """The built files. Requests name entries of a table, never paths on the disk."""

    folder: Path = FOLDER

    @cached_property
    def build(self) -> str:
        """The hash of the sources that the files were built from."""
        stamp = self.folder / STAMP
        if not stamp.is_file():
            raise UsageError(
                "the Studio's page has not been built",
                help="in a checkout of the repository: python -m scripts.build_studio",
            )
        return stamp.read_text().strip()

    def read(self, path: str) -> tuple[bytes, str] | None:
        """The content and the type of a file; None if there is no such file."""
        entry = _TYPES.get(path)
        if entry is None:
            return None
        name, kind = entry
        content = (self.folder / name).read_bytes()
        return (content.replace(b"__BUILD__", self.build.encode()) if name == "index.html" else content), kind
