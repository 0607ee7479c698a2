"""Error classes and source locations.

Every layer raises these errors. Each carries a description of the problem, the user's file and line, what was expected,
what was found, and a fix.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import warnings
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

PACKAGE_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A source location in the user's program: a code object and an instruction. The column is resolved on demand.

    Equal locations are the same object, because code objects themselves compare equal across files.

    >>> origin = caller_origin()
    >>> origin is None or origin.line > 0
    True
    """

    code: CodeType
    instruction: int

    @property
    def file(self) -> str:
        return self.code.co_filename

    def _position(self) -> tuple[int, int | None]:
        positions = list(self.code.co_positions())
        index = self.instruction // 2
        line, _, column, _ = positions[index] if index < len(positions) else (None, None, None, None)
        return (line or self.code.co_firstlineno), (None if column is None else column + 1)

    @property
    def line(self) -> int:
        return self._position()[0]

    @property
    def column(self) -> int | None:
        return self._position()[1]

    @property
    def function(self) -> str:
        return self.code.co_name

    def __reduce__(self) -> tuple[Any, ...]:
        return TextOrigin, (self.file, *self._position(), self.function)  # code objects cannot be pickled

    def __str__(self) -> str:
        line, column = self._position()
        name = os.path.basename(self.file)
        return f"{name}:{line}" if column is None else f"{name}:{line}:{column}"


@dataclass(frozen=True, slots=True)
class TextOrigin:
    """A location in text that is not running Python code: a parsed file or captured source."""

    file: str
    line: int
    column: int | None = None
    function: str = ""

    def __str__(self) -> str:
        name = os.path.basename(self.file)
        return f"{name}:{self.line}" if self.column is None else f"{name}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    """A location in a graph that is drawn rather than written: a node of a function, by name.

    >>> str(NodeOrigin("sample", "texture"))
    'node `sample` of `texture`'
    """

    node: str
    function: str
    file = ""
    line = 0
    column = None

    def __str__(self) -> str:
        return f"node `{self.node}` of `{self.function}`"


@dataclass(frozen=True, slots=True)
class Mark:
    """A placeholder for a source location in code that several functions share. Each call maps its index to a location.

    >>> str(Mark(2))
    'source location 2'
    """

    number: int
    file = ""
    line = 0
    column = None
    function = ""

    def __str__(self) -> str:
        return f"source location {self.number}"


SourceLocation = Origin | TextOrigin | NodeOrigin | Mark


cached_origins: dict[tuple[int, int], tuple[Origin, ...]] = {}  # keyed by id(code), which the origin keeps alive
_MOST_CACHED_ORIGINS = 100_000
# Frames in these files are never the caller: files of this package, and `functools`, which calls our cached properties.
_library_files: set[str] = {functools.__file__}


def caller_origins(depth: int = 1) -> tuple[Origin, ...]:
    """Returns a tuple with the location of the innermost frame outside this package; an empty tuple if there is none.

    Equal locations return the same tuple object, so a node that is created again on the same line is found by identity.
    The search skips `depth` frames: the caller guarantees that they belong to this package.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if code.co_filename not in _library_files:
            origins = cached_origins.get((id(code), frame.f_lasti))
            if origins is not None:
                return origins
            if code.co_filename.startswith((PACKAGE_DIRECTORY, "<frozen ")):  # "<frozen ...>": the import system
                _library_files.add(code.co_filename)
                continue
            if code.co_filename == "<string>" and frame.f_globals.get("__name__", "").startswith("livegrad."):
                frame = frame.f_back  # a method that `dataclass` generated for a class of this package
                continue
            if len(cached_origins) >= _MOST_CACHED_ORIGINS:
                cached_origins.clear()
            return cached_origins.setdefault((id(code), frame.f_lasti), (Origin(code, frame.f_lasti),))
        frame = frame.f_back
    return ()


def caller_origin() -> Origin | None:
    """Returns the line of the user's program that called livegrad."""
    origins = caller_origins()
    return origins[0] if origins else None


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warns at the line of the user's program that called livegrad, at any depth."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_DIRECTORY):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def shown(value: object, most: int = 60) -> str:
    """Formats a value for a message: its `repr`, truncated to `most` characters.

    >>> shown([1.0, 2.0]), shown(10**100, 10)
    ('[1.0, 2.0]', '1000000...')
    """
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = f"a number of type {type(value).__name__} with very many digits"
    return text if len(text) <= most else f"{text[: most - 3]}..."


