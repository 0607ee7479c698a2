"""The lexer of the IR parser: a cursor that reads tokens and reports errors by line and column.

White space, line ends and comments may occur between any two tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cached_property
from typing import NoReturn

from livegrad.diagnostics import ParseError, TextOrigin

_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\(u\{([0-9a-fA-F]{1,6})\}|.)")
_NEXT = re.compile(r'[%@$]?[\w.]+|"[^"\n]*"?|\S')
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}
_LAST_CHARACTER = 0x10FFFF
_MAX_GUESSES = 2000


class Cursor:
    """A text and the current position, which is always at the start of a token."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.position = 0
        self.skip_space()

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def location(self, position: int | None = None, function: str = "") -> TextOrigin:
        """The file, line and column of a position, by default the current one."""
        position = self.position if position is None else position
        line = bisect_right(self._line_starts, position)
        return TextOrigin(self.file, line, position - self._line_starts[line - 1] + 1, function)

    def fail(
        self,
        what: str,
        *,
        at: int | None = None,
        expected: str | None = None,
        found: str | None = None,
        help: str | None = None,
    ) -> NoReturn:
        raise ParseError(what, where=self.location(at), expected=expected, found=found, help=help)

    def refuse(self, expected: str, *, help: str | None = None) -> NoReturn:
        """Reports the next token as a syntax error."""
        match = _NEXT.match(self.text, self.position)
        self.fail("cannot read the IR", expected=expected, found=f"`{match[0]}`" if match else "the end", help=help)

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        if match:
            self.position = match.end()

    def move_to(self, position: int) -> None:
        self.position = position
        self.skip_space()

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Reads a token that matches the pattern, or returns None."""
        match = pattern.match(self.text, self.position)
        if match:
            self.move_to(match.end())
        return match

    def take(self, mark: str) -> bool:
        """Reads a punctuation mark if it comes next."""
        if not self.text.startswith(mark, self.position):
            return False
        self.move_to(self.position + len(mark))
        return True

    def expect(self, mark: str, *, help: str | None = None) -> None:
        if not self.take(mark):
            self.refuse(f"`{mark}`", help=help)

    def peek_word(self) -> str | None:
        match = _WORD.match(self.text, self.position)
        return match[0] if match else None

    def word(self, expected: str) -> str:
        match = self.match(_WORD)
        return match[0] if match else self.refuse(expected)

    def name(self, expected: str) -> str:
        """A plain name, or any string in quotes."""
        return self.string(expected) if self.text.startswith('"', self.position) else self.word(expected)

    def string(self, expected: str) -> str:
        start = self.position
        match = self.match(_STRING)
        if match is None:
            self.refuse(expected, help='a string ends with `"` on its own line')
        return _ESCAPE.sub(lambda escape: self._unescape(escape, start + 1), match[1])

    def _unescape(self, escape: re.Match[str], start: int) -> str:
        if escape[2] and int(escape[2], 16) <= _LAST_CHARACTER:
            return chr(int(escape[2], 16))
        character = _UNESCAPED.get(escape[1])
        if character is None:
            self.fail(
                f"a string has no escape `{escape[0]}`",
                at=start + escape.start(),
                expected='\\\\, \\", \\n, \\t, \\r or \\u{...}',
            )
        return character


def guess(name: str, candidates: Iterable[str], mark: str = "") -> str | None:
    """A suggestion for a misspelt name; None if no candidate is similar, or if there are too many to compare."""
    names = [mark + item for item in candidates]
    close = get_close_matches(name, names, n=1) if len(names) <= _MAX_GUESSES else []
    return f"did you mean `{close[0]}`?" if close else None
