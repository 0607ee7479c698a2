"""Errors and warnings of file readers and writers."""

from __future__ import annotations

import os

from livegrad.diagnostics import LivegradError, MissingFileError


class FormatError(LivegradError):
    """A file is invalid, or a format cannot represent a value.

    >>> str(FormatError("not a 3MF file", found="a JPEG file"))
    'not a 3MF file: found a JPEG file'
    """

    code = "format"


class _MissingFormatFile(FormatError, MissingFileError):
    """A file to read does not exist."""


def read_error(path: str | os.PathLike[str], error: OSError) -> FormatError:
    """Creates the error for a file that cannot be read.

    >>> str(read_error("box.stl", FileNotFoundError(2, "No such file or directory")))
    'there is no file `box.stl`; check the path'
    """
    if not isinstance(error, FileNotFoundError):
        return FormatError(f"cannot read `{os.fspath(path)}`: {error.strerror or error}")
    missing = _MissingFormatFile(f"there is no file `{os.fspath(path)}`", help="check the path")
    missing.errno, missing.strerror, missing.filename = error.errno, error.strerror, os.fspath(path)
    return missing


class FormatWarning(UserWarning):
    """A file was read although it violates a rule, or was read only in part.

    >>> issubclass(FormatWarning, UserWarning)
    True
    """
