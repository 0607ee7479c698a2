"""Formats tables as TOML: one line for each value, multi-line strings verbatim, tables in the order of insertion."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # not allowed in multi-line literal strings
_LITERAL = "'''"


def toml_text(tables: Mapping[str, Any]) -> str:
    """Formats a table. A nested dictionary becomes a table; an `Inline` dictionary stays on its line.

    >>> print(toml_text({"version": 1, "blocks": {"b c": {"at": [1.0, 2.0], "r": Inline(type="f32")}}}))
    version = 1
    <BLANKLINE>
    [blocks."b c"]
    at = [1.0, 2.0]
    r = { type = "f32" }
    <BLANKLINE>
    """
    return "\n".join(_format_lines(tables, ())).lstrip("\n") + "\n"


class Inline(dict[str, Any]):
    """A dictionary that is printed on one line."""


def _format_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, dict) and not isinstance(value, Inline)}
    if path and (len(inner) < len(table) or not table):
        yield ""
        yield f"[{'.'.join(map(_format_key, path))}]"
    for key, value in table.items():
        if key not in inner:
            yield f"{_format_key(key)} = {_format_value(value)}"
    for key, value in inner.items():
        yield from _format_lines(value, (*path, key))


def _format_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _format_basic_string(name)


def _format_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _format_float(value)
        case str():
            return _format_string(value)
        case list() | tuple():
            return f"[{', '.join(map(_format_value, value))}]"
        case dict():
            inside = ", ".join(f"{_format_key(key)} = {_format_value(item)}" for key, item in value.items())
            return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _format_float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "nan" if math.isnan(value) else "inf" if value > 0.0 else "-inf"


def _format_string(text: str) -> str:
    if "\n" not in text or _LITERAL in text or text.endswith("'") or _CONTROL.search(text):
        return _format_basic_string(text)
    return f"{_LITERAL}\n{text}{_LITERAL}"


def _format_basic_string(text: str) -> str:
    """A basic string, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
