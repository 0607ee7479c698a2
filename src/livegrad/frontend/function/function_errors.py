"""Diagnostics of captured functions: each has a code, shows an excerpt of the source and suggests a fix.

Capture, the function compiler and the checks of `differentiable` raise `FunctionError`; docs/diagnostics.md lists the
codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.diagnostics import LivegradError, TextOrigin, caller_origin

# Every code with its title; docs/diagnostics.md explains each.
CODES = {
    "LG101": "the source of a function cannot be found",
    "LG102": "syntax that functions do not support",
    "LG103": "a name that may be unset",
    "LG104": "a name that is not defined",
    "LG105": "a function that calls itself",
    "LG106": "a list, vector, array or struct with two names is modified",
    "LG107": "a loop with a step or bounds that cannot be compiled",
    "LG108": "a call that does not match the function's signature",
    "LG109": "a function that the compiler does not support",
    "LG110": "an array that is not declared `inout` is written",
    "LG111": "two iterations of a parallel loop write one element",
    "LG112": "code that nests too deeply",
    "LG201": "operands that an operation does not support",
    "LG202": "a value of the wrong type",
    "LG203": "a variable with different types on different paths",
    "LG204": "an annotation that is not a type",
    "LG205": "no overload matches",
    "LG206": "more than one overload matches",
    "LG207": "no such attribute",
    "LG208": "an invalid index",
    "LG301": "a derivative is lost in a call that is not differentiable",
    "LG302": "a derivative is lost in a field that is not differentiable",
    "LG303": "`no_diff` that is not directly on a call",
    "LG304": "`no_diff` that does nothing",
    "LG305": "a derivative of a function that is not differentiable",
    "LG306": "a type that is not differentiable",
    "LG307": "a struct that contains itself",
    "LG308": "a derivative member that does not exist or has the wrong type",
    "LG309": "a custom derivative with the wrong signature",
    "LG310": "an invalid argument of a derivative",
    "LG401": "a type that does not implement its interface",
    "LG402": "a type argument that does not satisfy its bound",
    "LG403": "an interface without implementing types",
}


@dataclass(frozen=True)
class Span:
    """A range of the user's source on one line, with the text of the line."""

    file: str
    line: int
    column: int  # from 1
    end_column: int  # one past the last, on the same line
    text: str
    function: str = ""

    @property
    def origin(self) -> TextOrigin:
        return TextOrigin(self.file, self.line, self.column, self.function)

    def __str__(self) -> str:
        return str(self.origin)

    def excerpt(self) -> list[str]:
        """The source line with the range underlined."""
        number = str(self.line)
        margin = " " * len(number)
        stripped = self.text.rstrip("\n")
        marks = " " * (self.column - 1) + "^" * max(1, self.end_column - self.column)
        return [f"{margin} |", f"{number} | {stripped}", f"{margin} | {marks}"]


class FunctionError(LivegradError):
    """A captured function cannot be compiled or differentiated.

    >>> span = Span("scene.py", 4, 12, 13, "    return y")
    >>> print(FunctionError("LG104", "`y` is not defined", span, help="assign it first"))
    LG104: `y` is not defined (scene.py:4:12)
      |
    4 |     return y
      |            ^
    help: assign it first
    """

    def __init__(
        self,
        code: str,
        what: str,
        span: Span | None = None,
        *,
        expected: str | None = None,
        found: str | None = None,
        help: str | None = None,
        path: Sequence[tuple[str, Span]] = (),
    ) -> None:
        assert code in CODES, code
        self.code = code
        self.span = span
        self.path = tuple(path)
        where = caller_origin() if span is None else span.origin
        super().__init__(what, where=where, expected=expected, found=found, help=help)

    def _message(self) -> str:
        location = "" if self.where is None else f" ({self.where})"
        lines = [f"{self.code}: {self.what}{location}"]
        if self.span is not None and self.span.text:
            lines += self.span.excerpt()
        for label, span in self.path:
            lines.append(f"{label} ({span})")
            if span.text:
                lines += span.excerpt()
        if self.expected is not None:
            lines.append(f"expected: {self.expected}")
        if self.found is not None:
            lines.append(f"found: {self.found}")
        if self.help is not None:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)
