"""Parses values of command-line arguments; errors go to `argparse`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from livegrad.ir.types import Scalar, f32, f64


def is_object(text: str) -> bool:
    """Whether text names an object (or a program, for want of a name), and not a file of a part.

    >>> is_object("scene.py:shade"), is_object("package.module:graph"), is_object("part.3mf")
    (True, True, False)
    """
    place, separator, name = text.rpartition(":")
    return text.endswith(".py") or (
        bool(separator) and bool(name) and Path(name).suffix not in (".3mf", ".vm") and len(place) > 1
    )


def with_negative_numbers(words: list[str]) -> list[str]:
    """`-1,2,3` is a value, not an option: a leading space tells argparse so."""
    return [f" {word}" if _is_negative(word) else word for word in words]


def _is_negative(word: str) -> bool:
    return word.startswith("-") and word[1:2] != "" and word[1] in "0123456789."


def number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"`{text}` is not a finite number")
    return value


def positive(text: str) -> float:
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"`{text.strip()}` is not above zero")
    return value


def numbers(count: int) -> Callable[[str], tuple[float, ...]]:
    def parse(text: str) -> tuple[float, ...]:
        try:
            values = tuple(number(word) for word in text.split(","))
        except ValueError:
            values = ()
        if len(values) != count:
            wanted = "a number" if count == 1 else f"{count} numbers with commas between them"
            raise argparse.ArgumentTypeError(f"`{text.strip()}` is not {wanted}")
        return values

    return parse


def direction(text: str) -> tuple[float, ...]:
    values = numbers(3)(text)
    if not any(values):
        raise argparse.ArgumentTypeError(f"`{text.strip()}` is not a direction: its length is zero")
    return values


def color(text: str) -> tuple[float, ...]:
    values = numbers(3)(text)
    if not all(0.0 <= value <= 1.0 for value in values):
        raise argparse.ArgumentTypeError(f"`{text.strip()}` is not a colour: red, green and blue are from 0 to 1")
    return values


def bounds(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    values = numbers(6)(text)
    low, high = values[:3], values[3:]
    if not all(a < b for a, b in zip(low, high, strict=True)):
        raise argparse.ArgumentTypeError(f"`{text.strip()}` is not a box: the low corner comes first")
    return low, high


def size(text: str) -> tuple[int, int]:
    words = text.lower().split("x")
    if len(words) != 2 or not all(word.isascii() and word.isdecimal() and 0 < int(word) <= 16384 for word in words):
        raise argparse.ArgumentTypeError(f"`{text}` is not a size such as 640x480, up to 16384 each way")
    return int(words[0]), int(words[1])


def change(text: str) -> tuple[str, str, float | tuple[float, ...]]:
    place, _, value = text.rpartition("=")
    function, _, node = place.rpartition(".")
    if not function or not node:
        raise argparse.ArgumentTypeError(f"`{text}` is not FUNCTION.NODE=VALUE")
    given = numbers(value.count(",") + 1)(value)
    return function, node, given[0] if len(given) == 1 else given


def precision(text: str) -> Scalar:
    found = {"32": f32, "64": f64}.get(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"`{text}` is neither 32 nor 64")
    return found


def dimension(text: str) -> tuple[str, int]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not value.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=NUMBER")
    return name.strip(), int(value)
