"""Atomic file writes: a temporary file beside the target is written completely and then renamed to it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

from livegrad.diagnostics import file_error, missing_folder


class AtomicFile:
    """A file that replaces `path` when the `with` block ends without an error. A symbolic link keeps its target.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with AtomicFile(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"whole")
    ...     (Path(folder) / "a.txt").read_bytes(), len(os.listdir(folder))
    (b'whole', 1)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._target = Path(os.path.realpath(path))
        if not self._target.parent.is_dir():
            raise missing_folder(Path(path).parent)
        try:
            handle, self._temporary_path = tempfile.mkstemp(prefix=f".{self._target.name}.", dir=self._target.parent)
        except OSError as error:  # name the target, not the temporary file
            raise file_error(error, path, "write to another path") from None
        self._file = os.fdopen(handle, "wb")

    def __enter__(self) -> IO[bytes]:
        return self._file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._file as file:
                if kind is None:
                    file.flush()
                    os.fsync(file.fileno())  # without it, a system crash could leave an empty file
            if kind is None:
                # `mkstemp` makes private files; the target gets the permissions of any new file.
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary_path, 0o666 & ~mask)
                os.replace(self._temporary_path, self._target)
        finally:
            Path(self._temporary_path).unlink(missing_ok=True)  # does nothing after the rename


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to a file. Concurrent readers see the old content or the new one, never a part.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", b"whole")
    ...     (Path(folder) / "a.txt").read_bytes(), len(os.listdir(folder))
    (b'whole', 1)
    """
    with AtomicFile(path) as file:
        file.write(data)
