"""What is wrong with a file: the error of every reader and writer."""

from __future__ import annotations

from livegrad.diagnostics import LivegradError


class FormatError(LivegradError):
    """A file that cannot be read as what it claims to be, or a value that a format cannot hold.

    >>> str(FormatError("not a 3MF file", found="a text"))
    'not a 3MF file: found a text'
    """

    code = "format"


class FormatWarning(UserWarning):
    """A file that was read although it breaks a rule, or that was not read whole; the text says how.

    >>> issubclass(FormatWarning, UserWarning)
    True
    """
