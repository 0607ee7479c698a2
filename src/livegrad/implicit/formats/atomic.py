"""Atomic file writes: bytes are written to a temporary file, which then replaces the target."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from livegrad.diagnostics import file_error, missing_folder


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Puts `data` into the file; whoever reads it meanwhile sees the old content or the new, never a part.

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
    except OSError as error:  # who reads it knows the target, not the name that it has meanwhile
        raise file_error(error, target, "write to another place") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A temporary file is for its owner alone; the target gets what any new file would.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
