"""Atomic file writes: bytes are written to a temporary file, which then replaces the target."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from livegrad.diagnostics import file_error, missing_folder


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to the file. Concurrent readers see the old content or the new, never a part of it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", b"whole")
    ...     (Path(folder) / "a.txt").read_bytes(), len(os.listdir(folder))
    (b'whole', 1)
    """
    target = Path(path)
    if not target.absolute().parent.is_dir():
        raise missing_folder(target.parent)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:  # the user knows the target, not the temporary name
        raise file_error(error, target, "write to another path") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A temporary file is private to its owner; the target gets the permissions of any new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
