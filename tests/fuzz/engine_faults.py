"""Exceptions at any point inside of a frame: Ctrl-C, or an error that is nobody's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import livegrad

_FOLDER = os.path.dirname(os.path.abspath(livegrad.__file__)) + os.sep


_FREEING = {"__del__"}
_TRACING = {"_trace", *_FREEING}


class Fault(Exception):
    """An error of no library that the engine knows."""


def call_with_fault(function: Callable[[], Any], at: int, error: type[BaseException]) -> tuple[Any, bool]:
    """Calls a function, and raises at the call number `at` of a function of livegrad; says whether it was raised."""
    left = at

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if event == "call" and frame.f_code.co_filename.startswith(_FOLDER):
            left -= 1
            # An error inside of a user's function is one of that function; what is freed meanwhile has no caller.
            inside = _TRACING if issubclass(error, Exception) else _FREEING
            if left <= 0 and inside.isdisjoint(_callers(frame)):
                sys.setprofile(None)
                raise error

    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None  # in a callback of what was freed
    sys.setprofile(profile)
    try:
        return function(), False
    except error:
        return None, True
    finally:
        sys.setprofile(None)
        sys.unraisablehook = hook


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back
