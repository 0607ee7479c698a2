"""Prints tables as TOML: one line for each value, text of several lines as it is, tables in their own order."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # a literal string of several lines cannot hold them
_LITERAL = "'''"


def toml_text(tables: Mapping[str, Any]) -> str:
    """The text of a table. A dictionary in it is a table of its own, and an `Inline` one stays on its line.

    >>> print(toml_text({"version": 1, "blocks": {"b c": {"at": [1.0, 2.0], "r": Inline(type="f32")}}}))
    version = 1
    <BLANKLINE>
    [blocks."b c"]
    at = [1.0, 2.0]
    r = { type = "f32" }
    <BLANKLINE>
    """
    return "\n".join(_lines(tables, ())).lstrip("\n") + "\n"


class Inline(dict[str, Any]):
    """A dictionary that is printed on one line."""


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, dict) and not isinstance(value, Inline)}
    if path and (len(inner) < len(table) or not table):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in table.items():
        if key not in inner:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        yield from _lines(value, (*path, key))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _basic(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case str():
            return _string(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            inside = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
            return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "nan" if math.isnan(value) else "inf" if value > 0.0 else "-inf"


def _string(text: str) -> str:
    if "\n" not in text or _LITERAL in text or text.endswith("'") or _CONTROL.search(text):
        return _basic(text)
    return f"{_LITERAL}\n{text}{_LITERAL}"


def _basic(text: str) -> str:
    """A basic string, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
