"""Error classes and source locations, and the conversion of Python errors to them.

Every error states what went wrong, on which line of the user's program, and how to fix it. `errors.py` defines the
classes, `explain_calls.py` wraps public functions so that invalid calls raise them, and `other_names.py` maps names of
NumPy, JAX and PyTorch to livegrad's.
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
