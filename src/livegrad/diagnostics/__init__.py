"""Errors that say what went wrong, on which line of the user's program, and what to do.

`errors.py` has the error classes and source locations, `explain_calls.py` turns wrong calls of public functions into
such errors, `other_names.py` maps names of NumPy, JAX and PyTorch to ours.
"""

from livegrad.diagnostics.errors import (
    CallError,
    CompileError,
    DifferentiationError,
    FileError,
    KernelCheckError,
    LivegradError,
    Mark,
    MissingFileError,
    NodeOrigin,
    NotANumberError,
    Origin,
    ParseError,
    SourceLocation,
    TextOrigin,
    TypeRuleError,
    UsageError,
    VerifyError,
    caller_origin,
    caller_origins,
    file_error,
    missing_folder,
    shown,
    warn_caller,
)

__all__ = [
    "CallError",
    "CompileError",
    "DifferentiationError",
    "FileError",
    "KernelCheckError",
    "LivegradError",
    "Mark",
    "MissingFileError",
    "NodeOrigin",
    "NotANumberError",
    "Origin",
    "ParseError",
    "SourceLocation",
    "TextOrigin",
    "TypeRuleError",
    "UsageError",
    "VerifyError",
    "caller_origin",
    "caller_origins",
    "file_error",
    "missing_folder",
    "shown",
    "warn_caller",
]
