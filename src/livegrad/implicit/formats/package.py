"""Reads untrusted zip packages under limits, so that a small file cannot exhaust memory, and writes packages."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from livegrad.diagnostics import TextOrigin
from livegrad.implicit.formats.errors import FormatError, read_error
from livegrad.runtime.atomic_files import write_atomically

_ENCRYPTED = 1  # a flag bit of a zip entry


@dataclass(frozen=True)
class Limits:
    """Limits for files. A file that exceeds them is rejected; increase them for files that you trust.

    >>> Limits().part_bytes
    268435456
    """

    part_bytes: int = 1 << 28
    package_bytes: int = 1 << 30
    parts: int = 65536
    depth: int = 64
    elements: int = 1 << 21  # of a document, without rows; each takes half a kilobyte
    rows: int = 1 << 24  # vertices and triangles
    samples: int = 1 << 27  # of an image stack


class Package:
    """The parts of a zip file, by name without the leading slash. Names that differ only in case are rejected."""

    def __init__(self, path: str | os.PathLike[str], limits: Limits) -> None:
        self.name = Path(path).name
        self.limits = limits
        self.bytes_read = 0
        self.warnings: list[str] = []
        try:
            self._archive = zipfile.ZipFile(path)
        except FileNotFoundError as error:
            raise read_error(path, error) from None
        except zipfile.BadZipFile:
            raise FormatError(
                f"`{self.name}` is not a 3MF file",
                expected="a complete zip package",
                help="the download may be damaged",
            ) from None
        except (OSError, ValueError, NotImplementedError, EOFError) as error:
            raise FormatError(f"`{self.name}` cannot be read as a 3MF file: {error}") from None
        entries = self._archive.infolist()
        if len(entries) > limits.parts:
            raise FormatError(f"`{self.name}` has too many parts", expected=str(limits.parts), found=str(len(entries)))
        self._entries = {entry.filename.lstrip("/"): entry for entry in entries}
        if len({name.lower() for name in self._entries}) < len(entries):
            names = Counter(entry.filename.lstrip("/").lower() for entry in entries)
            raise FormatError(f"`{self.name}` has several parts named `{names.most_common(1)[0][0]}`")

    def __enter__(self) -> Package:
        return self

    def __exit__(self, *exception: object) -> None:
        self._archive.close()

    def warn(self, message: str, where: TextOrigin) -> None:
        """Records a warning. `load_3mf` issues the recorded warnings."""
        self.warnings.append(f"{message} ({where})")

    def has(self, name: str) -> bool:
        return name.lstrip("/") in self._entries

    def read(self, name: str) -> bytes:
        """Reads a part."""
        entry = self._entries.get(name.lstrip("/"))
        if entry is None:
            raise FormatError(f"`{self.name}` has no part `{name}`")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(f"part `{name}` of `{self.name}` is compressed by a method that 3MF does not allow")
        if entry.flag_bits & _ENCRYPTED:
            raise FormatError(f"part `{name}` of `{self.name}` is encrypted, which 3MF does not allow")
        limit = min(self.limits.part_bytes, self.limits.package_bytes - self.bytes_read)
        try:
            with self._archive.open(entry) as part:
                # Do not trust the size in the zip directory.
                data = part.read(limit + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
            # ValueError: the name cannot be decoded. RuntimeError: the compression is not supported.
            raise FormatError(f"part `{name}` of `{self.name}` is damaged: {error}") from None
        if len(data) > limit:
            raise FormatError(f"part `{name}` of `{self.name}` is too large", expected=f"at most {limit} bytes")
        self.bytes_read += len(data)
        return data


def write_package(path: str | os.PathLike[str], parts: Mapping[str, bytes]) -> None:
    """Writes a zip file with these parts, atomically and deterministically."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    write_atomically(path, buffer.getvalue())