class LivegradError(Exception):
    """The base class of all livegrad errors.

    >>> str(UsageError("no such axis", expected="an axis below 2", found="5", help="pass axis=0 or axis=1"))
    'no such axis: expected an axis below 2, found 5; pass axis=0 or axis=1'
    """

    code = "error"

    def __init__(
        self,
        what: str,
        *,
        where: SourceLocation | None = None,
        expected: str | None = None,
        found: str | None = None,
        help: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.found = found
        self.help = help
        super().__init__(self._message())

    def move_to(self, where: SourceLocation | None) -> None:
        """Moves the error to another source location."""
        self.where = where
        self.args = (self._message(),)

    def _message(self) -> str:
        text = self.what if self.where is None else f"{self.what} ({self.where})"
        details = []
        if self.expected is not None:
            details.append(f"expected {self.expected}")
        if self.found is not None:
            details.append(f"found {self.found}")
        if details:
            text += ": " + ", ".join(details)
        return text if self.help is None else f"{text}; {self.help}"


class UsageError(LivegradError):
    """A function does not accept an argument.

    >>> import livegrad as lg
    >>> try:
    ...     lg.Engine("abacus")
    ... except UsageError as error:
    ...     error.what
    'there is no backend `abacus`'
    """

    code = "usage"


class NotANumberError(UsageError, ValueError, OverflowError):
    """A value cannot be converted to the requested kind of number, such as NaN to an integer or a string to a float.

    >>> issubclass(NotANumberError, ValueError)
    True
    """

    code = "not-a-number"


class CallError(UsageError, TypeError, ValueError):
    """A function does not accept these arguments.

    >>> issubclass(CallError, TypeError)
    True
    """

    code = "call"


class FileError(LivegradError, OSError):
    """A file or folder cannot be opened. The message says which one, why, and what to do.

    >>> issubclass(FileError, OSError)
    True
    """

    code = "file"

    def __str__(self) -> str:
        return self._message()  # an OSError would show its errno and file name


class MissingFileError(FileError, FileNotFoundError):
    """A file or folder does not exist.

    >>> import livegrad as lg
    >>> try:
    ...     lg.load("nowhere.npz")
    ... except FileNotFoundError as error:
    ...     error.code, error.filename
    ('file', 'nowhere.npz')
    """


def file_error(error: OSError, path: object, help: str, what: str | None = None) -> FileError:
    """Converts an OSError at a path to a livegrad error.

    >>> error = file_error(FileNotFoundError(2, "No such file or directory"), "a.npz", "save one first")
    >>> isinstance(error, FileNotFoundError), error.filename
    (True, 'a.npz')
    """
    kind = MissingFileError if isinstance(error, FileNotFoundError) else FileError
    file_failure = kind(what or f"cannot open `{path}`: {error.strerror or error}", where=caller_origin(), help=help)
    file_failure.errno, file_failure.strerror, file_failure.filename = error.errno, error.strerror, str(path)
    return file_failure


def missing_folder(path: object) -> FileError:
    """The error for writing to a folder that does not exist."""
    error = FileNotFoundError(errno.ENOENT, "the folder to write to does not exist")
    return file_error(
        error, path, "create it first: os.makedirs(...)", f"the folder to write to does not exist: `{path}`"
    )


class TypeRuleError(LivegradError):
    """The type rule of an op rejects its operands or attributes.

    >>> import livegrad as lg
    >>> try:
    ...     lg.ir.trace(lambda x, y: x + y, lg.f32, lg.i32)
    ... except TypeRuleError as error:
    ...     error.code
    'type'
    """

    code = "type"


class VerifyError(LivegradError):
    """IR violates an invariant, found after a pass or on request.

    >>> VerifyError("a result of `f` is not of its type").code
    'verify'
    """

    code = "verify"


class ParseError(LivegradError):
    """IR text cannot be parsed.

    >>> import livegrad as lg
    >>> try:
    ...     lg.ir.parse_function("func @f(")
    ... except ParseError as error:
    ...     error.code
    'parse'
    """

    code = "parse"


class DifferentiationError(LivegradError):
    """A requested derivative does not exist.

    >>> import livegrad as lg
    >>> try:
    ...     lg.grad(lambda x: lg.sum(lg.linalg.qr(x, mode="complete")[0]))(lg.ones((3, 2)))
    ... except DifferentiationError as error:
    ...     error.code
    'differentiation'
    """

    code = "differentiation"


class CompileError(LivegradError):
    """A backend cannot generate code.

    >>> CompileError("no rule for `sort`").code
    'compile'
    """

    code = "compile"


class KernelCheckError(LivegradError):
    """A run-time check failed: an index, an integer division, an assertion or a loop bound.

    >>> import livegrad as lg
    >>> try:
    ...     (lg.asarray([1]) // lg.asarray([0])).execute()
    ... except KernelCheckError as error:
    ...     error.code
    'check'
    """

    code = "check"
