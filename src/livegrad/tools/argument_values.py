"""Parses the values of command-line arguments for `argparse`, which reports the errors."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from livegrad.ir.types import Scalar, f32, f64


def is_object(text: str) -> bool:
    """Whether text names an object of a Python program, or the program itself, instead of a part file.

    >>> is_object("scene.py:shade"), is_object("package.module:graph"), is_object("part.3mf")
    (True, True, False)
    """
    source, separator, name = text.rpartition(":")
    return text.endswith(".py") or (
        bool(separator) and bool(name) and Path(name).suffix not in (".3mf", ".vm") and len(source) > 1
    )


def escape_negative_numbers(arguments: list[str]) -> list[str]:
    """Prefixes values like `-1,2,3` with a space, so that argparse does not parse them as options."""
    return [f" {argument}" if _is_negative(argument) else argument for argument in arguments]


def _is_negative(argument: str) -> bool:
    return argument.startswith("-") and argument[1:2] != "" and argument[1] in "0123456789."


def number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"`{text}` is not a finite number")
    return value


def positive(text: str) -> float:
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"`{text.strip()}` is not greater than zero")
    return value


def numbers(count: int) -> Callable[[str], tuple[float, ...]]:
    def parse(text: str) -> tuple[float, ...]:
        try:
            values = tuple(number(item) for item in text.split(","))
        except ValueError:
            values = ()
        if len(values) != count:
            expected = "a number" if count == 1 else f"{count} comma-separated numbers"
            raise argparse.ArgumentTypeError(f"`{text.strip()}` is not {expected}")
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
        raise argparse.ArgumentTypeError(f"`{text.strip()}` is not a colour: red, green and blue must be from 0 to 1")
    return values


def bounds(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    values = numbers(6)(text)
    low, high = values[:3], values[3:]
    if not all(a < b for a, b in zip(low, high, strict=True)):
        raise argparse.ArgumentTypeError(
            f"`{text.strip()}` is not a box: each lower bound must be less than its upper bound"
        )
    return low, high


def size(text: str) -> tuple[int, int]:
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isascii() and side.isdecimal() and 0 < int(side) <= 16384 for side in sides):
        raise argparse.ArgumentTypeError(f"`{text}` is not a size such as 640x480, of at most 16384x16384")
    return int(sides[0]), int(sides[1])


def change(text: str) -> tuple[str, str, float | tuple[float, ...]]:
    target, _, value = text.rpartition("=")
    function, _, node = target.rpartition(".")
    if not function or not node:
        raise argparse.ArgumentTypeError(f"`{text}` is not FUNCTION.NODE=VALUE")
    values = numbers(value.count(",") + 1)(value)
    return function, node, values[0] if len(values) == 1 else values


def precision(text: str) -> Scalar:
    element = {"32": f32, "64": f64}.get(text)
    if element is None:
        raise argparse.ArgumentTypeError(f"`{text}` is neither 32 nor 64")
    return element


def dimension(text: str) -> tuple[str, int]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not value.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=NUMBER")
    return name.strip(), int(value)
