"""Raises an exception at a chosen line of the engine: what a signal does, at a place that a seed decides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import livegrad

_FOLDER = str(Path(livegrad.__file__).parent / "live")
_FINALIZERS = ("__del__", "_release", "free")  # what they raise nobody sees
Result = TypeVar("Result")


class Interrupted(BaseException):
    """Neither ours nor Python's: nobody expects it."""


def call_interrupted(call: Callable[[], Result], after: int) -> Result:
    """Calls a function, and raises `Interrupted` when the engine has run so many lines of its own."""
    left = after

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise Interrupted
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_FOLDER):
            return None
        return None if frame.f_code.co_name in _FINALIZERS else local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)
