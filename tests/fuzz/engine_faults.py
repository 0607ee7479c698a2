"""Exceptions at any point inside of a frame: Ctrl-C, or an error that is nobody's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import livegrad
from tests.live.interrupts import ends_of_with

_FOLDER = os.path.dirname(os.path.abspath(livegrad.__file__)) + os.sep


_ENGINE = os.path.join(_FOLDER, "live") + os.sep
_FREEING = {"__del__"}
_TRACING = {"_trace", *_FREEING}


class Fault(Exception):
    """An error of no library that the engine knows."""


def call_with_fault(
    function: Callable[[], Any], at: int, error: type[BaseException], by_line: bool = False, within: str = ""
) -> tuple[Any, bool]:
    """Calls a function, and raises at a call or line of livegrad, number `at`; says whether it was raised.

    `within` is the path of a file whose lines alone are counted.
    """
    left = at

    def count(frame: FrameType) -> None:
        nonlocal left
        left -= 1
        # An error inside of a user's function is one of that function; what is freed meanwhile has no caller.
        inside = _TRACING if issubclass(error, Exception) else _FREEING
        if left <= 0 and inside.isdisjoint(_callers(frame)):
            sys.setprofile(None)
            sys.settrace(None)
            raise error

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_FOLDER):
            count(frame)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(within or _ENGINE):
            return None
        if event == "line" and frame.f_lasti not in ends_of_with(frame.f_code):
            count(frame)
        return trace

    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None  # in a callback of what was freed
    sys.settrace(trace) if by_line else sys.setprofile(profile)
    try:
        return function(), False
    except error:
        return None, True
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        sys.unraisablehook = hook


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back
