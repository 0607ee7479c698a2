"""Atomic file writes: a temporary file beside the target replaces it once it is complete."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

from livegrad.diagnostics import file_error, missing_folder


class Replacing:
    """A file that replaces `path` when the `with` block ends without an error; a link remains a link.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Replacing(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"whole")
    ...     (Path(folder) / "a.txt").read_bytes(), len(os.listdir(folder))
    (b'whole', 1)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._target = Path(os.path.realpath(path))
        if not self._target.parent.is_dir():
            raise missing_folder(Path(path).parent)
        try:
            handle, self._name = tempfile.mkstemp(prefix=f".{self._target.name}.", dir=self._target.parent)
        except OSError as error:  # the user knows the target, not the temporary name
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
                    os.fsync(file.fileno())  # else a crash of the machine could leave an empty file under the old name
            if kind is None:
                # A temporary file is private to its owner; the target gets the permissions of any new file.
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._name, 0o666 & ~mask)
                os.replace(self._name, self._target)
        finally:
            Path(self._name).unlink(missing_ok=True)  # unless it has become the target


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to the file. Concurrent readers see the old content or the new, never a part of it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", b"whole")
    ...     (Path(folder) / "a.txt").read_bytes(), len(os.listdir(folder))
    (b'whole', 1)
    """
    with Replacing(path) as file:
        file.write(data)
